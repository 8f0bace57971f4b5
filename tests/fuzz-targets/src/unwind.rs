//! Unwind tables: arbitrary `.eh_frame_hdr` and `.eh_frame`, arbitrary addresses.
//!
//! In production the bounds are those of one loaded object, from `_dl_find_object`; here they are those of
//! the input. The input is placed directly before an unreadable page, and then directly after one: a read
//! outside it is a fault.
#![expect(unsafe_code, reason = "maps two pages that cannot be read")]

use std::ptr::null_mut;
use std::slice;
use std::sync::OnceLock;

use memgate_tracker::cfi::{Object, Room, Rule, rule};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};

const PAGE: usize = 4096;
const ROOM: usize = 16 * PAGE;

/// Start of the room between the two pages.
fn room() -> usize {
    static ROOM_AT: OnceLock<usize> = OnceLock::new();
    *ROOM_AT.get_or_init(|| {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let all =
            unsafe { mmap_anonymous(null_mut(), ROOM + 2 * PAGE, ProtFlags::empty(), MapFlags::PRIVATE) };
        let at = all.expect("address space") as usize + PAGE;
        // SAFETY: the middle of the mapping that was just made; nobody else has it.
        unsafe { mprotect(at as *mut _, ROOM, MprotectFlags::READ | MprotectFlags::WRITE) }.expect("memory");
        at
    })
}

fn looked_up(image: &[u8], start: usize, header: usize, pc: usize) -> [Rule; 5] {
    // SAFETY: the range is inside the room, which lives forever; nobody else refers to it, and the fuzzer has
    // one thread.
    unsafe { slice::from_raw_parts_mut(start as *mut u8, image.len()) }.copy_from_slice(image);
    let object = Object { start, end: start + image.len(), eh_frame_hdr: start + header };
    [start + pc, start, object.end, 0, usize::MAX].map(|pc| {
        let first = rule(&object, pc, &mut Room::new());
        assert_eq!(first, rule(&object, pc, &mut Room::new()), "the same tables give the same rule");
        first
    })
}

/// Runs one input.
///
/// # Panics
/// When a checked property does not hold; this is a finding.
pub fn run(data: &[u8]) {
    let Some((&[h0, h1, p0, p1], image)) = data.split_first_chunk() else { return };
    let image = &image[..image.len().min(ROOM)];
    let header = usize::from(u16::from_le_bytes([h0, h1]));
    let pc = usize::from(u16::from_le_bytes([p0, p1]));
    looked_up(image, room(), header, pc);
    looked_up(image, room() + ROOM - image.len(), header, pc);
}
