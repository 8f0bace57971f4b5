//! The same tests for both databases. SQLite always runs; PostgreSQL runs if its programs are installed.

use std::path::Path;

use memgate_history::{Environment, Look, Manifest};
use memgate_model::{
    Ci, Commit, Frame, Leak, Level, Metric, MetricValue, Outcome, Per, Problem, RunReport, Runner,
    SuiteReport, TestReport, Threshold, ThresholdSource, Verdict,
};
use sqlx::Connection as _;

use super::*;
use crate::view::{LeakFilter, Order, State, What};

mod clock;
mod evidence;
mod postgres;

pub(crate) use self::postgres::Postgres;

/// A commit of the story with its leaks.
struct Step {
    sha: String,
    parent: usize,
    branch: &'static str,
    target: &'static str,
    /// Tests by name with their leaks; `None`: it failed, and was not judged.
    tests: Vec<(&'static str, Option<Vec<&'static str>>)>,
}

pub(crate) fn sha(number: usize) -> String {
    format!("{number:040x}")
}

/// The database of this name in a folder; it is created if there is none.
pub(crate) async fn sqlite(folder: &tempfile::TempDir, name: &str) -> Store {
    Store::open(&format!("sqlite:{}", folder.path().join(name).display())).await.unwrap()
}

fn in_sqlite(work: impl AsyncFnOnce(Store)) {
    let folder = tempfile::tempdir().unwrap();
    block_on(async { work(sqlite(&folder, "h.db").await).await });
}

/// A store whose connections are all in use, until they are dropped.
pub(crate) async fn busy() -> (Store, tempfile::TempDir, Vec<sqlx::pool::PoolConnection<sqlx::Any>>) {
    let folder = tempfile::tempdir().unwrap();
    let store = sqlite(&folder, "h.db").await;
    let mut connections = Vec::new();
    for _ in 0..store.pool.options().get_max_connections() {
        connections.push(store.pool.acquire().await.unwrap());
    }
    (store, folder, connections)
}

#[test]
fn a_transaction_that_sqlite_ended_leaves_no_connection_that_begins_nothing() {
    block_on(async {
        let (store, _folder, connections) = busy().await;
        drop(connections);
        let mut transaction = store.pool.begin().await.unwrap();
        sqlx::query("ROLLBACK").execute(&mut *transaction).await.unwrap();
        drop(transaction);
        let mut connections = Vec::new();
        for _ in 0..store.pool.options().get_max_connections() {
            let mut connection = store.pool.acquire().await.unwrap();
            connection.begin_with("BEGIN").await.unwrap().rollback().await.unwrap();
            connections.push(connection);
        }
    });
}

pub(crate) fn report(session: &str, number: usize, tests: &[(&str, Option<Vec<&str>>)]) -> RunReport {
    let figure = |value: f64| MetricValue {
        threshold: Some(Threshold {
            limit: 5.0,
            level: Level::Fail,
            source: ThresholdSource::File("memgate.yaml:3".into()),
        }),
        ..MetricValue::exact(value, Metric::NativeLiveBytes, Per::Iteration)
    };
    let frame = Frame {
        function: Some("tiles::load()".into()),
        file: Some("src/tiles.cc".into()),
        line: Some(7),
        module: "t".into(),
        offset: 1,
        inlined: false,
    };
    let leak = |id: &&str| Leak {
        id: (*id).to_owned(),
        title: "1 × 7 B".into(),
        bytes_per_iteration: 7.0,
        count_per_iteration: 1.0,
        frames: vec![frame.clone()],
        ..Leak::default()
    };
    let test = |(name, leaks): &(&str, Option<Vec<&str>>)| {
        let (outcome, verdict) = match leaks {
            None => (Outcome::Failed, Verdict::NotJudged),
            Some(leaks) if leaks.is_empty() => (Outcome::Passed, Verdict::Pass),
            Some(_) => (Outcome::Passed, Verdict::Fail),
        };
        let leaks = leaks.as_deref().unwrap_or_default();
        TestReport {
            outcome,
            duration_s: name.len() as f64 / 10.0,
            metrics: [(Metric::NativeLiveBytes, figure(7.0 * leaks.len() as f64))].into(),
            leaks: leaks.iter().map(leak).collect(),
            confirmed: !leaks.is_empty(),
            ..TestReport::new(name, verdict)
        }
    };
    let started = jiff::Timestamp::from_second(1_795_000_000 + i64::try_from(number).unwrap() * 60).unwrap();
    let tests = tests.iter().map(test).collect();
    let suite =
        SuiteReport { screened_s: 1.0, ..SuiteReport::new("engine", Runner::Gtest, Verdict::Pass, tests) };
    RunReport {
        started: started.to_string(),
        duration_s: 1.5,
        ..RunReport::new("tiles", session, Verdict::Pass, vec![suite])
    }
}

pub(crate) fn manifest(session: &str, commit: Option<Commit>, ancestors: Vec<String>) -> Manifest {
    Manifest {
        project: "tiles".into(),
        session: session.into(),
        commit,
        ancestors,
        ci: Some(Ci { provider: "gitlab".into(), pipeline: session.into(), ..Ci::default() }),
        environment: Environment([("architecture".to_owned(), "x86_64".to_owned())].into()),
        lines: vec!["main".into(), "release/*".into()],
        ..Manifest::default()
    }
}

pub(crate) fn of_line(branch: &str) -> Choice {
    Choice { branch: branch.into(), ..Choice::default() }
}

fn on_main(number: usize) -> Commit {
    Commit { sha: sha(number), branch: "main".into(), ..Commit::default() }
}

/// The manifest of the commit with this number, after all commits before it.
pub(crate) fn of_commit(number: usize, branch: &str) -> Manifest {
    let commit = Commit { branch: branch.into(), ..on_main(number) };
    manifest(&format!("s{number}"), Some(commit), (0..number).rev().map(sha).collect())
}

