use memgate_model::{Frame, Leak, LeakKind, Metric, Outcome, Per, Verdict};
use memgate_reports::page::StackChange;
use memgate_reports::{Comparison, FigureSide, LeakSide, Side, TestSide};
use proptest::prelude::*;

use super::*;
use crate::view::{
    ArtefactRow, Came, CompareView, EventRow, LeakFilter, LeakOnLine, LeakRow, LeakView, Leaks, Order,
    Overview, Point, RunRow, RunView, Runs, Selection, SightingOf, SightingRow, State, StateFilter, TestRow,
    TestView,
};

const AT_US: i64 = 1_800_000_000_000_000;

/// Every page, with this text in every field.
fn every_page(text: &str) -> Vec<(&'static str, String)> {
    let t = || text.to_owned();
    let selection = Selection {
        project: t(),
        branch: t(),
        environment: t(),
        branches: vec![t(), "main".into()],
        environments: vec![t()],
    };
    let run = RunRow {
        run: 7,
        session: t(),
        branch: t(),
        environment: t(),
        sha: t(),
        dirty: true,
        started_us: AT_US,
        duration_ms: 1500,
        verdict: Verdict::Fail,
        tests: 2,
        failed: 1,
        leaks: 1,
        new_leaks: 1,
        regressed_leaks: 2,
        larger_leaks: 0,
        fixed_leaks: 3,
        target: t(),
    };
    let leak = LeakRow {
        id: t(),
        kind: LeakKind::Native,
        title: t(),
        culprit: t(),
        place: t(),
        owners: vec![t()],
        state: State::New,
        waived: true,
        flaky: true,
        bytes: 48.0,
        count: 1.0,
        rate: 0.5,
        window: vec![false, true],
        first_sha: t(),
        last_sha: t(),
        since_us: AT_US,
        tests: vec![format!("{text}::{text}"), t()],
    };
    let event = EventRow {
        at_us: AT_US,
        kind: t(),
        branch: t(),
        leak: t(),
        test: t(),
        text: t(),
        clean_sha: t(),
        first_sha: t(),
        run: 7,
    };
    let frame =
        Frame { function: Some(t()), file: Some(t()), line: Some(7), module: t(), offset: 1, inlined: true };
    let sighting = SightingRow { run: run.clone(), test: t(), bytes: 48.0, count: 1.0, how: t() };
    let sighted = SightingOf {
        id: t(),
        culprit: t(),
        title: t(),
        state: Some(State::Known),
        test: t(),
        bytes: 48.0,
        count: 1.0,
        how: t(),
    };
    let tested = TestRow {
        suite: t(),
        name: t(),
        outcome: Outcome::Passed,
        verdict: Verdict::Fail,
        reason: t(),
        duration_ms: Some(1250),
        values: vec![(Metric::NativeLiveBytes, 48.0)],
    };
    let point = |value, verdict| Point {
        page: true,
        run: 7,
        sha: t(),
        dirty: true,
        place: 1,
        started_us: AT_US,
        value,
        low: value,
        high: Some(f64::INFINITY),
        allowed: Some(64.0),
        verdict,
    };
    let points = vec![
        point(Some(0.0), Some(Verdict::Pass)),
        point(None, None),
        point(Some(48.0), Some(Verdict::Fail)),
    ];
    let (leaks, events) = (vec![leak.clone()], vec![event]);
    let alive = Overview {
        decided: 20,
        steady: 19,
        selection: selection.clone(),
        alive: leaks.clone(),
        counts: [1, 0, 0, 2, 0],
        fixed_lately: 1,
        flaky: 1,
        runs: vec![run.clone()],
        events: events.clone(),
    };
    let all = Leaks {
        selection: selection.clone(),
        leaks: leaks.clone(),
        of: 3,
        owners: vec![t()],
        suites: vec![t()],
    };
    let filter = LeakFilter { owner: t(), suite: t(), kind: t(), state: StateFilter::Any, text: t() };
    let one = LeakView {
        selection: selection.clone(),
        leak: leak.clone(),
        lines: vec![LeakOnLine { branch: t(), environment: t(), leak }],
        frames: vec![frame],
        holder: Vec::new(),
        hold: None,
        sightings: vec![sighting],
        events: events.clone(),
        came: Some(Came { branch: t(), clean_sha: t(), first_sha: t(), unmeasured: Some(vec![t()]) }),
    };
    let tests = TestView {
        selection: selection.clone(),
        suite: t(),
        name: t(),
        metric: Metric::NativeLiveBytes,
        metrics: vec![Metric::NativeLiveBytes, Metric::OsRss],
        rounded: true,
        points,
        leaks,
        more_leaks: true,
        events,
    };
    let of_run = RunView {
        artefacts: vec![
            ArtefactRow { name: "java_pid7.hprof".to_owned(), bytes: 2048 },
            ArtefactRow { name: crate::artefacts::PAGE.to_owned(), bytes: 1 },
        ],
        selection: selection.clone(),
        run: run.clone(),
        reasons: vec![t()],
        ci_url: t(),
        leaks: vec![sighted],
        more_leaks: false,
        tests: vec![tested],
        of: 3,
        order: Order::Worst,
        find: t(),
        previous: Some(6),
        expired: false,
    };
    let side = |bytes: f64, other: &str| Side {
        session: t(),
        tests: [(format!("{text}::{text}"), bytes), (format!("{text}::{other}"), 0.0)]
            .map(|(name, bytes)| {
                let bounds = (bytes, bytes);
                let figure = FigureSide { value: bytes, bounds, per: Per::Iteration, counts: true };
                let figures = [(Metric::NativeLiveBytes, figure), (Metric::OsFds, figure)].into();
                let leak = LeakSide { id: t(), kind: LeakKind::Native, bytes, line: t(), waived: true };
                let leaks = if bytes > 0.0 { vec![leak] } else { Vec::new() };
                (name, TestSide { figures, leaks, has_no_others: true })
            })
            .into(),
    };
    let stack = Leak {
        id: t(),
        kind: LeakKind::Native,
        title: t(),
        bytes_per_iteration: 48.0,
        count_per_iteration: 1.0,
        frames: one.frames.clone(),
        ..Leak::default()
    };
    let pair = CompareView {
        selection: selection.clone(),
        before: run.clone(),
        after: RunRow { environment: format!("{text} "), ..run.clone() },
        comparison: Comparison::between(&side(48.0, "a"), &side(96.0, "b")),
        stacks: vec![StackChange::of(&stack, 48.0, 96.0), StackChange::of(&stack, 48.0, 0.0)],
    };
    vec![
        ("projects", projects(&[t()], &Own::SignedIn { name: t(), form: t() })),
        ("login", login(&t(), Some(&t()))),
        ("not found", not_found(&t(), Some(&t()))),
        ("compare", super::compare(&pair)),
        ("problem", problem(text, text)),
        ("overview", overview(&alive)),
        ("runs", runs(&Runs { selection, runs: vec![run], before: Some(5) })),
        ("run", super::run(&of_run)),
        ("leaks", super::leaks(&all, &filter)),
        ("leak", super::leak(&one)),
        ("test", super::test(&tests)),
    ]
}

