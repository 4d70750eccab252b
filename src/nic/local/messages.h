// What processes of one host say to each other before queue pairs of theirs share memory, over a
// SOCK_SEQPACKET connection. One message per packet, all of one size; the kernel vouches for who speaks.
//
//   hello    the first message in each direction: where a number lies that only this process knows. Who
//            can read it there can copy from this process directly. The first of the two brings the memory of
//            the connection.
//   ask      shall this queue pair of mine and that one of yours share the memory that comes with this?
//   answer   to an ask
//   want     let me write to the region of this key by myself, from this queue pair of mine
//   grant    do: it lies in the memory that comes with this
//   wake     look: there is something new, and you said that you sleep
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/address.h"
#include "base/bytes.h"
#include "base/ids.h"

namespace beeline::nic::local {

enum class Kind : std::uint8_t { hello = 1, ask, answer, want, grant, wake };

enum class Verdict : std::uint8_t {
  accepted = 1,
  refused,  // use the wire
  not_yet,  // the queue pair is not ready to receive: ask again
  absent,   // there is no such queue pair, or it is in error: nobody will answer on the wire either
  crossed,  // mine asks you at this moment, and its ask counts
};

struct Message {
  Kind kind{};
  Verdict verdict{};          // of an answer
  std::uint64_t id = 0;       // of an ask, and its answer; of a hello: the number; of a grant: its number
  std::uint64_t address = 0;  // of a hello: where the number lies; of a grant: what the region begins with
  Qpn from{}, to{};           // of an ask, a want and a grant
  Key key{};                  // of a want and a grant: the region's
  // Of a grant: the region in the memory that comes with it, and how much that is.
  std::uint64_t offset = 0, bytes = 0, memory_bytes = 0;
  IpAddress from_gid, to_gid;   // likewise: both must agree about who is connected to whom,
  Psn first_psn, expected_psn;  // and, as packets would have to, about where the asker's and its peer's begin
};

inline constexpr std::size_t message_bytes = 104;
using MessageBytes = std::array<std::byte, message_bytes>;

MessageBytes encode(const Message& message);
std::optional<Message> decode(Bytes bytes);  // nothing when it is none of this version

}  // namespace beeline::nic::local
