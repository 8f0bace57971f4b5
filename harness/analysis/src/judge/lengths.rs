//! A process as the test: the slope over runs that repeat their work a different number of times.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use memgate_model::{Metric, Per, Verdict, format_count, format_counted, format_value};
use memgate_wire::{Counters, ErrorCode};

use super::context::JudgeContext;
use super::leaks::OsGroup;
use super::one_test::TestJudge;
use super::series::{Series, broken};
use super::wording::interval;
use super::{curve, leaks};
use crate::by_turns::by_turns;
use crate::groups::{Held, OsKind, Places, Sizes, common_names, held};
use crate::growth::{Allowed, Finding, Growth, judge_points};
use crate::input::{Ending, Repetition};
use crate::native_holders::Holding;
use crate::record::{ProcessEnd, sum};
use crate::screen::{MAPPINGS_LOST, too_much};
use crate::signature::{Place, id_of_several};
use crate::stats::{add, float};

/// Fewer different lengths give no useful slope.
const MIN_LENGTHS: usize = 3;
/// Text after a figure that needs no further explanation.
const PER_REPETITION: &str = "per repetition";

/// The moment at which live memory is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// End of `main`: static destructors have not run.
    Main,
    /// End of the process.
    Exit,
}

impl Moment {
    fn of(self, run: &Repetition) -> Option<&ProcessEnd> {
        let record = &run.process.record;
        match self {
            Self::Main => record.main_end.as_ref(),
            Self::Exit => record.end.as_ref(),
        }
    }
}

/// Selects the end of `main` if something grows up to there, and returns the text for the reasons. Otherwise selects
/// the end of the process, because at the end of `main` other threads may still be about to free memory.
fn moment(context: &mut JudgeContext<'_>, runs: &[&Repetition], n: &[f64]) -> (Moment, &'static str) {
    let confidence = context.policy.confidence;
    let grows = |values: &[f64]| {
        let allowed = Allowed { limit: 0.0, block: 0.0, warm_up: 0, confidence };
        values.len() == n.len() && judge_points(&points(n, values), allowed).finding == Finding::Grows
    };
    let mut grows_up_to = |moment: Moment| {
        let ends = runs.iter().filter_map(|run| moment.of(run));
        let totals: Vec<f64> = ends.map(|end| float(end.counters.live_bytes())).collect();
        grows(&totals) || groups(context, runs, moment).iter().any(|group| grows(&group.bytes))
    };
    let told = runs.iter().all(|run| run.process.record.main_end.is_some());
    match told && grows_up_to(Moment::Main) {
        true if grows_up_to(Moment::Exit) => (Moment::Main, PER_REPETITION),
        true => (Moment::Main, "per repetition at the end of main, freed only by exit handlers"),
        false => (Moment::Exit, PER_REPETITION),
    }
}

fn points(n: &[f64], values: &[f64]) -> Vec<(f64, f64)> {
    n.iter().copied().zip(values.iter().copied()).collect()
}

fn without(values: &[f64], waived: &[f64]) -> Vec<f64> {
    values.iter().zip(waived).map(|(value, waived)| value - waived).collect()
}

/// A metric at every length.
type Values = (Metric, Vec<f64>);

/// Runs of different lengths, shortest first, and the moment at which their live memory is compared.
struct Lengths<'a> {
    runs: Vec<&'a Repetition>,
    n: Vec<f64>,
    moment: Moment,
    /// Text after a figure in the reasons.
    per: &'static str,
    ends: Vec<&'a ProcessEnd>,
    confidence: f64,
}

impl<'a> Lengths<'a> {
    fn of(context: &mut JudgeContext<'_>, runs: Vec<&'a Repetition>) -> Self {
        let n: Vec<f64> = runs.iter().map(|run| float(run.n)).collect();
        let (moment, per) = moment(context, &runs, &n);
        let ends = runs.iter().filter_map(|run| moment.of(run)).collect();
        Self { runs, n, moment, per, ends, confidence: context.policy.confidence }
    }

