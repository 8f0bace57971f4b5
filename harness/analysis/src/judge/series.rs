//! Which runs of a program that repeats its work are compared: those with few repetitions, or those with many.
//!
//! A bounded cache fills while the repetitions are few, and looks like a leak. So the harness adds runs with many
//! repetitions if something grew. These decide, but only if the program repeated its work in each of them: it may
//! clamp the number, fail when descriptors run out, or take the number for something else.

use crate::input::Repetition;
use crate::measured::{self, When};

/// The number of runs in a series. Their lengths are the multiples of the shortest one.
const RUNS: usize = 6;

/// The runs of a program, shortest first.
pub(super) struct Series<'a> {
    /// With few repetitions.
    pub(super) short: Vec<&'a Repetition>,
    /// With many repetitions. `None`: there are none that can decide.
    pub(super) long: Option<Vec<&'a Repetition>>,
    /// Why a longer run does not count.
    pub(super) why_no_longer: Option<String>,
}

impl<'a> Series<'a> {
    pub(super) fn of(runs: &'a [Repetition]) -> Self {
        // If a length ran twice, the later run has the holders. A broken run decides only if it is the only one.
        let mut short: Vec<&Repetition> = runs.iter().rev().collect();
        short.sort_by_key(|run| (run.n, broken(run).is_some()));
        short.dedup_by_key(|run| run.n);
        let all = short.clone();
        let longer = short.split_off(short.len().min(RUNS));
        let long = longer.iter().rev().find_map(|longest| series_up_to(longest.n, &all));
        let reached = long.as_ref().and_then(|long| long.last()).map_or(0, |run| run.n);
        let beyond = longer.iter().filter(|run| run.n > reached);
        let why_no_longer = beyond
            .filter_map(|run| Some((run.n, broken(run)?)))
            .map(|(n, why)| format!("with {n} repetitions: {why}"))
            .next();
        Self { short, long, why_no_longer }
    }
}

/// The series whose longest run has `longest` repetitions, if it is there and repeated its work to the end.
fn series_up_to<'a>(longest: u64, all: &[&'a Repetition]) -> Option<Vec<&'a Repetition>> {
    let step = longest / RUNS as u64;
    let of = |part: u64| all.iter().copied().find(|run| run.n == step * part);
    let series: Vec<&Repetition> = (1..=RUNS as u64).map(of).collect::<Option<_>>()?;
    let is_whole = series.iter().all(|run| broken(run).is_none());
    (is_whole && series.windows(2).all(|pair| works_on(pair[0], pair[1]))).then_some(series)
}

/// Why a run gives no figures.
pub(super) fn broken(run: &Repetition) -> Option<String> {
    let record = &run.process.record;
    measured::unmeasured(record, None)
        .or_else(|| record.damaged.as_ref().map(|d| format!("its recording is damaged: {d}")))
        .or_else(|| match &record.end {
            None => Some(measured::broken_off(&run.process, When::InATest).1),
            Some(_) if record.goodbye.is_none() => Some(measured::broken_off(&run.process, When::InATest).1),
            Some(end) if end.incomplete || record.main_end.as_ref().is_some_and(|main| main.incomplete) => {
                Some("part of what was recorded at its end is missing".to_owned())
            }
            Some(_) => None,
        })
        .or_else(|| {
            let status = measured::status(&run.process).filter(|s| *s != 0)?;
            Some(format!("it ended with status {status}"))
        })
}

/// Repeated work is nearly never without a single allocation.
fn works_on(shorter: &Repetition, longer: &Repetition) -> bool {
    let made = |run: &Repetition| run.process.record.end.as_ref().map(|end| end.counters.allocations);
    let more = made(longer).zip(made(shorter)).and_then(|(longer, shorter)| longer.checked_sub(shorter));
    more.is_some_and(|more| more >= longer.n - shorter.n)
}

#[cfg(test)]
mod tests {
    use memgate_model::Verdict;
    use memgate_wire::GoodbyeReason;

    use crate::dsl::ByNumber;
    use crate::dsl::Process;
    use crate::input::{ConfirmationInput, Ending, ProcessInput, Repetition, RunInput};
    use crate::judge::judge;
    use crate::judge::tests::process_suite;
    use crate::policy::GatePolicy;

    const FEW: [u64; 6] = [4, 8, 12, 16, 20, 24];
    /// The few, one that showed how long they take, and a series.
    const MANY: [u64; 13] = [4, 8, 12, 16, 20, 24, 96, 384, 64, 128, 192, 256, 320];

    fn runs_of(lengths: &[u64], of: impl Fn(&mut Process, u64)) -> Vec<Repetition> {
        let run = |n: &u64| {
            let mut p = Process::screen();
            of(&mut p, *n);
            Repetition { n: *n, process: p.end().into() }
        };
        lengths.iter().map(run).collect()
    }

    fn runs(lengths: &[u64], of: impl Fn(&mut Process, u64)) -> RunInput {
        let mut screen = Process::screen();
        screen.alloc(3, 100, 1);
        let mut input = process_suite(screen.end(), &[(4, 0)]);
        let all = ConfirmationInput::Lengths(runs_of(lengths, of));
        input.suites[0].confirmations.insert("engine".to_owned(), all);
        input
    }

    fn told(input: &RunInput, policy: &GatePolicy) -> (Verdict, String) {
        let mut report = judge(input, policy, &mut ByNumber);
        let test = report.suites.remove(0).tests.remove(0);
        (test.verdict, test.reason)
    }

