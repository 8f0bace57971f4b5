//! Unwind rules from `.eh_frame`, for one address at a time: DWARF 5 §6.4 and the LSB's
//! `.eh_frame_hdr`, for the machines of [`crate::arch`].
//!
//! Nothing here trusts its input: every read is bounded by the record or module it belongs to,
//! every loop by the bytes it consumes. What is not understood is [`Rule::Unknown`], and the stack
//! is cut there.
#![cfg_attr(
    not(test),
    expect(
        clippy::arithmetic_side_effects,
        reason = "shifts and depths that are checked before, addresses that are"
    )
)]

use core::ffi::c_void;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ops::Range;
use core::ptr;

use crate::arch::{Arch, Native};
pub use crate::rule::{Cfa, Return, Rule, SavedFp};

/// A loaded object with unwind tables.
#[derive(Debug, Clone, Copy)]
pub struct Object {
    /// First mapped address.
    pub start: usize,
    /// First address after it.
    pub end: usize,
    /// Its `.eh_frame_hdr`.
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

/// Room for one lookup. A hook passes mapped memory of its thread, because on the guest's stack
/// this would be a large part of what a hook may use. Nothing in it outlives the lookup, so any
/// bytes are valid.
#[repr(C)]
pub struct Room {
    found: MaybeUninit<DlFindObject>,
    cie: MaybeUninit<Cie>,
    rows: [MaybeUninit<State>; 3 + NESTED],
}

impl Room {
    /// Room for one lookup.
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

/// Reads inside mapped memory of one object.
#[derive(Clone, Copy)]
struct Reader {
    at: usize,
    end: usize,
}

impl Reader {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let next = self.at.checked_add(N).filter(|&n| n <= self.end)?;
        // SAFETY: [at, next) lies in the mapped object the reader was made for.
        let value = unsafe { (self.at as *const [u8; N]).read_unaligned() };
        self.at = next;
        Some(value)
    }
    fn u8(&mut self) -> Option<u8> {
        self.bytes::<1>().map(|[b]| b)
    }
    fn u16(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_le_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }
    fn uleb(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0_u64, 0_u32);
        loop {
            let byte = self.u8()?;
            if shift < 64 {
                value |= u64::from(byte & 0x7f) << shift;
            }
            shift += 7;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
    }
    #[expect(clippy::cast_possible_wrap, reason = "two's complement is what LEB128 encodes")]
    fn sleb(&mut self) -> Option<i64> {
        let (mut value, mut shift) = (0_u64, 0_u32);
        loop {
            let byte = self.u8()?;
            if shift < 64 {
                value |= u64::from(byte & 0x7f) << shift;
            }
            shift += 7;
            if byte & 0x80 == 0 {
                if shift < 64 && byte & 0x40 != 0 {
                    value |= u64::MAX << shift;
                }
                return Some(value as i64);
            }
        }
    }
    /// A DW_EH_PE-encoded pointer; indirect ones are not followed (only personality routines use
    /// them).
    #[expect(clippy::cast_sign_loss, reason = "signed offsets are added modulo 2^64")]
    fn pointer(&mut self, encoding: u8, data_base: usize) -> Option<u64> {
        if encoding == 0xff {
            return Some(0);
        }
        let here = self.at as u64;
        let value = match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => self.u64()?,
            0x01 => self.uleb()?,
            0x09 => self.sleb()? as u64,
            0x02 => u64::from(self.u16()?),
            0x0a => self.u16()?.cast_signed() as i64 as u64,
            0x03 => u64::from(self.u32()?),
            0x0b => self.u32()?.cast_signed() as i64 as u64,
            _ => return None,
        };
        Some(match encoding & 0x70 {
            0x00 => value,
            0x10 => value.wrapping_add(here),
            0x30 => value.wrapping_add(data_base as u64),
            _ => return None,
        })
    }
    fn skip(&mut self, bytes: u64) -> Option<Self> {
        let end = self.at.checked_add(usize::try_from(bytes).ok()?).filter(|&n| n <= self.end)?;
        let skipped = Self { at: self.at, end };
        self.at = end;
        Some(skipped)
    }
}

/// The rule at `pc` (an address inside the instruction, that is: return address - 1).
#[must_use]
pub fn rule(object: &Object, pc: usize, room: &mut Room) -> Rule {
    rule_on::<Native>(object, pc, room)
}

