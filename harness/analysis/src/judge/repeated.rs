//! A test that ran many times in one process: the slope over the ends of its iterations.
//!
//! If the agent recorded changes between the ends (a confirming run), every group is a series of its own. If it
//! recorded survivors (the user's own `--gtest_repeat`), the totals decide and the survivors name the leaks.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use memgate_model::{Area, Kind, Leak, Metric, Per, Verdict, format_amount};
use memgate_wire::Counters;

use super::context::allowed;
use super::metric::{Group, Measured};
use super::one_test::TestJudge;
use super::{curve, leaks};
use crate::beneath::leaks_apart;
use crate::by_turns::by_turns;
use crate::groups::{self, Held, OsKind, OsSeries, Places, Series, Sizes};
use crate::growth::{Allowed, Finding, is_over_exactly, judge_exact, judge_series, last_rise, rose_in_a_row};
use crate::native_holders::Holding;
use crate::own_tests::{self, Origins};
use crate::rare;
use crate::record::{OsName, ProcessRecord, Window, sum};
use crate::screen::{os_value, unmeasured_mappings};
use crate::signature::{Place, id_of_several};
use crate::stats::{add, as_f64, float, subtract};

/// Largest pool that takes one descriptor or thread per execution. Larger numbers are limits of the system, for example
/// 128 instances of inotify.
const LARGEST_POOL: usize = 50;

/// Memory that a group kept permanently, as far as the iterations show.
pub(super) struct Kept {
    pub(super) place: Rc<Place>,
    /// Live after the first iteration: bytes and allocations.
    pub(super) first: (f64, f64),
    /// The lowest live bytes and allocations in the last third of the iterations.
    pub(super) floor: (f64, f64),
    pub(super) sizes: Sizes,
}

impl TestJudge<'_, '_> {
    /// Judges the iterations. Returns the memory that the groups without growth have kept. `born`: places from which
    /// one execution allocated and left blocks. `origins`: by which stacks it is judged, if the program repeats it
    /// together with others.
    pub(super) fn judge_iterations(
        &mut self,
        record: &ProcessRecord,
        born: &BTreeSet<String>,
        origins: Option<&Origins>,
    ) -> Vec<Kept> {
        let windows: Vec<&Window> = record.windows_of(self.id).collect();
        let allowed = allowed(self.context.policy, windows.len(), 0.0);
        self.judgement.confirmed = true;
        self.judgement.curve = curve::of_iterations(record, &windows);

        let by_changes = record.windows.iter().any(|w| !w.changes.is_empty());
        let mut places = Places::new(record, self.context.resolve);
        let (groups, outside) = match origins {
            Some(origins) => origins.series(self.id, &mut places, allowed),
            None => (leaks_apart(groups::series(self.id, &mut places), allowed), Vec::new()),
        };
        let [groups, outside] = [groups, outside].map(|groups| self.put_together(groups, allowed));
        let held = Holding::new(record, self.context.resolve);
        let in_test = id_of_several(self.suite, self.id, "in the test");
        let in_test = self.sort_groups(&groups, &in_test, &held, allowed);
        let outside_id = id_of_several(self.suite, self.id, "outside of it");
        let outside = self.sort_groups(&outside, &outside_id, &held, allowed);
        let memory = Memory { windows: &windows, in_test, outside, by_groups: origins.is_some(), born };
        let measured = |metric, [total, own]: [Vec<f64>; 2], groups, block| Measured {
            metric,
            total,
            own: Some(own),
            alone: memory.by_groups || windows.len() == record.windows.len(),
            ends_itself: record.tells_its_own_tests(),
            groups,
            block,
            exact: true,
            waived: false,
        };
        let bytes = memory.values(Counters::live_bytes, |series| &series.bytes);
        let block = groups::smallest_block(&groups);
        let bytes = measured(Metric::NativeLiveBytes, bytes, memory.judged(), block);
        let allocations = memory.values(Counters::live_allocations, |series| &series.counts);
        let allocations = measured(Metric::NativeLiveAllocations, allocations, Vec::new(), 1.0);
        if !by_changes && judge_series(&bytes.total, allowed).finding == Finding::Grows {
            self.list_culprits(record, &windows[allowed.warm_up..]);
        }
        let all_waived = !by_changes
            && !self.judgement.leaks.is_empty()
            && self.judgement.leaks.iter().all(|l| l.waiver.is_some());
        for measured in [bytes, allocations] {
            self.hold(&Measured { waived: all_waived, ..measured }, allowed);
        }
        self.judge_system(record, &windows, allowed);
        memory.in_test.kept.into_iter().chain(memory.outside.kept).collect()
    }

