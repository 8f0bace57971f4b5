//! One test: its screening windows, the result of repeating it, its verdict.

use std::collections::{BTreeMap, BTreeSet};

use memgate_model::{CurvePoint, Metric, Outcome, TestReport, Verdict, format_amount, format_bytes};
use memgate_wire::setup::ENVIRONMENT;

use super::company::{Missing, Together};
use super::context::JudgeContext;
use super::judgement::{Executions, Judgement};
use super::leaks::{OsGroup, os_left};
use super::one_test::TestJudge;
use super::repeated::Kept;
use super::wording::waived_leaks;
use super::{curve, leaks, other_test, repeated};
use crate::groups::{Held, OsKind, Places, held};
use crate::input::{ConfirmationInput, Ending, ProcessInput, SuiteInput};
use crate::java::{Exhaustion, ran_out};
use crate::looks;
use crate::measured::{self, SIGKILL, When, unusable};
use crate::own_tests::{self, Origins};
use crate::rare;
use crate::record::{ProcessRecord, Window};
use crate::repetition::RepetitionLimits;
use crate::screen::{ENOUGH_REPETITIONS, left_too_much, limited_handles, unlisted, unmeasured_mappings};
use crate::stats::float;

/// Judges one test of a suite.
pub(super) fn judge(
    context: &mut JudgeContext<'_>,
    suite: &SuiteInput,
    id: &str,
    runs: &Executions<'_>,
) -> TestReport {
    let duration_s = runs.ended.iter().map(|(_, w)| seconds(w)).fold(0.0, f64::max);
    let outcome = outcome(runs);
    if let Some(report) = broken_off(id, runs) {
        return report;
    }
    let mut test = TestJudge::enter(context, &suite.name, id);
    let unmeasured = runs.ended.iter().find_map(|(p, w)| measured::unmeasured(&p.record, Some(w)));
    match (outcome, unmeasured) {
        (Outcome::Failed, _) => failed_by_itself(runs, &mut test.judgement),
        (Outcome::Skipped, _) => test.judgement.raise(Verdict::NotJudged, "the test was skipped".to_owned()),
        (_, Some(why)) => test.judgement.raise(Verdict::Error, why),
        (_, None) => test.measure(suite, runs),
    }
    let TestJudge { context, mut judgement, .. } = test;
    for leak in judgement.leaks.iter_mut().chain(&mut judgement.one_time) {
        leak.id = context.waivers.id_here(leak);
    }
    // The amount of one execution may have been listed before the growth of the same leak.
    let mut listed = BTreeSet::new();
    judgement.leaks.reverse();
    judgement.leaks.retain(|leak| listed.insert(leak.id.clone()));
    judgement.leaks.reverse();
    judgement.against_base(context.policy, &suite.name, id);
    other_test::remark(&mut judgement, suite, id);
    judgement.report(id.to_owned(), outcome, duration_s)
}

const NEVER_ENDED: &str = "not measured: its program reported its start and went on without its end; \
                           report the end also if the test fails or throws (MemgateTestEnd)";

/// The verdict on a test whose process ended during the test.
fn broken_off(id: &str, runs: &Executions<'_>) -> Option<TestReport> {
    let (process, open) = runs.broken_off.first()?;
    let mut judgement = Judgement::default();
    if own_tests::never_ended(&process.record, open) {
        judgement.raise(Verdict::Error, NEVER_ENDED.to_owned());
        return Some(judgement.report(id.to_owned(), Outcome::Passed, 0.0));
    }
    let (outcome, mut how) = measured::broken_off(process, When::InATest);
    if let Some(why) = ran_out(&process.record, open.window.start_ns, 0) {
        how = format!("{how}; before: {}", why.described());
    }
    if let (Ending::Signalled(signal), None) = (process.ending, &process.record.goodbye) {
        how = format!("{how}; {}", after_signal(signal));
    }
    judgement.curve = curve::of_the_end(&process.record, open.window.start_ns);
    judgement.raise(Verdict::Error, how);
    let until_ns = process.record.last_ns.saturating_sub(open.window.start_ns);
    let duration_s = std::time::Duration::from_nanos(until_ns).as_secs_f64();
    Some(judgement.report(id.to_owned(), outcome, duration_s))
}

/// What to do about a signal that ended the process of a test.
const fn after_signal(signal: i32) -> &'static str {
    match signal {
        SIGKILL => "who killed it? the kernel does if memory runs out (`dmesg` shows that)",
        _ => "run it alone, without memgate, and repair it: a test is judged only if it ends by itself",
    }
}