/// Commits 0 to 39 on main, a release line from 10 on, a review, and their leaks by name.
fn story() -> Vec<Step> {
    let mut steps = Vec::new();
    for number in 0..40 {
        let mut leaks = Vec::new();
        // new at 5, fixed at 20, back at 30
        if (5..20).contains(&number) || number >= 30 {
            leaks.push("n1-a");
        }
        // every second commit from 8 on
        if number >= 8 && number % 2 == 0 {
            leaks.push("n1-flaky");
        }
        // its test is removed at 25
        let old = (3..25).contains(&number);
        let mut tests = vec![("Map.scroll", Some(leaks)), ("Map.clean", Some(Vec::new()))];
        if number == 12 {
            tests[0].1 = None;
        }
        if number < 25 {
            tests.push(("Old.test", Some(if old { vec!["n1-old"] } else { Vec::new() })));
        }
        let parent = usize::from(number > 0) * (number.max(1) - 1);
        steps.push(Step { sha: sha(number), parent, branch: "main", target: "", tests });
    }
    for number in 0..3 {
        let parent = if number == 0 { 10 } else { 40 + number - 1 };
        let tests = vec![("Map.scroll", Some(vec!["n1-a"])), ("Map.clean", Some(Vec::new()))];
        steps.push(Step { sha: sha(100 + number), parent, branch: "release/1", target: "", tests });
    }
    // A review from a fork, whose branch has the name of the line.
    let tests = vec![("Map.scroll", Some(vec!["n1-a", "n1-review"])), ("Map.clean", Some(Vec::new()))];
    steps.push(Step { sha: sha(200), parent: 39, branch: "main", target: "main", tests });
    steps
}

async fn add_step(store: &Store, steps: &[Step], index: usize) -> Added {
    let step = &steps[index];
    let mut ancestors = Vec::new();
    let mut at = index;
    while at > 0 && ancestors.len() < 500 {
        at = steps[at].parent;
        ancestors.push(steps[at].sha.clone());
    }
    let commit = Commit {
        sha: step.sha.clone(),
        branch: step.branch.into(),
        target: step.target.into(),
        ..Commit::default()
    };
    let session = format!("s{index}");
    store
        .add(&manifest(&session, Some(commit), ancestors), &report(&session, index, &step.tests))
        .await
        .unwrap()
}

async fn add_story(store: &Store) -> Vec<Step> {
    let steps = story();
    for index in 0..steps.len() {
        add_step(store, &steps, index).await;
    }
    steps
}

/// State of a line: leaks with their state and commits, and events.
pub(crate) async fn told(store: &Store, branch: &str) -> (Vec<String>, Vec<String>) {
    let choice = of_line(branch);
    let leaks = store.leaks("tiles", &choice, &LeakFilter::default()).await.unwrap().unwrap().leaks;
    let number = |sha: &str| {
        usize::from_str_radix(sha, 16).map_or_else(|_| "-".to_owned(), |number| number.to_string())
    };
    let mut lines: Vec<_> = leaks
        .iter()
        .map(|leak| {
            let (first, last) = (number(&leak.first_sha), number(&leak.last_sha));
            format!("{} {:?} {first}..{last} flaky={} {}", leak.id, leak.state, leak.flaky, leak.window.len())
        })
        .collect();
    lines.sort();
    let mut events = Vec::new();
    for leak in leaks {
        for event in store.leak("tiles", &choice, &leak.id).await.unwrap().unwrap().events {
            if event.branch == branch {
                events.push(format!("{} {} {}", event.leak, event.kind, number(&event.first_sha)));
            }
        }
    }
    events.sort();
    (lines, events)
}

async fn the_story(open: impl AsyncFn(usize) -> Store) {
    let steps = story();
    let mut known = None;
    for round in 0..3 {
        let store = open(round).await;
        // Three orders of arrival: as it was, backwards, and one that jumps.
        let order: Vec<usize> = match round {
            0 => (0..steps.len()).collect(),
            1 => (0..steps.len()).rev().collect(),
            _ => (0..steps.len()).map(|number| number * 29 % steps.len()).collect(),
        };
        for index in order {
            assert!(!add_step(&store, &steps, index).await.already);
        }
        let (main, release) = (told(&store, "main").await, told(&store, "release/1").await);
        if round == 0 {
            assert_eq!(
                main.0,
                [
                    "n1-a Known 30..39 flaky=false 39",
                    "n1-flaky Known 8..38 flaky=true 39",
                    "n1-old Gone 3..24 flaky=false 25",
                ],
            );
            let of_a: Vec<_> = main.1.iter().filter(|event| event.starts_with("n1-a ")).collect();
            assert_eq!(
                of_a,
                ["n1-a fixed 20", "n1-a known 31", "n1-a known 6", "n1-a new 5", "n1-a regressed 30"]
            );
            assert_eq!(release.0, ["n1-a Known 100..102 flaky=false 3"]);
        }
        let known = known.get_or_insert_with(|| (main.clone(), release.clone()));
        assert_eq!(*known, (main, release), "round {round}");
        shows_everything(&store).await;
        store.close().await;
    }
}

