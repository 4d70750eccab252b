#include "verbs/common/events.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "verbs/common/async_events.h"

namespace beeline::verbs {

EventedCq::EventedCq() : ibv_cq{} {
  pthread_mutex_init(&mutex, nullptr);
  pthread_cond_init(&cond, nullptr);
}

EventedCq::~EventedCq() {
  pthread_cond_destroy(&cond);
  pthread_mutex_destroy(&mutex);
}

EventChannel::EventChannel(ibv_context* owner) : ibv_comp_channel{} {
  context = owner;
  fd = -1;
}

EventChannel::~EventChannel() {
  if (fd_ >= 0) close(fd_);
}

bool EventChannel::open() {
  fd = fd_ = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  return fd_ >= 0;
}

void EventChannel::attach(EventedCq* cq) {
  const std::lock_guard guard(lock_);
  cq->channel = this;
  ++refcnt;
  ready_.reserve(static_cast<std::size_t>(refcnt));
}

void EventChannel::detach(EventedCq* cq) {
  unsigned delivered = 0;
  {
    const std::lock_guard guard(lock_);
    ready_.erase(std::remove(ready_.begin(), ready_.end(), cq), ready_.end());
    for (; cq->waiting > 0; --cq->waiting) take_token(fd_);
    delivered = cq->delivered;
    --refcnt;
  }
  pthread_mutex_lock(&cq->mutex);
  while (cq->comp_events_completed != delivered) pthread_cond_wait(&cq->cond, &cq->mutex);
  pthread_mutex_unlock(&cq->mutex);
}

void EventChannel::forgive(EventedCq* cq) {
  const std::lock_guard guard(lock_);
  pthread_mutex_lock(&cq->mutex);
  cq->comp_events_completed = cq->delivered;
  pthread_mutex_unlock(&cq->mutex);
}

bool EventChannel::attached() const {
  const std::lock_guard guard(lock_);
  return refcnt > 0;
}

void EventChannel::raise(EventedCq* cq) {
  const std::lock_guard guard(lock_);
  if (cq->waiting++ == 0) ready_.push_back(cq);
  const std::uint64_t one = 1;
  // Cannot block: the counter would have to reach 2^64 - 1.
  [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof one);
}

int EventChannel::next(ibv_cq** cq, void** cq_context) {
  for (;;) {
    std::uint64_t token = 0;
    if (read(fd_, &token, sizeof token) != sizeof token) return -1;
    const std::lock_guard guard(lock_);
    // Empty when the queue was destroyed between its event and this fetch.
    if (ready_.empty()) continue;
    EventedCq* first = ready_.front();
    ready_.erase(ready_.begin());
    ++first->delivered;
    if (--first->waiting > 0) ready_.push_back(first);
    *cq = first;
    *cq_context = first->cq_context;
    return 0;
  }
}

void acknowledge(ibv_cq* cq, unsigned count) {
  pthread_mutex_lock(&cq->mutex);
  cq->comp_events_completed += count;
  pthread_cond_signal(&cq->cond);
  pthread_mutex_unlock(&cq->mutex);
}

}  // namespace beeline::verbs
