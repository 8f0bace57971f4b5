//! One test: its screening windows, what came of running it again, its verdict.

use std::collections::{BTreeMap, BTreeSet};

use memgate_model::{
    CurvePoint, Metric, MetricValue, Outcome, Per, TestReport, Verdict, format_amount, format_bytes,
    format_counted,
};

use super::company::{Missing, Together};
use super::context::JudgeContext;
use super::judgement::{Executions, Judgement, applied};
use super::leaks::os_left;
use super::{company, curve, leaks, lengths, repeated};
use crate::groups::{Held, OsKind, Places, held};
use crate::input::{ConfirmationInput, ProcessInput, SuiteInput};
use crate::java::{Exhaustion, ran_out};
use crate::looks;
use crate::measured::{self, When, unusable};
use crate::policy::{GatePolicy, smallest_limit, thresholds};
use crate::rare;
use crate::record::Window;
use crate::screen::{
    ENOUGH_REPETITIONS, left, left_between, left_too_much, limited_handles, too_much, undecided, unlisted,
    unmeasured_mappings,
};
use crate::stats::float;

/// Judges one test of a suite.
pub(super) fn judge(
    context: &mut JudgeContext<'_>,
    suite: &SuiteInput,
    id: &str,
    runs: &Executions<'_>,
) -> TestReport {
    let mut j = Judgement::default();
    context.waivers.enter(&suite.name, id);
    let duration_s = runs.ended.iter().map(|(_, w)| seconds(w)).fold(0.0, f64::max);
    let outcome = outcome(runs);
    if let Some(report) = broken_off(id, runs) {
        return report;
    }
    let unmeasured = runs.ended.iter().find_map(|(p, w)| measured::unmeasured(&p.record, Some(w)));
    match (outcome, unmeasured) {
        (Outcome::Failed, _) => failed_by_itself(runs, &mut j),
        (Outcome::Skipped, _) => j.raise(Verdict::NotJudged, "the test was skipped".to_owned()),
        (_, Some(why)) => j.raise(Verdict::Error, why),
        (_, None) => measure(context, suite, id, runs, &mut j),
    }
    for leak in j.leaks.iter_mut().chain(&mut j.one_time) {
        leak.id = context.waivers.id_here(leak);
    }
    // What one execution left may have been listed before its growth was.
    let mut listed = BTreeSet::new();
    j.leaks.reverse();
    j.leaks.retain(|leak| listed.insert(leak.id.clone()));
    j.leaks.reverse();
    j.against_base(context.policy, &suite.name, id);
    j.report(id.to_owned(), outcome, duration_s)
}

/// The verdict on a test whose process ended in the middle of it.
fn broken_off(id: &str, runs: &Executions<'_>) -> Option<TestReport> {
    let (process, open) = runs.broken_off.first()?;
    let mut j = Judgement::default();
    let (outcome, mut how) = measured::broken_off(process, When::InATest);
    if let Some(why) = ran_out(&process.record, open.window.start_ns, 0) {
        how = format!("{how}; before: {}", why.described());
    }
    j.curve = curve::of_the_end(&process.record, open.window.start_ns);
    j.raise(Verdict::Error, how);
    let until_ns = process.record.last_ns.saturating_sub(open.window.start_ns);
    let duration_s = std::time::Duration::from_nanos(until_ns).as_secs_f64();
    Some(j.report(id.to_owned(), outcome, duration_s))
}

/// A test of a run in which tests are not measured one by one: what is known of it is in `j`.
pub(super) fn judge_unmeasured_run(id: &str, runs: &Executions<'_>, mut j: Judgement) -> TestReport {
    if let Some(report) = broken_off(id, runs) {
        return report;
    }
    let duration_s = runs.ended.iter().map(|(_, w)| seconds(w)).fold(0.0, f64::max);
    let outcome = outcome(runs);
    let unmeasured = runs.ended.iter().find_map(|(p, _)| measured::unmeasured(&p.record, None));
    match (outcome, unmeasured) {
        (Outcome::Failed, _) => failed_by_itself(runs, &mut j),
        (Outcome::Skipped, _) => j.raise(Verdict::NotJudged, "the test was skipped".to_owned()),
        (_, Some(why)) => j.raise(Verdict::Error, why),
        (_, None) => filled_the_heap(runs, &mut j),
    }
    j.report(id.to_owned(), outcome, duration_s)
}

