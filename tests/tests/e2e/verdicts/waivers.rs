//! A leak is accepted for a time and with a reason; today's figures become a baseline.

use memgate_e2e::{Project, Run, samples};
use memgate_model::{Verdict, WaiverState};

use crate::{clean_session, leaks_session};

const TEST: &str = "Leaks.Strdup";

fn leak() -> String {
    leaks_session().1.test(TEST).leaks[0].id.clone()
}

fn run(project: &Project) -> Run {
    project.run_filtered(TEST, &samples::suite("leaks"))
}

#[test]
fn a_waived_leak_passes_until_its_day_and_fails_again_after_it() {
    let project = Project::new("waived");
    let id = leak();
    let waive =
        ["waive", &id, "--reason", "upstream issue 1234", "--until", "2099-01-01", "--owner", "@maps"];
    project.memgate(&waive).ends_with(0).says(&id).says("2099-01-01");

    let run = run(&project);
    run.ends_with(0);
    let test = run.test(TEST);
    assert_eq!(test.leaks[0].waiver.as_deref(), Some("upstream issue 1234"), "{run}");
    let waivers = run.report().waivers;
    assert_eq!(waivers.len(), 1);
    assert_eq!((waivers[0].state, waivers[0].used), (WaiverState::InForce, 1));
    assert_eq!(waivers[0].owner.as_deref(), Some("@maps"));
    run.says("upstream issue 1234");

    // The leak is larger than its waiver: the same recording fails.
    let file = project.read("memgate-waivers.yaml");
    project.write("memgate-waivers.yaml", file.replace("reason:", "up_to: 1\n    reason:"));
    let gate = project.memgate(&["gate", ".memgate/latest"]);
    let told = gate.ends_with(1).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        told.contains("its waiver accepts up to 1 B per iteration; to accept this: memgate waive"),
        "{gate}"
    );

    // The day has come: the same recording fails.
    project.write("memgate-waivers.yaml", file.replace("2099-01-01", "2020-01-01"));
    let gate = project.memgate(&["gate", "--format", "json", ".memgate/latest"]);
    gate.ends_with(1);
    assert_eq!(gate.test(TEST).verdict, Verdict::Fail);
    assert_eq!(gate.report().waivers[0].state, WaiverState::Expired);
}

#[test]
fn a_waiver_that_matches_nothing_any_more_is_reported() {
    let project = Project::new("unused-waiver");
    let waive = ["waive", "n1-00000000000000ff", "--reason", "long gone", "--until", "never"];
    project.memgate(&waive).ends_with(0).says("no report here knows the leak n1-00000000000000ff");
    // This needs a whole suite: a partial run cannot tell.
    let session = clean_session().0.session();
    let session = session.to_str().unwrap();
    let gate = project.memgate(&["gate", session]);
    gate.ends_with(0);
    assert!(gate.stdout.contains("n1-00000000000000ff"), "{gate}");
    let gate = project.memgate(&["gate", "--format", "json", session]);
    assert_eq!(gate.report().waivers[0].state, WaiverState::Unused);
}

#[test]
fn a_frame_may_be_waived_by_a_glob() {
    let project = Project::new("waived-frame");
    project.write(
        "memgate.yaml",
        "version: 1\nwaivers:\n  - frame: \"leaks!leaks::copy_title*\"\n    reason: known\n    until: never\n",
    );
    let session = leaks_session().0.session();
    let gate = project.memgate(&["gate", "--format", "json", session.to_str().unwrap()]);
    assert_ne!(gate.test(TEST).verdict, Verdict::Fail, "{gate}");
    assert_eq!(gate.test("Leaks.LostArray").verdict, Verdict::Fail);
}

#[test]
fn a_leak_that_is_waived_already_gets_no_second_waiver() {
    let project = Project::new("waived-already");
    let waiver = "version: 1\nwaivers:\n  - leak: n1-00000000000000ff\n    reason: known\n    until: never\n";
    project.write("memgate.yaml", waiver);
    let waive = ["waive", "n1-00000000000000ff", "--reason", "why not", "--until", "never"];
    project.memgate(&waive).ends_with(2).says("waived already at memgate.yaml:3");
    project
        .memgate(&["waive", "n1-00000000000000aa", "--reason", "why not", "--until", "never"])
        .ends_with(0);
    let waivers = project.read("memgate-waivers.yaml");
    assert!(!waivers.contains("n1-00000000000000ff"), "{waivers}");
}

#[test]
fn waiving_needs_an_id_and_a_day() {
    let project = Project::new("bad-waiver");
    for (id, day) in
        [("48 KiB", "2099-01-01"), ("n1-00000000000000ff", "soon"), ("n1-00000000000000ff", "2020-01-01")]
    {
        let run = project.memgate(&["waive", id, "--reason", "why not", "--until", day]);
        run.ends_with(2);
        assert!(!project.folder().join("memgate-waivers.yaml").exists(), "{run}");
    }
}

#[test]
fn the_figures_of_today_become_the_baseline_and_are_compared_with() {
    let project = Project::new("baseline");
    project.write(
        "memgate.yaml",
        "version: 1\nbaseline: memgate-baseline.json\nthresholds:\n  \
         native.live_bytes: { fail: +10%, against: baseline }\n",
    );
    let session = leaks_session().0.session();
    let session = session.to_str().unwrap();
    project.memgate(&["baseline", "accept", session]).ends_with(0).says("memgate-baseline.json");
    assert!(project.read("memgate-baseline.json").contains(TEST));
    let gate = project.memgate(&["gate", "--format", "json", session]);
    assert_eq!(gate.test(TEST).verdict, Verdict::Pass, "as much as the baseline:\n{gate}");
}

#[test]
fn two_runs_compared_name_the_leak_that_is_gone_and_the_tests_of_one_run_alone() {
    let (project, all) = leaks_session();
    let session = project.session();
    let one = Project::new("compared");
    run(&one).ends_with(1);
    let (all_report, one_report) = (session.join("report.json"), one.session().join("report.json"));
    let compared = one.memgate(&["compare".as_ref(), all_report.as_os_str(), one_report.as_os_str()]);
    let others = all.suite().tests.len() - 1;
    let alone = format!("more tests: judged in {} alone", all.report().session);
    for text in ["same 1", "1 test judged in both", &alone] {
        assert!(compared.ends_with(0).stdout.contains(text), "{text}: {compared}");
    }
    let json =
        one.memgate(&["compare".as_ref(), one_report.as_os_str(), all_report.as_os_str(), "--json".as_ref()]);
    let told: serde_json::Value = serde_json::from_str(&json.ends_with(0).stdout).unwrap();
    assert_eq!(told["only_after"].as_array().unwrap().len(), others, "{json}");
    one.memgate(&["compare", "nowhere"]).ends_with(2).says("nowhere");
}
