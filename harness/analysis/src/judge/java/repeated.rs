//! The result of repeating a test or a test class: what each iteration leaves, class by class and counter by counter.

use std::collections::BTreeSet;

use memgate_model::{
    Area, Kind, Leak, Metric, Per, ThresholdSource, Verdict, format_amount, format_bytes, format_count,
    format_number_of,
};

use super::super::context::allowed;
use super::super::leaks::shown;
use super::super::metric::Measured;
use super::super::one_test::TestJudge;
use super::super::wording::{listed, waived_leaks};
use super::super::{curve, leaks};
use crate::groups::OsKind;
use crate::growth::{Allowed, Finding, judge_series};
use crate::input::{ConfirmationInput, ProcessInput, SuiteInput};
use crate::java::{self, DIRECT_BUFFER, Findings, JavaLeak, JavaSuspect, LeakedThreads, Noise};
use crate::measured::unusable;
use crate::policy::AS_MUCH;
use crate::rare;
use crate::record::{ProcessRecord, Window};
use crate::signature::os_id;
use crate::stats::{add, as_f64, subtract};

/// A smaller share of a heap's growth may come from tables that double now and then.
const UNEXPLAINED_SHARE: f64 = 0.25;
/// Size in bytes of a Java object without fields.
const SMALLEST_OBJECT: f64 = 16.0;

impl TestJudge<'_, '_> {
    /// Judges the result of repeating it.
    pub(super) fn confirmed(
        &mut self,
        suite: &SuiteInput,
        confirmation: &ConfirmationInput,
        suspect: Option<&JavaSuspect>,
    ) {
        self.judgement.left = suspect.map_or_else(|| "growth".to_owned(), JavaSuspect::seen);
        match confirmation {
            ConfirmationInput::Repeated(again) if self.filled_the_heap(&again.record) => {}
            ConfirmationInput::Repeated(again) => match java::ended_by_error(&again.record, self.id)
                .map(|error| (Verdict::Error, format!("memory ran out: {}", error.described())))
                .or_else(|| unusable(again, self.id))
            {
                Some((Verdict::Warn, why)) => self.judgement.unconfirmed_in_rounds(self.context.policy, &why),
                Some((verdict, why)) => self.judgement.raise(verdict, format!("when it was repeated: {why}")),
                None => self.repeated(suite, again, suspect),
            },
            ConfirmationInput::Impossible(why) => {
                self.judgement.unconfirmed_in_rounds(self.context.policy, why)
            }
            ConfirmationInput::Broken(why) => {
                self.judgement.raise(Verdict::Error, format!("when it was repeated: {why}"))
            }
            ConfirmationInput::Unscreened(why) => {
                self.judgement.raise(Verdict::Warn, format!("not screened: {why}"))
            }
            ConfirmationInput::Lengths(_)
            | ConfirmationInput::InCompany { .. }
            | ConfirmationInput::FreedSince => {
                self.judgement.raise(
                    Verdict::Error,
                    "what runs of native tests tell says nothing of a Java test".to_owned(),
                );
            }
        }
    }

    /// Memory ran out while it was repeated, and more was alive after each execution: that is the leak, too large for
    /// an interval.
    fn filled_the_heap(&mut self, record: &ProcessRecord) -> bool {
        let Some((why, findings)) = java::until_full(record, self.id) else { return false };
        let mut growing = Vec::new();
        for leak in java::leaks(record, self.id, &findings) {
            if self.list_java(&leak).is_none() {
                growing.push(leak.bytes);
            }
        }
        let bytes: f64 = growing.iter().sum();
        let limits = self.thresholds(Metric::JavaLiveBytes, Per::Iteration);
        let level =
            limits.iter().filter(|limit| bytes > limit.limit).map(|limit| limit.level.verdict()).max();
        let executions = format_number_of(findings.ends, "execution");
        let verdict = match level {
            // The cause may be something without a threshold.
            None if growing.is_empty() => Verdict::Warn,
            None => return false,
            Some(level) => level,
        };
        self.judgement.confirmed = true;
        self.judgement.curve = curve::of_the_end(record, 0);
        self.judgement.raise(
            verdict,
            format!(
                "memory ran out after {executions}, {} more alive after each: {why}",
                format_bytes(bytes)
            ),
        );
        true
    }

