#include "exec/message.h"

namespace beeline::exec {
namespace {

// Offsets of the fields, all in network byte order. Bytes 56 to 63 are written as zero.
enum Offset : std::size_t {
  kind = kind_offset,
  operation = 1,
  dtype = 2,
  redop = 3,
  root = 4,
  count = 8,
  communicator = 16,
  rkey = 20,
  sequence = sequence_offset,
  address = 32,
  bytes = 40,
  piece = 44,
  ordinal = 48,
  ticket = 52,
};

template <class E>
std::optional<E> enumerator(const std::byte* from, E first, E last) {
  const std::uint8_t value = load_u8(from);
  if (value < static_cast<std::uint8_t>(first) || value > static_cast<std::uint8_t>(last))
    return std::nullopt;
  return static_cast<E>(value);
}

}  // namespace

MessageBuffer encode(const Message& message) {
  MessageBuffer out{};
  std::byte* const p = out.data();
  store_u8(p + Offset::kind, static_cast<std::uint8_t>(message.kind));
  store_u8(p + Offset::operation, static_cast<std::uint8_t>(message.call.operation));
  store_u8(p + Offset::dtype, static_cast<std::uint8_t>(message.call.dtype));
  store_u8(p + Offset::redop, static_cast<std::uint8_t>(message.call.redop));
  store_be32(p + Offset::root, static_cast<std::uint32_t>(message.call.root));
  store_be64(p + Offset::sequence, message.call.sequence);
  store_be64(p + Offset::count, message.call.count);
  store_be32(p + Offset::communicator, message.call.communicator);
  store_be32(p + Offset::rkey, message.rkey);
  store_be64(p + Offset::address, message.address);
  store_be32(p + Offset::bytes, message.bytes);
  store_be32(p + Offset::piece, message.piece);
  store_be32(p + Offset::ordinal, message.ordinal);
  store_be32(p + Offset::ticket, message.ticket);
  return out;
}

std::optional<Message> decode(Bytes in) {
  if (in.size() != message_bytes) return std::nullopt;
  const std::byte* const p = in.data();
  const auto kind = enumerator(p + Offset::kind, MessageKind::probe, MessageKind::wake);
  const auto operation =
      enumerator(p + Offset::operation, coll::Operation::all_reduce, coll::Operation::barrier);
  const auto dtype = enumerator(p + Offset::dtype, DType::float32, DType::uint8);
  const auto redop = enumerator(p + Offset::redop, RedOp::sum, RedOp::avg);
  if (!kind || !operation || !dtype || !redop) return std::nullopt;
  Message message;
  message.kind = *kind;
  message.call = {.sequence = load_be64(p + Offset::sequence),
                  .count = load_be64(p + Offset::count),
                  .root = static_cast<std::int32_t>(load_be32(p + Offset::root)),
                  .operation = *operation,
                  .dtype = *dtype,
                  .redop = *redop,
                  .communicator = load_be32(p + Offset::communicator)};
  message.address = load_be64(p + Offset::address);
  message.rkey = load_be32(p + Offset::rkey);
  message.bytes = load_be32(p + Offset::bytes);
  message.piece = load_be32(p + Offset::piece);
  message.ordinal = load_be32(p + Offset::ordinal);
  message.ticket = load_be32(p + Offset::ticket);
  return message;
}

}  // namespace beeline::exec
