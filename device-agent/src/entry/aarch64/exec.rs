//! `execl` and similar functions, in assembler: see [`super`].

/// Number of registers that hold arguments.
pub(super) const REGISTERS: usize = 8;

/// The body of a function with variadic arguments: passes the argument registers and the stack arguments to `$note`,
/// then jumps to the address that it returns.
macro_rules! spreading {
    ($kind:literal, $note:ident) => {
        core::arch::naked_asm!(
            "stp x29, x30, [sp, #-80]!",
            "mov x29, sp",
            "stp x0, x1, [sp, #16]",
            "stp x2, x3, [sp, #32]",
            "stp x4, x5, [sp, #48]",
            "stp x6, x7, [sp, #64]",
            "add x0, sp, #16",
            "add x1, sp, #80",
            concat!("mov x2, #", $kind),
            "bl {note}",
            "mov x16, x0",
            "ldp x0, x1, [sp, #16]",
            "ldp x2, x3, [sp, #32]",
            "ldp x4, x5, [sp, #48]",
            "ldp x6, x7, [sp, #64]",
            "ldp x29, x30, [sp], #80",
            "br x16",
            note = sym $note,
        )
    };
}

/// The body of a function that starts a shell: passes its first argument to `$note`, then jumps to the C library's
/// function, in a recorded process through `$tracked`.
macro_rules! shelling {
    ($note:ident, $function:path, $tracked:literal) => {
        core::arch::naked_asm!(
            "stp x29, x30, [sp, #-32]!",
            "stp x0, x1, [sp, #16]",
            "mov x29, sp",
            "bl {note}",
            "ldp x0, x1, [sp, #16]",
            "ldp x29, x30, [sp], #32",
            "adrp x17, {function}",
            "ldr x17, [x17, :lo12:{function}]",
            "adrp x16, {mode}",
            "ldr w16, [x16, :lo12:{mode}]",
            "cbnz w16, 2f",
            "br x17",
            "2:",
            concat!("b ", $tracked),
            mode = sym memgate_session::recording::MODE,
            note = sym $note,
            function = sym $function,
        )
    };
}

pub(in super::super) use shelling;
pub(super) use spreading;
