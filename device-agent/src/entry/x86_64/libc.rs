//! Functions that load libraries, in assembler: see [`super`].

/// The body of a function that loads a library: calls `$note` if its flags require it, then jumps to the C library's
/// function.
macro_rules! loading {
    (dlopen, $note:ident, $slot:ident, $find:ident) => {
        loading!("test esi, {deepbind}", "xor esi, esi", $note, $slot, $find)
    };
    (dlmopen, $note:ident, $slot:ident, $find:ident) => {
        loading!("test rdi, rdi\njne 1f\ntest edx, {deepbind}", "xchg rdi, rsi", $note, $slot, $find)
    };
    ($decides:literal, $order:literal, $note:ident, $slot:ident, $find:ident) => {
        core::arch::naked_asm!(
            $decides,
            "je 2f",
            "1:",
            "push rdi",
            "push rsi",
            "push rdx",
            $order,
            "call {note}",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "2:",
            "mov rax, qword ptr [rip + {slot}]",
            "test rax, rax",
            "jne 3f",
            "push rdi",
            "push rsi",
            "push rdx",
            "call {find}",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "3:",
            "jmp rax",
            deepbind = const DEEPBIND,
            note = sym $note,
            slot = sym $slot,
            find = sym $find,
        )
    };
}

pub(super) use loading;
