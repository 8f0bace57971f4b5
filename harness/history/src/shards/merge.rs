//! Merges shards into one report: the report of one machine, except for times and one-time allocations of processes.
//!
//! The order in which shards arrive does not matter. Of several attempts at a shard, the last counts. Figures of a
//! suite as a whole are listed by shard and never added; the suite itself shows the largest.

use std::collections::{BTreeMap, BTreeSet};

use memgate_model::{
    AgentCost, Followed, Hunt, Outcome, Part, Problem, RunReport, Shard, SuiteReport, SuiteShard, TestReport,
    Verdict, WaiverReport, WaiverState,
};

use super::split::class_of;
use super::{ShardReport, check};

/// The result of merging shards.
#[derive(Debug, Clone, PartialEq)]
pub struct Merged {
    /// The merged report.
    pub report: RunReport,
    /// Shards are missing or inconsistent: the report says why.
    pub incomplete: bool,
}

/// Merges all shards into one report. `session`: the name of the merged session. `expected`: how many shards there must
/// be. `broken`: problems of inputs that are no shards but should be. `None`: none of the shards has a report.
#[must_use]
pub fn merge(
    mut shards: Vec<ShardReport>,
    expected: Option<u32>,
    broken: Vec<Problem>,
    session: &str,
) -> Option<Merged> {
    let key = |it: &ShardReport| (it.partition.part, it.started.clone(), it.session.clone());
    shards.sort_by_key(key);
    // A copy is not another attempt.
    shards.dedup_by_key(|shard| key(shard));
    let mut last = Vec::<&ShardReport>::new();
    let mut earlier = BTreeMap::<Part, Vec<&ShardReport>>::new();
    for shard in &shards {
        match last.last_mut().filter(|before| before.partition.part == shard.partition.part) {
            Some(before) => {
                earlier.entry(shard.partition.part).or_default().push(before);
                *before = shard;
            }
            None => last.push(shard),
        }
    }
    for (part, attempts) in &mut earlier {
        let counts = last.iter().find(|shard| shard.partition.part == *part);
        attempts.retain(|attempt| counts.is_some_and(|counts| is_attempt(attempt, counts)));
    }
    let mut errors = broken;
    errors.extend(check::problems(&last, expected));
    let incomplete = !errors.is_empty();
    let reports: Vec<(&ShardReport, &RunReport)> =
        last.iter().filter_map(|shard| Some((*shard, shard.report.as_ref()?))).collect();
    let (_, first) = reports.first()?;
    for (shard, problem) in
        reports.iter().flat_map(|(shard, report)| report.errors.iter().map(move |it| (shard, it)))
    {
        let r#where = format!("{}, {}", check::place(shard.partition.part), problem.r#where);
        errors.push(Problem { r#where, ..problem.clone() });
    }
    let narrowed = last.iter().any(|shard| shard.partition.narrowed);
    let suites = suites(&reports);
    let verdict = if incomplete { Verdict::Error } else { Verdict::Pass };
    let verdict = verdict.max(Verdict::of_suites(&suites)).max(own_verdicts(&reports));
    let is_whole = |report: &RunReport| {
        report.verdict != Verdict::Error && report.suites.iter().all(SuiteReport::is_whole)
    };
    let all_whole = reports.iter().all(|(_, report)| is_whole(report));
    let waivers = waivers(&reports, narrowed || incomplete || !all_whole);
    let of_waivers =
        waivers.iter().filter(|_| !narrowed && !incomplete).filter_map(|waiver| waiver.fixed.as_ref());
    let verdict = of_waivers.map(|fixed| fixed.level.verdict()).fold(verdict, Verdict::max);
    let report = RunReport {
        verdict,
        exit_code: verdict.exit_code(reports.iter().any(|(_, report)| report.exit_code == 1)),
        session: session.to_owned(),
        started: reports.iter().map(|(_, report)| report.started.clone()).min().unwrap_or_default(),
        duration_s: reports.iter().map(|(_, report)| report.duration_s).fold(0.0, f64::max),
        agent_cost: agent_cost(reports.iter().map(|(_, report)| &report.agent_cost)),
        suites,
        waivers,
        errors,
        followed: followed(reports.iter().filter_map(|(_, report)| report.followed.as_ref())),
        shards: last.iter().map(|shard| told(shard, earlier.get(&shard.partition.part))).collect(),
        ..(*first).clone()
    };
    Some(Merged { report, incomplete })
}

/// Is it an earlier attempt at the same shard, and not left over from another run?
fn is_attempt(earlier: &ShardReport, counts: &ShardReport) -> bool {
    let pipeline = |shard: &ShardReport| {
        let origin = shard.report.as_ref().and_then(|report| report.origin.as_ref());
        origin.and_then(|origin| origin.ci.as_ref()).map(|ci| ci.pipeline.clone())
    };
    let told = earlier.report.is_some() && counts.report.is_some();
    earlier.partition.commit == counts.partition.commit && (!told || pipeline(earlier) == pipeline(counts))
}

/// The entry of a shard in the report.
fn told(shard: &ShardReport, earlier: Option<&Vec<&ShardReport>>) -> Shard {
    let (units, of_units) = shard.partition.counts();
    let earlier = earlier.map_or(&[][..], Vec::as_slice);
    let verdicts = |it: &ShardReport| -> BTreeMap<(String, String), Verdict> {
        let suites = it.report.iter().flat_map(|report| &report.suites);
        let tests = suites.flat_map(|suite| suite.tests.iter().map(move |test| (suite, test)));
        tests.map(|(suite, test)| ((suite.name.clone(), test.id.clone()), test.verdict)).collect()
    };
    let now = verdicts(shard);
    let differs = |it: &&ShardReport| -> Vec<String> {
        let before = verdicts(it);
        let other =
            before.into_iter().filter(|(test, verdict)| now.get(test).is_some_and(|now| now != verdict));
        other.map(|((suite, test), _)| format!("{suite}::{test}")).collect()
    };
    let disagree: BTreeSet<String> = earlier.iter().flat_map(differs).collect();
    Shard {
        part: shard.partition.part,
        session: shard.session.clone(),
        started: shard.report.as_ref().map_or_else(|| shard.started.clone(), |report| report.started.clone()),
        duration_s: shard.report.as_ref().map_or(0.0, |report| report.duration_s),
        verdict: shard.report.as_ref().map_or(Verdict::Error, |report| report.verdict),
        units,
        of_units,
        replaces: earlier.iter().map(|it| it.session.clone()).collect(),
        disagree: disagree.into_iter().collect(),
    }
}

/// The worst verdict of a shard itself: its errors, or a command that failed. A shard without units or without judged
/// tests does not count.
fn own_verdicts(reports: &[(&ShardReport, &RunReport)]) -> Verdict {
    let counts = |report: &&RunReport| report.verdict != Verdict::NotJudged || report.exit_code == 1;
    let all = reports.iter().map(|(_, report)| *report);
    Verdict::worst(all.filter(counts).map(|report| report.verdict)).unwrap_or(Verdict::Pass)
}

/// Joins suites of the same name, in the order in which one run has them.
fn suites(reports: &[(&ShardReport, &RunReport)]) -> Vec<SuiteReport> {
    let mut names = Vec::<&str>::new();
    for (_, report) in reports {
        let mut at = 0;
        for suite in &report.suites {
            match names.iter().position(|name| *name == suite.name) {
                Some(known) => at = known + 1,
                None => {
                    names.insert(at, &suite.name);
                    at += 1;
                }
            }
        }
    }
    let ranks = Ranks::of(reports);
    let of_name = |name: &str| {
        let its = reports.iter().filter_map(|(shard, report)| {
            Some((*shard, report.suites.iter().find(|suite| suite.name == name)?))
        });
        suite(&its.collect::<Vec<_>>(), &ranks)
    };
    names.into_iter().filter_map(of_name).collect()
}

fn suite(its: &[(&ShardReport, &SuiteReport)], ranks: &Ranks<'_>) -> Option<SuiteReport> {
    // A shard without tests of the suite says nothing about it.
    let says = |suite: &SuiteReport| !suite.tests.is_empty() || suite.verdict > Verdict::NotJudged;
    let told: Vec<&(&ShardReport, &SuiteReport)> = its.iter().filter(|(_, suite)| says(suite)).collect();
    let told = if told.is_empty() { its.iter().collect() } else { told };
    let (_, first) = told.first()?;
    let all = || told.iter().map(|(_, suite)| *suite);
    let mut reasons = Vec::<String>::new();
    for (shard, suite) in told.iter().filter(|(_, suite)| !suite.reason.is_empty()) {
        reasons.push(format!("shard {}: {}", shard.partition.part, suite.reason));
    }
    let mut metrics = BTreeMap::new();
    for (metric, value) in all().flat_map(|suite| &suite.metrics) {
        let largest = metrics.entry(*metric).or_insert_with(|| value.clone());
        if value.value > largest.value {
            *largest = value.clone();
        }
    }
    let executions = || all().filter_map(|suite| suite.screen_executions);
    Some(SuiteReport {
        verdict: all().map(|suite| suite.verdict).max().unwrap_or(Verdict::Error),
        own_verdict: all().map(|suite| suite.own_verdict()).max(),
        screened_s: all().map(|suite| suite.screened_s).sum(),
        screen_executions: executions().reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))),
        native_sampling: all().filter_map(|suite| suite.native_sampling).max(),
        stacks_of_suspects: all().any(|suite| suite.stacks_of_suspects),
        selects_itself: all().any(|suite| suite.selects_itself),
        screen_cost: screen_cost(all()),
        app_memory: all()
            .filter_map(|suite| suite.app_memory.as_ref())
            .max_by_key(|memory| memory.bytes.get("total_pss"))
            .cloned(),
        hunt: all().filter_map(|suite| suite.hunt.clone()).reduce(hunted),
        reason: reasons.join("; "),
        metrics,
        curve: Vec::new(),
        test_ends: Vec::new(),
        shards: told
            .iter()
            .map(|(shard, suite)| SuiteShard {
                part: shard.partition.part,
                screened_s: suite.screened_s,
                metrics: suite.metrics.clone(),
                curve: suite.curve.clone(),
                test_ends: suite.test_ends.clone(),
            })
            .collect(),
        tests: tests(&told, ranks),
        ..(*first).clone()
    })
}

