//! Evidence that a leak is fixed, gone, or in its place, and what is no evidence.

use memgate_model::Hunt;

use super::*;

/// Commits of main, one after the other, in their own database file.
struct Story {
    store: Store,
    commit: usize,
    folder: tempfile::TempDir,
}

type Tests<'t> = [(&'t str, Option<Vec<&'t str>>)];

impl Story {
    async fn begin() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = sqlite(&folder, "h.db").await;
        Self { store, commit: 0, folder }
    }

    /// Adds the next commit with one run, changed by `edit`; returns the leaks of main.
    async fn next(&mut self, tests: &Tests<'_>, edit: impl Fn(&mut Manifest, &mut RunReport)) -> Vec<String> {
        self.commit += 1;
        self.again(tests, edit).await
    }

    /// Adds another run of that commit.
    async fn again(&self, tests: &Tests<'_>, edit: impl Fn(&mut Manifest, &mut RunReport)) -> Vec<String> {
        let commit = on_main(self.commit);
        let session = format!("{}-{}", self.commit, self.runs().await);
        let ancestors = if self.commit > 1 { vec![sha(self.commit - 1)] } else { Vec::new() };
        let mut manifest = manifest(&session, Some(commit), ancestors);
        let mut report = report(&session, self.commit, tests);
        edit(&mut manifest, &mut report);
        self.store.add(&manifest, &report).await.unwrap();
        let (leaks, _) = told(&self.store, "main").await;
        let state = |leak: &String| leak.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        leaks.iter().map(state).collect()
    }

    async fn runs(&self) -> usize {
        let choice = of_line("main");
        self.store.runs("tiles", &choice, None).await.unwrap().map_or(0, |runs| runs.runs.len())
    }
}

fn as_it_is(_: &mut Manifest, _: &mut RunReport) {}

fn partial(manifest: &mut Manifest, _: &mut RunReport) {
    manifest.partial = true;
}

fn clean() -> Option<Vec<&'static str>> {
    Some(Vec::new())
}

fn leak() -> Option<Vec<&'static str>> {
    Some(vec!["n1-a"])
}

#[test]
fn a_leak_is_fixed_where_each_test_that_had_it_was_judged_without_it() {
    block_on(async {
        let mut story = Story::begin().await;
        story.next(&[("A.one", leak()), ("A.two", leak())], as_it_is).await;
        let still = ["n1-a New"];
        assert_eq!(story.next(&[("A.one", None), ("A.two", clean())], as_it_is).await, still, "one failed");
        assert_eq!(story.next(&[("A.two", clean())], partial).await, still, "one was filtered out");
        assert_eq!(
            story.again(&[("A.one", clean())], partial).await,
            ["n1-a Fixed"],
            "two parts of a commit"
        );
        let mut story = Story::begin().await;
        story.next(&[("A.one", leak()), ("A.two", leak())], as_it_is).await;
        assert_eq!(story.next(&[("A.two", clean())], as_it_is).await, ["n1-a Fixed"], "one is no more");
    });
}

#[test]
fn only_the_tests_that_had_the_leak_last_are_asked_for() {
    block_on(async {
        let mut story = Story::begin().await;
        story.next(&[("A.one", leak()), ("A.two", leak())], as_it_is).await;
        story.next(&[("A.one", clean()), ("A.two", leak())], as_it_is).await;
        assert_eq!(story.next(&[("A.one", None), ("A.two", clean())], as_it_is).await, ["n1-a Fixed"]);
        let mut story = Story::begin().await;
        story.next(&[("A.one", leak()), ("A.two", leak())], as_it_is).await;
        story.next(&[("A.one", leak())], as_it_is).await;
        let still = ["n1-a Known"];
        assert_eq!(story.next(&[("A.two", None)], as_it_is).await, still, "the other one failed");
        assert_eq!(story.next(&[("A.two", clean())], as_it_is).await, ["n1-a Fixed"]);
    });
}

