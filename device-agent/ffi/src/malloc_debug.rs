//! The allocations that Android's malloc debugging lists, in a process that runs with it (`libc.debug.malloc.options`,
//! `wrap.sh`).
//!
//! libc offers the list under two names: `android_mallopt` since API 29, which the NDK does not declare, and
//! `get_malloc_leak_info` before. Both are looked up at run time. If malloc debugging is off, the first reports that
//! and the second leaves its results unchanged.

use core::ffi::{c_int, c_void};
use core::{ptr, slice};

use crate::process;

/// `M_GET_MALLOC_LEAK_INFO` and `M_FREE_MALLOC_LEAK_INFO` of `android_mallopt`.
const GET: c_int = 6;
const FREE: c_int = 7;

type Mallopt = unsafe extern "C" fn(c_int, *mut c_void, usize) -> bool;
type GetInfo = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize, *mut usize, *mut usize);
type FreeInfo = unsafe extern "C" fn(*mut u8);

/// `android_mallopt_leak_info_t`
#[repr(C)]
struct Answer {
    buffer: *mut u8,
    overall_bytes: usize,
    record_bytes: usize,
    total_bytes: usize,
    backtrace_size: usize,
}

/// The libc function that gives the list.
#[derive(Clone, Copy)]
pub enum Source {
    /// Since API 29.
    Mallopt(Mallopt),
    /// Before.
    Pair(GetInfo, FreeInfo),
}

/// A copy of libc's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The records.
    pub records: Vec<u8>,
    /// Size of a record in bytes.
    pub record_bytes: usize,
    /// Bytes of all listed allocations.
    pub total_bytes: usize,
    /// Number of addresses in a record.
    pub backtrace_size: usize,
}

impl Source {
    /// The function that this process's libc has. `None`: neither.
    #[must_use]
    pub fn find() -> Option<Self> {
        let mallopt = process::symbol(c"android_mallopt");
        if mallopt != 0 {
            // SAFETY: a function of that name has this type.
            return Some(Self::Mallopt(unsafe { core::mem::transmute::<usize, Mallopt>(mallopt) }));
        }
        let get = process::symbol(c"get_malloc_leak_info");
        let free = process::symbol(c"free_malloc_leak_info");
        if get == 0 || free == 0 {
            return None;
        }
        // SAFETY: as above.
        let get = unsafe { core::mem::transmute::<usize, GetInfo>(get) };
        // SAFETY: as above.
        Some(Self::Pair(get, unsafe { core::mem::transmute::<usize, FreeInfo>(free) }))
    }

    /// The current list. `None`: malloc debugging is off, the list is empty or invalid, or there is no memory for a
    /// copy.
    #[must_use]
    pub fn take(self) -> Option<Listed> {
        let mut answer = Answer {
            buffer: ptr::null_mut(),
            overall_bytes: 0,
            record_bytes: 0,
            total_bytes: 0,
            backtrace_size: 0,
        };
        let given = match self {
            // SAFETY: a structure of this size.
            Self::Mallopt(mallopt) => unsafe { mallopt(GET, (&raw mut answer).cast(), size_of::<Answer>()) },
            Self::Pair(get, _) => {
                let [overall, record, total, backtrace] = [
                    &raw mut answer.overall_bytes,
                    &raw mut answer.record_bytes,
                    &raw mut answer.total_bytes,
                    &raw mut answer.backtrace_size,
                ];
                // SAFETY: variables for all five results.
                unsafe { get(&raw mut answer.buffer, overall, record, total, backtrace) };
                true
            }
        };
        if !given || answer.buffer.is_null() {
            return None;
        }
        let copy = answer.copy();
        self.give_back(&mut answer);
        copy
    }

    /// Frees a list. Called only for a list that libc gave, because freeing unchanged results is not safe.
    fn give_back(self, answer: &mut Answer) {
        match self {
            // SAFETY: the unchanged answer.
            Self::Mallopt(mallopt) => {
                let _gone_either_way =
                    // SAFETY: as above.
                    unsafe { mallopt(FREE, ptr::from_mut(answer).cast(), size_of::<Answer>()) };
            }
            // SAFETY: the unchanged buffer.
            Self::Pair(_, free) => unsafe { free(answer.buffer) },
        }
    }
}

