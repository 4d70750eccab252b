// Pieces of registered memory read or written as one run of bytes.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "proto/types.h"

namespace beeline::proto {

// Sum of the lengths, which may exceed 32 bits.
std::uint64_t total_length(std::span<const Sge> sges);

// References to bytes [offset, offset + length) of the pieces; returns how many. The range
// lies within the pieces. Stateless on purpose: a packet that is sent again is gathered
// exactly as it was the first time.
std::uint8_t gather(std::span<const Sge> sges, std::uint32_t offset, std::uint32_t length, Access need,
                    std::array<MemoryRef, max_sge>& refs);

// Writes `data` to the pieces from `offset` on. The range lies within the pieces.
MemoryStatus scatter(Memory& memory, PdId domain, std::span<const Sge> sges, std::uint32_t offset,
                     Bytes data);

// The same with bytes that are fetched there.
MemoryStatus scatter(Memory& memory, PdId domain, std::span<const Sge> sges, std::uint32_t offset,
                     ByteSource& source, std::uint32_t length);

// Checks every piece that has bytes.
MemoryStatus check_all(Memory& memory, PdId domain, std::span<const Sge> sges, Access need);

}  // namespace beeline::proto
