#include "exec/progress/progress.h"

#include <algorithm>

#include "base/clock.h"

namespace beeline::exec {
namespace {

// The clock is read for one small call of so many; for others only when they take their time.
constexpr std::int64_t small_calls_per_reading = 16;
constexpr Duration short_call = 20us;

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
  current_ = Current{};
  current_->pending = std::move(pending);
  const Call& call = current_->pending.call;
  current_->fingerprint = fingerprint_ = fingerprint_of(call, ++sequence_, communicator_);
  current_->is_small = small_.takes(call);
  // Most small calls are over before a look at the clock would be.
  if (!current_->is_small || operations_.load(std::memory_order_relaxed) % small_calls_per_reading == 0)
    note_start(*current_, monotonic_now());
  roll_call_.begin(fingerprint_);
  note(begin(*current_));
}

void Progress::note_start(Current& current, TimePoint now) {
  current.started = now;
  current.next_warning = now + options_.warn_after;
  recorder_.record(now, "call begins", options_.rank, sequence_);
}

Result<void> Progress::begin(Current& current) {
  BEELINE_TRY_VOID(check_departed());
  if (current.is_small) return begin_small(current);
  if (auto difference = small_.difference(current.fingerprint))
    return tl::unexpected<Error>(std::move(*difference));
  if (auto difference = roll_call_.difference()) return tl::unexpected<Error>(std::move(*difference));
  BEELINE_TRY(const Schedule* schedule, schedule_for(current.pending.call));
  return run_.begin(current.pending.call, current.fingerprint, *schedule);
}

Result<void> Progress::begin_small(const Current& current) {
  if (latest_announced_ >= sequence_) {
    if (auto difference = roll_call_.difference()) return tl::unexpected<Error>(std::move(*difference));
    BEELINE_TRY_VOID(run_.check_invitations_of(current.fingerprint));
  }
  return small_.begin(current.pending.call, current.fingerprint);
}

// Two ranks that reduce send as much by either way, and exchanging everything at once takes one step where
// the ring takes two: more additions, but nobody waits for the other's.
coll::Algorithm algorithm_of_large(coll::Operation operation, int size) {
  return size == 2 && operation == coll::Operation::all_reduce ? coll::Algorithm::direct
                                                               : coll::Algorithm::ring;
}

Result<const Schedule*> Progress::schedule_for(const Call& call) {
  const Rank root = call.operation == coll::Operation::broadcast ? call.root : Rank{0};
  const auto key = std::pair(call.operation, root.value);
  if (const auto known = schedules_.find(key); known != schedules_.end()) return &known->second;
  BEELINE_TRY(auto plan, coll::make_plan(call.operation, algorithm_of_large(call.operation, options_.size),
                                         options_.size, options_.rank, root));
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

Result<bool> Progress::advance_small() {
  BEELINE_TRY(const bool moved, small_.advance());
  if (!small_.complete()) return moved;
  BEELINE_TRY_VOID(small_.end());
  finish_current();
  return true;
}

Result<bool> Progress::advance_current() {
  if (current_->is_small) return advance_small();
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
  account_for(*current_);
  const auto work = std::move(current_->pending.work);
  current_.reset();
  finish(*work, {});
}

// Only whoever sits in the seat writes these.
void Progress::account_for(const Current& finished) {
  const auto add = [](auto& counter, auto more) {
    counter.store(counter.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  };
  add(operations_, 1u);
  bytes_sent_.store(run_.bytes_sent() + small_.bytes_sent(), std::memory_order_relaxed);
  bytes_received_.store(run_.bytes_received() + small_.bytes_received(), std::memory_order_relaxed);
  if (finished.started == TimePoint{}) return;
  const TimePoint now = monotonic_now();
  recorder_.record(now, "call complete", options_.rank, sequence_);
  const Duration took = now - finished.started;
  // A reading stands for the calls that were as short and not looked at.
  add(busy_ns_, took.count() * (finished.is_small && took < short_call ? small_calls_per_reading : 1));
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
      BEELINE_TRY_VOID(check_way(peer, message));
      roll_call_.catch_up(peer, small_.last_from(peer, message.call.sequence - 1));
      BEELINE_TRY_VOID(roll_call_.hear(peer, message.call));
      latest_announced_ = std::max(latest_announced_, message.call.sequence);
      if (!current_ || current_->is_small) return {};
      if (auto difference = roll_call_.difference()) return tl::unexpected<Error>(std::move(*difference));
      return {};
    }
    case MessageKind::advert:
      if (message.call.sequence < sequence_ || (message.call.sequence == sequence_ && !current_))
        return fail(Errc::protocol, "rank {} asks for data of its call {}, which rank {} has completed",
                    peer.value, message.call.sequence, options_.rank.value);
      BEELINE_TRY_VOID(check_way(peer, message));
      roll_call_.catch_up(peer, small_.last_from(peer, message.call.sequence - 1));
      roll_call_.overhear(peer, message.call);
      latest_announced_ = std::max(latest_announced_, message.call.sequence);
      return run_.on_advert(peer, message);
    case MessageKind::goodbye:
      departed_[place(peer)] = message.call.sequence;
      anybody_departed_ = true;
      return check_departed();
    case MessageKind::wake:  // a letter of it is there
      connections_->prefer_messages(peer);
      return {};
    case MessageKind::probe:
    case MessageKind::parcel:
      break;
  }
  return fail(Errc::protocol, "rank {} sent a second probe", peer.value);
}

// A small call is announced by its parcels and by nothing else.
Result<void> Progress::check_way(Rank peer, const Message& message) const {
  if (!current_ || !current_->is_small || message.call.sequence != sequence_) return {};
  if (message.call != fingerprint_)
    return tl::unexpected<Error>(mismatch(options_.rank, fingerprint_, peer, message.call));
  return fail(Errc::protocol, "rank {} treats call {} as a large one, rank {} does not", peer.value,
              sequence_, options_.rank.value);
}

// Every call needs every rank: one that has left after fewer calls will not come any more.
Result<void> Progress::check_departed() const {
  if (!current_ || !anybody_departed_) return {};
  for (std::size_t rank = 0; rank < departed_.size(); ++rank)
    if (departed_[rank] && *departed_[rank] < sequence_)
      return fail(Errc::peer_lost, "{} left the group after {} calls, but rank {} is in {}",
                  control_.describe(Rank{static_cast<int>(rank)}), *departed_[rank], options_.rank.value,
                  current_call());
  return {};
}

void Progress::on_parcel(Rank peer, const Parcel& parcel) {
  if (!suspicion_) note(small_.on_parcel(peer, parcel, fingerprint_, current_.has_value()));
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
