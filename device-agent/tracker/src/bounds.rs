//! The bounds of stacks. The readable part of a stack is the words between the stack pointer and the end of the mapped
//! stack.
#![cfg_attr(
    not(test),
    expect(
        clippy::arithmetic_side_effects,
        reason = "addresses of a stack, which no address space is too small for"
    )
)]

use crate::arch::{Arch, Native};
use crate::sys;

const PAGE: usize = 4096;
/// Nothing else is mapped this close below the top of the main thread's stack (the kernel's minimal
/// mmap gap).
const MAIN_STACK_BYTES: usize = 128 << 20;

/// Positions of stacks. The agent sets them once.
#[derive(Debug, Clone, Copy, Default)]
pub struct StackLayout {
    /// Thread pointer of the main thread.
    pub main_thread: usize,
    /// Top of the main thread's stack.
    pub main_top: usize,
    /// Default size of other threads' stacks.
    pub thread_bytes: usize,
}

/// The memory range that may be read as stack.
pub(crate) struct Bounds {
    /// End of the range that is known to be mapped.
    end: usize,
    /// Whether the end is the end of the stack, beyond which nothing may be read. If not, the walk may check the next
    /// page.
    known: bool,
    /// Whether a signal interrupted this stack. The interrupted frame may have left words in the red zone below its
    /// stack pointer.
    pub(crate) interrupted: bool,
    /// Stack pointer and link register of the function that a signal interrupted. The function may not have saved its
    /// return address. 0: none, or already used.
    #[cfg(target_arch = "aarch64")]
    pub(crate) link: [usize; 2],
}

impl Bounds {
    pub(crate) fn of(sp: usize, layout: &StackLayout) -> Self {
        let thread = sys::thread_pointer();
        let (top, bytes) = if thread == layout.main_thread {
            (layout.main_top, MAIN_STACK_BYTES)
        } else {
            (thread, layout.thread_bytes)
        };
        if sp < top && top - sp < bytes {
            Self {
                end: top,
                known: true,
                interrupted: false,
                #[cfg(target_arch = "aarch64")]
                link: [0; 2],
            }
        } else {
            Self {
                end: (sp & !(PAGE - 1)) + PAGE,
                known: false,
                interrupted: false,
                #[cfg(target_arch = "aarch64")]
                link: [0; 2],
            }
        }
    }

    /// Are the words from `sp` to `cfa` in the part that is known to be mapped?
    #[inline(always)]
    pub(crate) fn hold(&self, sp: usize, cfa: usize) -> bool {
        sp < cfa && cfa <= self.end && cfa & 7 == 0
    }

    /// The word at `address`, if it lies in the stack.
    #[inline(always)]
    pub(crate) fn read(&mut self, address: usize, sp: usize) -> Option<usize> {
        if address < sp || address & 7 != 0 {
            return None;
        }
        if address.wrapping_add(8) > self.end && !self.extend(address) {
            return None;
        }
        // SAFETY: [sp, end) is mapped: it is this thread's stack, or every page of it was checked.
        Some(unsafe { (address as *const usize).read() })
    }

    /// A saved register below the stack pointer. Compilers do not state in a function's last instructions that the
    /// register was restored, because its slot keeps the value until a call or a signal handler overwrites it.
    #[cold]
    #[inline(never)]
    pub(crate) fn read_below(&mut self, address: usize, sp: usize) -> Option<usize> {
        let in_red_zone = self.interrupted && address < sp && sp - address <= Native::RED_ZONE;
        if in_red_zone { self.read(address, address) } else { None }
    }

    /// The return address in the link register, for the frame with this stack pointer.
    #[cfg(target_arch = "aarch64")]
    #[cold]
    #[inline(never)]
    pub(crate) fn take_link(&mut self, sp: usize) -> Option<usize> {
        let [of, pc] = core::mem::take(&mut self.link);
        (of == sp && pc != 0).then(|| sys::without_signature(pc))
    }

    #[cold]
    #[inline(never)]
    fn extend(&mut self, address: usize) -> bool {
        // On an unknown stack, a frame of more than 1 MiB means that the rule is wrong.
        if self.known || address.wrapping_sub(self.end) > 1 << 20 {
            return false;
        }
        while self.end < address + 8 {
            if !sys::readable(self.end) {
                return false;
            }
            self.end += PAGE;
        }
        true
    }
}