/// In whose window memory ran out or the heap was above its limit, and the heap up to there.
fn ran_full<'a>(runs: &Executions<'a>) -> Option<(&'a Exhaustion, Vec<CurvePoint>)> {
    runs.ended
        .iter()
        .find_map(|(p, w)| Some((ran_out(&p.record, w.start_ns, w.end_ns)?, curve::of_heap(&p.record, w))))
}

/// It passed, but the heap was above its limit meanwhile. An error for lack of memory that it
/// expected is its own matter.
fn filled_the_heap(runs: &Executions<'_>, j: &mut Judgement) {
    if let Some((why, curve)) = ran_full(runs).filter(|(why, _)| why.limit) {
        if j.curve.is_empty() {
            j.curve = curve;
        }
        j.raise(Verdict::Warn, why.described());
    }
}

/// The user's own failure, with its cause where memory ran out, and the heap up to there.
fn failed_by_itself(runs: &Executions<'_>, j: &mut Judgement) {
    let (why, curve) = ran_full(runs).unzip();
    let why = why.map(|why| format!("; {}", why.described())).unwrap_or_default();
    j.curve = curve.unwrap_or_default();
    let failed =
        |(_, window): &(&ProcessInput, &Window)| window.outcome == Some(memgate_wire::Outcome::Failed);
    // A test that cannot be repeated in one process is no failing test to its owner.
    let execution = match runs.ended.iter().position(failed) {
        Some(before) if before > 0 => format!(" in execution {} of {}", before + 1, runs.ended.len()),
        _ => String::new(),
    };
    j.raise(Verdict::NotJudged, format!("the test itself failed{execution}: not judged for leaks{why}"));
}

fn seconds(window: &Window) -> f64 {
    std::time::Duration::from_nanos(window.end_ns.saturating_sub(window.start_ns)).as_secs_f64()
}

/// The worst of all executions; skipped only where it never ran.
fn outcome(runs: &Executions<'_>) -> Outcome {
    let of = |window: &Window| match window.outcome {
        Some(memgate_wire::Outcome::Failed) => Outcome::Failed,
        Some(memgate_wire::Outcome::Skipped) => Outcome::Skipped,
        Some(memgate_wire::Outcome::Passed) | None => Outcome::Passed,
    };
    let all: Vec<_> = runs.ended.iter().map(|(_, w)| of(w)).collect();
    [Outcome::Failed, Outcome::Passed].into_iter().find(|o| all.contains(o)).unwrap_or(Outcome::Skipped)
}

