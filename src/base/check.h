// Assertions for our own mistakes. Never for what a peer, a user or the machine does.
#pragma once

namespace beeline {
// Prints where and what, then aborts.
[[noreturn]] void check_failed(const char* expression, const char* file, int line) noexcept;
}  // namespace beeline

#define BEELINE_CHECK(expression)                     \
  (__builtin_expect(static_cast<bool>(expression), 1) \
       ? void()                                       \
       : ::beeline::check_failed(#expression, __FILE__, __LINE__))
