//! The run in one line, and the reasons for its verdict, the worst first: every report begins with these.

use memgate_model::{
    Leak, Outcome, Per, RunReport, SuiteReport, TestReport, Verdict, WaiverReport, format_number_of,
};

use crate::culprit;
use crate::figures::{GAP, figure_of, suite_figures, test_figures};
use crate::suite_test::SuiteTest;
use crate::visible::visible;
use crate::words::own_outcome;
use crate::worst::not_passed;

/// Most reasons that are listed; the others are counted.
const MAX_REASONS: usize = 10;

/// A test, a suite or a place with its problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reason {
    pub(crate) verdict: Verdict,
    pub(crate) name: String,
    pub(crate) text: String,
    /// For a test, its anchor in the page.
    pub(crate) anchor: Option<String>,
}

/// `17 of 35 tests leak, 1 to look at`.
pub(crate) fn headline(report: &RunReport) -> String {
    let counts = Counts::of(report);
    let mut text = counts.leaking(report);
    let over = report.suites.iter().filter(|suite| suite_figures(suite).1 == Some(Verdict::Fail)).count();
    // A failure must not begin with "no leak".
    for (count, of, what) in
        [(over, "suite", "over the threshold"), (counts.dumps, "heap dump", "with leaks")]
    {
        if count > 0 {
            text = format!("{} {what}, {text}", format_number_of(count, of));
        }
    }
    let with = |verdict| report.entries().filter(|entry| entry.verdict == verdict).count();
    let fails_itself = |test: &TestReport| {
        test.verdict == Verdict::NotJudged && !matches!(test.outcome, Outcome::Skipped | Outcome::Passed)
    };
    for (count, what) in [
        (with(Verdict::Error), "not measured"),
        (with(Verdict::Warn), "to look at"),
        (counts.known, "with leaks that the base has too"),
        (counts.waived, "with waived leaks"),
        (counts.allowed, "with an allowed amount left"),
        (if counts.judged { tests(report, is_unscreened) } else { 0 }, "not judged"),
        (tests(report, fails_itself), "failed by itself"),
        (tests(report, |test| test.outcome == Outcome::Skipped), "skipped"),
    ] {
        if count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    let warns = report.suites.iter().filter(|suite| suite.own_verdict == Some(Verdict::Warn)).count();
    if warns > 0 {
        text += &format!(", {} to look at", format_number_of(warns, "suite"));
    }
    if report.verdict == Verdict::Error && with(Verdict::Error) == 0 && counts.tests > 0 {
        text += ", not everything was measured";
    }
    text + &crate::base::of_run(report)
}

/// Number of these tests, without test classes.
fn tests(report: &RunReport, is: impl Fn(&TestReport) -> bool) -> usize {
    report.entries().filter(|entry| !entry.is_class && is(entry)).count()
}

/// How many tests and other entries of a report leak.
struct Counts {
    tests: usize,
    /// Whether anything was judged.
    judged: bool,
    passed: usize,
    failed: usize,
    /// Test classes that leak as a whole.
    classes: usize,
    /// Heap dumps with leaks.
    dumps: usize,
    /// With leaks that the base has too.
    known: usize,
    /// With waived leaks.
    waived: usize,
    /// With leaks that their thresholds allow.
    allowed: usize,
}

impl Counts {
    fn of(report: &RunReport) -> Self {
        let failing = || report.entries().filter(|entry| entry.verdict == Verdict::Fail);
        let failed = failing().filter(|entry| !entry.is_class).count();
        let dumps = failing().filter(|entry| entry.is_heap_dump()).count();
        let leaks = |entry: &TestReport, is: fn(&Leak) -> bool| entry.leaks.iter().any(is);
        let is_allowed = |entry: &TestReport| {
            let passes = entry.verdict == Verdict::Pass && entry.against_base.is_none();
            passes && (leaks(entry, |leak| leak.waiver.is_none()) || leaves_allowed(entry))
        };
        Self {
            tests: tests(report, |_| true),
            judged: report.entries().any(|entry| entry.verdict != Verdict::NotJudged),
            passed: tests(report, |test| test.verdict == Verdict::Pass),
            failed,
            classes: failing().count() - failed - dumps,
            dumps,
            known: told_once(report, |entry| entry.verdict == Verdict::Pass && entry.against_base.is_some()),
            waived: told_once(report, |entry| leaks(entry, |leak| leak.waiver.is_some())),
            allowed: told_once(report, is_allowed),
        }
    }

    /// The beginning of the headline.
    fn leaking(&self, report: &RunReport) -> String {
        let all = format_number_of(self.tests, "test");
        let classes = match self.classes {
            0 => None,
            1 => Some("1 test class leaks as a whole".to_owned()),
            more => Some(format!("{more} test classes leak as a whole")),
        };
        let new = if self.known > 0 { "new " } else { "" };
        let above = match (self.waived, self.allowed) {
            (0, 0) => "",
            (_, 0) => " without a waiver",
            _ => " above its threshold",
        };
        let text = match (self.tests, self.failed, &classes) {
            (0, ..) if report.as_shard().is_some() && report.verdict != Verdict::Error => {
                "this shard has no test".to_owned()
            }
            (0, ..) => "no test ran".to_owned(),
            _ if !self.judged => format!("nothing was judged of {all}"),
            // The others were not judged, or may leak.
            (_, 0, None) if self.passed == 0 => all,
            (count, 0, None) if self.passed < count => {
                format!("no {new}leak{above} in {} of {all}", self.passed)
            }
            (_, 0, None) => format!("no {new}leak{above} in {all}"),
            (_, 0, Some(classes)) => format!("{classes}, none of {all} alone"),
            (_, 1, _) => format!("1 of {all} leaks"),
            (_, failed, _) => format!("{failed} of {all} leak"),
        };
        match classes {
            Some(classes) if self.failed > 0 => format!("{text}, {classes}"),
            _ => text,
        }
    }
}

/// Number of tests, and of test classes none of whose tests is among them: a class has the leaks of its tests, too.
fn told_once(report: &RunReport, is: impl Fn(&TestReport) -> bool) -> usize {
    let of_suite = |suite: &SuiteReport| {
        let by_test = |class: &TestReport| {
            let is_of = |id: &str| id.strip_prefix(&class.id).is_some_and(|rest| rest.starts_with('.'));
            suite.tests.iter().any(|test| !test.is_class && is_of(&test.id) && is(test))
        };
        suite.tests.iter().filter(|entry| is(entry) && !(entry.is_class && by_test(entry))).count()
    };
    report.suites.iter().map(of_suite).sum()
}

/// Does a test leave something only because its threshold is above 0?
fn leaves_allowed(test: &TestReport) -> bool {
    test.metrics.iter().any(|(metric, figure)| {
        let limit = figure.threshold.as_ref().map_or(0.0, |threshold| threshold.limit);
        let is_leak = metric.leaks().is_some() && figure.per == Per::Iteration;
        is_leak && limit > 0.0 && figure.value > 0.0 && figure.value <= limit
    })
}

/// The test passed, but the memory that it left was not checked.
fn is_unscreened(test: &TestReport) -> bool {
    test.verdict == Verdict::NotJudged && test.outcome == Outcome::Passed
}

/// The verdict of a test in a few words, with the leaking function if it is known.
pub(crate) fn in_short(test: &TestReport) -> String {
    let judged = matches!(test.verdict, Verdict::Fail | Verdict::Warn);
    let said = || culprit::of_test(test).or_else(|| figure(test));
    match (judged.then(said).flatten(), test.reason.as_str()) {
        (Some(said), _) => match crate::base::stands(test) {
            Some(stands) => format!("{said}, {stands}"),
            None => said,
        },
        (_, "") => own_outcome(test.outcome).to_owned(),
        (_, reason) => reason.to_owned(),
    }
}

/// The figures on which a verdict is based, the most important one first, to be shown below the line with the leaking
/// function; empty if nothing exceeds its threshold. Without the first one if that line is already this figure.
pub(crate) fn statistics(test: &TestReport) -> Vec<String> {
    let figures = test_figures(test).into_iter().map(|figure| figure.replace(GAP, ", "));
    figures.skip(usize::from(culprit::of_test(test).is_none())).collect()
}

/// A leak with its test, and the figure that counts it.
pub(crate) fn of_a_leak(at: SuiteTest<'_>, leak: &Leak) -> String {
    let figure = figure_of(leak, at.test)
        .map_or_else(String::new, |figure| format!(": {}", figure.replace(GAP, ", ")));
    let of = format!("{}{figure}", at.qualified());
    format!("{} ({})", culprit::of_leak(leak, at.test), visible(&of))
}

fn figure(test: &TestReport) -> Option<String> {
    test_figures(test).into_iter().next().map(|figure| figure.replace(GAP, ", "))
}

/// What to do with a waiver that covered nothing.
pub(crate) fn unused(waiver: &WaiverReport, report: &RunReport) -> String {
    missed(waiver, report).unwrap_or_else(|| "matches nothing, remove it".to_owned())
}

/// The leak that a waiver misses because its `test` matches another test.
pub(crate) fn missed(waiver: &WaiverReport, report: &RunReport) -> Option<String> {
    let id = waiver.matches.strip_prefix("leak ").and_then(|named| named.split(' ').next());
    let has_it = |id: &str| {
        SuiteTest::all(report).find(|at| {
            at.test
                .leaks
                .iter()
                .any(|leak| leak.id == id && leak.waiver.is_none() && leak.waived_up_to.is_none())
        })
    };
    let at = id.and_then(has_it)?;
    Some(format!("does not match {}, which has its leak", at.qualified()))
}

/// The reasons for the verdict of the run.
pub(crate) fn reasons(report: &RunReport) -> Vec<Reason> {
    let mut reasons = Vec::new();
    for suite in &report.suites {
        let figure = suite_figures(suite).0.into_iter().next();
        if let Some(text) = figure.or_else(|| Some(suite.reason.clone())).filter(|t| !t.is_empty()) {
            reasons.push(Reason {
                verdict: suite.own_verdict(),
                name: format!("{} (suite)", suite.name),
                text: text.replace(GAP, ", "),
                anchor: None,
            });
        }
    }
    let anchors = Anchors::new(report);
    let tests = not_passed(report);
    let more = tests.len().saturating_sub(MAX_REASONS);
    for at in tests.into_iter().take(MAX_REASONS) {
        reasons.push(Reason {
            verdict: at.test.verdict,
            name: at.qualified(),
            text: in_short(at.test),
            anchor: Some(anchors.of(at.test)),
        });
    }
    for waiver in &report.waivers {
        if let Some((verdict, text)) = crate::base::fixed(waiver) {
            reasons.push(Reason { verdict, name: format!("waiver {}", waiver.matches), text, anchor: None });
        }
    }
    for problem in &report.errors {
        let (name, text) = (problem.r#where.clone(), problem.what.clone());
        reasons.push(Reason { verdict: Verdict::Error, name, text, anchor: None });
    }
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.verdict));
    if more > 0 {
        let (name, text) = (format!("{more} more"), "below".to_owned());
        reasons.push(Reason { verdict: Verdict::Warn, name, text, anchor: None });
    }
    reasons
}

