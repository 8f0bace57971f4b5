//! The routines around functions that open, close and start: see [`super`].

use core::arch::global_asm;

use memgate_session::handles::{DESCRIPTORS, MOST_DESCRIPTORS};

use super::super::function::{keeping, routine};
use super::{
    begun, closes, folder_closes, folder_opened, gives_up, opened, opened_two, start_failed, started, starts,
    stream_closes, stream_opened, tried, tries,
};

/// Runs the lines in a frame of 32 bytes, with room for one word at sp + 16 and one at sp + 24.
macro_rules! framed {
    ($($line:expr),* $(,)?) => {
        concat!(
            "stp x29, x30, [sp, #-32]!\n",
            ".cfi_def_cfa_offset 32\n",
            ".cfi_offset x29, -32\n",
            ".cfi_offset x30, -24\n",
            "mov x29, sp\n",
            $($line, "\n",)*
            "ldp x29, x30, [sp], #32\n",
            ".cfi_restore x29\n",
            ".cfi_restore x30\n",
            ".cfi_def_cfa_offset 0\n",
        )
    };
}

/// Loads the caller's return address, stack pointer and frame pointer, from such a frame.
macro_rules! caller_to {
    ($pc:literal, $sp:literal, $fp:literal) => {
        concat!("ldp ", $fp, ", ", $pc, ", [sp]\nadd ", $sp, ", sp, #32")
    };
}

/// After a call: passes the result and the caller's registers to `$note`, returns the result.
macro_rules! noting {
    ($name:literal, $unless:literal, $note:literal) => {
        routine!($name:
            framed!(
                "blr x17",
                $unless,
                "str x0, [sp, #16]",
                caller_to!("x1", "x2", "x3"),
                concat!("bl {", $note, "}"),
                "ldr x0, [sp, #16]",
                "1:",
            ),
            "ret",
        )
    };
}

/// The same for two descriptors, whose address was passed in `$place`.
macro_rules! noting_two {
    ($name:literal, $place:literal) => {
        routine!($name:
            framed!(
                concat!("str ", $place, ", [sp, #24]"),
                "blr x17",
                "cbnz w0, 1f",
                "str x0, [sp, #16]",
                "ldr x0, [sp, #24]",
                caller_to!("x1", "x2", "x3"),
                "bl {opened_two}",
                "ldr x0, [sp, #16]",
                "1:",
            ),
            "ret",
        )
    };
}

/// Before a call: passes its argument to `$note`, then jumps to the function.
macro_rules! noting_before {
    ($name:literal, $note:literal) => {
        routine!($name: keeping!(concat!("bl {", $note, "}")), "br x17")
    };
}

global_asm!(
    ".text",
    noting!("memgate_opens", "tbnz w0, #31, 1f", "opened"),
    noting!("memgate_opens_stream", "cbz x0, 1f", "stream_opened"),
    noting!("memgate_opens_folder", "cbz x0, 1f", "folder_opened"),
    noting_two!("memgate_opens_two_at_first", "x0"),
    noting_two!("memgate_opens_two_at_fourth", "x3"),
    noting_before!("memgate_forgets", "closes"),
    noting_before!("memgate_closes_stream", "stream_closes"),
    noting_before!("memgate_closes_folder", "folder_closes"),
    noting_before!("memgate_gives_up", "gives_up"),
    // F_DUPFD, F_DUPFD_CLOEXEC
    routine!("memgate_duplicates":
        "cbz w1, 1f",
        "cmp w1, #1030",
        "b.eq 1f",
        "br x17",
        "1:",
        "b memgate_opens",
    ),
    // A descriptor that was not recorded need not be forgotten.
    routine!("memgate_closes":
        "mov w16, #{most}",
        "cmp w0, w16",
        "b.hs 1f",
        "adrp x16, {descriptors}",
        "add x16, x16, :lo12:{descriptors}",
        "ldr w16, [x16, w0, uxtw #2]",
        "cbz w16, 1f",
        "b memgate_forgets",
        "1:",
        "br x17",
    ),
    // pthread_create: the thread starts in `memgate_thread`, if `starts` could record it.
    routine!("memgate_starts":
        keeping!(
            "add x4, sp, #96",
            "ldr x5, [sp]",
            "bl {starts}",
            "mov x16, x0",
        ),
        "cbnz x16, 1f",
        "br x17",
        "1:",
        framed!(
            "str x16, [sp, #16]",
            "adrp x2, memgate_thread",
            "add x2, x2, :lo12:memgate_thread",
            "mov x3, x16",
            "blr x17",
            "str x0, [sp, #24]",
            "ldr x0, [sp, #16]",
            "ldr w16, [sp, #24]",
            "cbnz w16, 2f",
            "bl {started}",
            "b 3f",
            "2:",
            "bl {start_failed}",
            "3:",
            "ldr x0, [sp, #24]",
        ),
        "ret",
    ),
    // Functions that join a thread only if it has ended, or ends in time.
    routine!("memgate_tries":
        keeping!("bl {tries}", "mov x16, x0"),
        framed!(
            "str x16, [sp, #16]",
            "blr x17",
            "str x0, [sp, #24]",
            "mov w1, w0",
            "ldr x0, [sp, #16]",
            "bl {tried}",
            "ldr x0, [sp, #24]",
        ),
        "ret",
    ),
    // Entry of such a thread: it jumps to the thread's own routine, with nothing of ours on the stack.
    routine!("memgate_thread":
        framed!("bl {begun}", "mov x16, x0", "mov x0, x1"),
        "br x16",
    ),
    opened = sym opened,
    opened_two = sym opened_two,
    stream_opened = sym stream_opened,
    folder_opened = sym folder_opened,
    closes = sym closes,
    stream_closes = sym stream_closes,
    folder_closes = sym folder_closes,
    gives_up = sym gives_up,
    tries = sym tries,
    tried = sym tried,
    started = sym started,
    starts = sym starts,
    start_failed = sym start_failed,
    begun = sym begun,
    descriptors = sym DESCRIPTORS,
    most = const MOST_DESCRIPTORS,
);
