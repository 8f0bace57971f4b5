//! Compares captured stacks with the system's own unwinder, frame by frame. `tests/proofs/stacks` does the same inside
//! other programs.
#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "calls the system unwinder and reads registers")]
#![allow(missing_docs, reason = "a test")]

use std::cell::Cell;
use std::ffi::c_void;
use std::hint::black_box;
use std::sync::LazyLock;

use memgate_tracker::StackLayout;
use memgate_tracker::Tracker;
use memgate_tracker::capture::Registers;

unsafe extern "C" {
    fn _dl_find_object(pc: *mut c_void, out: *mut c_void) -> i32;
    fn _Unwind_Backtrace(each: extern "C" fn(*mut c_void, *mut c_void) -> i32, data: *mut c_void) -> i32;
    fn _Unwind_GetIP(context: *mut c_void) -> u64;
    fn qsort(
        base: *mut c_void,
        count: usize,
        size: usize,
        compare: extern "C" fn(*const c_void, *const c_void) -> i32,
    );
}

static TRACKER: LazyLock<&'static Tracker> = LazyLock::new(|| {
    let tracker: &Tracker = Box::leak(Box::new(Tracker::new()));
    // The tests run in threads: their stacks end at the thread pointer.
    let layout = StackLayout { main_thread: 0, main_top: 0, thread_bytes: 64 << 20 };
    tracker.prepare(layout, Some(_dl_find_object), true, || {});
    tracker
});

thread_local! {
    static CHECKED: Cell<u32> = const { Cell::new(0) };
}

extern "C" fn push(context: *mut c_void, out: *mut c_void) -> i32 {
    // SAFETY: the unwinder's own context.
    let ip = unsafe { _Unwind_GetIP(context) };
    // SAFETY: `system` passes its vector.
    unsafe { &mut *out.cast::<Vec<u64>>() }.push(ip);
    0
}

#[inline(never)]
fn system() -> Vec<u64> {
    let mut out = Vec::<u64>::new();
    // SAFETY: `push` gets the vector's address.
    unsafe { _Unwind_Backtrace(push, (&raw mut out).cast()) };
    // The first frame is this function. On some systems the unwinder reports a last frame after the root, with address
    // 0.
    out.into_iter().skip(1).filter(|&ip| ip != 0).collect()
}

/// Takes both stacks of the caller and compares everything except the innermost address, which cannot be the same
/// twice.
#[inline(always)]
fn check() {
    let mut id = TRACKER.stack_of(Registers::here());
    let mut ours = Vec::<u64>::new();
    while let Some(node) = TRACKER.stack_node(id) {
        ours.push(node.pc);
        id = node.parent;
    }
    let theirs = system();
    assert!(ours.len() > 3);
    assert_eq!(ours[1..], theirs[1..]);
    CHECKED.set(CHECKED.get() + 1);
}

#[inline(never)]
fn down(depth: u32, breadth: u32) {
    let room = vec![depth; depth as usize % 7 + 1];
    for i in 0..breadth {
        if depth > 0 {
            down(black_box(depth - 1), if i == 0 { breadth } else { 1 });
        }
        check();
    }
    black_box(room);
}

#[inline(never)]
fn near() {
    check();
    black_box(());
}

#[inline(never)]
fn far(levels: u32) {
    match levels {
        0 => near(),
        _ => far(black_box(levels - 1)),
    }
    black_box(());
}

/// Allocates in three places in turn, so that each walk leaves the remembered stack and meets it again.
#[inline(never)]
fn in_turn() {
    for _ in 0..3 {
        near();
        far(1);
        far(4);
    }
    black_box(());
}

#[test]
fn places_that_allocate_in_turn_below_callers_that_change() {
    for _ in 0..3 {
        in_turn();
        black_box(());
        in_turn();
    }
    assert_eq!(CHECKED.get(), 54);
}

extern "C" fn compare(a: *const c_void, b: *const c_void) -> i32 {
    check();
    // SAFETY: qsort passes elements of the array.
    let a = unsafe { *a.cast::<i32>() };
    // SAFETY: as above.
    let b = unsafe { *b.cast::<i32>() };
    a.cmp(&b) as i32
}

#[test]
fn recursion_with_repeated_suffixes() {
    for _ in 0..20 {
        down(9, 3);
    }
    assert!(CHECKED.get() > 1000, "{}", CHECKED.get());
}

#[test]
fn callbacks_through_the_c_library() {
    let mut numbers: Vec<i32> = (0..300).map(|i| i * 7919 % 1000).collect();
    // SAFETY: an array of 300 elements.
    unsafe { qsort(numbers.as_mut_ptr().cast(), numbers.len(), 4, compare) };
    assert!(numbers.is_sorted() && CHECKED.get() > 1000);
}

