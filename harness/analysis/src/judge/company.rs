//! A test that ran alone and together with the tests around it: what it leaves only after them, and what it hands to
//! later tests.

use std::collections::BTreeSet;

use memgate_model::{Metric, Verdict, format_amount, format_bytes, format_counted, format_number_of};
use memgate_wire::SnapshotRecord;

use super::context::allowed;
use super::leaks::{self, OsGroup};
use super::metric::Measured;
use super::one_test::TestJudge;
use super::repeated::OsLeak;
use crate::beneath::leaks_apart;
use crate::company::{Seen, missing, missing_os, seen_again};
use crate::groups::{self, Held, OsKind, OsSeries, Places, Series, added_by_one, held, os_series, series};
use crate::growth::{Allowed, Finding, judge_exact};
use crate::input::ProcessInput;
use crate::measured::unusable;
use crate::native_holders::Holding;
use crate::record::{Names, ProcessRecord, Window, sum};
use crate::screen::ENOUGH_REPETITIONS;
use crate::stats::{add, float, subtract};

/// What glibc allocates for the next 32 functions to run at exit: two words, and four words per function.
const EXIT_LIST_BYTES: u64 = 8 * (2 + 32 * 4);
/// Chance decides a number of blocks: at most this many times as many in one process as in another.
const MOST_BY_CHANCE: f64 = 2.0;

/// Result of running the test together with others.
pub(super) type Together<'a> = Option<Result<&'a ProcessInput, &'a str>>;

impl TestJudge<'_, '_> {
    /// Ids of what grows when the test runs alone, but not together with the others, because later tests free or close
    /// it.
    pub(super) fn handed(&mut self, alone: &ProcessRecord, together: Together<'_>) -> BTreeSet<String> {
        let test = self.id;
        let Some(Ok(together)) =
            together.filter(|t| t.is_ok_and(|together| unusable(together, test).is_none()))
        else {
            return BTreeSet::new();
        };
        let together = &together.record;
        let policy = self.context.policy;
        let finding =
            |values: &[f64], block| judge_exact(values, allowed(policy, values.len(), block)).finding;
        let grows = |group: &Series| finding(&group.bytes, group.block) == Finding::Grows;
        let series = |places: &mut Places<'_>| {
            let iterations = places.record.windows_of(test).count();
            leaks_apart(groups::series(test, places), allowed(policy, iterations, 0.0))
        };
        let alone_groups = series(&mut Places::new(alone, self.context.resolve));
        let mut handed: BTreeSet<String> =
            alone_groups.iter().filter(|group| grows(group)).map(|group| group.place.id.clone()).collect();
        if !handed.is_empty() {
            let mut places = Places::new(together, self.context.resolve);
            let exchanged = groups::exchanged(test, &mut places);
            // If much less goes, a growing table has only been replaced.
            let goes = |(came, went): &(u64, u64)| *came > 0 && went * 2 >= *came;
            handed.retain(|id| exchanged.get(id).is_some_and(goes));
            for group in series(&mut places) {
                if finding(&group.bytes, group.block) != Finding::Still {
                    handed.remove(&group.place.id);
                }
            }
        }
        for kind in OsKind::ALL {
            let states: Vec<_> = alone.windows_of(test).filter_map(|w| kind.at_end(w)).collect();
            for OsSeries { name, counts, .. } in os_series(&states) {
                let (among, opened) = os_values(together, test, kind, Some(&name));
                let each_time = opened.len() > 1 && opened.windows(2).all(|pair| pair[1] > pair[0]);
                let grows = finding(&counts, kind.block()) == Finding::Grows;
                if grows && each_time && finding(&among, kind.block()) == Finding::Still {
                    handed.insert(leaks::of_os(kind, &name, 0.0).id);
                }
            }
        }
        handed
    }

    /// Lists the group as a leak if it grows together with the others, otherwise as a one-time allocation. Returns
    /// whether a waiver covers it.
    fn list_among(&mut self, group: &Held, seen: &Seen, together: &ProcessRecord) -> bool {
        let policy = self.context.policy;
        let slope = |values: &[f64], block| judge_exact(values, allowed(policy, values.len(), block));
        let growth = slope(&seen.bytes, seen.block);
        if growth.finding == Finding::Grows {
            let count = slope(&seen.counts, 1.0).slope.slope;
            let mut leak = leaks::growing(&group.place, growth.slope.slope, count, &group.sizes);
            Holding::new(together, self.context.resolve).tell(&mut leak, self.context.resolve);
            return self.list(leak, &group.place.names);
        }
        self.judgement.one_time.push(leaks::in_all(group));
        false
    }
}