async fn shows_everything(store: &Store) {
    assert_eq!(store.projects().await.unwrap(), ["tiles"]);
    let choice = of_line("main");
    let overview = store.overview("tiles", &choice).await.unwrap().unwrap();
    assert_eq!((overview.counts, overview.flaky), ([0, 0, 2, 0, 1], 1));
    assert_eq!(
        (overview.selection.branch.as_str(), overview.selection.environment.as_str()),
        ("main", "x86_64")
    );
    let runs = store.runs("tiles", &choice, None).await.unwrap().unwrap();
    assert_eq!((runs.runs.len(), runs.runs[0].sha.as_str()), (40, sha(39).as_str()));
    let page = store.runs("tiles", &choice, Some(runs.runs[30].run)).await.unwrap().unwrap();
    assert_eq!(page.runs, runs.runs[31..]);
    let test = store.test("tiles", &choice, "engine", "Map.scroll", None).await.unwrap().unwrap();
    assert_eq!((test.metric, test.points.len()), (Metric::NativeLiveBytes, 40));
    let values: Vec<_> = test.points.iter().map(|point| point.value).collect();
    assert_eq!((values[4], values[5], values[12], values[38]), (Some(0.0), Some(7.0), None, Some(14.0)));
    assert_eq!(
        (test.points[12].allowed, test.points[38].allowed),
        (None, Some(5.0)),
        "judged by a threshold"
    );
    let all = store.leaks("tiles", &choice, &LeakFilter::default()).await.unwrap().unwrap().leaks;
    for (text, found) in [("src/TILES.cc", all.len()), ("src/nowhere.cc", 0)] {
        let filter = LeakFilter { text: text.into(), ..LeakFilter::default() };
        let leaks = store.leaks("tiles", &choice, &filter).await.unwrap().unwrap().leaks;
        assert_eq!(leaks.len(), found, "{text}");
    }
    let of_test = all.iter().filter(|leak| leak.tests.iter().any(|test| test == "engine::Map.scroll"));
    let ids = |leaks: &mut dyn Iterator<Item = &crate::view::LeakRow>| {
        leaks.map(|leak| leak.id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&mut test.leaks.iter()), ids(&mut of_test.into_iter()));
    let told =
        |event: &crate::view::EventRow| (event.kind.clone(), event.text.clone(), event.first_sha.clone());
    let shifts: Vec<_> = test.events.iter().filter(|event| event.leak.is_empty()).map(told).collect();
    assert_eq!(
        shifts,
        [("shift up".to_owned(), "native.live_bytes: 0 B → 7 B".to_owned(), sha(5))],
        "what comes and goes is none"
    );
    let leak = store.leak("tiles", &choice, "n1-a").await.unwrap().unwrap();
    assert_eq!(leak.lines.len(), 2);
    assert_eq!((leak.leak.culprit.as_str(), leak.leak.place.as_str()), ("tiles::load", "src/tiles.cc:7"));
    assert_eq!(leak.sightings.len(), 28);
    let slowest = store.run("tiles", runs.runs[0].run, Order::Slowest, "").await.unwrap().unwrap().tests;
    let names: Vec<_> = slowest.iter().map(|test| test.name.as_str()).collect();
    assert_eq!(names, ["Map.scroll", "Map.clean"], "no suite");
    let took = slowest[0].duration_ms.unwrap();
    assert!((990..=1010).contains(&took), "about a second: {took} ms");
    let run = store.run("tiles", runs.runs[0].run, Order::Worst, "").await.unwrap().unwrap();
    assert_eq!((run.of, run.tests[0].name.as_str(), run.leaks.len()), (2, "Map.scroll", 1));
    assert_eq!(run.previous, Some(runs.runs[1].run));
    assert_eq!(run.leaks[0].state, Some(State::Known));
    let review = of_line("main → main");
    let review = store.runs("tiles", &review, None).await.unwrap().unwrap().runs.remove(0);
    assert_eq!(review.target, "main");
    let review = store.run("tiles", review.run, Order::Worst, "").await.unwrap().unwrap();
    let states: Vec<_> = review.leaks.iter().map(|leak| (leak.id.as_str(), leak.state)).collect();
    assert_eq!(states, [("n1-a", Some(State::Known)), ("n1-review", None)], "those of its target");
    assert_eq!(overview.selection.branches, ["release/1", "main", "main → main"], "lines come first");
    let of_review = store.leak("tiles", &choice, "n1-review").await.unwrap().unwrap();
    assert!(of_review.lines.is_empty(), "a review changes no state");
    let (_, series) = store.series("tiles", &choice).await.unwrap().unwrap();
    let names: Vec<_> = series.iter().map(|series| series.name.as_str()).collect();
    assert_eq!(names, ["Map.scroll", "Old.test"], "what is always zero is not told");
    let old = &series[1].commits;
    assert_eq!((old.len(), old[0].figure.value), (22, 7.0), "since it began to leak");
    let mut lines = 0;
    assert!(store.export("tiles", &choice, &mut |_| lines += 1).await.unwrap());
    assert!(lines > 100, "{lines}");
    for (project, branch) in [("nobody", ""), ("tiles", "no")] {
        let choice = of_line(branch);
        assert!(store.overview(project, &choice).await.unwrap().is_none());
    }
    assert!(store.run("tiles", 7, Order::Worst, "").await.unwrap().is_none());
    assert!(store.test("tiles", &choice, "engine", "No.such", None).await.unwrap().is_none());
}

/// Each channel reports a change on a line once; a change that was claimed but not reported comes again.
async fn changes_are_told_once(store: Store) {
    let steps = story();
    for index in 0..8 {
        add_step(&store, &steps, index).await;
    }
    let now = jiff::Timestamp::now().as_microsecond();
    let ids = |notices: &[Notice]| {
        let changes = notices.iter().flat_map(|notice| &notice.changes);
        changes.map(|change| (change.leak.id.clone(), change.what)).collect::<Vec<_>>()
    };
    let claimed = store.claim_notices("mail", now).await.unwrap();
    assert!(ids(&claimed).contains(&("n1-a".to_owned(), What::To(State::New))), "{claimed:?}");
    let first = claimed.iter().find(|notice| notice.changes[0].leak.id == "n1-a").unwrap();
    assert_eq!((first.project.as_str(), first.run.branch.as_str()), ("tiles", "main"));
    assert_eq!(first.changes[0].tests, ["engine::Map.scroll"]);
    assert!(store.claim_notices("mail", now).await.unwrap().is_empty(), "they are claimed");
    assert_eq!(store.claim_notices("slack", now).await.unwrap().len(), claimed.len(), "another channel");
    let later = now + LEASE_US + 1;
    let again = store.claim_notices("mail", later).await.unwrap();
    assert_eq!(ids(&again), ids(&claimed), "nobody was told");
    for notice in &again {
        store.told(notice, later).await.unwrap();
    }
    assert!(store.claim_notices("mail", later + LEASE_US + 1).await.unwrap().is_empty(), "everybody was");
    for index in 8..steps.len() {
        add_step(&store, &steps, index).await;
    }
    let rest = store.claim_notices("mail", later).await.unwrap();
    assert!(ids(&rest).iter().any(|(_, what)| *what == What::To(State::Fixed)), "{rest:?}");
    let is_known = |what: &What| *what == What::To(State::Known);
    assert!(!ids(&rest).iter().any(|(id, what)| id == "n1-review" || is_known(what)), "{rest:?}");
    assert!(
        store.claim_notices("old", now + 2 * 24 * 3600 * 1_000_000).await.unwrap().is_empty(),
        "old news"
    );
    store.close().await;
}