    fn judged(lengths: &[u64], of: impl Fn(&mut Process, u64)) -> (Verdict, String) {
        told(&runs(lengths, of), &GatePolicy::default())
    }

    /// Regression: each cache with more entries than the program had repetitions failed.
    #[test]
    fn a_cache_that_is_full_after_some_repetitions_is_no_leak_of_a_program() {
        let ring = |entries: u64| {
            move |p: &mut Process, n: u64| {
                p.alloc(3, 100, n);
                p.free(3, 100, n.saturating_sub(entries));
            }
        };
        assert_eq!(judged(&FEW, ring(64)).0, Verdict::Fail, "few repetitions do not show it");
        for entries in [32, 64, 100] {
            assert_eq!(judged(&MANY, ring(entries)), (Verdict::Pass, String::new()), "{entries}");
        }
        for entries in [150, 300] {
            let (verdict, reason) = judged(&MANY, ring(entries));
            assert_eq!(verdict, Verdict::Warn, "{entries}");
            assert!(reason.starts_with("inconclusive: "), "{reason}");
        }
    }

    #[test]
    fn a_leak_beside_a_cache_is_told_with_its_own_figure_and_so_is_a_rare_one() {
        let beside = judged(&MANY, |p, n| {
            p.alloc(3, 100, n.min(64));
            p.alloc(4, 8, n);
            p.works(n);
        });
        assert_eq!(beside, (Verdict::Fail, "8 B per repetition (allowed 0 B)".to_owned()));
        let rare = |p: &mut Process, n: u64| {
            p.alloc(4, 80, n / 10);
            p.works(n);
        };
        assert_eq!(judged(&FEW, rare).0, Verdict::Warn);
        let (verdict, reason) = judged(&MANY, rare);
        assert_eq!(verdict, Verdict::Fail, "{reason}");
        assert!(reason.ends_with("B per repetition (allowed 0 B)"), "{reason}");
    }

    #[test]
    fn a_program_that_clamps_the_number_of_repetitions_is_judged_by_those_that_it_makes() {
        for most in [24, 100, 200] {
            let clamped = judged(&MANY, |p, n| {
                p.alloc(4, 8, n.min(most));
                p.works(n.min(most));
            });
            assert_eq!(clamped, (Verdict::Fail, "8 B per repetition (allowed 0 B)".to_owned()), "{most}");
        }
    }

    #[test]
    fn a_long_run_that_breaks_leaves_the_verdict_to_the_short_ones_and_is_told() {
        let mut input = runs(&MANY, |p, n| p.alloc(4, 8, n));
        let Some(ConfirmationInput::Lengths(runs)) = input.suites[0].confirmations.get_mut("engine") else {
            unreachable!()
        };
        for run in runs.iter_mut().filter(|run| run.n > 90) {
            run.process = Process::screen().end_with(GoodbyeReason::Exit, Some(1)).into();
        }
        let reason = "8 B per repetition (allowed 0 B); with 96 repetitions: it ended with status 1";
        assert_eq!(told(&input, &GatePolicy::default()), (Verdict::Fail, reason.to_owned()));
        // The series of a short length begins with a number that ran before.
        let mut again = runs_of(&[&FEW[..], &[96, 16]].concat(), |p, n| p.alloc(4, 8, n));
        again.last_mut().unwrap().process = Process::screen().end_with(GoodbyeReason::Exit, Some(1)).into();
        let Some(ConfirmationInput::Lengths(runs)) = input.suites[0].confirmations.get_mut("engine") else {
            unreachable!()
        };
        *runs = again;
        assert_eq!(told(&input, &GatePolicy::default()).0, Verdict::Fail);
    }

    /// Regression: the reason did not say why a program that works once fails when it repeats its work.
    #[test]
    fn a_program_whose_tests_work_only_once_is_not_measured_and_told_so() {
        let mut input = runs(&FEW, |p, n| p.alloc(4, 8, n));
        let Some(ConfirmationInput::Lengths(runs)) = input.suites[0].confirmations.get_mut("engine") else {
            unreachable!()
        };
        let record = Process::screen().end_with(GoodbyeReason::Exit, Some(1));
        runs[0].process = ProcessInput { record, ending: Ending::Exited(1) };
        let reason = "with 4 repetitions: it ended with status 1; a test may work only once in a process";
        assert_eq!(told(&input, &GatePolicy::default()), (Verdict::Error, reason.to_owned()));
    }

    #[test]
    fn descriptors_that_meet_a_limit_of_the_system_do_not_pass() {
        let opens = |most: u64| {
            move |p: &mut Process, n: u64| {
                (0..n.min(most)).for_each(|_| p.open("/log", 6));
                p.works(n);
            }
        };
        let (verdict, reason) = judged(&MANY, opens(40));
        assert_eq!(verdict, Verdict::Warn);
        assert!(reason.starts_with("inconclusive: descriptors grow with the repetitions"), "{reason}");
        assert_eq!(judged(&MANY, opens(u64::MAX)).0, Verdict::Fail);
        assert_eq!(judged(&MANY, opens(8)), (Verdict::Pass, String::new()), "a pool");
    }

    #[test]
    fn fewer_repetitions_than_were_asked_for_are_told() {
        let policy = GatePolicy { iterations: 1000, ..GatePolicy::default() };
        let told = told(&runs(&FEW, |p, n| p.alloc(4, 8, n)), &policy);
        let reason =
            "8 B per repetition (allowed 0 B); judged by at most 24 repetitions, 1000 were asked for";
        assert_eq!(told, (Verdict::Fail, reason.to_owned()));
    }
}
