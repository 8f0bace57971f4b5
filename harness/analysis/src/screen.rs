//! The screen: finds the tests that left something and must be repeated alone.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use memgate_model::{
    Area, Kind, Metric, Per, Unit, format_amount, format_bytes, format_number_of, format_value,
};
use memgate_wire::ErrorCode;

use crate::groups::OsKind;
use crate::looks;
use crate::own_tests;
use crate::policy::{GatePolicy, is_limited, smallest_limit};
use crate::range::Range;
use crate::record::{OsState, ProcessRecord, Window};
use crate::stats::float;

/// A test that must be repeated.
#[derive(Debug, Clone, PartialEq)]
pub struct Suspect {
    /// Its id within the suite.
    pub test: String,
    /// Text on what it left: `48.0 KiB in 12 allocations`, `1 descriptor`.
    pub why: String,
    /// Later tests of its process freed all that it left.
    pub freed_since: bool,
    /// It already ran often enough in one process and can be judged without another run.
    pub repeated: bool,
    /// Index of the record it was found in. The process of that record is started again.
    pub record: usize,
}

/// A test that ran this often in one process needs no run of its own.
pub const ENOUGH_REPETITIONS: usize = 5;

/// Tests of `suite` that left more than their thresholds allow, in the order they ran. Tests that failed, were skipped
/// or could not be measured are left out, because they are not judged.
#[must_use]
pub fn screen(records: &[&ProcessRecord], suite: &str, policy: &GatePolicy) -> Vec<Suspect> {
    let mut suspects: Vec<Suspect> = Vec::new();
    let mut known = HashMap::<String, usize>::new();
    for (index, record) in records.iter().enumerate().filter(|(_, r)| r.is_main()) {
        let mut runs = BTreeMap::<String, usize>::new();
        for window in &record.windows {
            *runs.entry(window.id()).or_default() += 1;
        }
        for window in record.windows.iter().filter(|window| judged(record, window)) {
            let test = window.id();
            let is_unseen =
                looks::is_unseen(window) && limited_handles(policy, suite, &test).next().is_some();
            let unseen = is_unseen.then(|| looks::UNSEEN.to_owned());
            let Some(why) = left_too_much(window, suite, &test, policy).or(unseen) else { continue };
            let freed_since = !is_unseen && is_freed_since(window, suite, &test, policy);
            let at = *known.entry(test.clone()).or_insert(suspects.len());
            if let Some(suspect) = suspects.get_mut(at) {
                suspect.freed_since &= freed_since;
                continue;
            }
            // A set-up can be distinguished from the tests around it only in a run of its own. Samples do not show
            // growth.
            let repeated = !window.is_setup()
                && window.interval.is_none()
                && !is_unseen
                && runs.get(&test).is_some_and(|n| *n >= ENOUGH_REPETITIONS);
            suspects.push(Suspect { test, why, freed_since, repeated, record: index });
        }
        // What grows between tests that the program itself repeats belongs to the test before.
        let repeated = runs.iter().filter(|(_, n)| record.tells_its_own_tests() && **n >= ENOUGH_REPETITIONS);
        for (test, _) in repeated.filter(|(test, _)| own_tests::is_among_others(record, test)) {
            let is_judged = record.windows_of(test).all(|window| judged(record, window));
            let Some(why) = own_tests::grown_outside(record, suite, test, policy).filter(|_| is_judged)
            else {
                continue;
            };
            if !known.contains_key(test) {
                known.insert(test.clone(), suspects.len());
                suspects.push(Suspect {
                    test: test.clone(),
                    why,
                    freed_since: false,
                    repeated: true,
                    record: index,
                });
            }
        }
    }
    suspects
}

/// Is it a suspect only because of blocks that have been freed since?
fn is_freed_since(window: &Window, suite: &str, test: &str, policy: &GatePolicy) -> bool {
    let without = || Window { survivors: Vec::new(), survivor_count: 0, ..window.clone() };
    window.freed_since && left_too_much(&without(), suite, test, policy).is_none()
}