/// The same, of code for any machine.
fn rule_on<M: Arch>(object: &Object, pc: usize, room: &mut Room) -> Rule {
    lookup::<M>(object, pc, room).unwrap_or(Rule::Unknown)
}

fn lookup<M: Arch>(object: &Object, pc: usize, room: &mut Room) -> Option<Rule> {
    let Room { cie, rows, .. } = room;
    let found = description(object, pc, cie).filter(|(_, _, range)| range.contains(&(pc as u64)));
    let Some((mut fde, cie, Range { start, .. })) = found else {
        // Behind every described function, at the entry of the next one: no call returns there. It
        // is where a stack that was made by hand begins (`makecontext` leaves the address of
        // glibc's `__start_context`).
        let entry = description(object, pc.checked_add(1)?, &mut room.cie)?.2.start;
        return (entry == pc as u64 + 1).then_some(Rule::End);
    };
    if cie.augmented {
        let n = fde.uleb()?;
        fde.skip(n)?;
    }
    let [initial, state, after_cie, saved @ ..] = rows;
    let initial = initial.write(State { cfa: CfaState::None, fp: FpState::Same, ra: RaState::At(M::CALLED) });
    let state = state.write(*initial);
    let mut machine = Machine::<M> { cie, location: start, pc: pc as u64, kind: PhantomData };
    machine.run(cie.instructions, state, initial, saved, true)?;
    let after_cie = after_cie.write(*state);
    machine.location = start;
    machine.run(fde, state, after_cie, saved, false)?;
    Some(state.rule::<M>(cie.signal))
}

/// The last FDE that begins at `pc` or before (what stands after its range), its CIE, and the
/// range.
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
// Not inlined, as `parse_cie`: what it needs of the stack is given back before the deepest call.
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

#[derive(Clone, Copy)]
enum CfaState {
    None,
    Register(u64, i64),
    Expression(Reader),
}

#[derive(Clone, Copy)]
enum FpState {
    Same,
    AtCfa(i64),
    Expression(Reader),
    Lost,
}

#[derive(Clone, Copy)]
enum RaState {
    At(Return),
    Expression(Reader),
    Undefined,
    Lost,
}

#[derive(Clone, Copy)]
struct State {
    cfa: CfaState,
    fp: FpState,
    ra: RaState,
}

impl State {
    fn rule<M: Arch>(&self, signal: bool) -> Rule {
        let ra = match self.ra {
            RaState::Undefined => return Rule::End,
            RaState::Expression(ra) => return self.signal_rule::<M>(signal, ra).unwrap_or(Rule::Unknown),
            RaState::At(ra) if !signal && (M::RA_ANYWHERE || ra == M::CALLED) => ra,
            _ => return Rule::Unknown,
        };
        let cfa = match self.cfa {
            CfaState::Register(register, offset) if register == M::SP => Cfa::Sp(offset),
            CfaState::Register(register, offset) if register == M::FP => Cfa::Fp(offset),
            CfaState::Expression(e) => match (deref_of(e, M::FP), plt::<M>(e)) {
                (Some(offset), _) => Cfa::AtFp(offset),
                (_, Some(from)) => return Rule::Plt { from },
                _ => return Rule::Unknown,
            },
            _ => return Rule::Unknown,
        };
        let fp = match self.fp {
            FpState::Same => SavedFp::Same,
            FpState::AtCfa(offset) => SavedFp::AtCfa(offset),
            FpState::Expression(e) => match offset_from(e, M::FP) {
                Some(offset) => SavedFp::AtFp(offset),
                None => return Rule::Unknown,
            },
            FpState::Lost => return Rule::Unknown,
        };
        Rule::Frame { cfa, fp, ra }
    }

    /// glibc's `__restore_rt`: every register lies at a fixed offset from sp, in the kernel's
    /// `sigcontext`.
    fn signal_rule<M: Arch>(&self, signal: bool, ra: Reader) -> Option<Rule> {
        let (CfaState::Expression(cfa), FpState::Expression(fp)) = (self.cfa, self.fp) else {
            return None;
        };
        if !signal {
            return None;
        }
        Some(Rule::Signal {
            sp: deref_of(cfa, M::SP)?,
            fp: offset_from(fp, M::SP)?,
            ra: offset_from(ra, M::SP)?,
        })
    }
}

