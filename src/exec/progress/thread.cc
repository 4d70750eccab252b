// The progress thread: drives while nobody waits, watches for failures while nothing is
// under way, and ends the communicator.

#include <poll.h>

#include <algorithm>

#include "base/clock.h"
#include "exec/progress/progress.h"

namespace beeline::exec {
namespace {

// After a call without a waiter the thread looks every so often whether it is needed, for some time, so
// that the next calls need not wake it. Then it sleeps.
constexpr Duration tick = 200us, tick_for = 20ms;
// A rank that leaves stays until the others have left, too, but not longer than this: long
// enough to repeat an acknowledgement that got lost.
constexpr Duration farewell_at_most = 1200ms;

std::size_t place(Rank rank) { return static_cast<std::size_t>(rank.value); }

// Is there a processor for every rank that lives here? Then looking again and again is no harm.
unsigned spins_for(const Connections& connections) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 0;
  return connections.ranks_here() <= CPU_COUNT(&allowed) ? 100 : 0;
}

}  // namespace

Progress::Progress(const CommunicatorOptions& options, Control& control,
                   std::unique_ptr<Connections> connections, Staging staging, std::shared_ptr<Seat> seat,
                   Bell bell)
    : options_(options),
      control_(control),
      communicator_(communicator_id(options.name, options.size)),
      seat_(std::move(seat)),
      connections_(std::move(connections)),
      staging_(std::move(staging)),
      run_(*connections_, staging_, recorder_, options.rank, options.size, options.piece_bytes),
      small_(*connections_, options.rank, options.size),
      roll_call_(options.rank, options.size),
      departed_(static_cast<std::size_t>(options.size)),
      spins_(spins_for(*connections_)),
      at_once_(std::make_shared<WorkState>(seat_)),
      bell_(std::move(bell)) {
  seat_->driver = this;
  thread_ = std::thread([this] { loop(); });
}

Progress::~Progress() {
  inbox_.stop();
  seat_->ring();
  bell_.ring();
  thread_.join();
}

void Progress::loop() {
  while (!inbox_.stop_requested()) {
    if (is_needed() && seat_->try_take()) {
      drive_for_all();
      seat_->leave();
    } else {
      nap();
    }
  }
  while (!seat_->try_take()) std::this_thread::yield();
  end();
  seat_->driver = nullptr;
  seat_->leave();
}

bool Progress::is_needed() const {
  return ((inbox_.pending() != 0 && !failed_) || inbox_.has_abort()) && !seat_->somebody_waits() &&
         !inbox_.stop_requested();
}

void Progress::nap() {
  if (is_needed()) return std::this_thread::yield();  // somebody is just getting up
  const bool ticks =
      monotonic_now().ns - last_submit_ns_.load(std::memory_order_relaxed) < tick_for.count() && !failed_;
  pollfd descriptors[] = {{bell_.descriptor(), POLLIN, 0},
                          {failed_ ? -1 : control_.wait_descriptor(), POLLIN, 0}};
  const timespec one_tick{.tv_sec = 0, .tv_nsec = tick.count()};
  // While others drive the nap is shorter, in case the last of them gets up just now.
  const timespec long_nap = inbox_.pending() == 0 ? timespec{.tv_sec = 1, .tv_nsec = 0}
                                                  : timespec{.tv_sec = 0, .tv_nsec = 10'000'000};
  thread_naps_ = !ticks;
  if (!is_needed() && !inbox_.stop_requested())
    ::ppoll(descriptors, std::size(descriptors), ticks ? &one_tick : &long_nap, nullptr);
  thread_naps_ = false;
  if (descriptors[0].revents != 0) bell_.drain();
  if (descriptors[1].revents == 0) return;
  if (!seat_->try_take()) {  // whoever drives looks at the control connections himself
    std::this_thread::sleep_for(tick);
    return;
  }
  next_control_check_ = {};
  check_health(monotonic_now());
  seat_->leave();
}

// ---- the end

void Progress::end() {
  if (inbox_.has_abort()) take_abort();
  const Error ended{Errc::aborted,
                    fmt::format("{} ended its communicator", control_.describe(options_.rank))};
  auto waiting = inbox_.close(ended);
  const bool unfinished = current_ || !waiting.empty();
  if (unfinished && !failed_) fail_all(ended, ended);
  for (PendingCall& call : waiting) finish(*call.work, tl::unexpected<Error>(ended));
  if (!failed_) farewell();
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

}  // namespace beeline::exec