/// The first page reads the leaks that it shows, not all.
async fn a_first_page_counts_all_leaks_and_shows_the_worst(store: Store) {
    let ids: Vec<String> = (0..60).map(|number| format!("n1-{number:02}")).collect();
    let known: Vec<&str> = ids.iter().map(String::as_str).collect();
    for (number, leaks) in [(0, known.clone()), (1, [known.clone(), vec!["n1-new"]].concat())] {
        let tests = [("Map.scroll", Some(leaks)), ("Map.zoom", Some(vec!["n1-zoom"]))];
        let manifest = of_commit(number, "main");
        store.add(&manifest, &report(&manifest.session, number, &tests)).await.unwrap();
    }
    let choice = of_line("main");
    let overview = store.overview("tiles", &choice).await.unwrap().unwrap();
    assert_eq!((overview.counts, overview.decided, overview.steady), ([1, 0, 61, 0, 0], 61, 61));
    assert_eq!(overview.alive.len(), 50);
    let leaks = store.leaks("tiles", &choice, &LeakFilter::default()).await.unwrap().unwrap().leaks;
    let new = &overview.alive[0];
    assert_eq!((new.id.as_str(), new.state, new), ("n1-new", State::New, &leaks[0]));
    assert!(overview.alive.iter().all(|leak| leaks.contains(leak)), "with their tests");
    store.close().await;
}

/// A test leaks 7 bytes from its first commit on, then 14: the second leak is reported, and so is the level.
async fn a_higher_level_is_told_once(store: Store) {
    let now = jiff::Timestamp::now().as_microsecond();
    let add = async |number: usize, leaks: &[&'static str]| {
        let manifest = of_commit(number, "main");
        let tests = [("Map.scroll", Some(leaks.to_vec())), ("Map.zoom", Some(vec![]))];
        let mut report = report(&manifest.session, number, &tests);
        // Old measurements are not reported.
        let started = now - (60 - i64::try_from(number).unwrap()) * 1_000_000;
        report.started = jiff::Timestamp::from_microsecond(started).unwrap().to_string();
        store.add(&manifest, &report).await.unwrap();
    };
    let claimed = async |channel: &str, now: i64| {
        let notices = store.claim_notices(channel, now).await.unwrap();
        notices.into_iter().filter(|notice| !notice.shifts.is_empty()).collect::<Vec<_>>()
    };
    for number in 0..12 {
        add(number, &["n1-a"]).await;
        assert!(claimed("mail", now).await.is_empty(), "0 → 7 is the leak's own news");
    }
    for number in 12..20 {
        add(number, &["n1-a", "n1-b"]).await;
        assert!(claimed("late", now).await.is_empty(), "what was before the channel is not told");
    }
    let first = claimed("mail", now).await;
    let [notice] = first.as_slice() else { panic!("{first:?}") };
    let shifted = Shifted {
        suite: "engine".to_owned(),
        name: "Map.scroll".to_owned(),
        metric: Metric::NativeLiveBytes,
        before: 7.0,
        after: 14.0,
    };
    assert_eq!((notice.shifts.as_slice(), notice.run.branch.as_str()), (&[shifted][..], "main"));
    assert!(claimed("mail", now).await.is_empty(), "it is claimed");
    let again = claimed("mail", now + LEASE_US + 1).await;
    assert_eq!(
        (again.len(), &again[0].run, &again[0].shifts),
        (1, &notice.run, &notice.shifts),
        "nobody was told"
    );
    store.told(&again[0], now + LEASE_US + 1).await.unwrap();
    add(20, &["n1-a", "n1-b"]).await;
    assert!(claimed("mail", now + 2 * LEASE_US + 2).await.is_empty(), "everybody was");
    assert!(store.check().await.unwrap().is_empty());
    store.close().await;
}

async fn the_same_run_counts_once(store: Store) {
    let steps = story();
    let run = |store: Store| async move { add_step(&store, &story(), 7).await };
    let (one, two) = tokio::join!(tokio::spawn(run(store.clone())), tokio::spawn(run(store.clone())));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert!(one.run == two.run && one.already != two.already, "{one:?} {two:?}");
    // Stored by an earlier memgate, it is still the same run.
    let former = super::add::former_digest(&report("s7", 7, &steps[7].tests)).unwrap();
    let query = sqlx::query("UPDATE run SET body_digest = $1 WHERE run_id = $2").bind(former).bind(one.run);
    query.execute(&store.pool).await.unwrap();
    let again = add_step(&store, &steps, 7).await;
    assert!(again.run == one.run && again.already, "{again:?}");
    let other =
        store.add(&manifest("s7", Some(on_main(7)), Vec::new()), &report("s7", 7, &steps[0].tests)).await;
    assert!(matches!(other, Err(StoreError::Conflict(run)) if run == one.run), "{other:?}");
    store.close().await;
}

/// Runs of two lines with the same new tests and leaks, added by eight tasks at once.
async fn runs_that_come_at_once_all_count(store: Store) {
    let add = |index: usize| {
        let store = store.clone();
        tokio::spawn(async move { add_step(&store, &story(), index).await })
    };
    let indices = [4, 5, 6, 7, 8, 40, 41, 42];
    let adding: Vec<_> = indices.into_iter().map(add).collect();
    for added in adding {
        assert!(!added.await.unwrap().already);
    }
    let main = told(&store, "main").await.0;
    assert!(main.contains(&"n1-a Known 5..8 flaky=false 5".to_owned()), "{main:?}");
    assert_eq!(told(&store, "release/1").await.0, ["n1-a Known 100..102 flaky=false 3"]);
    store.close().await;
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(work)
}

/// One run of the project `tiles`.
pub(crate) async fn add_one(store: &Store) -> i64 {
    add_step(store, &story(), 0).await.run
}

/// One run of the project `tiles` that is received at that time.
pub(crate) async fn add_one_at(store: &Store, session: &str, at_us: i64) -> i64 {
    let manifest = manifest(session, None, Vec::new());
    store.add_at(&manifest, &report(session, 0, &[]), at_us).await.unwrap().run
}

