// Frames with correct, missing and wrong unwind rules, and switches to other stacks.
  .text

  .macro begin name
  .p2align 4
  .globl \name
  .type \name, @function
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

// No rules at all: both unwinders stop.
begin rule_none
  sub $24, %rsp
  call *%rdi
  add $24, %rsp
  ret
finish rule_none
  .skip 32, 0xcc

// The rules locate the return address at a word that contains the address of data.
begin rule_data
  .cfi_startproc
  sub $24, %rsp
  lea data+1(%rip), %rax
  mov %rax, 8(%rsp)
  .cfi_def_cfa_offset 16
  call *%rdi
  add $24, %rsp
  .cfi_def_cfa_offset 8
  ret
  .cfi_endproc
finish rule_data

// Correct rules. An unwinder that assumes a frame of 8 bytes finds the address of data.
begin rule_true
  .cfi_startproc
  sub $24, %rsp
  .cfi_def_cfa_offset 32
  lea data+1(%rip), %rax
  mov %rax, 8(%rsp)
  call *%rdi
  add $24, %rsp
  .cfi_def_cfa_offset 8
  ret
  .cfi_endproc
finish rule_true

// The rules give a return address of zero, which by convention is the root.
begin rule_zero
  .cfi_startproc
  sub $24, %rsp
  movq $0, 8(%rsp)
  .cfi_def_cfa_offset 16
  call *%rdi
  add $24, %rsp
  .cfi_def_cfa_offset 8
  ret
  .cfi_endproc
finish rule_zero

// The rules of the inner part skip its caller: both unwinders follow them.
begin rule_skips
  .cfi_startproc
  push %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  mov %rsp, %rbp
  .cfi_def_cfa_register %rbp
  call 1f
  pop %rbp
  .cfi_def_cfa %rsp, 8
  ret
  .cfi_endproc
  .cfi_startproc
1:
  sub $24, %rsp
  .cfi_def_cfa %rbp, 16
  .cfi_offset %rbp, -16
  call *%rdi
  add $24, %rsp
  .cfi_def_cfa %rsp, 8
  .cfi_restore %rbp
  ret
  .cfi_endproc
finish rule_skips

// The rules call rbp a frame pointer, but it points outside the stack.
begin rule_fake_rbp
  .cfi_startproc
  push %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  lea fake_frame(%rip), %rbp
  .cfi_def_cfa_register %rbp
  call *%rdi
  pop %rbp
  .cfi_def_cfa %rsp, 8
  ret
  .cfi_endproc
finish rule_fake_rbp

// rbp is kept in another register.
begin rule_registers
  .cfi_startproc
  push %rbx
  .cfi_def_cfa_offset 16
  .cfi_offset %rbx, -16
  mov %rbp, %rbx
  .cfi_register %rbp, %rbx
  mov $12345, %ebp
  call *%rdi
  mov %rbx, %rbp
  .cfi_same_value %rbp
  pop %rbx
  .cfi_def_cfa_offset 8
  ret
  .cfi_endproc
finish rule_registers

// An expression gives the CFA: rsp + 16 + 8.
begin rule_expression
  .cfi_startproc
  sub $24, %rsp
  .cfi_escape 0x0f, 0x05, 0x77, 0x18, 0x23, 0x08, 0x96
  call *%rdi
  add $24, %rsp
  .cfi_def_cfa %rsp, 8
  ret
  .cfi_endproc
finish rule_expression

// A function marked as a signal frame.
begin rule_signal
  .cfi_startproc
  .cfi_signal_frame
  sub $24, %rsp
  .cfi_def_cfa_offset 32
  call *%rdi
  add $24, %rsp
  .cfi_def_cfa_offset 8
  ret
  .cfi_endproc
finish rule_signal

// The return address is at another place.
begin rule_rip
  .cfi_startproc
  sub $24, %rsp
  mov 24(%rsp), %rax
  mov %rax, 8(%rsp)
  .cfi_def_cfa_offset 32
  .cfi_offset %rip, -24
  call *%rdi
  add $24, %rsp
  .cfi_def_cfa_offset 8
  .cfi_offset %rip, -8
  ret
  .cfi_endproc
finish rule_rip

// More remembered states than the unwinder keeps.
begin rule_states
  .cfi_startproc
  .cfi_remember_state
  .cfi_remember_state
  .cfi_remember_state
  .cfi_remember_state
  sub $24, %rsp
  .cfi_def_cfa_offset 32
  call *%rdi
  add $24, %rsp
  .cfi_restore_state
  .cfi_restore_state
  .cfi_restore_state
  .cfi_restore_state
  ret
  .cfi_endproc
finish rule_states

// The CFA comes from rbx.
begin rule_rbx
  .cfi_startproc
  push %rbx
  .cfi_def_cfa_offset 16
  .cfi_offset %rbx, -16
  mov %rsp, %rbx
  .cfi_def_cfa_register %rbx
  sub $32, %rsp
  call *%rdi
  mov %rbx, %rsp
  .cfi_def_cfa_register %rsp
  pop %rbx
  .cfi_def_cfa_offset 8
  ret
  .cfi_endproc
