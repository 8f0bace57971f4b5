//! The C library's part on Android.

use memgate_tracker::cfi::FindObject;

/// C++'s operators are not searched: an app's libraries have their own ones, hidden in them or in the app's own
/// `libc++_shared.so`.
pub(crate) const fn weak() -> [usize; 3] {
    [0; 3]
}

/// bionic's loader has no lock-free lookup of unwind tables, so stacks are taken by frame records.
pub(crate) const fn find_object() -> Option<FindObject> {
    None
}

/// Top of the main thread's stack; 0: unknown.
pub(crate) fn stack_end() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let stack = maps.lines().find(|line| line.ends_with("[stack]"));
    let end = stack.and_then(|line| line.split(['-', ' ']).nth(1));
    end.and_then(|end| usize::from_str_radix(end, 16).ok()).unwrap_or(0)
}