    /// Judges descriptors, threads and mappings, and resident memory where it has a limit.
    fn judge_system(&mut self, record: &ProcessRecord, windows: &[&Window], allowed: Allowed) {
        for kind in OsKind::ALL {
            self.judge_os(record, windows, kind, allowed);
        }
        for metric in Metric::of(Area::Os, &[Kind::Resident]) {
            let states = groups::os_states(windows);
            let values: Vec<_> = states.iter().filter_map(|os| os_value(os, metric)).collect();
            if self.has_limit(metric) && !values.is_empty() {
                self.hold(&Measured::of_os(metric, values, 0.0), allowed);
            }
        }
    }

    /// Makes one group of those that grow only together.
    fn put_together(&self, groups: Vec<Series>, allowed: Allowed) -> Vec<Series> {
        let is_known = |group: &Series| {
            self.judgement.of_set_ups.contains_key(&group.place.id)
                || self.judgement.handed.contains(&group.place.id)
        };
        let (known, groups): (Vec<_>, Vec<_>) = groups.into_iter().partition(is_known);
        let block = groups::smallest_block(&groups);
        let grows = |values: &[f64]| {
            !is_over_exactly(values, allowed.warm_up)
                && judge_exact(values, Allowed { block, ..allowed }).finding == Finding::Grows
        };
        let values: Vec<&[f64]> = groups.iter().map(|group| group.bytes.as_slice()).collect();
        let together: BTreeSet<usize> = by_turns(&values, allowed.warm_up, grows).into_iter().collect();
        let (together, alone): (Vec<_>, Vec<_>) =
            groups.into_iter().enumerate().partition(|(at, _)| together.contains(at));
        let of = |numbered: Vec<(usize, Series)>| numbered.into_iter().map(|(_, group)| group);
        known.into_iter().chain(of(alone)).chain(Series::together(of(together).collect())).collect()
    }

