#include "proto/ops/receive_source.h"

#include <algorithm>

#include "proto/ops/gather.h"

namespace beeline::proto {
namespace {

// A shared queue may be deep, and the owner polls after every packet: a few are enough.
constexpr std::size_t max_shared_completions = 64;

}  // namespace

std::size_t ReceiveSource::completion_room(const QpSetup& setup) {
  if (setup.shared_receives == nullptr) return setup.limits.receive_depth;
  return std::min<std::size_t>(setup.shared_receives->depth(), max_shared_completions);
}

ReceiveSource::ReceiveSource(const QpSetup& setup, CompletionRing& completions)
    : own_(setup.shared_receives == nullptr ? setup.limits : QpLimits{.receive_depth = 0}),
      shared_(setup.shared_receives),
      completions_(completions),
      qpn_(setup.qpn),
      shared_room_(completion_room(setup)) {}

PostResult ReceiveSource::post(const RecvWr& wr) {
  return shared_ != nullptr ? PostResult::invalid : own_.post(wr, completions_.receives());
}

const ReceiveRequest* ReceiveSource::hold_shared() {
  if (!holds_shared_) {
    if (completions_.receives() >= shared_room_) return nullptr;
    std::size_t sge_count = 0;
    if (!shared_->take(shared_request_.wr_id, shared_sges_, sge_count)) return nullptr;
    shared_request_.sges = std::span(shared_sges_).first(sge_count);
    shared_request_.length = total_length(shared_request_.sges);
    holds_shared_ = true;
  }
  return &shared_request_;
}

void ReceiveSource::complete(Completion& completion) {
  completion.is_receive = true;
  completion.qpn = qpn_;
  if (shared_ != nullptr) {
    completion.wr_id = shared_request_.wr_id;
    holds_shared_ = false;
  } else {
    completion.wr_id = own_.front().wr_id;
    own_.pop();
  }
  completions_.push(completion);
}

void ReceiveSource::flush() {
  while (holds_shared_ || !own_.empty()) {
    Completion completion;
    completion.status = WcStatus::flushed;
    completion.opcode = WcOpcode::receive;
    complete(completion);
  }
}

void ReceiveSource::clear() {
  own_.clear();
  holds_shared_ = false;
}

}  // namespace beeline::proto
