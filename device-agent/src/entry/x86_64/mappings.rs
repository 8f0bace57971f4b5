//! The routines around functions that map and unmap: see [`super`].

use core::arch::global_asm;

use super::super::function::{keeping, routine};
use super::{attaches, breaks, detaches, gives, maps, moved, now, protects, stays, takes, unmaps};

/// Passes the result in `rax`, the address of the arguments on top of the stack, and the caller's registers to `$note`.
/// `$to_pc` and `$to_sp`: offsets to the caller's return address and stack pointer, after `rax` is pushed.
macro_rules! noted {
    ($note:literal, $to_pc:literal, $to_sp:literal) => {
        concat!(
            "push rax\n.cfi_adjust_cfa_offset 8\n",
            "mov rdi, rax\n",
            "lea rsi, [rsp + 8]\n",
            "mov rdx, qword ptr [rsp + ",
            $to_pc,
            "]\n",
            "lea rcx, [rsp + ",
            $to_sp,
            "]\n",
            "mov r8, rbp\n",
            "sub rsp, 8\n.cfi_adjust_cfa_offset 8\n",
            "call {",
            $note,
            "}\n",
            "add rsp, 8\n.cfi_adjust_cfa_offset -8\n",
            "pop rax\n.cfi_adjust_cfa_offset -8",
        )
    };
}

/// Calls `$note` after a successful mapping, with three arguments of the call, in their order on the stack.
macro_rules! maps {
    ($note:literal, $first:literal, $second:literal, $third:literal) => {
        concat!(
            "push ",
            $first,
            "\n.cfi_adjust_cfa_offset 8\n",
            "push ",
            $second,
            "\n.cfi_adjust_cfa_offset 8\n",
            "push ",
            $third,
            "\n.cfi_adjust_cfa_offset 8\n",
            "call r11\n",
            "cmp rax, -1\n",
            "je 1f\n",
            noted!($note, "32", "40"),
            "\n1:\n",
            "add rsp, 24\n.cfi_adjust_cfa_offset -24\n",
            "ret",
        )
    };
}

/// Calls `$forget` before the unmapping, and `stays` if the unmapping failed.
macro_rules! unmaps {
    ($forget:literal) => {
        concat!(
            keeping!(["rdi" "rsi" "r11"] concat!("call {", $forget, "}")),
            "test al, al\n",
            "jne 1f\n",
            "jmp r11\n",
            "1:\n",
            "sub rsp, 8\n.cfi_adjust_cfa_offset 8\n",
            "call r11\n",
            "test eax, eax\n",
            "je 2f\n",
            "mov qword ptr [rsp], rax\n",
            "sub rsp, 16\n.cfi_adjust_cfa_offset 16\n",
            "call {stays}\n",
            "add rsp, 16\n.cfi_adjust_cfa_offset -16\n",
            "mov rax, qword ptr [rsp]\n",
            "2:\n",
            "add rsp, 8\n.cfi_adjust_cfa_offset -8\n",
            "ret",
        )
    };
}

global_asm!(
    ".text",
    // Size, protection and flags are stored as `Maps`.
    routine!("memgate_maps": maps!("maps", "rsi", "rdx", "rcx")),
    // Segment, address and flags are stored as `Attaches`.
    routine!("memgate_attaches": maps!("attaches", "rdi", "rsi", "rdx")),
    routine!("memgate_gives": maps!("gives", "rdi", "rsi", "rdx")),
    routine!("memgate_unmaps": unmaps!("unmaps")),
    routine!("memgate_detaches": unmaps!("detaches")),
    // The result of `takes` and the arguments are stored as `Moves`.
    routine!("memgate_moves":
        keeping!(["rdi" "rsi" "rdx" "rcx" "r8" "r11" "r9"] "call {takes}"),
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "push rcx",
        ".cfi_adjust_cfa_offset 8",
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "xor eax, eax",
        "call r11",
        noted!("moved", "48", "56"),
        "add rsp, 40",
        ".cfi_adjust_cfa_offset -40",
        "ret",
    ),
    routine!("memgate_protects":
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "call r11",
        "test eax, eax",
        "jne 1f",
        "mov rdi, qword ptr [rsp + 16]",
        "mov rsi, qword ptr [rsp + 8]",
        "mov edx, dword ptr [rsp]",
        "mov qword ptr [rsp], rax",
        "call {protects}",
        "mov rax, qword ptr [rsp]",
        "1:",
        "add rsp, 24",
        ".cfi_adjust_cfa_offset -24",
        "ret",
    ),
    routine!("memgate_breaks":
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "call r11",
        "cmp rax, -1",
        "je 1f",
        noted!("breaks", "16", "24"),
        "1:",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "ret",
    ),
    // The previous break is passed to `breaks` in place of a result, because `brk` does not return it.
    routine!("memgate_breaks_at":
        keeping!(["rdi" "r11" "r9"] "call {now}"),
        "sub rax, rdi",
        "neg rax",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call r11",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "test eax, eax",
        "jne 1f",
        "mov rax, qword ptr [rsp + 8]",
        "sub rax, qword ptr [rsp]",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "mov rdi, rax",
        "lea rsi, [rsp + 8]",
        "mov rdx, qword ptr [rsp + 24]",
        "lea rcx, [rsp + 32]",
        "mov r8, rbp",
        "call {breaks}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "xor eax, eax",
        "1:",
        "add rsp, 16",
        ".cfi_adjust_cfa_offset -16",
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
