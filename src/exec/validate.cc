#include "exec/validate.h"

#include <limits>

namespace beeline::exec {
namespace {

using coll::Operation;

struct Sizes {
  std::size_t send_bytes = 0, receive_bytes = 0;
};

// Fails when the bytes of all blocks do not fit a size_t.
Result<Sizes> sizes_of(const Call& call, int size) {
  const std::size_t element = element_bytes(call.dtype), ranks = static_cast<std::size_t>(size);
  if (call.count > std::numeric_limits<std::size_t>::max() / 2 / element / ranks)
    return fail(Errc::invalid_argument, "{} of {} elements: no machine has that much memory",
                coll::name(call.operation), call.count);
  const std::size_t block = call.count * element;
  switch (call.operation) {
    case Operation::reduce_scatter:
      return Sizes{block * ranks, block};
    case Operation::all_gather:
      return Sizes{block, block * ranks};
    default:
      return Sizes{block, block};
  }
}

bool overlap(const std::byte* a, std::size_t a_bytes, const std::byte* b, std::size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

// In place, or apart.
Result<void> check_overlap(const Call& call, Rank rank, const Sizes& sizes) {
  const auto *send = static_cast<const std::byte*>(call.send),
             *receive = static_cast<const std::byte*>(call.receive);
  const std::size_t block = call.count * element_bytes(call.dtype) * static_cast<std::size_t>(rank.value);
  const bool in_place = call.operation == Operation::reduce_scatter ? receive == send + block
                        : call.operation == Operation::all_gather   ? send == receive + block
                                                                    : send == receive;
  if (in_place || !overlap(send, sizes.send_bytes, receive, sizes.receive_bytes)) return {};
  return fail(Errc::invalid_argument,
              "{}: the send and receive buffers overlap, and not as an in-place call on rank {} must",
              coll::name(call.operation), rank.value);
}

}  // namespace

Result<void> validate(const Call& call, Rank rank, int size) {
  if (call.operation > Operation::barrier) return fail(Errc::invalid_argument, "there is no such operation");
  if (call.operation == Operation::barrier) return {};
  const std::string_view operation = coll::name(call.operation);
  if (call.dtype > DType::uint8) return fail(Errc::invalid_argument, "{}: there is no such dtype", operation);
  if (call.redop > RedOp::avg)
    return fail(Errc::invalid_argument, "{}: there is no such reduction", operation);
  if (call.operation == Operation::broadcast && (call.root.value < 0 || call.root.value >= size))
    return fail(Errc::invalid_argument, "broadcast from root {}: the group has ranks 0 to {}",
                call.root.value, size - 1);
  BEELINE_TRY(const Sizes sizes, sizes_of(call, size));
  const bool reads_send = call.operation != Operation::broadcast || call.root == rank;
  if (reads_send && call.send == nullptr && sizes.send_bytes != 0)
    return fail(Errc::invalid_argument, "{} of {} elements: the send buffer is null", operation, call.count);
  if (call.receive == nullptr && sizes.receive_bytes != 0)
    return fail(Errc::invalid_argument, "{} of {} elements: the receive buffer is null", operation,
                call.count);
  return reads_send && sizes.send_bytes != 0 ? check_overlap(call, rank, sizes) : Result<void>{};
}

}  // namespace beeline::exec
