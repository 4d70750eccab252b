#include "nic/guarded_machine.h"

// In assembly, because the handler must know exactly which instructions may fault and
// what the stack looks like there, and because sanitizers must not look at this memory:
// it may belong to a program that changes it meanwhile.

#if defined(__x86_64__)

// `rep movsb` moves 32 or more bytes per cycle on processors with ERMS, and may be
// interrupted and abandoned between any two bytes.
asm(R"(
  .text
  .p2align 4
  .globl beeline_guarded_copy, beeline_guarded_copy_begin, beeline_guarded_copy_end, beeline_guarded_copy_fault
  .hidden beeline_guarded_copy, beeline_guarded_copy_begin, beeline_guarded_copy_end, beeline_guarded_copy_fault
  .type beeline_guarded_copy, @function
beeline_guarded_copy:
  .cfi_startproc
  mov %rdx, %rcx
beeline_guarded_copy_begin:
  rep movsb
beeline_guarded_copy_end:
  xor %eax, %eax
  ret
beeline_guarded_copy_fault:
  mov $1, %eax
  ret
  .cfi_endproc
  .size beeline_guarded_copy, . - beeline_guarded_copy

  .p2align 4
  .globl beeline_guarded_compare_swap, beeline_guarded_fetch_add
  .hidden beeline_guarded_compare_swap, beeline_guarded_fetch_add
  .globl beeline_guarded_atomic_begin, beeline_guarded_atomic_end, beeline_guarded_atomic_fault
  .hidden beeline_guarded_atomic_begin, beeline_guarded_atomic_end, beeline_guarded_atomic_fault
  .type beeline_guarded_compare_swap, @function
  .type beeline_guarded_fetch_add, @function
beeline_guarded_compare_swap:
  .cfi_startproc
  mov (%rsi), %rax
beeline_guarded_atomic_begin:
  lock cmpxchg %rdx, (%rdi)
  mov %rax, (%rsi)
  xor %eax, %eax
  ret
  .cfi_endproc
  .size beeline_guarded_compare_swap, . - beeline_guarded_compare_swap
beeline_guarded_fetch_add:
  .cfi_startproc
  mov (%rsi), %rax
  lock xadd %rax, (%rdi)
beeline_guarded_atomic_end:
  mov %rax, (%rsi)
  xor %eax, %eax
  ret
beeline_guarded_atomic_fault:
  mov $1, %eax
  ret
  .cfi_endproc
  .size beeline_guarded_fetch_add, . - beeline_guarded_fetch_add

  .p2align 4
  .globl beeline_guarded_call, beeline_guarded_call_fault
  .hidden beeline_guarded_call, beeline_guarded_call_fault
  .type beeline_guarded_call, @function
beeline_guarded_call:
  .cfi_startproc
  push %rbp
  .cfi_adjust_cfa_offset 8
  .cfi_offset %rbp, -16
  mov %rsp, %rbp
  .cfi_def_cfa_register %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  sub $8, %rsp
  mov %rsp, (%rdx)
  mov %rdi, %rax
  mov %rsi, %rdi
  call *%rax
  xor %eax, %eax
1:
  add $8, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  .cfi_def_cfa %rsp, 8
  ret
beeline_guarded_call_fault:
  mov $1, %eax
  jmp 1b
  .cfi_endproc
  .size beeline_guarded_call, . - beeline_guarded_call
)");

#elif defined(__aarch64__)

asm(R"(
  .text
  .p2align 4
  .globl beeline_guarded_copy, beeline_guarded_copy_begin, beeline_guarded_copy_end, beeline_guarded_copy_fault
  .hidden beeline_guarded_copy, beeline_guarded_copy_begin, beeline_guarded_copy_end, beeline_guarded_copy_fault
  .type beeline_guarded_copy, %function
beeline_guarded_copy:
  .cfi_startproc
beeline_guarded_copy_begin:
  cmp x2, #16
  b.lo 2f
1:
  ldp x3, x4, [x1], #16
  stp x3, x4, [x0], #16
  sub x2, x2, #16
  cmp x2, #16
  b.hs 1b
2:
  cbz x2, beeline_guarded_copy_end
  ldrb w3, [x1], #1
  strb w3, [x0], #1
  sub x2, x2, #1
  b 2b
beeline_guarded_copy_end:
  mov w0, #0
  ret
beeline_guarded_copy_fault:
  mov w0, #1
  ret
  .cfi_endproc
  .size beeline_guarded_copy, . - beeline_guarded_copy

  .p2align 4
  .globl beeline_guarded_compare_swap, beeline_guarded_fetch_add
  .hidden beeline_guarded_compare_swap, beeline_guarded_fetch_add
  .globl beeline_guarded_atomic_begin, beeline_guarded_atomic_end, beeline_guarded_atomic_fault
  .hidden beeline_guarded_atomic_begin, beeline_guarded_atomic_end, beeline_guarded_atomic_fault
  .type beeline_guarded_compare_swap, %function
  .type beeline_guarded_fetch_add, %function
beeline_guarded_compare_swap:
  .cfi_startproc
  ldr x3, [x1]
beeline_guarded_atomic_begin:
1:
  ldaxr x4, [x0]
  cmp x4, x3
  b.ne 2f
  stlxr w5, x2, [x0]
  cbnz w5, 1b
2:
  str x4, [x1]
  mov w0, #0
  ret
  .cfi_endproc
  .size beeline_guarded_compare_swap, . - beeline_guarded_compare_swap
beeline_guarded_fetch_add:
  .cfi_startproc
  ldr x3, [x1]
1:
  ldaxr x4, [x0]
  add x5, x4, x3
  stlxr w6, x5, [x0]
  cbnz w6, 1b
beeline_guarded_atomic_end:
  str x4, [x1]
  mov w0, #0
  ret
beeline_guarded_atomic_fault:
  mov w0, #1
  ret
  .cfi_endproc
  .size beeline_guarded_fetch_add, . - beeline_guarded_fetch_add

  .p2align 4
  .globl beeline_guarded_call, beeline_guarded_call_fault
  .hidden beeline_guarded_call, beeline_guarded_call_fault
  .type beeline_guarded_call, %function
beeline_guarded_call:
  .cfi_startproc
  stp x29, x30, [sp, #-160]!
  .cfi_def_cfa_offset 160
  .cfi_offset x29, -160
  .cfi_offset x30, -152
  stp x19, x20, [sp, #16]
  stp x21, x22, [sp, #32]
  stp x23, x24, [sp, #48]
  stp x25, x26, [sp, #64]
  stp x27, x28, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x29, sp
  str x29, [x2]
  mov x3, x0
  mov x0, x1
  blr x3
  mov w0, #0
1:
  ldp x19, x20, [sp, #16]
  ldp x21, x22, [sp, #32]
  ldp x23, x24, [sp, #48]
  ldp x25, x26, [sp, #64]
  ldp x27, x28, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  ldp x29, x30, [sp], #160
  .cfi_def_cfa_offset 0
  ret
beeline_guarded_call_fault:
  mov w0, #1
  b 1b
  .cfi_endproc
  .size beeline_guarded_call, . - beeline_guarded_call
)");

#endif
