//! Runs call frame instructions (DWARF 5 §6.4.2) up to the row of one address.

use core::mem::MaybeUninit;

use super::Cie;
use super::reader::Reader;
use super::row::{CfaState, FpState, RaState, Row};
use crate::arch::Arch;
use crate::rule::Return;

/// Maximum depth of remembered rows.
pub(super) const NESTED: usize = 3;

/// The `DW_CFA_*` numbers of DWARF 5, table 7.29, and GNU's.
mod op {
    pub(super) const NOP: u8 = 0x00;
    pub(super) const SET_LOC: u8 = 0x01;
    pub(super) const ADVANCE_LOC1: u8 = 0x02;
    pub(super) const ADVANCE_LOC2: u8 = 0x03;
    pub(super) const ADVANCE_LOC4: u8 = 0x04;
    pub(super) const OFFSET_EXTENDED: u8 = 0x05;
    pub(super) const RESTORE_EXTENDED: u8 = 0x06;
    pub(super) const UNDEFINED: u8 = 0x07;
    pub(super) const SAME_VALUE: u8 = 0x08;
    pub(super) const REGISTER: u8 = 0x09;
    pub(super) const REMEMBER_STATE: u8 = 0x0a;
    pub(super) const RESTORE_STATE: u8 = 0x0b;
    pub(super) const DEF_CFA: u8 = 0x0c;
    pub(super) const DEF_CFA_REGISTER: u8 = 0x0d;
    pub(super) const DEF_CFA_OFFSET: u8 = 0x0e;
    pub(super) const DEF_CFA_EXPRESSION: u8 = 0x0f;
    pub(super) const EXPRESSION: u8 = 0x10;
    pub(super) const OFFSET_EXTENDED_SF: u8 = 0x11;
    pub(super) const DEF_CFA_SF: u8 = 0x12;
    pub(super) const DEF_CFA_OFFSET_SF: u8 = 0x13;
    pub(super) const VAL_OFFSET: u8 = 0x14;
    pub(super) const VAL_OFFSET_SF: u8 = 0x15;
    pub(super) const VAL_EXPRESSION: u8 = 0x16;
    pub(super) const GNU_ARGS_SIZE: u8 = 0x2e;
    /// `ADVANCE_LOC`, `OFFSET` and `RESTORE` hold their first operand in the lower six bits.
    pub(super) const ADVANCE_LOC: u8 = 0x40;
    pub(super) const ADVANCE_LOC_LAST: u8 = 0x7f;
    pub(super) const OFFSET: u8 = 0x80;
    pub(super) const OFFSET_LAST: u8 = 0xbf;
    pub(super) const RESTORE: u8 = 0xc0;
    pub(super) const RESTORE_LAST: u8 = 0xff;
    pub(super) const OPERAND: u8 = 0x3f;
}

/// Runs the instructions of a CIE, or of one of its functions.
pub(super) struct Machine<'a> {
    pub(super) cie: &'a Cie,
    /// Start address of `row`.
    pub(super) location: u64,
    /// The address whose row is wanted; `u64::MAX`: the last row.
    pub(super) wanted: u64,
    pub(super) row: &'a mut Row,
    /// The row after the CIE's instructions.
    pub(super) initial: &'a Row,
    pub(super) saved: &'a mut [MaybeUninit<Row>; NESTED],
}

