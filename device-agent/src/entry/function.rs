//! Functions of the C library that are stood in for by a comparison and a jump: the jump's target
//! is looked for at the first call, or before. On Linux only.

use core::arch::global_asm;
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use memgate_ffi::process;
use memgate_tracker::sys::Errno;

use super::Pointer;

/// A function of the C library.
#[repr(C)]
pub(super) struct Function {
    /// Where it goes on; at first a routine that looks for it.
    pub(super) next: AtomicPtr<c_void>,
    pub(super) name: &'static CStr,
    /// Stands for it where the C library has none.
    pub(super) missing: unsafe extern "C" fn(),
}

impl Function {
    pub(super) fn bind(&self) -> Pointer {
        let errno = Errno::save();
        let found = process::symbol(self.name, true) as Pointer;
        let next = if found.is_null() { self.missing as Pointer } else { found };
        self.next.store(next, Ordering::Relaxed);
        errno.restore();
        next
    }
}

extern "C" fn bind(function: &Function) -> Pointer {
    function.bind()
}

/// No descriptor: -1.
pub(super) unsafe extern "C" fn no_descriptor() -> c_int {
    Errno::of(libc::ENOSYS).restore();
    -1
}

/// Makes of each name a module with its [`Function`] and the routine that looks for it.
macro_rules! functions {
    ($($name:ident $missing:ident)*) => {
        $(
            mod $name {
                use core::arch::naked_asm;
                use core::ffi::CStr;
                use core::sync::atomic::AtomicPtr;

                use super::*;

                pub(super) static FUNCTION: Function = Function {
                    next: AtomicPtr::new(find as unsafe extern "C" fn() as Pointer),
                    name: match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => c"",
                    },
                    missing: {
                        // SAFETY: only called as what it is.
                        unsafe { core::mem::transmute::<*const (), unsafe extern "C" fn()>($missing as *const ()) }
                    },
                };

                #[unsafe(naked)]
                unsafe extern "C" fn find() {
                    naked_asm!(
                        "lea r11, [rip + {function}]",
                        "jmp memgate_finds",
                        function = sym FUNCTION,
                    )
                }
            }
        )*
        static ALL: &[&Function] = &[$(&$name::FUNCTION),*];
    };
}

/// One exported function that goes on at `$tracked` with the C library's in `r11` where the process
/// is tracked.
macro_rules! exported {
    ($tracked:literal: $($name:ident)*) => { $(
        #[doc = concat!("C's `", stringify!($name), "`.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "cmp dword ptr [rip + {mode}], 0",
                "jne 2f",
                "jmp qword ptr [rip + {function}]",
                "2:",
                "mov r11, qword ptr [rip + {function}]",
                concat!("jmp ", $tracked),
                mode = sym memgate_session::recording::MODE,
                function = sym $name::FUNCTION,
            )
        }
    )* };
}

/// A routine of the assembler's: global, as it is jumped to from other objects of this crate, and
/// hidden from other libraries. Its frames can be unwound.
macro_rules! routine {
    ($name:literal: $($line:expr),* $(,)?) => {
        concat!(
            ".globl ", $name, "\n.hidden ", $name, "\n", $name, ":\n.cfi_startproc\n",
            $($line, "\n",)*
            ".cfi_endproc\n",
        )
    };
}

/// What runs while these registers are kept on the stack.
macro_rules! keeping {
    ([] $($line:expr),* $(,)?) => {
        concat!($($line, "\n"),*)
    };
    ([$first:literal $($rest:literal)*] $($line:expr),* $(,)?) => {
        concat!(
            "push ", $first, "\n.cfi_adjust_cfa_offset 8\n",
            keeping!([$($rest)*] $($line),*),
            "pop ", $first, "\n.cfi_adjust_cfa_offset -8\n",
        )
    };
}

pub(super) use {exported, functions, keeping, routine};

global_asm!(
    ".text",
    // The first call of a function: `r11` is its `Function`.
    routine!("memgate_finds":
        keeping!(["rdi" "rsi" "rdx" "rcx" "r8" "r9" "rax"] "mov rdi, r11", "call {bind}", "mov r11, rax"),
        "jmp r11",
    ),
    bind = sym bind,
);
