//! The routines around functions that map and unmap: see [`super`].

use core::arch::global_asm;

use super::super::function::{keeping, routine};
use super::{attaches, breaks, detaches, gives, maps, moved, now, protects, stays, takes, unmaps};

/// Runs the lines in a frame of `$bytes` bytes, whose first two words are the frame record.
macro_rules! framed {
    ($bytes:literal: $($line:expr),* $(,)?) => {
        concat!(
            "stp x29, x30, [sp, #-", $bytes, "]!\n",
            ".cfi_def_cfa_offset ", $bytes, "\n",
            ".cfi_offset x29, -", $bytes, "\n",
            ".cfi_offset x30, -(", $bytes, " - 8)\n",
            "mov x29, sp\n",
            $($line, "\n",)*
            "ldp x29, x30, [sp], #", $bytes, "\n",
            ".cfi_restore x29\n",
            ".cfi_restore x30\n",
            ".cfi_def_cfa_offset 0\n",
        )
    };
}

/// In such a frame, with a result in `x0` and the arguments from sp + 16 on: passes both, and the caller's registers,
/// to `$note`.
macro_rules! noted {
    ($bytes:literal, $note:literal) => {
        concat!("add x1, sp, #16\nldp x4, x2, [sp]\nadd x3, sp, #", $bytes, "\nbl {", $note, "}")
    };
}

/// Calls `$note` after a successful mapping, with three arguments of the call, in their order on the stack.
macro_rules! maps {
    ($note:literal, $first_two:literal, $third:literal) => {
        concat!(
            framed!("48":
                concat!("stp ", $first_two, ", [sp, #16]"),
                concat!("str ", $third, ", [sp, #32]"),
                "blr x17",
                "cmn x0, #1",
                "b.eq 1f",
                "str x0, [sp, #40]",
                noted!("48", $note),
                "ldr x0, [sp, #40]",
                "1:",
            ),
            "ret",
        )
    };
}

/// Calls `$forget` before the unmapping, and `stays` if the unmapping failed.
macro_rules! unmaps {
    ($forget:literal) => {
        concat!(
            keeping!(concat!("bl {", $forget, "}"), "mov w16, w0"),
            "cbnz w16, 1f\n",
            "br x17\n",
            "1:\n",
            framed!("32":
                "blr x17",
                "cbz w0, 2f",
                "str x0, [sp, #16]",
                "bl {stays}",
                "ldr x0, [sp, #16]",
                "2:",
            ),
            "ret",
        )
    };
}

global_asm!(
    ".text",
    // Flags, protection and size are stored as `Maps`.
    routine!("memgate_maps": maps!("maps", "x3, x2", "x1")),
    // Flags, address and segment are stored as `Attaches`.
    routine!("memgate_attaches": maps!("attaches", "x2, x1", "x0")),
    routine!("memgate_gives": maps!("gives", "x2, x1", "x0")),
    routine!("memgate_unmaps": unmaps!("unmaps")),
    routine!("memgate_detaches": unmaps!("detaches")),
    // The result of `takes` and the arguments are stored as `Moves`.
    routine!("memgate_moves":
        keeping!("bl {takes}", "mov x16, x0"),
        framed!("64":
            "stp x16, x3, [sp, #16]",
            "stp x2, x1, [sp, #32]",
            "str x0, [sp, #48]",
            "blr x17",
            "str x0, [sp, #56]",
            noted!("64", "moved"),
            "ldr x0, [sp, #56]",
        ),
        "ret",
    ),
    routine!("memgate_protects":
        framed!("48":
            "stp x0, x1, [sp, #16]",
            "str x2, [sp, #32]",
            "blr x17",
            "cbnz w0, 1f",
            "ldp x0, x1, [sp, #16]",
            "ldr w2, [sp, #32]",
            "bl {protects}",
            "mov w0, #0",
            "1:",
        ),
        "ret",
    ),
    routine!("memgate_breaks":
        framed!("32":
            "str x0, [sp, #16]",
            "blr x17",
            "cmn x0, #1",
            "b.eq 1f",
            "str x0, [sp, #24]",
            noted!("32", "breaks"),
            "ldr x0, [sp, #24]",
            "1:",
        ),
        "ret",
    ),
    // The previous break is passed to `breaks` in place of a result, because `brk` does not return it.
    routine!("memgate_breaks_at":
        keeping!("bl {now}", "mov x16, x0"),
        framed!("32":
            "sub x9, x0, x16",
            "stp x9, x16, [sp, #16]",
            "blr x17",
            "cbnz w0, 1f",
            "ldr x0, [sp, #24]",
            noted!("32", "breaks"),
            "mov w0, #0",
            "1:",
        ),
        "ret",
    ),
    maps = sym maps,
    attaches = sym attaches,
    unmaps = sym unmaps,
    detaches = sym detaches,
    gives = sym gives,
    stays = sym stays,
    takes = sym takes,
    moved = sym moved,
    protects = sym protects,
    breaks = sym breaks,
    now = sym now,
);
