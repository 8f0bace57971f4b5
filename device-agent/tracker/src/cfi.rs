//! Unwind rules from `.eh_frame`, for one address at a time: DWARF 5 §6.4 and `.eh_frame_hdr` of the LSB, for the
//! machines of [`crate::arch`].
//!
//! The C library finds the object of an address. The object's `.eh_frame_hdr` leads to the description (FDE) of the
//! function. `instructions` runs the description and its CIE up to the address, and `row` turns the result into a
//! [`Rule`].
//!
//! The input is not trusted: every read is bounded by its record or module, and every loop by the bytes it consumes.
//! Anything not understood becomes [`Rule::Unknown`], and the stack is cut there.
#![cfg_attr(
    not(test),
    expect(
        clippy::arithmetic_side_effects,
        reason = "shifts and depths that are checked before, addresses that are"
    )
)]

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ops::Range;
use core::ptr;

mod instructions;
mod reader;
mod row;

use self::instructions::{Machine, NESTED};
use self::reader::Reader;
use self::row::{CfaState, FpState, RaState, Row};
use crate::arch::{Arch, Native};
pub use crate::rule::{Cfa, Return, Rule, SavedFp};

/// A loaded object with unwind tables.
#[derive(Debug, Clone, Copy)]
pub struct Object {
    /// First mapped address.
    pub start: usize,
    /// First address after it.
    pub end: usize,
    /// Address of its `.eh_frame_hdr`.
    pub eh_frame_hdr: usize,
}

/// glibc's `struct dl_find_object` (since 2.35), with room to spare.
#[repr(C)]
struct DlFindObject {
    flags: u64,
    map_start: *mut c_void,
    map_end: *mut c_void,
    link_map: *mut c_void,
    eh_frame: *mut c_void,
    reserved: [u64; 16],
}

/// glibc's lock-free, async-signal-safe lookup `_dl_find_object`.
pub type FindObject = unsafe extern "C" fn(*mut c_void, *mut c_void) -> i32;

/// Scratch memory for one lookup. A hook passes mapped memory of its thread, because this would be a large part of the
/// guest stack that a hook may use. Nothing in it outlives the lookup, so any bytes are valid.
#[repr(C)]
pub struct Room {
    found: MaybeUninit<DlFindObject>,
    cie: MaybeUninit<Cie>,
    rows: [MaybeUninit<Row>; 3 + NESTED],
}

impl Room {
    /// Scratch memory for one lookup.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            found: MaybeUninit::uninit(),
            cie: MaybeUninit::uninit(),
            rows: [const { MaybeUninit::uninit() }; 3 + NESTED],
        }
    }
}

impl Default for Room {
    fn default() -> Self {
        Self::new()
    }
}

/// Asks the C library which object `pc` lies in.
#[must_use]
pub fn find_object(find: FindObject, pc: usize, room: &mut Room) -> Option<Object> {
    let found = room.found.write(DlFindObject {
        flags: 0,
        map_start: ptr::null_mut(),
        map_end: ptr::null_mut(),
        link_map: ptr::null_mut(),
        eh_frame: ptr::null_mut(),
        reserved: [0; 16],
    });
    // SAFETY: the function writes at most the structure, which is larger than the one it knows.
    let status = unsafe { find(pc as *mut c_void, ptr::from_mut(found).cast()) };
    if status != 0 || found.eh_frame.is_null() {
        return None;
    }
    Some(Object {
        start: found.map_start as usize,
        end: found.map_end as usize,
        eh_frame_hdr: found.eh_frame as usize,
    })
}

/// The rule at `pc` (an address inside the instruction, that is: return address - 1).
#[must_use]
pub fn rule(object: &Object, pc: usize, room: &mut Room) -> Rule {
    rule_on::<Native>(object, pc, room)
}

/// [`rule`] for code of any machine.
fn rule_on<M: Arch>(object: &Object, pc: usize, room: &mut Room) -> Rule {
    lookup::<M>(object, pc, room).unwrap_or(Rule::Unknown)
}

