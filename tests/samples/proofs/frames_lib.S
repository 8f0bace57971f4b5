// A library whose code has the same size and addresses for every frame size (ROOM).
  .text
  .globl frame_of_its_own
  .type frame_of_its_own, @function
frame_of_its_own:
  .cfi_startproc
  // sub $ROOM, %rsp, always with a 4-byte operand
  .byte 0x48, 0x81, 0xec
  .long ROOM
  .cfi_def_cfa_offset ROOM + 8
  call *%rdi
  .byte 0x48, 0x81, 0xc4
  .long ROOM
  .cfi_def_cfa_offset 8
  ret
  .cfi_endproc
  .size frame_of_its_own, . - frame_of_its_own

// Exports of a character converter.
  .globl gconv_init, gconv
  .type gconv_init, @function
gconv_init:
  .cfi_startproc
  push %rbx
  .cfi_def_cfa_offset 16
  .cfi_offset %rbx, -16
  mov %rdi, %rbx
  // step->__min_needed_from, the three fields after it, and __stateful
  movabs $0x0000000100000001, %rax
  mov %rax, 72(%rdi)
  movabs $0x0000000400000004, %rax
  mov %rax, 80(%rdi)
  movl $0, 88(%rdi)
  lea allocate(%rip), %rdi
  call frame_of_its_own@plt
  xor %eax, %eax
  pop %rbx
  .cfi_def_cfa_offset 8
  ret
  .cfi_endproc
  .size gconv_init, . - gconv_init
  .type gconv, @function
gconv:
  xor %eax, %eax
  ret
  .size gconv, . - gconv

  .p2align 4
  .type allocate, @function
allocate:
  .cfi_startproc
  sub $8, %rsp
  .cfi_def_cfa_offset 16
  mov $48, %edi
  call malloc@plt
  mov %rax, %rdi
  call free@plt
  add $8, %rsp
  .cfi_def_cfa_offset 8
  ret
  .cfi_endproc
  .size allocate, . - allocate

  .section .note.GNU-stack, "", @progbits