finish rule_rbx

// A function that realigns its stack, as GCC compiles it. Between the labels the CFA is in r10.
begin rule_drap
  .cfi_startproc
  lea 8(%rsp), %r10
  .cfi_def_cfa %r10, 0
  .globl drap_begin, drap_end
drap_begin:
  and $-64, %rsp
  push -8(%r10)
  push %rbp
  mov %rsp, %rbp
  .cfi_escape 0x10, 0x06, 0x02, 0x76, 0x00
  push %r10
  .cfi_escape 0x0f, 0x03, 0x76, 0x78, 0x06
drap_end:
  sub $104, %rsp
  call *%rdi
  add $104, %rsp
  pop %r10
  .cfi_def_cfa %r10, 0
  .globl drap_leaves, drap_left
drap_leaves:
  pop %rbp
  .cfi_restore %rbp
  lea -8(%r10), %rsp
  .cfi_def_cfa %rsp, 8
drap_left:
  ret
  .cfi_endproc
finish rule_drap

// A frame too large for a word of the cache; rbp is saved far from the CFA.
begin rule_far
  .cfi_startproc
  sub $40008, %rsp
  .cfi_def_cfa_offset 40016
  mov %rbp, 16(%rsp)
  .cfi_offset %rbp, -40000
  mov $77, %ebp
  call *%rdi
  mov 16(%rsp), %rbp
  .cfi_restore %rbp
  add $40008, %rsp
  .cfi_def_cfa_offset 8
  ret
  .cfi_endproc
finish rule_far

// Instructions without effect: same_value, undefined, restore, args_size, a 4-byte advance.
begin rule_same
  .cfi_startproc
  sub $24, %rsp
  .cfi_def_cfa_offset 32
  .cfi_same_value %rbp
  .cfi_undefined %rax
  .cfi_escape 0x2e, 0x10
  .cfi_restore %rbx
  .cfi_escape 0x04, 0x00, 0x00, 0x00, 0x00
  call *%rdi
  add $24, %rsp
  .cfi_def_cfa_offset 8
  ret
  .cfi_endproc
finish rule_same

// Hundreds of rows before the one that applies.
begin rule_long
  .cfi_startproc
  .rept 300
  push %rbp
  .cfi_adjust_cfa_offset 8
  nop
  .endr
  .rept 299
  add $8, %rsp
  .cfi_adjust_cfa_offset -8
  .endr
  call *%rdi
  add $8, %rsp
  .cfi_adjust_cfa_offset -8
  ret
  .cfi_endproc
finish rule_long

// void call_on_stack(function, top)
begin call_on_stack
  .cfi_startproc
  push %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  mov %rsp, %rbp
  .cfi_def_cfa_register %rbp
  mov %rsi, %rsp
  call *%rdi
  mov %rbp, %rsp
  pop %rbp
  .cfi_def_cfa %rsp, 8
  ret
  .cfi_endproc
finish call_on_stack

// A stack without a caller: the word where the return address of `resume` should be is zero.
begin call_on_stack_zero
  .cfi_startproc
  push %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  movq $0, -8(%rsi)
  mov %rsp, -16(%rsi)
  lea -16(%rsi), %rsp
  call resume
  pop %rsp
  pop %rbp
  .cfi_def_cfa %rsp, 8
  ret
  .cfi_endproc
finish call_on_stack_zero

begin call_on_stack_data
  .cfi_startproc
  push %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  lea data(%rip), %rax
  mov %rax, -8(%rsi)
  mov %rsp, -16(%rsi)
  lea -16(%rsi), %rsp
  call resume
  pop %rsp
  pop %rbp
  .cfi_def_cfa %rsp, 8
  ret
  .cfi_endproc
finish call_on_stack_data

begin call_on_stack_end
  .cfi_startproc
  push %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  push %rbx
  .cfi_def_cfa_offset 24
  .cfi_offset %rbx, -24
  mov %rsp, %rbx
  mov %rsi, %rsp
  call resume
  mov %rbx, %rsp
  pop %rbx
  .cfi_def_cfa_offset 16
  pop %rbp
  .cfi_def_cfa_offset 8
  ret
  .cfi_endproc
finish call_on_stack_end

begin steps_on
  .cfi_startproc
  pushf
  .cfi_adjust_cfa_offset 8
  orq $0x100, (%rsp)
  popf
  .cfi_adjust_cfa_offset -8
  ret
  .cfi_endproc
finish steps_on

begin steps_off
  .cfi_startproc
  pushf
  .cfi_adjust_cfa_offset 8
  andq $~0x100, (%rsp)
  popf
  .cfi_adjust_cfa_offset -8
  ret
  .cfi_endproc
finish steps_off

// Its rules omit the saved stack pointer: the return address is in the next word.
  .p2align 4
  .type resume, @function