#[test]
fn unwinding_panics_in_between() {
    for i in 0..200_u32 {
        let caught = std::panic::catch_unwind(|| {
            down(i % 5, 1);
            if i % 3 == 0 {
                std::panic::resume_unwind(Box::new(i));
            }
        });
        assert_eq!(caught.is_err(), i % 3 == 0);
        check();
    }
}

#[test]
fn boxed_closures_of_many_depths() {
    fn nest(depth: u32) -> Box<dyn Fn()> {
        if depth == 0 {
            Box::new(|| {
                check();
            })
        } else {
            let inner = nest(depth - 1);
            Box::new(move || {
                inner();
                check();
            })
        }
    }
    let all: Vec<_> = (0..30).map(nest).collect();
    for i in 0..500_usize {
        all[i * 17 % 30]();
    }
}

// memgate_enter(function, top): calls the function on another stack. Its unwind rules use the word below `top` as the
// return address.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    "memgate_enter:",
    "push rbp",
    "mov [rsi - 16], rsp",
    "lea rsp, [rsi - 16]",
    "call 2f",
    "pop rsp",
    "pop rbp",
    "ret",
    "2:",
    ".cfi_startproc",
    ".cfi_def_cfa_offset 24",
    "sub rsp, 24",
    ".cfi_def_cfa_offset 48",
    "call rdi",
    "add rsp, 24",
    ".cfi_def_cfa_offset 24",
    "ret",
    ".cfi_endproc",
);

unsafe extern "C" {
    #[cfg(target_arch = "x86_64")]
    fn memgate_enter(function: extern "C" fn(), top: *mut usize);
    fn getcontext(context: *mut libc::ucontext_t) -> i32;
    fn makecontext(context: *mut libc::ucontext_t, function: extern "C" fn(), count: i32, ...);
    fn swapcontext(from: *mut libc::ucontext_t, to: *const libc::ucontext_t) -> i32;
}

const TRUNCATED: u64 = memgate_tracker::capture::TRUNCATED_PC as u64;

thread_local! {
    /// The outermost two addresses of the last stack, and its number of frames.
    static ROOT: Cell<[u64; 3]> = const { Cell::new([0; 3]) };
}

extern "C" fn note_root() {
    let mut id = TRACKER.stack_of(Registers::here());
    let mut root = [0; 3];
    while let Some(node) = TRACKER.stack_node(id) {
        root = [root[1], node.pc, root[2] + 1];
        id = node.parent;
    }
    ROOT.set(root);
}

/// Regression: a root was remembered without the word that marked it as the root.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_stack_that_takes_the_place_of_a_whole_one_is_not_taken_for_it() {
    static DATA: [u64; 4] = [0; 4];
    // Initialized here, on a stack that has room for it.
    LazyLock::force(&TRACKER);
    #[repr(align(16))]
    struct Room([usize; 8192]);
    let mut room = Box::new(Room([0; 8192]));
    let data = DATA.as_ptr() as usize + 8;
    for word in [0, data, 0, 0, data, data, 0] {
        room.0[8189] = word;
        // SAFETY: the first 8190 words are the stack.
        unsafe { memgate_enter(note_root, room.0.as_mut_ptr().wrapping_add(8190)) };
        let [outer, root, frames] = ROOT.get();
        if word == 0 {
            assert_eq!(frames, 2, "{outer:#x} {root:#x}");
            assert_ne!(root, TRUNCATED);
        } else {
            assert_eq!([outer, root, frames], [data as u64, TRUNCATED, 4]);
        }
    }
}

extern "C" fn coroutine() {
    for _ in 0..2 {
        note_root();
        note_root();
    }
}

#[test]
fn a_coroutine_of_makecontext_has_a_whole_stack() {
    LazyLock::force(&TRACKER);
    let mut stack = vec![0_u8; 64 << 10];
    // SAFETY: all-zero is a valid context.
    let mut own: libc::ucontext_t = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut other: libc::ucontext_t = unsafe { std::mem::zeroed() };
    // SAFETY: fills the context.
    assert_eq!(unsafe { getcontext(&raw mut other) }, 0);
    other.uc_stack.ss_sp = stack.as_mut_ptr().cast();
    other.uc_stack.ss_size = stack.len();
    other.uc_link = &raw mut own;
    // SAFETY: a context that was filled, with a stack that lives on.
    unsafe { makecontext(&raw mut other, coroutine, 0) };
    // SAFETY: the coroutine returns through the link.
    assert_eq!(unsafe { swapcontext(&raw mut own, &raw const other) }, 0);
    let [_, root, frames] = ROOT.get();
    assert!(frames >= 3 && root != TRUNCATED, "{frames} {root:#x}");
}