#[test]
fn a_leak_that_its_test_is_allowed_is_alive() {
    block_on(async {
        let mut story = Story::begin().await;
        story.next(&[("A.one", leak()), ("A.two", clean())], as_it_is).await;
        let allow = |_: &mut Manifest, report: &mut RunReport| {
            let figure = report.suites[0].tests[0].metrics.get_mut(&Metric::NativeLiveBytes).unwrap();
            (figure.value, figure.low) = (7.0, 7.0);
            figure.threshold.as_mut().unwrap().limit = 1024.0;
        };
        assert_eq!(story.next(&[("A.one", clean()), ("A.two", clean())], allow).await, ["n1-a New"]);
        assert_eq!(story.next(&[("A.one", clean()), ("A.two", clean())], as_it_is).await, ["n1-a Fixed"]);
    });
}

#[test]
fn a_run_that_looks_less_closely_than_those_that_saw_a_leak_does_not_say_that_it_is_fixed() {
    let sampled =
        |_: &mut Manifest, report: &mut RunReport| report.suites[0].native_sampling = Some(512 << 10);
    let hunted = |_: &mut Manifest, report: &mut RunReport| report.suites[0].hunt = Some(Hunt::default());
    block_on(async {
        let mut story = Story::begin().await;
        story.next(&[("A.one", leak())], hunted).await;
        assert_eq!(story.next(&[("A.one", clean())], as_it_is).await, ["n1-a New"], "seen by a hunt alone");
        assert_eq!(story.next(&[("A.one", clean())], hunted).await, ["n1-a Fixed"]);
        let mut story = Story::begin().await;
        story.next(&[("A.one", leak())], as_it_is).await;
        assert_eq!(story.next(&[("A.one", clean())], sampled).await, ["n1-a New"], "seen without samples");
        assert_eq!(story.next(&[("A.one", clean())], as_it_is).await, ["n1-a Fixed"]);
        let mut story = Story::begin().await;
        story.next(&[("A.one", leak())], sampled).await;
        assert_eq!(story.next(&[("A.one", clean())], sampled).await, ["n1-a Fixed"], "seen by samples");
        // They are bases of reviews like any others.
        let wanted = read_base::Wanted {
            branch: "main".into(),
            environment: manifest("", None, Vec::new()).environment,
            commits: vec![sha(story.commit)],
        };
        assert_eq!(story.store.base("tiles", &wanted).await.unwrap().unwrap().base.before, 0);
    });
}

/// Regression: with `--no-confirm` a rare leak beside one that always shows was fixed.
#[test]
fn one_execution_of_a_test_that_leaks_does_not_show_that_its_other_leaks_are_fixed() {
    let not_repeated = |_: &mut Manifest, report: &mut RunReport| {
        let test = &mut report.suites[0].tests[0];
        (test.verdict, test.confirmed) = (Verdict::Warn, false);
    };
    block_on(async {
        let mut story = Story::begin().await;
        story.next(&[("A.one", Some(vec!["n1-a", "n1-b"]))], as_it_is).await;
        assert_eq!(story.next(&[("A.one", leak())], not_repeated).await, ["n1-a Known", "n1-b New"]);
        let exceeds = |metric| {
            move |manifest: &mut Manifest, report: &mut RunReport| {
                not_repeated(manifest, report);
                let limit = Threshold { limit: 0.0, level: Level::Fail, source: ThresholdSource::Default };
                let figure = MetricValue::exact(7.0, metric, Per::Test);
                let figure = MetricValue { threshold: Some(limit), ..figure };
                report.suites[0].tests[0].metrics = [(metric, figure)].into();
            }
        };
        let of_process = exceeds(Metric::OsRss);
        assert_eq!(story.next(&[("A.one", leak())], of_process).await, ["n1-a Known", "n1-b New"]);
        let of_one_execution = exceeds(Metric::NativeLiveBytes);
        assert_eq!(story.next(&[("A.one", leak())], of_one_execution).await, ["n1-a Known", "n1-b Fixed"]);
    });
}

