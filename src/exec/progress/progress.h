// Takes calls, runs them one after the other, watches the peers, and ends everything when
// something fails. All of it happens on the thread that sits in the communicator's seat: one that waits
// for a call, or, when nobody does, the progress thread.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <thread>

#include "exec/communicator.h"
#include "exec/connections/connections.h"
#include "exec/control.h"
#include "exec/progress/bell.h"
#include "exec/progress/inbox.h"
#include "exec/run/roll_call.h"
#include "exec/run/run.h"
#include "exec/small/small_run.h"

namespace beeline::exec {

class Progress : private Listener, private Driver {
 public:
  Progress(const CommunicatorOptions& options, Control& control, std::unique_ptr<Connections> connections,
           Staging staging, std::shared_ptr<Seat> seat, Bell bell);
  ~Progress() override;

  // ---- any thread (driving.cc)
  Result<std::shared_ptr<Work>> submit(const Call& call);
  Result<void> run(const Call& call);
  void abort(std::string reason);
  Stats stats() const;

 private:
  struct Current {
    PendingCall pending;
    Fingerprint fingerprint;
    bool is_small = false;
    TimePoint started, next_warning;  // of a small call: not before somebody has looked at the clock
  };

  // ---- the progress thread (thread.cc)
  void loop();
  bool is_needed() const;
  void drive_for_all();
  void nap();
  void end();
  void farewell();

  // ---- in the seat (driving.cc)
  struct Idle;
  void drive_for(const WorkState& work, TimePoint deadline) override;
  void hand_over() override;
  bool glances();
  bool step();
  bool can_begin_at_once() const;
  void begin_submitted(const WorkState& work);
  bool rest(Idle& idle, TimePoint deadline, Seat::Sleeper who);
  void sleep(TimePoint deadline, Seat::Sleeper who);
  int sleep_ms(TimePoint deadline) const;
  void take_abort();
  void wake_thread();

  // ---- calls (progress.cc)
  bool advance();
  bool start_next();
  void note_start(Current& current, TimePoint now);
  Result<void> begin_small(const Current& current);
  void start(PendingCall pending);
  Result<void> begin(Current& current);
  Result<const Schedule*> schedule_for(const Call& call);
  Result<bool> announce();
  Result<bool> advance_current();
  Result<bool> advance_small();
  void account_for(const Current& finished);
  void finish_current();
  void finish(WorkState& work, Result<void> outcome);

  // ---- what the connections report (progress.cc)
  void on_message(Rank peer, const Message& message) override;
  void on_parcel(Rank peer, const Parcel& parcel) override;
  void on_data(Rank peer, std::uint32_t ticket, std::uint32_t bytes) override;
  void on_written(Rank peer, std::uint32_t cookie) override;
  void on_broken(Rank peer, Error error) override;
  Result<void> hear(Rank peer, const Message& message);
  Result<void> check_way(Rank peer, const Message& message) const;
  Result<void> check_departed() const;
  void note(const Result<void>& result);

  // ---- failure (failure.cc)
  void check_health(TimePoint now);
  std::optional<Error> find_cause(TimePoint now);
  void check_patience(TimePoint now);
  std::string whom_we_wait_for() const;
  std::string current_call() const;
  Error timed_out(Duration waited) const;
  Error with_context(Error error) const;
  Error as_seen_later(const Error& cause) const;
  void fail_all(const Error& cause, const Error& for_others);

  const CommunicatorOptions options_;
  Control& control_;
  const std::uint32_t communicator_;
  const std::shared_ptr<Seat> seat_;
  Inbox inbox_;
  std::unique_ptr<Connections> connections_;
  Staging staging_;  // its region goes before the connections
  FlightRecorder recorder_;
  Run run_;
  SmallRun small_;
  RollCall roll_call_;
  std::map<std::pair<coll::Operation, int>, Schedule> schedules_;  // by operation and root: at most size + 4

  std::optional<Current> current_;
  std::uint64_t sequence_ = 0;
  Fingerprint fingerprint_;             // of the call under way, or of the last one
  std::uint64_t latest_announced_ = 0;  // call, by a message of the roll call or an advert
  bool anybody_departed_ = false;
  std::vector<std::optional<std::uint64_t>> departed_;  // by rank: how many calls it made before it left

  std::optional<Error> verdict_;    // what we found out ourselves, beyond doubt
  std::optional<Error> suspicion_;  // a broken connection: somebody may still tell us why
  TimePoint suspicion_since_;
  std::atomic<bool> failed_{false};  // changes in the seat only

  TimePoint next_control_check_, busy_since_;
  const unsigned spins_;           // how often to look before letting others have the processor
  unsigned waits_in_a_crowd_ = 0;  // to go, before we yield again
  unsigned glances_ = 0;
  unsigned steps_ = 0;                  // since the last look at clock and peers
  std::shared_ptr<WorkState> at_once_;  // of calls that nobody else holds a work of
  std::atomic<std::uint64_t> operations_{0}, bytes_sent_{0}, bytes_received_{0};
  std::atomic<std::int64_t> busy_ns_{0};

  Bell bell_;
  std::atomic<bool> thread_naps_{false};  // for long: it must be woken
  std::atomic<std::int64_t> last_submit_ns_{0};
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace beeline::exec