/// A test of a run that does not measure single tests. `judgement` has what is known about it.
pub(super) fn judge_unmeasured_run(id: &str, runs: &Executions<'_>, mut judgement: Judgement) -> TestReport {
    if let Some(report) = broken_off(id, runs) {
        return report;
    }
    let duration_s = runs.ended.iter().map(|(_, w)| seconds(w)).fold(0.0, f64::max);
    let outcome = outcome(runs);
    let unmeasured = runs.ended.iter().find_map(|(p, _)| measured::unmeasured(&p.record, None));
    match (outcome, unmeasured) {
        (Outcome::Failed, _) => failed_by_itself(runs, &mut judgement),
        (Outcome::Skipped, _) => judgement.raise(Verdict::NotJudged, "the test was skipped".to_owned()),
        (_, Some(why)) => judgement.raise(Verdict::Error, why),
        (_, None) => filled_the_heap(runs, &mut judgement),
    }
    judgement.report(id.to_owned(), outcome, duration_s)
}

/// The first execution in which memory ran out or the heap exceeded its limit: the reason, and the heap curve.
fn ran_full<'a>(runs: &Executions<'a>) -> Option<(&'a Exhaustion, Vec<CurvePoint>)> {
    runs.ended
        .iter()
        .find_map(|(p, w)| Some((ran_out(&p.record, w.start_ns, w.end_ns)?, curve::of_heap(&p.record, w))))
}

/// It passed, but the heap exceeded its limit meanwhile. An out-of-memory error that the test expected is not reported.
fn filled_the_heap(runs: &Executions<'_>, judgement: &mut Judgement) {
    if let Some((why, curve)) = ran_full(runs).filter(|(why, _)| why.limit) {
        if judgement.curve.is_empty() {
            judgement.curve = curve;
        }
        judgement.raise(Verdict::Warn, why.described());
    }
}

/// The user's own failure, with its cause and the heap curve if memory ran out.
fn failed_by_itself(runs: &Executions<'_>, judgement: &mut Judgement) {
    let (why, curve) = ran_full(runs).unzip();
    let why = why.map(|why| format!("; {}", why.described())).unwrap_or_default();
    judgement.curve = curve.unwrap_or_default();
    let failed =
        |(_, window): &(&ProcessInput, &Window)| window.outcome == Some(memgate_wire::Outcome::Failed);
    // For its owner, a test that fails only when it is repeated in one process is no failing test. So the text names
    // the execution.
    let execution = match runs.ended.iter().position(failed) {
        Some(before) if before > 0 => format!(" in execution {} of {}", before + 1, runs.ended.len()),
        _ => String::new(),
    };
    judgement
        .raise(Verdict::NotJudged, format!("the test itself failed{execution}: not judged for leaks{why}"));
}

fn seconds(window: &Window) -> f64 {
    std::time::Duration::from_nanos(window.end_ns.saturating_sub(window.start_ns)).as_secs_f64()
}

/// The worst outcome of all executions. Skipped only if it never ran.
fn outcome(runs: &Executions<'_>) -> Outcome {
    let of = |window: &Window| match window.outcome {
        Some(memgate_wire::Outcome::Failed) => Outcome::Failed,
        Some(memgate_wire::Outcome::Skipped) => Outcome::Skipped,
        Some(memgate_wire::Outcome::Passed) | None => Outcome::Passed,
    };
    let all: Vec<_> = runs.ended.iter().map(|(_, w)| of(w)).collect();
    [Outcome::Failed, Outcome::Passed].into_iter().find(|o| all.contains(o)).unwrap_or(Outcome::Skipped)
}