/// The story is complete, so the base is seldom the newest commit.
async fn a_base_is_what_the_line_knew_there(store: Store) {
    add_story(&store).await;
    let environment = Environment([("architecture".to_owned(), "x86_64".to_owned())].into());
    let of = async |branch: &str, commits: &[usize]| {
        let commits = commits.iter().map(|number| sha(*number)).collect();
        let wanted = Wanted { branch: branch.into(), environment: environment.clone(), commits };
        store.base("tiles", &wanted).await.unwrap()
    };
    let alive = |base: &memgate_model::BaseLeaks| {
        let alive = base.leaks.iter().filter(|(_, leak)| leak.alive);
        alive.map(|(id, _)| id.clone()).collect::<Vec<_>>().join(" ")
    };
    for (merged, expected) in [
        (2, ""),
        (4, "n1-old"),
        (9, "n1-a n1-flaky n1-old"),
        (19, "n1-a n1-flaky n1-old"),
        (22, "n1-flaky n1-old"),
        (26, "n1-flaky"),
        (39, "n1-a n1-flaky"),
    ] {
        let base = of("main", &[merged]).await.unwrap();
        assert_eq!((alive(&base).as_str(), base.base.before), (expected, 0), "at {merged}");
    }
    let base = of("main", &[22]).await.unwrap();
    assert_eq!(base.leaks["n1-a"].fixed, sha(20));
    assert!(base.leaks["n1-flaky"].flaky && base.leaks["n1-flaky"].bytes == 7.0);
    let bytes = of("main", &[9]).await.unwrap().tests["engine::Map.scroll"][&Metric::NativeLiveBytes];
    assert_eq!(bytes, (7.0, 7.0), "of the run of that commit");
    let nearest = of("main", &[999, 998, 15]).await.unwrap().base;
    assert_eq!((nearest.merged, nearest.sha, nearest.before), (sha(999), sha(15), 2));
    assert_eq!(alive(&of("release/1", &[101]).await.unwrap()), "n1-a", "each line has lives of its own");
    assert_eq!(of("main", &[200]).await.unwrap().base.sha, sha(39), "no review is a base");
    for (branch, commits) in [("main", &[777][..]), ("nobody", &[9]), ("main", &[])] {
        assert_eq!(of(branch, commits).await, None, "{branch} {commits:?}");
    }
    let other = Wanted { branch: "main".into(), commits: vec![sha(9)], ..Wanted::default() };
    assert_eq!(store.base("tiles", &other).await.unwrap(), None, "another environment");
}

/// Each part has a database of its own.
async fn tells_the_story(open: impl AsyncFn(&str) -> Store) {
    the_story(async |round| open(&format!("round{round}")).await).await;
    the_same_run_counts_once(open("same").await).await;
    changes_are_told_once(open("told").await).await;
    a_higher_level_is_told_once(open("shift").await).await;
    a_first_page_counts_all_leaks_and_shows_the_worst(open("first").await).await;
    runs_that_come_at_once_all_count(open("once").await).await;
    a_base_is_what_the_line_knew_there(open("base").await).await;
}

#[test]
fn a_story_has_the_same_lives_in_every_order_of_arrival_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    block_on(tells_the_story(async |name| sqlite(&folder, &format!("a b/{name}.db")).await));
}

#[test]
fn a_story_has_the_same_lives_in_every_order_of_arrival_in_postgresql() {
    let Some(postgres) = Postgres::start() else { return };
    block_on(tells_the_story(async |name| postgres.database(name).await));
}

/// A page needs a few statements, however many tests and leaks there are.
#[test]
fn a_page_asks_the_database_a_few_times() {
    let Some(postgres) = Postgres::start() else { return };
    block_on(async {
        let store = postgres.logged_database("pages").await;
        add_story(&store).await;
        let choice = of_line("main");
        let runs = store.runs("tiles", &choice, None).await.unwrap().unwrap().runs;
        let (last, before) = (runs[0].run, runs[1].run);
        let mut told = Vec::new();
        for page in ["overview", "leaks", "leak", "runs", "run", "test", "compare", "tune"] {
            let from = postgres.statements().len();
            match page {
                "overview" => drop(store.overview("tiles", &choice).await.unwrap().unwrap()),
                "leaks" => {
                    drop(store.leaks("tiles", &choice, &LeakFilter::default()).await.unwrap().unwrap())
                }
                "leak" => drop(store.leak("tiles", &choice, "n1-a").await.unwrap().unwrap()),
                "runs" => drop(store.runs("tiles", &choice, None).await.unwrap().unwrap()),
                "run" => drop(store.run("tiles", last, Order::Worst, "").await.unwrap().unwrap()),
                "test" => {
                    drop(store.test("tiles", &choice, "engine", "Map.scroll", None).await.unwrap().unwrap());
                }
                "compare" => drop(store.compare("tiles", before, last).await.unwrap()),
                _ => drop(store.series("tiles", &choice).await.unwrap().unwrap()),
            }
            told.push((page, postgres.statements()[from..].to_vec()));
        }
        store.close().await;
        let counts: Vec<_> = told.iter().map(|(page, statements)| (*page, statements.len())).collect();
        assert!(counts.iter().all(|(_, count)| (1..=8).contains(count)), "{counts:?}\n{told:#?}");
    });
}

/// Each query to PostgreSQL is a round trip. A run with 20,000 leaks took longer than the time limit of an upload.
#[test]
fn a_run_with_many_leaks_asks_the_database_little_for_each() {
    let Some(postgres) = Postgres::start() else { return };
    block_on(async {
        let store = postgres.logged_database("many").await;
        let ids: Vec<String> = (0..300).map(|number| format!("n1-{number}")).collect();
        let mut asked = Vec::new();
        for (number, leaks) in [ids.len(), 0, ids.len()].into_iter().enumerate() {
            let from = postgres.statements().len();
            let leaks = ids.iter().take(leaks).map(String::as_str).collect();
            let manifest = of_commit(number, "main");
            let report = report(&manifest.session, number, &[("Map.scroll", Some(leaks))]);
            let added = store.add(&manifest, &report).await.unwrap();
            assert_eq!(added.events.len(), ids.len(), "new, fixed, back");
            asked.push(postgres.statements().len() - from);
        }
        store.close().await;
        let within = asked.iter().zip([400, 100, 700]).all(|(asked, most)| *asked <= most);
        assert!(within, "{asked:?}");
    });
}