fn lookup<M: Arch>(object: &Object, pc: usize, room: &mut Room) -> Option<Rule> {
    let Room { cie, rows, .. } = room;
    let found = description(object, pc, cie).filter(|(_, _, range)| range.contains(&(pc as u64)));
    let Some((mut fde, cie, Range { start, .. })) = found else {
        // The address lies after every described function and directly before the entry of the next one. No call
        // returns there, but a stack that was made by hand begins there (`makecontext` leaves the address of glibc's
        // `__start_context`).
        let entry = description(object, pc.checked_add(1)?, &mut room.cie)?.2.start;
        return (entry == pc as u64 + 1).then_some(Rule::End);
    };
    if cie.augmented {
        let n = fde.uleb()?;
        fde.skip(n)?;
    }
    let [called, row, initial, saved @ ..] = rows;
    let called = called.write(Row { cfa: CfaState::None, fp: FpState::Same, ra: RaState::At(M::CALLED) });
    let row = row.write(*called);
    Machine { cie, location: start, wanted: u64::MAX, row, initial: called, saved }
        .run::<M>(cie.instructions)?;
    let initial = initial.write(*row);
    Machine { cie, location: start, wanted: pc as u64, row, initial, saved }.run::<M>(fde)?;
    Some(row.rule::<M>(cie.signal))
}

/// The last FDE that begins at `pc` or before (the reader is after its range), its CIE, and the range.
#[inline(never)]
fn description<'a>(
    object: &Object,
    pc: usize,
    cie: &'a mut MaybeUninit<Cie>,
) -> Option<(Reader, &'a Cie, Range<u64>)> {
    let (mut fde, at) = record(object, search(object, pc)?)?;
    let back = fde.u32()?;
    let above = at.checked_add(4)?.checked_sub(back as usize).filter(|&c| back != 0 && c >= object.start)?;
    let cie = parse_cie(record(object, above)?.0, cie)?;
    let start = fde.pointer(cie.encoding, 0)?;
    let range = fde.pointer(cie.encoding & 0x0f, 0)?;
    Some((fde, cie, start..start.checked_add(range)?))
}

/// Binary search in `.eh_frame_hdr`: address of the FDE that may cover `pc`.
// Not inlined, like `parse_cie`: its stack is released before the deepest call.
#[inline(never)]
fn search(object: &Object, pc: usize) -> Option<usize> {
    let mut header = Reader { at: object.eh_frame_hdr, end: object.end };
    let [version, frame_encoding, count_encoding, table_encoding] = header.bytes::<4>()?;
    // 0x3b: sdata4 relative to the header, the only form linkers write.
    if version != 1 || table_encoding != 0x3b {
        return None;
    }
    header.pointer(frame_encoding, object.eh_frame_hdr)?;
    let count = usize::try_from(header.pointer(count_encoding, object.eh_frame_hdr)?).ok()?;
    let table = header.at;
    table.checked_add(count.checked_mul(8)?).filter(|&end| end <= object.end)?;
    let entry = |i: usize| {
        let mut r = Reader { at: table + i * 8, end: object.end };
        let (location, fde) = (r.u32()?.cast_signed(), r.u32()?.cast_signed());
        Some((
            object.eh_frame_hdr.wrapping_add_signed(location as isize),
            object.eh_frame_hdr.wrapping_add_signed(fde as isize),
        ))
    };
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if entry(middle)?.0 <= pc { low = middle + 1 } else { high = middle }
    }
    let (_, fde) = entry(low.checked_sub(1)?)?;
    (object.start..object.end).contains(&fde).then_some(fde)
}

/// The body of a CIE or FDE (after its length) and the address it begins at.
fn record(object: &Object, at: usize) -> Option<(Reader, usize)> {
    let mut r = Reader { at, end: object.end };
    let length = r.u32()?;
    // 0: terminator; 0xffffffff: 64-bit records, which no linker writes here.
    if length == 0 || length == u32::MAX {
        return None;
    }
    Some((r.skip(u64::from(length))?, at))
}

struct Cie {
    code_align: u64,
    data_align: i64,
    encoding: u8,
    augmented: bool,
    signal: bool,
    instructions: Reader,
}