/// The number of handles of this name (or of any name) that are open at the ends of the test, and the running sum of
/// those that its windows opened.
fn os_values(record: &ProcessRecord, test: &str, kind: OsKind, name: Option<&str>) -> (Vec<f64>, Vec<f64>) {
    let count = |names: &Names| {
        let of_name =
            |wanted: &str| names.iter().filter(|(name, _)| name.name == wanted).map(|(_, n)| *n).sum();
        float(name.map_or_else(|| sum(names), of_name))
    };
    let mut opened = 0.0;
    let states = record.windows_of(test).filter_map(|w| kind.at_start(w).zip(kind.at_end(w)));
    let values = states.map(|(start, end)| {
        opened += count(end) - count(start);
        (count(end), opened)
    });
    values.unzip()
}

/// Allocations and handles that the test left in the screen, but not when it was repeated alone.
pub(super) struct Missing<'a> {
    screened: &'a ProcessInput,
    window: &'a Window,
    pub(super) records: Vec<SnapshotRecord>,
    pub(super) os: Vec<(OsKind, f64)>,
    /// Descriptors, threads and mappings that no waiver covers.
    os_groups: Vec<OsGroup>,
    alone: usize,
}

impl<'a> Missing<'a> {
    pub(super) fn of(
        (screened, window): (&'a ProcessInput, &'a Window),
        alone: &ProcessRecord,
        test: &str,
    ) -> Self {
        Self {
            screened,
            window,
            records: missing(&screened.record, window, alone, test),
            os: missing_os(window, alone, test).collect(),
            os_groups: Vec::new(),
            alone: alone.windows_of(test).count(),
        }
    }

    /// The memory that a pool maps at first depends on the number of threads that use it at the same time. So only the
    /// places of mapped memory are compared. If all places were seen again and the amount did not grow, it is a
    /// one-time cost.
    pub(super) fn knows_mappings(
        &mut self,
        judge: &mut TestJudge<'_, '_>,
        alone: &ProcessRecord,
        together: Together<'_>,
    ) {
        let (context, test) = (&mut *judge.context, judge.id);
        let again = match together {
            None => alone,
            Some(Ok(process)) if unusable(process, test).is_none() => &process.record,
            Some(_) => return,
        };
        let kind = OsKind::Mapping;
        let (_, opened) = os_values(again, test, kind, None);
        let ids = |groups: &[OsGroup]| groups.iter().map(OsGroup::id).collect::<BTreeSet<String>>();
        let mut left = leaks::os_left(&self.screened.record, self.window, context);
        left.retain(|group| group.kind == kind);
        let seen = leaks::at_last(again, test, kind, context);
        let comes_once =
            opened.len() >= ENOUGH_REPETITIONS && !opened.windows(2).any(|pair| pair[1] > pair[0]);
        let has_places = left.iter().all(|group| group.place.is_some());
        if comes_once && has_places && ids(&left).is_subset(&ids(&seen)) {
            self.os.retain(|(missing, _)| *missing != kind);
        }
    }

    /// Each function's `static` is registered to be destroyed at exit. Which test allocates the next list for this is
    /// chance, so it is a one-time cost.
    pub(super) fn knows_exit_lists(&mut self, judge: &mut TestJudge<'_, '_>) {
        let mut places = Places::new(&self.screened.record, judge.context.resolve);
        let is_list = |record: &SnapshotRecord| record.size == EXIT_LIST_BYTES && record.count == 1;
        self.records.retain(|record| !(is_list(record) && places.of(record.stack).notes_exit));
    }