impl TestJudge<'_, '_> {
    /// Judges a test that passed and was measured.
    fn measure(&mut self, suite: &SuiteInput, runs: &Executions<'_>) {
        let Some(&(process, worst)) =
            runs.ended.iter().max_by_key(|(_, w)| (w.left_bytes(), w.left_allocations()))
        else {
            return;
        };
        if !process.record.is_java_only() {
            self.screened_figures(runs);
        }
        let confirmation = suite.confirmations.get(self.id);
        let is_repeated = match confirmation {
            Some(ConfirmationInput::Repeated(again) | ConfirmationInput::InCompany { alone: again, .. }) => {
                unusable(again, self.id).is_none()
            }
            _ => false,
        };
        self.unmeasured_reasons(runs, is_repeated);
        self.per_test(runs);

        let (name, id, policy) = (self.suite, self.id, self.context.policy);
        let excess = runs.ended.iter().find_map(|(_, w)| left_too_much(w, name, id, policy));
        let is_too_much = excess.is_some();
        self.judgement.left =
            excess.unwrap_or_else(|| format_amount(Metric::NativeLiveBytes, float(worst.left_bytes())));
        // It may have behaved differently in another process.
        let is_other = |(other, _): &(&ProcessInput, &Window)| !std::ptr::eq(*other, process);
        let left_more = |(_, w): &(&ProcessInput, &Window)| left_too_much(w, name, id, policy).is_some();
        let others = runs.ended.iter().copied().filter(|ran| is_other(ran) && left_more(ran));
        let screened = Screened { worst: (process, worst), others: others.collect() };
        match confirmation {
            Some(confirmation) => self.by_confirmation(confirmation, &screened),
            None if suite.boundary == memgate_model::BoundaryQuality::Process => {
                self.alive_at_exit((process, worst));
            }
            None if !is_too_much => {}
            None => {
                let repetitions = runs.ended.iter().filter(|(p, _)| std::ptr::eq(*p, process)).count();
                self.not_repeated(&screened, repetitions);
            }
        }
    }

    /// Reports metrics that have a threshold but were not measured.
    fn unmeasured_reasons(&mut self, runs: &Executions<'_>, is_repeated: bool) {
        let (suite, id, policy) = (self.suite, self.id, self.context.policy);
        let first = |why: &dyn Fn(&ProcessInput, &Window) -> Option<String>| {
            runs.ended.iter().find_map(|(process, window)| why(process, window))
        };
        let mut reasons = vec![
            first(&|_, window| unmeasured_mappings(window, suite, id, policy)),
            first(&|process, window| unlisted(&process.record, window, suite, id, policy)),
        ];
        if !is_repeated {
            let has_limit = limited_handles(policy, suite, id).next().is_some();
            let is_unseen = has_limit && runs.ended.iter().any(|(_, w)| looks::is_unseen(w));
            reasons.push(is_unseen.then(|| format!("not measured: {}", looks::UNSEEN)));
            reasons.push(first(&|_, window| looks::unmeasured_resident(window, suite, id, policy)));
        }
        reasons.into_iter().flatten().for_each(|why| self.judgement.raise(Verdict::Error, why));
    }

    /// Judges by the result of repeating it.
    fn by_confirmation(&mut self, confirmation: &ConfirmationInput, screened: &Screened<'_>) {
        let (process, worst) = screened.worst;
        match confirmation {
            ConfirmationInput::Repeated(again) => self.judge_again((again, None), screened),
            ConfirmationInput::InCompany { alone, together } => {
                let together = together.as_deref().map_err(String::as_str);
                self.judge_again((alone, Some(together)), screened);
            }
            ConfirmationInput::Lengths(runs) => self.judge_lengths(runs),
            ConfirmationInput::FreedSince => {
                let why = format!(
                    "left {}, which later tests freed; not confirmed, to save time",
                    self.judgement.left
                );
                self.judgement.raise(Verdict::Pass, why);
            }
            ConfirmationInput::Impossible(why) => {
                // No argument of ours selects a test that the program reports itself.
                self.judgement.only_among_others |= process.record.tells_its_own_tests();
                self.unconfirmed(process, worst, why);
            }
            ConfirmationInput::Broken(why) => {
                self.judgement.raise(Verdict::Error, format!("when it was repeated: {why}"));
            }
            ConfirmationInput::Unscreened(why) => {
                self.judgement.raise(Verdict::Warn, format!("not screened: {why}"));
            }
        }
    }

    /// It left too much and was not repeated.
    fn not_repeated(&mut self, screened: &Screened<'_>, repetitions: usize) {
        let (process, worst) = screened.worst;
        let why = match () {
            () if worst.interval.is_some() => "it was sampled and not repeated",
            () if worst.is_setup() => "it was not repeated",
            () if repetitions >= ENOUGH_REPETITIONS => {
                return self.judge_repeated((process, None), screened);
            }
            () => "it ran only once",
        };
        self.unconfirmed(process, worst, why);
    }

