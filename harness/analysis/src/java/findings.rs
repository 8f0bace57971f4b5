//! Decides which classes keep growing from iteration to iteration, and which of them are noise.

use std::collections::{BTreeMap, BTreeSet};

use memgate_model::Metric;
use memgate_wire::Outcome;
use memgate_wire::java::{Holders, UNHELD};

use super::held::{HeldBy, Noise, can_hold_more, held, holders, leads_to_own, owner};
use super::names::{is_literal, is_of_framework, is_of_project, is_own, project_of};
use super::out_of_memory::ended_by_error;
use super::pool::{may_fill_a_pool, rises_with};
use super::series::{ClassSeries, grown, histograms, values};
use crate::growth::{Allowed, Finding, Growth, is_over, judge_series, steps};
use crate::record::{ProcessRecord, Window};
use crate::stats::{as_f64, float};

/// Growth must be flat for at least this many iterations to count as stalled.
const STALLED: usize = 6;
/// Fewer steps than this may be accidents. For example, classes are loaded, or arrays of them are made, when the
/// compiler reaches them; or classes are made that specialise a method handle after many calls.
pub(super) const FEW_STEPS: usize = 4;
/// A compiler resolves only a few short strings. More bytes than this per iteration are something else.
pub(crate) const LITERAL_BYTES: f64 = 4096.0;
/// Object sizes are multiples of this.
const ALIGNMENT: f64 = 8.0;
/// Objects whose number grew by a smaller share than that of strings do not hold these in their fields.
const HOLDING_SHARE: f64 = 0.1;
/// Share of equal steps in a series that makes them the usual step.
const USUAL_SHARE: f64 = 0.5;
/// Caches of Guava and Hibernate record reads in such a queue, and empty it after 32 to 64 reads.
const QUEUE_OF_READS: &str = "java.util.concurrent.ConcurrentLinkedQueue$Node";
/// A queue with one read per execution was emptied within this number of ends.
const READS_NOTED: usize = 72;
/// Largest rise between low points of a series that gives back what it adds, as a share of its steps.
const LEFT_AT_LOWS: f64 = 0.05;
/// Smallest number of low points for a decision.
const LOW_POINTS: usize = 3;
/// Strings that a compiler resolves come irregularly. The series of a leak stays this near to its line, as a share of
/// its slope.
const REGULAR_SHARE: f64 = 0.25;

/// The classes of a test that did not settle.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Classes that keep growing, without evidence against a leak.
    pub(crate) growing: Vec<Growing>,
    /// Classes that keep growing but are no leaks, each with the reason.
    pub(crate) noise: Vec<(String, Noise)>,
    /// Classes that are still undecided.
    pub(crate) open: Vec<String>,
    /// Classes of `open` that rose too often for accidents.
    pub(crate) rising: BTreeSet<String>,
    /// Estimated bytes per iteration of classes that are no leaks or undecided.
    pub(crate) left_out: BTreeMap<String, f64>,
    /// Growth has paused, or is only a step or two. More iterations may show that it is over.
    pub(crate) paused: bool,
    /// A growing class has no usual step. More iterations show what is noise of the virtual machine.
    pub(crate) irregular: bool,
    /// Only a queue of reads grows. Some more executions may empty it.
    pub(crate) noted: bool,
    /// Holders of some growing classes were searched, those of others were not.
    pub(crate) unexplained: bool,
    /// Strings or arrays come irregularly, and their holders were not searched. One may belong to the project.
    pub(crate) unasked: bool,
    /// Why the search did not find all holders of a growing class.
    pub(crate) cut: BTreeSet<String>,
    /// Iterations since the last new high of any class.
    pub(crate) quiet: usize,
    /// Total growth of the growing classes in bytes.
    pub(crate) grown_bytes: f64,
    /// Ends with a histogram.
    pub(crate) ends: usize,
}

