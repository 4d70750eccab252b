#include "bench/job.h"

#include <array>
#include <limits>

#include "base/byte_count.h"

namespace beeline::bench {
namespace {

template <class T>
struct Named {
  std::string_view name;
  T value;
};
template <class T>
Named(std::string_view, T) -> Named<T>;

constexpr std::array operations{
    Named{"all_reduce", Operation::all_reduce},
    Named{"reduce_scatter", Operation::reduce_scatter},
    Named{"all_gather", Operation::all_gather},
    Named{"broadcast", Operation::broadcast},
};
// The first name of a type is the one that is printed.
constexpr std::array dtypes{
    Named{"float", BEELINE_FLOAT32}, Named{"float32", BEELINE_FLOAT32}, Named{"bfloat16", BEELINE_BFLOAT16},
    Named{"bf16", BEELINE_BFLOAT16}, Named{"int32", BEELINE_INT32},     Named{"int64", BEELINE_INT64},
    Named{"uint8", BEELINE_UINT8},
};
constexpr std::array redops{Named{"sum", BEELINE_SUM}, Named{"max", BEELINE_MAX}, Named{"avg", BEELINE_AVG}};

template <class Table, class T>
std::string_view name_in(const Table& table, T value) {
  for (const auto& row : table)
    if (row.value == value) return row.name;
  return "?";
}

template <class Table>
std::string all_names(const Table& table) {
  std::string text;
  for (const auto& row : table) text += fmt::format("{}{}", text.empty() ? "" : ", ", row.name);
  return text;
}

template <class T, std::size_t N>
Result<T> parse_in(const std::array<Named<T>, N>& table, std::string_view what, std::string_view text) {
  for (const auto& row : table)
    if (row.name == text) return row.value;
  return fail(Errc::invalid_argument, "'{}' is no {}; there are: {}", text, what, all_names(table));
}

}  // namespace

std::string_view name(Operation operation) { return name_in(operations, operation); }
std::string_view name(beeline_dtype dtype) { return name_in(dtypes, dtype); }
std::string_view name(beeline_redop redop) { return name_in(redops, redop); }
Result<Operation> parse_operation(std::string_view text) { return parse_in(operations, "operation", text); }
Result<beeline_dtype> parse_dtype(std::string_view text) { return parse_in(dtypes, "type", text); }
Result<beeline_redop> parse_redop(std::string_view text) {
  return parse_in(redops, "reduce operation", text);
}

std::vector<std::string> operation_names() {
  std::vector<std::string> names;
  names.reserve(std::size(operations));
  for (const auto& row : operations) names.emplace_back(row.name);
  return names;
}

// At most half of what a size can hold, so that the next step from size to size fits, too.
Result<std::size_t> parse_size(std::string_view text) {
  const auto bytes = parse_byte_count(text);
  if (!bytes || *bytes > std::numeric_limits<std::size_t>::max() / 2)
    return fail(Errc::invalid_argument,
                "'{}' is no size: give bytes, or a number with K, M or G (powers of 1024)", text);
  return *bytes;
}

Result<std::vector<std::size_t>> size_steps(std::size_t min, std::size_t max, std::size_t factor) {
  if (min > max) return fail(Errc::invalid_argument, "the least size, {}, exceeds the largest, {}", min, max);
  if (min == max) return std::vector{min};
  if (factor < 2)
    return fail(Errc::invalid_argument, "from {} to {} bytes takes a factor of at least 2", min, max);
  if (min == 0)
    return fail(Errc::invalid_argument, "from 0 no factor leads to {}: give a least size of 1 or more", max);
  std::vector<std::size_t> sizes;
  for (std::size_t size = min; size <= max; size *= factor) {
    sizes.push_back(size);
    if (size > max / factor) break;
  }
  return sizes;
}

Shape shape_for(const Job& job, std::size_t bytes) {
  const std::size_t element = beeline_dtype_bytes(job.dtype), ranks = static_cast<std::size_t>(job.ranks);
  const std::size_t whole = bytes / element, part = whole / ranks;
  switch (job.operation) {
    case Operation::all_gather:
      return {part, part, part * ranks, part * ranks * element};
    case Operation::reduce_scatter:
      return {part, part * ranks, part, part * ranks * element};
    case Operation::all_reduce:
    case Operation::broadcast:
      break;
  }
  return {whole, whole, whole, whole * element};
}

double bus_factor(Operation operation, int ranks) {
  const double n = ranks;
  switch (operation) {
    case Operation::all_reduce:
      return 2 * (n - 1) / n;
    case Operation::reduce_scatter:
    case Operation::all_gather:
      return (n - 1) / n;
    case Operation::broadcast:
      break;
  }
  return 1;
}

Bandwidth bandwidth(const Job& job, std::size_t bytes, double time_us) {
  if (time_us <= 0) return {};
  const double algbw = static_cast<double>(bytes) / 1e3 / time_us;  // bytes per us / 1000 = 10^9 bytes per s
  return {algbw, algbw * bus_factor(job.operation, job.ranks)};
}

}  // namespace beeline::bench
