#include "exec/progress/progress.h"

#include <poll.h>

#include <algorithm>

#include "base/clock.h"

namespace beeline::exec {
namespace {

// Waiting costs nothing at first, then the processor of somebody else, then latency: poll
// busily, then let others run in between, then sleep until something happens.
constexpr Duration spin_for = 20us, yield_for = 200us;
// A rank that leaves stays until the others have left, too, but not longer than this: long
// enough to repeat an acknowledgement that got lost.
constexpr Duration farewell_at_most = 1200ms;

std::size_t place(Rank rank) { return static_cast<std::size_t>(rank.value); }

}  // namespace

Progress::Progress(const CommunicatorOptions& options, Control& control,
                   std::unique_ptr<Connections> connections, Staging staging, std::unique_ptr<Inbox> inbox)
    : options_(options),
      control_(control),
      communicator_(communicator_id(options.name, options.size)),
      inbox_(std::move(inbox)),
      connections_(std::move(connections)),
      staging_(std::move(staging)),
      run_(*connections_, staging_, recorder_, options.rank, options.size, options.piece_bytes),
      roll_call_(options.rank, options.size),
      departed_(static_cast<std::size_t>(options.size)),
      thread_([this] { loop(); }) {}

Progress::~Progress() {
  inbox_->stop();
  thread_.join();
}

Stats Progress::stats() const {
  return {.operations = operations_,
          .bytes_sent = bytes_sent_,
          .bytes_received = bytes_received_,
          .busy = Duration(busy_ns_)};
}

// ---- the loop

void Progress::loop() {
  last_progress_ = monotonic_now();
  while (take_requests()) {
    bool moved = false;
    if (!failed_) {
      moved = connections_->poll(*this) > 0;
      check_health();
    }
    if (!failed_ && !suspicion_) moved = advance() || moved;
    if (moved)
      last_progress_ = monotonic_now();
    else
      rest();
  }
}

// False when it is time to end.
bool Progress::take_requests() {
  if (auto reason = inbox_->abort_reason(); reason && !failed_) {
    const Error error{Errc::aborted,
                      fmt::format("{} aborted: {}", control_.describe(options_.rank), *reason)};
    fail_all(error, error);
  }
  if (!inbox_->stop_requested()) return true;
  const Error ended{Errc::aborted,
                    fmt::format("{} ended its communicator", control_.describe(options_.rank))};
  auto waiting = inbox_->close(ended);
  const bool unfinished = current_ || !waiting.empty();
  if (unfinished && !failed_) fail_all(ended, ended);
  for (PendingCall& call : waiting) call.work->finish(tl::unexpected<Error>(ended));
  if (!failed_) farewell();
  return false;
}

void Progress::farewell() {
  Message goodbye{.kind = MessageKind::goodbye};
  goodbye.call = {.sequence = sequence_, .communicator = communicator_};
  const TimePoint deadline = monotonic_now() + farewell_at_most;
  std::vector<bool> told(departed_.size(), false);
  told[place(options_.rank)] = true;
  for (bool waiting = true;
       waiting && monotonic_now() < deadline && !suspicion_ && !control_.poll_failure();) {
    waiting = false;
    for (int i = 0; i < options_.size; ++i) {
      const Rank peer{i};
      if (!told[place(peer)] && connections_->has_room(peer))
        told[place(peer)] = connections_->send(peer, goodbye, true).has_value();
      if (peer != options_.rank)
        waiting = waiting || !told[place(peer)] || !departed_[place(peer)] || !connections_->all_sent(peer);
    }
    if (connections_->poll(*this) == 0) std::this_thread::sleep_for(50us);
  }
}

// ---- waiting

void Progress::rest() {
  const Duration idle = monotonic_now() - last_progress_;
  if (!failed_ && idle < spin_for) return;
  if (!failed_ && idle < yield_for)
    std::this_thread::yield();
  else
    sleep();
}

void Progress::sleep() {
  if (!failed_) {
    note(connections_->arm());
    if (connections_->poll(*this) > 0 || verdict_) {
      last_progress_ = monotonic_now();
      return;
    }
  }
  pollfd descriptors[] = {{inbox_->descriptor(), POLLIN, 0},
                          {failed_ ? -1 : connections_->descriptor(), POLLIN, 0},
                          {failed_ ? -1 : control_.wait_descriptor(), POLLIN, 0}};
  ::poll(descriptors, std::size(descriptors), sleep_ms());
  if (descriptors[0].revents != 0) inbox_->drain();
  if (descriptors[1].revents != 0) connections_->drain();
  next_control_check_ = {};
}

// Until the next deadline; never for ever, so that a lost wake-up costs a moment only.
int Progress::sleep_ms() const {
  Duration longest = 1s;
  if (suspicion_) longest = 10ms;
  if (current_ && !failed_) {
    const TimePoint deadline = current_->started + options_.operation_timeout;
    const Duration next = std::min(current_->next_warning, deadline) - monotonic_now();
    longest = std::clamp<Duration>(next, 1ms, longest);
  }
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(longest).count());
}

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
  auto pending = inbox_->next_call();
  if (!pending) return false;
  const TimePoint started = monotonic_now();
  current_ = Current{.pending = std::move(*pending),
                     .fingerprint = {},
                     .started = started,
                     .next_warning = started + options_.warn_after};
  busy_since_ = started;
  note(begin(*current_));
  return true;
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
  work->finish({});
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
