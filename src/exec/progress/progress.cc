#include "exec/progress/progress.h"

#include <algorithm>

#include "base/clock.h"

namespace beeline::exec {
namespace {

std::size_t place(Rank rank) { return static_cast<std::size_t>(rank.value); }

}  // namespace

// ---- calls

bool Progress::advance() {
  bool moved = false;
  if (!current_) moved = start_next();
  if (!current_ || verdict_) return moved;
  const Result<bool> advanced = advance_current();
  if (!advanced) {
    note(tl::unexpected<Error>(advanced.error()));
    return true;
  }
  return moved || *advanced;
}

bool Progress::start_next() {
  if (inbox_.pending() == 0) return false;
  auto pending = inbox_.next_call();
  if (!pending) return false;
  start(std::move(*pending));
  return true;
}

void Progress::start(PendingCall pending) {
  const TimePoint started = monotonic_now();
  current_ = Current{.pending = std::move(pending),
                     .fingerprint = {},
                     .started = started,
                     .next_warning = started + options_.warn_after};
  busy_since_ = started;
  note(begin(*current_));
}

Result<void> Progress::begin(Current& current) {
  current.fingerprint = fingerprint_of(current.pending.call, ++sequence_, communicator_);
  recorder_.record(current.started, "call begins", options_.rank, sequence_);
  roll_call_.begin(current.fingerprint);
  BEELINE_TRY_VOID(check_departed());
  if (auto difference = roll_call_.difference()) return tl::unexpected<Error>(std::move(*difference));
  BEELINE_TRY(const Schedule* schedule, schedule_for(current.pending.call));
  return run_.begin(current.pending.call, current.fingerprint, *schedule);
}

Result<const Schedule*> Progress::schedule_for(const Call& call) {
  const Rank root = call.operation == coll::Operation::broadcast ? call.root : Rank{0};
  const auto key = std::pair(call.operation, root.value);
  if (const auto known = schedules_.find(key); known != schedules_.end()) return &known->second;
  BEELINE_TRY(auto plan,
              coll::make_plan(call.operation, coll::Algorithm::ring, options_.size, options_.rank, root));
  return &schedules_.emplace(key, make_schedule(std::move(plan))).first->second;
}

// To whom the roll call says, unless an advert has told it.
Result<bool> Progress::announce() {
  bool moved = false;
  while (const auto peer = roll_call_.to_tell()) {
    if (!roll_call_.in_first_round() || !run_.has_advertised_to(*peer)) {
      if (!connections_->has_room(*peer)) break;
      BEELINE_TRY_VOID(connections_->send(*peer, {.kind = MessageKind::call, .call = current_->fingerprint}));
    }
    roll_call_.told();
    moved = true;
  }
  return moved;
}

Result<bool> Progress::advance_current() {
  BEELINE_TRY(const bool moved, run_.advance());
  BEELINE_TRY(const bool announced, announce());
  if (run_.complete() && roll_call_.complete()) {
    BEELINE_TRY_VOID(run_.end());
    finish_current();
    return true;
  }
  return announced || moved;
}

void Progress::finish_current() {
  const TimePoint finished = monotonic_now();
  recorder_.record(finished, "call complete", options_.rank, sequence_);
  busy_ns_ += (finished - busy_since_).count();
  ++operations_;
  bytes_sent_ = run_.bytes_sent();
  bytes_received_ = run_.bytes_received();
  const auto work = std::move(current_->pending.work);
  current_.reset();
  finish(*work, {});
}

void Progress::finish(WorkState& work, Result<void> outcome) {
  if (&work != at_once_.get()) inbox_.one_finished();
  work.finish(std::move(outcome));
}

// ---- what the connections report

void Progress::note(const Result<void>& result) {
  if (!result && !verdict_) verdict_ = result.error();
}

void Progress::on_message(Rank peer, const Message& message) {
  if (!suspicion_) note(hear(peer, message));
}

Result<void> Progress::hear(Rank peer, const Message& message) {
  switch (message.kind) {
    case MessageKind::call: {
      recorder_.record(monotonic_now(), "peer made call", peer, message.call.sequence);
      BEELINE_TRY_VOID(roll_call_.hear(peer, message.call));
      if (auto difference = roll_call_.difference(); difference && current_)
        return tl::unexpected<Error>(std::move(*difference));
      return {};
    }
    case MessageKind::advert:
      roll_call_.overhear(peer, message.call);
      return run_.on_advert(peer, message);
    case MessageKind::goodbye:
      departed_[place(peer)] = message.call.sequence;
      return check_departed();
    case MessageKind::probe:
      break;
  }
  return fail(Errc::protocol, "rank {} sent a second probe", peer.value);
}

// Every call needs every rank: one that has left after fewer calls will not come any more.
Result<void> Progress::check_departed() const {
  if (!current_) return {};
  for (std::size_t rank = 0; rank < departed_.size(); ++rank)
    if (departed_[rank] && *departed_[rank] < sequence_)
      return fail(Errc::peer_lost, "{} left the group after {} calls, but rank {} is in {}",
                  control_.describe(Rank{static_cast<int>(rank)}), *departed_[rank], options_.rank.value,
                  current_call());
  return {};
}

void Progress::on_data(Rank peer, std::uint32_t ticket, std::uint32_t bytes) {
  if (!suspicion_) note(run_.on_data(peer, ticket, bytes));
}

void Progress::on_written(Rank, std::uint32_t cookie) {
  if (!suspicion_ && current_ && !verdict_) run_.on_written(cookie);
}

// The connection to a rank that has said goodbye may break.
void Progress::on_broken(Rank peer, Error error) {
  if (suspicion_ || departed_[place(peer)]) return;
  suspicion_ = std::move(error);
  suspicion_since_ = monotonic_now();
}

}  // namespace beeline::exec