    /// Judges the iterations, class by class.
    fn repeated(&mut self, suite: &SuiteInput, again: &ProcessInput, suspect: Option<&JavaSuspect>) {
        let record = &again.record;
        let windows = java::histograms(record, self.id);
        if windows.len() < 3 {
            let why = "when it was repeated: no class histograms were recorded";
            return self.judgement.raise(Verdict::Error, why.to_owned());
        }
        let allowed = allowed(self.context.policy, windows.len(), 0.0);
        self.judgement.confirmed = true;
        self.judgement.curve = curve::of_java(record, &windows);
        self.judgement.batch =
            Some(java::executions_of_window(&windows)).filter(|executions| *executions > 1.0);
        self.context.waivers.windows_of(self.judgement.executions());
        let findings = Findings::of(record, self.id, allowed.warm_up, allowed.confidence);
        let grew_alone = self.figures(record, &windows, &findings, suspect, allowed);
        let is_open = suspect.is_none_or(|suspect| is_open(&findings, suspect));
        self.inconclusive(&findings, is_open);
        self.alone_only(&grew_alone);
        // If the class as a whole showed what grows, its tests run alone to find which of them leaks.
        let stands_for = |class: &str| class == self.id || !suite.confirmations.contains_key(class);
        if let Some(suspect) = suspect.filter(|suspect| stands_for(&suspect.suite)) {
            self.never_grew(suite, record, suspect, windows.len());
        }
        self.noise_notes(&findings);
        self.closing_notes(&findings, windows.len());
    }

    /// Judges every metric of the iterations. Returns growth that no round saw: it is not judged.
    fn figures(
        &mut self,
        record: &ProcessRecord,
        windows: &[&Window],
        findings: &Findings,
        suspect: Option<&JavaSuspect>,
        allowed: Allowed,
    ) -> Vec<String> {
        let saw = |metric| suspect.is_none_or(|suspect| suspect.saw_counter(metric));
        let mut held = Vec::new();
        let mut grew_alone = self.objects(record, findings, suspect, allowed, &mut held);
        self.counters(windows, findings, &saw, allowed);
        if saw(Metric::JavaThreads) {
            self.threads(windows, &held, allowed);
        }
        self.judge_os(record, windows, OsKind::Descriptor, allowed);
        self.judge_own_libraries(record, allowed);
        grew_alone.extend(self.counters_alone(windows, &saw, allowed));
        grew_alone
    }

    fn alone_only(&mut self, grew_alone: &[String]) {
        if !grew_alone.is_empty() {
            let what = listed(grew_alone.iter().map(String::as_str));
            let what = format!(
                "grew only when the test ran alone, and in no round of its class: {what} per iteration"
            );
            self.judgement.raise(Verdict::Warn.max(self.judgement.verdict()), what);
        }
    }

    /// The rounds suspect a class of the project that grew neither here nor in other repeated tests: another test class
    /// may have left it.
    fn never_grew(
        &mut self,
        suite: &SuiteInput,
        record: &ProcessRecord,
        suspect: &JavaSuspect,
        executions: usize,
    ) {
        if self.judgement.verdict() != Verdict::Pass || !self.judgement.leaks.is_empty() {
            return;
        }
        let mut open: BTreeSet<&str> = suspect.classes_of_project().collect();
        let others = suite.confirmations.iter().filter_map(|(id, confirmation)| match confirmation {
            ConfirmationInput::Repeated(other) => Some((&other.record, id.as_str())),
            _ => None,
        });
        for (record, id) in std::iter::once((record, self.id)).chain(others) {
            if open.is_empty() {
                return;
            }
            java::grown(record, id, 1).iter().for_each(|series| {
                open.remove(series.class.as_str());
            });
        }
        if !open.is_empty() {
            let executions = format_number_of(executions, "execution");
            let why = format!("alone, it did not grow in {executions}");
            self.judgement.unconfirmed_in_rounds(self.context.policy, &why);
        }
    }