fn screen_cost<'a>(suites: impl Iterator<Item = &'a SuiteReport>) -> Option<memgate_model::ScreenCost> {
    let mut cost =
        suites.filter_map(|suite| suite.screen_cost.clone()).reduce(|a, b| memgate_model::ScreenCost {
            alone_s: a.alone_s + b.alone_s,
            screened_s: a.screened_s + b.screened_s,
            ratio: 0.0,
        })?;
    cost.ratio = if cost.alone_s > 0.0 { cost.screened_s / cost.alone_s } else { 1.0 };
    Some(cost)
}

fn hunted(a: Hunt, b: Hunt) -> Hunt {
    Hunt {
        classes: a.classes,
        of: a.of.saturating_add(b.of),
        repeated: a.repeated.saturating_add(b.repeated),
        grew: a.grew.saturating_add(b.grew),
        executions: (a.executions.0.min(b.executions.0), a.executions.1.max(b.executions.1)),
        one_in: a.one_in.min(b.one_in),
        not_reached: a.not_reached.saturating_add(b.not_reached),
        failing: a.failing.saturating_add(b.failing),
        failures: [a.failures, b.failures].concat(),
        // Reported only if nothing was repeated in any shard.
        not_hunted: a.not_hunted.filter(|_| b.not_hunted.is_some()),
    }
}

