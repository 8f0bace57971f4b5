//! The allocation functions, as trampolines: see [`super`]. On arm64 a hook gets the stack pointer. The trampoline has
//! stored its caller's frame pointer and return address there.

use core::arch::naked_asm;

use memgate_session::recording;

use crate::native::{hooks, next};

/// The call of a hook: `$sp` and `$fp` are the argument registers after the function's own
/// arguments. Its frame can be unwound.
macro_rules! call {
    ($sp:literal, $fp:literal) => {
        concat!(
            "stp x29, x30, [sp, #-16]!\n",
            ".cfi_def_cfa_offset 16\n",
            ".cfi_offset x29, -16\n",
            ".cfi_offset x30, -8\n",
            concat!("mov ", $sp, ", sp\n"),
            concat!("mov ", $fp, ", x29\n"),
            "mov x29, sp\n",
            "bl {hook}\n",
            "ldp x29, x30, [sp], #16\n",
            ".cfi_restore x29\n",
            ".cfi_restore x30\n",
            ".cfi_def_cfa_offset 0\n",
            "ret",
        )
    };
}

macro_rules! trampoline {
    ($name:ident, $slot:ident, $sp:literal, $fp:literal) => {
        #[doc = concat!("C's `", stringify!($name), "`.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                "adrp x16, {mode}",
                "ldr w16, [x16, :lo12:{mode}]",
                "cbz w16, 2f",
                call!($sp, $fp),
                "2:",
                "adrp x16, {next}",
                "ldr x16, [x16, :lo12:{next}]",
                "br x16",
                ".cfi_endproc",
                mode = sym recording::MODE,
                hook = sym hooks::$name,
                next = sym next::$slot,
            )
        }
    };
}

trampoline!(malloc, MALLOC, "x1", "x2");
trampoline!(calloc, CALLOC, "x2", "x3");
trampoline!(realloc, REALLOC, "x2", "x3");
trampoline!(memalign, MEMALIGN, "x2", "x3");
trampoline!(aligned_alloc, ALIGNED_ALLOC, "x2", "x3");
trampoline!(posix_memalign, POSIX_MEMALIGN, "x3", "x4");
trampoline!(valloc, VALLOC, "x1", "x2");
trampoline!(pvalloc, PVALLOC, "x1", "x2");

/// C's `reallocarray`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray() {
    naked_asm!(
        ".cfi_startproc",
        "adrp x16, {mode}",
        "ldr w16, [x16, :lo12:{mode}]",
        "cbz w16, 2f",
        call!("x3", "x4"),
        "2:",
        "b {plain}",
        ".cfi_endproc",
        mode = sym recording::MODE,
        hook = sym hooks::reallocarray,
        plain = sym hooks::plain_reallocarray,
    )
}

/// The four names of `free`. A null pointer is ignored (libc's own functions pass many).
macro_rules! free_trampoline {
    ($($name:ident)*) => { $(
        #[doc = concat!("C's `", stringify!($name), "`.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                "adrp x16, {mode}",
                "ldr w16, [x16, :lo12:{mode}]",
                "cbz w16, 2f",
                "cbz x0, 2f",
                "b {hook}",
                "2:",
                "adrp x16, {next}",
                "ldr x16, [x16, :lo12:{next}]",
                "br x16",
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
    naked_asm!(
        "adrp x16, {next}",
        "ldr x16, [x16, :lo12:{next}]",
        "br x16",
        next = sym next::USABLE_SIZE,
    )
}