    /// Lists the groups that grow as leaks and sorts all groups. `of_several`: the id of a leak of several places.
    fn sort_groups<'a>(
        &mut self,
        groups: &'a [Series],
        of_several: &str,
        held: &Holding<'_>,
        allowed: Allowed,
    ) -> Sorted<'a> {
        let mut sorted = Sorted::default();
        for group in groups {
            if is_over_exactly(&group.bytes, allowed.warm_up) {
                sorted.kept.push(floor_of(group));
                continue;
            }
            let growth = judge_exact(&group.bytes, Allowed { block: group.block, ..allowed });
            if growth.finding != Finding::Grows {
                sorted.kept.push(floor_of(group));
                sorted.unwaived.push(group);
                continue;
            }
            // Growth in excess of a set-up's own belongs to the test.
            let of_set_ups = self.judgement.of_set_ups.get(&group.place.id);
            let is_set_ups = of_set_ups.is_some_and(|bytes| growth.slope.slope < bytes + 1.0);
            let is_known = is_set_ups || self.judgement.handed.contains(&group.place.id);
            if is_known || group.places().all(|place| place.is_listeners()) {
                sorted.waived.push(group);
                continue;
            }
            let count = judge_series(&group.counts, allowed).slope.slope;
            let mut leak = leaks::growing(&group.place, growth.slope.slope, count, &group.sizes);
            held.tell_of(group.places().map(|place| place.id.as_str()), &mut leak, self.context.resolve);
            if !group.others.is_empty() {
                self.judgement.of_several.extend(group.places().map(|place| place.id.clone()));
                leaks::name_others(&mut leak, &group.others, of_several.to_owned());
            }
            let is_waived = self.list(leak, &groups::common_names(&group.place, &group.others));
            let list = if is_waived { &mut sorted.waived } else { &mut sorted.unwaived };
            list.push(group);
        }
        sorted
    }

    /// Checks a metric against its thresholds.
    pub(super) fn hold(&mut self, measured: &Measured<'_>, allowed: Allowed) {
        let limits = self.thresholds(measured.metric, Per::Iteration);
        for threshold in limits.iter().filter(|_| !measured.waived) {
            measured.hold_against(threshold, allowed, &mut self.judgement);
        }
        let total = measured.growth(allowed);
        self.judgement.figure(measured.metric, Per::Iteration, &total, allowed.confidence, &limits);
        if !limits.is_empty() {
            let series = measured.series(allowed);
            if measured.exact {
                let quiet = rare::quiet_executions(series);
                self.judgement.quiet = Some(self.judgement.quiet.map_or(quiet, |least| least.min(quiet)));
            }
            let points: Vec<_> = (1..=series.len()).map(as_f64).zip(series.iter().copied()).collect();
            self.judgement.growth.extend(curve::of_growth(measured.metric, &points));
            self.judgement.warm_up = u32::try_from(allowed.warm_up).unwrap_or(u32::MAX);
        }
    }

    /// Lists survivors of the counted iterations by group, with the average that an iteration leaves.
    fn list_culprits(&mut self, record: &ProcessRecord, windows: &[&Window]) {
        let survivors: Vec<_> = windows.iter().flat_map(|w| w.survivors.iter().copied()).collect();
        let iterations = as_f64(windows.len().max(1));
        let groups = groups::held(&survivors, &mut Places::new(record, self.context.resolve));
        for Held { place, bytes, count, sizes, .. } in groups.into_iter().take(leaks::MAX_LISTED) {
            let leak = leaks::growing(&place, bytes / iterations, count / iterations, &sizes);
            self.list(leak, &place.names);
        }
    }

    /// Judges descriptors, threads or mapped bytes at the ends of the windows.
    pub(super) fn judge_os(
        &mut self,
        record: &ProcessRecord,
        windows: &[&Window],
        kind: OsKind,
        allowed: Allowed,
    ) {
        if kind == OsKind::Mapping
            && let Some(why) =
                windows.iter().find_map(|w| unmeasured_mappings(w, self.suite, self.id, self.context.policy))
        {
            return self.judgement.raise(Verdict::Error, format!("when it was repeated: {why}"));
        }
        let states: Vec<_> = windows.iter().filter_map(|w| kind.at_end(w)).collect();
        if states.is_empty() {
            return;
        }
        let mut total: Vec<f64> = states.iter().map(|names| float(sum(names))).collect();
        let leaks = self.os_leaks(record, windows, kind, allowed);
        let mut own = self.own_handles(record, kind, &leaks).filter(|own| own.all.len() == total.len());
        for (at, OsLeak { names, counts, leak, .. }) in leaks.into_iter().enumerate() {
            let is_handed =
                names.iter().all(|name| self.judgement.handed.contains(&leaks::of_os(kind, name, 0.0).id));
            let left_out = is_handed || leak.waiver.is_some();
            let mut of_others = false;
            if let Some(OwnHandles { all, of_leaks }) = &mut own {
                of_others = judge_series(&of_leaks[at], allowed).finding == Finding::Still;
                if left_out {
                    subtract(all, &of_leaks[at]);
                }
            }
            if left_out {
                subtract(&mut total, &counts);
            }
            if !is_handed && !of_others {
                self.judgement.leaks.push(leak);
            }
        }
        // A virtual machine opens descriptors and starts threads at any time.
        let exact = windows.iter().all(|w| w.java.is_none());
        let measured = Measured { exact, ..Measured::of_os(kind.metric(), total, kind.block()) }
            .shared_by(self.judgement.executions());
        let measured = match own {
            Some(own) => measured.beside_others(own.all),
            None => measured,
        };
        self.hold(&measured, allowed);
        if exact && kind != OsKind::Mapping {
            self.doubt_an_end(kind, &measured, allowed);
        }
    }

    /// What the test itself added, if its program repeats it together with others.
    fn own_handles(&mut self, record: &ProcessRecord, kind: OsKind, leaks: &[OsLeak]) -> Option<OwnHandles> {
        if !own_tests::is_among_others(record, self.id) {
            return None;
        }
        let mut places = Places::new(record, self.context.resolve);
        let placed: BTreeSet<&String> =
            leaks.iter().filter(|leak| leak.place.is_some()).flat_map(|leak| &leak.names).collect();
        let added =
            |counted: &mut dyn FnMut(&OsName) -> bool| own_tests::os_added(record, self.id, kind, counted);
        let of_leak = |leak: &OsLeak| {
            added(&mut |name| {
                // A part of unknown place may be the whole of its name.
                let is_whole = leak.place.is_none() && !placed.contains(&name.name);
                let is_there = is_whole || places.of_handle(name.stack).map(|at| at.id.clone()) == leak.place;
                is_there && leak.names.contains(&name.name)
            })
        };
        Some(OwnHandles { all: added(&mut |_| true), of_leaks: leaks.iter().map(of_leak).collect() })
    }

    /// Growth that lasted long and then stopped may have met a limit of the system: from then on the call fails.
    fn doubt_an_end(&mut self, kind: OsKind, measured: &Measured<'_>, allowed: Allowed) {
        let metric = measured.metric;
        if measured.growth(allowed).finding != Finding::Still {
            return;
        }
        let limits = self.thresholds(metric, Per::Iteration);
        let rose = limits.iter().map(|threshold| rose_in_a_row(&measured.total, threshold.limit)).max();
        let Some(rose) = rose.filter(|rose| *rose >= LARGEST_POOL) else { return };
        let reason = format!(
            "inconclusive: {} more, {rose} executions in a row, then none: a limit of the system, or a pool that is full",
            format_amount(metric, last_rise(&measured.total, 0).by)
        );
        self.judgement.doubted.push((kind, reason));
    }

    /// Parts of a kind that grow from window to window, if the total of the kind grows.
    pub(super) fn os_leaks(
        &mut self,
        record: &ProcessRecord,
        windows: &[&Window],
        kind: OsKind,
        allowed: Allowed,
    ) -> Vec<OsLeak> {
        let states: Vec<_> = windows.iter().filter_map(|w| kind.at_end(w)).collect();
        let allowed = Allowed { block: kind.block(), ..allowed };
        let grow = |counts: &[f64]| judge_series(counts, allowed).finding == Finding::Grows;
        let total: Vec<f64> = states.iter().map(|names| float(sum(names))).collect();
        if states.is_empty() || !grow(&total) {
            return Vec::new();
        }
        let mut growing = groups::os_series(&states);
        growing.retain(|series| grow(&series.counts));
        let mut places = Places::new(record, self.context.resolve);
        let parts = growing_parts(growing, grow, &mut places);
        let ranges = ranges(windows, &mut places);
        let slope = |counts: &[f64]| judge_series(counts, allowed).slope.slope;
        let leak = |OsPart { place, names, counts }: OsPart| {
            let own = ranges.iter().find(|part| part.is_of(place.as_deref(), &names));
            let ranges = own.map_or(0.0, |part| slope(&part.counts));
            let at = place.as_ref().map(|place| place.id.clone());
            let group = leaks::OsGroup { kind, place, names, count: slope(&counts), ranges };
            let mut leak = group.leak();
            self.context.waivers.cover(&mut leak, group.frame_names());
            OsLeak { place: at, names: group.names, counts, leak }
        };
        parts.into_iter().map(leak).collect()
    }
}