/// Positions of units in the inventory.
struct Ranks<'a>(BTreeMap<&'a str, usize>);

impl<'a> Ranks<'a> {
    fn of(reports: &[(&'a ShardReport, &'a RunReport)]) -> Self {
        let mut ranks = BTreeMap::new();
        for unit in
            reports.iter().flat_map(|(shard, _)| &shard.partition.suites).flat_map(|suite| &suite.units)
        {
            let next = ranks.len();
            ranks.entry(unit.as_str()).or_insert(next);
        }
        Self(ranks)
    }

    fn rank(&self, test: &str) -> Option<usize> {
        self.0.get(test).or_else(|| self.0.get(class_of(test)?)).copied()
    }
}

/// Tests of all shards, in the order of the inventory. A test that ran in several shards (for example a fixture) is
/// listed once, with its worst result.
fn tests(its: &[&(&ShardReport, &SuiteReport)], ranks: &Ranks<'_>) -> Vec<TestReport> {
    let telling = telling(its);
    let mut places = BTreeMap::<&str, usize>::new();
    let mut tests = Vec::<(usize, TestReport)>::new();
    for (shard, suite) in its {
        let mut rank = 0;
        for test in &suite.tests {
            rank = ranks.rank(&test.id).unwrap_or(rank);
            let mut told = test.clone();
            told.one_time.retain(|leak| {
                telling.get(leak.id.as_str()).is_none_or(|part| *part == shard.partition.part)
            });
            if let Some(place) = places.get(test.id.as_str()) {
                let (known_rank, known) = &mut tests[*place];
                *known_rank = rank.max(*known_rank);
                join(known, told);
            } else {
                places.insert(&test.id, tests.len());
                tests.push((rank, told));
            }
        }
    }
    // Something that is no unit, for example a fixture, comes after the last of its neighbours.
    tests.sort_by_key(|(rank, test)| (*rank, ranks.rank(&test.id).is_none()));
    tests.into_iter().map(|(_, test)| test).collect()
}

