//! Interposed functions that start programs, so that the harness knows of programs without the agent: see
//! `native::starts`. Each records the program and calls the C library's own function. On Linux only.

use core::ffi::{CStr, c_char, c_int};
use core::marker::PhantomData;
use core::sync::atomic::AtomicPtr;

use memgate_ffi::exec::Strings;

use super::Pointer;
use super::function::{Function, finding, functions, no_descriptor as no_status};
use super::libc::next_of;
use crate::native::starts::{self, Named, Noted};

#[cfg_attr(target_arch = "x86_64", path = "x86_64/exec.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64/exec.rs")]
mod machine;
pub(super) use machine::shelling;
use machine::{REGISTERS, spreading};

type Array = *const *const c_char;
type WithEnvironment = unsafe extern "C" fn(*const c_char, Array, Array) -> c_int;
type Spawn = unsafe extern "C" fn(Pointer, *const c_char, Pointer, Pointer, Array, Array) -> c_int;

static EXECVE: AtomicPtr<core::ffi::c_void> = AtomicPtr::new(core::ptr::null_mut());
static EXECVPE: AtomicPtr<core::ffi::c_void> = AtomicPtr::new(core::ptr::null_mut());
static POSIX_SPAWN: AtomicPtr<core::ffi::c_void> = AtomicPtr::new(core::ptr::null_mut());
static POSIX_SPAWNP: AtomicPtr<core::ffi::c_void> = AtomicPtr::new(core::ptr::null_mut());
static EXECL: AtomicPtr<core::ffi::c_void> = AtomicPtr::new(core::ptr::null_mut());
static EXECLP: AtomicPtr<core::ffi::c_void> = AtomicPtr::new(core::ptr::null_mut());
static EXECLE: AtomicPtr<core::ffi::c_void> = AtomicPtr::new(core::ptr::null_mut());

pub(super) fn bind() {
    for (slot, name) in [
        (&EXECVE, c"execve"),
        (&EXECVPE, c"execvpe"),
        (&POSIX_SPAWN, c"posix_spawn"),
        (&POSIX_SPAWNP, c"posix_spawnp"),
        (&EXECL, c"execl"),
        (&EXECLP, c"execlp"),
        (&EXECLE, c"execle"),
    ] {
        next_of(slot, name);
    }
    ALL.iter().for_each(|function| function.bind_early());
}

functions! { system no_status }

/// C's `system`. The C library starts the shell without these functions, in the environment of this process.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn system() {
    shelling!(note_shell, system::FUNCTION, "memgate_goes_on")
}

/// Records the start of a shell for this command.
pub(super) unsafe extern "C" fn note_shell(command: *const c_char) {
    // SAFETY: a terminated string of the caller, or null, which starts nothing.
    if let Some(command) = unsafe { name(command) } {
        let arguments = [c"sh", c"-c", command].into_iter();
        drop(starts::begin((c"/bin/sh", Named::Path), arguments, Strings::environment()));
    }
}

/// The name; `None` for a null pointer, which the C library refuses.
unsafe fn name<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller's contract: a terminated string.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

unsafe fn begin(program: *const c_char, named: Named, arguments: Array, environment: Array) -> Noted {
    // SAFETY: the contract of the C functions.
    let Some(program) = (unsafe { name(program) }) else { return Noted::default() };
    // SAFETY: as above.
    let arguments = unsafe { Strings::new(arguments) };
    // SAFETY: as above.
    starts::begin((program, named), arguments, unsafe { Strings::new(environment) })
}

unsafe fn exec(
    slot: &AtomicPtr<core::ffi::c_void>,
    real: &CStr,
    named: Named,
    program: *const c_char,
    arguments: Array,
    environment: Array,
) -> c_int {
    // SAFETY: passed on.
    let noted = unsafe { begin(program, named, arguments, environment) };
    let environment = noted.environment(environment);
    let real = next_of(slot, real);
    // SAFETY: the C library's function of this name.
    let real = unsafe { core::mem::transmute::<Pointer, WithEnvironment>(real) };
    // SAFETY: the caller's arguments.
    let status = unsafe { real(program, arguments, environment) };
    noted.failed();
    status
}

/// C's `execve`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(program: *const c_char, arguments: Array, environment: Array) -> c_int {
    // SAFETY: passed on.
    unsafe { exec(&EXECVE, c"execve", Named::Path, program, arguments, environment) }
}

