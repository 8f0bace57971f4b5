//! Macros for the exported functions, and the routine for their first call: see [`super`]. On arm64 no call expects
//! `x17` to be preserved.

use core::arch::global_asm;

use super::bind;

/// The body of a routine that looks up this [`Function`](super::Function).
macro_rules! finding {
    ($function:ident) => {
        core::arch::naked_asm!(
            "adrp x17, {function}",
            "add x17, x17, :lo12:{function}",
            "b memgate_finds",
            function = sym $function,
        )
    };
}

/// Exported functions. In a tracked process they jump to `$tracked`, with the C library's function in `x17`.
macro_rules! exported {
    ($tracked:literal: $($name:ident)*) => { $(
        #[doc = concat!("C's `", stringify!($name), "`.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "adrp x17, {function}",
                "ldr x17, [x17, :lo12:{function}]",
                "adrp x16, {mode}",
                "ldr w16, [x16, :lo12:{mode}]",
                "cbnz w16, 2f",
                "br x17",
                "2:",
                concat!("b ", $tracked),
                mode = sym memgate_session::recording::MODE,
                function = sym $name::FUNCTION,
            )
        }
    )* };
}

/// An assembler routine: global, because other objects of this crate jump to it, and hidden from other libraries. Its
/// frames can be unwound.
macro_rules! routine {
    ($name:literal: $($line:expr),* $(,)?) => {
        concat!(
            ".globl ", $name, "\n.hidden ", $name, "\n.p2align 2\n", $name, ":\n.cfi_startproc\n",
            $($line, "\n",)*
            ".cfi_endproc\n",
        )
    };
}

/// Runs the lines while the argument registers, x17 and the return address are saved on the stack: x0 to x7 in 64 bytes
/// from sp + 16, x17 at sp + 80.
macro_rules! keeping {
    ($($line:expr),* $(,)?) => {
        concat!(
            "stp x29, x30, [sp, #-96]!\n",
            ".cfi_def_cfa_offset 96\n",
            ".cfi_offset x29, -96\n",
            ".cfi_offset x30, -88\n",
            "mov x29, sp\n",
            "stp x0, x1, [sp, #16]\n",
            "stp x2, x3, [sp, #32]\n",
            "stp x4, x5, [sp, #48]\n",
            "stp x6, x7, [sp, #64]\n",
            "str x17, [sp, #80]\n",
            $($line, "\n",)*
            "ldp x0, x1, [sp, #16]\n",
            "ldp x2, x3, [sp, #32]\n",
            "ldp x4, x5, [sp, #48]\n",
            "ldp x6, x7, [sp, #64]\n",
            "ldr x17, [sp, #80]\n",
            "ldp x29, x30, [sp], #96\n",
            ".cfi_restore x29\n",
            ".cfi_restore x30\n",
            ".cfi_def_cfa_offset 0\n",
        )
    };
}

pub(in super::super) use {exported, finding, keeping, routine};

global_asm!(
    ".text",
    // The first call of a function: `x17` is its `Function`.
    routine!("memgate_finds":
        keeping!("mov x0, x17", "bl {bind}", "str x0, [sp, #80]"),
        "br x17",
    ),
    // For functions that are recorded only before the call.
    routine!("memgate_goes_on": "br x17"),
    bind = sym bind,
);
