#include "base/result.h"

#include <cerrno>
#include <system_error>

namespace beeline {

std::string_view name(Errc code) noexcept {
  switch (code) {
    case Errc::invalid_argument:
      return "invalid argument";
    case Errc::not_found:
      return "not found";
    case Errc::in_use:
      return "in use";
    case Errc::permission:
      return "permission denied";
    case Errc::io:
      return "input/output error";
    case Errc::protocol:
      return "protocol error";
    case Errc::mismatch:
      return "mismatch between ranks";
    case Errc::timed_out:
      return "timed out";
    case Errc::peer_lost:
      return "peer lost";
    case Errc::aborted:
      return "aborted";
    case Errc::unsupported:
      return "not supported";
    case Errc::resource_exhausted:
      return "resource exhausted";
    case Errc::internal:
      return "internal error";
  }
  return "unknown error";
}

namespace {
Errc from_errno(int errno_value) noexcept {
  switch (errno_value) {
    case EINVAL:
      return Errc::invalid_argument;
    case ENOENT:
    case ENODEV:
      return Errc::not_found;
    case EADDRINUSE:
    case EBUSY:
      return Errc::in_use;
    case EACCES:
    case EPERM:
      return Errc::permission;
    case ETIMEDOUT:
      return Errc::timed_out;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return Errc::resource_exhausted;
    case EOPNOTSUPP:
    case ENOSYS:
      return Errc::unsupported;
    default:
      return Errc::io;
  }
}
}  // namespace

tl::unexpected<Error> fail_errno(int errno_value, std::string_view what) {
  return fail(from_errno(errno_value), "{}: {}", what, std::generic_category().message(errno_value));
}

}  // namespace beeline