/// A test that passed and was measured.
fn measure(
    context: &mut JudgeContext<'_>,
    suite: &SuiteInput,
    id: &str,
    runs: &Executions<'_>,
    j: &mut Judgement,
) {
    let Some(&(process, worst)) =
        runs.ended.iter().max_by_key(|(_, w)| (w.left_bytes(), w.left_allocations()))
    else {
        return;
    };
    if !process.record.is_java_only() {
        screened_figures(context.policy, &suite.name, id, runs, j);
    }
    let unmeasured =
        runs.ended.iter().find_map(|(_, w)| unmeasured_mappings(w, &suite.name, id, context.policy));
    let unlisted =
        runs.ended.iter().find_map(|(p, w)| unlisted(&p.record, w, &suite.name, id, context.policy));
    unmeasured.into_iter().chain(unlisted).for_each(|why| j.raise(Verdict::Error, why));
    per_test(context, suite, id, runs, j);

    let is_process = suite.boundary == memgate_model::BoundaryQuality::Process;
    let excess = runs.ended.iter().find_map(|(_, w)| left_too_much(w, &suite.name, id, context.policy));
    let confirmation = suite.confirmations.get(id);
    j.left =
        excess.clone().unwrap_or_else(|| format_amount(Metric::NativeLiveBytes, float(worst.left_bytes())));
    let repeated = match confirmation {
        Some(ConfirmationInput::Repeated(again) | ConfirmationInput::InCompany { alone: again, .. }) => {
            unusable(again, id).is_none()
        }
        _ => false,
    };
    let has_limit = limited_handles(context.policy, &suite.name, id).next().is_some();
    if !repeated && has_limit && runs.ended.iter().any(|(_, w)| looks::is_unseen(w)) {
        j.raise(Verdict::Error, format!("not measured: {}", looks::UNSEEN));
    }
    if !repeated {
        let why = |(_, w): &(&ProcessInput, &Window)| {
            looks::unmeasured_resident(w, &suite.name, id, context.policy)
        };
        runs.ended.iter().find_map(why).into_iter().for_each(|why| j.raise(Verdict::Error, why));
    }
    // It may have done something else in another process.
    let is_other = |(other, _): &(&ProcessInput, &Window)| !std::ptr::eq(*other, process);
    let left_more =
        |(_, w): &(&ProcessInput, &Window)| left_too_much(w, &suite.name, id, context.policy).is_some();
    let others = runs.ended.iter().copied().filter(|ran| is_other(ran) && left_more(ran));
    let screened = Screened { worst: (process, worst), others: others.collect() };
    let repetitions = runs.ended.iter().filter(|(p, _)| std::ptr::eq(*p, process)).count();
    match confirmation {
        Some(ConfirmationInput::Repeated(again)) => {
            judge_again(context, suite, id, (again, None), &screened, j);
        }
        Some(ConfirmationInput::InCompany { alone, together }) => {
            let together = together.as_deref().map_err(String::as_str);
            judge_again(context, suite, id, (alone, Some(together)), &screened, j);
        }
        Some(ConfirmationInput::Lengths(runs)) => lengths::judge(context, &suite.name, id, runs, j),
        Some(ConfirmationInput::FreedSince) => {
            let why = format!("left {}, which later tests freed; not confirmed, to save time", j.left);
            j.raise(Verdict::Pass, why);
        }
        Some(ConfirmationInput::Impossible(why)) => unconfirmed(context, suite, id, process, worst, why, j),
        Some(ConfirmationInput::Broken(why)) => {
            j.raise(Verdict::Error, format!("when it was repeated: {why}"))
        }
        Some(ConfirmationInput::Unscreened(why)) => j.raise(Verdict::Warn, format!("not screened: {why}")),
        None if excess.is_none() => {}
        None if is_process => alive_at_exit(context, suite, id, (process, worst), j),
        None if worst.interval.is_some() => {
            unconfirmed(context, suite, id, process, worst, "it was sampled and not repeated", j);
        }
        None if repetitions >= ENOUGH_REPETITIONS && !worst.is_setup() => {
            judge_repeated(context, suite, id, (process, None), &screened, j);
        }
        None if worst.is_setup() => {
            unconfirmed(context, suite, id, process, worst, "it was not repeated", j);
        }
        None => unconfirmed(context, suite, id, process, worst, "it ran only once", j),
    }
}

