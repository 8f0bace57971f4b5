//! The input of every capture, for both kinds of walk.

use core::sync::atomic::AtomicUsize;

use crate::bounds::StackLayout;
use crate::rules::RuleCache;
use crate::stacks::StackStore;
use crate::sync::{Ordering, Zeroed};

/// Registers at the call of the hooked function.
#[derive(Debug, Clone, Copy)]
pub struct Registers {
    /// Return address of the call.
    pub pc: usize,
    /// Stack pointer after the call.
    pub sp: usize,
    /// Frame pointer register.
    pub fp: usize,
}

impl Registers {
    /// Registers of the function into which this is inlined, as a call from that function would show them.
    #[inline(always)]
    #[must_use]
    pub fn here() -> Self {
        let (pc, sp, fp): (usize, usize, usize);
        // SAFETY: reads registers only.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            core::arch::asm!(
                "adr {0}, 2f", "mov {1}, sp", "mov {2}, x29", "nop", "2:",
                out(reg) pc, out(reg) sp, out(reg) fp, options(nomem, nostack, preserves_flags)
            );
        }
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            core::arch::asm!(
                "lea {0}, [rip + 2f]", "mov {1}, rsp", "mov {2}, rbp", "nop", "2:",
                out(reg) pc, out(reg) sp, out(reg) fp, options(nomem, nostack, preserves_flags)
            );
        }
        Self { pc, sp, fp }
    }
}

/// State that the captures of all threads share. All-zero has no rules and no stacks.
pub struct Context {
    /// Unwind rules.
    pub rules: RuleCache,
    /// Where stacks are stored.
    pub store: StackStore,
    /// Positions of stacks: the fields of [`StackLayout`].
    layout: [AtomicUsize; 3],
}

impl Context {
    /// Sets the positions of stacks. Called before the first capture.
    pub fn set_layout(&self, layout: StackLayout) {
        let values = [layout.main_thread, layout.main_top, layout.thread_bytes];
        for (word, value) in self.layout.iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Positions of stacks.
    #[inline(always)]
    pub(crate) fn layout(&self) -> StackLayout {
        let [main_thread, main_top, thread_bytes] = &self.layout;
        StackLayout {
            main_thread: main_thread.load(Ordering::Relaxed),
            main_top: main_top.load(Ordering::Relaxed),
            thread_bytes: thread_bytes.load(Ordering::Relaxed),
        }
    }
}

// SAFETY: all-zero is an empty context.
unsafe impl Zeroed for Context {
    #[cfg(loom)]
    fn zeroed() -> Self {
        Self { rules: RuleCache::new(), store: Zeroed::zeroed(), layout: Default::default() }
    }
}
