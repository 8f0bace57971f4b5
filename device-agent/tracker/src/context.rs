//! What every capture is given, whichever way it walks.

use core::sync::atomic::AtomicUsize;

use crate::bounds::StackLayout;
use crate::rules::RuleCache;
use crate::stacks::StackStore;
use crate::sync::{Ordering, Zeroed};

/// The registers at the call of the hooked function.
#[derive(Debug, Clone, Copy)]
pub struct Registers {
    /// Return address of the call.
    pub pc: usize,
    /// Stack pointer after it; on Android any address in the stack that is not further out than
    /// the caller's frame.
    pub sp: usize,
    /// Frame pointer register.
    pub fp: usize,
}

/// What the captures of all threads share. All-zero knows no rule and no stack.
pub struct Context {
    /// Unwind rules.
    pub rules: RuleCache,
    /// Where stacks are stored.
    pub store: StackStore,
    /// Where stacks lie: the fields of [`StackLayout`].
    layout: [AtomicUsize; 3],
}

impl Context {
    /// Tells where stacks lie. Before the first capture.
    pub fn set_layout(&self, layout: StackLayout) {
        let values = [layout.main_thread, layout.main_top, layout.thread_bytes];
        for (word, value) in self.layout.iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Where stacks lie.
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

// SAFETY: all-zero knows nothing.
unsafe impl Zeroed for Context {
    #[cfg(loom)]
    fn zeroed() -> Self {
        Self { rules: RuleCache::new(), store: Zeroed::zeroed(), layout: Default::default() }
    }
}
