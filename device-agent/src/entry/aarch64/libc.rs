//! Functions that load libraries, in assembler: see [`super`]. The last jump keeps the caller's address in x30.

/// The body of a function that loads a library: calls `$note` if its flags require it, then jumps to the C library's
/// function.
macro_rules! loading {
    (dlopen, $note:ident, $slot:ident, $find:ident) => {
        loading!("tst w1, #{deepbind}\nb.eq 2f", "mov x1, xzr", $note, $slot, $find)
    };
    (dlmopen, $note:ident, $slot:ident, $find:ident) => {
        loading!(
            "cbnz x0, 1f\ntst w2, #{deepbind}\nb.eq 2f",
            "mov x9, x0\nmov x0, x1\nmov x1, x9",
            $note,
            $slot,
            $find
        )
    };
    ($decides:literal, $order:literal, $note:ident, $slot:ident, $find:ident) => {
        core::arch::naked_asm!(
            $decides,
            "1:",
            "stp x29, x30, [sp, #-48]!",
            "stp x0, x1, [sp, #16]",
            "str x2, [sp, #32]",
            "mov x29, sp",
            $order,
            "bl {note}",
            "ldr x2, [sp, #32]",
            "ldp x0, x1, [sp, #16]",
            "ldp x29, x30, [sp], #48",
            "2:",
            "adrp x16, {slot}",
            "ldr x16, [x16, :lo12:{slot}]",
            "cbnz x16, 3f",
            "stp x29, x30, [sp, #-48]!",
            "stp x0, x1, [sp, #16]",
            "str x2, [sp, #32]",
            "mov x29, sp",
            "bl {find}",
            "mov x16, x0",
            "ldr x2, [sp, #32]",
            "ldp x0, x1, [sp, #16]",
            "ldp x29, x30, [sp], #48",
            "3:",
            "br x16",
            deepbind = const DEEPBIND,
            note = sym $note,
            slot = sym $slot,
            find = sym $find,
        )
    };
}

pub(super) use loading;
