// Like frames_rules.S, for arm64: frames with correct, missing and wrong unwind rules, and switches to other stacks.
  .arch armv8.3-a
  .text

  .macro begin name
  .p2align 4
  .globl \name
  .type \name, %function
\name:
  .endm
  .macro finish name
  .size \name, . - \name
  .endm

  .data
  .p2align 4
data:
  .quad 0x1122334455667788, 0x99aabbccddeeff00
fake_frame:
  .quad 0, data + 8
  .text

// Saves x29 and x30 at the bottom of a frame of this size.
  .macro enter bytes
  stp x29, x30, [sp, #-\bytes]!
  .cfi_def_cfa_offset \bytes
  .cfi_offset x29, -\bytes
  .cfi_offset x30, -\bytes+8
  .endm
  .macro leave bytes
  ldp x29, x30, [sp], #\bytes
  .cfi_restore x29
  .cfi_restore x30
  .cfi_def_cfa sp, 0
  .endm

// No rules at all: both unwinders stop.
begin rule_none
  stp x29, x30, [sp, #-16]!
  blr x0
  ldp x29, x30, [sp], #16
  ret
finish rule_none
  .skip 32

// The rules locate the return address at a word that contains the address of data.
begin rule_data
  .cfi_startproc
  stp x29, x30, [sp, #-32]!
  adrp x9, data+8
  add x9, x9, :lo12:data+8
  str x9, [sp, #24]
  .cfi_def_cfa_offset 32
  .cfi_offset x30, -8
  blr x0
  ldp x29, x30, [sp], #32
  .cfi_restore x30
  .cfi_def_cfa_offset 0
  ret
  .cfi_endproc
finish rule_data

// The rules give a return address of zero, which by convention is the root.
begin rule_zero
  .cfi_startproc
  stp x29, x30, [sp, #-32]!
  str xzr, [sp, #24]
  .cfi_def_cfa_offset 32
  .cfi_offset x30, -8
  blr x0
  ldp x29, x30, [sp], #32
  .cfi_restore x30
  .cfi_def_cfa_offset 0
  ret
  .cfi_endproc
finish rule_zero

// The rules of the inner part skip its caller: both unwinders follow them.
begin rule_skips
  .cfi_startproc
  enter 16
  mov x29, sp
  .cfi_def_cfa_register x29
  bl 1f
  leave 16
  ret
  .cfi_endproc
  .cfi_startproc
1:
  stp x30, x19, [sp, #-16]!
  .cfi_def_cfa x29, 16
  .cfi_offset x29, -16
  .cfi_offset x30, -8
  blr x0
  ldp x30, x19, [sp], #16
  ret
  .cfi_endproc
finish rule_skips

// The rules call x29 a frame pointer, but it points outside the stack.
begin rule_fake_rbp
  .cfi_startproc
  enter 16
  adrp x29, fake_frame
  add x29, x29, :lo12:fake_frame
  .cfi_def_cfa_register x29
  blr x0
  leave 16
  ret
  .cfi_endproc
finish rule_fake_rbp

// x29 is kept in another register.
begin rule_registers
  .cfi_startproc
  stp x19, x30, [sp, #-16]!
  .cfi_def_cfa_offset 16
  .cfi_offset x19, -16
  .cfi_offset x30, -8
  mov x19, x29
  .cfi_register x29, x19
  mov x29, #12345
  blr x0
  mov x29, x19
  ldp x19, x30, [sp], #16
  ret
  .cfi_endproc
finish rule_registers

// An expression gives the CFA: sp + 24 + 8.
begin rule_expression
  .cfi_startproc
  enter 32
  .cfi_escape 0x0f, 0x04, 0x8f, 0x18, 0x23, 0x08
  blr x0
  leave 32
  ret
  .cfi_endproc
finish rule_expression

// A function marked as a signal frame.
begin rule_signal
  .cfi_startproc
  .cfi_signal_frame
  enter 16
  blr x0
  leave 16
  ret
  .cfi_endproc
finish rule_signal

// The return address is kept in another register.
begin rule_rip
  .cfi_startproc
  stp x29, x19, [sp, #-16]!
  .cfi_def_cfa_offset 16
  .cfi_offset x29, -16
  .cfi_offset x19, -8
  mov x19, x30
  .cfi_register x30, x19
  blr x0
  mov x30, x19
  ldp x29, x19, [sp], #16
  ret
  .cfi_endproc
finish rule_rip

// More remembered rows than the unwinder needs.
begin rule_states
  .cfi_startproc
  .rept 4
  .cfi_remember_state
  .endr
  .rept 4
  .cfi_restore_state
  .endr
  enter 16
  blr x0
  leave 16
  ret
  .cfi_endproc
finish rule_states

// The CFA is in a register other than sp and x29.
begin rule_rbx
  .cfi_startproc
  stp x19, x30, [sp, #-16]!
  .cfi_def_cfa_offset 16
  .cfi_offset x19, -16
  .cfi_offset x30, -8
  mov x19, sp
  .cfi_def_cfa_register x19
  blr x0
  ldp x19, x30, [sp], #16
  ret
  .cfi_endproc
finish rule_rbx

// A frame of 32 KiB; x29 and x30 are saved apart.
begin rule_far
  .cfi_startproc
  sub sp, sp, #32768
  .cfi_def_cfa_offset 32768
  str x29, [sp, #16384]
  .cfi_offset x29, -16384
  str x30, [sp, #8]
  .cfi_offset x30, -32760
  mov x29, #77
  blr x0
  ldr x30, [sp, #8]
  ldr x29, [sp, #16384]
  add sp, sp, #32768
  ret
  .cfi_endproc
finish rule_far

begin rule_same
  .cfi_startproc
  enter 32
  blr x0
  leave 32
  ret
  .cfi_endproc
finish rule_same

// A signed return address, a CFA in x29, and a stack pointer below it.
begin rule_drap
  .cfi_startproc
  paciasp
  .cfi_negate_ra_state
  enter 48
  mov x29, sp
  .cfi_def_cfa_register x29
  sub sp, sp, #640
  blr x0
  mov sp, x29
  leave 48
  autiasp
  .cfi_negate_ra_state
  ret
  .cfi_endproc
finish rule_drap

// Thousands of rows before the one that applies.
begin rule_long
  .cfi_startproc
  .rept 3000
  nop
  .cfi_same_value x20
  .endr
  enter 16
  blr x0
  leave 16
  ret
  .cfi_endproc
finish rule_long

// Calls the function on the stack that ends at `top`.
begin call_on_stack
  .cfi_startproc
  enter 16
  mov x29, sp
  .cfi_def_cfa_register x29
  mov sp, x1
  blr x0
  mov sp, x29
  leave 16
  ret
  .cfi_endproc
finish call_on_stack

// Calls the function there, from a frame whose return address is `value`, `beyond` bytes after the end of the stack.
  .macro calls_with value, beyond
  stp x29, x30, [sp, #-16]!
  mov x29, sp
  sub x1, x1, #32
  \value
  str x29, [x1]
  .if \beyond == 0
  str x9, [x1, #24]
  .endif
  mov sp, x1
  bl 1f
  ldr x29, [sp]
  mov sp, x29
  ldp x29, x30, [sp], #16
  ret
  .cfi_startproc
1:
  .cfi_def_cfa_offset 48+\beyond
  sub sp, sp, #16
  str x30, [sp]
  .cfi_def_cfa_offset 48+\beyond
  .cfi_offset x30, -8
  blr x0
  ldr x30, [sp]
  add sp, sp, #16
  ret
  .cfi_endproc
  .endm

begin call_on_stack_zero
  calls_with "mov x9, xzr", 0
finish call_on_stack_zero
begin call_on_stack_data
  calls_with "ldr x9, =data+8", 0
finish call_on_stack_data
  .ltorg
begin call_on_stack_end
  calls_with "mov x9, xzr", 32
finish call_on_stack_end

// ---- thunks: f(argument) from frames of many shapes

// GCC: the pair at the bottom, CFA from sp.
  .macro low bytes
  .p2align 4
  .cfi_startproc
9:
  enter \bytes
  mov x29, sp
  mov x9, x0
  mov w0, w1
  blr x9
  leave \bytes
  ret
  .cfi_endproc
  .endm

// The same, signed; the CFA is in x29 and the stack pointer is elsewhere.
  .macro signed bytes
  .p2align 4
  .cfi_startproc
9:
  paciasp
  .cfi_negate_ra_state
  enter \bytes
  mov x29, sp
  .cfi_def_cfa_register x29
  sub sp, sp, #\bytes
  mov x9, x0
  mov w0, w1
  blr x9
  mov sp, x29
  leave \bytes
  autiasp
  .cfi_negate_ra_state
  ret
  .cfi_endproc
  .endm

// LLVM: the pair at the top, CFA from x29.
  .macro top bytes
  .p2align 4
  .cfi_startproc
9:
  sub sp, sp, #\bytes+16
  .cfi_def_cfa_offset \bytes+16
  stp x29, x30, [sp, #\bytes]
  add x29, sp, #\bytes
  .cfi_def_cfa x29, 16
  .cfi_offset x29, -16
  .cfi_offset x30, -8
  mov x9, x0
  mov w0, w1
  blr x9
  .cfi_def_cfa sp, \bytes+16
  ldp x29, x30, [sp, #\bytes]
  add sp, sp, #\bytes+16
  .cfi_def_cfa_offset 0
  .cfi_restore x29
  .cfi_restore x30
  ret
  .cfi_endproc
  .endm

// Only x30 is saved; x29 keeps the caller's value.
  .macro alone bytes
  .p2align 4
  .cfi_startproc
9:
  str x30, [sp, #-\bytes]!
  .cfi_def_cfa_offset \bytes
  .cfi_offset x30, -\bytes
  mov x9, x0
  mov w0, w1
  blr x9
  ldr x30, [sp], #\bytes
  .cfi_restore x30
  .cfi_def_cfa_offset 0
  ret
  .cfi_endproc
  .endm

// x29 and x30 are saved apart, and x29 is used for something else.
  .macro apart bytes
  .p2align 4
  .cfi_startproc
9:
  sub sp, sp, #\bytes+32
  .cfi_def_cfa_offset \bytes+32
  str x30, [sp, #8]
  .cfi_offset x30, -(\bytes+24)
  str x29, [sp, #24]
  .cfi_offset x29, -(\bytes+8)
  mov x29, #\bytes
  mov x9, x0
  mov w0, w1
  blr x9
  ldr x29, [sp, #24]
  ldr x30, [sp, #8]
  add sp, sp, #\bytes+32
  .cfi_restore x29
  .cfi_restore x30
  .cfi_def_cfa_offset 0
  ret
  .cfi_endproc
  .endm

  .macro shape kind, bytes
  \kind \bytes
  .pushsection .data.rel.ro
  .quad 9b
  .popsection
  .endm

  .section .data.rel.ro, "aw"
  .p2align 3
  .globl thunks, thunk_count, thunks_realigned, thunks_realigned_end
thunks:
  .text
  .irp bytes, 16, 32, 64, 112, 240, 496
  shape low, \bytes
  shape signed, \bytes
  shape top, \bytes
  .endr
  .irp bytes, 16, 48, 160
  shape alone, \bytes
  shape apart, \bytes
  .endr
  .section .data.rel.ro
thunks_realigned:
thunks_realigned_end:
thunk_count:
  .quad (thunks_realigned - thunks) / 8
  .section .note.GNU-stack, "", %progbits
