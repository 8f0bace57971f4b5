//! A row of unwind rules, and its conversion to a rule that the walk can follow.

use super::reader::Reader;
use crate::arch::Arch;
use crate::rule::{Cfa, Return, Rule, SavedFp};

#[derive(Clone, Copy)]
pub(super) enum CfaState {
    None,
    Register(u64, i64),
    Expression(Reader),
}

#[derive(Clone, Copy)]
pub(super) enum FpState {
    Same,
    AtCfa(i64),
    Expression(Reader),
    Lost,
}

#[derive(Clone, Copy)]
pub(super) enum RaState {
    At(Return),
    Expression(Reader),
    Undefined,
    Lost,
}

/// How to find the caller's registers at one address: a row of the table that the instructions of a function build.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) cfa: CfaState,
    pub(super) fp: FpState,
    pub(super) ra: RaState,
}

impl Row {
    /// The rule of this row. `signal`: the row belongs to a signal trampoline.
    pub(super) fn rule<M: Arch>(&self, signal: bool) -> Rule {
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

    /// The rule of glibc's `__restore_rt`: every register lies at a fixed offset from sp, in the kernel's `sigcontext`.
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

/// Only `DW_OP_bregN offset`.
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