/// Regression: `ctest -R '^a$'` after `ctest`, if `a` and `b` run one program.
#[test]
fn a_build_that_leaves_out_runs_of_a_program_fixes_only_leaks_that_the_same_command_saw() {
    let selected =
        |number: i64| move |manifest: &mut Manifest, _: &mut RunReport| manifest.selection = number;
    let [one, two] = ["-R a", "-R b"].map(|it| memgate_history::number_of_selection(&[it.to_owned()]));
    block_on(async {
        let mut story = Story::begin().await;
        story.next(&[("p", leak())], as_it_is).await;
        assert_eq!(story.next(&[("p", clean())], selected(one)).await, ["n1-a New"], "it leaks in `b`");
        assert_eq!(story.next(&[("p", leak())], selected(two)).await, ["n1-a Known"]);
        assert_eq!(story.next(&[("p", clean())], selected(one)).await, ["n1-a Known"]);
        assert_eq!(story.next(&[("p", clean())], selected(two)).await, ["n1-a Fixed"], "the same command");
        let mut story = Story::begin().await;
        story.next(&[("p", leak())], as_it_is).await;
        story.again(&[("p", leak())], selected(two)).await;
        assert_eq!(story.next(&[("p", clean())], selected(two)).await, ["n1-a New"], "others saw it, too");
        refold(&story.store).await;
        assert_eq!(story.next(&[("p", clean())], as_it_is).await, ["n1-a Fixed"]);
        let mut story = Story::begin().await;
        story.next(&[("p", leak())], selected(one)).await;
        story.again(&[("p", leak())], selected(two)).await;
        assert_eq!(story.next(&[("p", clean())], selected(one)).await, ["n1-a New"]);
        assert_eq!(story.again(&[("p", clean())], selected(two)).await, ["n1-a Fixed"], "both commands");
        // Each test is asked for its own command.
        let mut story = Story::begin().await;
        story.next(&[("p", leak())], selected(one)).await;
        story.again(&[("q", leak())], selected(two)).await;
        assert_eq!(story.next(&[("p", clean())], selected(one)).await, ["n1-a New"]);
        assert_eq!(story.again(&[("q", clean())], selected(two)).await, ["n1-a Fixed"]);
        // Other tests of the commit prove nothing about the ones that the command left out.
        let mut story = Story::begin().await;
        story.next(&[("p", leak())], as_it_is).await;
        let filtered = |manifest: &mut Manifest, _: &mut RunReport| manifest.partial = true;
        story.next(&[("q", clean())], filtered).await;
        assert_eq!(story.again(&[("p", clean())], selected(one)).await, ["n1-a New"]);
        // The command that does not show the leak of its commit does not contradict the one that does.
        let mut story = Story::begin().await;
        story.next(&[("p", leak())], as_it_is).await;
        story.again(&[("p", clean())], selected(one)).await;
        assert_eq!(story.next(&[("p", clean())], as_it_is).await, ["n1-a Fixed"], "it is not flaky");
    });
}

#[test]
fn repeated_tests_show_that_their_other_leaks_are_fixed() {
    block_on(async {
        let mut story = Story::begin().await;
        story.next(&[("A.one", Some(vec!["n1-a", "n1-b"]))], as_it_is).await;
        assert_eq!(story.next(&[("A.one", leak())], as_it_is).await, ["n1-a Known", "n1-b Fixed"]);
    });
}

