// What stands behind the opaque pointers of beeline.h.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "bootstrap/group.h"
#include "exec/communicator.h"
#include "verbs/verbs.h"

namespace beeline::api {

// bootstrap/ as exec/ wants it.
class GroupControl final : public exec::Control {
 public:
  explicit GroupControl(bootstrap::Group& group) : group_(group) {}

  Result<std::vector<std::vector<std::byte>>> all_gather(Bytes mine, Duration timeout) override {
    return group_.all_gather(mine, timeout);
  }
  void broadcast_failure(const Error& error) override { group_.broadcast_failure(error); }
  std::optional<exec::Failure> poll_failure() override {
    auto failure = group_.poll_failure();
    if (!failure) return std::nullopt;
    return exec::Failure{failure->rank, std::move(failure->error)};
  }
  int wait_descriptor() const override { return group_.wait_descriptor(); }
  std::string describe(Rank rank) const override { return group_.describe(rank); }

 private:
  bootstrap::Group& group_;
};

// Longer than any operation may take.
constexpr Duration for_ever = 24h * 366;

}  // namespace beeline::api

struct beeline_comm {
  std::uint64_t generation = 0;  // see api::generation
  beeline::Rank rank{0};
  int size = 1;
  std::string device;

  // In the order of dependence: the executor goes first.
  std::unique_ptr<beeline::bootstrap::Group> group;
  std::unique_ptr<beeline::api::GroupControl> control;
  beeline::verbs::Context context;
  std::unique_ptr<beeline::exec::Communicator> executor;

  // Operations run in the order of the calls, so the last one ends last.
  std::mutex last_mutex;
  std::shared_ptr<beeline::exec::Work> last;
};

struct beeline_work {
  std::uint64_t generation = 0;
  std::shared_ptr<beeline::exec::Work> work;
  std::atomic<bool> has_callback{false};
};

namespace beeline::api {

// Fails for NULL, and in the child of a fork for what the parent made.
Result<void> check_comm(const beeline_comm* comm);
Result<void> check_work(const beeline_work* work);

}  // namespace beeline::api
