#include "nic/queue_pair.h"

#include <array>

#include "base/log.h"

namespace beeline::nic {
namespace {

// Runs of completions for the same queue go together.
bool push_all(QueuePair& qp, std::span<const proto::Completion> completions) {
  bool room = true;
  while (!completions.empty()) {
    const bool is_receive = completions.front().is_receive;
    std::size_t n = 1;
    while (n < completions.size() && completions[n].is_receive == is_receive) ++n;
    CompletionQueue* queue = is_receive ? qp.receive_cq : qp.send_cq;
    room &= queue->push(completions.first(n));
    completions = completions.subspan(n);
  }
  return room;
}

void to_error(QueuePair& qp, TimePoint now) {
  if (qp.protocol.state() == proto::QpState::err || qp.protocol.state() == proto::QpState::reset) return;
  proto::QpAttr attributes;
  attributes.state = proto::QpState::err;
  if (const auto done = qp.protocol.modify(now, attributes, proto::attr::state); !done)
    logger()->error("queue pair {:#08x} could not be put into the error state: {}", qp.qpn.value,
                    done.error().message);
  if (qp.events != nullptr) qp.events(qp.cookie, CardEvent::qp_fatal);
}

struct EventRow {
  proto::QpEvent bit;
  CardEvent event;
};
// In the order in which they are told: the last one says that nothing follows.
constexpr EventRow event_rows[] = {
    {proto::QpEvent::communication_established, CardEvent::qp_communication_established},
    {proto::QpEvent::send_queue_drained, CardEvent::qp_send_queue_drained},
    {proto::QpEvent::invalid_request, CardEvent::qp_invalid_request},
    {proto::QpEvent::access_violation, CardEvent::qp_access_violation},
    {proto::QpEvent::fatal, CardEvent::qp_fatal},
    {proto::QpEvent::last_request_reached, CardEvent::qp_last_request_reached},
};

}  // namespace

void deliver_completions(QueuePair& qp, TimePoint now) {
  // Most turns have none, and making room for some is not free.
  if (!qp.protocol.has_completions()) return;
  std::array<proto::Completion, 16> completions;
  while (qp.protocol.has_completions()) {
    const std::size_t n = qp.protocol.poll_completions(completions);
    if (n == 0) return;
    if (!push_all(qp, std::span(completions).first(n))) to_error(qp, now);
  }
}

void deliver_events(QueuePair& qp) {
  const proto::QpEvent happened = qp.protocol.take_events();
  if (happened == proto::QpEvent::none || qp.events == nullptr) return;
  for (const EventRow& row : event_rows)
    if (proto::contains(happened, row.bit)) qp.events(qp.cookie, row.event);
}

}  // namespace beeline::nic
