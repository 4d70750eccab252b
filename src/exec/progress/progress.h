// The progress thread of a communicator: takes calls, runs them one after the other,
// watches the peers, and ends everything when something fails.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <thread>

#include "exec/communicator.h"
#include "exec/connections/connections.h"
#include "exec/control.h"
#include "exec/progress/inbox.h"
#include "exec/run/roll_call.h"
#include "exec/run/run.h"

namespace beeline::exec {

class Progress : private Listener {
 public:
  Progress(const CommunicatorOptions& options, Control& control, std::unique_ptr<Connections> connections,
           Staging staging, std::unique_ptr<Inbox> inbox);
  ~Progress() override;

  Inbox& inbox() { return *inbox_; }
  Stats stats() const;

 private:
  struct Current {
    PendingCall pending;
    Fingerprint fingerprint;
    TimePoint started, next_warning;
  };

  void loop();
  bool take_requests();
  void farewell();
  void rest();
  void sleep();
  int sleep_ms() const;

  // ---- calls (progress.cc)
  bool advance();
  bool start_next();
  Result<void> begin(Current& current);
  Result<const Schedule*> schedule_for(const Call& call);
  Result<bool> announce();
  Result<bool> advance_current();
  void finish_current();
  void publish_stats();

  // ---- what the connections report (progress.cc)
  void on_message(Rank peer, const Message& message) override;
  void on_data(Rank peer, std::uint32_t ticket, std::uint32_t bytes) override;
  void on_written(Rank peer, std::uint32_t cookie) override;
  void on_broken(Rank peer, Error error) override;
  Result<void> hear(Rank peer, const Message& message);
  Result<void> check_departed() const;
  void note(const Result<void>& result);

  // ---- failure (failure.cc)
  void check_health();
  std::optional<Error> find_cause();
  void check_patience();
  std::string whom_we_wait_for() const;
  std::string current_call() const;
  Error timed_out(Duration waited) const;
  Error with_context(Error error) const;
  Error as_seen_later(const Error& cause) const;
  void fail_all(const Error& cause, const Error& for_others);

  const CommunicatorOptions options_;
  Control& control_;
  const std::uint32_t communicator_;
  std::unique_ptr<Inbox> inbox_;
  std::unique_ptr<Connections> connections_;
  Staging staging_;  // its region goes before the connections
  FlightRecorder recorder_;
  Run run_;
  RollCall roll_call_;
  std::map<std::pair<coll::Operation, int>, Schedule> schedules_;  // by operation and root: at most size + 4

  std::optional<Current> current_;
  std::uint64_t sequence_ = 0;
  std::vector<std::optional<std::uint64_t>> departed_;  // by rank: how many calls it made before it left

  std::optional<Error> verdict_;    // what we found out ourselves, beyond doubt
  std::optional<Error> suspicion_;  // a broken connection: somebody may still tell us why
  TimePoint suspicion_since_;
  bool failed_ = false;

  TimePoint last_progress_, next_control_check_, busy_since_;
  std::atomic<std::uint64_t> operations_{0}, bytes_sent_{0}, bytes_received_{0};
  std::atomic<std::int64_t> busy_ns_{0};

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace beeline::exec
