// A hook of libc, and the function that it stands before: the next one of that name in the process.
#pragma once

#include <cstdint>

#include "preload/export.h"

namespace beeline::preload::files {

#define BEELINE_HOOKED_FUNCTIONS(X) \
  X(open)                           \
  X(open64)                         \
  X(openat)                         \
  X(openat64)                       \
  X(__open_2)                       \
  X(__open64_2)                     \
  X(__openat_2)                     \
  X(__openat64_2)                   \
  X(fopen)                          \
  X(fopen64)                        \
  X(stat)                           \
  X(stat64)                         \
  X(lstat)                          \
  X(lstat64)                        \
  X(fstatat)                        \
  X(fstatat64)                      \
  X(statx)                          \
  X(__xstat)                        \
  X(__xstat64)                      \
  X(__lxstat)                       \
  X(__lxstat64)                     \
  X(access)                         \
  X(faccessat)                      \
  X(opendir)                        \
  X(scandir)                        \
  X(scandir64)                      \
  X(readlink)                       \
  X(readlinkat)                     \
  X(__readlink_chk)                 \
  X(getxattr)                       \
  X(lgetxattr)                      \
  X(chdir)                          \
  X(realpath)                       \
  X(__realpath_chk)                 \
  X(canonicalize_file_name)         \
  X(write)                          \
  X(close)                          \
  X(fstat)                          \
  X(fstat64)                        \
  X(__fxstat) X(__fxstat64) X(dup) X(dup2) X(dup3) X(fcntl) X(fcntl64) X(close_range) X(closefrom) X(dlopen)

enum class Function : std::uint8_t {
#define BEELINE_ENUMERATOR(name) f_##name,
  BEELINE_HOOKED_FUNCTIONS(BEELINE_ENUMERATOR)
#undef BEELINE_ENUMERATOR
};

// Looked up when the library starts, or at the first call where that comes earlier.
void* next(Function function);
void look_up_all();

}  // namespace beeline::preload::files

// Defines the hook under another name for C++, so that what libc's headers declare (inline variants,
// exception specifications) does not matter.
#define BEELINE_HOOK(result, name, ...)                                     \
  extern "C" BEELINE_EXPORT result hook_##name(__VA_ARGS__) __asm__(#name); \
  result hook_##name(__VA_ARGS__)

// The next function. Hooks are only reached by programs of a libc that has it.
#define BEELINE_NEXT(name)                  \
  reinterpret_cast<decltype(&hook_##name)>( \
      beeline::preload::files::next(beeline::preload::files::Function::f_##name))
