//! Interposed functions of the C library that are a comparison and a jump. The jump's target is looked up when the
//! agent is loaded, or at an earlier call. On Linux only.

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
    /// The jump's target; at first a routine that looks it up.
    pub(super) next: AtomicPtr<c_void>,
    pub(super) name: &'static CStr,
    /// The replacement if the C library has no such function.
    pub(super) missing: unsafe extern "C" fn(),
}

impl Function {
    /// Looks up the function when the agent is loaded. A later `dlsym` may wait for a thread that loads a library, and
    /// that thread may wait for us. A missing function may come with a library, and is looked up at its first call.
    pub(super) fn bind_early(&self) {
        let found = find(self.name);
        if !found.is_null() {
            self.next.store(found, Ordering::Relaxed);
        }
    }

    fn bind(&self) -> Pointer {
        let errno = Errno::save();
        let found = find(self.name);
        let next = if found.is_null() { self.missing as Pointer } else { found };
        self.next.store(next, Ordering::Relaxed);
        errno.restore();
        next
    }
}

/// The C library's function of this name; null if there is none. Since 1.2.4, `dlsym` of musl finds no name that
/// contains 64: such a name means the same function as the name without it.
fn find(name: &CStr) -> Pointer {
    let found = process::next_symbol(name);
    let instead = || without_64(name, &mut [0; LONGEST]).map_or(0, process::next_symbol);
    (if found == 0 { instead() } else { found }) as Pointer
}

/// Size of a buffer for the longest function name.
const LONGEST: usize = 32;

fn without_64<'a>(name: &CStr, place: &'a mut [u8; LONGEST]) -> Option<&'a CStr> {
    let name = name.to_bytes();
    let at = name.windows(2).position(|part| part == b"64")?;
    let (before, behind) = (name.get(..at)?, name.get(at.checked_add(2)?..)?);
    let (start, end) = place.split_at_mut_checked(at)?;
    start.copy_from_slice(before);
    end.get_mut(..behind.len())?.copy_from_slice(behind);
    CStr::from_bytes_until_nul(place).ok()
}

extern "C" fn bind(function: &Function) -> Pointer {
    function.bind()
}

/// Fails with -1 instead of a descriptor.
pub(super) unsafe extern "C" fn no_descriptor() -> c_int {
    Errno::of(libc::ENOSYS).restore();
    -1
}

/// Makes a module for each name, with its [`Function`] and the routine that looks it up.
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
                        // SAFETY: only called with its real type.
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