    /// Remarks on growth that is no leak.
    fn noise_notes(&mut self, findings: &Findings) {
        for (noise, why) in [
            (Noise::Literals, "held by constant pools and system classes only"),
            (Noise::Unheld, "held by nothing"),
            (Noise::Irregular, "irregular"),
            (Noise::Replaced, "held by a fixed number of objects"),
            (Noise::Framework, "kept by the test framework for itself"),
            (Noise::Bounded, "status messages of Log4j, which keeps the last 200"),
            (Noise::Samples, "samples of Dropwizard Metrics, whose reservoirs keep a fixed number"),
            (Noise::TimedOut, "JUnit 4.12's own (`@Test(timeout = …)`), which JUnit 4.13 mends"),
            (Noise::Scanned, "Kotest's own (it looks through the class path), which JDK 19 mends"),
        ] {
            let of_noise = findings.noise.iter().filter(|(_, is)| *is == noise);
            let classes: Vec<&str> = of_noise.map(|(class, _)| class.as_str()).collect();
            if classes.is_empty() {
                continue;
            }
            let (grow, are) = if classes.len() == 1 { ("grows", "is") } else { ("grow", "are") };
            let bytes: f64 = classes.iter().filter_map(|class| findings.left_out.get(*class)).sum();
            // Beside a leak, a few objects in hundreds of iterations are not worth a line.
            if self.judgement.verdict() == Verdict::Fail && bytes > 0.0 && bytes < SMALLEST_OBJECT {
                continue;
            }
            let by = match bytes > 0.0 {
                true => format!(" by {} {}", format_bytes(bytes), self.judgement.per()),
                false => String::new(),
            };
            let out = if self.judgement.verdict() == Verdict::Pass { "" } else { ": not counted" };
            self.judgement.remark(format!("{} {grow}{by} but {are} {why}{out}", listed(classes)));
        }
    }

    /// Remarks on what was not searched, what waivers cover, and the number of executions.
    fn closing_notes(&mut self, findings: &Findings, iterations: usize) {
        for cache in &findings.caches {
            self.judgement
                .remark(format!("{cache} keeps a limited number of entries, and was still filling"));
        }
        for why in &findings.cut {
            self.judgement.remark(format!("not all who hold it were looked for: {why}"));
        }
        let waived = self.judgement.leaks.iter().filter(|leak| leak.waiver.is_some()).count();
        if waived > 0 {
            self.judgement.raise(Verdict::Pass, waived_leaks(waived));
        }
        let still = findings.growing.is_empty() && findings.noise.is_empty() && findings.quiet > 0;
        match self.judgement.batch {
            Some(batch) if self.judgement.verdict() > Verdict::Pass => {
                let (all, per) = (format_count(batch * as_f64(iterations)), self.judgement.per());
                self.judgement.leaks.iter_mut().for_each(|leak| of_one_execution(leak, batch, &per));
                self.judgement
                    .remark(format!("after {all} executions, {} in each iteration", format_count(batch)));
            }
            _ if self.judgement.verdict() == Verdict::Pass && still => {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
                let executions = self.judgement.executions() as usize;
                self.judgement.raise(Verdict::Pass, rare::seen(findings.quiet.saturating_mul(executions)));
            }
            _ => {}
        }
    }

    /// Lists the leaks and checks the sum of those without a waiver against the thresholds. Returns growth that no
    /// round saw: it is not in the sum. `held` gets the threads whose objects leak.
    fn objects(
        &mut self,
        record: &ProcessRecord,
        findings: &Findings,
        suspect: Option<&JavaSuspect>,
        allowed: Allowed,
        held: &mut Vec<HeldThreads>,
    ) -> Vec<String> {
        let mut live_bytes = vec![0.0; findings.ends];
        let mut instances = vec![0.0; findings.ends];
        let saw = |leak: &JavaLeak| suspect.is_none_or(|suspect| leak.is_of(suspect));
        let (seen, unseen): (Vec<JavaLeak>, Vec<JavaLeak>) =
            java::leaks(record, self.id, findings).into_iter().partition(saw);
        let mut grew_alone: Vec<String> = unseen.iter().map(|leak| shown(leak).title).collect();
        if !unseen.is_empty() {
            grew_alone.push(format_bytes(unseen.iter().map(|leak| leak.bytes).sum()));
        }
        for leak in seen {
            let waiver = self.list_java(&leak);
            let is_waived = waiver.is_some();
            held.extend(leak.threads.map(|threads| HeldThreads { threads, waiver }));
            if is_waived {
                continue;
            }
            add(&mut live_bytes, &leak.live_bytes);
            add(&mut instances, &leak.instances);
        }
        if let Some(bytes) = unexplained(record, self.id, findings, allowed) {
            let more = format!(
                "the heap grows by {} {} more than its classes explain",
                format_bytes(bytes),
                self.judgement.per()
            );
            let counts = live_bytes.iter().any(|value| *value > 0.0);
            self.judgement.raise(if counts { Verdict::Pass } else { Verdict::Warn }, more);
            let value = |(i, value): (usize, &mut f64)| *value += bytes * as_f64(i);
            live_bytes.iter_mut().enumerate().filter(|_| counts).for_each(value);
        }
        let measured = [
            Measured::of_os(Metric::JavaLiveBytes, live_bytes, 8.0).shared_by(self.judgement.executions()),
            Measured::of_os(Metric::JavaLiveObjects, instances, 1.0).shared_by(self.judgement.executions()),
        ];
        for measured in measured {
            self.hold(&measured, allowed);
        }
        grew_alone
    }