    /// Its iterations are the repetitions of the longest run.
    fn slope(&self, values: &[f64], limit: f64) -> Growth {
        let allowed = Allowed { limit, block: 0.0, warm_up: 0, confidence: self.confidence };
        let growth = judge_points(&points(&self.n, values), allowed);
        let longest = self.runs.last().and_then(|run| usize::try_from(run.n).ok());
        Growth { iterations: longest.unwrap_or(growth.iterations), ..growth }
    }

    /// Makes one group of those that grow only together, with the stack of the largest.
    fn put_together(&self, groups: Vec<Group>) -> Vec<Group> {
        let grows = |values: &[f64]| self.slope(values, 0.0).finding == Finding::Grows;
        let values: Vec<&[f64]> = groups.iter().map(|group| group.bytes.as_slice()).collect();
        let together: BTreeSet<usize> = by_turns(&values, 0, grows).into_iter().collect();
        let (mut together, mut all): (Vec<_>, Vec<_>) =
            groups.into_iter().enumerate().partition(|(at, _)| together.contains(at));
        let last = |group: &Group| group.bytes.last().copied().unwrap_or_default();
        together.sort_by(|(_, a), (_, b)| last(b).total_cmp(&last(a)));
        all.extend(together.into_iter().reduce(|(at, mut sum), (_, group)| {
            add(&mut sum.bytes, &group.bytes);
            add(&mut sum.counts, &group.counts);
            sum.sizes.extend(group.sizes);
            sum.others.push(group.place);
            (at, sum)
        }));
        all.into_iter().map(|(_, group)| group).collect()
    }

    fn totals(&self, of: fn(&Counters) -> u64) -> Vec<f64> {
        self.ends.iter().map(|end| float(of(&end.counters))).collect()
    }
}

/// A group at every length.
struct Group {
    place: Rc<Place>,
    /// If it has several places: the others.
    others: Vec<Rc<Place>>,
    bytes: Vec<f64>,
    counts: Vec<f64>,
    sizes: Sizes,
}

impl TestJudge<'_, '_> {
    /// Judges what one more repetition adds to the live memory at the end of the process.
    pub(super) fn judge_lengths(&mut self, runs: &[Repetition]) {
        let Series { short, long, why_no_longer } = Series::of(runs);
        for run in &short {
            if let Some(why) = broken(run) {
                let failed = matches!(run.process.ending, Ending::Exited(1..));
                let once = if failed { "; a test may work only once in a process" } else { "" };
                return self
                    .judgement
                    .raise(Verdict::Error, format!("with {} repetitions: {why}{once}", run.n));
            }
        }
        if short.len() < MIN_LENGTHS {
            let why = format!("it ran with {} different lengths, {MIN_LENGTHS} are needed", short.len());
            return self.judgement.unconfirmed(self.context.policy, &why);
        }
        self.judgement.confirmed = true;
        if short.iter().all(|run| run.process.record.is_java_only()) {
            let runs: Vec<_> = short.iter().map(|run| (float(run.n), &run.process.record)).collect();
            return self.judge_java_lengths(&runs);
        }
        let few = Lengths::of(self.context, short);
        match long {
            None => self.judge_native_lengths(&few),
            Some(long) => {
                let many = Lengths::of(self.context, long);
                self.judge_native_lengths(&many);
                self.doubt_an_end_of_handles(&few, &many);
            }
        }
        if let Some(why) = why_no_longer.filter(|_| self.judgement.verdict() != Verdict::Pass) {
            self.judgement.remark(why);
        }
    }

