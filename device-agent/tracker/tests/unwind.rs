//! Captured stacks against the system's own unwinder, frame by frame.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]
#![expect(unsafe_code, reason = "calls the system unwinder and reads registers")]
#![allow(missing_docs, reason = "a test")]

use std::cell::Cell;
use std::ffi::c_void;
use std::hint::black_box;
use std::sync::LazyLock;

use memgate_tracker::Tracker;
use memgate_tracker::capture::{Registers, StackLayout};

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
    // The first frame is this function; the unwinder counts a last one behind the root as address 0 on some systems.
    out.into_iter().skip(1).filter(|&ip| ip != 0).collect()
}

/// Takes both stacks of the caller and compares everything but the innermost address, which cannot be the same twice.
#[inline(always)]
fn check() {
    let (pc, sp, rbp): (usize, usize, usize);
    // SAFETY: reads registers only.
    unsafe {
        std::arch::asm!("lea {0}, [rip + 2f]", "mov {1}, rsp", "mov {2}, rbp", "2:", "nop", out(reg) pc, out(reg) sp, out(reg) rbp);
    }
    let mut id = TRACKER.stack_of(Registers { pc: pc + 1, sp, rbp });
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