#[test]
fn the_leaks_of_a_suite_that_is_no_more_are_gone_after_three_commits() {
    block_on(async {
        let mut story = Story::begin().await;
        let other = |_: &mut Manifest, report: &mut RunReport| report.suites[0].name = "other".into();
        let part = |manifest: &mut Manifest, report: &mut RunReport| {
            manifest.partial = true;
            other(manifest, report);
        };
        story.next(&[("A.one", leak())], as_it_is).await;
        story.next(&[("B.b", clean())], other).await;
        story.next(&[("B.b", clean())], other).await;
        assert_eq!(story.next(&[("B.b", clean())], part).await, ["n1-a New"], "a part of the tests");
        assert_eq!(story.again(&[("B.b", clean())], part).await, ["n1-a New"]);
        assert_eq!(story.next(&[("B.b", clean())], other).await, ["n1-a Gone"]);
    });
}

/// Regression test: `memgate run -- ./a` and three times `memgate run -- ./b` said that the leaks of `a` are gone.
#[test]
fn runs_of_another_program_with_uncommitted_changes_do_not_show_that_a_suite_is_no_more() {
    block_on(async {
        let mut story = Story::begin().await;
        let other = |manifest: &mut Manifest, report: &mut RunReport| {
            manifest.dirty = true;
            report.suites[0].name = "other".into();
        };
        story.next(&[("A.one", leak())], as_it_is).await;
        for _ in 0..4 {
            assert_eq!(story.next(&[("B.b", clean())], other).await, ["n1-a New"]);
        }
    });
}

#[test]
fn a_clock_that_is_ahead_does_not_keep_its_run_the_newest() {
    block_on(async {
        let mut story = Story::begin().await;
        for (tests, started) in [(clean(), Some("2036-01-01T00:00:00Z")), (leak(), None)] {
            story.commit += 1;
            let session = format!("s{}", story.commit);
            let mut report = report(&session, story.commit, &[("A.one", tests)]);
            report.started = started.map_or_else(|| jiff::Timestamp::now().to_string(), str::to_owned);
            story.store.add(&manifest(&session, None, Vec::new()), &report).await.unwrap();
        }
        assert_eq!(told(&story.store, "").await.0, ["n1-a New -..- flaky=false 2"]);
        // Values that an older program stored unchecked are corrected when the database is opened.
        for statement in [
            "UPDATE run SET started_us = 4000000000000000",
            "DROP TABLE secret",
            "DROP TABLE run_reason",
            "DELETE FROM memgate_schema WHERE version >= 4",
        ] {
            sqlx::query(statement).execute(&story.store.pool).await.unwrap();
        }
        let again = sqlite(&story.folder, "h.db").await;
        let runs = again.runs("tiles", &Choice::default(), None).await.unwrap().unwrap().runs;
        let now = jiff::Timestamp::now().as_microsecond();
        assert!(runs.len() == 2 && runs.iter().all(|run| run.started_us <= now), "{runs:?}");
    });
}

#[test]
fn a_leak_that_only_reviews_saw_has_a_page() {
    block_on(async {
        let mut story = Story::begin().await;
        story.next(&[("A.one", clean())], as_it_is).await;
        let review = |manifest: &mut Manifest, _: &mut RunReport| {
            let commit = manifest.commit.as_mut().unwrap();
            (commit.branch, commit.target) = ("fix".into(), "main".into());
        };
        story.commit = 9;
        assert_eq!(story.again(&[("A.one", leak())], review).await, [""; 0]);
        let view = story.store.leak("tiles", &Choice::default(), "n1-a").await.unwrap().unwrap();
        assert_eq!((view.lines.len(), view.sightings.len(), view.leak.bytes), (0, 1, 7.0));
        assert_eq!((view.leak.tests.as_slice(), view.frames.len()), (&["engine::A.one".to_owned()][..], 1));
        assert!(crate::text::leak(&view).contains("in reviews, or in uncommitted changes"), "{view:?}");
        assert!(crate::pages::leak(&view).contains("in reviews, or in uncommitted changes"));
        assert!(story.store.leak("tiles", &Choice::default(), "n1-b").await.unwrap().is_none());
    });
}