/// The text of a page, without markup.
fn read(page: &str) -> String {
    let mut text = String::new();
    let mut inside = false;
    for c in page.chars() {
        match c {
            '<' => {
                inside = true;
                text.push(' ');
            }
            '>' => inside = false,
            c if !inside => text.push(c),
            _ => {}
        }
    }
    text.lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn pages_say_what_a_person_needs() {
    let pages: Vec<_> =
        every_page("tiles").into_iter().map(|(name, page)| format!("── {name}\n{}", read(&page))).collect();
    insta::assert_snapshot!(pages.join("\n\n"));
}

/// Tags of a page: any text must give the same tags as a harmless one.
fn tags(page: &str) -> Vec<String> {
    page.split('<').skip(1).map(|tag| tag.split(['>', ' ']).next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn no_name_becomes_markup_or_an_address_of_its_own() {
    let harmless = every_page("tiles");
    for text in [
        "<script>alert(1)</script>",
        "\" onload=\"x",
        "'><img src=x onerror=x>",
        "javascript:alert(1)",
        "..",
        "&lt;",
        "\u{202e}x\0",
    ] {
        for ((name, page), (_, plain)) in every_page(text).iter().zip(&harmless) {
            assert_eq!(tags(page), tags(plain), "{name} with {text}");
            assert!(
                !page.contains("href=\"javascript:") && !page.contains("href=\"..") && !page.contains("/../"),
                "{name} with {text}"
            );
        }
    }
}

/// Regression: the command accepted every thread of every test.
#[test]
fn an_id_that_names_only_a_kind_is_accepted_in_its_tests_only() {
    let row = |kind| LeakRow {
        id: "o1-7".to_owned(),
        kind,
        title: "1 × thread".to_owned(),
        culprit: "thread".to_owned(),
        place: String::new(),
        owners: Vec::new(),
        state: State::Known,
        waived: false,
        flaky: false,
        bytes: 0.0,
        count: 1.0,
        rate: 1.0,
        window: vec![true],
        first_sha: String::new(),
        last_sha: String::new(),
        since_us: 0,
        tests: ["engine::", "engine::Map.scroll", "engine::Map.zoom[*]"].map(str::to_owned).into(),
    };
    let frame = |module: &str| Frame { module: module.to_owned(), ..Frame::default() };
    let commands = |kind, frames: Vec<Frame>| {
        let page = super::leak(&LeakView {
            selection: Selection { project: "p".to_owned(), ..Selection::default() },
            leak: row(kind),
            lines: Vec::new(),
            frames,
            holder: Vec::new(),
            hold: None,
            sightings: Vec::new(),
            events: Vec::new(),
            came: None,
        });
        let commands = page.split("memgate waive ").skip(1);
        commands.map(|rest| rest.split(" --reason").next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let in_tests = ["o1-7 --test engine::Map.scroll", "o1-7 --test &#39;engine::Map.zoom[?]&#39;"];
    assert_eq!(commands(LeakKind::Os, Vec::new()), in_tests);
    assert_eq!(commands(LeakKind::Os, vec![frame("")]), in_tests, "a thread of Java");
    assert_eq!(commands(LeakKind::Os, vec![frame(""), frame("engine")]), ["o1-7"]);
    assert_eq!(commands(LeakKind::Native, Vec::new()), ["o1-7"]);
}

#[test]
fn no_id_of_a_leak_becomes_a_command() {
    let pages = every_page("n1-$(x)");
    let (_, page) = pages.iter().find(|(name, _)| *name == "leak").unwrap();
    for command in ["memgate waive &#39;n1-$(x)&#39; --reason", "memgate bisect &#39;n1-$(x)&#39;<"] {
        assert!(page.contains(command), "{command}: {page}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_name_leaves_the_markup_as_it_is(text in "[^:]{1,40}") {
        // A test without `::` has no page of its own, which this test does not check.
        let count = |page: &str| tags(page).into_iter().filter(|tag| tag == "script" || tag == "img" || tag == "iframe").count();
        for (name, page) in every_page(&text) {
            prop_assert_eq!(count(&page), 0, "{}", name);
        }
    }
}

#[test]
fn a_page_full_of_leaks_has_less_than_300_kb() {
    let pages = every_page("MapCache.insert");
    let (_, page) = pages.iter().find(|(name, _)| *name == "leaks").unwrap();
    let row = page.find("</tbody>").unwrap() - page.rfind("<tr><td>").unwrap();
    let most = (page.len() - row) + row * crate::store::MOST_LEAKS;
    assert!(most < 300_000, "{most} bytes");
}
