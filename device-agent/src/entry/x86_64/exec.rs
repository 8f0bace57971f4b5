//! `execl` and its like, in assembler: see [`super`].

/// Registers that hold arguments.
pub(super) const REGISTERS: usize = 6;

/// The whole of one: hands the registers and the stack behind them to `$note`, then goes on where that says.
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

pub(super) use spreading;