/// Sorts `suspects` of these records: the first suspect of each cause comes before the others of any cause. Suspects
/// whose blocks have all been freed since come last. So each cause is checked once even if time is short.
///
/// A cause is the address in the test's own program where it allocated what it left. (Symbols would be exact, but take
/// longer.)
#[must_use]
pub fn causes_first(suspects: Vec<Suspect>, records: &[&ProcessRecord]) -> Vec<Suspect> {
    let mut known = BTreeSet::new();
    let (first, others): (Vec<_>, Vec<_>) = suspects.into_iter().partition(|suspect| {
        let locations =
            records.get(suspect.record).map_or_else(BTreeSet::new, |r| locations(r, &suspect.test));
        // The origin of a descriptor or a thread is unknown.
        let is_new = locations.is_empty() || !locations.is_subset(&known);
        known.extend(locations);
        is_new
    });
    let mut ordered = [first, others].concat();
    ordered.sort_by_key(|suspect| suspect.freed_since);
    ordered
}

/// File and address in it for every stack of what a test left: the innermost frame of its own program.
fn locations<'a>(record: &'a ProcessRecord, test: &str) -> BTreeSet<(&'a str, u64)> {
    let executable = record.hello.as_ref().map_or("", |hello| hello.executable.as_str());
    let survivors = record.windows.iter().filter(|w| w.is(test)).flat_map(|w| &w.survivors);
    survivors
        .filter_map(|survivor| {
            let (steps, _) = record.stack(survivor.stack);
            let placed = steps.iter().filter_map(|step| {
                let modules = record.modules(step.generation).iter();
                let module = modules.clone().find(|m| (m.start..m.end).contains(&step.pc))?;
                Some((module.path.as_str(), step.pc.wrapping_sub(module.bias)))
            });
            placed.clone().find(|(path, _)| *path == executable).or_else(|| placed.clone().next())
        })
        .collect()
}

pub(crate) fn judged(record: &ProcessRecord, window: &Window) -> bool {
    let failed = |o| matches!(o, memgate_wire::Outcome::Failed | memgate_wire::Outcome::Skipped);
    !window.outcome.is_some_and(failed) && crate::measured::unmeasured(record, Some(window)).is_none()
}

/// Describes what a window left, if it exceeds the limits per iteration of its test.
pub(crate) fn left_too_much(window: &Window, suite: &str, test: &str, policy: &GatePolicy) -> Option<String> {
    let exceeds = |metric| {
        let limit = smallest_limit(policy, suite, test, metric, Per::Iteration)?;
        let left = left_between(window, metric, policy.confidence)?;
        (left.high > limit).then_some(left.value)
    };
    if let Some(left) = exceeds(Metric::NativeLiveBytes).or_else(|| exceeds(Metric::NativeLiveAllocations)) {
        if let Some(text) = by_samples(window, policy) {
            return Some(text);
        }
        let allocations = format_number_of(window.left_allocations(), "allocation");
        let in_bytes = float(window.left_bytes());
        return Some(if in_bytes > 0.0 || left <= 0.0 {
            format!("{} in {allocations}", format_bytes(in_bytes))
        } else {
            allocations
        });
    }
    let held = OsKind::ALL.map(OsKind::metric).into_iter();
    held.chain(Metric::of(Area::Os, &[Kind::Resident]))
        .find_map(|metric| exceeds(metric).map(|left| format_amount(metric, left)))
}

/// `about 1.0 MiB (10.4 KiB to 5.6 MiB, by 2 samples)`. `None`: everything was recorded.
fn by_samples(window: &Window, policy: &GatePolicy) -> Option<String> {
    let Range { value, low, high } = window.estimate()?.bytes.range(policy.confidence);
    let [about, low, high] = [value, low, high].map(format_bytes);
    let samples = format_number_of(window.survivor_count, "sample");
    Some(format!("about {about} ({low} to {high}, by {samples})"))
}

/// `not decided by samples: about 1.0 MiB at the peak, between 0.9 MiB and 1.2 MiB (allowed 1.0 MiB)`.
pub(crate) fn undecided(metric: Metric, range: Range, per: &str, limit: f64) -> String {
    let [low, high, allowed] = [range.low, range.high, limit].map(|value| format_value(metric, value));
    let value = format_amount(metric, range.value);
    format!("not decided by samples: about {value} {per}, between {low} and {high} (allowed {allowed})")
}

