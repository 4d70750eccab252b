// What the user asked for, checked before anything is opened.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "perf/test.h"

namespace beeline::perf {

inline constexpr std::uint16_t default_tcp_port = 18515;

inline constexpr std::uint64_t max_iterations = std::uint64_t{1} << 40;  // work request ids count in 48 bits
inline constexpr double max_duration_s = 7 * 24 * 3600;
inline constexpr std::uint32_t max_queue_pairs = 1024;
inline constexpr std::uint32_t max_tx_depth = 16384;

struct Options {
  const Test* test = nullptr;
  std::string device;            // empty: the first usable one
  std::optional<int> gid_index;  // unset: ranked choice
  int port = 1;                  // of the device
  std::optional<std::uint64_t> size_bytes;
  std::optional<std::uint64_t> iterations;  // per queue pair
  std::optional<double> duration_s;         // instead of iterations
  std::uint32_t queue_pairs = 1;
  std::uint32_t tx_depth = 128;
  std::uint32_t mtu_bytes = 0;  // 0: the largest that both ends have
  bool all_sizes = false;
  bool bidirectional = false;
  bool check = false;
};

// What both ends do: the client's wish, which the server checks and adopts.
struct Plan {
  const Test* test = nullptr;
  std::uint64_t size_bytes = 0;  // the largest
  std::uint64_t iterations = 0;  // 0: for `duration`
  Duration duration{};
  std::uint32_t queue_pairs = 1;
  std::uint32_t tx_depth = 128;
  bool all_sizes = false;
  bool bidirectional = false;
  bool check = false;

  // Places for messages in each direction of a queue pair. Without --check one place is
  // used again and again, as perftest does; with it every message under way has its own.
  std::uint64_t slots() const;
  std::uint64_t area_bytes() const { return slots() * size_bytes; }
  // For each queue pair one area to send from and one to receive into.
  std::uint64_t buffer_bytes() const { return 2 * area_bytes() * queue_pairs; }
  std::vector<std::uint64_t> sizes() const;
};

// "65536", "64K", "8M", "1G" (powers of 1024).
Result<std::uint64_t> parse_size(std::string_view text);

// Defaults filled in; an error names the option and what is allowed.
Result<Plan> make_plan(const Options& options);
// The same rules for a plan that a peer sent.
Result<void> check_plan(const Plan& plan);

}  // namespace beeline::perf
