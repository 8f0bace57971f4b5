//! Views of a project's history: filled by the store; rendered as pages, as JSON, and as text by `memgate history`.
//!
//! Times are microseconds since 1970. Amounts are in the unit of their metric, per iteration.

pub use memgate_history::life::{State, StateFilter, What};
use memgate_model::{Frame, Hold, HolderStep, Leak, LeakKind, Metric, Outcome, Verdict};
use memgate_reports::Comparison;
use memgate_reports::page::StackChange;
use serde::Serialize;

/// How a line is named whose runs have no branch. No branch of git has such a name.
pub(crate) const NO_BRANCH: &str = "(none)";

/// The line and environment of a project that a view shows, and the alternatives.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Selection {
    /// Name of the project.
    pub project: String,
    /// The branch that is shown.
    pub branch: String,
    /// Label of the environment that is shown.
    pub environment: String,
    /// Branches with runs: lines first, then the newest.
    pub branches: Vec<String>,
    /// Environments with runs.
    pub environments: Vec<String>,
}

/// A run, as a row of a list.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunRow {
    /// Its number, used in URLs.
    pub run: i64,
    /// Its session.
    pub session: String,
    /// Its branch; for a pull or merge request `fix → main`.
    pub branch: String,
    /// Label of its environment.
    pub environment: String,
    /// Its commit; empty: none.
    pub sha: String,
    /// It measured changes that are in no commit.
    pub dirty: bool,
    /// When it began.
    pub started_us: i64,
    /// How long it took, milliseconds.
    pub duration_ms: i64,
    /// Its verdict.
    pub verdict: Verdict,
    /// Tests that ran.
    pub tests: u64,
    /// Tests that leak more than their threshold.
    pub failed: u64,
    /// Distinct leaks, waived ones included.
    pub leaks: u64,
    /// Leaks that are new by it; 0 for a review.
    pub new_leaks: u64,
    /// Leaks that are back by it; 0 for a review.
    pub regressed_leaks: u64,
    /// Known leaks that it showed to be larger.
    pub larger_leaks: u64,
    /// Leaks that it showed to be fixed; 0 for a review.
    pub fixed_leaks: u64,
    /// Target branch of its pull or merge request; empty: none.
    pub target: String,
}

/// A leak on a line, as a row of a list.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LeakRow {
    /// `n1-…`, `j1-…`, `o1-…`, `m1-…`.
    pub id: String,
    /// Kind of the leak.
    pub kind: LeakKind,
    /// `12 × 4096 B`.
    pub title: String,
    /// The culprit in one line: `MapCache::insert`, `com.example.Tile held by Registry.cache`.
    pub culprit: String,
    /// Source line, `src/map_cache.cpp:88`; empty: not known.
    pub place: String,
    /// Owners of the leaking code, from CODEOWNERS.
    pub owners: Vec<String>,
    /// State on the line.
    pub state: State,
    /// Covered by a waiver in the last run that saw it.
    pub waived: bool,
    /// Comes and goes on the same code.
    pub flaky: bool,
    /// Bytes per iteration when it was last seen.
    pub bytes: f64,
    /// Objects, allocations, descriptors or threads per iteration when it was last seen.
    pub count: f64,
    /// Share of judged commits that saw it.
    pub rate: f64,
    /// The last judged commits, oldest first: seen or not.
    pub window: Vec<bool>,
    /// First commit that saw it; empty: none is known.
    pub first_sha: String,
    /// Last commit that saw it.
    pub last_sha: String,
    /// When it was first seen on this line.
    pub since_us: i64,
    /// Tests that had it in the last run that saw it, as `suite::test`.
    pub tests: Vec<String>,
}

/// An event of a leak or a figure, reported once.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct EventRow {
    /// Time of the run that showed it.
    pub at_us: i64,
    /// `new`, `known`, `larger`, `fixed`, `regressed`, `gone`, `shift up`, `shift down`.
    pub kind: String,
    /// The branch.
    pub branch: String,
    /// The leak; empty: a figure.
    pub leak: String,
    /// `suite::test`; empty: a leak.
    pub test: String,
    /// One line of text for people.
    pub text: String,
    /// The last commit without it; empty: not known.
    pub clean_sha: String,
    /// The first commit with it; empty: not known.
    pub first_sha: String,
    /// The run that showed it.
    pub run: i64,
}