/// `DW_OP_bregN offset` alone.
fn offset_from(mut e: Reader, register: u64) -> Option<i64> {
    let offset = breg(&mut e, register)?;
    (e.at == e.end).then_some(offset)
}

/// `DW_OP_bregN offset; DW_OP_deref`.
fn deref_of(mut e: Reader, register: u64) -> Option<i64> {
    let offset = breg(&mut e, register)?;
    (e.u8()? == 0x06 && e.at == e.end).then_some(offset)
}

fn breg(e: &mut Reader, register: u64) -> Option<i64> {
    (u64::from(e.u8()?) == 0x70 + register).then_some(())?;
    e.sleb()
}

/// The linker's rule for PLT entries: sp+8 + ((ra & 15) >= n) * 8.
fn plt<M: Arch>(mut e: Reader) -> Option<u8> {
    if breg(&mut e, M::SP)? != 8 || breg(&mut e, M::RA)? != 0 {
        return None;
    }
    // lit15 and litN ge lit3 shl plus
    let [mask, and, lit, rest @ ..] = e.bytes::<7>()?;
    ([mask, and] == [0x3f, 0x1a] && rest == [0x2a, 0x33, 0x24, 0x22] && (0x30..=0x3f).contains(&lit))
        .then(|| lit - 0x30)
}

/// Rows that call frame instructions may have put aside at a time.
const NESTED: usize = 3;

struct Machine<'a, M> {
    cie: &'a Cie,
    location: u64,
    pc: u64,
    kind: PhantomData<M>,
}