#[inline(never)]
fn parse_cie(mut r: Reader, into: &mut MaybeUninit<Cie>) -> Option<&Cie> {
    if r.u32()? != 0 {
        return None;
    }
    let version = r.u8()?;
    let mut letters = r;
    while r.u8()? != 0 {}
    let code_align = r.uleb()?;
    let data_align = r.sleb()?;
    if version == 1 {
        u64::from(r.u8()?)
    } else {
        r.uleb()?
    };
    let cie = into.write(Cie {
        code_align,
        data_align,
        encoding: 0,
        augmented: false,
        signal: false,
        instructions: r,
    });
    if letters.u8()? == b'z' {
        cie.augmented = true;
        let n = r.uleb()?;
        let mut data = r.skip(n)?;
        loop {
            match letters.u8()? {
                0 => break,
                b'R' => cie.encoding = data.u8()?,
                b'L' => drop(data.u8()?),
                b'P' => {
                    let encoding = data.u8()? & 0x7f;
                    data.pointer(encoding, 0)?;
                }
                b'S' => cie.signal = true,
                b'B' | b'G' => {}
                _ => return None,
            }
        }
        cie.instructions = r;
    }
    Some(cie)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::arch::aarch64::Aarch64;
    use crate::arch::x86_64::X86_64;

    unsafe extern "C" {
        fn _dl_find_object(pc: *mut c_void, out: *mut c_void) -> i32;
    }

    #[test]
    fn compiled_functions_have_a_rule_and_data_has_none() {
        let pc = compiled_functions_have_a_rule_and_data_has_none as fn() as usize + 1;
        let object = find_object(_dl_find_object, pc, &mut Room::new()).unwrap();
        assert!(matches!(rule(&object, pc, &mut Room::new()), Rule::Frame { .. }));
        assert_eq!(rule(&object, object.start, &mut Room::new()), Rule::Unknown);
        assert!(find_object(_dl_find_object, 16, &mut Room::new()).is_none());
    }

    #[test]
    fn a_garbage_header_is_no_rule() {
        let garbage = [0xff_u8; 256];
        let start = garbage.as_ptr() as usize;
        for at in 0..200 {
            let object = Object { start, end: start + 256, eh_frame_hdr: start + at };
            assert_eq!(rule(&object, start + 5, &mut Room::new()), Rule::Unknown);
        }
    }

    /// The tables of an object with one function. `cie` is the CIE from its version on, `instructions` those of the
    /// function.
    fn tables(cie: &[u8], instructions: &[u8]) -> Vec<u8> {
        let word = |from: usize, to: usize| (to as u32).wrapping_sub(from as u32).to_le_bytes();
        let record = |image: &mut Vec<u8>, id: [u8; 4], body: &[u8]| {
            image.extend((body.len() as u32 + 4).to_le_bytes());
            image.extend([&id, body].concat());
        };
        let mut image = Vec::new();
        record(&mut image, [0; 4], cie);
        let fde = image.len();
        // Covers [FUNCTION, FUNCTION + 32).
        let body = [&word(fde + 8, FUNCTION)[..], &32_u32.to_le_bytes(), &[0], instructions].concat();
        record(&mut image, word(0, fde + 4), &body);
        assert!(image.len() <= HEADER);
        image.resize(HEADER, 0);
        image.extend([1, 0x1b, 0x03, 0x3b, 0, 0, 0, 0]);
        image.extend([1_u32.to_le_bytes(), word(HEADER, FUNCTION), word(HEADER, fde)].concat());
        image
    }
    const FUNCTION: usize = 64;
    const HEADER: usize = 100;

    /// The rule at an offset in such an object.
    fn rule_in<M: Arch>(image: &[u8], at: usize) -> Rule {
        let start = image.as_ptr() as usize;
        let object = Object { start, end: start + image.len(), eh_frame_hdr: start + HEADER };
        rule_on::<M>(&object, start + at, &mut Room::new())
    }

    /// Every bit of the first 40 bytes is flipped in turn: the lookup gives a rule or none, without a fault or a hang.
    #[test]
    fn damaged_records_end_in_some_rule() {
        // version 1, "zR", code 1, data -8, ra 16, 1 byte: encoding 0x1b, def_cfa rsp 8; advance 4,
        // def_cfa_offset 16
        let cie = [1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8];
        let mut image = tables(&cie, &[0x44, 0x0e, 16]);
        let rule = rule_in::<X86_64>;
        let frame = |n| Rule::Frame { cfa: Cfa::Sp(n), fp: SavedFp::Same, ra: Return::AtCfa(-8) };
        assert_eq!(rule(&image, FUNCTION + 1), frame(8));
        assert_eq!(rule(&image, FUNCTION + 6), frame(16));
        assert_eq!(rule(&image, FUNCTION + 32), Rule::Unknown);
        // A return address that is a function's entry, without a described function before it: a stack made by hand
        // begins there.
        assert_eq!(rule(&image, FUNCTION - 1), Rule::End);
        assert_eq!(rule(&image, FUNCTION - 2), Rule::Unknown);
        let mut changed = 0;
        for bit in 0..40 * 8 {
            image[bit / 8] ^= 1 << (bit % 8);
            changed += u32::from(rule(&image, FUNCTION + 6) != frame(16));
            image[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(changed > 50, "{changed}");
    }

    #[test]
    fn functions_of_aarch64_say_where_they_saved_the_return_address() {
        // version 1, "zR", code 4, data -8, ra x30, 1 byte: encoding 0x1b, def_cfa sp 0
        let cie = [1, b'z', b'R', 0, 4, 0x78, 30, 1, 0x1b, 0x0c, 31, 0];
        let at =
            |instructions: &[u8], place| rule_in::<Aarch64>(&tables(&cie, instructions), FUNCTION + place);
        let frame = |cfa, fp, ra| Rule::Frame { cfa, fp: SavedFp::AtCfa(fp), ra: Return::AtCfa(ra) };
        let entry = Rule::Frame { cfa: Cfa::Sp(0), fp: SavedFp::Same, ra: Return::InLink };
        // paciasp: negate_ra_state; stp x29, x30, [sp, -32]!: def_cfa_offset 32, x29 at -32, x30 at
        // -24; mov x29, sp: def_cfa_register x29; ldp x29, x30, [sp], 32: restored, def_cfa sp 0;
        // autiasp: negate_ra_state
        let signs =
            [0x41, 0x2d, 0x41, 0x0e, 32, 0x9d, 4, 0x9e, 3, 0x41, 0x0d, 29, 0x42, 0xde, 0xdd, 0x0c, 31]
                .into_iter()
                .chain([0, 0x41, 0x2d])
                .collect::<Vec<u8>>();
        for (place, want) in [
            (0, entry),
            (4, entry),
            (8, frame(Cfa::Sp(32), -32, -24)),
            (12, frame(Cfa::Fp(32), -32, -24)),
            (19, frame(Cfa::Fp(32), -32, -24)),
            (20, entry),
            (24, entry),
        ] {
            assert_eq!(at(&signs, place), want, "{place}");
        }
        // str x30, [sp, -16]!
        let alone = Rule::Frame { cfa: Cfa::Sp(16), fp: SavedFp::Same, ra: Return::AtCfa(-16) };
        assert_eq!(at(&[0x41, 0x0e, 16, 0x9e, 2], 4), alone);
        // A thread's first function has no caller. A function that moved x30 to x15 is not followed, nor is a CFA from
        // another register.
        assert_eq!(at(&[0x07, 30], 0), Rule::End);
        assert_eq!(at(&[0x09, 30, 15], 0), Rule::Unknown);
        assert_eq!(at(&[0x0c, 12, 16], 0), Rule::Unknown);
        // The signal trampoline of old kernels does not describe the interrupted instruction.
        let signal = [1, b'z', b'R', b'S', 0, 4, 0x78, 30, 1, 0x1b, 0x0c, 29, 0];
        assert_eq!(rule_in::<Aarch64>(&tables(&signal, &[0x9d, 0, 0x9e, 1]), FUNCTION), Rule::Unknown);
        // An instruction of one machine is not understood on the other.
        let cie = [1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8];
        assert_eq!(rule_in::<X86_64>(&tables(&cie, &[0x2d]), FUNCTION), Rule::Unknown);
    }
}