/// The groups of a test, sorted by how they are treated.
#[derive(Default)]
struct Sorted<'a> {
    /// May grow, and no waiver covers them.
    unwaived: Vec<&'a Series>,
    /// Grow, but are waived, handed to a later test, or belong to a set-up.
    waived: Vec<&'a Series>,
    /// Memory that the groups without growth have kept.
    kept: Vec<Kept>,
}

/// The memory of a test over its iterations.
struct Memory<'a> {
    windows: &'a [&'a Window],
    in_test: Sorted<'a>,
    /// Groups that grow outside of its windows.
    outside: Sorted<'a>,
    /// The groups are the total: the program repeats the test together with others.
    by_groups: bool,
    /// Places from which one execution allocated and left blocks.
    born: &'a BTreeSet<String>,
}

impl<'a> Memory<'a> {
    /// The total, and what the test itself added. Allocations outside the windows do not belong to the test.
    fn values(&self, live: fn(&Counters) -> u64, of: fn(&Series) -> &[f64]) -> [Vec<f64>; 2] {
        if self.by_groups {
            let mut own = vec![0.0; self.windows.len()];
            self.in_test.unwaived.iter().for_each(|group| add(&mut own, of(group)));
            let mut total = own.clone();
            self.outside.unwaived.iter().for_each(|group| add(&mut total, of(group)));
            return [total, own];
        }
        let (mut total, mut own) = (groups::totals(self.windows, live), own_doing(self.windows, live));
        for group in &self.in_test.waived {
            subtract(&mut total, of(group));
            if self.is_born(group) {
                subtract(&mut own, of(group));
            }
        }
        [total, own]
    }

    /// The groups that decide, and whether each belongs to the test.
    fn judged(&self) -> Vec<Group<'a>> {
        let in_test = self.in_test.unwaived.iter();
        let in_test = in_test.map(|series| Group::of(series, self.by_groups || self.is_born(series)));
        in_test.chain(self.outside.unwaived.iter().map(|series| Group::of(series, false))).collect()
    }

    fn is_born(&self, series: &Series) -> bool {
        series.places().all(|place| self.born.contains(&place.id))
    }
}