/// Gives `known` the worse result of both, and the leaks of both.
fn join(known: &mut TestReport, mut other: TestReport) {
    if badness(&other) > badness(known) {
        std::mem::swap(known, &mut other);
    }
    if severity(other.outcome) > severity(known.outcome) {
        known.outcome = other.outcome;
    }
    for (known, more) in [(&mut known.leaks, other.leaks), (&mut known.one_time, other.one_time)] {
        for leak in more {
            if !known.iter().any(|it| it.id == leak.id) {
                known.push(leak);
            }
        }
    }
}

const fn severity(outcome: Outcome) -> u32 {
    match outcome {
        Outcome::Skipped => 0,
        Outcome::Passed => 1,
        Outcome::Failed => 2,
        Outcome::TimedOut => 3,
        Outcome::Crashed => 4,
    }
}

fn badness(test: &TestReport) -> (Verdict, bool, u64) {
    let bytes: f64 = test.leaks.iter().map(|leak| leak.bytes_per_iteration).sum();
    // Non-negative floats sort like their bits.
    (test.verdict, test.confirmed, bytes.max(0.0).to_bits())
}

/// The shard that reports a one-time allocation, by the id of the leak. If a library initialises once in each shard, it
/// is the shard with the most bytes. If each test has a process of its own, all tests report it, as on one machine.
fn telling<'a>(its: &[&(&'a ShardReport, &'a SuiteReport)]) -> BTreeMap<&'a str, Part> {
    let mut told = BTreeMap::<&str, BTreeMap<Part, (u32, f64)>>::new();
    for (shard, suite) in its {
        for leak in suite.tests.iter().flat_map(|test| &test.one_time) {
            let (tests, bytes) = told.entry(&leak.id).or_default().entry(shard.partition.part).or_default();
            *tests += 1;
            *bytes += leak.bytes_per_iteration;
        }
    }
    let most = |shards: BTreeMap<Part, (u32, f64)>| {
        let once = shards.values().all(|(tests, _)| *tests == 1);
        let most = shards
            .into_iter()
            .max_by(|(a, (_, a_bytes)), (b, (_, b_bytes))| a_bytes.total_cmp(b_bytes).then(b.cmp(a)));
        most.map(|(part, _)| part).filter(|_| once)
    };
    told.into_iter().filter_map(|(id, shards)| Some((id, most(shards)?))).collect()
}

/// A waiver is unused only if no shard used it, all tests ran and all were measured.
fn waivers(reports: &[(&ShardReport, &RunReport)], partial: bool) -> Vec<WaiverReport> {
    let mut waivers = Vec::<WaiverReport>::new();
    for waiver in reports.iter().flat_map(|(_, report)| &report.waivers) {
        let same = |known: &&mut WaiverReport| {
            (&known.matches, &known.reason, &known.until) == (&waiver.matches, &waiver.reason, &waiver.until)
        };
        match waivers.iter_mut().find(same) {
            Some(known) => known.used = known.used.saturating_add(waiver.used),
            None => waivers.push(waiver.clone()),
        }
    }
    for waiver in &mut waivers {
        if waiver.used > 0 {
            waiver.fixed = None;
        }
        if waiver.state != WaiverState::Expired {
            let needed = waiver.used > 0 || partial;
            waiver.state = if needed { WaiverState::InForce } else { WaiverState::Unused };
        }
    }
    waivers
}

/// The ratio is computed from the total CPU time. Memory is that of the largest process.
fn agent_cost<'a>(costs: impl Iterator<Item = &'a AgentCost>) -> AgentCost {
    let mut sum = AgentCost::default();
    let mut without_s = 0.0;
    for cost in costs {
        sum.cpu_s += cost.cpu_s;
        without_s +=
            cost.cpu_ratio.filter(|ratio| *ratio > 0.0).map_or(cost.cpu_s, |ratio| cost.cpu_s / ratio);
        sum.peak_bytes = sum.peak_bytes.max(cost.peak_bytes);
        sum.boundary_s += cost.boundary_s;
        sum.truncated_stacks = sum.truncated_stacks.saturating_add(cost.truncated_stacks);
        sum.repeated_s += cost.repeated_s;
    }
    sum.cpu_ratio = Some(sum.cpu_s / without_s).filter(|ratio| without_s > 0.0 && ratio.is_finite());
    sum
}