    fn judge_native_lengths(&mut self, lengths: &Lengths<'_>) {
        let (mut metrics, unwaived) = self.native_leaks(lengths);
        metrics.extend(self.os_metrics(lengths));
        for (metric, values) in metrics {
            let groups = if metric == Metric::NativeLiveBytes { &unwaived[..] } else { &[] };
            self.hold_slopes(lengths, metric, &values, groups);
        }
        self.doubt_repetitions(lengths);
        let asked = u64::from(self.context.policy.iterations);
        if let Some(longest) = lengths.runs.last().filter(|run| run.n < asked)
            && self.judgement.verdict() != Verdict::Pass
        {
            let n = longest.n;
            self.judgement.remark(format!("judged by at most {n} repetitions, {asked} were asked for"));
        }
    }

    /// Descriptors and threads that grew with few repetitions, and no longer with many, may have met a limit of the
    /// system: from then on the call fails.
    fn doubt_an_end_of_handles(&mut self, few: &Lengths<'_>, many: &Lengths<'_>) {
        for kind in [OsKind::Descriptor, OsKind::Thread] {
            let grow = |lengths: &Lengths<'_>| {
                let totals = os_totals(kind, &lengths.ends)?;
                Some(lengths.slope(&totals, 0.0).finding == Finding::Grows)
            };
            let limited = !self.thresholds(kind.metric(), Per::Iteration).is_empty();
            if limited && grow(few) == Some(true) && grow(many) == Some(false) {
                let why = format!(
                    "inconclusive: {}s grow with the repetitions, and from some number on no more: a limit of the \
                     system, or a pool that is full",
                    kind.noun()
                );
                self.judgement.raise(Verdict::Warn, why);
            }
        }
    }

    /// A program that ignores the number leaves the same in each run, and so does one for which it is something else,
    /// for example the number of a test. Repeated work is nearly never without a single allocation.
    fn doubt_repetitions(&mut self, lengths: &Lengths<'_>) {
        let is_limited = !self.thresholds(Metric::NativeLiveBytes, Per::Iteration).is_empty();
        let made = |run: &&Repetition| Some(float(run.process.record.end.as_ref()?.counters.allocations));
        let made: Vec<f64> = lengths.runs.iter().filter_map(made).collect();
        let ([first, .., last], [fewest, .., most]) = (&lengths.runs[..], &made[..]) else { return };
        if !is_limited || !self.judgement.leaks.is_empty() || mostly_rises(&made) {
            return;
        }
        self.judgement.confirmed = false;
        let (n, count) = (first.n, format_counted(*fewest, "allocation"));
        let other = if fewest == most { "as many".to_owned() } else { format_count(*most) };
        let why = format!(
            "not judged: with {n} repetitions it made {count}, with {} {other}, so it seems not to repeat its work; \
             if the work allocates nothing, switch native.live_bytes off for it",
            last.n
        );
        self.judgement.raise(Verdict::Warn, why);
    }

    /// Lists the groups that grow. Returns what no waiver covers: the totals, and the bytes of each group that grows.
    fn native_leaks(&mut self, lengths: &Lengths<'_>) -> (Vec<Values>, Vec<Vec<f64>>) {
        let mut waived_bytes = vec![0.0; lengths.n.len()];
        let mut waived_counts = waived_bytes.clone();
        let mut unwaived = Vec::new();
        // Holders in the longest run, searched at the end of `main`.
        let held = lengths.runs.last().map(|run| Holding::new(&run.process.record, self.context.resolve));
        for group in lengths.put_together(groups(self.context, &lengths.runs, lengths.moment)) {
            let growth = lengths.slope(&group.bytes, 0.0);
            if growth.finding != Finding::Grows {
                continue;
            }
            let per_n = lengths.slope(&group.counts, 0.0).slope.slope;
            let mut leak = leaks::growing(&group.place, growth.slope.slope, per_n, &group.sizes);
            if let Some(held) = &held {
                let places = std::iter::once(&group.place).chain(&group.others);
                held.tell_of(places.map(|place| place.id.as_str()), &mut leak, self.context.resolve);
            }
            if !group.others.is_empty() {
                leaks::name_others(
                    &mut leak,
                    &group.others,
                    id_of_several(self.suite, self.id, "in the process"),
                );
            }
            if self.list(leak, &common_names(&group.place, &group.others)) {
                add(&mut waived_bytes, &group.bytes);
                add(&mut waived_counts, &group.counts);
            } else {
                unwaived.push(group.bytes);
            }
        }
        let bytes = without(&lengths.totals(Counters::live_bytes), &waived_bytes);
        let counts = without(&lengths.totals(Counters::live_allocations), &waived_counts);
        (vec![(Metric::NativeLiveBytes, bytes), (Metric::NativeLiveAllocations, counts)], unwaived)
    }

    /// Lists growing descriptors, threads and mapped bytes. Returns the values that no waiver covers.
    fn os_metrics(&mut self, lengths: &Lengths<'_>) -> Vec<Values> {
        let mut metrics = Vec::new();
        for kind in OsKind::ALL {
            let metric = kind.metric();
            if let Some(why) = unmeasured_kind(kind, &lengths.runs, &lengths.ends) {
                if !self.thresholds(metric, Per::Iteration).is_empty() {
                    self.judgement.raise(Verdict::Error, why);
                }
                continue;
            }
            let Some(mut totals) = os_totals(kind, &lengths.ends) else { continue };
            for part in os_parts(self.context, kind, &lengths.runs, lengths.moment) {
                let OsPart { mut group, counts, ranges } = part;
                let growth = lengths.slope(&counts, 0.0);
                if growth.finding == Finding::Grows {
                    group.count = growth.slope.slope;
                    group.ranges = lengths.slope(&ranges, 0.0).slope.slope;
                    if self.list(group.leak(), group.frame_names()) {
                        totals = without(&totals, &counts);
                    }
                }
            }
            metrics.push((metric, totals));
        }
        metrics
    }

    /// Checks a metric against its thresholds. `groups`: parts of it; growth of one part is enough.
    fn hold_slopes(&mut self, lengths: &Lengths<'_>, metric: Metric, values: &[f64], groups: &[Vec<f64>]) {
        let per = lengths.per;
        let limits = self.thresholds(metric, Per::Iteration);
        for threshold in &limits {
            let total = lengths.slope(values, threshold.limit);
            let of_groups = groups.iter().map(|group| lengths.slope(group, threshold.limit));
            let growing = of_groups.filter(|growth| growth.finding == Finding::Grows);
            let largest = growing.map(|growth| growth.slope.slope).max_by(f64::total_cmp);
            let level = threshold.level.verdict();
            if total.finding == Finding::Grows {
                let reason = too_much(metric, total.slope.slope, per, threshold.limit);
                // A figure does not show at which moment it was counted, so the reason must contain it.
                if per == PER_REPETITION {
                    self.judgement.raise_figure(level, reason, String::new());
                } else {
                    self.judgement.raise(level, reason);
                }
            } else if let Some(slope) = largest.filter(|_| total.slope.high > threshold.limit) {
                // The total also has what comes and goes.
                let what = format!("{per} in one place");
                self.judgement.raise(level, too_much(metric, slope, &what, threshold.limit));
            } else if total.finding == Finding::Open {
                let between = interval(metric, total.slope.low, total.slope.high);
                let allowed = format_value(metric, threshold.limit);
                let reason = format!("inconclusive: {between} {per} (allowed {allowed})");
                self.judgement.raise(Verdict::Warn, reason);
            }
        }
        self.judgement.figure(
            metric,
            Per::Iteration,
            &lengths.slope(values, 0.0),
            lengths.confidence,
            &limits,
        );
        if !limits.is_empty() {
            self.judgement.growth.extend(curve::of_growth(metric, &points(&lengths.n, values)));
        }
    }
}