#[test]
fn what_is_no_history_is_refused_by_name_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.db");
    let address = format!("sqlite:{}", path.display());
    block_on(async {
        let missing = Store::open_existing(&address).await.unwrap_err().to_string();
        assert!(missing.contains("there is none") && missing.contains("hint: "), "{missing}");
        std::fs::write(&path, "no database at all, but long enough to look at it".repeat(100)).unwrap();
        let before = std::fs::read(&path).unwrap();
        let broken = Store::open(&address).await.unwrap_err().to_string();
        assert!(broken.contains("it is no history; move it away"), "{broken}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
        std::fs::remove_file(&path).unwrap();
        let store = Store::open(&address).await.unwrap();
        sqlx::query("INSERT INTO memgate_schema (version) VALUES (99)").execute(&store.pool).await.unwrap();
        store.close().await;
        let newer = Store::open(&address).await.unwrap_err().to_string();
        assert!(newer.contains("a newer memgate wrote it (version 99"), "{newer}");
        let link = folder.path().join("link.db");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let linked = Store::open(&format!("sqlite:{}", link.display())).await.unwrap_err().to_string();
        assert!(linked.contains("it is a link"), "{linked}");
        let foreign = format!("sqlite:{}", folder.path().join("other.db").display());
        let other = Store::open(&foreign).await.unwrap();
        sqlx::query("CREATE TABLE photo (name TEXT)").execute(&other.pool).await.unwrap();
        sqlx::query("DROP TABLE memgate_schema").execute(&other.pool).await.unwrap();
        other.close().await;
        for opened in [Store::open(&foreign).await, Store::open_existing(&foreign).await] {
            let said = opened.unwrap_err().to_string();
            assert!(said.contains("it is a database with other tables"), "{said}");
        }
        let odd = Store::open("mysql://u:secret@h/d").await.unwrap_err().to_string();
        assert!(odd.contains("neither") && !odd.contains("secret"), "{odd}");
    });
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
    assert_eq!(mode & 0o077, 0, "it is its user's alone");
}

#[test]
fn runs_without_a_commit_count_one_by_one() {
    in_sqlite(async |store| {
        let steps = story();
        for (number, step) in [(0, 0), (1, 6), (2, 6), (3, 0)] {
            let session = format!("s{number}");
            store
                .add(&manifest(&session, None, Vec::new()), &report(&session, number, &steps[step].tests))
                .await
                .unwrap();
        }
        let (leaks, _) = told(&store, "").await;
        assert!(leaks.contains(&"n1-a Fixed -..- flaky=false 4".to_owned()), "{leaks:?}");
    });
}

/// A commit of a short story: its number, the ancestors that its clone knows, when its run began, its tests.
type Short<'t> = (usize, &'t [usize], usize, Vec<(&'static str, Option<Vec<&'static str>>)>);

async fn add_short(store: &Store, short: &Short<'_>) -> Added {
    add_changed(store, short, false).await
}

/// `dirty`: with changes that are in no commit.
async fn add_changed(store: &Store, (number, ancestors, started, tests): &Short<'_>, dirty: bool) -> Added {
    let session = format!("s{number}-{started}");
    let ancestors = ancestors.iter().map(|number| sha(*number)).collect();
    let manifest = Manifest { dirty, ..manifest(&session, Some(on_main(*number)), ancestors) };
    store.add(&manifest, &report(&session, *started, tests)).await.unwrap()
}

#[test]
fn two_runs_are_compared_as_their_reports_are() {
    in_sqlite(async |store| {
        let (clean, not_judged) = (|| Some(Vec::new()), None);
        let before =
            vec![("Map.a", Some(vec!["n1-gone"])), ("Map.b", clean()), ("Map.c", Some(vec!["n1-c"]))];
        let after = vec![("Map.a", clean()), ("Map.b", Some(vec!["n1-new"])), ("Map.c", not_judged)];
        add_short(&store, &(1, &[], 0, before.clone())).await;
        add_short(&store, &(2, &[1], 1, after.clone())).await;
        let choice = of_line("main");
        let runs = store.runs("tiles", &choice, None).await.unwrap().unwrap().runs;
        let (second, first) = (runs[0].run, runs[1].run);
        let view = store.compare("tiles", first, second).await.unwrap().unwrap();
        let reports =
            memgate_reports::Comparison::of(&report("s1-0", 0, &before), &report("s2-1", 1, &after));
        let changes = |comparison: &memgate_reports::Comparison| -> Vec<_> {
            comparison
                .leaks
                .iter()
                .map(|leak| (leak.change, leak.id.clone(), leak.before, leak.after))
                .collect()
        };
        assert_eq!(changes(&view.comparison), changes(&reports));
        let told: Vec<_> =
            view.comparison.leaks.iter().map(|leak| (leak.change.word(), leak.id.as_str())).collect();
        assert_eq!(told, [("new", "n1-new"), ("fixed", "n1-gone"), ("not compared", "n1-c")]);
        assert_eq!(view.comparison.only_before, ["engine::Map.c"]);
        assert_eq!((view.stacks.len(), view.comparison.judged_in_both), (3, 2));
        assert!(store.compare("tiles", first, 7).await.unwrap().is_none(), "there is no such run");
        assert!(store.compare("other", first, second).await.unwrap().is_none());
    });
}

/// Only the last run shows the order of these: earlier results are corrected.
#[test]
fn a_run_that_moves_others_changes_what_they_said() {
    let folder = tempfile::tempdir().unwrap();
    block_on(async {
        let leaks = || vec![("Map.scroll", Some(vec!["n1-a"]))];
        let clean = || vec![("Map.scroll", Some(Vec::new()))];
        let failed = || vec![("Map.scroll", None)];
        let shorts: [Short<'_>; 3] = [(2, &[], 0, leaks()), (1, &[], 1, clean()), (3, &[2, 1], 2, failed())];
        for (at, order) in
            [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]].iter().enumerate()
        {
            let store = sqlite(&folder, &format!("{at}.db")).await;
            for index in order {
                add_short(&store, &shorts[*index]).await;
            }
            let (leaks, events) = told(&store, "main").await;
            assert_eq!(leaks, ["n1-a New 2..2 flaky=false 2"], "{order:?}");
            assert_eq!(events, ["n1-a new 2"], "{order:?}");
            let choice = of_line("main");
            let runs = store.runs("tiles", &choice, None).await.unwrap().unwrap().runs;
            let counts: Vec<_> = runs.iter().map(|run| (run.sha.clone(), run.new_leaks)).collect();
            assert_eq!(counts, [(sha(3), 0), (sha(2), 1), (sha(1), 0)], "{order:?}");
            store.close().await;
        }
    });
}

#[test]
fn damaged_data_stays_damaged_and_a_database_may_be_back() {
    use sqlx::Error::{Decode, PoolTimedOut};
    assert!(StoreError::Database(PoolTimedOut).may_pass());
    assert!(!StoreError::Database(Decode("1 is no way".into())).may_pass());
}