/// A class that keeps growing.
#[derive(Debug, Clone)]
pub(crate) struct Growing {
    pub(crate) series: ClassSeries,
    /// Instances per iteration. 0: only its bytes grow.
    pub(crate) count: f64,
    /// Bytes per iteration.
    pub(crate) bytes: f64,
    /// Total growth in bytes.
    grown_bytes: f64,
    /// Most iterations add the same.
    is_regular: bool,
    /// Each iteration adds something, either instances or bytes.
    pub(super) is_steady: bool,
    /// Its holders, as far as known.
    pub(crate) held: HeldBy,
}

/// A class with a smaller share did not fill the heap, unless it belongs to the project or a library.
const FILLING_SHARE: f64 = 0.05;
/// When memory ran out, the leak must fill at least this part of the heap: a test may need most of the heap for itself.
const FILLED_PART: f64 = 0.25;
/// Ends needed to tell growth from what the first execution leaves.
const ENDS_UNTIL_FULL: usize = 2;

/// What grew with each execution of `test` until memory ran out, and the error. `None`: memory did not run out, or
/// something else filled the heap.
pub(crate) fn until_full(record: &ProcessRecord, test: &str) -> Option<(String, Findings)> {
    let error = ended_by_error(record, test)?;
    let passed = |window: &&&Window| window.outcome != Some(Outcome::Failed);
    let ends = histograms(record, test).iter().take_while(passed).count();
    let explained = holders(record, test);
    let project = project_of(test);
    let steps = |values: &[f64]| -> Vec<f64> { values.windows(2).map(|pair| pair[1] - pair[0]).collect() };
    let mut growing: Vec<Growing> = Vec::new();
    for mut series in grown(record, test, 0) {
        series.bytes.truncate(ends);
        series.instances.truncate(ends);
        let (bytes, instances) = (steps(&series.bytes), steps(&series.instances));
        if bytes.is_empty() || bytes.iter().any(|step| *step <= 0.0) {
            continue;
        }
        let held = held(explained.get(series.class.as_str()).map_or(&[], Vec::as_slice), &project);
        let Ok(held) = held else { continue };
        let growth = Growing::counted(series, median(instances).max(0.0), median(bytes));
        growing.push(Growing { held, ..growth });
    }
    let all: f64 = growing.iter().map(|g| g.grown_bytes).sum();
    if ends < ENDS_UNTIL_FULL || all < FILLED_PART * float(error.heap_max?) {
        return None;
    }
    growing.retain(|g| g.grown_bytes >= FILLING_SHARE * all || is_own(&g.series.class));
    Some((error.described(), Findings { growing, ends, ..Findings::default() }))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

impl Growing {
    /// A class without known holders that grows by this many instances and bytes.
    pub(super) fn counted(series: ClassSeries, count: f64, bytes: f64) -> Self {
        let grown_bytes = grew(&series.bytes);
        Self { series, count, bytes, grown_bytes, is_regular: true, is_steady: true, held: HeldBy::Unknown }
    }
}

impl Findings {
    /// Judges every class at the ends of `test`.
    pub(crate) fn of(record: &ProcessRecord, test: &str, warm_up: usize, confidence: f64) -> Self {
        let windows = histograms(record, test);
        let ends = windows.len();
        let threads =
            Some(values(&windows, Metric::JavaThreads)).filter(|it| may_fill_a_pool(&windows, it, warm_up));
        let explained = holders(record, test);
        let project = project_of(test);
        let mut findings = Self { ends, quiet: ends, ..Self::default() };
        // One flag for classes that grow only by bytes, and one for classes that grow by count. A table between two
        // doublings has not paused while its entries grow.
        let (mut paused, mut counted, mut stalled, mut rare) = ([false; 2], false, false, false);
        let mut unheld = Vec::new();
        let grown = grown(record, test, warm_up);
        let rises: BTreeMap<String, f64> =
            grown.iter().map(|series| (series.class.clone(), rise(&series.instances, warm_up))).collect();
        for series in grown {
            findings.quiet = findings.quiet.min(quiet(&series, warm_up));
            // Most classes that grew once are over: this check is much cheaper than a slope.
            if is_over(&series.instances, warm_up) && is_over(&series.bytes, warm_up) {
                continue;
            }
            let instances = judge(&series.instances, 1.0, warm_up, confidence);
            let bytes = judge(&series.bytes, ALIGNMENT, warm_up, confidence);
            let grows = [&instances, &bytes].map(|growth| growth.finding == Finding::Grows);
            if grows == [false, false] {
                let open = [&instances, &bytes].iter().any(|growth| growth.finding == Finding::Open);
                if open {
                    rare |= has_few_steps(&series, warm_up) && !is_literal(&series.class);
                    findings.cannot_tell(series.class, bytes.slope.slope);
                }
                continue;
            }
            let figures = if grows[0] { &series.instances } else { &series.bytes };
            // A low point slightly above the earlier ones may be a rare leak. More iterations show it.
            let rise = rise_of_lows(figures, warm_up);
            if rise.is_some_and(|rise| rise <= 0.0) {
                continue;
            }
            let unexplained = !explained.contains_key(series.class.as_str());
            let accidental = unexplained && steps(figures, warm_up) < FEW_STEPS;
            let of_a_pool = threads.as_ref().is_some_and(|threads| rises_with(figures, threads, warm_up));
            if accidental || of_a_pool || rise.is_some() || has_stalled(figures, warm_up) {
                stalled = true;
                findings.cannot_tell(series.class, bytes.slope.slope);
                continue;
            }
            let growth = if grows[0] { &instances } else { &bytes };
            paused[usize::from(grows[0])] |= growth.paused;
            counted |= grows[0];
            let (growing, noise) =
                growing(series, grows[0], (&instances, &bytes), (&explained, &project, &rises), warm_up);
            match noise {
                None => findings.growing.push(growing),
                Some(Noise::Unheld) => unheld.push(growing),
                Some(noise) => {
                    findings.unasked |= noise == Noise::Irregular && unexplained;
                    findings.is_noise(growing, noise);
                }
            }
        }
        // Holders that are fields of a class object are not seen, except for its `ClassValue`s. So a class without a
        // holder is a leak if another leak has the same count.
        for growing in unheld {
            if findings.growing.iter().any(|other| other.count > 0.0 && other.count == growing.count) {
                findings.growing.push(growing);
            } else {
                findings.is_noise(growing, Noise::Unheld);
            }
        }
        findings.leave_what_is_unsure();
        findings.leave_queue_of_reads();
        findings.leave_to_framework(&project);
        findings.leave_groups_of_frameworks(record, test);
        findings.what_is_known(&explained);
        findings.grown_bytes = findings.growing.iter().map(|growing| growing.grown_bytes).sum();
        // If something certainly leaks, it does not matter whether a step or two of others were all.
        findings.paused = paused[usize::from(counted)] || stalled || rare && findings.growing.is_empty();
        findings
    }
}

impl Findings {
    pub(super) fn is_noise(&mut self, growing: Growing, noise: Noise) {
        self.left_out.insert(growing.series.class.clone(), growing.bytes);
        self.noise.push((growing.series.class, noise));
    }

    fn cannot_tell(&mut self, class: String, bytes: f64) {
        if !is_literal(&class) {
            self.left_out.insert(class.clone(), bytes.max(0.0));
            self.open.push(class);
        }
    }

    /// Without a known holder, a class of the JDK that grows irregularly is no leak by itself: it may belong to the
    /// virtual machine. It counts together with a certain leak.
    fn leave_what_is_unsure(&mut self) {
        let is_sure = |growing: &Growing| {
            growing.is_steady || is_own(&growing.series.class) || matches!(growing.held, HeldBy::Paths { .. })
        };
        if self.growing.iter().any(is_sure) {
            return;
        }
        for growing in std::mem::take(&mut self.growing) {
            self.rising.insert(growing.series.class.clone());
            self.cannot_tell(growing.series.class, growing.bytes);
        }
    }

    /// A queue of reads grows alone: its entries existed before.
    fn leave_queue_of_reads(&mut self) {
        let is_noted = |growing: &Growing| growing.series.class == QUEUE_OF_READS;
        self.noted = self.ends < READS_NOTED && !self.growing.is_empty() && self.growing.iter().all(is_noted);
        if self.noted {
            for growing in std::mem::take(&mut self.growing) {
                self.rising.insert(growing.series.class.clone());
                self.cannot_tell(growing.series.class, growing.bytes);
            }
        }
    }

    /// How completely the holders of growing classes are known.
    fn what_is_known(&mut self, explained: &BTreeMap<&str, Vec<&Holders>>) {
        self.irregular = self.growing.iter().any(|growing| !growing.is_regular);
        let told = |growing: &Growing| explained.get(growing.series.class.as_str());
        // Holders of a class that doubles its table or grows irregularly are not needed: objects held through it show
        // as much.
        let steady = |growing: &&Growing| growing.count > 0.0 && growing.is_regular;
        let steady = || self.growing.iter().filter(steady);
        self.unexplained = steady().any(|growing| told(growing).is_some())
            && steady().any(|growing| told(growing).is_none());
        let cut = self.growing.iter().filter_map(told).flatten().filter_map(|holders| holders.cut.clone());
        self.cut = cut.filter(|why| why != UNHELD).collect();
    }

    /// A test framework keeps hundreds of classes, and only some of them are explained. Objects that the JDK also
    /// refers to are reported with a path of the JDK. If no path leads to the project or a library, everything belongs
    /// to the framework.
    fn leave_to_framework(&mut self, project: &str) {
        let kept = self.noise.iter().any(|(_, noise)| *noise == Noise::Framework);
        let foreign = |name: &str| !is_own(name) || is_of_framework(name);
        let leads_elsewhere = |growing: &Growing| match &growing.held {
            HeldBy::Unknown => is_of_project(&growing.series.class, project),
            HeldBy::Paths { paths, .. } => {
                let owners = paths.iter().flat_map(|path| &path.links).map(owner);
                !std::iter::once(growing.series.class.as_str()).chain(owners).all(foreign)
            }
        };
        if kept && !self.growing.iter().any(leads_elsewhere) {
            let rest = std::mem::take(&mut self.growing);
            self.noise.extend(rest.into_iter().map(|growing| (growing.series.class, Noise::Framework)));
            // Tables of the framework, which double now and then.
            self.open.retain(|class| is_of_project(class, project));
        }
    }
}

/// A growing class, and the reason if it is no leak.
fn growing(
    mut series: ClassSeries,
    by_count: bool,
    (instances, bytes): (&Growth, &Growth),
    (explained, project, rises): (&BTreeMap<&str, Vec<&Holders>>, &str, &BTreeMap<String, f64>),
    warm_up: usize,
) -> (Growing, Option<Noise>) {
    let slope = if by_count { instances.slope.slope } else { bytes.slope.slope };
    let irregular = !is_regular(if by_count { &series.instances } else { &series.bytes }, slope, warm_up);
    let is_steady = rises_each_time(&series.instances, warm_up) || rises_each_time(&series.bytes, warm_up);
    let grown_bytes = grew(&series.bytes);
    let step = usual(&mut series.instances, warm_up);
    let step_of_bytes = usual(&mut series.bytes, warm_up);
    // One array replaces another. Other arrays that come and go belong to the virtual machine.
    let is_enlarged = step.is_none() && step_of_bytes.is_some();
    let by_count = by_count && !is_enlarged;
    let (held, mut noise) =
        match held(explained.get(series.class.as_str()).map_or(&[], Vec::as_slice), project) {
            Ok(held) => (held, None),
            // No object of an execution survives the next one.
            Err(Noise::Unheld) if !by_count => (HeldBy::Unknown, None),
            Err(noise) => (HeldBy::Unknown, Some(noise)),
        };
    // The JDK keeps a few names of its own, which does not explain those that come irregularly.
    let of_the_jdk = !is_enlarged
        && match &held {
            HeldBy::Unknown => irregular,
            HeldBy::Paths { paths, .. } => irregular && step.is_none() && !paths.iter().any(leads_to_own),
        };
    if noise.is_none() && is_literal(&series.class) && bytes.slope.slope < LITERAL_BYTES {
        if of_the_jdk {
            noise = Some(Noise::Irregular);
        } else if let HeldBy::Paths { paths, complete: true, .. } = &held
            && by_count
        {
            let added = instances.slope.slope * as_f64(series.instances.len().saturating_sub(warm_up));
            let grows = |class: &str| rises.get(class).is_some_and(|rise| *rise > HOLDING_SHARE * added);
            if !paths.iter().any(|path| can_hold_more(path, grows)) {
                noise = Some(Noise::Replaced);
            }
        }
    }
    let count = if by_count { step.unwrap_or(instances.slope.slope) } else { 0.0 };
    let bytes = step_of_bytes.unwrap_or(bytes.slope.slope).max(0.0);
    let is_regular = !by_count || step.is_some();
    let is_steady = is_steady || by_count && step.is_some();
    (Growing { series, count, bytes, grown_bytes, is_regular, is_steady, held }, noise)
}

/// Did it rise so rarely that the rises may be accidents?
fn has_few_steps(series: &ClassSeries, warm_up: usize) -> bool {
    [&series.instances, &series.bytes].iter().all(|figures| steps(figures, warm_up) < FEW_STEPS)
}

fn rises_each_time(values: &[f64], warm_up: usize) -> bool {
    let counted = values.get(warm_up..).unwrap_or_default();
    counted.len() > 1 && counted.windows(2).all(|pair| pair[1] > pair[0])
}

/// How much higher the last end is than the end of the warm-up.
fn rise(values: &[f64], warm_up: usize) -> f64 {
    values.last().zip(values.get(warm_up)).map_or(0.0, |(last, first)| last - first)
}

fn grew(values: &[f64]) -> f64 {
    (values.last().unwrap_or(&0.0) - values.first().unwrap_or(&0.0)).max(0.0)
}

fn judge(values: &[f64], block: f64, warm_up: usize, confidence: f64) -> Growth {
    judge_series(values, Allowed { limit: 0.0, block, warm_up, confidence })
}

/// Ends since the last new high of the class. Those of the warm-up, which load classes and free memory, are ignored.
fn quiet(series: &ClassSeries, warm_up: usize) -> usize {
    let since_high = |values: &[f64]| {
        let mut high = warm_up.min(values.len().saturating_sub(1));
        for (i, value) in values.iter().enumerate().skip(high) {
            if *value > values[high] {
                high = i;
            }
        }
        values.len() - high
    };
    since_high(&series.instances).min(since_high(&series.bytes))
}

/// True if the series grew and has since been flat for more than twice as long as ever between two rises. So it filled
/// late, like keys that are cached on first use. A table that doubles is flat for twice as long each time.
pub(super) fn has_stalled(values: &[f64], warm_up: usize) -> bool {
    let Some((&first, counted)) = values.get(warm_up..).and_then(<[f64]>::split_first) else { return false };
    let (mut high, mut last, mut longest) = (first, None, 0);
    for (i, value) in counted.iter().enumerate().filter(|(_, value)| **value > first) {
        if *value > high {
            longest = last.map_or(longest, |last| longest.max(i - last));
            (high, last) = (*value, Some(i));
        }
    }
    let flat = last.map_or(0, |last| counted.len() - 1 - last);
    longest > 0 && flat >= STALLED && flat > 2 * longest
}

/// Rise of the low points of a series that adds the same in most iterations and gives all of it back from time to time,
/// such as entries that expire after a second. `None`: it keeps what it adds.
fn rise_of_lows(values: &[f64], warm_up: usize) -> Option<f64> {
    let step = usual_step(values.get(warm_up..)?)?;
    let is_low = |at: usize| {
        let next = values.get(at + 1).copied().unwrap_or(f64::INFINITY);
        at > 0 && values[at] < values[at - 1] && values[at] <= next
    };
    let late = warm_up.max(values.len() * 45 / 100);
    let lows: Vec<usize> = (late..values.len()).filter(|at| is_low(*at)).collect();
    let (first, last) = (*lows.first()?, *lows.last()?);
    let rise = values[last] - values[first];
    (lows.len() >= LOW_POINTS && rise <= LEFT_AT_LOWS * step * as_f64(last - first)).then_some(rise)
}

/// The usual step of an iteration: the one that at least half of them take. `None`: there is none, so the slope is
/// used. The usual step is exact where noise of the virtual machine is added to a leak now and then. The noise is then
/// removed from the values.
fn usual(values: &mut [f64], warm_up: usize) -> Option<f64> {
    let counted = values.get_mut(warm_up..).unwrap_or_default();
    let step = usual_step(counted)?;
    let from = counted.first().copied().unwrap_or(0.0);
    counted.iter_mut().enumerate().for_each(|(i, value)| *value = from + step * as_f64(i));
    Some(step)
}

/// The step of at least half of the iterations.
fn usual_step(values: &[f64]) -> Option<f64> {
    let mut steps: Vec<f64> = values.windows(2).map(|pair| pair[1] - pair[0]).collect();
    steps.sort_by(f64::total_cmp);
    let middle = *steps.get(steps.len() / 2)?;
    let same = steps.iter().filter(|step| **step == middle).count();
    (middle > 0.0 && as_f64(same) >= as_f64(steps.len()) * USUAL_SHARE).then_some(middle)
}

/// Does the series stay near its line?
pub(super) fn is_regular(values: &[f64], slope: f64, warm_up: usize) -> bool {
    let counted = values.get(warm_up..).unwrap_or_default();
    let mut rests: Vec<f64> =
        counted.iter().enumerate().map(|(i, value)| value - slope * as_f64(i)).collect();
    rests.sort_by(f64::total_cmp);
    let spread = rests.last().unwrap_or(&0.0) - rests.first().unwrap_or(&0.0);
    spread <= 1.0 + 2.0 * REGULAR_SHARE * slope
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::java::dsl::Jvm;

    #[test]
    fn the_usual_step_is_exact_below_noise() {
        let series = |steps: &[f64]| {
            let mut sum = 0.0;
            steps
                .iter()
                .map(|step| {
                    sum += step;
                    sum
                })
                .collect::<Vec<f64>>()
        };
        for (steps, expected) in [
            (&[12.0; 12][..], Some(12.0)),
            (&[50.0, 9.0, 0.0, 12.0, 12.0, 14.0, 12.0, 12.0, 13.0, 12.0], Some(12.0)),
            (&[0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0], None),
            (&[3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0], None),
            (&[], None),
        ] {
            let before = series(steps);
            let mut values = before.clone();
            assert_eq!(usual(&mut values, 3), expected, "{steps:?}");
            match expected {
                Some(step) => {
                    let straight = values.iter().skip(3).zip(values.iter().skip(4));
                    assert!(straight.clone().all(|(a, b)| b - a == step), "{values:?}");
                }
                None => assert_eq!(values, before),
            }
        }
    }

    /// `int[]` of the destinations of Jetty's HTTP client, which are removed once a second: the ends of 74 executions.
    const EXPIRING: [u64; 74] = [
        754, 759, 760, 761, 762, 763, 767, 763, 764, 765, 766, 767, 768, 769, 763, 764, 765, 766, 767, 771,
        772, 766, 767, 768, 769, 770, 771, 765, 766, 767, 768, 769, 770, 771, 772, 765, 766, 767, 768, 769,
        770, 771, 772, 766, 767, 768, 769, 770, 771, 772, 766, 767, 768, 769, 770, 771, 772, 773, 774, 775,
        776, 777, 766, 767, 768, 769, 770, 771, 772, 773, 774, 775, 766, 767,
    ];

    #[test]
    fn what_expires_again_and_again_does_not_grow() {
        let found = |figures: &[u64]| {
            let mut jvm = Jvm::new();
            for (i, count) in (0..).zip(figures) {
                jvm.window("com.example.PagesTest", "reads", i, |jvm| jvm.set("int[]", *count, 144 * count));
            }
            jvm.held(
                "int[]",
                &[(1, &["static com.example.Pages.client -> com.example.Client.destinations"])],
            );
            let last = u32::try_from(figures.len()).expect("few") - 1;
            jvm.explained("com.example.PagesTest", "reads", last);
            let findings = Findings::of(&jvm.end(), "com.example.PagesTest.reads", 3, 0.99);
            (findings.growing.len(), findings.open.len(), findings.paused)
        };
        assert_eq!(found(&EXPIRING), (0, 1, true), "the low points rose by one");
        let settled: Vec<u64> =
            (0..).zip(EXPIRING).map(|(i, count)| if i > 33 { count.max(766) } else { count }).collect();
        assert_eq!(found(&settled).0, 0);
        let and_a_leak: Vec<u64> = (0..).zip(EXPIRING).map(|(i, count)| count + i / 5).collect();
        assert_eq!(found(&and_a_leak).0, 1, "the low points rise with the leak");
    }

    #[test]
    fn low_points_tell_what_is_given_back() {
        let of = |n: usize, at: &dyn Fn(usize) -> usize| {
            rise_of_lows(&(0..n).map(|i| as_f64(at(i))).collect::<Vec<_>>(), 3)
        };
        for n in 71..200 {
            assert_eq!(of(n, &|i| 40 + i % 8), Some(0.0), "{n}");
            let leaks: [&dyn Fn(usize) -> usize; 5] =
                [&|i| 12 * i, &|i| i % 8 + i / 8, &|i| 2 * i - i % 8, &|i| i % 8 + i, &|i| {
                    3 * i + 40 * usize::from(i % 7 == 0)
                }];
            for (which, leak) in leaks.iter().enumerate() {
                assert_eq!(of(n, leak), None, "{which}, {n}");
            }
        }
        assert_eq!(of(20, &|i| 40 + i % 8), None, "too few");
        assert_eq!(of(0, &|i| i), None);
    }

    #[test]
    fn what_filled_late_has_stalled_and_no_leak_has() {
        let of =
            |n: usize, at: &dyn Fn(usize) -> usize| -> Vec<f64> { (0..n).map(|i| as_f64(at(i))).collect() };
        let filled_late = |i: usize| 5 * i.saturating_sub(21).min(8);
        assert!(has_stalled(&of(38, &filled_late), 3));
        assert!(!has_stalled(&of(33, &filled_late), 3), "it may go on");
        let leaks: [&dyn Fn(usize) -> usize; 4] =
            [&|i| 12 * i, &|i| i / 5, &|i| 3 * i + i % 2, &|i| 64 * i.next_power_of_two()];
        for (which, leak) in leaks.iter().enumerate() {
            for n in 13..200 {
                assert!(!has_stalled(&of(n, leak), 3), "{which}, {n}");
            }
        }
        assert!(!has_stalled(&[], 3));
    }

    #[test]
    fn strings_that_come_now_and_then_are_not_regular() {
        let regular: Vec<f64> = (0..20).map(|i| 2.0 * as_f64(i)).collect();
        assert!(is_regular(&regular, 2.0, 3));
        let third: Vec<f64> = (0..20).map(|i| as_f64(i / 3)).collect();
        assert!(is_regular(&third, 1.0 / 3.0, 3));
        let mut sum = 0.0;
        let noise: Vec<f64> = [2, 0, 5, 1, 6, 0, 0, 3, 1, 6, 0, 4, 0, 0, 1, 5]
            .iter()
            .map(|step| {
                sum += f64::from(*step);
                sum
            })
            .collect();
        assert!(!is_regular(&noise, 2.0, 3));
    }
}