/// Is the later of two values the larger one, in four of five pairs? Threads may make some allocations more or fewer.
fn mostly_rises(values: &[f64]) -> bool {
    let later = |(at, value): (usize, &f64)| values[at + 1..].iter().filter(|later| *later > value).count();
    let rising: usize = values.iter().enumerate().map(later).sum();
    rising * 2 * 5 >= values.len() * values.len().saturating_sub(1) * 4
}

/// Why handles at the ends could not be measured. `None`: they could, or were not recorded at all.
fn unmeasured_kind(kind: OsKind, runs: &[&Repetition], ends: &[&ProcessEnd]) -> Option<String> {
    if kind == OsKind::Mapping {
        return ends.iter().any(|end| end.mappings_lost).then(|| MAPPINGS_LOST.to_owned());
    }
    let told = ends.iter().filter(|end| kind.at_exit(end).is_some()).count();
    let errors = runs.iter().flat_map(|run| &run.process.record.errors);
    let refused = errors.map(|seen| &seen.error).find(|error| error.code == ErrorCode::Unlisted);
    match refused {
        Some(error) if told < runs.len() => Some(format!("not measured: {}", error.text)),
        None if (1..runs.len()).contains(&told) => Some(format!(
            "not measured: {}s were listed at the end of {told} of {} runs",
            kind.noun(),
            runs.len()
        )),
        _ => None,
    }
}

