//! A program that ran once and cannot be repeated: what is alive at its exit, and what of this is lost.

use std::collections::BTreeMap;

use memgate_model::{
    Hold, Leak, Level, Metric, OtherHold, Per, Reach, Verdict, format_amount, format_bytes, format_counted,
};
use memgate_wire::SnapshotRecord;

use super::judgement::{Judgement, applied};
use super::leaks;
use super::one_test::TestJudge;
use crate::groups::{Held, OsKind, Places, held};
use crate::input::ProcessInput;
use crate::native_holders::{Holding, lost_by_tests};
use crate::record::{ProcessRecord, Window};
use crate::signature::Place;
use crate::stats::float;

impl TestJudge<'_, '_> {
    /// A program that ran once and cannot be repeated: what its tests lost is a leak. It is unknown whether the rest of
    /// what it leaves would grow with its work.
    pub(super) fn alive_at_exit(&mut self, (process, window): (&ProcessInput, &Window)) {
        let mut places = Places::new(&process.record, self.context.resolve);
        // By stack: a group may also contain blocks of the program, if the same function allocated them.
        let (expected, own): (Vec<SnapshotRecord>, Vec<SnapshotRecord>) =
            window.survivors.iter().copied().partition(|record| is_expected(&places.of(record.stack)));
        let lost = lost_by_place(&own, &lost_by_tests(&process.record, &mut places), &mut places);
        let (expected, own) = (held(&expected, &mut places), held(&own, &mut places));
        let expected = Memory::of(&expected);
        let holding = Holding::new(&process.record, self.context.resolve);
        let (mut unwaived, listed) = (Memory::default(), self.judgement.leaks.len());
        let mut unwaived_lost = Memory::default();
        for group in &own {
            let mut leak = leaks::in_all(group);
            holding.tell(&mut leak, self.context.resolve);
            let lost = lost.get(&group.place.id);
            if let Some((lost, hold)) = lost.zip(leak.hold.as_mut()) {
                tell_lost(hold, lost);
            }
            if lost.is_none() {
                self.judgement.behind.insert(self.context.waivers.id_here(&leak));
            }
            if !self.list(leak, &group.place.names) {
                unwaived.add(group.bytes, group.count);
                if let Some(lost) = lost {
                    unwaived_lost.add(lost.bytes, lost.count);
                }
            }
        }
        let has_lost = self.lost(&unwaived_lost);
        if has_lost {
            unwaived.add(-unwaived_lost.bytes, -unwaived_lost.count);
            if !self.judges_all(&[Metric::NativeLiveBytes, Metric::NativeLiveAllocations]) {
                // Held memory is no reason for the verdict, so it is not among the figures and leaks either.
                self.leave_out(Metric::NativeLiveBytes, unwaived.bytes);
                self.leave_out(Metric::NativeLiveAllocations, unwaived.count);
                let Judgement { leaks, behind, .. } = &mut self.judgement;
                let since = leaks.split_off(listed);
                let is_kept = |leak: &Leak| leak.waiver.is_some() || !behind.contains(&leak.id);
                leaks.extend(since.into_iter().filter(is_kept));
            }
        }
        self.leave_out(Metric::NativeLiveBytes, expected.bytes);
        self.leave_out(Metric::NativeLiveAllocations, expected.count);
        let mut alive = Vec::new();
        if self.is_too_much(Metric::NativeLiveBytes, unwaived.bytes)
            || self.is_too_much(Metric::NativeLiveAllocations, unwaived.count)
        {
            let allocations = format_counted(unwaived.count, "allocation");
            alive.push(format!("{} in {allocations}", format_bytes(unwaived.bytes)));
        } else if !has_lost {
            self.drop_unwaived(listed);
        }
        alive.extend(self.handles_at_exit(&process.record, has_lost));
        if has_lost {
            if !alive.is_empty() {
                let reason = format!("not judged: {} more alive at exit", alive.join(", "));
                self.judgement.remark(reason.clone());
                // In a review, a known loss may be allowed.
                self.judgement.raise(Verdict::Warn, reason);
            }
            return;
        }
        if !alive.is_empty() {
            let reason = format!(
                "not judged: {} alive at exit; to have it judged, write {{n}} for the number in the argument that repeats \
                 its work: `memgate run -- PROGRAM --count={{n}}`, or a suite in memgate.yaml; if its test framework \
                 has no such argument: memgate docs agent",
                alive.join(", ")
            );
            self.judgement.raise(Verdict::Warn, reason);
            return;
        }
        let waived = self.judgement.leaks.iter().filter(|leak| leak.waiver.is_some()).count();
        if waived > 0 {
            self.judgement
                .raise(Verdict::Pass, format!("{} waived", format_counted(float(waived as u64), "leak")));
        }
    }