    /// The number of blocks that an initialisation allocates, and the call that allocates them, may depend on chance:
    /// for example a table with a random seed. Two other processes show this: the largest number of blocks that one
    /// execution of the test left differs between them, and grows in neither.
    pub(super) fn knows_chance(
        &mut self,
        judge: &mut TestJudge<'_, '_>,
        alone: &ProcessRecord,
        together: Together<'_>,
    ) {
        let test = judge.id;
        let Some(Ok(together)) = together.filter(|t| t.is_ok_and(|again| unusable(again, test).is_none()))
        else {
            return;
        };
        let policy = judge.context.policy;
        let mut still = |record: &ProcessRecord| {
            let mut places = Places::new(record, judge.context.resolve);
            let mut most = added_by_one(test, &mut places);
            for Series { place, bytes, block, .. } in series(test, &mut places) {
                if judge_exact(&bytes, allowed(policy, bytes.len(), block)).finding != Finding::Still {
                    most.remove(&place.id);
                }
            }
            most
        };
        let (alone, together) = (still(alone), still(&together.record));
        let mut places = Places::new(&self.screened.record, judge.context.resolve);
        let left = held(&self.window.survivors, &mut places);
        let by_chance = |group: &&Held| {
            let id = &group.place.id;
            let Some((alone, together)) = alone.get(id).zip(together.get(id)) else { return false };
            let most = MOST_BY_CHANCE * alone.max(*together);
            !group.place.frames.is_empty() && alone != together && group.noted <= most
        };
        let by_chance: BTreeSet<String> =
            left.iter().filter(by_chance).map(|group| group.place.id.clone()).collect();
        self.records.retain(|record| !by_chance.contains(&places.of(record.stack).id));
    }

    /// Judges by what the test does together with the others. Without such a run the growth stays unconfirmed.
    pub(super) fn judge(mut self, judge: &mut TestJudge<'_, '_>, together: Together<'_>) {
        self.waive_os(judge);
        self.os.retain(|(kind, count)| judge.is_too_much(kind.metric(), *count));
        let groups = held(&self.records, &mut Places::new(&self.screened.record, judge.context.resolve));
        let mut unwaived: Vec<Held> = Vec::new();
        for group in groups {
            let mut leak = leaks::in_all(&group);
            judge.context.waivers.cover_any_amount(&mut leak, &group.place.names);
            if leak.waiver.is_some() {
                judge.judgement.leaks.push(leak);
            } else {
                unwaived.push(group);
            }
        }
        let sum = |of: fn(&Held) -> f64| unwaived.iter().map(of).sum();
        let is_over = judge.is_too_much(Metric::NativeLiveBytes, sum(|g| g.bytes))
            || judge.is_too_much(Metric::NativeLiveAllocations, sum(|g| g.count));
        let unwaived = if is_over { unwaived } else { Vec::new() };
        if unwaived.is_empty() && self.os.is_empty() {
            return;
        }
        let why = match together {
            None => String::new(),
            Some(Err(why)) => format!("; {why}"),
            Some(Ok(process)) if has_failed(&process.record, judge.id) => {
                "; it fails when it runs again with the tests before it".to_owned()
            }
            Some(Ok(process)) => match unusable(process, judge.id) {
                Some((_, why)) => format!("; with the tests before it: {why}"),
                None => return self.among(judge, &process.record, unwaived),
            },
        };
        self.unconfirmed(judge, &unwaived, &why);
    }

    /// Removes descriptors, threads and mappings that waivers cover.
    fn waive_os(&mut self, judge: &mut TestJudge<'_, '_>) {
        for group in leaks::os_left(&self.screened.record, self.window, judge.context) {
            let Some((_, count)) = self.os.iter_mut().find(|(kind, _)| *kind == group.kind) else { continue };
            let mut leak = group.leak();
            judge.context.waivers.cover_any_amount(&mut leak, group.frame_names());
            if leak.waiver.is_some() {
                *count -= group.count;
                judge.judgement.leaks.push(leak);
            } else {
                self.os_groups.push(group);
            }
        }
    }

    /// Judges by the record of a run that also repeated the tests around it.
    fn among(self, judge: &mut TestJudge<'_, '_>, together: &ProcessRecord, groups: Vec<Held>) {
        let windows = together.windows_of(judge.id).count();
        let allowed = allowed(judge.context.policy, windows, 0.0);
        let before = judge.judgement.verdict();
        let unseen = self.blocks_among(judge, together, allowed, groups);
        let (closed, opened): (Vec<_>, Vec<_>) = self.os.iter().copied().partition(|(kind, _)| {
            let (_, opened) = os_values(together, judge.id, *kind, None);
            !opened.windows(2).any(|pair| pair[1] > pair[0])
        });
        for (kind, _) in opened {
            self.handles_among(judge, together, allowed, kind);
        }
        if judge.judgement.verdict() > before {
            let alone = format_number_of(self.alone, "execution");
            judge.judgement.only_among_others |= before == Verdict::Pass;
            judge
                .judgement
                .remark(format!("only after the tests before it: alone nothing of this in {alone}"));
        }
        if !unseen.is_empty() || !closed.is_empty() {
            let why =
                format!(", nor in {} after the tests before it", format_number_of(windows, "execution"));
            Self { os: closed, ..self }.unconfirmed(judge, &unseen, &why);
        }
    }

