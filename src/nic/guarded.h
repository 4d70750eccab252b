// Reading, writing and summing memory that may be unmapped, protected or truncated behind our
// back. A fault inside these functions is a return value; a fault anywhere else goes to
// whoever handled it before.
//
// The functions recover only while a FaultHandlers object lives: installing signal handlers
// is the owner's explicit action.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "wire/icrc.h"

namespace beeline::nic {

// Copies without looking at what lies there. False after a fault: any part of the bytes may
// have been copied. The ranges must not overlap.
[[nodiscard]] bool copy_guarded(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

// Atomic among all that do it this way, in any process. `at` is a multiple of 8; the value lies there in
// host order. False after a fault: nothing has changed.
[[nodiscard]] bool compare_swap_guarded(std::byte* at, std::uint64_t compare, std::uint64_t swap,
                                        std::uint64_t& before) noexcept;
[[nodiscard]] bool fetch_add_guarded(std::byte* at, std::uint64_t add, std::uint64_t& before) noexcept;

// Continues `crc` over `data`. False after a fault: `crc` is as it was.
[[nodiscard]] bool crc_guarded(wire::Icrc& crc, Bytes data) noexcept;

// Our handlers for SIGSEGV and SIGBUS. May be nested; the last one that goes restores
// what was there, unless somebody has installed another handler on top since: then ours
// stays below it and passes everything on.
class FaultHandlers {
 public:
  FaultHandlers();
  ~FaultHandlers();
  FaultHandlers(const FaultHandlers&) = delete;
  FaultHandlers& operator=(const FaultHandlers&) = delete;

  // Puts ours back on top when the application has installed its own handler since (language
  // runtimes do so late); that one becomes the next in the chain. Cheap enough for every
  // registration, too slow for every packet.
  static void ensure_on_top();
};

}  // namespace beeline::nic