    /// Judges what tests lost. Returns whether that is above a limit.
    fn lost(&mut self, lost: &Memory) -> bool {
        let figures = [(Metric::NativeLiveBytes, lost.bytes), (Metric::NativeLiveAllocations, lost.count)];
        let exceeded = figures.into_iter().filter_map(|(metric, value)| {
            let limit = applied(&self.thresholds(metric, Per::Iteration), value)?;
            (value > limit.limit).then_some((metric, limit))
        });
        let worst = exceeded.min_by_key(|(_, limit)| limit.level != Level::Fail);
        let Some((metric, limit)) = worst else { return false };
        let reason = format!(
            "{} in {} lost (allowed {}): no pointer to them is left at the end of main",
            format_bytes(lost.bytes),
            format_counted(lost.count, "allocation"),
            format_amount(metric, limit.limit),
        );
        self.judgement.raise(limit.level.verdict(), reason);
        true
    }

    /// Lists mappings, descriptors and threads that the program made and that are still there at its exit. Returns the
    /// amounts above their limits. (A virtual machine keeps such for itself.) If the program `has_lost` memory, they
    /// are neither leaks nor figures of the verdict.
    fn handles_at_exit(&mut self, record: &ProcessRecord, has_lost: bool) -> Vec<String> {
        let is_native = |hello: &memgate_wire::Hello| hello.runtime == memgate_wire::Runtime::Native;
        let Some(end) = record.end.as_ref().filter(|_| record.hello.as_ref().is_some_and(is_native)) else {
            return Vec::new();
        };
        let mut amounts = Vec::new();
        for kind in OsKind::ALL {
            let (mut unwaived, listed) = (0.0, self.judgement.leaks.len());
            for group in leaks::made_until(record, end, kind, self.context) {
                if !self.list(group.leak(), group.frame_names()) {
                    unwaived += group.count;
                }
            }
            let is_too_much = self.is_too_much(kind.metric(), unwaived);
            if is_too_much {
                amounts.push(format_amount(kind.metric(), unwaived));
            }
            let is_left_out = has_lost && !self.judges_all(&[kind.metric()]);
            if is_left_out {
                self.leave_out(kind.metric(), unwaived);
            }
            if is_left_out || !is_too_much {
                self.drop_unwaived(listed);
            }
        }
        amounts
    }

    /// Does a threshold apply to all that one execution leaves?
    fn judges_all(&self, metrics: &[Metric]) -> bool {
        metrics.iter().any(|metric| !self.thresholds(*metric, Per::Test).is_empty())
    }

    /// Removes leaks without a waiver that were listed after the first `listed` ones: together they are within their
    /// limit.
    fn drop_unwaived(&mut self, listed: usize) {
        let since = self.judgement.leaks.split_off(listed);
        self.judgement.leaks.extend(since.into_iter().filter(|leak| leak.waiver.is_some()));
    }

    /// Takes an amount out of a figure: it is no reason for the verdict.
    fn leave_out(&mut self, metric: Metric, amount: f64) {
        let Some(mut figure) = self.judgement.metrics.get(&metric).cloned() else { return };
        for value in [&mut figure.value, &mut figure.low, &mut figure.high] {
            *value = (*value - amount).max(0.0);
        }
        figure.threshold = applied(&self.thresholds(metric, figure.per), figure.low);
        self.judgement.metrics.insert(metric, figure);
    }
}

/// Bytes and blocks of several groups.
#[derive(Debug, Default)]
struct Memory {
    bytes: f64,
    count: f64,
}

impl Memory {
    fn of(groups: &[Held]) -> Self {
        let mut sum = Self::default();
        groups.iter().for_each(|group| sum.add(group.bytes, group.count));
        sum
    }