impl Machine<'_> {
    /// Runs instructions until `row` is the row of the wanted address; `None`: an instruction is not understood.
    pub(super) fn run<M: Arch>(&mut self, mut r: Reader) -> Option<()> {
        let mut depth = 0_usize;
        while r.at < r.end {
            let code = r.u8()?;
            match code {
                op::NOP => {}
                op::SET_LOC..=op::ADVANCE_LOC4 | op::ADVANCE_LOC..=op::ADVANCE_LOC_LAST => {
                    self.location = self.next_location(code, &mut r)?;
                    if self.location > self.wanted {
                        return Some(());
                    }
                }
                op::REMEMBER_STATE => {
                    self.saved.get_mut(depth)?.write(*self.row);
                    depth += 1;
                }
                op::RESTORE_STATE => {
                    depth = depth.checked_sub(1)?;
                    // SAFETY: the rows below `depth` were written in this run.
                    *self.row = unsafe { self.saved.get(depth)?.assume_init() };
                }
                op::DEF_CFA..=op::DEF_CFA_EXPRESSION | op::DEF_CFA_SF | op::DEF_CFA_OFFSET_SF => {
                    self.row.cfa = self.cfa(code, &mut r)?;
                }
                op::OFFSET_EXTENDED..=op::REGISTER
                | op::EXPRESSION
                | op::OFFSET_EXTENDED_SF
                | op::VAL_OFFSET..=op::VAL_EXPRESSION
                | op::OFFSET..=op::RESTORE_LAST => self.define_register::<M>(code, &mut r)?,
                op::GNU_ARGS_SIZE => drop(r.uleb()?),
                _ if M::IGNORED.contains(&code) => {}
                _ => return None,
            }
        }
        Some(())
    }

    /// Start address of the next row.
    fn next_location(&self, code: u8, r: &mut Reader) -> Option<u64> {
        let delta = match code {
            op::SET_LOC => return r.pointer(self.cie.encoding, 0),
            op::ADVANCE_LOC1 => u64::from(r.u8()?),
            op::ADVANCE_LOC2 => u64::from(r.u16()?),
            op::ADVANCE_LOC4 => u64::from(r.u32()?),
            _ => u64::from(code & op::OPERAND),
        };
        Some(self.location.saturating_add(delta.saturating_mul(self.cie.code_align)))
    }

    /// The new definition of the CFA.
    fn cfa(&self, code: u8, r: &mut Reader) -> Option<CfaState> {
        if code == op::DEF_CFA_EXPRESSION {
            return expression(r).map(CfaState::Expression);
        }
        let register = match (code, self.row.cfa) {
            (op::DEF_CFA | op::DEF_CFA_SF | op::DEF_CFA_REGISTER, _) => r.uleb()?,
            (_, CfaState::Register(register, _)) => register,
            _ => return None,
        };
        let offset = match (code, self.row.cfa) {
            (op::DEF_CFA | op::DEF_CFA_OFFSET, _) => i64::try_from(r.uleb()?).ok()?,
            (op::DEF_CFA_SF | op::DEF_CFA_OFFSET_SF, _) => self.signed_offset(r)?,
            (_, CfaState::Register(_, offset)) => offset,
            _ => return None,
        };
        Some(CfaState::Register(register, offset))
    }

    /// Sets where the caller's value of one register is. Only the frame pointer and the return address are kept;
    /// operands of other registers are read and dropped.
    fn define_register<M: Arch>(&mut self, code: u8, r: &mut Reader) -> Option<()> {
        let register = match code {
            op::OFFSET..=op::RESTORE_LAST => u64::from(code & op::OPERAND),
            _ => r.uleb()?,
        };
        let at_cfa = |offset| (FpState::AtCfa(offset), RaState::At(Return::AtCfa(offset)));
        let (fp, ra) = match code {
            op::OFFSET..=op::OFFSET_LAST | op::OFFSET_EXTENDED => at_cfa(self.unsigned_offset(r)?),
            op::OFFSET_EXTENDED_SF => at_cfa(self.signed_offset(r)?),
            op::RESTORE..=op::RESTORE_LAST | op::RESTORE_EXTENDED => (self.initial.fp, self.initial.ra),
            op::UNDEFINED => (FpState::Same, RaState::Undefined),
            op::SAME_VALUE if M::RA_ANYWHERE => (FpState::Same, RaState::At(Return::InLink)),
            op::SAME_VALUE => (FpState::Same, self.row.ra),
            op::EXPRESSION => {
                let e = expression(r)?;
                (FpState::Expression(e), RaState::Expression(e))
            }
            _ => {
                match code {
                    op::REGISTER | op::VAL_OFFSET => drop(r.uleb()?),
                    op::VAL_OFFSET_SF => drop(r.sleb()?),
                    _ => drop(expression(r)?),
                }
                (FpState::Lost, RaState::Lost)
            }
        };
        if register == M::FP {
            self.row.fp = fp;
        } else if register == M::RA {
            self.row.ra = ra;
        }
        Some(())
    }

    fn unsigned_offset(&self, r: &mut Reader) -> Option<i64> {
        i64::try_from(r.uleb()?).ok()?.checked_mul(self.cie.data_align)
    }

    fn signed_offset(&self, r: &mut Reader) -> Option<i64> {
        r.sleb()?.checked_mul(self.cie.data_align)
    }
}

/// A DWARF expression: its length, then its bytes.
fn expression(r: &mut Reader) -> Option<Reader> {
    let length = r.uleb()?;
    r.skip(length)
}
