//! `execl` and similar functions, in assembler: see [`super`].

/// Number of registers that hold arguments.
pub(super) const REGISTERS: usize = 6;

/// The body of a function with variadic arguments: passes the argument registers and the stack arguments to `$note`,
/// then jumps to the address that it returns.
macro_rules! spreading {
    ($kind:literal, $note:ident) => {
        core::arch::naked_asm!(
            "push rax",
            "push r9",
            "push r8",
            "push rcx",
            "push rdx",
            "push rsi",
            "push rdi",
            "mov rdi, rsp",
            "lea rsi, [rsp + 64]",
            concat!("mov edx, ", $kind),
            "call {note}",
            "mov r11, rax",
            "pop rdi",
            "pop rsi",
            "pop rdx",
            "pop rcx",
            "pop r8",
            "pop r9",
            "pop rax",
            "jmp r11",
            note = sym $note,
        )
    };
}

/// The body of a function that starts a shell: passes its first argument to `$note`, then jumps to the C library's
/// function, in a recorded process through `$tracked`.
macro_rules! shelling {
    ($note:ident, $function:path, $tracked:literal) => {
        core::arch::naked_asm!(
            "push rdi",
            "push rsi",
            "sub rsp, 8",
            "call {note}",
            "add rsp, 8",
            "pop rsi",
            "pop rdi",
            "mov r11, qword ptr [rip + {function}]",
            "cmp dword ptr [rip + {mode}], 0",
            concat!("jne ", $tracked),
            "jmp r11",
            mode = sym memgate_session::recording::MODE,
            note = sym $note,
            function = sym $function,
        )
    };
}

pub(in super::super) use shelling;
pub(super) use spreading;
