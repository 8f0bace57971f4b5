//! Macros for the exported functions, and the routine for their first call: see [`super`]. On x86-64 no call expects
//! `r11` to be preserved.

use core::arch::global_asm;

use super::bind;

/// The body of a routine that looks up this [`Function`](super::Function).
macro_rules! finding {
    ($function:ident) => {
        core::arch::naked_asm!(
            "lea r11, [rip + {function}]",
            "jmp memgate_finds",
            function = sym $function,
        )
    };
}

/// Exported functions. In a tracked process they jump to `$tracked`, with the C library's function in `r11`.
macro_rules! exported {
    ($tracked:literal: $($name:ident)*) => { $(
        #[doc = concat!("C's `", stringify!($name), "`.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "cmp dword ptr [rip + {mode}], 0",
                "jne 2f",
                "jmp qword ptr [rip + {function}]",
                "2:",
                "mov r11, qword ptr [rip + {function}]",
                concat!("jmp ", $tracked),
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
            ".globl ", $name, "\n.hidden ", $name, "\n", $name, ":\n.cfi_startproc\n",
            $($line, "\n",)*
            ".cfi_endproc\n",
        )
    };
}

/// Runs the lines while these registers are saved on the stack.
macro_rules! keeping {
    ([] $($line:expr),* $(,)?) => {
        concat!($($line, "\n"),*)
    };
    ([$first:literal $($rest:literal)*] $($line:expr),* $(,)?) => {
        concat!(
            "push ", $first, "\n.cfi_adjust_cfa_offset 8\n",
            keeping!([$($rest)*] $($line),*),
            "pop ", $first, "\n.cfi_adjust_cfa_offset -8\n",
        )
    };
}

pub(in super::super) use {exported, finding, keeping, routine};

global_asm!(
    ".text",
    // The first call of a function: `r11` is its `Function`.
    routine!("memgate_finds":
        keeping!(["rdi" "rsi" "rdx" "rcx" "r8" "r9" "rax"] "mov rdi, r11", "call {bind}", "mov r11, rax"),
        "jmp r11",
    ),
    // For functions that are recorded only before the call.
    routine!("memgate_goes_on": "jmp r11"),
    bind = sym bind,
);
