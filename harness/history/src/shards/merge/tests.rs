use memgate_model::{Outcome, WaiverState};
use serde_json::{Value, json};

use super::super::{DESCRIPTION_VERSION, ShardDescription, SuiteUnits, UnitKind};
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
        description: ShardDescription {
            version: DESCRIPTION_VERSION,
            memgate: "1".into(),
            number: ShardNumber::new(index, of).unwrap(),
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

/// The suites of the first shard and of the second.
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
    let tests: Vec<_> = report.suites[0].tests.iter().map(|test| (test.id.as_str(), test.verdict)).collect();
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
    second["agent_cost"] =
        json!({ "cpu_ratio": 1.0, "cpu_s": 12.0, "peak_bytes": 9, "boundary_s": 0.5, "truncated_stacks": 1 });
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
            |it| it[1].description.commit = "def".into(),
            None,
            "shard 2/2: another commit than shard 1/2: def, there abc",
        ),
        (
            |it| it[1].description.options = "x".into(),
            None,
            "another set of options than shard 1/2: x, there none",
        ),
        (|it| it[1].description.narrowed = true, None, "another selection of tests"),
        (|it| drop(it[1].description.suites[0].units.pop()), None, "it does not have B.DISABLED_d of engine"),
        (
            |it| drop(it[1].description.suites[0].own.remove(1)),
            None,
            "engine::B.c belong to none of these shards",
        ),
        (
            |it| it[1].description.suites[0].own.push("A.a".into()),
            None,
            "engine::A.a belong to several shards",
        ),
        (
            |it| it.iter_mut().for_each(|it| it.description.suites.clear()),
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
            |it| it.iter_mut().for_each(|it| it.description.suites[0].measured.clear()),
            None,
            "no shard measured anything of engine",
        ),
        (
            |it| {
                let none = |it: &mut ShardReport| it.description.suites.push(units("other", &[], &[]));
                it.iter_mut().for_each(none);
                it.iter_mut().for_each(|it| it.description.narrowed = true);
                it.iter_mut().for_each(|it| it.description.suites[1].measured.clear());
            },
            None,
            "no shard measured anything of other",
        ),
    ];
    let named = |it: &mut ShardReport, what: &str| {
        it.description.suites[0].measured.insert("t".to_owned(), what.to_owned());
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
    let broken = Problem { r#where: "x".into(), what: "there is no shard in it".into(), hint: String::new() };
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
