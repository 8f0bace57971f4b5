//! The allocation functions, as trampolines: see [`super`]. On x86-64 a hook gets the frame pointer and the stack
//! pointer, at which the return address lies.

use core::arch::naked_asm;

use memgate_session::recording;

use crate::native::{hooks, next};

/// `$sp` and `$rbp`: the argument registers after the function's own arguments.
macro_rules! trampoline {
    ($name:ident, $slot:ident, $sp:literal, $rbp:literal) => {
        #[doc = concat!("C's `", stringify!($name), "`.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                "cmp dword ptr [rip + {mode}], 0",
                "je 2f",
                concat!("mov ", $sp, ", rsp"),
                concat!("mov ", $rbp, ", rbp"),
                "jmp {hook}",
                "2:",
                "jmp qword ptr [rip + {next}]",
                mode = sym recording::MODE,
                hook = sym hooks::$name,
                next = sym next::$slot,
            )
        }
    };
}

trampoline!(malloc, MALLOC, "rsi", "rdx");
trampoline!(calloc, CALLOC, "rdx", "rcx");
trampoline!(realloc, REALLOC, "rdx", "rcx");
trampoline!(memalign, MEMALIGN, "rdx", "rcx");
trampoline!(aligned_alloc, ALIGNED_ALLOC, "rdx", "rcx");
trampoline!(posix_memalign, POSIX_MEMALIGN, "rcx", "r8");
trampoline!(valloc, VALLOC, "rsi", "rdx");
trampoline!(pvalloc, PVALLOC, "rsi", "rdx");

/// C's `reallocarray`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray() {
    naked_asm!(
        "cmp dword ptr [rip + {mode}], 0",
        "je {plain}",
        "mov rcx, rsp",
        "mov r8, rbp",
        "jmp {hook}",
        mode = sym recording::MODE,
        hook = sym hooks::reallocarray,
        plain = sym hooks::plain_reallocarray,
    )
}

/// The four names of `free`. A null pointer is ignored.
macro_rules! free_trampoline {
    ($($name:ident)*) => { $(
        #[doc = concat!("C's `", stringify!($name), "`.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                "cmp dword ptr [rip + {mode}], 0",
                "je 2f",
                "test rdi, rdi",
                "jne {hook}",
                "2:",
                "jmp qword ptr [rip + {next}]",
                mode = sym recording::MODE,
                hook = sym hooks::free,
                next = sym next::FREE,
            )
        }
    )* };
}

free_trampoline!(free cfree free_sized free_aligned_sized);

/// C's `malloc_usable_size`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size() {
    naked_asm!("jmp qword ptr [rip + {next}]", next = sym next::USABLE_SIZE)
}
