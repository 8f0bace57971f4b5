//! The entry to `main`. On Linux only.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::entry::{Pointer, main_ends, next_of};
use crate::life;

type Main = unsafe extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;
type StartMain =
    unsafe extern "C" fn(Main, c_int, *mut *mut c_char, Pointer, Pointer, Pointer, Pointer) -> c_int;

static GUEST_MAIN: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static START_MAIN: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// The C library's entry function. `main` is wrapped, because only at `main` have the guest's constructors run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __libc_start_main(
    main: Main,
    count: c_int,
    arguments: *mut *mut c_char,
    init: Pointer,
    fini: Pointer,
    rtld_fini: Pointer,
    stack_end: Pointer,
) -> c_int {
    GUEST_MAIN.store(main as Pointer, Ordering::Relaxed);
    let real = next_of(&START_MAIN, c"__libc_start_main");
    // SAFETY: the C library's own function; all arguments are passed on.
    let real = unsafe { core::mem::transmute::<Pointer, StartMain>(real) };
    // SAFETY: as above.
    unsafe { real(wrapped_main, count, arguments, init, fini, rtld_fini, stack_end) }
}

/// Passes the address from which it was called to `measured_main`, as an additional argument.
#[unsafe(naked)]
unsafe extern "C" fn wrapped_main(
    count: c_int,
    arguments: *mut *mut c_char,
    environment: *mut *mut c_char,
) -> c_int {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!("mov rcx, qword ptr [rsp]", "jmp {measured}", measured = sym measured_main);
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!("mov x3, x30", "b {measured}", measured = sym measured_main)
}

unsafe extern "C" fn measured_main(
    count: c_int,
    arguments: *mut *mut c_char,
    environment: *mut *mut c_char,
    caller: usize,
) -> c_int {
    memgate_session::mappings::main_begins(caller);
    life::start();
    // SAFETY: stored by `__libc_start_main` from an argument of this type.
    let main = unsafe { core::mem::transmute::<Pointer, Main>(GUEST_MAIN.load(Ordering::Relaxed)) };
    // SAFETY: the C library's arguments.
    let status = unsafe { main(count, arguments, environment) };
    main_ends();
    status
}
