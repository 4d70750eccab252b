// How calls come in, and how whoever sits in the seat brings them to their end.

#include <poll.h>

#include <algorithm>

#include "base/clock.h"
#include "exec/progress/progress.h"

namespace beeline::exec {
namespace {

// Waiting costs nothing at first, then the processor of somebody else, then latency: poll
// busily (Progress::spins_), then let others run in between, then sleep until something happens.
constexpr Duration yield_for = 300us;
// But where others who never wait have the processor too, who yields gets it back a time slice later, and who
// sleeps as soon as he is woken: so this often we do not yield after a yield that took longer than that.
constexpr unsigned waits_after_a_long_yield = 64;
// While things move, clock and peers are looked at all the same, once in so many steps.
constexpr unsigned steps_between_looks = 256;
// Letters are seen without the card's help: it is asked only after so many looks.
constexpr unsigned glances_per_poll = 16;
// With as many looks in between, polling takes the longer.
constexpr unsigned polls_per_poll_with_letters = 8;
// Whoever sends one knows that we sleep (mailbox.h), if the device is quick; and if not, sleep is short.
constexpr Duration sleep_for_letters = 10ms, sleep_unknown = 1ms;
// Calls of this size are worth waking the progress thread for, in case their caller does not wait yet.
constexpr std::size_t worth_waking = std::size_t{64} * 1024;

}  // namespace

struct Progress::Idle {
  unsigned polls = 0;
  TimePoint since;  // when spinning ended
};

// ---- any thread

// A call on its own is begun by its caller: what it has to send is on its way when this returns.
Result<std::shared_ptr<Work>> Progress::submit(const Call& call) {
  auto work = std::make_shared<WorkState>(seat_);
  BEELINE_TRY_VOID(inbox_.submit({call, work}));
  last_submit_ns_.store(monotonic_now().ns, std::memory_order_relaxed);
  if (inbox_.pending() == 1 && seat_->try_take()) {
    begin_submitted(*work);
    seat_->leave();
  }
  if (work->done()) return work;
  const bool large =
      call.operation != coll::Operation::barrier && call.count * element_bytes(call.dtype) >= worth_waking;
  if (large || thread_naps_) bell_.ring();
  return work;
}

Result<void> Progress::run(const Call& call) {
  if (inbox_.pending() == 0 && seat_->try_take()) {
    if (can_begin_at_once()) {
      const std::shared_ptr<WorkState> work(std::shared_ptr<void>(), at_once_.get());  // costs no counting
      work->reuse();
      start({call, work});
      drive_for(*work, TimePoint::never());
      if (work->done()) {
        Result<void> outcome = work->outcome();
        hand_over();
        seat_->leave();
        return outcome;
      }
      const std::shared_ptr<WorkState> unfinished = at_once_;  // the communicator is about to end
      seat_->leave();
      return unfinished->wait(Duration::max());
    }
    seat_->leave();
  }
  BEELINE_TRY(const auto work, submit(call));
  return work->wait(Duration::max());
}

void Progress::abort(std::string reason) {
  inbox_.abort(std::move(reason));
  seat_->ring();
  bell_.ring();
}

Stats Progress::stats() const {
  return {.operations = operations_,
          .bytes_sent = bytes_sent_,
          .bytes_received = bytes_received_,
          .busy = Duration(busy_ns_)};
}

// ---- in the seat

bool Progress::can_begin_at_once() const {
  return inbox_.pending() == 0 && !current_ && !failed_ && !verdict_ && !suspicion_ && !inbox_.has_abort() &&
         !inbox_.stop_requested();
}

// Only the call just submitted may complete here: its caller has no handle yet, so no callback of his
// can run in the middle of his own call.
void Progress::begin_submitted(const WorkState& work) {
  if (current_ || failed_ || verdict_ || suspicion_ || inbox_.has_abort()) return;
  if (start_next() && current_->pending.work.get() == &work) advance();
}

void Progress::drive_for(const WorkState& work, TimePoint deadline) {
  Idle idle;
  while (true) {
    const bool glanced = glances();
    const bool moved = glanced ? advance() : step();
    if (work.done() || inbox_.stop_requested()) return;
    if (moved)
      idle = {};
    else if (glanced)
      continue;
    else if (!rest(idle, deadline, Seat::Sleeper::waiter))
      return;
  }
}

void Progress::drive_for_all() {
  Idle idle;
  while (is_needed()) {
    if (step())
      idle = {};
    else
      rest(idle, TimePoint::never(), Seat::Sleeper::thread);
  }
}

void Progress::hand_over() {
  if (inbox_.pending() != 0 && thread_naps_) bell_.ring();
}

// Is it enough to look for a letter this time?
bool Progress::glances() {
  return current_ && !verdict_ && !suspicion_ && !failed_ && small_.looks_for_letters() &&
         ++glances_ % glances_per_poll != 0;
}

// Was there anything to do?
bool Progress::step() {
  if (inbox_.has_abort()) take_abort();
  if (failed_) return false;
  if (current_) note(small_.wake_sleepers());
  const bool polled = connections_->poll(*this) > 0;
  if (verdict_ || suspicion_ || ++steps_ % steps_between_looks == 0) check_health(monotonic_now());
  if (failed_ || suspicion_) return polled;
  return advance() || polled;
}

void Progress::take_abort() {
  const auto reason = inbox_.abort_reason();
  if (!reason || failed_) return;
  const Error error{Errc::aborted, fmt::format("{} aborted: {}", control_.describe(options_.rank), *reason)};
  fail_all(error, error);
}

// ---- waiting

// False when the deadline has passed.
bool Progress::rest(Idle& idle, TimePoint deadline, Seat::Sleeper who) {
  if (++idle.polls <= (small_.looks_for_letters() ? spins_ / polls_per_poll_with_letters : spins_))
    return true;
  const TimePoint now = monotonic_now();
  check_health(now);
  if (now >= deadline) return false;
  if (idle.since == TimePoint{}) idle.since = now;
  if (now - idle.since < yield_for && waits_in_a_crowd_ == 0) {
    std::this_thread::yield();
    if (monotonic_now() - now > yield_for) waits_in_a_crowd_ = waits_after_a_long_yield;
  } else {
    if (waits_in_a_crowd_ != 0) --waits_in_a_crowd_;
    sleep(deadline, who);
  }
  return true;
}

void Progress::sleep(TimePoint deadline, Seat::Sleeper who) {
  if (failed_) return;
  note(connections_->arm());
  if (connections_->poll(*this) > 0 || verdict_ || small_.prepare_to_sleep()) return;
  seat_->falls_asleep(who);
  const bool wanted = inbox_.has_abort() || inbox_.stop_requested() ||
                      (who == Seat::Sleeper::thread && seat_->somebody_waits());
  pollfd descriptors[] = {{seat_->bell().descriptor(), POLLIN, 0},
                          {connections_->descriptor(), POLLIN, 0},
                          {control_.wait_descriptor(), POLLIN, 0}};
  if (!wanted) ::poll(descriptors, std::size(descriptors), sleep_ms(deadline));
  seat_->is_awake();
  if (descriptors[0].revents != 0) seat_->bell().drain();
  if (descriptors[1].revents != 0) connections_->drain();
  next_control_check_ = {};
}

// Until the next deadline; never for ever, so that a lost wake-up costs a moment only.
int Progress::sleep_ms(TimePoint deadline) const {
  const TimePoint now = monotonic_now();
  Duration longest = 1s;
  if (suspicion_) longest = 10ms;
  if (small_.may_get_letters()) longest = small_.all_know_that_we_sleep() ? sleep_for_letters : sleep_unknown;
  const auto shorten = [&](TimePoint next) { longest = std::clamp<Duration>(next - now, 1ms, longest); };
  if (deadline != TimePoint::never()) shorten(deadline);
  if (current_ && current_->started != TimePoint{})
    shorten(std::min(current_->next_warning, current_->started + options_.operation_timeout));
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(longest).count());
}

}  // namespace beeline::exec
