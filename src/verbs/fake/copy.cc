#include "verbs/fake/copy.h"

#include <cstdint>
#include <cstring>

namespace beeline::verbs::fake {
namespace {

// Bytes at the end of a message that may be flags which somebody polls.
constexpr std::size_t careful_bytes = 256;

bool aligned(const std::byte* p) { return reinterpret_cast<std::uintptr_t>(p) % sizeof(std::uint64_t) == 0; }

// How many bytes the next atomic access at `shared` may take.
std::size_t unit(const std::byte* shared, std::size_t left) {
  return aligned(shared) && left >= sizeof(std::uint64_t) ? sizeof(std::uint64_t) : 1;
}

}  // namespace

void copy_out(std::byte* to, const std::byte* shared, std::size_t bytes) {
  const std::size_t bulk = bytes > careful_bytes ? bytes - careful_bytes : 0;
  if (bulk > 0) std::memcpy(to, shared, bulk);
  for (std::size_t at = bulk; at < bytes;) {
    const std::size_t step = unit(shared + at, bytes - at);
    if (step == 1) {
      __atomic_load(shared + at, to + at, __ATOMIC_ACQUIRE);
    } else {
      std::uint64_t word = 0;
      __atomic_load(reinterpret_cast<const std::uint64_t*>(shared + at), &word, __ATOMIC_ACQUIRE);
      std::memcpy(to + at, &word, sizeof word);
    }
    at += step;
  }
}

void copy_in(std::byte* shared, const std::byte* from, std::size_t bytes) {
  const std::size_t bulk = bytes > careful_bytes ? bytes - careful_bytes : 0;
  if (bulk > 0) std::memcpy(shared, from, bulk);
  for (std::size_t at = bulk; at < bytes;) {
    const std::size_t step = unit(shared + at, bytes - at);
    if (step == 1) {
      std::byte value = from[at];
      __atomic_store(shared + at, &value, __ATOMIC_RELEASE);
    } else {
      std::uint64_t word = 0;
      std::memcpy(&word, from + at, sizeof word);
      __atomic_store(reinterpret_cast<std::uint64_t*>(shared + at), &word, __ATOMIC_RELEASE);
    }
    at += step;
  }
}

}  // namespace beeline::verbs::fake