/// A program that ran once and cannot be repeated: whether what it leaves would grow with its work,
/// nobody can tell.
fn alive_at_exit(
    context: &mut JudgeContext<'_>,
    suite: &SuiteInput,
    id: &str,
    (process, window): (&ProcessInput, &Window),
    j: &mut Judgement,
) {
    let (mut bytes, mut count) = (0.0, 0.0);
    for group in &held(&window.survivors, &mut Places::new(&process.record, context.resolve)) {
        if is_stream_buffer(group) {
            continue;
        }
        let mut leak = leaks::in_all(group);
        leak.waiver = context.waivers.cover(&leak, &group.place.names);
        if leak.waiver.is_none() {
            bytes += group.bytes;
            count += group.count;
        }
        j.leaks.push(leak);
    }
    let is_too_much = |metric, value| {
        smallest_limit(context.policy, &suite.name, id, metric, Per::Iteration)
            .is_some_and(|limit| value > limit)
    };
    if is_too_much(Metric::NativeLiveBytes, bytes) || is_too_much(Metric::NativeLiveAllocations, count) {
        let reason = format!(
            "not judged: {} in {} alive at exit; to have it judged, name the argument that repeats its work as {{n}} in memgate.yaml",
            format_bytes(bytes),
            format_counted(count, "allocation")
        );
        j.raise(Verdict::Warn, reason);
    } else if j.leaks.iter().any(|leak| leak.waiver.is_some()) {
        j.raise(Verdict::Pass, format!("left {}, waived", j.left));
    }
}

/// The C library's buffer of a standard stream, which no program can free.
fn is_stream_buffer(group: &Held) -> bool {
    group
        .place
        .names
        .iter()
        .any(|name| name.ends_with("_IO_file_doallocate") || name.ends_with("_IO_wfile_doallocate"))
}

/// Executions of the screen.
struct Screened<'a> {
    /// The one that left most.
    worst: (&'a ProcessInput, &'a Window),
    /// Those of other processes that left too much.
    others: Vec<(&'a ProcessInput, &'a Window)>,
}