/// Number of handles (or bytes) at each length. `None`: not recorded.
fn os_totals(kind: OsKind, ends: &[&ProcessEnd]) -> Option<Vec<f64>> {
    ends.iter().map(|end| Some(float(sum(kind.at_exit(end)?)))).collect()
}

/// Handles that one place has opened, started or mapped, at every length.
struct OsPart {
    group: OsGroup,
    counts: Vec<f64>,
    /// The number of ranges, if these are mapped bytes.
    ranges: Vec<f64>,
}

fn os_parts(
    context: &mut JudgeContext<'_>,
    kind: OsKind,
    runs: &[&Repetition],
    moment: Moment,
) -> Vec<OsPart> {
    let mut parts = BTreeMap::<String, OsPart>::new();
    for (i, run) in runs.iter().enumerate() {
        let Some(end) = moment.of(run) else { continue };
        let Some(names) = kind.at_exit(end) else { continue };
        let ranges = end.mapped.as_ref().filter(|_| kind == OsKind::Mapping).map(|mapped| &mapped.counts);
        let mut places = Places::new(&run.process.record, context.resolve);
        for (at, (name, count)) in names.iter().enumerate() {
            let place = places.of_handle(name.stack);
            let group = OsGroup { kind, place, names: vec![name.name.clone()], count: 0.0, ranges: 0.0 };
            let none = vec![0.0; runs.len()];
            let known = parts.entry(group.id()).or_insert_with(|| OsPart {
                group,
                counts: none.clone(),
                ranges: none,
            });
            if !known.group.names.contains(&name.name) {
                known.group.names.push(name.name.clone());
            }
            known.counts[i] += float(*count);
            known.ranges[i] +=
                ranges.and_then(|ranges| ranges.get(at)).map_or(0.0, |(_, count)| float(*count));
        }
    }
    parts.into_values().collect()
}

fn groups(context: &mut JudgeContext<'_>, runs: &[&Repetition], moment: Moment) -> Vec<Group> {
    let mut groups = BTreeMap::<String, Group>::new();
    for (i, run) in runs.iter().enumerate() {
        let record = &run.process.record;
        let survivors = moment.of(run).map_or(&[][..], |end| &end.survivors);
        let held = held(survivors, &mut Places::new(record, context.resolve));
        for Held { place, bytes, count, sizes, .. } in held {
            let group = groups.entry(place.id.clone()).or_insert_with(|| Group {
                place,
                others: Vec::new(),
                bytes: vec![0.0; runs.len()],
                counts: vec![0.0; runs.len()],
                sizes: Sizes::new(),
            });
            group.bytes[i] = bytes;
            group.counts[i] = count;
            group.sizes.extend(sizes);
        }
    }
    groups.into_values().collect()
}