/// What one execution left of a metric, with its bounds. Without any sample all are 0: the suite reports what may
/// remain unseen. `None`: not measured.
pub(crate) fn left_between(window: &Window, metric: Metric, confidence: f64) -> Option<Range> {
    let value = left(window, metric)?;
    let of_samples = match metric {
        Metric::NativeLiveBytes => window.estimate().map(|estimates| estimates.bytes),
        Metric::NativeLiveAllocations => window.estimate().map(|estimates| estimates.blocks),
        _ => None,
    };
    let of_samples = of_samples.filter(|_| window.survivor_count > 0);
    Some(of_samples.map_or(Range::exact(value), |estimate| Range { value, ..estimate.range(confidence) }))
}

/// `48.0 KiB per iteration (allowed 0 B)`. If both would look alike after rounding, the figures get as many digits as
/// needed.
pub(crate) fn too_much(metric: Metric, value: f64, per: &str, limit: f64) -> String {
    let allowed = format_value(metric, limit);
    if format_value(metric, value) == allowed {
        let unit = if metric.unit() == Unit::Bytes { " B" } else { "" };
        let digits = (0..9).find(|&digits| format!("{value:.digits$}") != format!("{limit:.digits$}"));
        let digits = digits.unwrap_or(9);
        return format!("{value:.digits$}{unit} {per} (allowed {limit}{unit})");
    }
    format!("{} {per} (allowed {allowed})", format_amount(metric, value))
}

/// The amount of a metric that one execution left. `None`: not measured.
pub(crate) fn left(window: &Window, metric: Metric) -> Option<f64> {
    match metric {
        Metric::NativeLiveBytes => Some(float(window.left_bytes())),
        Metric::NativeLiveAllocations => Some(float(window.left_allocations())),
        Metric::NativeMappedBytes => {
            let (start, end) = window.mapped_start.as_ref().zip(window.mapped_end.as_ref())?;
            Some(float(end.total().saturating_sub(start.total())))
        }
        _ => {
            let (start, end) = window.os_start.as_ref().zip(window.os_end.as_ref())?;
            if let Some(unclear) = window.shared_look {
                return looks::left(unclear, metric);
            }
            if window.started_unseen && matches!(metric, Metric::OsRss | Metric::OsPss) {
                return None;
            }
            Some((os_value(end, metric)? - os_value(start, metric)?).max(0.0))
        }
    }
}

/// Reason reported if not all mappings could be stored.
pub(crate) const MAPPINGS_LOST: &str =
    "not measured: not all mappings could be noted; `native.mapped_bytes: off` does without them";

/// Why `window` cannot be checked against the limit of mapped bytes. `None`: it can, or there is no limit.
pub(crate) fn unmeasured_mappings(
    window: &Window,
    suite: &str,
    test: &str,
    policy: &GatePolicy,
) -> Option<String> {
    (window.mappings_lost && is_limited(policy, suite, test, Metric::NativeMappedBytes))
        .then(|| MAPPINGS_LOST.to_owned())
}

/// The metrics with a limit, of descriptors and threads.
pub(crate) fn limited_handles(policy: &GatePolicy, suite: &str, test: &str) -> impl Iterator<Item = Metric> {
    [Metric::OsFds, Metric::OsThreads].into_iter().filter(|metric| is_limited(policy, suite, test, *metric))
}

/// Why descriptors and threads of `window` cannot be checked against their limits. `None`: they can, or have no limits.
pub(crate) fn unlisted(
    record: &ProcessRecord,
    window: &Window,
    suite: &str,
    test: &str,
    policy: &GatePolicy,
) -> Option<String> {
    let seen = record.errors.iter().find(|seen| seen.error.code == ErrorCode::Unlisted)?;
    let missing = limited_handles(policy, suite, test).any(|metric| left(window, metric).is_none());
    let why = &seen.error.text;
    missing.then(|| format!("not measured: {why}; `os.fds: off` and `os.threads: off` do without"))
}

