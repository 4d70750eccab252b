// Hooks of the functions on descriptors, for those of emulated devices (ucma/); all others pass.
#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>

#include "preload/files/next.h"
#include "preload/files/process.h"
#include "preload/ucma/ucma.h"

namespace ucma = beeline::preload::ucma;

namespace {

// Not in the child of a vfork: it closes and moves descriptors of its own, but its memory is the parent's.
bool is_emulated(int fd) {
  return ucma::owns(fd) && beeline::preload::files::is_home_process() && ucma::still_has(fd);
}

int note_duplicate(int from, int to) {
  if (to < 0 || to == from) return to;
  if (is_emulated(to)) ucma::forget(to);  // what stood there before
  if (is_emulated(from)) ucma::duplicated(from, to);
  return to;
}

void forget_range(unsigned first, unsigned last) {
  constexpr unsigned end_of_descriptors = 1u
                                          << 20;  // the kernel's default for what a process may raise it to
  for (unsigned fd = first; fd <= std::min(last, end_of_descriptors); ++fd)
    if (is_emulated(static_cast<int>(fd))) ucma::forget(static_cast<int>(fd));
}

}  // namespace

BEELINE_HOOK(ssize_t, write, int fd, const void* bytes, std::size_t count) {
  if (is_emulated(fd)) return ucma::write(fd, bytes, count);
  return BEELINE_NEXT(write)(fd, bytes, count);
}

BEELINE_HOOK(int, close, int fd) {
  if (is_emulated(fd)) return ucma::close(fd);
  return BEELINE_NEXT(close)(fd);
}

BEELINE_HOOK(int, fstat, int fd, struct stat* out) {
  if (is_emulated(fd)) return ucma::fstat(fd, out);
  return BEELINE_NEXT(fstat)(fd, out);
}
static_assert(sizeof(struct stat) == sizeof(struct stat64), "one layout on 64-bit machines");
BEELINE_HOOK(int, fstat64, int fd, struct stat* out) {
  if (is_emulated(fd)) return ucma::fstat(fd, out);
  return BEELINE_NEXT(fstat64)(fd, out);
}
BEELINE_HOOK(int, __fxstat, int version, int fd, struct stat* out) {
  if (is_emulated(fd)) return ucma::fstat(fd, out);
  return BEELINE_NEXT(__fxstat)(version, fd, out);
}
BEELINE_HOOK(int, __fxstat64, int version, int fd, struct stat* out) {
  if (is_emulated(fd)) return ucma::fstat(fd, out);
  return BEELINE_NEXT(__fxstat64)(version, fd, out);
}

BEELINE_HOOK(int, dup, int from) { return note_duplicate(from, BEELINE_NEXT(dup)(from)); }
BEELINE_HOOK(int, dup2, int from, int to) { return note_duplicate(from, BEELINE_NEXT(dup2)(from, to)); }
BEELINE_HOOK(int, dup3, int from, int to, int flags) {
  return note_duplicate(from, BEELINE_NEXT(dup3)(from, to, flags));
}

// The argument is an int or a pointer, as the command says; both travel in one register.
BEELINE_HOOK(int, fcntl, int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  const int result = BEELINE_NEXT(fcntl)(fd, command, argument);
  return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? note_duplicate(fd, result) : result;
}
BEELINE_HOOK(int, fcntl64, int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  const int result = BEELINE_NEXT(fcntl64)(fd, command, argument);
  return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? note_duplicate(fd, result) : result;
}

BEELINE_HOOK(int, close_range, unsigned first, unsigned last, int flags) {
  if ((flags & static_cast<int>(CLOSE_RANGE_CLOEXEC)) == 0) forget_range(first, last);
  return BEELINE_NEXT(close_range)(first, last, flags);
}
BEELINE_HOOK(void, closefrom, int first) {
  forget_range(static_cast<unsigned>(std::max(first, 0)), ~0u);
  BEELINE_NEXT(closefrom)(first);
}
