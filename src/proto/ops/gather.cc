#include "proto/ops/gather.h"

#include <algorithm>

#include "base/check.h"

namespace beeline::proto {
namespace {

// Calls visit(sge, offset in the piece, bytes) for each piece of the range, until it returns false.
template <class Visit>
void for_each_piece(std::span<const Sge> sges, std::uint32_t offset, std::uint32_t length, Visit visit) {
  for (const Sge& sge : sges) {
    if (length == 0) return;
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    const std::uint32_t bytes = std::min(length, sge.length - offset);
    if (!visit(sge, offset, bytes)) return;
    offset = 0;
    length -= bytes;
  }
  BEELINE_CHECK(length == 0);
}

}  // namespace

std::uint64_t total_length(std::span<const Sge> sges) {
  std::uint64_t sum = 0;
  for (const Sge& sge : sges) sum += sge.length;
  return sum;
}

std::uint8_t gather(std::span<const Sge> sges, std::uint32_t offset, std::uint32_t length, Access need,
                    std::array<MemoryRef, max_sge>& refs) {
  std::uint8_t count = 0;
  for_each_piece(sges, offset, length, [&](const Sge& sge, std::uint32_t skip, std::uint32_t bytes) {
    refs[count++] = {sge.address + skip, bytes, sge.lkey, need};
    return true;
  });
  return count;
}

MemoryStatus scatter(Memory& memory, PdId domain, std::span<const Sge> sges, std::uint32_t offset,
                     Bytes data) {
  MemoryStatus status = MemoryStatus::ok;
  for_each_piece(sges, offset, static_cast<std::uint32_t>(data.size()),
                 [&](const Sge& sge, std::uint32_t skip, std::uint32_t bytes) {
                   status = memory.write(domain, sge.lkey, sge.address + skip, data.first(bytes),
                                         Access::local_write);
                   data = data.subspan(bytes);
                   return status == MemoryStatus::ok;
                 });
  return status;
}

MemoryStatus scatter(Memory& memory, PdId domain, std::span<const Sge> sges, std::uint32_t offset,
                     ByteSource& source, std::uint32_t length) {
  MemoryStatus status = MemoryStatus::ok;
  for_each_piece(sges, offset, length, [&](const Sge& sge, std::uint32_t skip, std::uint32_t bytes) {
    status = memory.fill(domain, sge.lkey, sge.address + skip, bytes, Access::local_write, source);
    return status == MemoryStatus::ok;
  });
  return status;
}

MemoryStatus check_all(Memory& memory, PdId domain, std::span<const Sge> sges, Access need) {
  for (const Sge& sge : sges) {
    if (sge.length == 0) continue;
    const MemoryStatus status = memory.check(domain, sge.lkey, sge.address, sge.length, need);
    if (status != MemoryStatus::ok) return status;
  }
  return MemoryStatus::ok;
}

}  // namespace beeline::proto