resume:
  .cfi_startproc
  .cfi_def_cfa_offset 24
  sub $24, %rsp
  .cfi_def_cfa_offset 48
  call *%rdi
  add $24, %rsp
  .cfi_def_cfa_offset 24
  ret
  .cfi_endproc
  .size resume, . - resume

begin bare_restorer
  mov $15, %rax
  syscall
finish bare_restorer
  .skip 32, 0xcc

// ---- thunks: function in rdi, argument in rsi

  .macro plain words
  .p2align 4
thunk_plain_\words:
  .cfi_startproc
  sub $8 * \words, %rsp
  .cfi_def_cfa_offset 8 + 8 * \words
  mov %rdi, %rax
  mov %esi, %edi
  call *%rax
  add $8 * \words, %rsp
  .cfi_def_cfa_offset 8
  ret
  .cfi_endproc
  .pushsection .data.rel.ro
  .quad thunk_plain_\words
  .popsection
  .endm

// rbp is saved and used for something else.
  .macro clobber words
  .p2align 4
thunk_clobber_\words:
  .cfi_startproc
  push %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  sub $8 * \words, %rsp
  .cfi_def_cfa_offset 16 + 8 * \words
  mov %rdi, %rax
  mov %esi, %edi
  imul $0x1e3779b1, %rsi, %rbp
  call *%rax
  add $8 * \words, %rsp
  .cfi_def_cfa_offset 16
  pop %rbp
  .cfi_restore %rbp
  .cfi_def_cfa_offset 8
  ret
  .cfi_endproc
  .pushsection .data.rel.ro
  .quad thunk_clobber_\words
  .popsection
  .endm

// A frame pointer, and stack space that the rules do not mention.
  .macro framed words
  .p2align 4
thunk_framed_\words:
  .cfi_startproc
  push %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  mov %rsp, %rbp
  .cfi_def_cfa_register %rbp
  mov %esi, %eax
  and $0x70, %eax
  sub %rax, %rsp
  sub $8 * \words, %rsp
  mov %rdi, %rax
  mov %esi, %edi
  call *%rax
  mov %rbp, %rsp
  pop %rbp
  .cfi_def_cfa %rsp, 8
  ret
  .cfi_endproc
  .pushsection .data.rel.ro
  .quad thunk_framed_\words
  .popsection
  .endm

  .macro realigned words
  .p2align 4
thunk_realigned_\words:
  .cfi_startproc
  lea 8(%rsp), %r10
  .cfi_def_cfa %r10, 0
  and $-64, %rsp
  push -8(%r10)
  push %rbp
  mov %rsp, %rbp
  .cfi_escape 0x10, 0x06, 0x02, 0x76, 0x00
  push %r10
  .cfi_escape 0x0f, 0x03, 0x76, 0x78, 0x06
  sub $8 * \words, %rsp
  mov %rdi, %rax
  mov %esi, %edi
  call *%rax
  mov -8(%rbp), %r10
  .cfi_def_cfa %r10, 0
  leave
  lea -8(%r10), %rsp
  .cfi_def_cfa %rsp, 8
  ret
  .cfi_endproc
  .pushsection .data.rel.ro
  .quad thunk_realigned_\words
  .popsection
  .endm

// rbp is saved by a move, at different places.
  .macro moved words
  .p2align 4
thunk_moved_\words:
  .cfi_startproc
  sub $8 * \words, %rsp
  .cfi_def_cfa_offset 8 + 8 * \words
  mov %rbp, 8(%rsp)
  .cfi_offset %rbp, -8 * \words
  mov %rdi, %rax
  mov %esi, %edi
  mov %rsi, %rbp
  call *%rax
  mov 8(%rsp), %rbp
  .cfi_restore %rbp
  add $8 * \words, %rsp
  .cfi_def_cfa_offset 8
  ret
  .cfi_endproc
  .pushsection .data.rel.ro
  .quad thunk_moved_\words
  .popsection
  .endm

  .pushsection .data.rel.ro, "aw"
  .p2align 3
  .globl thunks, thunk_count
thunks:
  .popsection
  .irp words, 1, 3, 5, 7, 9, 33, 255, 2047, 2049
  plain \words
  .endr
  .irp words, 2, 4, 6, 16, 2046, 2048
  clobber \words
  .endr
  .irp words, 2, 4, 6, 512
  framed \words
  .endr
  .pushsection .data.rel.ro
  .globl thunks_realigned, thunks_realigned_end
thunks_realigned:
  .popsection
  .irp words, 3, 5, 13, 101
  realigned \words
  .endr
  .pushsection .data.rel.ro
thunks_realigned_end:
  .popsection
  .irp words, 3, 5, 15, 17, 19, 2049
  moved \words
  .endr
  .pushsection .data.rel.ro
thunks_end:
thunk_count:
  .quad (thunks_end - thunks) / 8
  .popsection

  .section .note.GNU-stack, "", @progbits