    /// Classes that are undecided: a warning if no other leak was found.
    fn inconclusive(&mut self, findings: &Findings, is_open: bool) {
        let limited = self.has_limit(Metric::JavaLiveBytes) || self.has_limit(Metric::JavaLiveObjects);
        if !limited || findings.open.is_empty() {
            return;
        }
        let classes = listed(findings.open.iter().map(String::as_str));
        // A waived leak says nothing about other classes.
        let has_leak = self.judgement.leaks.iter().any(|leak| leak.waiver.is_none());
        if !has_leak && is_open {
            let iterations = format_number_of(findings.ends, "iteration");
            self.judgement
                .raise(Verdict::Warn, format!("inconclusive: {classes} may grow, after {iterations}"));
        } else {
            let bytes: f64 = findings.open.iter().filter_map(|class| findings.left_out.get(class)).sum();
            let by = match bytes {
                0.0 => String::new(),
                _ => format!(" by {} {}", format_bytes(bytes), self.judgement.per()),
            };
            self.judgement.remark(format!("{classes} grew{by} but may have stopped: not counted"));
        }
    }

    fn counters(
        &mut self,
        windows: &[&Window],
        findings: &Findings,
        saw: &dyn Fn(Metric) -> bool,
        allowed: Allowed,
    ) {
        // `threads` reports threads by their names.
        let metrics = Metric::of(Area::Java, &[Kind::Held, Kind::Loaded, Kind::Traffic])
            .filter(|metric| *metric != Metric::JavaThreads && saw(*metric));
        for metric in metrics {
            let limits = self.context.policy.limits(self.suite, self.id, metric, Per::Iteration);
            let mut values = java::values(windows, metric);
            if values.len() == windows.len() {
                if metric == Metric::JavaDirectBytes && self.has_waived_all(DIRECT_BUFFER) {
                    values.fill(0.0);
                }
                let is_open = metric == Metric::JavaDirectBytes
                    && findings.may_replace_buffers(&values, allowed.warm_up)
                    && self.grows(metric, &values, allowed);
                if is_open {
                    self.may_replace_buffers(&values, allowed.warm_up);
                    continue;
                }
                let measured = Measured::of_os(metric, values, 1.0).shared_by(self.judgement.executions());
                self.hold(&measured, allowed);
            } else if limits.iter().any(|limit| limit.source != ThresholdSource::Default) {
                self.judgement
                    .raise(Verdict::Error, format!("{metric} could not be read in this virtual machine"));
            }
        }
    }

    /// Does a counter grow by more than its smallest limit?
    fn grows(&self, metric: Metric, values: &[f64], allowed: Allowed) -> bool {
        self.smallest_limit(metric).is_some_and(|limit| {
            judge_series(values, Allowed { limit, block: 1.0, ..allowed }).finding == Finding::Grows
        })
    }

    /// A warning: it is unknown whether more bytes come.
    fn may_replace_buffers(&mut self, bytes: &[f64], warm_up: usize) {
        let (times, more) = java::started(bytes, warm_up);
        let iterations = format_number_of(bytes.len() - warm_up, "iteration");
        let why = format!(
            "inconclusive: {} more in {times} of {iterations}, but no buffers that stay for certain: larger ones may replace others",
            format_amount(Metric::JavaDirectBytes, more)
        );
        self.judgement.raise(Verdict::Warn.max(self.judgement.verdict()), why);
    }

    /// Do waivers cover all leaks of this class? At least one.
    fn has_waived_all(&self, class: &str) -> bool {
        let mut leaks =
            self.judgement.leaks.iter().filter(|leak| leak.class.as_deref() == Some(class)).peekable();
        leaks.peek().is_some() && leaks.all(|leak| leak.waiver.is_some())
    }

    /// Counters that grow here, but in no round of the class.
    fn counters_alone(
        &self,
        windows: &[&Window],
        saw: &dyn Fn(Metric) -> bool,
        allowed: Allowed,
    ) -> Vec<String> {
        let unseen = Metric::of(Area::Java, &[Kind::Held, Kind::Loaded]).filter(|metric| !saw(*metric));
        let growing = unseen.filter_map(|metric| {
            let limit = self.smallest_limit(metric)?;
            let growth =
                judge_series(&java::values(windows, metric), Allowed { limit, block: 1.0, ..allowed });
            (growth.finding == Finding::Grows).then(|| format_amount(metric, growth.slope.slope))
        });
        growing.collect()
    }

