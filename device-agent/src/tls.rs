//! Thread-local storage of the standard library inside this library, without the loader's help.
//!
//! Rust's `std` is compiled for general-dynamic TLS: each access calls `__tls_get_addr`. A thread's first call may
//! allocate through the guest's `malloc`. The symbol also binds this library to glibc's loader by name, so musl
//! programs in the tree would not start. The tracker's two words are initial-exec, so this library's TLS block lies at
//! a fixed distance from the thread pointer. This replacement, which is not exported, computes the address from that
//! distance. All callers are in this library, so the module number that they pass is always ours.
//!
//! On arm64 there is nothing to replace: its compilers use TLS descriptors, which the loader resolves to a fixed
//! distance when it loads this library with the program.
#![expect(unsafe_code, reason = "defines a symbol by name")]

core::arch::global_asm!(
    ".text",
    ".hidden __tls_get_addr",
    ".globl __tls_get_addr",
    ".type __tls_get_addr,@function",
    "__tls_get_addr:",
    // {module, offset}: offset within our block
    "mov rax, qword ptr [rdi + 8]",
    "add rax, qword ptr fs:[0]",
    "add rax, qword ptr [rip + memgate_thread_words@GOTTPOFF]",
    "lea rdx, [memgate_thread_words@DTPOFF]",
    "sub rax, rdx",
    "ret",
    ".size __tls_get_addr, . - __tls_get_addr",
);
