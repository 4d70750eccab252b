// What ranks say to each other before and during calls. The input: a byte for the group's size
// and whose greeting it is, then a greeting, and the same bytes again as messages.
#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"
#include "exec/connections/hello.h"
#include "exec/message.h"
#include "exec/validate.h"
#include "input.h"
#include "targets.h"

namespace beeline::fuzz {
namespace {

using exec::Fingerprint;

constexpr std::uint32_t group_id = 0x0BEE'11E5, piece_bytes = 256 * 1024;
constexpr std::size_t used_message_bytes = 56;  // zeros follow
constexpr int max_ranks = 4;

bool same(const verbs::QpAddress& a, const verbs::QpAddress& b) {
  return a.qpn == b.qpn && a.psn == b.psn && a.gid == b.gid && a.mtu_bytes == b.mtu_bytes &&
         a.reads == b.reads;
}

void check_address(const verbs::QpAddress& address) {
  BEELINE_CHECK(address.qpn > 1 && address.qpn <= Psn::mask && address.psn <= Psn::mask);
  BEELINE_CHECK(!address.gid.is_zero() && address.mtu_bytes >= 256 && address.mtu_bytes <= 4096);
}

// A greeting that is accepted agrees with ours, and addresses every other rank.
void check_hello(Bytes bytes, Rank from, int size) {
  const exec::Terms ours{.size = size, .communicator = group_id, .piece_bytes = piece_bytes};
  const auto hello = exec::decode_hello(bytes, from, ours);
  if (!hello) {
    BEELINE_CHECK(!hello.error().message.empty());
    return;
  }
  BEELINE_CHECK(hello->rank == from && hello->addresses.size() == static_cast<std::size_t>(size));
  const auto emitted = exec::encode(*hello);
  const auto again = exec::decode_hello(emitted, from, ours);
  BEELINE_CHECK(emitted.size() == bytes.size() && again.has_value());
  for (int rank = 0; rank < size; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    if (rank != from.value) check_address(hello->addresses[i]);
    BEELINE_CHECK(same(hello->addresses[i], again->addresses[i]));
  }
  BEELINE_CHECK(!exec::decode_hello(bytes.first(bytes.size() - 1), from, ours));
}

// A call is judged without touching its buffers. Here they begin somewhere in 64 bytes, or nowhere.
void check_call(const exec::Message& message, Rank rank, int size) {
  const Fingerprint& said = message.call;
  exec::MessageBuffer memory{};
  const bool nowhere = (message.ticket & 1) != 0;
  const exec::Call call{.operation = said.operation,
                        .send = memory.data() + message.address % memory.size(),
                        .receive = nowhere ? nullptr : memory.data() + message.rkey % memory.size(),
                        .count = static_cast<std::size_t>(said.count),
                        .dtype = said.dtype,
                        .redop = said.redop,
                        .root = Rank{said.root}};
  const auto verdict = exec::validate(call, rank, size);
  if (!verdict) {
    BEELINE_CHECK(verdict.error().code == Errc::invalid_argument && !verdict.error().message.empty());
    return;
  }
  const Fingerprint ours = exec::fingerprint_of(call, said.sequence, said.communicator);
  if (call.operation == coll::Operation::barrier) {
    BEELINE_CHECK(ours.count == 0);
    return;
  }
  const std::size_t element = exec::element_bytes(call.dtype);
  BEELINE_CHECK(element > 0 && call.count <= std::numeric_limits<std::size_t>::max() / element / size);
  if (call.operation == coll::Operation::broadcast) BEELINE_CHECK(ours.root >= 0 && ours.root < size);
}

void check_message(Bytes bytes, Rank rank, int size) {
  const auto message = exec::decode(bytes);
  if (!message) return;
  BEELINE_CHECK(bytes.size() == exec::message_bytes);
  const exec::MessageBuffer emitted = exec::encode(*message);
  const auto used = emitted.begin() + used_message_bytes;
  BEELINE_CHECK(std::equal(emitted.begin(), used, bytes.begin()));
  BEELINE_CHECK(std::all_of(used, emitted.end(), [](std::byte b) { return b == std::byte{}; }));
  const Fingerprint ours{.sequence = 1, .communicator = group_id};
  const Error complaint = exec::mismatch(Rank{size}, ours, rank, message->call);
  BEELINE_CHECK(!exec::describe(message->call).empty());
  BEELINE_CHECK(complaint.message == exec::mismatch(rank, message->call, Rank{size}, ours).message);
  check_call(*message, rank, size);
}

}  // namespace

void fuzz_exec(Bytes bytes) {
  Input input(bytes);
  const std::uint8_t group = input.u8();
  const int size = 1 + group % max_ranks;
  const Rank from{group / max_ranks % size};
  check_hello(input.rest(), from, size);
  while (!input.empty()) check_message(input.take(exec::message_bytes), from, size);
}

}  // namespace beeline::fuzz
