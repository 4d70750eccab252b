// dlopen("libibverbs.so…") hands back this library, in which everything else of libibverbs is found too,
// because it needs the real one.
//
// glibc looks at dlopen's return address to learn who calls, and searches that library's RUNPATH. So the hook
// must not be a frame of its own: it changes the path and jumps.
#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <string_view>

#include "preload/export.h"
#include "preload/files/bypass.h"
#include "preload/files/next.h"

extern "C" {
// This library in memory, from the linker.
[[gnu::visibility("hidden")]] extern const char __ehdr_start[];  // NOLINT(bugprone-reserved-identifier)
[[gnu::visibility("hidden")]] extern const char _end[];
[[gnu::visibility("hidden")]] void* beeline_next_dlopen = nullptr;
[[gnu::visibility("hidden"), gnu::used]] const char* beeline_dlopen_path(const char* path, int flags,
                                                                         const void* caller);
}

namespace {

bool is_ours(const void* address) {
  const auto value = reinterpret_cast<std::uintptr_t>(address);
  return value >= reinterpret_cast<std::uintptr_t>(__ehdr_start) &&
         value < reinterpret_cast<std::uintptr_t>(_end);
}

bool means_libibverbs(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
  constexpr std::string_view library = "libibverbs.so";
  return name.substr(0, library.size()) == library &&
         (name.size() == library.size() || name[library.size()] == '.');
}

const char* own_path() {
  Dl_info info{};
  return ::dladdr(__ehdr_start, &info) != 0 ? info.dli_fname : nullptr;
}

}  // namespace

const char* beeline_dlopen_path(const char* path, int, const void* caller) {
  namespace files = beeline::preload::files;
  beeline_next_dlopen = files::next(files::Function::f_dlopen);
  // Our own provider of the machine's devices wants the real one.
  if (path == nullptr || files::Bypass::active() || is_ours(caller) || !means_libibverbs(path)) return path;
  const char* own = own_path();
  return own != nullptr ? own : path;
}

#if defined(__x86_64__)
__asm__(
    ".text\n"
    ".globl dlopen\n"
    ".type dlopen, @function\n"
    "dlopen:\n"
    "  endbr64\n"
    "  push %rsi\n"          // the flags; and the stack is aligned for a call
    "  mov 8(%rsp), %rdx\n"  // where the caller goes on
    "  call beeline_dlopen_path\n"
    "  pop %rsi\n"
    "  mov %rax, %rdi\n"
    "  jmp *beeline_next_dlopen(%rip)\n"
    ".size dlopen, . - dlopen\n");
#elif defined(__aarch64__)
__asm__(
    ".text\n"
    ".globl dlopen\n"
    ".type dlopen, %function\n"
    "dlopen:\n"
    "  hint #34\n"  // bti c
    "  stp x29, x30, [sp, #-32]!\n"
    "  str x1, [sp, #16]\n"
    "  mov x2, x30\n"
    "  bl beeline_dlopen_path\n"
    "  ldr x1, [sp, #16]\n"
    "  ldp x29, x30, [sp], #32\n"
    "  adrp x16, beeline_next_dlopen\n"
    "  ldr x16, [x16, #:lo12:beeline_next_dlopen]\n"
    "  br x16\n"
    ".size dlopen, . - dlopen\n");
#else
#error "the jump of the dlopen hook has to be written for this processor"
#endif