#[test]
fn a_test_that_another_run_of_the_commit_has_is_not_gone() {
    in_sqlite(async |store| {
        add_short(&store, &(1, &[], 0, vec![("Map.scroll", Some(vec!["n1-a"]))])).await;
        let gone = add_short(&store, &(2, &[1], 1, vec![("Map.clean", Some(Vec::new()))])).await;
        assert_eq!(gone.events.iter().map(|event| event.kind.as_str()).collect::<Vec<_>>(), ["gone"]);
        let both = vec![("Map.scroll", None), ("Map.clean", Some(Vec::new()))];
        let there = add_short(&store, &(2, &[1], 2, both)).await;
        assert_eq!(there.events, []);
        assert_eq!(told(&store, "main").await.0, ["n1-a New 1..1 flaky=false 1"]);
        assert_eq!(told(&store, "main").await.1, ["n1-a new 1"]);
    });
}

#[test]
fn a_class_whose_tests_are_clean_is_fixed_and_one_without_tests_is_gone() {
    in_sqlite(async |store| {
        let class = ("pkg.Map", Some(vec!["j1-a"]));
        let test = |leaks| ("pkg.Map.scroll", leaks);
        let other = || ("pkg.Mapper.other", Some(Vec::new()));
        let add = async |number: usize, tests| {
            let before = &[number.saturating_sub(1)];
            let before = if number > 0 { &before[..] } else { &[] };
            add_short(&store, &(number, before, number, tests)).await;
            told(&store, "main").await.0
        };
        add(0, vec![class.clone(), test(Some(Vec::new())), other()]).await;
        let known = add(1, vec![class.clone(), test(Some(Vec::new())), other()]).await;
        assert_eq!(known, ["j1-a Known 0..1 flaky=false 2"]);
        let failed = add(2, vec![test(None), other()]).await;
        assert_eq!(failed, ["j1-a Known 0..1 flaky=false 2"], "its test was not judged");
        assert_eq!(add(3, vec![test(Some(Vec::new())), other()]).await, ["j1-a Fixed 0..1 flaky=false 3"]);
        add(4, vec![class, test(Some(Vec::new())), other()]).await;
        assert_eq!(add(5, vec![other()]).await, ["j1-a Gone 0..4 flaky=false 4"]);
    });
}

/// Each run continues from the stored state; folding all runs from the first gives the same result.
#[test]
fn lives_are_the_same_run_by_run_and_all_at_once() {
    let folder = tempfile::tempdir().unwrap();
    block_on(async {
        for seed in 0..6_u64 {
            let store = sqlite(&folder, &format!("{seed}.db")).await;
            let mut random = Random(seed * 7919 + 1);
            let mut next = |below: usize| random.below(below as u64);
            for run in 0..60_usize {
                // Mostly in order, sometimes far back or the same commit again.
                let commit = if next(5) == 0 { next(run + 1) } else { run / 2 };
                let depth = next(4).min(commit);
                let ancestors: Vec<usize> = (commit - depth..commit).rev().collect();
                let mut tests = Vec::new();
                for (name, leaks) in
                    [("A.a", ["n1-a", "n1-both"]), ("A.b", ["n1-b", "n1-both"]), ("A.c", ["n1-c", "n1-rare"])]
                {
                    if next(6) == 0 {
                        continue;
                    }
                    let seen: Vec<&str> = leaks.into_iter().filter(|_| next(3) > 0).collect();
                    tests.push((name, (next(8) > 0).then_some(seen)));
                }
                tests.push(("A.other", Some(Vec::new())));
                let dirty = next(4) == 0;
                add_changed(&store, &(commit, &ancestors, run, tests), dirty).await;
                let kept = everything(&store).await;
                refold(&store).await;
                assert_eq!(kept, everything(&store).await, "seed {seed}, run {run}");
            }
            store.close().await;
        }
    });
}

/// Nearly all runs are placed by the newest ones only; placing them by all runs gives the same, on every line.
#[test]
fn a_place_is_the_same_by_the_newest_runs_and_by_all() {
    let folder = tempfile::tempdir().unwrap();
    block_on(async {
        for seed in 0..12_u64 {
            let store = sqlite(&folder, &format!("{seed}.db")).await;
            let mut random = Random(seed * 104_729 + 3);
            let (numbers, jumps) = (seed % 3 == 0, seed % 4 == 1);
            for run in 0..70_usize {
                let on_release = run > 20 && random.below(4) == 0;
                let late = if random.below(if jumps { 3 } else { 9 }) == 0 { random.below(12) } else { 0 };
                let commit = (run / 2).saturating_sub(late);
                // The release begins with commit 10 of main.
                let (branch, commit) =
                    if on_release { ("release/1", 100 + commit) } else { ("main", commit) };
                let before = |commit: usize| if commit == 100 { Some(10) } else { commit.checked_sub(1) };
                let depth = [0, 1, 3, 80, 80, 80][random.below(6)];
                let ancestors: Vec<String> =
                    std::iter::successors(before(commit), |at| before(*at)).take(depth).map(sha).collect();
                let commit = Commit { sha: sha(commit), branch: branch.into(), ..Commit::default() };
                let commit = (random.below(8) > 0).then_some(commit);
                let session = format!("s{run}");
                let mut manifest = manifest(&session, commit, ancestors);
                manifest.dirty = random.below(5) == 0;
                manifest.ci = (!manifest.dirty).then(|| Ci {
                    provider: "gitlab".into(),
                    pipeline: if numbers && random.below(9) > 0 { run.to_string() } else { session.clone() },
                    ..Ci::default()
                });
                let started = run - random.below(3).min(run);
                let tests = [("A.a", Some(if random.below(3) > 0 { vec!["n1-a"] } else { Vec::new() }))];
                store.add(&manifest, &report(&session, started, &tests)).await.unwrap();
                let kept = everything(&store).await;
                let moved = placed_anew(&store).await;
                assert_eq!((moved, everything(&store).await), (Vec::new(), kept), "seed {seed}, run {run}");
            }
            store.close().await;
        }
    });
}

struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % below).unwrap()
    }
}

/// Orders all lines by all their runs; returns the lines whose order changed.
async fn placed_anew(store: &Store) -> Vec<(i64, i64)> {
    let project = sqlx::query("SELECT project_id FROM project").fetch_one(&store.pool).await.unwrap();
    let mut adding = transaction::Adding {
        transaction: store.pool.begin().await.unwrap(),
        project: sqlx::Row::get(&project, 0),
        ids: ids::Ids::new(1),
    };
    let chain = adding.chain().await.unwrap();
    let mut moved = Vec::new();
    let lines =
        sqlx::query(statements::LINES).bind(adding.project).fetch_all(adding.connection()).await.unwrap();
    for line in lines {
        moved.extend(adding.order(&chain, sqlx::Row::get(&line, 0), -1).await.unwrap());
    }
    adding.transaction.commit().await.unwrap();
    moved
}

