#include "perf/options.h"

#include <algorithm>

#include "base/byte_count.h"

namespace beeline::perf {
namespace {

constexpr std::uint64_t max_size_bytes = std::uint64_t{1} << 30;
constexpr std::uint64_t max_buffer_bytes = std::uint64_t{8} << 30;
constexpr std::uint64_t check_area_bytes = std::uint64_t{64} << 20;
constexpr std::uint64_t all_sizes_first = 2, all_sizes_last = std::uint64_t{1} << 23;
constexpr Duration max_duration{static_cast<std::int64_t>(max_duration_s * 1e9)};

}  // namespace

std::uint64_t Plan::slots() const {
  if (!check || test->latency) return 1;
  return std::clamp<std::uint64_t>(check_area_bytes / std::max<std::uint64_t>(size_bytes, 1), 1, tx_depth);
}

std::vector<std::uint64_t> Plan::sizes() const {
  if (!all_sizes) return {size_bytes};
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t size = all_sizes_first; size <= size_bytes; size *= 2) sizes.push_back(size);
  return sizes;
}

Result<void> check_plan(const Plan& plan) {
  if (plan.size_bytes < 1 || plan.size_bytes > max_size_bytes)
    return fail(Errc::invalid_argument, "-s {}: a message has 1 … {} bytes", plan.size_bytes, max_size_bytes);
  if (plan.all_sizes && plan.size_bytes < all_sizes_first)
    return fail(Errc::invalid_argument, "-a starts at {} bytes", all_sizes_first);
  if (plan.iterations > max_iterations)
    return fail(Errc::invalid_argument, "-n {}: 1 … {} iterations", plan.iterations, max_iterations);
  if (plan.iterations == 0 && (plan.duration <= Duration{} || plan.duration > max_duration))
    return fail(Errc::invalid_argument,
                "give -n (1 or more) or -D (seconds, more than 0 and at most a week)");
  if (plan.queue_pairs < 1 || plan.queue_pairs > max_queue_pairs)
    return fail(Errc::invalid_argument, "-q {}: 1 … {} queue pairs", plan.queue_pairs, max_queue_pairs);
  if (plan.tx_depth < 1 || plan.tx_depth > max_tx_depth)
    return fail(Errc::invalid_argument, "--tx-depth {}: 1 … {}", plan.tx_depth, max_tx_depth);
  if (plan.test->latency && plan.queue_pairs != 1)
    return fail(Errc::invalid_argument, "-q is for bandwidth tests: a latency test has one queue pair");
  if (plan.test->latency && plan.bidirectional)
    return fail(Errc::invalid_argument, "-b is for bandwidth tests");
  if (plan.buffer_bytes() > max_buffer_bytes)
    return fail(Errc::invalid_argument, "-s {} with {} queue pairs needs {} bytes of memory; the limit is {}",
                plan.size_bytes, plan.queue_pairs, plan.buffer_bytes(), max_buffer_bytes);
  return {};
}

Result<std::uint64_t> parse_size(std::string_view text) {
  const auto bytes = parse_byte_count(text);
  if (!bytes)
    return fail(Errc::invalid_argument, "-s {}: give a number of bytes, or one with K, M or G behind it",
                text);
  return *bytes;
}

Result<Plan> make_plan(const Options& options) {
  if (options.all_sizes && options.size_bytes) return fail(Errc::invalid_argument, "give -a or -s, not both");
  if (options.iterations && options.duration_s)
    return fail(Errc::invalid_argument, "give -n or -D, not both");
  if (options.iterations == std::uint64_t{0})
    return fail(Errc::invalid_argument, "-n 0: at least 1 iteration");
  Plan plan;
  plan.test = options.test;
  plan.size_bytes = options.size_bytes.value_or(options.test->latency ? 2 : 65536);
  if (options.all_sizes) plan.size_bytes = all_sizes_last;
  if (options.duration_s) {
    // NaN and infinity fail the comparison.
    if (!(*options.duration_s > 0 && *options.duration_s <= max_duration_s))
      return fail(Errc::invalid_argument, "-D {}: seconds, more than 0 and at most a week",
                  *options.duration_s);
    plan.duration = Duration{static_cast<std::int64_t>(*options.duration_s * 1e9)};
  } else {
    plan.iterations = options.iterations.value_or(options.test->latency ? 1000 : 5000);
  }
  plan.queue_pairs = options.queue_pairs;
  plan.tx_depth = options.tx_depth;
  plan.all_sizes = options.all_sizes;
  plan.bidirectional = options.bidirectional;
  plan.check = options.check;
  BEELINE_TRY_VOID(check_plan(plan));
  return plan;
}

}  // namespace beeline::perf
