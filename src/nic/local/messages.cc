#include "nic/local/messages.h"

#include <cstring>

namespace beeline::nic::local {
namespace {

constexpr std::uint32_t magic = 0x4265654C;  // "BeeL"
// Of the messages and of what is shared (proto/local/shared_pair.h): whoever has another uses the wire.
constexpr std::uint8_t version = 4;

}  // namespace

MessageBytes encode(const Message& message) {
  MessageBytes bytes{};
  std::byte* p = bytes.data();
  store_be32(p, magic);
  store_u8(p + 4, version);
  store_u8(p + 5, static_cast<std::uint8_t>(message.kind));
  store_u8(p + 6, static_cast<std::uint8_t>(message.verdict));
  store_be64(p + 8, message.id);
  store_be64(p + 16, message.address);
  store_be32(p + 24, message.from.value);
  store_be32(p + 28, message.to.value);
  std::memcpy(p + 32, message.from_gid.bytes.data(), 16);
  std::memcpy(p + 48, message.to_gid.bytes.data(), 16);
  store_be32(p + 64, message.first_psn.value);
  store_be32(p + 68, message.expected_psn.value);
  store_be32(p + 72, message.key.value);
  store_be64(p + 80, message.offset);
  store_be64(p + 88, message.bytes);
  store_be64(p + 96, message.memory_bytes);
  return bytes;
}

std::optional<Message> decode(Bytes bytes) {
  if (bytes.size() != message_bytes) return std::nullopt;
  const std::byte* p = bytes.data();
  const std::uint8_t kind = load_u8(p + 5), verdict = load_u8(p + 6);
  if (load_be32(p) != magic || load_u8(p + 4) != version) return std::nullopt;
  if (kind < static_cast<std::uint8_t>(Kind::hello) || kind > static_cast<std::uint8_t>(Kind::wake))
    return std::nullopt;
  const bool is_answer = kind == static_cast<std::uint8_t>(Kind::answer);
  if (is_answer != (verdict != 0) || verdict > static_cast<std::uint8_t>(Verdict::crossed))
    return std::nullopt;
  Message message;
  message.kind = static_cast<Kind>(kind);
  message.verdict = static_cast<Verdict>(verdict);
  message.id = load_be64(p + 8);
  message.address = load_be64(p + 16);
  message.from.value = load_be32(p + 24);
  message.to.value = load_be32(p + 28);
  std::memcpy(message.from_gid.bytes.data(), p + 32, 16);
  std::memcpy(message.to_gid.bytes.data(), p + 48, 16);
  message.first_psn = Psn{load_be32(p + 64) & Psn::mask};
  message.expected_psn = Psn{load_be32(p + 68) & Psn::mask};
  message.key.value = load_be32(p + 72);
  message.offset = load_be64(p + 80);
  message.bytes = load_be64(p + 88);
  message.memory_bytes = load_be64(p + 96);
  return message;
}

}  // namespace beeline::nic::local
