//! This library's words of each thread: its state, its depth in the agent's own work, and whether it has ended.
//!
//! With glibc and musl, these are two words of initial-exec thread-local storage. Before API 29, bionic refuses
//! libraries with thread-local storage, so there they are the values of two thread keys: reading and writing a key
//! neither allocates nor locks.

use crate::state::ThreadState;

pub(crate) use here::{ended, inside, set_ended, set_inside, set_state, state};

/// Does this process have room for the words?
#[must_use]
pub fn available() -> bool {
    here::available()
}

#[cfg(not(target_os = "android"))]
mod here {
    use super::ThreadState;

    /// The two words of thread-local storage.
    #[repr(C)]
    struct ThreadWords {
        state: *mut ThreadState,
        /// Nesting depth of code whose allocations belong to the agent.
        inside: u32,
        /// 1: the thread is past its last destructor and must not take a state of its own again.
        ended: u32,
    }

    #[cfg(not(loom))]
    core::arch::global_asm!(
        ".section .tbss,\"awT\",@nobits",
        ".p2align 3",
        ".hidden memgate_thread_words",
        ".type memgate_thread_words,@object",
        ".size memgate_thread_words,16",
        ".globl memgate_thread_words",
        "memgate_thread_words:",
        ".zero 16",
        ".text",
    );

    #[cfg(not(loom))]
    #[inline(always)]
    fn words() -> *mut ThreadWords {
        let at: *mut ThreadWords;
        // SAFETY: initial-exec access as the psABI writes it; the symbol is 16 zeroed bytes in this
        // module's TLS block.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            core::arch::asm!(
                "adrp {0}, :gottprel:memgate_thread_words",
                "ldr {0}, [{0}, :gottprel_lo12:memgate_thread_words]",
                "mrs {1}, tpidr_el0",
                "add {0}, {0}, {1}",
                out(reg) at, out(reg) _, options(pure, nomem, nostack, preserves_flags)
            );
        }
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            core::arch::asm!(
                "mov {0}, qword ptr [rip + memgate_thread_words@GOTTPOFF]",
                "add {0}, fs:[0]",
                out(reg) at, options(pure, nomem, nostack)
            );
        }
        at
    }

    /// In a model, a thread gets its words from the model.
    #[cfg(loom)]
    fn words() -> *mut ThreadWords {
        use core::{cell::UnsafeCell, ptr};
        loom::thread_local! {
            static WORDS: UnsafeCell<ThreadWords> =
                UnsafeCell::new(ThreadWords { state: ptr::null_mut(), inside: 0, ended: 0 });
        }
        WORDS.with(UnsafeCell::get)
    }

    pub(super) const fn available() -> bool {
        true
    }

    /// Reads the word at `$offset`, in every event. It does not read the thread pointer's own word, whose cache line
    /// nothing else here needs.
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    macro_rules! read {
        ($word:ty, $register:literal, $offset:literal) => {{
            let (_at, word): (usize, $word);
            // SAFETY: initial-exec access to this thread's words.
            unsafe {
                core::arch::asm!(
                    "mov {0}, qword ptr [rip + memgate_thread_words@GOTTPOFF]",
                    concat!("mov {1", $register, "}, fs:[{0} + ", $offset, "]"),
                    out(reg) _at, lateout(reg) word, options(pure, readonly, nostack, preserves_flags)
                );
            }
            word
        }};
    }

    #[inline(always)]
    pub(crate) fn state() -> *mut ThreadState {
        #[cfg(all(target_arch = "x86_64", not(loom)))]
        return read!(*mut ThreadState, "", "0");
        #[cfg(not(all(target_arch = "x86_64", not(loom))))]
        // SAFETY: this thread's words.
        unsafe {
            (*words()).state
        }
    }

    #[inline(always)]
    pub(crate) fn set_state(state: *mut ThreadState) {
        // SAFETY: this thread's words.
        unsafe { (*words()).state = state };
    }

    #[inline(always)]
    pub(crate) fn inside() -> u32 {
        #[cfg(all(target_arch = "x86_64", not(loom)))]
        return read!(u32, ":e", "8");
        #[cfg(not(all(target_arch = "x86_64", not(loom))))]
        // SAFETY: this thread's words.
        unsafe {
            (*words()).inside
        }
    }

    #[inline(always)]
    pub(crate) fn set_inside(depth: u32) {
        // SAFETY: this thread's words.
        unsafe { (*words()).inside = depth };
    }

    #[inline(always)]
    pub(crate) fn ended() -> bool {
        // SAFETY: this thread's words.
        unsafe { (*words()).ended != 0 }
    }

    pub(crate) fn set_ended() {
        // SAFETY: this thread's words.
        unsafe { (*words()).ended = 1 };
    }
}