/// The fragment of a page's URL for `suite::test`; a second test of that name has `~2` after it.
#[must_use]
pub fn anchor(qualified: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "._-:".contains(c) { c } else { '_' };
    "t:".chars().chain(qualified.chars().map(safe)).collect()
}

/// The anchor of each test in the page. Anchors are stable from run to run, so that a URL can be shared.
#[derive(Debug)]
pub(crate) struct Anchors {
    /// By the memory address of the test in the report.
    by_place: std::collections::BTreeMap<usize, String>,
}

impl Anchors {
    pub(crate) fn new(report: &RunReport) -> Self {
        let mut used = std::collections::BTreeMap::<String, usize>::new();
        let mut by_place = std::collections::BTreeMap::new();
        for at in SuiteTest::all(report) {
            let mut anchor = anchor(&at.qualified());
            let times = used.entry(anchor.clone()).or_default();
            *times += 1;
            if *times > 1 {
                anchor = format!("{anchor}~{times}");
            }
            by_place.insert(place(at.test), anchor);
        }
        Self { by_place }
    }

    pub(crate) fn of(&self, test: &TestReport) -> String {
        self.by_place.get(&place(test)).cloned().unwrap_or_default()
    }
}

fn place(test: &TestReport) -> usize {
    std::ptr::from_ref(test).addr()
}