/// The value of a metric of the operating system.
pub(crate) fn os_value(os: &OsState, metric: Metric) -> Option<f64> {
    match metric {
        Metric::OsRss => Some(float(os.rss_bytes)),
        Metric::OsPss => os.pss_bytes.map(float),
        Metric::OsThreads => Some(float(os.thread_count())),
        Metric::OsFds => Some(float(os.fd_count())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dsl::Process;
    use std::collections::HashMap;

    use crate::policy::{Limit, NamePattern, Rule};
    use memgate_wire::{Frame, Freed, Outcome};

    fn why(record: &ProcessRecord, policy: &GatePolicy) -> Vec<(String, String)> {
        screen(&[record], "engine", policy).into_iter().map(|s| (s.test, s.why)).collect()
    }

    #[test]
    fn a_figure_just_above_its_limit_is_told_apart_from_it() {
        for (metric, value, limit, text) in [
            (Metric::OsFds, 2.03, 2.0, "2.03 per iteration (allowed 2)"),
            (Metric::NativeLiveBytes, 49153.0, 49152.0, "49153 B per iteration (allowed 49152 B)"),
            (Metric::NativeLiveBytes, 0.58, 0.55, "0.58 B per iteration (allowed 0.55 B)"),
        ] {
            assert_eq!(too_much(metric, value, "per iteration", limit), text);
        }
    }

    fn named(test: &str, why: &str) -> (String, String) {
        (test.to_owned(), why.to_owned())
    }

    #[test]
    fn names_what_each_test_left_and_not_what_the_next_one_did() {
        let mut p = Process::screen();
        p.run("Map.clean", 0, |p| {
            p.alloc(1, 100, 1);
            p.free(1, 100, 1);
        });
        p.run("Map.leak", 0, |p| p.alloc(2, 4096, 12));
        p.run("Map.frees_the_leak", 0, |p| p.free(2, 4096, 12));
        p.run("Map.fd", 0, |p| p.fds.push("/tmp/log"));
        p.run("Map.thread", 0, |p| p.threads.push("worker"));
        let found = why(&p.end(), &GatePolicy::default());
        assert_eq!(
            found,
            [
                named("Map.leak", "48.0 KiB in 12 allocations"),
                named("Map.fd", "1 descriptor"),
                named("Map.thread", "1 thread")
            ]
        );
    }

    #[test]
    fn whose_blocks_later_tests_freed_comes_last_unless_it_left_something_else() {
        let mut p = Process::screen();
        p.run("Map.freed", 0, |p| p.alloc(1, 100, 1));
        p.run("Map.freed_and_fd", 0, |p| {
            p.alloc(2, 100, 1);
            p.fds.push("/tmp/log");
        });
        p.run("Map.frees", 0, |p| {
            p.free(1, 100, 1);
            p.free(2, 100, 1);
        });
        p.run("Map.leak", 0, |p| p.alloc(3, 100, 1));
        // The boundary numbers are: ends of the first two tests, no boundary, a start, the end of a test that left
        // nothing.
        let boundaries = vec![3, 5, 0, 8, 7, u32::MAX];
        p.frame(Frame::Freed(Freed { boundaries: boundaries.clone() }));
        let suspects = |p: Process| {
            let record = p.end();
            let suspects = screen(&[&record], "engine", &GatePolicy::default());
            let ordered = causes_first(suspects, &[&record]);
            ordered.into_iter().map(|s| (s.test, s.freed_since)).collect::<Vec<_>>()
        };
        let named = |test: &str, freed| (test.to_owned(), freed);
        let all = [named("Map.freed_and_fd", false), named("Map.leak", false), named("Map.freed", true)];
        assert_eq!(suspects(p), all);

        let mut p = Process::screen();
        p.run("Map.freed", 0, |p| p.alloc(1, 100, 1));
        p.frame(Frame::Freed(Freed { boundaries }));
        p.iteration(1);
        assert_eq!(suspects(p), [named("Map.freed", false)], "it runs again: each execution counts");
    }

    #[test]
    fn every_metric_of_the_system_is_read() {
        let os = OsState { pss_bytes: Some(7), ..OsState::default() };
        for metric in Metric::ALL {
            assert_eq!(os_value(&os, metric).is_some(), metric.area() == Area::Os, "{metric}");
        }
    }

    #[test]
    fn an_empty_block_matters_only_where_allocations_have_a_limit() {
        let mut p = Process::screen();
        p.run("Map.empty", 0, |p| p.alloc(1, 0, 3));
        let record = p.end();
        let mut policy = GatePolicy::default();
        assert_eq!(why(&record, &policy), []);
        policy.defaults.push(Limit::fail(Metric::NativeLiveAllocations, 2.0, "default"));
        assert_eq!(why(&record, &policy), [named("Map.empty", "3 allocations")]);
    }

    #[test]
    fn the_first_matching_rule_that_names_the_metric_decides() {
        let mut p = Process::screen();
        p.run("Map.leak", 0, |p| p.alloc(2, 4096, 12));
        let record = p.end();
        let rule = |pattern: &'static str, metric, limit| Rule {
            metric,
            matches: NamePattern::new(move |name| name == pattern),
            of_tests: HashMap::new(),
            limits: vec![Limit::fail(metric, limit, "memgate.yaml:24")],
        };
        let cases = [
            (vec![rule("engine::Map.leak", Metric::NativeLiveBytes, 65536.0)], 0),
            (vec![rule("engine::Map.leak", Metric::NativeLiveBytes, 4096.0)], 1),
            (vec![rule("engine::Other.test", Metric::NativeLiveBytes, 65536.0)], 1),
            (
                vec![
                    rule("engine::Map.leak", Metric::OsFds, 1.0),
                    rule("engine::Map.leak", Metric::NativeLiveBytes, 65536.0),
                ],
                0,
            ),
        ];
        for (rules, suspects) in cases {
            let policy = GatePolicy { rules, ..GatePolicy::default() };
            assert_eq!(why(&record, &policy).len(), suspects, "{policy:?}");
        }
    }

    #[test]
    fn tests_that_are_not_judged_are_not_suspects() {
        let leak = |p: Process| {
            let mut p = p;
            p.run("Map.leak", 0, |p| p.alloc(2, 4096, 12));
            p.end()
        };
        for record in [
            leak(Process::screen().outcome(Outcome::Failed)),
            leak(Process::screen().outcome(Outcome::Skipped)),
            leak(Process::screen().overlapping()),
        ] {
            assert_eq!(why(&record, &GatePolicy::default()), []);
        }
    }

    #[test]
    fn a_test_the_user_repeated_needs_no_run_of_its_own() {
        for (repetitions, repeated) in [(4, false), (5, true)] {
            let mut p = Process::screen();
            (0..repetitions).for_each(|i| p.run("Map.leak", i, |p| p.alloc(2, 4096, 12)));
            let suspects = screen(&[&p.end()], "engine", &GatePolicy::default());
            assert_eq!(suspects.len(), 1);
            assert_eq!(suspects[0].repeated, repeated);
        }
    }

    /// Tests that each left a block from one place of the program: `left` has the addresses.
    fn suspects_of(left: &[(&str, u64)]) -> (Vec<Suspect>, ProcessRecord) {
        let mut record = ProcessRecord { hello: Some(crate::dsl::hello()), ..ProcessRecord::default() };
        let module = |path: &str, start| memgate_wire::Module {
            start,
            end: start + 0x1000,
            bias: start,
            path: path.to_owned(),
            build_id: Vec::new(),
        };
        let modules = [module("/build/engine_tests", 0x1000), module("/lib/libc.so", 0x8000)];
        record.modules.insert(0, modules.map(std::sync::Arc::new).to_vec());
        let mut suspects = Vec::new();
        for (id, &(test, address)) in (1_u32..).step_by(2).zip(left) {
            let node = |parent, pc| crate::record::Node {
                node: memgate_wire::StackNode { id: 0, parent, pc },
                generation: 0,
            };
            record.stacks.insert(id, node(0, address));
            record.stacks.insert(id + 1, node(id, 0x8123));
            let survivors = vec![memgate_wire::SnapshotRecord { stack: id + 1, size: 37, count: 1 }];
            let (suite, name) = test.split_once('.').unwrap();
            record.windows.push(Window {
                suite: suite.to_owned(),
                test: name.to_owned(),
                survivors,
                ..Window::default()
            });
            suspects.push(Suspect {
                test: test.to_owned(),
                why: String::new(),
                freed_since: false,
                repeated: false,
                record: 0,
            });
        }
        (suspects, record)
    }

    #[test]
    fn the_first_test_of_each_cause_comes_before_the_others() {
        let (suspects, record) =
            suspects_of(&[("A.a", 0x1111), ("A.b", 0x1111), ("A.c", 0x1222), ("A.d", 0x1111)]);
        let ordered = causes_first(suspects, &[&record]);
        let names: Vec<&str> = ordered.iter().map(|suspect| suspect.test.as_str()).collect();
        assert_eq!(names, ["A.a", "A.c", "A.b", "A.d"]);
    }

    #[test]
    fn of_what_has_no_place_each_is_a_cause_of_its_own() {
        let (suspects, _) = suspects_of(&[("A.a", 0x1111), ("A.b", 0x1111)]);
        assert_eq!(causes_first(suspects.clone(), &[&ProcessRecord::default()]), suspects);
    }
}
