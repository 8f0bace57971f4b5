//! Two hundred commits of a project, uploaded in orders other than the commit order. The reported state of each leak
//! matches the script, in any order.

use std::collections::BTreeMap;

use memgate_model::Commit;

use super::*;
use crate::store::tests::{manifest, report, told};

const COMMITS: usize = 200;
/// Test by name with its leaks; `None`: it failed, and was not judged.
type Tests = Vec<(&'static str, Option<Vec<&'static str>>)>;

struct Step {
    commit: usize,
    parent: Option<usize>,
    branch: &'static str,
    target: &'static str,
    /// A shard: tests missing from it prove nothing.
    partial: bool,
    /// When it ran, in minutes.
    minute: usize,
    tests: Tests,
}

fn leaks(all: &[(&'static str, bool)]) -> Option<Vec<&'static str>> {
    Some(all.iter().filter(|(_, there)| *there).map(|(leak, _)| *leak).collect())
}

fn main_line(commit: usize) -> Step {
    let a = (5..50).contains(&commit) || commit >= 120;
    let flaky = commit >= 8 && commit.is_multiple_of(2);
    let mut tests: Tests = vec![
        ("Map.scroll", leaks(&[("n1-a", a), ("n1-flaky", flaky)])),
        ("Map.clean", leaks(&[])),
        // It fails for four commits, and leaks before and after them.
        (
            "Map.draw",
            if (40..44).contains(&commit) { None } else { leaks(&[("n1-draw", (30..60).contains(&commit))]) },
        ),
        // Renamed, with its leak.
        (if commit < 100 { "Tile.all" } else { "Tile.everything" }, leaks(&[("n1-tile", commit >= 20)])),
        ("Late.test", leaks(&[("n1-late", commit == COMMITS - 1)])),
    ];
    if commit < 90 {
        tests.push(("Old.test", leaks(&[("n1-old", commit >= 3)])));
    }
    let partial = commit % 5 == 3;
    if !partial {
        tests.push(("Shard.b", leaks(&[("n1-shard", commit >= 70)])));
    }
    Step { commit, parent: commit.checked_sub(1), branch: "main", target: "", partial, minute: commit, tests }
}

fn script() -> Vec<Step> {
    let mut steps: Vec<Step> = (0..COMMITS).map(main_line).collect();
    let scroll = |leaks: &[&'static str]| -> Tests { vec![("Map.scroll", Some(leaks.to_vec()))] };
    let of = |commit: usize, parent: usize, (branch, target): (&'static str, &'static str), tests: Tests| {
        Step { commit, parent: Some(parent), branch, target, partial: false, minute: commit, tests }
    };
    // A release from commit 30, whose leak a backport fixes in its fourth commit.
    for number in 0..5 {
        let parent = if number == 0 { 30 } else { 400 + number - 1 };
        let tests = scroll(if number < 3 { &["n1-a"] } else { &[] });
        steps.push(of(400 + number, parent, ("release/1", ""), tests));
    }
    // A review with a leak of its own, and an old pipeline that somebody started again.
    steps.push(of(300, 150, ("topic", "main"), scroll(&["n1-a", "n1-review"])));
    steps.push(Step { minute: 5000, ..main_line(25) });
    steps
}

fn upload_of(steps: &[Step], parents: &BTreeMap<usize, usize>, index: usize) -> Value {
    let step = &steps[index];
    let ancestors = std::iter::successors(step.parent, |commit| parents.get(commit).copied());
    let ancestors = ancestors.map(sha).collect();
    let commit = Commit {
        sha: sha(step.commit),
        branch: step.branch.into(),
        target: step.target.into(),
        ..Commit::default()
    };
    let session = format!("s{index}");
    let mut manifest = manifest(&session, Some(commit), ancestors);
    manifest.partial = step.partial;
    json!({ "manifest": manifest, "report": report(&session, step.minute, &step.tests) })
}

async fn tells_the_truth(server: &Served, order: &[usize]) {
    let steps = script();
    let parents = steps.iter().filter_map(|step| Some((step.commit, step.parent?))).collect();
    for index in order {
        let body = upload_of(&steps, &parents, *index).to_string();
        let added = server.upload(JSON, body.as_bytes()).await;
        assert_eq!(added.status, 201, "{added:?}");
    }
    let (main, events) = told(&server.store, "main").await;
    let states: Vec<&str> = main.iter().map(|line| line.rsplit_once(' ').unwrap().0).collect();
    assert_eq!(
        states,
        [
            "n1-a Known 120..199 flaky=false",
            "n1-draw Fixed 30..59 flaky=false",
            "n1-flaky Known 8..198 flaky=true",
            "n1-late New 199..199 flaky=false",
            "n1-old Gone 3..89 flaky=false",
            "n1-shard Known 70..199 flaky=false",
            "n1-tile Known 20..199 flaky=false",
        ]
    );
    let of = |leak: &str| -> Vec<String> {
        let mut found: Vec<(usize, String)> = events
            .iter()
            .filter_map(|event| event.strip_prefix(leak)?.trim_start().rsplit_once(' '))
            .map(|(kind, commit)| (commit.parse().unwrap(), kind.to_owned()))
            .collect();
        found.sort();
        found.into_iter().map(|(commit, kind)| format!("{kind} {commit}")).collect()
    };
    for (leak, truth) in [
        ("n1-a", &["new 5", "known 6", "fixed 50", "regressed 120", "known 121"][..]),
        ("n1-draw", &["new 30", "known 31", "fixed 60"]),
        ("n1-late", &["new 199"]),
        ("n1-old", &["new 3", "known 4", "gone 90"]),
        ("n1-shard", &["new 70", "known 71"]),
        ("n1-tile", &["new 20", "known 21"]),
    ] {
        assert_eq!(of(leak), truth, "{leak}");
    }
    let (release, events) = told(&server.store, "release/1").await;
    assert_eq!(release.len(), 1, "{release:?}");
    assert!(release[0].starts_with("n1-a Fixed 400..402"), "{release:?}");
    assert!(events.iter().any(|event| event == "n1-a fixed 403"), "{events:?}");
    // The pages show the same.
    let choice = Choice { branch: "main".into(), ..Choice::default() };
    let filter = LeakFilter::default();
    let all = server.store.leaks("tiles", &choice, &filter).await.unwrap().unwrap();
    let list = crate::pages::leaks(&all, &filter);
    for leak in ["n1-a", "n1-draw", "n1-flaky", "n1-late", "n1-old", "n1-shard", "n1-tile"] {
        assert!(list.contains(leak), "{leak}: {list}");
    }
    assert!(!list.contains("n1-review"), "a review changes no line");
    let leak = server.store.leak("tiles", &choice, "n1-a").await.unwrap().unwrap();
    let page = crate::pages::leak(&leak);
    assert!(page.contains("regressed") && page.contains(&sha(120)), "{page}");
}

/// A mixed order with each step once.
fn mixed() -> Vec<usize> {
    let count = script().len();
    let step = 79;
    assert!(!count.is_multiple_of(step), "each index once");
    (0..count).map(|at| at * step % count).collect()
}

#[test]
fn two_hundred_commits_that_are_uploaded_as_they_came_tell_the_truth() {
    let order: Vec<usize> = (0..script().len()).collect();
    served(Limits::default(), true, async |server| tells_the_truth(&server, &order).await);
}

#[test]
fn two_hundred_commits_that_are_uploaded_in_any_order_tell_the_truth() {
    served(Limits::default(), true, async |server| tells_the_truth(&server, &mixed()).await);
}

#[test]
fn two_hundred_commits_that_are_uploaded_in_any_order_tell_the_truth_in_postgresql() {
    let Some(postgres) = Postgres::start() else { return };
    let open = async || postgres.database("story").await;
    served_from(open, Limits::default(), true, async |server| tells_the_truth(&server, &mixed()).await);
}