impl Answer {
    fn copy(&self) -> Option<Listed> {
        let words = self.backtrace_size.checked_add(2)?.checked_mul(size_of::<usize>())?;
        if self.record_bytes != words || !self.overall_bytes.is_multiple_of(words) {
            return None;
        }
        let mut records = Vec::new();
        records.try_reserve_exact(self.overall_bytes).ok()?;
        // SAFETY: libc reported this number of bytes.
        records.extend_from_slice(unsafe { slice::from_raw_parts(self.buffer, self.overall_bytes) });
        Some(Listed {
            records,
            record_bytes: self.record_bytes,
            total_bytes: self.total_bytes,
            backtrace_size: self.backtrace_size,
        })
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Two records of four words.
    const RECORDS: [usize; 8] = [65_536, 4, 0x1000, 0x2000, 24, 1, 0x1000, 0];

    /// Like bionic: its own buffer, and all five results.
    unsafe extern "C" fn get(
        info: *mut *mut u8,
        overall: *mut usize,
        record: *mut usize,
        total: *mut usize,
        backtrace: *mut usize,
    ) {
        let buffer = Box::leak(Box::new(RECORDS)).as_mut_ptr();
        for (place, value) in
            [(overall, size_of_val(&RECORDS)), (record, 32), (total, 262_168), (backtrace, 2)]
        {
            // SAFETY: the caller's words.
            unsafe { *place = value };
        }
        // SAFETY: the caller's word.
        unsafe { *info = buffer.cast() };
    }

    static FREED: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn free(buffer: *mut u8) {
        FREED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: `get` made it.
        drop(unsafe { Box::from_raw(buffer.cast::<[usize; 8]>()) });
    }

    /// Like bionic, which changes nothing when malloc debugging is off.
    unsafe extern "C" fn get_nothing(
        _: *mut *mut u8,
        _: *mut usize,
        _: *mut usize,
        _: *mut usize,
        _: *mut usize,
    ) {
    }

    unsafe extern "C" fn must_not_free(_: *mut u8) {
        panic!("nothing was given");
    }

    unsafe extern "C" fn mallopt(what: c_int, argument: *mut c_void, bytes: usize) -> bool {
        assert_eq!(bytes, 40);
        // SAFETY: the caller's structure.
        let answer = unsafe { &mut *argument.cast::<Answer>() };
        match what {
            GET => {
                let Answer { buffer, overall_bytes, record_bytes, total_bytes, backtrace_size } = answer;
                // SAFETY: five places.
                unsafe { get(buffer, overall_bytes, record_bytes, total_bytes, backtrace_size) };
            }
            // SAFETY: the buffer from `get`.
            _ => unsafe { free(answer.buffer) },
        }
        true
    }

    unsafe extern "C" fn mallopt_refuses(_: c_int, _: *mut c_void, _: usize) -> bool {
        false
    }

    #[test]
    fn both_ways_give_the_same_list_and_give_it_back() {
        let want: Vec<u8> = RECORDS.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let before = FREED.load(Ordering::Relaxed);
        for source in [Source::Pair(get, free), Source::Mallopt(mallopt)] {
            let listed = source.take().unwrap();
            assert_eq!((listed.records, listed.record_bytes), (want.clone(), 32));
            assert_eq!((listed.total_bytes, listed.backtrace_size), (262_168, 2));
        }
        assert_eq!(FREED.load(Ordering::Relaxed), before + 2);
    }

    #[test]
    fn where_malloc_debugging_is_off_there_is_nothing_to_give_back() {
        assert_eq!(Source::Pair(get_nothing, must_not_free).take(), None);
        assert_eq!(Source::Mallopt(mallopt_refuses).take(), None);
    }

    #[test]
    fn a_list_that_makes_no_sense_is_none() {
        let mut words = RECORDS;
        let mut answer = Answer {
            buffer: words.as_mut_ptr().cast(),
            overall_bytes: 64,
            record_bytes: 32,
            total_bytes: 0,
            backtrace_size: 2,
        };
        assert!(answer.copy().is_some());
        answer.record_bytes = 24;
        assert_eq!(answer.copy(), None);
        (answer.record_bytes, answer.overall_bytes) = (32, 63);
        assert_eq!(answer.copy(), None);
        answer.backtrace_size = usize::MAX;
        assert_eq!(answer.copy(), None);
    }
}
