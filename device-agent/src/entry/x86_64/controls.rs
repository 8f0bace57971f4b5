//! The routines around `prctl` and `syscall`: see [`super`].

use core::arch::global_asm;

use super::super::function::{keeping, routine};
use super::{calls, controls};

/// Calls `$note` before the call is made, if the first argument is one of two numbers.
macro_rules! telling {
    ($name:literal, $one:literal, $other:literal, $note:literal) => {
        routine!($name:
            concat!("cmp edi, {", $one, "}"),
            "je 1f",
            concat!("cmp edi, {", $other, "}"),
            "je 1f",
            "jmp r11",
            "1:",
            keeping!(["rdi" "rsi" "rdx" "rcx" "r8" "r9" "r11"] concat!("call {", $note, "}")),
            "jmp r11",
        )
    };
}

global_asm!(
    ".text",
    telling!("memgate_controls", "set_counter", "set_seccomp", "controls"),
    telling!("memgate_calls", "call_prctl", "call_seccomp", "calls"),
    set_counter = const libc::PR_SET_TSC,
    set_seccomp = const libc::PR_SET_SECCOMP,
    call_prctl = const libc::SYS_prctl,
    call_seccomp = const libc::SYS_seccomp,
    controls = sym controls,
    calls = sym calls,
);