/// Order of the tests of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The worst verdict first.
    #[default]
    Worst,
    /// The slowest first.
    Slowest,
}

/// First page of a project.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Overview {
    /// The shown line.
    pub selection: Selection,
    /// Leaks alive (new, regressed, known), worst first, 50 at most.
    pub alive: Vec<LeakRow>,
    /// Leaks by state: new, regressed, known, fixed, gone.
    pub counts: [u64; 5],
    /// Of the fixed leaks, those that were fixed in the last 30 days.
    pub fixed_lately: u64,
    /// Alive leaks that come and go.
    pub flaky: u64,
    /// Leaks that more than one commit judged. `steady` counts those that did not come and go: about these the gate was
    /// right.
    pub decided: u64,
    /// See `decided`.
    pub steady: u64,
    /// The newest runs, reviews included, 20 at most.
    pub runs: Vec<RunRow>,
    /// The newest events, 20 at most.
    pub events: Vec<EventRow>,
}

/// List of runs, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Runs {
    /// The shown line.
    pub selection: Selection,
    /// The runs, 100 at most.
    pub runs: Vec<RunRow>,
    /// Older runs exist: those before this run; `None`: none.
    pub before: Option<i64>,
}

/// List of leaks of a line.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Leaks {
    /// The shown line.
    pub selection: Selection,
    /// Leaks that match the filter, worst first, 200 at most.
    pub leaks: Vec<LeakRow>,
    /// Number of leaks with this filter.
    pub of: u64,
    /// Owners to choose from.
    pub owners: Vec<String>,
    /// Suites to choose from.
    pub suites: Vec<String>,
}

/// Kinds that a list of leaks can be filtered by; empty: any.
pub(crate) const KINDS: [&str; 6] = ["", "native", "mapped", "java", "os", "heap"];

/// Filter for leaks; empty fields match all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeakFilter {
    /// One owner.
    pub owner: String,
    /// One suite.
    pub suite: String,
    /// One kind: `native`, `java`, `os`, `heap`.
    pub kind: String,
    /// Its state.
    pub state: StateFilter,
    /// Text in the id, title, culprit, source location or test.
    pub text: String,
}

/// A leak on one of several lines and environments.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LeakOnLine {
    /// The branch.
    pub branch: String,
    /// Label of the environment.
    pub environment: String,
    /// The leak there.
    pub leak: LeakRow,
}

/// A sighting of a leak, in one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SightingRow {
    /// The run.
    pub run: RunRow,
    /// `suite::test`.
    pub test: String,
    /// Bytes per iteration.
    pub bytes: f64,
    /// Objects per iteration.
    pub count: f64,
    /// `counted`, `waived` or `one_time`.
    pub how: String,
}

/// Page of a leak.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LeakView {
    /// The shown line.
    pub selection: Selection,
    /// The leak on the shown line; if never seen there, on the line that saw it last.
    pub leak: LeakRow,
    /// The leak on all lines and environments that know it.
    pub lines: Vec<LeakOnLine>,
    /// Its stack, innermost first.
    pub frames: Vec<Frame>,
    /// Steps from the holder to the leak.
    pub holder: Vec<HolderStep>,
    /// For native leaks: whether the program can still reach the memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// Sightings, the newest first, 200 at most.
    pub sightings: Vec<SightingRow>,
    /// Events of the leak, on the shown line first, the newest commit first.
    pub events: Vec<EventRow>,
    /// How it came to the line of `leak`, the last time; `None`: it is on no line.
    pub came: Option<Came>,
}

/// How a leak came to a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Came {
    /// The branch.
    pub branch: String,
    /// The last commit that was measured without it; empty: none.
    pub clean_sha: String,
    /// The first commit after that one that was measured with it; empty: none.
    pub first_sha: String,
    /// Commits that nobody measured in between, oldest first; `None`: it is not known which commits are in between.
    pub unmeasured: Option<Vec<String>>,
}

impl LeakView {
    /// Converts to the leak type of reports.
    #[must_use]
    pub fn known(&self) -> Leak {
        Leak {
            id: self.leak.id.clone(),
            kind: self.leak.kind,
            title: self.leak.title.clone(),
            bytes_per_iteration: self.leak.bytes,
            count_per_iteration: self.leak.count,
            frames: self.frames.clone(),
            holder: self.holder.clone(),
            hold: self.hold.clone(),
            owners: self.leak.owners.clone(),
            ..Leak::default()
        }
    }
}

