// The control messages between two ranks: 64 bytes each, by SEND. Data goes by RDMA WRITE
// with immediate, and only to where an advert said.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "exec/fingerprint.h"

namespace beeline::exec {

inline constexpr std::size_t message_bytes = 64;
using MessageBuffer = std::array<std::byte, message_bytes>;

enum class MessageKind : std::uint8_t {
  probe = 1,    // at set-up: this path works
  call = 2,     // a round of the roll call (run/roll_call.h): what I called
  advert = 3,   // send me the k-th message (`ordinal`) of this piece, to this address
  goodbye = 4,  // I have made `call.sequence` calls and leave
  parcel = 5,   // what I called, and behind these 64 bytes my data for it (small/small_run.h)
  wake = 6,     // look into your mailbox (connections/mailbox.h)
};

struct Message {
  MessageKind kind = MessageKind::probe;
  Fingerprint call{};
  // adverts only
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  std::uint32_t bytes = 0;
  std::uint32_t piece = 0;
  std::uint32_t ordinal = 0;
  std::uint32_t ticket = 0;  // comes back as the WRITE's immediate
};

MessageBuffer encode(const Message& message);
// Of an encoded message, without touching the rest.
inline constexpr std::size_t kind_offset = 0, sequence_offset = 24;
inline constexpr std::size_t fingerprint_end = 32;  // kind, call and the rkey's four bytes lie before it
inline void store_sequence(MessageBuffer& message, std::uint64_t sequence) {
  store_be64(message.data() + sequence_offset, sequence);
}
inline std::uint64_t load_sequence(const std::byte* message) { return load_be64(message + sequence_offset); }
inline bool is_parcel(const std::byte* message) {
  return load_u8(message + kind_offset) == static_cast<std::uint8_t>(MessageKind::parcel);
}
// Nothing when it is no message of ours: a kind, operation, dtype or reduction that does not exist.
std::optional<Message> decode(Bytes bytes);

}  // namespace beeline::exec
