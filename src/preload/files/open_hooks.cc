// Hooks of the functions that open a file by its path. (libc's functions call each other directly, not
// through what a program can replace, so every one has its own.)
#include <fcntl.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>

#include "preload/files/next.h"
#include "preload/files/path.h"
#include "preload/ucma/ucma.h"

using beeline::preload::files::means_connection_manager;
using beeline::preload::files::Path;
namespace ucma = beeline::preload::ucma;

namespace {

bool takes_mode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

}  // namespace

// NOLINTBEGIN(bugprone-macro-parentheses): a declaration stands in no parentheses.
#define BEELINE_READ_MODE(mode, last) \
  mode_t mode = 0;                    \
  if (takes_mode(flags)) {            \
    va_list arguments;                \
    va_start(arguments, last);        \
    mode = va_arg(arguments, mode_t); \
    va_end(arguments);                \
  }                                   \
  if (means_connection_manager(path)) return ucma::open_device(flags)
// NOLINTEND(bugprone-macro-parentheses)

BEELINE_HOOK(int, open, const char* path, int flags, ...) {
  BEELINE_READ_MODE(mode, flags);
  return BEELINE_NEXT(open)(Path(path), flags, mode);
}
BEELINE_HOOK(int, open64, const char* path, int flags, ...) {
  BEELINE_READ_MODE(mode, flags);
  return BEELINE_NEXT(open64)(Path(path), flags, mode);
}
BEELINE_HOOK(int, openat, int directory, const char* path, int flags, ...) {
  BEELINE_READ_MODE(mode, flags);
  return BEELINE_NEXT(openat)(directory, Path(path), flags, mode);
}
BEELINE_HOOK(int, openat64, int directory, const char* path, int flags, ...) {
  BEELINE_READ_MODE(mode, flags);
  return BEELINE_NEXT(openat64)(directory, Path(path), flags, mode);
}

// What programs compiled with _FORTIFY_SOURCE call.
BEELINE_HOOK(int, __open_2, const char* path, int flags) {
  if (means_connection_manager(path)) return ucma::open_device(flags);
  return BEELINE_NEXT(__open_2)(Path(path), flags);
}
BEELINE_HOOK(int, __open64_2, const char* path, int flags) {
  if (means_connection_manager(path)) return ucma::open_device(flags);
  return BEELINE_NEXT(__open64_2)(Path(path), flags);
}
BEELINE_HOOK(int, __openat_2, int directory, const char* path, int flags) {
  if (means_connection_manager(path)) return ucma::open_device(flags);
  return BEELINE_NEXT(__openat_2)(directory, Path(path), flags);
}
BEELINE_HOOK(int, __openat64_2, int directory, const char* path, int flags) {
  if (means_connection_manager(path)) return ucma::open_device(flags);
  return BEELINE_NEXT(__openat64_2)(directory, Path(path), flags);
}

BEELINE_HOOK(std::FILE*, fopen, const char* path, const char* mode) {
  return BEELINE_NEXT(fopen)(Path(path), mode);
}
BEELINE_HOOK(std::FILE*, fopen64, const char* path, const char* mode) {
  return BEELINE_NEXT(fopen64)(Path(path), mode);
}
