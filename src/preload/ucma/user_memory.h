// Command bodies as values, and answers to where a program says: a bad pointer of its is its error.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/bytes.h"
#include "nic/guarded.h"

namespace beeline::preload::ucma {

// A shorter body (of an older library) has zeros behind its end.
template <class Body>
Body body_of(Bytes in) {
  Body body{};
  std::memcpy(&body, in.data(), std::min(in.size(), sizeof body));
  return body;
}

// 0, or a negative errno.
inline int store_at(std::uint64_t address, const void* from, std::size_t bytes) {
  auto* to = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
  return nic::copy_guarded(to, static_cast<const std::byte*>(from), bytes) ? 0 : -EFAULT;
}

// As much of the answer as the program has room for, at least `needed` bytes.
template <class Answer>
int answer(std::uint64_t address, std::uint16_t out_bytes, const Answer& value,
           std::size_t needed = sizeof(Answer)) {
  if (out_bytes < needed) return -ENOSPC;
  return store_at(address, &value, std::min<std::size_t>(out_bytes, sizeof value));
}

}  // namespace beeline::preload::ucma