/// Adds a test whose name cannot be read. It represents the many former tests of a project, which must not be read.
#[test]
fn tests_that_a_run_does_not_have_are_not_read_for_it() {
    block_on(async {
        let mut story = Story::begin().await;
        story.next(&[("A.one", leak()), ("A.two", clean())], as_it_is).await;
        let odd = "INSERT INTO test SELECT project_id, 1, x'ff', x'ff' FROM project";
        sqlx::query(odd).execute(&story.store.pool).await.unwrap();
        assert_eq!(story.next(&[("A.two", clean()), ("A.new", clean())], as_it_is).await, ["n1-a Gone"]);
        let choice = of_line("main");
        let runs = story.store.runs("tiles", &choice, None).await.unwrap().unwrap().runs;
        let shown = story.store.run("tiles", runs[0].run, Order::Worst, "").await.unwrap().unwrap();
        let names: Vec<_> = shown.tests.iter().map(|test| test.name.as_str()).collect();
        assert_eq!(names, ["A.new", "A.two"]);
        assert!(story.store.compare("tiles", runs[1].run, runs[0].run).await.unwrap().is_some());
        assert!(story.store.series("tiles", &choice).await.unwrap().is_some());
    });
}

/// Regression: the commits between were those before the leak's first time, so that a leak that came back without a
/// long gap was said to have come with the commit after the last clean one.
#[test]
fn a_leak_that_came_back_names_the_commits_of_its_return_that_nobody_measured() {
    let folder = tempfile::tempdir().unwrap();
    let came = async |name: &str, shorts: &[Short<'_>]| {
        let store = sqlite(&folder, name).await;
        for short in shorts {
            add_short(&store, short).await;
        }
        let choice = of_line("main");
        store.leak("tiles", &choice, "n1-a").await.unwrap().unwrap()
    };
    let (leaks, clean) = (|| vec![("A.one", leak())], || vec![("A.one", clean())]);
    block_on(async {
        // The oldest commit is measured last: its events come last all the same.
        let view = came(
            "full",
            &[(3, &[2, 1], 0, clean()), (8, &[7, 6, 5, 4, 3], 1, leaks()), (1, &[], 2, leaks())],
        )
        .await;
        let kinds: Vec<_> = view.events.iter().map(|event| event.kind.as_str()).collect();
        assert_eq!(kinds, ["regressed", "fixed", "new"]);
        let expected = crate::view::Came {
            branch: "main".into(),
            clean_sha: sha(3),
            first_sha: sha(8),
            unmeasured: None,
        };
        let between = Some([4, 5, 6, 7].map(sha).to_vec());
        assert_eq!(view.came, Some(crate::view::Came { unmeasured: between, ..expected.clone() }));
        let shallow =
            came("shallow", &[(1, &[], 0, leaks()), (3, &[], 1, clean()), (8, &[], 2, leaks())]).await;
        assert_eq!(shallow.came, Some(expected), "clones of depth 1 do not tell what is in between");
    });
}

/// Regression: the waiver of such a leak never became stale.
#[test]
fn a_fix_that_uncommitted_changes_showed_has_the_name_of_the_commit_that_confirms_it() {
    block_on(async {
        let dirty = |manifest: &mut Manifest, _: &mut RunReport| manifest.dirty = true;
        let mut story = Story::begin().await;
        story.next(&[("A.one", leak()), ("A.two", clean())], as_it_is).await;
        assert_eq!(story.again(&[("A.one", clean())], dirty).await, ["n1-a Fixed"]);
        story.next(&[("A.one", None), ("A.two", clean())], as_it_is).await;
        let base = async |story: &Story| {
            let environment = Environment([("architecture".to_owned(), "x86_64".to_owned())].into());
            let wanted = Wanted { branch: "main".into(), environment, commits: vec![sha(story.commit)] };
            let base = story.store.base("tiles", &wanted).await.unwrap().unwrap();
            (base.leaks["n1-a"].alive, base.leaks["n1-a"].fixed.clone())
        };
        assert_eq!(base(&story).await, (false, String::new()), "its test failed: nobody confirms it");
        for _ in 0..2 {
            story.next(&[("A.one", clean()), ("A.two", clean())], as_it_is).await;
            assert_eq!(base(&story).await, (false, sha(3)));
        }
        let came = story.next(&[("A.one", leak()), ("A.two", clean())], as_it_is).await;
        assert_eq!(came, ["n1-a Regressed"]);
    });
}

