#include "api/arguments.h"

#include <cstdint>

namespace beeline::api {
namespace {

using coll::Operation;

// Bytes of both buffers, and where in the larger one the smaller may lie.
struct Extent {
  std::size_t send = 0, receive = 0;
  std::size_t send_at = 0, receive_at = 0;  // in place: send + send_at == receive + receive_at
  bool reads_send = true;
};

Result<Extent> extent_of(const exec::Call& call, Rank rank, int size) {
  const std::size_t element = exec::element_bytes(call.dtype);
  std::size_t block = 0, all = 0;
  if (__builtin_mul_overflow(call.count, element, &block) ||
      __builtin_mul_overflow(block, static_cast<std::size_t>(size), &all) || all > PTRDIFF_MAX)
    return fail(Errc::invalid_argument,
                "{}: a count of {} elements does not fit into memory (was it negative?)",
                name(call.operation), call.count);
  const std::size_t own = block * static_cast<std::size_t>(rank.value);
  switch (call.operation) {
    case Operation::reduce_scatter:
      return Extent{all, block, own, 0, true};
    case Operation::all_gather:
      return Extent{block, all, 0, own, true};
    case Operation::broadcast:
      return Extent{block, block, 0, 0, rank == call.root};
    case Operation::all_reduce:
    case Operation::barrier:
      return Extent{block, block, 0, 0, true};
  }
  return fail(Errc::invalid_argument, "there is no such operation");
}

bool overlap(std::uintptr_t a, std::size_t a_bytes, std::uintptr_t b, std::size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

}  // namespace

Result<exec::DType> checked_dtype(beeline_dtype dtype) {
  switch (dtype) {
    case BEELINE_FLOAT32:
      return exec::DType::float32;
    case BEELINE_BFLOAT16:
      return exec::DType::bfloat16;
    case BEELINE_INT32:
      return exec::DType::int32;
    case BEELINE_INT64:
      return exec::DType::int64;
    case BEELINE_UINT8:
      return exec::DType::uint8;
  }
  return fail(Errc::invalid_argument, "{} is no dtype (see enum beeline_dtype)", static_cast<int>(dtype));
}

Result<exec::RedOp> checked_redop(beeline_redop op) {
  switch (op) {
    case BEELINE_SUM:
      return exec::RedOp::sum;
    case BEELINE_MAX:
      return exec::RedOp::max;
    case BEELINE_AVG:
      return exec::RedOp::avg;
  }
  return fail(Errc::invalid_argument, "{} is no reduce operation (see enum beeline_redop)",
              static_cast<int>(op));
}

Result<Duration> checked_seconds(const char* what, double seconds, Duration otherwise) {
  if (seconds == 0) return otherwise;
  // A year bounds what a Duration must hold; NaN fails both comparisons.
  if (!(seconds > 0 && seconds <= 366.0 * 86400))
    return fail(Errc::invalid_argument, "{} is {}: give seconds, more than 0 and at most a year", what,
                seconds);
  return Duration{static_cast<std::int64_t>(seconds * 1e9)};
}

Result<void> check_call(const exec::Call& call, Rank rank, int size) {
  if (call.operation == Operation::barrier) return {};
  const auto operation = name(call.operation);
  if (call.root.value < 0 || call.root.value >= size)
    return fail(Errc::invalid_argument, "{}: root {} is outside the group of {}", operation, call.root.value,
                size);
  BEELINE_TRY(const Extent extent, extent_of(call, rank, size));
  if (call.count == 0) return {};
  if (call.receive == nullptr)
    return fail(Errc::invalid_argument, "{}: the receive buffer is NULL", operation);
  if (!extent.reads_send) return {};
  if (call.send == nullptr) return fail(Errc::invalid_argument, "{}: the send buffer is NULL", operation);
  const auto send = reinterpret_cast<std::uintptr_t>(call.send);
  const auto receive = reinterpret_cast<std::uintptr_t>(call.receive);
  if (send + extent.send < send || receive + extent.receive < receive)
    return fail(Errc::invalid_argument, "{}: {} elements from that address on leave the address space",
                operation, call.count);
  const bool in_place = send + extent.send_at == receive + extent.receive_at;
  if (!in_place && overlap(send, extent.send, receive, extent.receive))
    return fail(Errc::invalid_argument,
                "{}: send and receive buffers overlap (in place they must coincide as beeline.h "
                "says)",
                operation);
  return {};
}

}  // namespace beeline::api
