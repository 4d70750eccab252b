// Results and errors.
//
// A fault of a peer, a user or the machine travels as a Result; a mistake of our
// own is an assertion (check.h). A message says what happened, where, and what
// to do about it: it is what the user reads.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace beeline {

enum class Errc : std::uint8_t {
  invalid_argument,    // the caller asked for something that makes no sense
  not_found,           // no such device, rank, host
  in_use,              // somebody else holds it (a port, a slot)
  permission,          // this user may not
  io,                  // a system call failed
  protocol,            // a peer spoke nonsense
  mismatch,            // ranks called different operations
  timed_out,           // a deadline passed
  peer_lost,           // a peer's process or connection is gone
  aborted,             // somebody gave up before us
  unsupported,         // not offered
  resource_exhausted,  // a bounded table is full
  internal,            // anything else
};

std::string_view name(Errc code) noexcept;

struct Error {
  Errc code = Errc::internal;
  std::string message;
};

template <class T = void>
using Result = tl::expected<T, Error>;

// fail(Errc::not_found, "no device {}; there are: {}", name, list)
template <class... Args>
tl::unexpected<Error> fail(Errc code, fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Error>(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

// A failed system call: "WHAT: Permission denied", with the code that errno maps to.
tl::unexpected<Error> fail_errno(int errno_value, std::string_view what);

}  // namespace beeline

// Hands an error up, keeps a value: BEELINE_TRY(auto port, open_port(x));
// NOLINTBEGIN(bugprone-macro-parentheses): a declaration stands in no parentheses.
#define BEELINE_CONCAT_(a, b) a##b
#define BEELINE_CONCAT(a, b) BEELINE_CONCAT_(a, b)
#define BEELINE_TRY(declaration, expression) \
  BEELINE_TRY_(BEELINE_CONCAT(beeline_try_, __LINE__), declaration, expression)
#define BEELINE_TRY_(temporary, declaration, expression)                                 \
  auto temporary = (expression);                                                         \
  if (!temporary) return tl::unexpected<::beeline::Error>(std::move(temporary).error()); \
  declaration = std::move(*temporary)
// NOLINTEND(bugprone-macro-parentheses)
// The same for Result<void>.
#define BEELINE_TRY_VOID(expression)                                                  \
  do {                                                                                \
    if (auto beeline_try_result = (expression); !beeline_try_result)                  \
      return tl::unexpected<::beeline::Error>(std::move(beeline_try_result).error()); \
  } while (false)