/// Lives, events and counts of runs, as stored in the database.
async fn everything(store: &Store) -> Vec<String> {
    let mut lines = Vec::new();
    for statement in [
        "SELECT leak_id || ' ' || state || flaky || waived || first_key || ' ' || clean_key || ' ' || last_key || ' ' || \
         fixed_key || ' ' || since_us || ' ' || last_run || ' ' || recent || ' ' || rate FROM leak_line ORDER BY 1",
        "SELECT leak_id || ' ' || state || commit_key || ' ' || before_key || ' ' || run_id || ' ' || at_us FROM event ORDER BY 1",
        "SELECT run_id || ' ' || place || ' ' || new_leaks FROM run ORDER BY 1",
    ] {
        for row in sqlx::query(statement).fetch_all(&store.pool).await.unwrap() {
            lines.push(sqlx::Row::get::<String, _>(&row, 0));
        }
    }
    lines
}

async fn refold(store: &Store) {
    let row = sqlx::query("SELECT project_id, run_id, branch_id, environment_id FROM run LIMIT 1");
    let row = row.fetch_one(&store.pool).await.unwrap();
    let id = |at: usize| sqlx::Row::get::<i64, _>(&row, at);
    let environment = id(3);
    let run = line::LineRun {
        run: id(1),
        key: String::new(),
        commit: String::new(),
        started_us: 0,
        roster: 0,
        is_partial: false,
        look: Look::Plain,
        selection: 0,
    };
    let new = line::NewRun {
        run,
        seen: std::collections::BTreeMap::new(),
        looks: std::collections::BTreeMap::new(),
        branch: id(2),
        environment,
        on_line: true,
        moved: [(id(2), environment)].into(),
    };
    let mut adding = transaction::Adding {
        transaction: store.pool.begin().await.unwrap(),
        project: id(0),
        ids: ids::Ids::new(1),
    };
    let told = lives::fold(&mut adding, &new, 0).await.unwrap();
    assert_eq!(told, []);
    adding.transaction.commit().await.unwrap();
}

/// Backups, retention, and damage.
async fn upkeep(open: impl AsyncFn(usize) -> Store, folder: &Path) {
    let store = open(0).await;
    let steps = add_story(&store).await;
    assert!(!store.claim_notices("mail", jiff::Timestamp::now().as_microsecond()).await.unwrap().is_empty());
    let broken = Problem { r#where: "shard 2".into(), what: "it is missing".into(), hint: String::new() };
    let broken = RunReport { errors: vec![broken], ..report("broken", 0, &[]) };
    let commit = Commit { target: "main".into(), ..on_main(50) };
    let broken = store.add(&manifest("broken", Some(commit), Vec::new()), &broken).await.unwrap().run;
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    let file = folder.join("backup.db");
    let rows = store.backup(&file).await.unwrap();
    let mut there = 0;
    for (table, _) in schema::tables() {
        let count = sqlx::query(sqlx::AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}")));
        there += sqlx::Row::get::<i64, _>(&count.fetch_one(&store.pool).await.unwrap(), 0);
    }
    assert_eq!(u64::try_from(there).unwrap(), rows);
    assert_eq!(schema::tables().len(), 24, "with their columns: {:?}", schema::tables());
    let again = store.backup(&file).await.unwrap_err().to_string();
    assert!(again.contains("something is there already"), "{again}");
    let copy = open(1).await;
    assert_eq!(copy.restore(&file).await.unwrap(), rows);
    assert!(matches!(copy.restore(&file).await, Err(StoreError::NotEmpty(_))));
    assert_eq!(everything(&copy).await, everything(&store).await);
    assert_eq!(copy.check().await.unwrap(), Vec::<String>::new());
    let shown = copy.run("tiles", broken, Order::Worst, "").await.unwrap().unwrap();
    assert_eq!(shown.reasons, ["shard 2: it is missing"]);
    shows_everything(&copy).await;
    // A restored database continues as before.
    assert!(add_step(&copy, &steps, 7).await.already);

    let (now, lives) = (retention::this_month(), everything(&store).await);
    assert_eq!(store.retain_from(now).await.unwrap(), 0);
    assert_eq!(store.retain_from(now + 3).await.unwrap(), 2, "the reviews");
    let main = of_line("main");
    let review = of_line("main → main");
    let run = async |choice: &Choice| {
        let runs = store.runs("tiles", choice, None).await.unwrap().unwrap().runs;
        store.run("tiles", runs[0].run, Order::Worst, "").await.unwrap().unwrap()
    };
    assert!(run(&review).await.expired && run(&review).await.leaks.is_empty() && !run(&main).await.expired);
    assert_eq!(store.retain_from(now + 13).await.unwrap(), 43);
    assert!(run(&main).await.expired && run(&main).await.leaks.len() == 1, "what it saw stays");
    assert_eq!(everything(&store).await, lives);
    refold(&store).await;
    assert_eq!(everything(&store).await, lives, "lives are folded from what stays");
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    let rows = sqlx::query("SELECT COUNT(*) FROM run_column").fetch_one(&store.pool).await.unwrap();
    assert_eq!(sqlx::Row::get::<i64, _>(&rows, 0), 0);
    // The clock was a year ahead, and is right again.
    let late = store.add(&manifest("late", None, Vec::new()), &report("late", 99, &steps[0].tests)).await;
    assert!(!late.unwrap().already);

    sqlx::query("DELETE FROM leak WHERE fingerprint = 'n1-a'").execute(&copy.pool).await.unwrap();
    sqlx::query("DELETE FROM run_column WHERE metric = 'duration'").execute(&copy.pool).await.unwrap();
    let faults = copy.check().await.unwrap();
    assert!(
        faults.contains(&"tiles: 2 rows of leak_line name a leak that is not there".to_owned()),
        "{faults:?}"
    );
    store.close().await;
    copy.close().await;
}

#[test]
fn what_is_kept_can_be_copied_checked_and_ended_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    block_on(upkeep(async |number| sqlite(&folder, &format!("{number}.db")).await, folder.path()));
}

#[test]
fn what_is_kept_can_be_copied_checked_and_ended_in_postgresql() {
    let Some(postgres) = Postgres::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    block_on(upkeep(async |number| postgres.database(&format!("u{number}")).await, folder.path()));
}