    /// Judges by its repetitions, if these can be judged.
    fn judge_again(&mut self, (again, together): (&ProcessInput, Together<'_>), screened: &Screened<'_>) {
        let (process, window) = screened.worst;
        // A few missing ends do not change the result.
        let ends = again.record.windows_of(self.id).count();
        let mut unlisted = again
            .record
            .windows_of(self.id)
            .filter_map(|window| unlisted(&again.record, window, self.suite, self.id, self.context.policy));
        let of_system = unlisted.nth(ends / 4).map(|why| (Verdict::Error, why));
        match unusable(again, self.id).or(of_system) {
            Some((Verdict::Warn, why)) => self.unconfirmed(process, window, &why),
            Some((verdict, why)) => self.judgement.raise(verdict, format!("when it was repeated: {why}")),
            None => self.judge_repeated((again, together), screened),
        }
    }

    /// Bytes that the set-up and tear-down of its suite and of environments left, at places where the test left
    /// nothing. They run in each of its iterations. Blocks without a stack are excluded, because their origin is
    /// unknown.
    fn of_set_ups(
        &mut self,
        (screened, test): (&ProcessInput, &Window),
        born: &BTreeSet<String>,
    ) -> BTreeMap<String, f64> {
        let is_around =
            |w: &&Window| w.is_setup() && [test.suite.as_str(), ENVIRONMENT].contains(&w.suite.as_str());
        let around = screened.record.windows.iter().filter(|w| is_around(w) && !test.is_setup());
        // Each set-up counts once, however often the screen ran.
        let around: BTreeMap<_, _> = around.map(|window| ((&window.suite, &window.test), window)).collect();
        let survivors: Vec<_> = around.values().flat_map(|window| window.survivors.iter().copied()).collect();
        let left = held(&survivors, &mut Places::new(&screened.record, self.context.resolve));
        let theirs = |group: &Held| !group.place.frames.is_empty() && !born.contains(&group.place.id);
        left.into_iter().filter(theirs).map(|group| (group.place.id.clone(), group.bytes)).collect()
    }

    /// The iterations decide. The remaining survivors of the screen are a one-time cost.
    fn judge_repeated(
        &mut self,
        (again, together): (&ProcessInput, Together<'_>),
        Screened { worst: (screened, window), others }: &Screened<'_>,
    ) {
        let (screened, window) = (*screened, *window);
        self.judgement.handed = self.handed(&again.record, together);
        let mut survivors = window.survivors.clone();
        let left = held(&survivors, &mut Places::new(&screened.record, self.context.resolve));
        let born = left.iter().map(|group| group.place.id.clone()).collect();
        self.judgement.of_set_ups = self.of_set_ups((screened, window), &born);
        let origins = self.origins(&screened.record, &again.record);
        let kept = self.judge_iterations(&again.record, &born, origins.as_ref());
        let mut os_left = os_left(&screened.record, window, self.context);
        // With the user's own repetitions, there are no other executions of the test.
        if !std::ptr::eq(again, screened) {
            let missing = self.missing((screened, window), &again.record, together);
            survivors.retain(|record| !missing.records.contains(record));
            os_left.retain(|group| !missing.os.iter().any(|(kind, _)| *kind == group.kind));
            missing.judge(self, together);
        }
        for other in others {
            self.missing(*other, &again.record, None).judge(self, None);
        }
        let survivors = held(&survivors, &mut Places::new(&screened.record, self.context.resolve));
        let executions = again.record.windows_of(self.id).count();
        self.one_time(executions, survivors, kept, os_left);
    }

    /// By which stacks the test is judged, if all tests of its program were repeated with it. `None`: by all.
    fn origins(&mut self, screened: &ProcessRecord, again: &ProcessRecord) -> Option<Origins> {
        if std::ptr::eq(screened, again) || !own_tests::repeats_itself(again) {
            return None;
        }
        // No argument of ours selects one of its tests.
        self.judgement.only_among_others = true;
        if !own_tests::is_among_others(again, self.id) {
            return None;
        }
        Some(self.context.origins(screened, again).of_test(self.id))
    }

    /// Allocations and handles that one screened execution left, but the repetitions did not.
    fn missing<'a>(
        &mut self,
        screened: (&'a ProcessInput, &'a Window),
        again: &ProcessRecord,
        together: Together<'_>,
    ) -> Missing<'a> {
        let mut missing = Missing::of(screened, again, self.id);
        missing.knows_mappings(self, again, together);
        missing.knows_exit_lists(self);
        missing.knows_chance(self, again, together);
        missing
    }