/// Regression: after two such runs the leak seemed to have come with the newest commit.
#[test]
fn a_leak_that_uncommitted_changes_showed_came_with_the_first_commit_that_has_it() {
    block_on(async {
        let dirty = |manifest: &mut Manifest, _: &mut RunReport| manifest.dirty = true;
        let mut story = Story::begin().await;
        story.next(&[("A.one", clean())], as_it_is).await;
        for _ in 0..2 {
            story.again(&[("A.one", leak())], dirty).await;
        }
        for _ in 0..3 {
            story.next(&[("A.one", leak())], as_it_is).await;
        }
        let choice = of_line("main");
        let came = story.store.leak("tiles", &choice, "n1-a").await.unwrap().unwrap().came.unwrap();
        assert_eq!((came.clean_sha, came.first_sha), (sha(1), sha(2)));
    });
}

/// Regression: the leak stayed fixed, and the leaks of the changes alive, until the next commit.
#[test]
fn uncommitted_changes_that_were_taken_back_fix_and_leak_nothing() {
    block_on(async {
        let dirty = |manifest: &mut Manifest, _: &mut RunReport| manifest.dirty = true;
        let mut story = Story::begin().await;
        story.next(&[("A.one", leak()), ("A.two", None)], as_it_is).await;
        let changed = [("A.one", clean()), ("A.two", Some(vec!["n1-b"]))];
        assert_eq!(story.again(&changed, dirty).await, ["n1-a Fixed", "n1-b New"]);
        let part = [("A.two", None)];
        assert_eq!(
            story.again(&part, partial).await,
            ["n1-a New", "n1-b New"],
            "nobody judged the other one"
        );
        assert_eq!(story.again(&changed, dirty).await, ["n1-a Fixed", "n1-b Known"], "they are back");
        let still = ["n1-a New"];
        assert_eq!(story.again(&[("A.one", leak()), ("A.two", clean())], as_it_is).await, still);
        let choice = of_line("main");
        let runs = story.store.runs("tiles", &choice, None).await.unwrap().unwrap().runs;
        let fixed: Vec<_> = runs.iter().map(|run| run.fixed_leaks + run.new_leaks).collect();
        assert_eq!(fixed.iter().sum::<u64>(), 1, "the commit's own leak: {fixed:?}");
        let view = story.store.leak("tiles", &choice, "n1-b").await.unwrap().unwrap();
        assert!(
            view.events.is_empty() && crate::text::leak(&view).contains("changes that are gone"),
            "{view:?}"
        );
        assert_eq!(story.next(&[("A.one", clean()), ("A.two", clean())], as_it_is).await, ["n1-a Fixed"]);
    });
}

/// Regression: they were taken for newer than all commits, and fixed and brought back what came with later ones.
#[test]
fn changes_to_an_old_commit_are_not_newer_than_later_commits() {
    block_on(async {
        let dirty = |manifest: &mut Manifest, report: &mut RunReport| {
            manifest.dirty = true;
            report.started = jiff::Timestamp::now().to_string();
        };
        let mut story = Story::begin().await;
        story.next(&[("A.one", clean()), ("A.two", Some(vec!["n1-b"]))], as_it_is).await;
        story.next(&[("A.one", leak()), ("A.two", clean())], as_it_is).await;
        let states = story.next(&[("A.one", leak()), ("A.two", clean())], as_it_is).await;
        assert_eq!(states, ["n1-a Known", "n1-b Fixed"]);
        story.commit = 1;
        let old = [("A.one", clean()), ("A.two", Some(vec!["n1-b"]))];
        assert_eq!(story.again(&old, dirty).await, states);
        let runs = story.store.runs("tiles", &of_line("main"), None).await.unwrap().unwrap().runs;
        let shown: Vec<_> = runs.iter().map(|run| (run.sha.clone(), run.dirty)).collect();
        assert_eq!(shown, [(sha(3), false), (sha(2), false), (sha(1), true), (sha(1), false)]);
    });
}