    /// Judges these blocks by what the test left in the run with the others. Returns the groups of which it left less
    /// there.
    fn blocks_among(
        &self,
        judge: &mut TestJudge<'_, '_>,
        together: &ProcessRecord,
        allowed: Allowed,
        groups: Vec<Held>,
    ) -> Vec<Held> {
        let windows = together.windows_of(judge.id).count();
        let (mut total, mut counts) = (vec![0.0; windows], vec![0.0; windows]);
        let (mut block, mut unseen) = (f64::INFINITY, Vec::new());
        for group in groups {
            let of_group = self.records_of(judge, &group);
            let seen = seen_again(&self.screened.record, &of_group, together, judge.id);
            if seen.most < group.count {
                unseen.push(group);
                continue;
            }
            if judge.list_among(&group, &seen, together) {
                continue;
            }
            add(&mut total, &seen.bytes);
            add(&mut counts, &seen.counts);
            block = block.min(seen.block);
        }
        if block.is_finite() {
            for (metric, values, block) in
                [(Metric::NativeLiveBytes, total, block), (Metric::NativeLiveAllocations, counts, 1.0)]
            {
                judge.hold(&Measured::exactly(metric, values, block), allowed);
            }
        }
        unseen
    }

    /// Judges descriptors, threads or mapped memory by their number at the test's ends in the run with the others.
    fn handles_among(
        &self,
        judge: &mut TestJudge<'_, '_>,
        together: &ProcessRecord,
        allowed: Allowed,
        kind: OsKind,
    ) {
        let (mut total, opened) = os_values(together, judge.id, kind, None);
        let windows: Vec<&Window> = together.windows_of(judge.id).collect();
        let own: BTreeSet<String> = self.os_groups.iter().map(OsGroup::id).collect();
        let (verdict, mut listed) = (judge.judgement.verdict(), false);
        for OsLeak { counts, leak, .. } in judge.os_leaks(together, &windows, kind, allowed) {
            if leak.waiver.is_some() {
                subtract(&mut total, &counts);
            } else if own.contains(&leak.id) {
                judge.judgement.leaks.push(leak);
                listed = true;
            }
        }
        let measured = Measured::exactly(kind.metric(), total, kind.block()).beside_others(opened);
        judge.hold(&measured, allowed);
        if judge.judgement.verdict() > verdict && !listed {
            let of_kind = self.os_groups.iter().filter(|group| group.kind == kind);
            judge.judgement.leaks.extend(of_kind.map(OsGroup::leak));
        }
    }

    fn records_of(&self, judge: &mut TestJudge<'_, '_>, group: &Held) -> Vec<SnapshotRecord> {
        let mut places = Places::new(&self.screened.record, judge.context.resolve);
        self.records.iter().filter(|record| places.of(record.stack).id == group.place.id).copied().collect()
    }

    /// Reports a warning, or a failure by policy, with both figures.
    fn unconfirmed(&self, judge: &mut TestJudge<'_, '_>, groups: &[Held], why: &str) {
        let bytes: f64 = groups.iter().map(|group| group.bytes).sum();
        let count: f64 = groups.iter().map(|group| group.count).sum();
        let mut left = Vec::new();
        if count > 0.0 {
            left.push(format!("{} in {}", format_bytes(bytes), format_counted(count, "allocation")));
        }
        left.extend(self.os.iter().map(|(kind, count)| format_amount(kind.metric(), *count)));
        let is_missing = |group: &&OsGroup| self.os.iter().any(|(missing, _)| *missing == group.kind);
        let handles = self.os_groups.iter().filter(is_missing).map(OsGroup::leak);
        for mut leak in groups.iter().map(leaks::in_all).chain(handles) {
            leak.id = judge.context.waivers.id_here(&leak);
            judge.judgement.list_seen_once(leak);
        }
        judge.judgement.left = left.join(" and ");
        judge.judgement.only_among_others |= judge.judgement.verdict() == Verdict::Pass;
        let alone = format_number_of(self.alone, "execution");
        judge.judgement.unconfirmed(judge.context.policy, &format!("alone nothing of it in {alone}{why}"));
    }
}

fn has_failed(record: &ProcessRecord, test: &str) -> bool {
    record.windows_of(test).any(|w| w.outcome.is_some_and(|outcome| outcome != memgate_wire::Outcome::Passed))
}