/// A value of a curve over commits.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Point {
    /// The run.
    pub run: i64,
    /// Its commit.
    pub sha: String,
    /// The run measured changes that are in no commit.
    pub dirty: bool,
    /// Position on the line.
    pub place: i64,
    /// When the run began.
    pub started_us: i64,
    /// The value; `None`: the test was not judged.
    pub value: Option<f64>,
    /// Lower bound, if there is an interval.
    pub low: Option<f64>,
    /// Upper bound, if there is an interval.
    pub high: Option<f64>,
    /// The threshold; `None`: it is zero, or there is none.
    pub allowed: Option<f64>,
    /// Verdict of the test; `None`: it did not run.
    pub verdict: Option<Verdict>,
    /// The run's report page is stored: it has the curve within the run.
    pub page: bool,
}

/// Page of a test.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TestView {
    /// The shown line.
    pub selection: Selection,
    /// Its suite.
    pub suite: String,
    /// Its name.
    pub name: String,
    /// The figure that is shown.
    pub metric: Metric,
    /// Figures to choose from.
    pub metrics: Vec<Metric>,
    /// Values are rounded to steps of 2 %: for display only, never for judging.
    pub rounded: bool,
    /// Values by place, oldest first, 1,000 at most.
    pub points: Vec<Point>,
    /// Leaks of this test on this line, the worst first; 200 at most.
    pub leaks: Vec<LeakRow>,
    /// It has more than these.
    pub more_leaks: bool,
    /// Events of its figures and leaks, the newest first.
    pub events: Vec<EventRow>,
}

/// A test of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TestRow {
    /// Its suite.
    pub suite: String,
    /// Its name.
    pub name: String,
    /// How it ended.
    pub outcome: Outcome,
    /// Its verdict.
    pub verdict: Verdict,
    /// Reason for the verdict, in one sentence.
    pub reason: String,
    /// How long its screening execution took, milliseconds; `None`: no longer known.
    pub duration_ms: Option<i64>,
    /// Its non-zero figures.
    pub values: Vec<(Metric, f64)>,
}

/// Page of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunView {
    /// The shown line.
    pub selection: Selection,
    /// The run.
    pub run: RunRow,
    /// Why it is no plain pass, besides its tests.
    pub reasons: Vec<String>,
    /// Its CI job's page; empty: none.
    pub ci_url: String,
    /// Leaks it saw, each in each test, the largest first; 200 at most.
    pub leaks: Vec<SightingOf>,
    /// It saw more than these.
    pub more_leaks: bool,
    /// Its tests: first those that are no plain pass, then by name; 500 at most.
    pub tests: Vec<TestRow>,
    /// Number of tests that match the search.
    pub of: u64,
    /// Order of the tests.
    pub order: Order,
    /// Text in the names of the shown tests; empty: all tests.
    pub find: String,
    /// The previous run on its line and environment, for comparison.
    pub previous: Option<i64>,
    /// Its figures have expired; for a review, its sightings too.
    pub expired: bool,
    /// Its artefacts, by name.
    pub artefacts: Vec<ArtefactRow>,
}

/// A file that belongs to a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArtefactRow {
    /// Its name.
    pub name: String,
    /// Size as stored: a page is compressed.
    pub bytes: u64,
}

/// A leak that a run saw.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SightingOf {
    /// `n1-…`.
    pub id: String,
    /// The culprit in one line.
    pub culprit: String,
    /// `12 × 4096 B`.
    pub title: String,
    /// State on the line of the run, now; of a review, on its target. `None`: the leak is not known there.
    pub state: Option<State>,
    /// `suite::test`.
    pub test: String,
    /// Bytes per iteration.
    pub bytes: f64,
    /// Objects per iteration.
    pub count: f64,
    /// `counted`, `waived` or `one_time`.
    pub how: String,
}

/// Comparison of two runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CompareView {
    /// The shown line: that of the second run.
    pub selection: Selection,
    /// The first run.
    pub before: RunRow,
    /// The second run.
    pub after: RunRow,
    /// The changes, as `memgate compare` reports them.
    pub comparison: Comparison,
    /// Stacks of the leaks, for the difference; a part of `comparison` in JSON.
    #[serde(skip)]
    pub stacks: Vec<StackChange>,
}