fn followed<'a>(all: impl Iterator<Item = &'a Followed>) -> Option<Followed> {
    all.cloned().reduce(|mut sum, more| {
        for site in more.sites {
            match sum.sites.iter_mut().find(|known| known.class == site.class && known.frames == site.frames)
            {
                Some(known) => {
                    known.allocations = known.allocations.saturating_add(site.allocations);
                    known.bytes = known.bytes.saturating_add(site.bytes);
                    known.live = known.live.saturating_add(site.live);
                    known.live_bytes = known.live_bytes.saturating_add(site.live_bytes);
                    for (known, more) in known.lifetimes.iter_mut().zip(site.lifetimes) {
                        *known = known.saturating_add(more);
                    }
                }
                None => sum.sites.push(site),
            }
        }
        sum.sites.sort_by_key(|site| std::cmp::Reverse((site.live_bytes, site.bytes)));
        for blamed in more.blame {
            match sum.blame.iter_mut().find(|known| known.class == blamed.class) {
                Some(known) => {
                    known.allocations = known.allocations.saturating_add(blamed.allocations);
                    known.bytes = known.bytes.saturating_add(blamed.bytes);
                    known.live = known.live.saturating_add(blamed.live);
                    known.live_bytes = known.live_bytes.saturating_add(blamed.live_bytes);
                }
                None => sum.blame.push(blamed),
            }
        }
        sum.blame.sort_by_key(|blamed| std::cmp::Reverse(blamed.live_bytes));
        sum.all.allocations = sum.all.allocations.saturating_add(more.all.allocations);
        sum.all.bytes = sum.all.bytes.saturating_add(more.all.bytes);
        sum.all.live = sum.all.live.saturating_add(more.all.live);
        sum.all.live_bytes = sum.all.live_bytes.saturating_add(more.all.live_bytes);
        sum.left_out = sum.left_out.saturating_add(more.left_out);
        sum.lost = sum.lost.saturating_add(more.lost);
        sum.pauses = sum.pauses.saturating_add(more.pauses);
        sum
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{PARTITION_VERSION, Partition, SuiteUnits, UnitKind};
    use super::*;

    fn test(id: &str, verdict: &str, one_time: &[(&str, f64)]) -> Value {
        let leak = |(id, bytes): &(&str, f64)| json!({ "id": id, "kind": "native", "title": "t", "bytes_per_iteration": bytes, "count_per_iteration": 1.0 });
        let one_time: Vec<Value> = one_time.iter().map(leak).collect();
        json!({
            "id": id, "outcome": "passed", "verdict": verdict, "reason": "", "duration_s": 0.1, "confirmed": false,
            "metrics": {}, "leaks": [], "one_time": one_time, "curve": [],
        })
    }

    fn suite(name: &str, verdict: &str, tests: &[Value]) -> Value {
        json!({
            "name": name, "runner": "gtest", "boundary": "exact", "verdict": verdict, "screened_s": 1.0, "reason": "",
            "metrics": { "os.rss": {
                "value": tests.len(), "unit": "bytes", "per": "suite", "low": 0.0, "high": 9.0, "iterations": 1,
                "confidence": 0.0, "threshold": null,
            } }, "tests": tests,
        })
    }

    fn report(verdict: &str, exit_code: i32, suites: &[Value]) -> Value {
        json!({
            "schema_version": 1, "verdict": verdict, "exit_code": exit_code, "project": "tiles", "session": "s",
            "started": "2026-11-27T10:00:00+00:00", "duration_s": 1.5,
            "agent_cost": { "cpu_ratio": 2.0, "cpu_s": 4.0, "peak_bytes": 7, "boundary_s": 0.5, "truncated_stacks": 1 },
            "suites": suites, "waivers": [], "errors": [],
        })
    }

    fn units(suite: &str, units: &[&str], own: &[&str]) -> SuiteUnits {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        SuiteUnits {
            suite: suite.to_owned(),
            kind: UnitKind::Test,
            units: names(units),
            own: names(own),
            measured: [(suite.to_owned(), "t".to_owned())].into(),
        }
    }

    fn shard((index, of): (u32, u32), suites: Vec<SuiteUnits>, report: Value) -> ShardReport {
        ShardReport {
            partition: Partition {
                version: PARTITION_VERSION,
                memgate: "1".into(),
                part: Part::new(index, of).unwrap(),
                commit: "abc".into(),
                dirty: false,
                config: String::new(),
                options: String::new(),
                baseline: String::new(),
                timings: String::new(),
                narrowed: false,
                suites,
            },
            report: Some(serde_json::from_value(report).unwrap()),
            session: format!("s{index}"),
            started: format!("2026-11-27T10:00:0{index}Z"),
        }
    }

    fn two(first: Value, second: Value) -> Vec<ShardReport> {
        let all = ["A.a", "A.b", "B.c", "B.DISABLED_d"];
        vec![
            shard((1, 2), vec![units("engine", &all, &["A.a"])], first),
            shard((2, 2), vec![units("engine", &all, &["A.b", "B.c", "B.DISABLED_d"])], second),
        ]
    }

    /// What belongs to the first shard, and to the second.
    fn own(verdicts: [&str; 2]) -> [Value; 2] {
        let tests = |verdict, ids: &[&str]| ids.iter().map(|id| test(id, verdict, &[])).collect::<Vec<_>>();
        [(verdicts[0], &["A.a"][..]), (verdicts[1], &["A.b", "B.c"])]
            .map(|(verdict, ids)| suite("engine", verdict, &tests(verdict, ids)))
    }

    fn both(codes: [i32; 2], verdicts: [&str; 2]) -> Vec<ShardReport> {
        let [first, second] = own(verdicts);
        two(report(verdicts[0], codes[0], &[first]), report(verdicts[1], codes[1], &[second]))
    }

    fn whole(shards: Vec<ShardReport>, expected: Option<u32>) -> RunReport {
        let Merged { report, incomplete } = merge(shards, expected, Vec::new(), "m").unwrap();
        assert_eq!(incomplete, report.errors.iter().any(|it| !it.r#where.contains("engine")));
        report
    }

    fn problems(report: &RunReport) -> String {
        report.errors.iter().map(|problem| format!("{}: {}\n", problem.r#where, problem.what)).collect()
    }

    #[test]
    fn tests_stand_in_the_order_of_the_inventory_and_a_fixture_is_there_once_as_bad_as_it_was() {
        let fixture = "A.SetUpTestSuite()";
        let first = suite("engine", "pass", &[test("A.a", "pass", &[]), test(fixture, "pass", &[])]);
        let second = suite(
            "engine",
            "warn",
            &[test("A.b", "pass", &[]), test(fixture, "warn", &[]), test("B.c", "pass", &[])],
        );
        let report = whole(two(report("pass", 0, &[first]), report("warn", 0, &[second])), Some(2));
        let tests: Vec<_> =
            report.suites[0].tests.iter().map(|test| (test.id.as_str(), test.verdict)).collect();
        let (pass, warn) = (Verdict::Pass, Verdict::Warn);
        assert_eq!(tests, [("A.a", pass), ("A.b", pass), (fixture, warn), ("B.c", pass)]);
        assert_eq!((report.verdict, report.exit_code, problems(&report)), (warn, 0, String::new()));
        assert_eq!(
            report.suites[0].metrics.values().map(|value| value.value).collect::<Vec<_>>(),
            [3.0],
            "no sum"
        );
        assert_eq!(report.suites[0].shards.len(), 2);
    }

    #[test]
    fn a_test_that_ran_twice_is_as_bad_as_both_and_has_the_leaks_of_both() {
        let twice = |verdict, outcome: &str, leak: &str| {
            let mut test = test("C.twice", verdict, &[]);
            test["outcome"] = json!(outcome);
            test["leaks"] = json!([{
                "id": leak, "kind": "native", "title": "t", "bytes_per_iteration": 1.0, "count_per_iteration": 1.0,
            }]);
            test
        };
        let [mut first, mut second] = own(["warn", "not_judged"]);
        first["tests"].as_array_mut().unwrap().push(twice("warn", "passed", "n1-a"));
        second["tests"].as_array_mut().unwrap().push(twice("not_judged", "failed", "n1-b"));
        let report = whole(two(report("warn", 0, &[first]), report("not_judged", 1, &[second])), None);
        let test = report.suites[0].tests.iter().find(|test| test.id == "C.twice").unwrap();
        assert_eq!((test.verdict, test.outcome, test.leaks.len()), (Verdict::Warn, Outcome::Failed, 2));
    }

    #[test]
    fn what_every_process_allocates_once_is_told_once() {
        let second = |b: &[(&str, f64)], c: &[(&str, f64)]| {
            suite("engine", "pass", &[test("A.b", "pass", b), test("B.c", "pass", c)])
        };
        let told = |second: Value| -> Vec<usize> {
            let first = suite("engine", "pass", &[test("A.a", "pass", &[("n1-a", 8.0), ("n1-b", 8.0)])]);
            let report = whole(two(report("pass", 0, &[first]), report("pass", 0, &[second])), None);
            report.suites[0].tests.iter().map(|test| test.one_time.len()).collect()
        };
        assert_eq!(told(second(&[("n1-a", 9.0)], &[])), [1, 1, 0], "the second shard has more of a");
        assert_eq!(told(second(&[("n1-a", 7.0)], &[])), [2, 0, 0]);
        assert_eq!(
            told(second(&[("n1-a", 7.0)], &[("n1-a", 7.0)])),
            [2, 1, 1],
            "each test has a process of its own"
        );
        let fixture = |bytes| test("A.SetUpTestSuite()", "pass", &[("n1-c", bytes)]);
        for (first, second) in [(5.0, 5.0), (4.0, 5.0), (5.0, 4.0)] {
            let [mut a, mut b] = own(["pass", "pass"]);
            a["tests"].as_array_mut().unwrap().push(fixture(first));
            b["tests"].as_array_mut().unwrap().push(fixture(second));
            let report = whole(two(report("pass", 0, &[a]), report("pass", 0, &[b])), None);
            let told: Vec<_> = report.suites[0].tests.iter().flat_map(|test| &test.one_time).collect();
            assert_eq!(told.iter().map(|leak| leak.bytes_per_iteration).collect::<Vec<_>>(), [5.0]);
        }
    }

    #[test]
    fn costs_and_suites_of_one_shard_alone_are_kept() {
        let [first, second] = own(["pass", "pass"]);
        let first = report("pass", 0, &[first, suite("z", "pass", &[])]);
        let mut second = report("pass", 0, &[suite("a", "pass", &[]), second]);
        second["agent_cost"] = json!({ "cpu_ratio": 1.0, "cpu_s": 12.0, "peak_bytes": 9, "boundary_s": 0.5, "truncated_stacks": 1 });
        let report = whole(two(first, second), None);
        let names: Vec<_> = report.suites.iter().map(|suite| suite.name.as_str()).collect();
        assert_eq!(names, ["a", "engine", "z"]);
        let cost = &report.agent_cost;
        assert_eq!((cost.cpu_ratio, cost.peak_bytes, cost.truncated_stacks), (Some(16.0 / 14.0), 9, 2));
    }

    #[test]
    fn the_verdict_is_that_of_one_machine() {
        for (verdicts, codes, want) in [
            (["pass", "pass"], [0, 0], (Verdict::Pass, 0)),
            (["pass", "not_judged"], [0, 0], (Verdict::NotJudged, 0)),
            (["pass", "pass"], [1, 0], (Verdict::Pass, 1)),
            (["error", "pass"], [2, 0], (Verdict::Error, 2)),
            (["error", "fail"], [2, 1], (Verdict::Fail, 1)),
        ] {
            let report = whole(both(codes, verdicts), None);
            assert_eq!((report.verdict, report.exit_code), want, "{verdicts:?}");
        }
        // A command that failed although no test did: an error entry that is not about the shards.
        let [first, second] = own(["pass", "pass"]);
        let mut failed = report("not_judged", 1, &[second]);
        failed["errors"] = json!([{ "where": "engine", "what": "it ended with status 1", "hint": "" }]);
        let report_ = whole(two(report("pass", 0, &[first]), failed), None);
        assert_eq!((report_.verdict, report_.exit_code), (Verdict::NotJudged, 1));
        assert_eq!(problems(&report_), "shard 2/2, engine: it ended with status 1\n");
        // An error of a shard that could not measure its suite at all is not lost.
        let mut shards = both([0, 0], ["pass", "pass"]);
        let mut blind = suite("engine", "error", &[]);
        blind["reason"] = json!("not measured: no agent");
        shards[1].report = serde_json::from_value(report("error", 2, &[blind])).unwrap();
        let report = merge(shards, None, Vec::new(), "m").unwrap().report;
        assert_eq!((report.suites[0].verdict, report.exit_code), (Verdict::Error, 2));
        assert_eq!(report.suites[0].reason, "shard 2/2: not measured: no agent");
    }

    #[test]
    fn the_last_attempt_counts_and_the_earlier_ones_are_told() {
        let mut shards = both([0, 0], ["warn", "pass"]);
        let mut again = both([0, 0], ["pass", "pass"]).remove(0);
        (again.session, again.started) = ("later".into(), "2026-11-27T11:00:00Z".into());
        shards.insert(0, again);
        shards.push(shards[1].clone());
        let report = whole(shards, Some(2));
        assert_eq!((report.verdict, problems(&report)), (Verdict::Pass, String::new()));
        let first = &report.shards[0];
        assert_eq!(first.session, "later");
        assert_eq!(
            (&first.replaces[..], &first.disagree[..]),
            (&["s1".to_owned()][..], &["engine::A.a".to_owned()][..])
        );
    }

    #[test]
    fn what_does_not_make_up_a_whole_is_an_error() {
        let of = |change: fn(&mut Vec<ShardReport>), expected| {
            let mut shards = both([0, 0], ["pass", "pass"]);
            change(&mut shards);
            let merged = merge(shards, expected, Vec::new(), "m").unwrap();
            assert_eq!((merged.report.verdict, merged.report.exit_code), (Verdict::Error, 2));
            assert!(merged.incomplete);
            problems(&merged.report)
        };
        fn suites(shard: &mut ShardReport) -> &mut Vec<SuiteReport> {
            &mut shard.report.as_mut().unwrap().suites
        }
        type Change = fn(&mut Vec<ShardReport>);
        let cases: [(Change, Option<u32>, &str); 15] = [
            (|it| drop(it.pop()), None, "shards: shard 2/2 is missing"),
            (|_| (), Some(5), "shards: shards 3/5, 4/5, 5/5 are missing"),
            (|it| it[1].report = None, None, "shard 2/2: it ended before it had a report"),
            (
                |it| it[1].partition.commit = "def".into(),
                None,
                "shard 2/2: another commit than shard 1/2: def, there abc",
            ),
            (
                |it| it[1].partition.options = "x".into(),
                None,
                "another set of options than shard 1/2: x, there none",
            ),
            (|it| it[1].partition.narrowed = true, None, "another selection of tests"),
            (
                |it| drop(it[1].partition.suites[0].units.pop()),
                None,
                "it does not have B.DISABLED_d of engine",
            ),
            (
                |it| drop(it[1].partition.suites[0].own.remove(1)),
                None,
                "engine::B.c belong to none of these shards",
            ),
            (
                |it| it[1].partition.suites[0].own.push("A.a".into()),
                None,
                "engine::A.a belong to several shards",
            ),
            (
                |it| it.iter_mut().for_each(|it| it.partition.suites.clear()),
                None,
                "there is no test in any of them",
            ),
            (
                |it| drop(suites(&mut it[1])[0].tests.pop()),
                None,
                "B.c of engine fell to this shard and did not run",
            ),
            (|it| suites(&mut it[1]).clear(), None, "A.b, B.c of engine fell to this shard and did not run"),
            (
                |it| {
                    let foreign = suites(&mut it[1])[0].tests[0].clone();
                    suites(&mut it[0])[0].tests.push(foreign);
                },
                None,
                "shard 1/2: A.b of engine ran here, and fell to another shard",
            ),
            (
                |it| it.iter_mut().for_each(|it| it.partition.suites[0].measured.clear()),
                None,
                "no shard measured anything of engine",
            ),
            (
                |it| {
                    let none = |it: &mut ShardReport| it.partition.suites.push(units("other", &[], &[]));
                    it.iter_mut().for_each(none);
                    it.iter_mut().for_each(|it| it.partition.narrowed = true);
                    it.iter_mut().for_each(|it| it.partition.suites[1].measured.clear());
                },
                None,
                "no shard measured anything of other",
            ),
        ];
        let named = |it: &mut ShardReport, what: &str| {
            it.partition.suites[0].measured.insert("t".to_owned(), what.to_owned());
        };
        let mut alike = both([0, 0], ["pass", "pass"]);
        named(&mut alike[0], "a/t");
        named(&mut alike[1], "b/t");
        let told = problems(&merge(alike, None, Vec::new(), "m").unwrap().report);
        assert!(told.contains("shard 2/2: its suite t is b/t, that of shard 1/2 is a/t"), "{told}");
        for (change, expected, told) in cases {
            let problems = of(change, expected);
            assert!(problems.contains(told), "{told}:\n{problems}");
        }
        assert!(merge(Vec::new(), None, Vec::new(), "m").is_none());
        let broken =
            Problem { r#where: "x".into(), what: "there is no shard in it".into(), hint: String::new() };
        let merged = merge(both([0, 0], ["pass", "pass"]), None, vec![broken], "m").unwrap();
        assert!(merged.incomplete && merged.report.exit_code == 2);
    }

    #[test]
    fn a_waiver_is_unused_only_where_no_shard_used_it_and_all_of_them_ran() {
        let with = |used: [u32; 2]| {
            let mut shards = both([0, 0], ["pass", "pass"]);
            for (shard, used) in shards.iter_mut().zip(used) {
                let waiver = json!({
                    "matches": "leak n1-a", "state": "in_force", "reason": "r", "owner": null, "until": "never", "used": used,
                });
                shard.report.as_mut().unwrap().waivers = vec![serde_json::from_value(waiver).unwrap()];
            }
            shards
        };
        let of = |shards| whole(shards, Some(2)).waivers.remove(0);
        assert_eq!((of(with([0, 2])).state, of(with([0, 2])).used), (WaiverState::InForce, 2));
        assert_eq!(of(with([0, 0])).state, WaiverState::Unused);
        let mut missing = with([0, 0]);
        missing.pop();
        assert_eq!(of(missing).state, WaiverState::InForce);
    }
}
