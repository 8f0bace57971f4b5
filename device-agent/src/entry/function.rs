//! Functions of the C library that are stood in for by a comparison and a jump: the jump's target
//! is looked for at the first call, or before. On Linux only.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use memgate_ffi::process;
use memgate_tracker::sys::Errno;

use super::Pointer;

#[cfg_attr(target_arch = "x86_64", path = "x86_64/function.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64/function.rs")]
mod machine;

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
                    finding!(FUNCTION)
                }
            }
        )*
        static ALL: &[&Function] = &[$(&$name::FUNCTION),*];
    };
}

pub(super) use functions;
pub(super) use machine::{exported, finding, keeping, routine};
