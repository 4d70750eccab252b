#include "verbs/common/async_events.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace beeline::verbs {

bool take_token(int fd) {
  std::uint64_t token = 0;
  iovec piece{&token, sizeof token};
  return preadv2(fd, &piece, 1, -1, RWF_NOWAIT) == sizeof token;
}

void AsyncEvents::attach(AsyncSource&) {
  const std::lock_guard guard(lock_);
  ready_.reserve(++sources_);
}

std::uint32_t AsyncEvents::detach(AsyncSource& source) {
  const std::lock_guard guard(lock_);
  ready_.erase(std::remove(ready_.begin(), ready_.end(), &source), ready_.end());
  for (; source.waiting_count_ > 0; --source.waiting_count_) take_token(fd_);
  --sources_;
  return source.delivered_;
}

void AsyncEvents::forgive(AsyncSource& source, pthread_mutex_t& mutex, std::uint32_t& completed) {
  const std::lock_guard guard(lock_);
  pthread_mutex_lock(&mutex);
  completed = source.delivered_;
  pthread_mutex_unlock(&mutex);
}

void AsyncEvents::raise(AsyncSource& source, ibv_event_type type) {
  const std::lock_guard guard(lock_);
  const auto end = source.waiting_.begin() + static_cast<std::ptrdiff_t>(source.waiting_count_);
  if (const auto earlier = std::find(source.waiting_.begin(), end, type); earlier != end) {
    std::rotate(earlier, earlier + 1, end);
    return;
  }
  if (source.waiting_count_ == AsyncSource::max_waiting) return;
  source.waiting_[source.waiting_count_] = type;
  if (source.waiting_count_++ == 0) ready_.push_back(&source);
  const std::uint64_t one = 1;
  // Cannot block: the counter would have to reach 2^64 - 1.
  [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof one);
}

int AsyncEvents::next(ibv_async_event* out) {
  for (;;) {
    std::uint64_t token = 0;
    if (read(fd_, &token, sizeof token) != sizeof token) return -1;
    const std::lock_guard guard(lock_);
    // Empty when the object was destroyed between its event and this fetch.
    if (ready_.empty()) continue;
    AsyncSource& first = *ready_.front();
    ready_.erase(ready_.begin());
    *out = first.template_;
    out->event_type = first.waiting_[0];
    std::copy(first.waiting_.begin() + 1, first.waiting_.end(), first.waiting_.begin());
    if (--first.waiting_count_ > 0) ready_.push_back(&first);
    ++first.delivered_;
    return 0;
  }
}

void acknowledge_async(pthread_mutex_t& mutex, pthread_cond_t& cond, std::uint32_t& completed) {
  pthread_mutex_lock(&mutex);
  ++completed;
  pthread_cond_signal(&cond);
  pthread_mutex_unlock(&mutex);
}

void await_async(pthread_mutex_t& mutex, pthread_cond_t& cond, const std::uint32_t& completed,
                 std::uint32_t delivered) {
  pthread_mutex_lock(&mutex);
  while (completed != delivered) pthread_cond_wait(&cond, &mutex);
  pthread_mutex_unlock(&mutex);
}

}  // namespace beeline::verbs
