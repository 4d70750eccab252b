// The card's completion queues and shared receive queues.
#include "nic/card_impl.h"

namespace beeline::nic {
namespace {

constexpr int polls_to_skip = 31, warm_polls = 256;

}  // namespace

Result<void> CardImpl::check_cq_depth(std::uint32_t depth) const {
  if (depth == 0 || depth > limits_.cq_depth)
    return fail(Errc::invalid_argument, "a completion queue of {} entries: give 1 … {}", depth,
                limits_.cq_depth);
  return {};
}

Result<CompletionQueue*> CardImpl::create_cq(std::uint32_t depth, Notifier notifier, void* cookie,
                                             EventSink events) {
  BEELINE_TRY_VOID(check_cq_depth(depth));
  const std::lock_guard lock(mutex_);
  if (queues_.size() >= limits_.completion_queues)
    return fail(Errc::resource_exhausted, "{} completion queues exist, and that is the limit",
                queues_.size());
  auto queue = std::make_unique<CompletionQueue>(depth, notifier, cookie, armed_queues_, events);
  CompletionQueue* handle = queue.get();
  queues_.emplace(handle, std::move(queue));
  return handle;
}

Result<void> CardImpl::destroy_cq(CompletionQueue* cq) {
  const std::lock_guard lock(mutex_);
  const auto found = queues_.find(cq);
  if (found == queues_.end()) return fail(Errc::not_found, "there is no such completion queue");
  if (cq->users > 0)
    return fail(Errc::in_use, "{} queue pairs complete into this completion queue: destroy those first",
                cq->users);
  queues_.erase(found);
  return {};
}

Result<void> CardImpl::resize_cq(CompletionQueue* cq, std::uint32_t depth) {
  BEELINE_TRY_VOID(check_cq_depth(depth));
  const std::lock_guard lock(mutex_);
  if (!queues_.contains(cq)) return fail(Errc::not_found, "there is no such completion queue");
  return cq->resize(depth);
}

int CardImpl::poll_cq(CompletionQueue* cq, std::span<proto::Completion> out) {
  if (const int n = cq->poll(out); n != 0 || out.empty()) return n;
  if (lane_ != nullptr && lane_->wants_polls()) {
    engine_.note_poll();
    lane_->poll();
    if (const int n = cq->poll(out); n != 0 || (lane_->is_active() && !is_wires_turn())) return n;
  }
  if (engine_.poll()) warm_wire_polls_.store(warm_polls, std::memory_order_relaxed);
  return cq->poll(out);
}

// A look at the sockets costs as much as many looks at shared memory. As long as nothing comes from
// there, every few looks are enough.
bool CardImpl::is_wires_turn() {
  if (const int warm = warm_wire_polls_.load(std::memory_order_relaxed); warm > 0) {
    warm_wire_polls_.store(warm - 1, std::memory_order_relaxed);
    return true;
  }
  const int skipped = skipped_wire_polls_.load(std::memory_order_relaxed);
  skipped_wire_polls_.store(skipped < polls_to_skip ? skipped + 1 : 0, std::memory_order_relaxed);
  return skipped >= polls_to_skip;
}

void CardImpl::arm_cq(CompletionQueue* cq, bool solicited_only) {
  cq->arm(solicited_only);
  if (thread_ != nullptr) thread_->listen();
}

Result<SharedQueue*> CardImpl::create_srq(PdId domain, std::uint32_t depth, std::uint32_t sges,
                                          EventSink events, void* cookie) {
  if (depth == 0 || depth > limits_.shared_queue_depth)
    return fail(Errc::invalid_argument, "a shared receive queue of {} work requests: give 1 … {}", depth,
                limits_.shared_queue_depth);
  if (sges > limits_.sges)
    return fail(Errc::invalid_argument, "{} pieces per work request: at most {} are possible", sges,
                limits_.sges);
  const std::lock_guard lock(mutex_);
  const auto found = domains_.find(domain.value);
  if (found == domains_.end()) return fail(Errc::not_found, "there is no protection domain {}", domain.value);
  if (shared_queues_.size() >= limits_.shared_queues)
    return fail(Errc::resource_exhausted, "{} shared receive queues exist, and that is the limit",
                shared_queues_.size());
  auto queue = std::make_unique<SharedQueue>(domain, depth, sges, events, cookie);
  SharedQueue* handle = queue.get();
  shared_queues_.emplace(handle, std::move(queue));
  ++found->second.users;
  return handle;
}

Result<void> CardImpl::destroy_srq(SharedQueue* queue) {
  const std::lock_guard lock(mutex_);
  const auto found = shared_queues_.find(queue);
  if (found == shared_queues_.end()) return fail(Errc::not_found, "there is no such shared receive queue");
  if (queue->users > 0)
    return fail(Errc::in_use, "{} queue pairs take from this shared receive queue: destroy those first",
                queue->users);
  --domains_.at(queue->domain.value).users;
  shared_queues_.erase(found);
  return {};
}

Result<void> CardImpl::arm_srq(SharedQueue* queue, std::uint32_t limit) {
  if (!queue->receives.arm(limit))
    return fail(Errc::invalid_argument, "a limit of {}: the shared receive queue holds {}", limit,
                queue->receives.depth());
  return {};
}

std::uint32_t CardImpl::srq_limit(const SharedQueue* queue) const { return queue->receives.limit(); }

proto::PostResult CardImpl::post_srq_recv(SharedQueue* queue, const proto::RecvWr& request) {
  return queue->receives.post(request);
}

}  // namespace beeline::nic
