// What an incoming operation does to memory and to the receive queue: the responder's
// rules, whichever lane the operation came by (IBTA vol. 1, 9.7.4 and 9.9.3), of reliable and
// of unreliable connections.
#pragma once

#include <cstdint>

#include "proto/ops/fragment.h"
#include "proto/ops/receive_source.h"
#include "proto/types.h"

namespace beeline::proto {

// What to tell the requester.
struct Verdict {
  enum class Kind : std::uint8_t { ok, rnr, nak, broken } kind = Kind::ok;
  wire::NakCode code{};       // of a nak
  bool ends_message = false;  // of an ok: the message is complete
  bool reported = false;      // of a nak: the completion of a receive request tells of it

  static constexpr Verdict ok(bool ends_message) { return {Kind::ok, {}, ends_message, false}; }
  static constexpr Verdict not_ready() { return {Kind::rnr, {}, false, false}; }
  // The requester's bytes could not be fetched: it knows, and the message stays as it is.
  static constexpr Verdict broken() { return {Kind::broken, {}, false, false}; }
  static constexpr Verdict nak(wire::NakCode code, bool reported = false) {
    return {Kind::nak, code, false, reported};
  }
  friend constexpr bool operator==(const Verdict&, const Verdict&) = default;
};

struct AtomicRequest {
  AtomicOp operation{};
  std::uint64_t address = 0;
  Key rkey{};
  std::uint64_t compare = 0;
  std::uint64_t swap_or_add = 0;
};

class Executor {
 public:
  // `reliable`: the peer learns the verdict. Otherwise nobody does, and a message that cannot be
  // taken leaves the queue pair's own receive request to the next one.
  Executor(Memory& memory, PdId domain, Qpn qpn, bool reliable, ReceiveSource& receives)
      : memory_(memory), domain_(domain), qpn_(qpn), reliable_(reliable), receives_(receives) {}

  // `granted`: the access flags of the queue pair. After a nak a reliable queue pair is in error.
  Verdict execute(const Fragment& fragment, Access granted);
  // Whether a READ may be served; the bytes are read when they leave.
  Verdict check_read(std::uint64_t address, Key rkey, std::uint32_t length, Access granted);
  // Carries it out; `before` gets the answer.
  Verdict atomic(const AtomicRequest& request, Access granted, std::uint64_t& before);

  // Whether a message has begun and not ended.
  bool in_message() const { return message_.kind != Message::Kind::none; }
  // Forgets the message under way; its receive request serves the next.
  void reset() { message_ = {}; }

 private:
  struct Message {
    enum class Kind : std::uint8_t { none, send, write } kind = Kind::none;
    std::uint64_t address = 0;  // of a WRITE
    Key rkey{};
    std::uint32_t length = 0;  // of a WRITE, announced
    std::uint32_t done = 0;    // bytes so far
  };

  Verdict send(const Fragment& fragment);
  Verdict write(const Fragment& fragment, Access granted);
  Verdict refuse_too_long();
  Verdict begin_write(const Fragment& fragment, Access granted);
  Verdict refuse_write(const Fragment& fragment, MemoryStatus status);
  MemoryStatus check_remote(Key rkey, std::uint64_t address, std::uint32_t length, Access need);
  bool write_size_is_wrong(const Fragment& fragment) const;
  MemoryStatus put(const Fragment& fragment, const ReceiveRequest& receive);
  Verdict fail_receive(WcStatus status, wire::NakCode code);
  void complete_receive(const Fragment& fragment, WcOpcode opcode);

  Memory& memory_;
  PdId domain_;
  Qpn qpn_;
  bool reliable_;
  ReceiveSource& receives_;
  Message message_;
};

}  // namespace beeline::proto