#[cfg(target_os = "android")]
mod here {
    use core::ffi::c_void;
    use core::ptr;
    use core::sync::atomic::{AtomicU64, Ordering};

    use super::ThreadState;

    /// Both keys: `of depth and end 32 | of state 32`. bionic's valid keys are not 0.
    static KEYS: AtomicU64 = AtomicU64::new(0);

    /// Flag: the thread has ended. The other bits hold the depth. They are separate from the state, so that a signal
    /// handler which takes a state in the middle of a change of the depth loses nothing.
    const ENDED: usize = 1 << 31;

    #[inline(always)]
    fn keys() -> u64 {
        match KEYS.load(Ordering::Acquire) {
            0 => create(),
            keys => keys,
        }
    }

    #[cold]
    #[inline(never)]
    fn create() -> u64 {
        let (mut state, mut depth) = (0, 0);
        // SAFETY: writes the key; values need no destructor.
        if unsafe { libc::pthread_key_create(&raw mut state, None) } != 0 {
            return 0;
        }
        // SAFETY: as above.
        if unsafe { libc::pthread_key_create(&raw mut depth, None) } != 0 {
            delete(state);
            return 0;
        }
        let keys = of(depth) << 32 | of(state);
        match KEYS.compare_exchange(0, keys, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => keys,
            Err(others) => {
                delete(state);
                delete(depth);
                others
            }
        }
    }

    fn delete(key: libc::pthread_key_t) {
        // SAFETY: just created and not used.
        unsafe { libc::pthread_key_delete(key) };
    }

    #[expect(clippy::cast_sign_loss, reason = "a key is a pattern of bits")]
    const fn of(key: libc::pthread_key_t) -> u64 {
        key as u32 as u64
    }

    #[inline(always)]
    fn get(key: u64) -> usize {
        // SAFETY: a live key, or 0 for no key, whose value is null.
        unsafe { libc::pthread_getspecific(key as libc::pthread_key_t) as usize }
    }

    #[inline(always)]
    fn set(key: u64, value: usize) {
        // SAFETY: as above; all other code treats the value as a plain number.
        unsafe { libc::pthread_setspecific(key as libc::pthread_key_t, value as *const c_void) };
    }

    pub(super) fn available() -> bool {
        keys() != 0
    }

    #[inline(always)]
    pub(crate) fn state() -> *mut ThreadState {
        ptr::with_exposed_provenance_mut(get(keys() & u64::from(u32::MAX)))
    }

    #[inline(always)]
    pub(crate) fn set_state(state: *mut ThreadState) {
        set(keys() & u64::from(u32::MAX), state.expose_provenance());
    }

    #[inline(always)]
    pub(crate) fn inside() -> u32 {
        (get(keys() >> 32) & !ENDED) as u32
    }

    #[inline(always)]
    pub(crate) fn set_inside(depth: u32) {
        let key = keys() >> 32;
        set(key, get(key) & ENDED | depth as usize);
    }

    #[inline(always)]
    pub(crate) fn ended() -> bool {
        get(keys() >> 32) & ENDED != 0
    }

    pub(crate) fn set_ended() {
        let key = keys() >> 32;
        set(key, get(key) | ENDED);
    }
}
