// ibv_ack_async_event: the event says what object it is about, and that whose it is.
#include "preload/export.h"
#include "preload/verbs/route.h"

using beeline::verbs::FullProvider;
using namespace beeline::preload;

namespace {

template <class T>
void acknowledge(T* object, ibv_async_event* event) {
  if (auto* provider = owner_of(object)) {
    provider->ack_async_event(event);
  } else if (is_real(object)) {
    real_functions().ibv_ack_async_event(event);
  }
}

}  // namespace

extern "C" BEELINE_EXPORT void ibv_ack_async_event(ibv_async_event* event) {
  switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
      return acknowledge(event->element.cq, event);
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return acknowledge(event->element.qp, event);
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return acknowledge(event->element.srq, event);
    case IBV_EVENT_WQ_FATAL:
      return acknowledge(event->element.wq, event);
    default:
      return;  // about a port or a device: nothing waits for it
  }
}