/// Running sum of live bytes or allocations that the windows added.
fn own_doing(windows: &[&Window], of: fn(&Counters) -> u64) -> Vec<f64> {
    let mut sum = 0.0;
    let added = |w: &&Window| {
        sum += float(of(&w.end)) - float(of(&w.start));
        sum
    };
    windows.iter().map(added).collect()
}

/// Growing descriptors, threads or mapped bytes, with their number at the ends of the windows.
pub(super) struct OsLeak {
    /// The place where they were opened; `None`: unknown.
    place: Option<String>,
    pub(super) names: Vec<String>,
    pub(super) counts: Vec<f64>,
    pub(super) leak: Leak,
}

/// What a test itself added, over its iterations.
struct OwnHandles {
    all: Vec<f64>,
    /// The part of each leak.
    of_leaks: Vec<Vec<f64>>,
}

/// Descriptors, threads or mapped bytes from one place, or of one name, over the iterations.
struct OsPart {
    place: Option<Rc<Place>>,
    names: Vec<String>,
    counts: Vec<f64>,
}

impl OsPart {
    fn is_of(&self, place: Option<&Place>, names: &[String]) -> bool {
        self.place.as_ref().map(|own| &own.id) == place.map(|place| &place.id)
            && (place.is_some() || self.names == names)
    }
}

/// Number of mapped ranges per place over the iterations.
fn ranges(windows: &[&Window], places: &mut Places<'_>) -> Vec<OsPart> {
    let counts: Vec<_> = windows.iter().filter_map(|w| Some(&w.mapped_end.as_ref()?.counts)).collect();
    growing_parts(groups::os_series(&counts), |_| true, places)
}

/// Growing handles by their place. If no single place grows (each iteration opens from another one), by name.
fn growing_parts(
    growing: Vec<OsSeries>,
    grow: impl Fn(&[f64]) -> bool,
    places: &mut Places<'_>,
) -> Vec<OsPart> {
    let mut parts: Vec<OsPart> = Vec::new();
    for OsSeries { name, counts, by_stack } in growing {
        let mut own: BTreeMap<Option<String>, OsPart> = BTreeMap::new();
        for (stack, counts) in by_stack {
            let place = places.of_handle(stack);
            let part = own.entry(place.as_ref().map(|place| place.id.clone())).or_insert_with(|| OsPart {
                place,
                names: vec![name.clone()],
                counts: vec![0.0; counts.len()],
            });
            add(&mut part.counts, &counts);
        }
        let mut own: Vec<OsPart> = own.into_values().filter(|part| grow(&part.counts)).collect();
        if own.is_empty() {
            own.push(OsPart { place: None, names: vec![name], counts });
        }
        for part in own {
            let same =
                |other: &&mut OsPart| part.place.is_some() && other.is_of(part.place.as_deref(), &part.names);
            match parts.iter_mut().find(same) {
                Some(known) => {
                    add(&mut known.counts, &part.counts);
                    known.names.extend(part.names);
                }
                None => parts.push(part),
            }
        }
    }
    parts
}

fn floor_of(group: &Series) -> Kept {
    let n = group.bytes.len();
    let lowest = (n - n.div_ceil(3)..n).min_by(|a, b| group.bytes[*a].total_cmp(&group.bytes[*b]));
    let at = |i: usize| (group.bytes[i], group.counts[i]);
    Kept {
        place: Rc::clone(&group.place),
        first: at(0),
        floor: lowest.map_or((0.0, 0.0), at),
        sizes: group.sizes.clone(),
    }
}

/// One-time allocations: what the screen saw survive, corrected by the iterations, and what the iterations filled
/// later.
pub(super) fn one_time(screened: Vec<Held>, kept: Vec<Kept>, leaking: &BTreeSet<String>) -> Vec<Held> {
    let mut one_time: Vec<Held> = screened.into_iter().filter(|h| !leaking.contains(&h.place.id)).collect();
    for Kept { place, first, floor, sizes } in kept {
        if let Some(held) = one_time.iter_mut().find(|h| h.place.id == place.id) {
            let later = |held: f64, first: f64, floor: f64| (held + floor - first).min(floor).max(0.0);
            held.bytes = later(held.bytes, first.0, floor.0);
            held.count = later(held.count, first.1, floor.1);
            held.sizes.extend(sizes);
        } else {
            let (bytes, count) = ((floor.0 - first.0).max(0.0), (floor.1 - first.1).max(0.0));
            one_time.push(Held { place, bytes, count, noted: count, sizes });
        }
    }
    one_time.retain(|h| h.bytes > 0.0);
    one_time
}