#[test]
fn a_run_with_uncommitted_changes_is_marked_in_lists_and_curves() {
    block_on(async {
        let dirty = |manifest: &mut Manifest, _: &mut RunReport| manifest.dirty = true;
        let mut story = Story::begin().await;
        story.next(&[("A.one", leak())], as_it_is).await;
        story.again(&[("A.one", clean())], dirty).await;
        let choice = of_line("main");
        let runs = story.store.runs("tiles", &choice, None).await.unwrap().unwrap();
        assert_eq!(runs.runs.iter().map(|run| run.dirty).collect::<Vec<_>>(), [true, false]);
        let short = memgate_model::short_commit(&sha(1)).to_owned();
        let marked = format!("{short} + changes");
        let test = story.store.test("tiles", &choice, "engine", "A.one", None).await.unwrap().unwrap();
        let leak = story.store.leak("tiles", &choice, "n1-a").await.unwrap().unwrap();
        for (text, is_marked) in [
            (crate::text::runs(&runs), true),
            (crate::pages::runs(&runs), true),
            (crate::text::test(&test), true),
            (crate::pages::test(&test), true),
            (crate::pages::leak(&leak), false),
        ] {
            assert!(text.contains(&short) && text.contains(&marked) == is_marked, "{text}");
        }
    });
}

/// Regression: the overview said "0 fixed" and "1 fixed in the last 30 days" of a leak that was back.
#[test]
fn a_leak_that_is_back_is_not_one_of_the_fixed_ones() {
    block_on(async {
        let mut story = Story::begin().await;
        let choice = of_line("main");
        for (leaks, fixed) in [(leak(), 0), (clean(), 1), (leak(), 0)] {
            let now = |_: &mut Manifest, report: &mut RunReport| {
                report.started = jiff::Timestamp::now().to_string();
            };
            story.next(&[("A.one", leaks)], now).await;
            let overview = story.store.overview("tiles", &choice).await.unwrap().unwrap();
            assert_eq!((overview.counts[3], overview.fixed_lately), (fixed, fixed));
        }
    });
}

/// Regression: as soon as it was fixed or gone, it counted as steady.
#[test]
fn a_leak_that_came_and_went_is_not_steady_when_it_is_gone() {
    block_on(async {
        let mut story = Story::begin().await;
        let choice = of_line("main");
        for one in [leak(), clean(), leak(), clean(), leak()] {
            story.next(&[("A.one", one), ("A.two", Some(vec!["n1-b"]))], as_it_is).await;
        }
        let states = story.next(&[("A.three", clean())], as_it_is).await;
        assert_eq!(states, ["n1-a Gone", "n1-b Gone"]);
        let overview = story.store.overview("tiles", &choice).await.unwrap().unwrap();
        assert_eq!((overview.decided, overview.steady, overview.flaky), (2, 1, 0));
    });
}

/// Regression: it had the title and the stack of whichever run was received last.
#[test]
fn a_leak_looks_as_in_the_last_commit_that_saw_it() {
    block_on(async {
        let mut story = Story::begin().await;
        let titled = |title: &'static str| {
            move |_: &mut Manifest, report: &mut RunReport| {
                report.suites[0].tests[0].leaks[0].title = title.to_owned();
            }
        };
        story.next(&[("A.one", leak())], titled("1 × 1 B")).await;
        story.next(&[("A.one", leak())], titled("1 × 2 B")).await;
        story.next(&[("A.one", leak())], titled("1 × 3 B")).await;
        story.commit = 2;
        story.again(&[("A.one", leak())], titled("1 × 4 B")).await;
        let choice = of_line("main");
        let view = story.store.leak("tiles", &choice, "n1-a").await.unwrap().unwrap();
        assert_eq!(view.leak.title, "1 × 3 B");
    });
}

