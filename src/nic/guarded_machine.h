// The few instructions that guarded access is made of, per architecture, and how a signal
// handler moves a thread from a faulting instruction to its recovery.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>

extern "C" {
// Copies bytes; returns 0, or 1 when the handler sent it to beeline_guarded_copy_fault.
int beeline_guarded_copy(void* to, const void* from, std::size_t bytes) noexcept;
// Every instruction that touches memory of strangers lies in [begin, end).
extern const char beeline_guarded_copy_begin[];
extern const char beeline_guarded_copy_end[];
extern const char beeline_guarded_copy_fault[];

// Atomic with respect to everybody who uses this processor's atomic instructions. `at` is a multiple
// of 8. *value goes in (what to compare with, what to add) and what was there before comes out. Return 0,
// or 1 when the handler sent them to beeline_guarded_atomic_fault, *value being as it was.
int beeline_guarded_compare_swap(void* at, std::uint64_t* value, std::uint64_t swap) noexcept;
int beeline_guarded_fetch_add(void* at, std::uint64_t* value) noexcept;
extern const char beeline_guarded_atomic_begin[];
extern const char beeline_guarded_atomic_end[];
extern const char beeline_guarded_atomic_fault[];

// Stores its stack pointer to *stack, calls function(argument) and returns 0; or 1 when the
// handler restored that stack pointer and sent it to beeline_guarded_call_fault. The
// function must own nothing that leaving it in the middle would leak.
int beeline_guarded_call(void (*function)(void*), void* argument, void** stack) noexcept;
extern const char beeline_guarded_call_fault[];
}

namespace beeline::nic::machine {

inline std::uintptr_t address_of(const char* label) { return reinterpret_cast<std::uintptr_t>(label); }

#if defined(__x86_64__)

inline std::uintptr_t program_counter(const ucontext_t& context) {
  return static_cast<std::uintptr_t>(context.uc_mcontext.gregs[REG_RIP]);
}
inline void jump(ucontext_t& context, const char* label) {
  context.uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(address_of(label));
}
inline void set_stack(ucontext_t& context, void* stack) {
  context.uc_mcontext.gregs[REG_RSP] = reinterpret_cast<greg_t>(stack);
}

#elif defined(__aarch64__)

inline std::uintptr_t program_counter(const ucontext_t& context) { return context.uc_mcontext.pc; }
inline void jump(ucontext_t& context, const char* label) { context.uc_mcontext.pc = address_of(label); }
inline void set_stack(ucontext_t& context, void* stack) {
  context.uc_mcontext.sp = reinterpret_cast<std::uintptr_t>(stack);
}

#else
#error "guarded access is written for x86-64 and aarch64; add this architecture to guarded_machine.{h,cc}"
#endif

}  // namespace beeline::nic::machine
