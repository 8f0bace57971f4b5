//! The routines around functions that open, close and start: see [`super`].

use core::arch::global_asm;

use memgate_session::handles::{DESCRIPTORS, MOST_DESCRIPTORS};

use super::super::function::{keeping, routine};
use super::{
    begun, closes, folder_closes, folder_opened, gives_up, opened, opened_two, start_failed, started, starts,
    stream_closes, stream_opened, tried, tries,
};

/// After a call: passes the result and the caller's registers to `$note`, returns the result.
macro_rules! noting {
    ($name:literal, $unless:literal, $note:literal) => {
        routine!($name:
            "sub rsp, 8",
            ".cfi_adjust_cfa_offset 8",
            "call r11",
            $unless,
            "mov qword ptr [rsp], rax",
            "mov rdi, rax",
            "mov rsi, qword ptr [rsp + 8]",
            "lea rdx, [rsp + 16]",
            "mov rcx, rbp",
            concat!("call {", $note, "}"),
            "mov rax, qword ptr [rsp]",
            "1:",
            "add rsp, 8",
            ".cfi_adjust_cfa_offset -8",
            "ret",
        )
    };
}

/// The same for two descriptors, whose address was passed in `$place`.
macro_rules! noting_two {
    ($name:literal, $place:literal) => {
        routine!($name:
            concat!("push ", $place),
            ".cfi_adjust_cfa_offset 8",
            "call r11",
            "mov rdi, qword ptr [rsp]",
            "mov qword ptr [rsp], rax",
            "test eax, eax",
            "jne 1f",
            "mov rsi, qword ptr [rsp + 8]",
            "lea rdx, [rsp + 16]",
            "mov rcx, rbp",
            "call {opened_two}",
            "1:",
            "pop rax",
            ".cfi_adjust_cfa_offset -8",
            "ret",
        )
    };
}

/// Before a call with at most two arguments: passes the first one to `$note`, then jumps to the function.
macro_rules! noting_before {
    ($name:literal, $note:literal) => {
        routine!($name:
            keeping!(["rdi" "rsi" "r11"] concat!("call {", $note, "}")),
            "jmp r11",
        )
    };
}

global_asm!(
    ".text",
    noting!("memgate_opens", "test eax, eax\njs 1f", "opened"),
    noting!("memgate_opens_stream", "test rax, rax\nje 1f", "stream_opened"),
    noting!("memgate_opens_folder", "test rax, rax\nje 1f", "folder_opened"),
    noting_two!("memgate_opens_two_at_first", "rdi"),
    noting_two!("memgate_opens_two_at_fourth", "rcx"),
    noting_before!("memgate_forgets", "closes"),
    noting_before!("memgate_closes_stream", "stream_closes"),
    noting_before!("memgate_closes_folder", "folder_closes"),
    noting_before!("memgate_gives_up", "gives_up"),
    // F_DUPFD, F_DUPFD_CLOEXEC
    routine!("memgate_duplicates":
        "test esi, esi",
        "je memgate_opens",
        "cmp esi, 1030",
        "je memgate_opens",
        "jmp r11",
    ),
    // A descriptor that was not recorded need not be forgotten.
    routine!("memgate_closes":
        "cmp edi, {most}",
        "jae 1f",
        "mov eax, edi",
        "lea rdx, [rip + {descriptors}]",
        "cmp dword ptr [rdx + rax * 4], 0",
        "jne memgate_forgets",
        "1:",
        "jmp r11",
    ),
    // pthread_create: the thread starts in `memgate_thread`, if `starts` could record it.
    routine!("memgate_starts":
        keeping!(["rdi" "rsi" "rdx" "rcx" "r11"]
            "lea r8, [rsp + 48]",
            "mov r9, rbp",
            "call {starts}",
        ),
        "test rax, rax",
        "jne 1f",
        "jmp r11",
        "1:",
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "lea rdx, [rip + memgate_thread]",
        "mov rcx, rax",
        "call r11",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test eax, eax",
        "jne 2f",
        keeping!(["rax"] "call {started}"),
        "ret",
        "2:",
        keeping!(["rax"] "call {start_failed}"),
        "ret",
    ),
    // Functions that join a thread only if it has ended, or ends in time.
    routine!("memgate_tries":
        keeping!(["rdi" "rsi" "rdx" "rcx" "r11"] "call {tries}"),
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "call r11",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "mov esi, eax",
        keeping!(["rax"] "call {tried}"),
        "ret",
    ),
    // Entry of such a thread: it jumps to the thread's own routine, with nothing of ours on the stack.
    routine!("memgate_thread":
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {begun}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "mov rdi, rdx",
        "jmp rax",
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