/// By its repetitions, where they can be judged.
fn judge_again(
    context: &mut JudgeContext<'_>,
    suite: &SuiteInput,
    id: &str,
    (again, together): (&ProcessInput, Together<'_>),
    screened: &Screened<'_>,
    j: &mut Judgement,
) {
    let (process, window) = screened.worst;
    // Some ends more or less say the same.
    let ends = again.record.windows_of(id).count();
    let mut unlisted = again
        .record
        .windows_of(id)
        .filter_map(|window| unlisted(&again.record, window, &suite.name, id, context.policy));
    let of_system = unlisted.nth(ends / 4).map(|why| (Verdict::Error, why));
    match unusable(again, id).or(of_system) {
        Some((Verdict::Warn, why)) => unconfirmed(context, suite, id, process, window, &why, j),
        Some((verdict, why)) => j.raise(verdict, format!("when it was repeated: {why}")),
        None => judge_repeated(context, suite, id, (again, together), screened, j),
    }
}

/// The iterations decide; what stays of the screen's survivors is a one-time cost.
fn judge_repeated(
    context: &mut JudgeContext<'_>,
    suite: &SuiteInput,
    id: &str,
    (again, together): (&ProcessInput, Together<'_>),
    Screened { worst: (screened, window), others }: &Screened<'_>,
    j: &mut Judgement,
) {
    let (screened, window) = (*screened, *window);
    j.handed = company::handed(context, id, &again.record, together);
    let mut survivors = window.survivors.clone();
    let left = held(&survivors, &mut Places::new(&screened.record, context.resolve));
    let born = left.iter().map(|group| group.place.id.clone()).collect();
    let kept = repeated::judge(context, (&suite.name, id), &again.record, &born, j);
    let mut os_left = os_left(&screened.record, window, context);
    // The user's own repetitions are all there is of the test.
    if !std::ptr::eq(again, screened) {
        let mut missing = Missing::of((screened, window), &again.record, id);
        missing.knows_mappings(context, id, &again.record, together);
        missing.knows_exit_lists(context);
        survivors.retain(|record| !missing.records.contains(record));
        os_left.retain(|group| !missing.os.iter().any(|(kind, _)| *kind == group.kind));
        missing.judge(context, &suite.name, id, together, j);
    }
    for other in others {
        let mut missing = Missing::of(*other, &again.record, id);
        missing.knows_mappings(context, id, &again.record, None);
        missing.knows_exit_lists(context);
        missing.judge(context, &suite.name, id, None, j);
    }
    let leaking: BTreeSet<String> = j.leaks.iter().map(|l| l.id.clone()).collect();
    let mut survivors = held(&survivors, &mut Places::new(&screened.record, context.resolve));
    let mut handed_bytes = 0.0;
    survivors.retain(|group| {
        let is_handed = j.handed.contains(&group.place.id);
        handed_bytes += if is_handed { group.bytes } else { 0.0 };
        !is_handed
    });
    if handed_bytes > 0.0 {
        let bytes = format_bytes(handed_bytes);
        j.raise(Verdict::Pass, format!("{bytes} handed to a later test, which frees it"));
    }
    let one_time = repeated::one_time(survivors, kept, &leaking);
    for held in &one_time {
        let mut leak = leaks::in_all(held);
        leak.waiver = context.waivers.cover(&leak, &held.place.names);
        j.one_time.push(leak);
    }
    let bytes: f64 = j.one_time.iter().map(|leak| leak.bytes_per_iteration).sum();
    let mut notes = Vec::new();
    if bytes > 0.0 {
        notes.push(format_bytes(bytes));
    }
    for group in os_left {
        let mut leak = group.leak();
        let of_name = |name: &String| leaks::of_os(group.kind, name, 0.0).id;
        if group.names.iter().all(|name| j.handed.contains(&of_name(name))) {
            let handed = format_amount(group.kind.metric(), group.count);
            let gives_back = if group.kind == OsKind::Mapping { "unmaps" } else { "closes" };
            j.raise(Verdict::Pass, format!("{handed} handed to a later test, which {gives_back} it"));
        } else if !leaking.contains(&leak.id) {
            leak.waiver = context.waivers.cover(&leak, group.frame_names());
            notes.push(format_amount(group.kind.metric(), group.count));
            j.one_time.push(leak);
        }
    }
    let waived = j.leaks.iter().filter(|l| l.waiver.is_some()).count();
    if waived > 0 {
        j.raise(Verdict::Pass, format!("{} waived", format_counted(float(waived as u64), "leak")));
    }
    if !notes.is_empty() {
        let seen = rare::seen(j.quiet.unwrap_or_default());
        j.raise(Verdict::Pass, format!("one-time: {}; {seen}", notes.join(", ")));
    }
}

/// What one execution left is all there is: a warning, or a failure by policy, unless waivers cover
/// it.
fn unconfirmed(
    context: &mut JudgeContext<'_>,
    suite: &SuiteInput,
    id: &str,
    process: &ProcessInput,
    window: &Window,
    why: &str,
    j: &mut Judgement,
) {
    let unwaived = left_by_group(context, process, window, j);
    let more_than_allowed = |of: fn(Range) -> f64| {
        Metric::ALL.into_iter().any(|metric| {
            let limit = smallest_limit(context.policy, &suite.name, id, metric, Per::Iteration);
            limit.zip(unwaived.get(&metric)).is_some_and(|(limit, range)| of(*range) > limit)
        })
    };
    if more_than_allowed(|range| range.low) {
        j.unconfirmed(context.policy, why);
    } else if more_than_allowed(|range| range.high) {
        j.raise(Verdict::Warn, format!("not decided by samples: left {} in one execution; {why}", j.left));
    } else if j.leaks.iter().any(|l| l.waiver.is_some()) {
        j.raise(Verdict::Pass, format!("left {}, waived", j.left));
    }
}

/// What is left of a metric, at least and at most: the same, unless it was sampled.
#[derive(Clone, Copy)]
struct Range {
    value: f64,
    low: f64,
    high: f64,
}

/// Lists what a window left by group and returns what of each metric no waiver covers.
fn left_by_group(
    context: &mut JudgeContext<'_>,
    process: &ProcessInput,
    window: &Window,
    j: &mut Judgement,
) -> BTreeMap<Metric, Range> {
    let confidence = context.policy.confidence;
    let range = |metric| {
        let (low, high) = left_between(window, metric, confidence)?;
        Some((metric, Range { value: left(window, metric)?, low, high }))
    };
    let mut unwaived: BTreeMap<Metric, Range> = Metric::ALL.into_iter().filter_map(range).collect();
    let mut waived = |metric, waived: f64| {
        unwaived.entry(metric).and_modify(|Range { value, low, high }| {
            *value -= waived;
            *low -= waived;
            // Where all is waived, there is nothing that might be more.
            *high = if *value > 0.5 { *high - waived } else { 0.0 };
        });
    };
    let groups = held(&window.survivors, &mut Places::new(&process.record, context.resolve));
    for group in &groups {
        let mut leak = leaks::in_all(group);
        leak.waiver = context.waivers.cover(&leak, &group.place.names);
        if leak.waiver.is_some() {
            waived(Metric::NativeLiveBytes, group.bytes);
            waived(Metric::NativeLiveAllocations, group.count);
        }
        j.leaks.push(leak);
    }
    for group in os_left(&process.record, window, context) {
        let mut leak = group.leak();
        leak.waiver = context.waivers.cover(&leak, group.frame_names());
        if leak.waiver.is_some() {
            waived(group.kind.metric(), group.count);
        }
        j.leaks.push(leak);
    }
    unwaived
}

/// What the screen saw, as the figures of a test that needs no other.
fn screened_figures(policy: &GatePolicy, suite: &str, id: &str, runs: &Executions<'_>, j: &mut Judgement) {
    for metric in Metric::ALL {
        let values = runs.ended.iter().filter_map(|(_, w)| Some((left(w, metric)?, *w)));
        let Some((value, window)) = values.max_by(|a, b| a.0.total_cmp(&b.0)) else { continue };
        let bounds = left_between(window, metric, policy.confidence);
        let (low, high) = bounds.unwrap_or((value, value));
        let mut per = Per::Iteration;
        let mut limits = thresholds(policy, suite, id, metric, per);
        if limits.is_empty() {
            per = Per::Test;
            limits = thresholds(policy, suite, id, metric, per);
        }
        let unit = metric.unit();
        let threshold = applied(&limits, low);
        let figure = MetricValue {
            value,
            unit,
            per,
            low,
            high,
            iterations: 1,
            confidence: if low < high { policy.confidence } else { 0.0 },
            threshold,
        };
        j.metrics.insert(metric, figure);
    }
}

/// Thresholds per execution: no repetition is needed to judge them.
fn per_test(
    context: &mut JudgeContext<'_>,
    suite: &SuiteInput,
    id: &str,
    runs: &Executions<'_>,
    j: &mut Judgement,
) {
    let mut unwaived = BTreeMap::<*const Window, BTreeMap<Metric, Range>>::new();
    for metric in Metric::ALL {
        for threshold in thresholds(context.policy, &suite.name, id, metric, Per::Test) {
            let worst = runs.ended.iter().filter_map(|(p, w)| Some((p, w, left(w, metric)?)));
            let Some((process, window, value)) = worst.max_by(|a, b| a.2.total_cmp(&b.2)) else { continue };
            let Some((low, high)) = left_between(window, metric, context.policy.confidence) else { continue };
            if high <= threshold.limit {
                continue;
            }
            let known = unwaived
                .entry(std::ptr::from_ref(*window))
                .or_insert_with(|| left_by_group(context, process, window, j));
            let range = known.get(&metric).copied().unwrap_or(Range { value, low, high });
            let Range { value, low, high } = range;
            if low > threshold.limit {
                let reason = too_much(metric, value, "left by one execution", threshold.limit);
                j.raise_figure(threshold.level.verdict(), reason);
            } else if high > threshold.limit {
                let per = "left by one execution";
                j.raise_figure(Verdict::Warn, undecided(metric, value, (low, high), per, threshold.limit));
            }
        }
    }
}