/// C's `execv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(program: *const c_char, arguments: Array) -> c_int {
    // SAFETY: passed on.
    unsafe { exec(&EXECVE, c"execve", Named::Path, program, arguments, Strings::environment().as_ptr()) }
}

/// C's `execvp`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(program: *const c_char, arguments: Array) -> c_int {
    // SAFETY: passed on.
    unsafe { exec(&EXECVPE, c"execvpe", Named::InPath, program, arguments, Strings::environment().as_ptr()) }
}

/// GNU's `execvpe`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(program: *const c_char, arguments: Array, environment: Array) -> c_int {
    // SAFETY: passed on.
    unsafe { exec(&EXECVPE, c"execvpe", Named::InPath, program, arguments, environment) }
}

macro_rules! spawns {
    ($($name:ident $slot:ident $text:literal $named:expr;)*) => { $(
        #[doc = concat!("C's `", stringify!($name), "`.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            process: Pointer,
            program: *const c_char,
            actions: Pointer,
            attributes: Pointer,
            arguments: Array,
            environment: Array,
        ) -> c_int {
            // SAFETY: passed on.
            let noted = unsafe { begin(program, $named, arguments, environment) };
            let environment = noted.environment(environment);
            let real = next_of(&$slot, $text);
            // SAFETY: the C library's function of this name.
            let real = unsafe { core::mem::transmute::<Pointer, Spawn>(real) };
            // SAFETY: the caller's arguments.
            let status = unsafe { real(process, program, actions, attributes, arguments, environment) };
            if status != 0 {
                noted.failed();
            }
            status
        }
    )* };
}

spawns! {
    posix_spawn POSIX_SPAWN c"posix_spawn" Named::Path;
    posix_spawnp POSIX_SPAWNP c"posix_spawnp" Named::InPath;
}

/// A list of arguments in registers and then on the stack, up to a null pointer.
#[derive(Clone, Copy)]
struct Spread<'a> {
    registers: *const usize,
    stack: *const usize,
    next: usize,
    borrowed: PhantomData<&'a CStr>,
}

impl Spread<'_> {
    /// # Safety
    /// There must be another word.
    unsafe fn word(&mut self) -> usize {
        let at = match self.next.checked_sub(REGISTERS) {
            None => self.registers.wrapping_add(self.next),
            Some(on_stack) => self.stack.wrapping_add(on_stack),
        };
        self.next = self.next.wrapping_add(1);
        // SAFETY: promised by the caller.
        unsafe { at.read() }
    }
}

impl<'a> Iterator for Spread<'a> {
    type Item = &'a CStr;

    fn next(&mut self) -> Option<&'a CStr> {
        // SAFETY: the list ends with a null pointer, and `fuse` stops calls after it.
        let word = unsafe { self.word() };
        // SAFETY: a terminated string of the caller's.
        unsafe { name(word as *const c_char) }
    }
}

/// Records the program that `execl`, `execlp` or `execle` starts, and returns the C library's function. Their arguments
/// are not an array, so the environment is not changed.
unsafe extern "C" fn note_spread(registers: *const usize, stack: *const usize, kind: usize) -> Pointer {
    // SAFETY: the first register holds the program.
    let program = unsafe { registers.read() } as *const c_char;
    // SAFETY: a terminated string of the caller's, or null.
    let program = unsafe { name(program) };
    let arguments = Spread { registers, stack, next: 1, borrowed: PhantomData };
    let (slot, real, named) = match kind {
        0 => (&EXECL, c"execl", Named::Path),
        1 => (&EXECLP, c"execlp", Named::InPath),
        _ => (&EXECLE, c"execle", Named::Path),
    };
    let environment = if kind == 2 {
        let mut behind = arguments;
        while behind.next().is_some() {}
        // SAFETY: `execle` has the environment after the null pointer.
        let environment = unsafe { behind.word() } as Array;
        // SAFETY: the contract of `execle`.
        unsafe { Strings::new(environment) }
    } else {
        Strings::environment()
    };
    if let Some(program) = program {
        drop(starts::begin((program, named), arguments.fuse(), environment));
    }
    next_of(slot, real)
}

macro_rules! spread {
    ($($name:ident $kind:literal;)*) => { $(
        #[doc = concat!("C's `", stringify!($name), "`: jumps on with all registers and the stack as they were.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            spreading!($kind, note_spread)
        }
    )* };
}

spread! {
    execl 0;
    execlp 1;
    execle 2;
}
