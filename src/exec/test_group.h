// For tests: a group of ranks in one process, over a provider, with control connections
// that are shared memory. Threads play the ranks.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "exec/communicator.h"
#include "verbs/fake/fake_provider.h"

namespace beeline::exec::testing {

// What the ranks' controls share.
class ControlHub {
 public:
  explicit ControlHub(int size) : members_(static_cast<std::size_t>(size)) {
    for (Member& member : members_) member.descriptor = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  }
  ~ControlHub() {
    for (const Member& member : members_) ::close(member.descriptor);
  }

  // To everybody but `rank`: it is gone.
  void kill(int rank) {
    report(rank, {Rank{rank}, {Errc::peer_lost, describe(rank) + " is gone: its control connection closed"}});
  }

 private:
  friend class HubControl;
  struct Member {
    int descriptor = -1;
    std::vector<std::byte> contribution;
    std::optional<Failure> failure;
  };

  static std::string describe(int rank) {
    return "rank " + std::to_string(rank) + " (pid " + std::to_string(1000 + rank) + " on test)";
  }
  void report(int from, const Failure& failure) {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (static_cast<int>(i) == from || members_[i].failure) continue;
      members_[i].failure = failure;
      const std::uint64_t one = 1;
      [[maybe_unused]] const auto written = write(members_[i].descriptor, &one, sizeof one);
    }
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Member> members_;
  std::size_t arrived_ = 0;
  std::uint64_t round_ = 0;
  std::vector<std::vector<std::byte>> result_;
};

class HubControl : public Control {
 public:
  HubControl(ControlHub& hub, int rank) : hub_(hub), rank_(rank) {}

  Result<std::vector<std::vector<std::byte>>> all_gather(Bytes mine, Duration timeout) override {
    std::unique_lock lock(hub_.mutex_);
    hub_.members_[static_cast<std::size_t>(rank_)].contribution.assign(mine.begin(), mine.end());
    const std::uint64_t round = hub_.round_;
    if (++hub_.arrived_ == hub_.members_.size()) {
      hub_.arrived_ = 0;
      ++hub_.round_;
      hub_.result_.clear();
      for (auto& member : hub_.members_) hub_.result_.push_back(member.contribution);
      hub_.changed_.notify_all();
      return hub_.result_;
    }
    const auto over = [&] { return hub_.round_ != round || me().failure; };
    if (!hub_.changed_.wait_for(lock, timeout, over)) return fail(Errc::timed_out, "not all ranks came");
    if (hub_.round_ == round) return tl::unexpected<Error>(me().failure->error);
    return hub_.result_;
  }
  void broadcast_failure(const Error& error) override { hub_.report(rank_, {Rank{rank_}, error}); }
  std::optional<Failure> poll_failure() override {
    const std::lock_guard lock(hub_.mutex_);
    std::uint64_t count = 0;
    [[maybe_unused]] const auto taken = read(me().descriptor, &count, sizeof count);
    return me().failure;
  }
  int wait_descriptor() const override { return hub_.members_[static_cast<std::size_t>(rank_)].descriptor; }
  std::string describe(Rank rank) const override { return ControlHub::describe(rank.value); }

 private:
  ControlHub::Member& me() { return hub_.members_[static_cast<std::size_t>(rank_)]; }
  ControlHub& hub_;
  int rank_;
};

class TestGroup {
 public:
  using Tweak = std::function<void(CommunicatorOptions&)>;

  // Over the provider's first device.
  TestGroup(verbs::Provider& provider, int size, const Tweak& tweak = {}) : provider_(provider), hub_(size) {
    for (int rank = 0; rank < size; ++rank) {
      contexts_.push_back(verbs::open_device(provider, "").value());
      gids_.push_back(verbs::choose_gid(provider, contexts_.back().get(), 1, std::nullopt).value());
      controls_.push_back(std::make_unique<HubControl>(hub_, rank));
      CommunicatorOptions options{.rank = Rank{rank}, .size = size};
      options.operation_timeout = 60s;
      options.connect_timeout = 20s;
      if (tweak) tweak(options);
      options_.push_back(options);
    }
    communicators_.resize(static_cast<std::size_t>(size));
    errors_.resize(static_cast<std::size_t>(size));
  }

  // All ranks together. Their errors are in error().
  bool connect() {
    on_all_ranks([&](int rank) { create(rank); });
    for (const auto& communicator : communicators_)
      if (!communicator) return false;
    return true;
  }
  // One rank's part of that.
  void create(int rank) {
    const auto i = static_cast<std::size_t>(rank);
    auto created = Communicator::create(options_[i], provider_, contexts_[i].get(), gids_[i], *controls_[i]);
    if (created)
      communicators_[i] = std::move(*created);
    else
      errors_[i] = created.error();
  }
  // All together again: nobody waits for the others' goodbye.
  ~TestGroup() {
    on_all_ranks([&](int rank) { communicators_[static_cast<std::size_t>(rank)].reset(); });
  }

  int size() const { return static_cast<int>(communicators_.size()); }
  Communicator& operator[](int rank) { return *communicators_[static_cast<std::size_t>(rank)]; }
  const Error& error(int rank) const { return errors_[static_cast<std::size_t>(rank)]; }
  verbs::Provider& provider() { return provider_; }
  ControlHub& hub() { return hub_; }
  Control& control(int rank) { return *controls_[static_cast<std::size_t>(rank)]; }
  ibv_context* context(int rank) { return contexts_[static_cast<std::size_t>(rank)].get(); }
  const verbs::GidChoice& gid(int rank) const { return gids_[static_cast<std::size_t>(rank)]; }
  const CommunicatorOptions& options(int rank) const { return options_[static_cast<std::size_t>(rank)]; }
  void leave(int rank) { communicators_[static_cast<std::size_t>(rank)].reset(); }

  void on_all_ranks(const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    threads.reserve(static_cast<std::size_t>(size()));
    for (int rank = 0; rank < size(); ++rank) threads.emplace_back(body, rank);
    for (std::thread& thread : threads) thread.join();
  }

 private:
  verbs::Provider& provider_;
  ControlHub hub_;
  std::vector<verbs::Context> contexts_;
  std::vector<verbs::GidChoice> gids_;
  std::vector<std::unique_ptr<HubControl>> controls_;
  std::vector<CommunicatorOptions> options_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::vector<Error> errors_;
};

// Submits and waits, or blocks: each thread in turn.
inline Result<void> run(Communicator& communicator, const Call& call) {
  static thread_local bool blocks = false;
  blocks = !blocks;
  if (blocks) return communicator.run(call);
  BEELINE_TRY(const auto work, communicator.submit(call));
  return work->wait(120s);
}

}  // namespace beeline::exec::testing