impl<M: Arch> Machine<'_, M> {
    /// Runs call frame instructions up to the row of `pc`. `whole`: the CIE's, which hold for all
    /// rows.
    fn run(
        &mut self,
        mut r: Reader,
        s: &mut State,
        initial: &State,
        saved: &mut [MaybeUninit<State>; NESTED],
        whole: bool,
    ) -> Option<()> {
        let mut depth = 0_usize;
        while r.at < r.end {
            let op = r.u8()?;
            let low = u64::from(op & 0x3f);
            match op >> 6 {
                1 => {
                    if self.advance(low) && !whole {
                        return Some(());
                    }
                    continue;
                }
                2 => {
                    let offset = self.scaled(r.uleb()?)?;
                    Self::save(s, low, offset);
                    continue;
                }
                3 => {
                    Self::restore(s, initial, low);
                    continue;
                }
                _ => {}
            }
            match op {
                0x00 => {}
                0x01 => {
                    self.location = r.pointer(self.cie.encoding, 0)?;
                    if self.location > self.pc && !whole {
                        return Some(());
                    }
                }
                0x02..=0x04 => {
                    let delta = match op {
                        0x02 => u64::from(r.u8()?),
                        0x03 => u64::from(r.u16()?),
                        _ => u64::from(r.u32()?),
                    };
                    if self.advance(delta) && !whole {
                        return Some(());
                    }
                }
                0x05 => {
                    let register = r.uleb()?;
                    let offset = self.scaled(r.uleb()?)?;
                    Self::save(s, register, offset);
                }
                0x06 => Self::restore(s, initial, r.uleb()?),
                0x07 => match r.uleb()? {
                    n if n == M::RA => s.ra = RaState::Undefined,
                    n if n == M::FP => s.fp = FpState::Same,
                    _ => {}
                },
                0x08 => match r.uleb()? {
                    n if n == M::RA && M::RA_ANYWHERE => s.ra = RaState::At(Return::InLink),
                    n if n == M::FP => s.fp = FpState::Same,
                    _ => {}
                },
                0x09 => {
                    let (register, _) = (r.uleb()?, r.uleb()?);
                    Self::lose(s, register);
                }
                0x0a => {
                    saved.get_mut(depth)?.write(*s);
                    depth += 1;
                }
                0x0b => {
                    depth = depth.checked_sub(1)?;
                    // SAFETY: those below `depth` were written in this run.
                    *s = unsafe { saved.get(depth)?.assume_init() };
                }
                0x0c => s.cfa = CfaState::Register(r.uleb()?, i64::try_from(r.uleb()?).ok()?),
                0x0d => {
                    let CfaState::Register(_, offset) = s.cfa else { return None };
                    s.cfa = CfaState::Register(r.uleb()?, offset);
                }
                0x0e => {
                    let CfaState::Register(register, _) = s.cfa else { return None };
                    s.cfa = CfaState::Register(register, i64::try_from(r.uleb()?).ok()?);
                }
                0x0f => {
                    let n = r.uleb()?;
                    s.cfa = CfaState::Expression(r.skip(n)?);
                }
                0x10 => {
                    let register = r.uleb()?;
                    let n = r.uleb()?;
                    let e = r.skip(n)?;
                    match register {
                        n if n == M::FP => s.fp = FpState::Expression(e),
                        n if n == M::RA => s.ra = RaState::Expression(e),
                        _ => {}
                    }
                }
                0x11 => {
                    let register = r.uleb()?;
                    let offset = r.sleb()?.checked_mul(self.cie.data_align)?;
                    Self::save(s, register, offset);
                }
                0x12 => s.cfa = CfaState::Register(r.uleb()?, r.sleb()?.checked_mul(self.cie.data_align)?),
                0x13 => {
                    let CfaState::Register(register, _) = s.cfa else { return None };
                    s.cfa = CfaState::Register(register, r.sleb()?.checked_mul(self.cie.data_align)?);
                }
                0x14 | 0x15 => {
                    let register = r.uleb()?;
                    if op == 0x14 {
                        r.uleb().map(drop)?
                    } else {
                        r.sleb().map(drop)?
                    }
                    Self::lose(s, register);
                }
                0x16 => {
                    let register = r.uleb()?;
                    let n = r.uleb()?;
                    r.skip(n)?;
                    Self::lose(s, register);
                }
                0x2e => drop(r.uleb()?),
                _ if M::IGNORED.contains(&op) => {}
                _ => return None,
            }
        }
        Some(())
    }

    /// Moves to the next row; true: it begins after the wanted address.
    fn advance(&mut self, delta: u64) -> bool {
        self.location = self.location.saturating_add(delta.saturating_mul(self.cie.code_align));
        self.location > self.pc
    }

    fn scaled(&self, factored: u64) -> Option<i64> {
        i64::try_from(factored).ok()?.checked_mul(self.cie.data_align)
    }

    fn save(s: &mut State, register: u64, offset: i64) {
        match register {
            n if n == M::FP => s.fp = FpState::AtCfa(offset),
            n if n == M::RA => s.ra = RaState::At(Return::AtCfa(offset)),
            _ => {}
        }
    }

    fn restore(s: &mut State, initial: &State, register: u64) {
        match register {
            n if n == M::FP => s.fp = initial.fp,
            n if n == M::RA => s.ra = initial.ra,
            _ => {}
        }
    }

    fn lose(s: &mut State, register: u64) {
        match register {
            n if n == M::FP => s.fp = FpState::Lost,
            n if n == M::RA => s.ra = RaState::Lost,
            _ => {}
        }
    }
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

    /// The tables of an object with one function: its CIE from the version on, its instructions.
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

    /// The rule at a place of such an object.
    fn rule_in<M: Arch>(image: &[u8], at: usize) -> Rule {
        let start = image.as_ptr() as usize;
        let object = Object { start, end: start + image.len(), eh_frame_hdr: start + HEADER };
        rule_on::<M>(&object, start + at, &mut Room::new())
    }

    /// Tables with every byte of their first record flipped in turn: an answer or none, but no
    /// fault and no hang.
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
        // A return address that is a function's entry, with nothing described before it: a stack
        // made by hand begins there.
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
        // A thread's first function has no caller; one that moved x30 to x15 is not followed; nor
        // is a CFA from another register.
        assert_eq!(at(&[0x07, 30], 0), Rule::End);
        assert_eq!(at(&[0x09, 30, 15], 0), Rule::Unknown);
        assert_eq!(at(&[0x0c, 12, 16], 0), Rule::Unknown);
        // The signal trampoline of old kernels leaves the interrupted instruction out.
        let signal = [1, b'z', b'R', b'S', 0, 4, 0x78, 30, 1, 0x1b, 0x0c, 29, 0];
        assert_eq!(rule_in::<Aarch64>(&tables(&signal, &[0x9d, 0, 0x9e, 1]), FUNCTION), Rule::Unknown);
        // What does not exist on the other machine is not understood there.
        let cie = [1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8];
        assert_eq!(rule_in::<X86_64>(&tables(&cie, &[0x2d]), FUNCTION), Rule::Unknown);
    }
}
