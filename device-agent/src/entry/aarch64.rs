//! The allocation functions, as trampolines: see [`super`]. On arm64 a hook gets the return address
//! and the frame pointer.

use core::arch::naked_asm;

use memgate_session::recording;

use crate::native::{hooks, next};

/// `$pc` and `$fp`: the argument registers after the function's own arguments.
macro_rules! trampoline {
    ($name:ident, $slot:ident, $pc:literal, $fp:literal) => {
        #[doc = concat!("C's `", stringify!($name), "`.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                "adrp x16, {mode}",
                "ldr w16, [x16, :lo12:{mode}]",
                "cbz w16, 2f",
                concat!("mov ", $pc, ", x30"),
                concat!("mov ", $fp, ", x29"),
                "b {hook}",
                "2:",
                "adrp x16, {next}",
                "ldr x16, [x16, :lo12:{next}]",
                "br x16",
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
        "adrp x16, {mode}",
        "ldr w16, [x16, :lo12:{mode}]",
        "cbz w16, 2f",
        "mov x3, x30",
        "mov x4, x29",
        "b {hook}",
        "2:",
        "b {plain}",
        mode = sym recording::MODE,
        hook = sym hooks::reallocarray,
        plain = sym hooks::plain_reallocarray,
    )
}

/// The four spellings of `free`; a null pointer is none of our business (libc's own functions pass
/// many).
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