    fn add(&mut self, bytes: f64, count: f64) {
        self.bytes += bytes;
        self.count += count;
    }
}

/// Adds blocks that are lost to those that `hold` tells already. It tells of each stack only how most blocks are held.
fn tell_lost(hold: &mut Hold, lost: &Memory) {
    let is_lost = |reach: Reach| matches!(reach, Reach::Lost | Reach::LostCycle | Reach::IndirectlyLost);
    let others = hold.others.iter().map(|other| (other.reach, other.blocks));
    let told = [(hold.reach, hold.of_reach)].into_iter().chain(others).filter(|(reach, _)| is_lost(*reach));
    let told = told.map(|(_, blocks)| blocks).fold(0, u64::saturating_add);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of blocks")]
    let more = (lost.count as u64).saturating_sub(told);
    if more == 0 || hold.reach == Reach::NotSearched {
        return;
    }
    if hold.reach == Reach::Lost {
        hold.of_reach = hold.of_reach.saturating_add(more);
    } else if let Some(other) = hold.others.iter_mut().find(|other| other.reach == Reach::Lost) {
        other.blocks = other.blocks.saturating_add(more);
    } else {
        hold.others.insert(0, OtherHold { reach: Reach::Lost, blocks: more, holder: Vec::new() });
    }
}

/// What is lost of these blocks, by the ids of their places. `lost` has the number of blocks of each stack. If blocks
/// of a stack have several sizes, the smallest count.
fn lost_by_place(
    alive: &[SnapshotRecord],
    lost: &BTreeMap<u32, u64>,
    places: &mut Places<'_>,
) -> BTreeMap<String, Memory> {
    let mut alive: Vec<&SnapshotRecord> = alive.iter().filter(|it| lost.contains_key(&it.stack)).collect();
    alive.sort_unstable_by_key(|it| it.size);
    let (mut left, mut by_place) = (lost.clone(), BTreeMap::<String, Memory>::new());
    for it in alive {
        let Some(left) = left.get_mut(&it.stack) else { continue };
        let count = it.count.min(*left);
        *left -= count;
        let bytes = float(it.size.saturating_mul(count));
        by_place.entry(places.of(it.stack).id.clone()).or_default().add(bytes, float(count));
    }
    by_place
}

/// Does every program keep memory from this place: Rust's runtime, the C library, its buffers of standard streams?
fn is_expected(place: &Place) -> bool {
    let is_stream_buffer =
        |name: &String| name.ends_with("_IO_file_doallocate") || name.ends_with("_IO_wfile_doallocate");
    place.is_rusts_own() || place.is_glibcs_own() || place.names.iter().any(is_stream_buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: blocks of a stack of which most are held were left out if another stack of the leak had lost all.
    #[test]
    fn a_leak_tells_as_many_lost_blocks_as_the_verdict() {
        let other = |reach, blocks| OtherHold { reach, blocks, holder: Vec::new() };
        let told = |reach, of_reach, others: &[OtherHold], count| {
            let mut hold = Hold { reach, of_reach, blocks: 7, note: None, others: others.to_vec() };
            tell_lost(&mut hold, &Memory { bytes: 8.0 * count, count });
            (hold.of_reach, hold.others)
        };
        let (held, lost) = (Reach::Reachable, Reach::Lost);
        assert_eq!(told(held, 6, &[], 1.0), (6, vec![other(lost, 1)]));
        assert_eq!(
            told(held, 3, &[other(lost, 3)], 4.0),
            (3, vec![other(lost, 4)]),
            "one more of another stack"
        );
        assert_eq!(told(lost, 3, &[other(held, 3)], 4.0), (4, vec![other(held, 3)]));
        assert_eq!(told(lost, 4, &[other(held, 3)], 4.0), (4, vec![other(held, 3)]), "all are told");
        let indirect = other(Reach::IndirectlyLost, 2);
        assert_eq!(
            told(lost, 2, &[indirect.clone(), other(held, 3)], 4.0),
            (2, vec![indirect, other(held, 3)])
        );
        assert_eq!(told(Reach::NotSearched, 0, &[], 1.0), (0, Vec::new()));
    }
}