    /// A warning, unless something else leaks: it is unknown whether more threads come.
    fn may_fill_a_pool(&mut self, threads: &[f64], warm_up: usize) {
        if !self.has_limit(Metric::JavaThreads) {
            return;
        }
        let (times, more) = java::started(threads, warm_up);
        let iterations = format_number_of(threads.len() - warm_up, "iteration");
        let why = format!(
            "inconclusive: {} started in {times} of {iterations}, as in a pool that is filling",
            format_amount(Metric::JavaThreads, more)
        );
        self.judgement.raise(Verdict::Warn.max(self.judgement.verdict()), why);
    }

    /// Threads that each iteration leaves running, by name. If the objects of as many threads of this name leak, they
    /// are the same: what allocated these objects made the threads, and a waiver of the objects covers them.
    fn threads(&mut self, windows: &[&Window], held: &[HeldThreads], allowed: Allowed) {
        let mut total = java::values(windows, Metric::JavaThreads);
        if total.len() != windows.len() {
            return;
        }
        let allowed = Allowed { block: 1.0, ..allowed };
        if judge_series(&total, allowed).finding == Finding::Grows {
            if java::may_fill_a_pool(windows, &total, allowed.warm_up) {
                self.may_fill_a_pool(&total, allowed.warm_up);
                return;
            }
            for (name, counts) in java::thread_names(windows) {
                let growth = judge_series(&counts, allowed);
                if growth.finding != Finding::Grows || counts.len() != total.len() {
                    continue;
                }
                let mut leak = leaks::of_os(OsKind::Thread, &name, growth.slope.slope);
                leak.id = os_id("java thread", &name);
                let same = || held.iter().filter(|held| held.threads.name == name);
                let accepted = || same().filter(|held| held.waiver.is_some());
                if growth.slope.high <= AS_MUCH * accepted().map(|held| held.threads.count).sum::<f64>() {
                    leak.waiver = accepted().find_map(|held| held.waiver.clone());
                }
                // Threads of one name may come from several places.
                let all = same().find(|held| growth.slope.high <= AS_MUCH * held.threads.count);
                leak.frames = all.map_or_else(Vec::new, |held| held.threads.frames.clone());
                if self.list(leak, &[]) {
                    subtract(&mut total, &counts);
                }
            }
        }
        let measured =
            Measured::of_os(Metric::JavaThreads, total, 1.0).shared_by(self.judgement.executions());
        self.hold(&measured, allowed);
    }
}

/// Threads whose objects or tasks leak, and the waiver of these.
struct HeldThreads {
    threads: LeakedThreads,
    waiver: Option<String>,
}

/// May a class still grow? If the rounds found only other growth, they have shown that no class grows. Objects that the
/// virtual machine makes for itself appear late, in a step or two: no round saw them grow.
fn is_open(findings: &Findings, suspect: &JavaSuspect) -> bool {
    let is_accident = |class: &String| {
        java::is_made_by_machine(class)
            && !findings.rising.contains(class)
            && !suspect.saw_any(std::iter::once(class.as_str()))
    };
    (!suspect.classes.is_empty() || suspect.told_nothing()) && !findings.open.iter().all(is_accident)
}

/// Converts figures of a leak to one execution. The title still counts whole objects, for many executions.
fn of_one_execution(leak: &mut Leak, batch: f64, per: &str) {
    leak.title = format!("{} {per}", leak.title);
    leak.bytes_per_iteration /= batch;
    leak.count_per_iteration /= batch;
}

/// Growth of the whole heap in bytes per iteration that exceeds the sum of its classes: single classes may be too
/// uneven for a verdict. `None`: no more than the virtual machine's own growth.
fn unexplained(record: &ProcessRecord, id: &str, findings: &Findings, allowed: Allowed) -> Option<f64> {
    let growth = judge_series(&java::totals(record, id), Allowed { block: 8.0, ..allowed });
    let told = findings.growing.iter().map(|growing| growing.bytes).sum::<f64>();
    let more = growth.slope.low - told - findings.left_out.values().sum::<f64>();
    let is_much = more > java::LITERAL_BYTES && more > UNEXPLAINED_SHARE * growth.slope.slope;
    (growth.finding == Finding::Grows && is_much).then_some(more)
}
