#include "api/status.h"

#include <string>

namespace beeline::api {
namespace {

std::string& last_error() noexcept {
  thread_local std::string text;
  return text;
}

// The public numbers are the internal ones plus one; beeline.h may not change, so this must hold.
constexpr int public_number(Errc code) { return static_cast<int>(code) + 1; }
static_assert(public_number(Errc::invalid_argument) == BEELINE_INVALID_ARGUMENT);
static_assert(public_number(Errc::not_found) == BEELINE_NOT_FOUND);
static_assert(public_number(Errc::in_use) == BEELINE_IN_USE);
static_assert(public_number(Errc::permission) == BEELINE_PERMISSION);
static_assert(public_number(Errc::io) == BEELINE_IO);
static_assert(public_number(Errc::protocol) == BEELINE_PROTOCOL);
static_assert(public_number(Errc::mismatch) == BEELINE_MISMATCH);
static_assert(public_number(Errc::timed_out) == BEELINE_TIMED_OUT);
static_assert(public_number(Errc::peer_lost) == BEELINE_PEER_LOST);
static_assert(public_number(Errc::aborted) == BEELINE_ABORTED);
static_assert(public_number(Errc::unsupported) == BEELINE_UNSUPPORTED);
static_assert(public_number(Errc::resource_exhausted) == BEELINE_RESOURCE_EXHAUSTED);
static_assert(public_number(Errc::internal) == BEELINE_INTERNAL);

}  // namespace

beeline_status to_status(Errc code) noexcept { return static_cast<beeline_status>(public_number(code)); }

beeline_status report(const Error& error) noexcept {
  try {
    last_error() = error.message.empty() ? std::string(name(error.code)) : error.message;
  } catch (...) {
    last_error().clear();  // no memory for words; the status still says what
  }
  return to_status(error.code);
}

}  // namespace beeline::api

const char* beeline_last_error(void) { return beeline::api::last_error().c_str(); }

const char* beeline_version(void) { return "0.1.0"; }
