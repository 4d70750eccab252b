// What the tests of this folder share.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/group.h"
#include "bootstrap/socket.h"

namespace beeline::bootstrap::testing {

// A port that is free and stays so: bound, but not listening, it lets a listener with
// SO_REUSEADDR in and keeps everybody else out.
class ReservedPort {
 public:
  ReservedPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    port_ = local_endpoint(fd_.get())->port;
  }
  std::string host_port() const { return "127.0.0.1:" + std::to_string(port_); }
  std::uint16_t port() const { return port_; }

 private:
  Descriptor fd_;
  std::uint16_t port_ = 0;
};

// A store within one process, as PyTorch's HashStore is.
class MemoryStore final : public Store {
 public:
  Result<void> set(const std::string& key, Bytes value) override {
    const std::lock_guard lock(mutex_);
    values_[key].assign(value.begin(), value.end());
    changed_.notify_all();
    return {};
  }
  Result<std::vector<std::byte>> get(const std::string& key, Duration timeout) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [&] { return values_.count(key) > 0; }))
      return fail(Errc::timed_out, "no {}", key);
    return values_[key];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<std::byte>> values_;
};

inline GroupOptions options_for(int rank, int size, Duration timeout = 60s) {
  GroupOptions options;
  options.rank = Rank{rank};
  options.size = size;
  options.timeout = timeout;
  return options;
}

// Runs body(rank) on one thread per rank.
inline void in_parallel(int ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) threads.emplace_back(body, r);
  for (auto& thread : threads) thread.join();
}

// All ranks of a group, met in threads. Empty places where meeting failed.
inline std::vector<std::unique_ptr<Group>> meet_in_threads(int ranks, const std::string& host_port) {
  std::vector<std::unique_ptr<Group>> groups(static_cast<std::size_t>(ranks));
  in_parallel(ranks, [&](int r) {
    auto group = Group::meet_at(options_for(r, ranks), host_port);
    EXPECT_TRUE(group.has_value()) << "rank " << r << ": " << group.error().message;
    if (group) groups[static_cast<std::size_t>(r)] = std::move(*group);
  });
  return groups;
}

inline std::vector<std::byte> bytes_of(std::string_view text) {
  const auto raw = std::as_bytes(std::span(text));
  return {raw.begin(), raw.end()};
}

// The failure that a group sees within `patience`.
inline std::optional<PeerFailure> wait_for_failure(Group& group, Duration patience) {
  const Deadline deadline(patience);
  while (!deadline.passed()) {
    if (auto failure = group.poll_failure()) return failure;
    std::this_thread::sleep_for(2ms);
  }
  return std::nullopt;
}

}  // namespace beeline::bootstrap::testing