/// Regression: its rate is that of a leak which comes and goes.
#[test]
fn a_leak_that_was_fixed_twice_is_steady() {
    block_on(async {
        let choice = of_line("main");
        for clean_and_leaking in [&[0, 12, 4, 12, 4][..], &[12, 20, 1, 20, 4]] {
            let mut story = Story::begin().await;
            for (look, commits) in [clean(), leak()].iter().cycle().zip(clean_and_leaking) {
                for _ in 0..*commits {
                    story.next(&[("A.one", look.clone())], as_it_is).await;
                }
            }
            let overview = story.store.overview("tiles", &choice).await.unwrap().unwrap();
            assert_eq!(
                (overview.counts[3], overview.decided, overview.steady),
                (1, 1, 1),
                "{clean_and_leaking:?}"
            );
        }
    });
}

#[test]
fn a_line_without_a_branch_has_a_name_and_is_not_the_first_choice() {
    block_on(async {
        let mut story = Story::begin().await;
        story.next(&[("A.one", clean())], as_it_is).await;
        let detached = |manifest: &mut Manifest, _: &mut RunReport| {
            manifest.commit.as_mut().unwrap().branch.clear();
        };
        story.next(&[("A.one", leak())], detached).await;
        let shown = async |branch: &str| {
            let choice = of_line(branch);
            story.store.leaks("tiles", &choice, &LeakFilter::default()).await.unwrap().unwrap()
        };
        let first = shown("").await;
        assert_eq!((first.selection.branch.as_str(), first.of), ("main", 0));
        assert_eq!(first.selection.branches, ["main", NO_BRANCH]);
        let other = shown(NO_BRANCH).await;
        assert_eq!((other.selection.branch.as_str(), other.of), (NO_BRANCH, 1));
        assert_eq!(shown("main").await.selection.branches, first.selection.branches);
    });
}

/// Regression: the leak then looked like the one-time cost, without its holder and its owners.
#[test]
fn what_a_fixed_leak_s_stack_keeps_once_does_not_change_how_the_leak_looked() {
    block_on(async {
        let mut story = Story::begin().await;
        let owned = |_: &mut Manifest, report: &mut RunReport| {
            report.suites[0].tests[0].leaks[0].owners = vec!["@maps".into()];
        };
        story.next(&[("A.one", leak())], owned).await;
        let once = |_: &mut Manifest, report: &mut RunReport| {
            let test = &mut report.suites[0].tests[0];
            test.one_time = vec![Leak { id: "n1-a".into(), title: "1 × 72 B".into(), ..Leak::default() }];
        };
        assert_eq!(story.next(&[("A.one", clean())], once).await, ["n1-a Fixed"]);
        let choice = of_line("main");
        let view = story.store.leak("tiles", &choice, "n1-a").await.unwrap().unwrap();
        assert_eq!((view.leak.title.as_str(), view.leak.owners), ("1 × 7 B", vec!["@maps".to_owned()]));
        let runs = story.store.runs("tiles", &choice, None).await.unwrap().unwrap().runs;
        let columns: Vec<_> = runs.iter().map(|run| (run.leaks, run.new_leaks, run.fixed_leaks)).collect();
        assert_eq!(columns, [(0, 0, 1), (1, 1, 0)], "what it keeps once is no leak of the run");
        story.next(&[("A.one", leak())], owned).await;
        let runs = story.store.runs("tiles", &choice, None).await.unwrap().unwrap().runs;
        assert_eq!((runs[0].new_leaks, runs[0].regressed_leaks, runs[0].fixed_leaks), (0, 1, 0));
    });
}