    /// Lists what the test kept without growing, and gives the reasons if the test passes.
    fn one_time(&mut self, executions: usize, survivors: Vec<Held>, kept: Vec<Kept>, os_left: Vec<OsGroup>) {
        let leaks = self.judgement.leaks.iter().map(|leak| leak.id.clone());
        let leaking: BTreeSet<String> = leaks.chain(self.judgement.of_several.iter().cloned()).collect();
        let bytes = self.one_time_memory(survivors, kept, &leaking);
        let mut notes = Vec::new();
        if bytes > 0.0 {
            notes.push(format_bytes(bytes));
        }
        notes.extend(self.one_time_handles(os_left, &leaking));
        let told_little = !notes.is_empty() && self.told_little(executions);
        if told_little {
            self.judgement.leaks.append(&mut self.judgement.one_time);
        }
        let waived = self.judgement.leaks.iter().filter(|l| l.waiver.is_some()).count();
        if waived > 0 {
            self.judgement.raise(Verdict::Pass, waived_leaks(waived));
        }
        if notes.is_empty() {
            return;
        }
        let (notes, seen) = (notes.join(", "), rare::seen(self.judgement.quiet.unwrap_or_default()));
        if told_little && waived < self.judgement.leaks.len() {
            let why = format!("inconclusive: kept {notes}, and ran {executions} times in all; {seen}");
            self.judgement.raise(Verdict::Warn, why);
        } else {
            self.judgement.raise(Verdict::Pass, format!("one-time: {notes}; {seen}"));
        }
    }

    /// The program repeats tests itself, less often than requested, and the test was not stable for long.
    fn told_little(&self, executions: usize) -> bool {
        self.judgement.verdict() == Verdict::Pass
            && executions < RepetitionLimits::of(self.context.policy).fewest
            && self.judgement.quiet.is_some_and(|quiet| rare::rarest_after(quiet) <= 1)
    }

    /// Lists blocks that stay without growing. Returns their bytes.
    fn one_time_memory(
        &mut self,
        mut survivors: Vec<Held>,
        kept: Vec<Kept>,
        leaking: &BTreeSet<String>,
    ) -> f64 {
        let mut handed_bytes = 0.0;
        survivors.retain(|group| {
            let is_handed = self.judgement.handed.contains(&group.place.id);
            handed_bytes += if is_handed { group.bytes } else { 0.0 };
            !is_handed
        });
        if handed_bytes > 0.0 {
            let bytes = format_bytes(handed_bytes);
            self.judgement.raise(Verdict::Pass, format!("{bytes} handed to a later test, which frees it"));
        }
        // A listed leak without a stack has the id of its test.
        survivors.retain(|group| {
            let id = |group| self.context.waivers.id_here(&leaks::in_all(group));
            !group.place.frames.is_empty() || !leaking.contains(&id(group))
        });
        for held in &repeated::one_time(survivors, kept, leaking) {
            let mut leak = leaks::in_all(held);
            self.context.waivers.cover_any_amount(&mut leak, &held.place.names);
            self.judgement.one_time.push(leak);
        }
        self.judgement.one_time.iter().map(|leak| leak.bytes_per_iteration).sum()
    }

    /// Lists descriptors, threads and mappings that stay without growing. Returns their amounts.
    fn one_time_handles(&mut self, os_left: Vec<OsGroup>, leaking: &BTreeSet<String>) -> Vec<String> {
        let mut notes = Vec::new();
        let doubted = std::mem::take(&mut self.judgement.doubted);
        // For growth that may have met a limit: its kind, and whether it is waived.
        let mut listed = Vec::new();
        for group in os_left {
            let mut leak = group.leak();
            let of_name = |name: &String| leaks::of_os(group.kind, name, 0.0).id;
            if group.names.iter().all(|name| self.judgement.handed.contains(&of_name(name))) {
                let handed = format_amount(group.kind.metric(), group.count);
                let gives_back = if group.kind == OsKind::Mapping { "unmaps" } else { "closes" };
                self.judgement
                    .raise(Verdict::Pass, format!("{handed} handed to a later test, which {gives_back} it"));
            } else if !leaking.contains(&leak.id) {
                self.context.waivers.cover_any_amount(&mut leak, group.frame_names());
                if doubted.iter().any(|(kind, _)| *kind == group.kind) {
                    listed.push((group.kind, leak.waiver.is_some()));
                    self.judgement.leaks.push(leak);
                    continue;
                }
                notes.push(format_amount(group.kind.metric(), group.count));
                self.judgement.one_time.push(leak);
            }
        }
        for (kind, why) in doubted {
            let mut waived =
                listed.iter().filter(|(of, _)| *of == kind).map(|(_, waived)| *waived).peekable();
            if waived.peek().is_none() || !waived.all(|waived| waived) {
                self.judgement.raise(Verdict::Warn, why);
            }
        }
        notes
    }
}

/// Executions of the screen.
struct Screened<'a> {
    /// The execution that left most.
    worst: (&'a ProcessInput, &'a Window),
    /// Executions in other processes that left too much.
    others: Vec<(&'a ProcessInput, &'a Window)>,
}
