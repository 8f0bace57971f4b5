//! The life of a leak on one line and environment: new, known, fixed, regressed, gone.
//!
//! Data flow: observations of the leak, in the order of the line → [`Fold::push`] → [`Fold::life`]: its state and its
//! events. A fold can be stored and loaded again: then only the next run must be pushed. If a run of an old commit
//! arrives late, it is put in its place and everything is folded again. So the order of arrival changes nothing. An
//! event is the same whenever it is found; its state and key identify it.
//!
//! A leak is **fixed** if it was not seen for as many judged commits as its own rate p demands: the smallest number of
//! commits in which a leak of that rate would have shown with a probability of 99 %. p counts from its first sighting,
//! and starts again after a gap so long that a leak of every second commit would have shown.
//!
//! Uncommitted changes **count until their commit is measured again**: then they are not in the tree any more, and what
//! the runs of the commit show counts. If none of these judged a leak's tests, the leak that the changes had stays.
//!
//! A leak is **flaky** if it comes and goes. If its misses are so few blocks that chance arranges them like this with a
//! probability of at most 1 %, commits fix it and bring it back: it is not flaky.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::bits::Bits;

/// Growth of a known leak by up to 5 % is noise.
const LARGER: f64 = 1.05;
/// A leak that shows in every second commit has a gap of this many judged commits with a probability of at most 1 %.
const CONCLUSIVE_GAP: usize = 7;
const FLAKY: std::ops::RangeInclusive<f64> = 0.05..=0.95;
const MISSED: f64 = 0.01;

/// Start of a key that names a run, not a commit.
const RUN: &str = "run-";

/// The key of a run that measured no commit: there is none, or the tree has uncommitted changes.
#[must_use]
pub fn key_of_run(run: i64) -> String {
    format!("{RUN}{run}")
}

/// The commit that a key names; empty: it names a run.
#[must_use]
pub fn commit_of(key: &str) -> &str {
    if key.starts_with(RUN) { "" } else { key }
}

/// Notes a key that did not have the leak. A commit stays until the next one: nobody can check out a run.
fn note_clean(clean: &mut String, key: &str) {
    if !commit_of(key).is_empty() || commit_of(clean).is_empty() {
        key.clone_into(clean);
    }
}

/// Observation of a leak in one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// Key of what was measured: the commit, or the run itself if there is no commit. Runs with the same key must be
    /// consecutive.
    pub key: String,
    /// That commit, or the one that uncommitted changes are based on, whose runs are before this one; empty: none.
    pub commit: String,
    /// The run.
    pub run: i64,
    /// When it began, microseconds since 1970.
    pub at_us: i64,
    /// Was the leak seen?
    pub seen: bool,
    /// Was a test judged that has had the leak?
    pub judged: bool,
    /// The run was whole and has the leak's suite, but none of the leak's tests.
    pub gone: bool,
    /// The run was whole, and the suite itself has been missing for long enough.
    pub suite_gone: bool,
    /// The run has one of the leak's tests, judged or not.
    pub listed: bool,
    /// The run has the leak's suite.
    pub has_suite: bool,
    /// Was it covered by a waiver?
    pub waived: bool,
    /// Bytes per iteration of the test that leaks most.
    pub bytes: f64,
    /// Objects per iteration of that test.
    pub count: f64,
}

/// State of a leak, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Seen on one commit.
    New,
    /// Seen again after its fix.
    Regressed,
    /// Seen on several commits.
    Known,
    /// No longer seen, for as many commits as its rate demands.
    Fixed,
    /// Its tests are gone: the leak is closed, not fixed.
    Gone,
}

impl State {
    /// All states, the worst first.
    pub const ALL: [Self; 5] = [Self::New, Self::Regressed, Self::Known, Self::Fixed, Self::Gone];

    /// Its number in the database.
    #[must_use]
    pub const fn number(self) -> i64 {
        match self {
            Self::New => 1,
            Self::Known => 2,
            Self::Fixed => 3,
            Self::Regressed => 4,
            Self::Gone => 5,
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Known => "known",
            Self::Fixed => "fixed",
            Self::Regressed => "regressed",
            Self::Gone => "gone",
        }
    }

    /// The state with this number.
    #[must_use]
    pub fn of_number(number: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.number() == number)
    }

    /// New, known or regressed.
    #[must_use]
    pub const fn is_alive(self) -> bool {
        matches!(self, Self::New | Self::Known | Self::Regressed)
    }
}

/// Which leaks a list shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StateFilter {
    /// Those that are neither fixed nor gone.
    Alive,
    /// Those in one state.
    In(State),
    /// All.
    #[default]
    Any,
}

impl StateFilter {
    /// All choices.
    pub fn all() -> impl Iterator<Item = Self> {
        [Self::Alive].into_iter().chain(State::ALL.map(Self::In)).chain([Self::Any])
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::In(state) => state.name(),
            Self::Any => "any",
        }
    }

    /// The choice with this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::all().find(|shown| shown.name() == name)
    }

    /// Whether a leak in this state is shown.
    #[must_use]
    pub fn shows(self, state: State) -> bool {
        match self {
            Self::Alive => state.is_alive(),
            Self::In(only) => state == only,
            Self::Any => true,
        }
    }
}

/// What may happen to a leak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// It came to a state.
    To(State),
    /// It leaks more than it did since it came.
    Larger,
}

impl What {
    /// Its number in the database.
    #[must_use]
    pub const fn number(self) -> i64 {
        match self {
            Self::To(state) => state.number(),
            Self::Larger => 6,
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::To(state) => state.name(),
            Self::Larger => "larger",
        }
    }

    /// What has this number.
    #[must_use]
    pub fn of_number(number: i64) -> Option<Self> {
        let all = State::ALL.into_iter().map(Self::To).chain([Self::Larger]);
        all.into_iter().find(|what| what.number() == number)
    }
}

/// Something that happened to a leak.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// What it was.
    pub what: What,
    /// The commit, or run, that showed it.
    pub key: String,
    /// The run.
    pub run: i64,
    /// Start of that run.
    pub at_us: i64,
    /// The last judged commit before it with the opposite result; a run, if only such runs are known; empty if there is
    /// none.
    pub before: String,
}

/// A leak on a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Life {
    /// Its current state.
    pub state: State,
    /// Does it come and go without changes of the code?
    pub flaky: bool,
    /// Did a waiver cover it when it was last seen?
    pub waived: bool,
    /// First commit that saw it, since the last fix with a conclusive gap.
    pub first: String,
    /// The last judged commit before that one; empty if there is none.
    pub clean: String,
    /// Last commit that saw it.
    pub last: String,
    /// First commit without it, if it is fixed; a run, until a commit confirms what its uncommitted changes showed.
    pub fixed: String,
    /// Start of the run of `first`.
    pub since_us: i64,
    /// The latest run that saw it.
    pub last_run: i64,
    /// The last judged commits, oldest first: seen or not.
    #[serde(skip)]
    pub window: Bits,
    /// Share of judged commits that saw it, from `first` to `last`.
    pub rate: f64,
    /// Bytes per iteration when it was last seen.
    pub bytes: f64,
    /// Objects per iteration when it was last seen.
    pub count: f64,
    /// Its events, in the order of the line. A fold that was loaded has only the events since then.
    #[serde(skip)]
    pub events: Vec<Event>,
}

impl Life {
    /// Is it fixed, and no commit has confirmed yet what uncommitted changes showed?
    #[must_use]
    pub fn is_fixed_without_commit(&self) -> bool {
        self.state == State::Fixed && commit_of(&self.fixed).is_empty()
    }
}

/// Number of judged commits without the leak that show it is fixed, for a leak that was seen in this share of commits.
#[must_use]
pub fn misses_of_a_fix(rate: f64) -> usize {
    if rate >= 1.0 {
        return 1;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small and positive; a cast of a float saturates"
    )]
    let misses = (MISSED.ln() / (1.0 - rate.max(1e-6)).ln()).ceil() as usize;
    misses.max(1)
}

/// The life of a leak while runs are added one by one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Fold {
    /// State since its first sighting.
    leak: Option<Folding>,
    /// The last judged commit before that.
    clean: String,
    /// The last judged commits.
    window: Bits,
    /// Judged commits after a fix. They are added to the window only when the leak is seen again, so that a fixed leak
    /// needs no update for each run.
    after: Bits,
    /// The commit whose runs are being added.
    commit: Option<Commit>,
    /// The last commit.
    #[serde(default)]
    measured: Measured,
}

/// The runs of a commit.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Measured {
    commit: String,
    /// Start and number of the newest one.
    newest: (i64, i64),
    /// Any of them judged the leak's tests.
    judged: bool,
}

/// All runs of one commit, so far.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Commit {
    key: String,
    /// Its first run, and the start of that.
    run: i64,
    at_us: i64,
    /// The largest sighting.
    seen: Option<Sighting>,
    judged: bool,
    /// A whole run lacks the leak's tests.
    gone: bool,
    /// A whole run lacks the leak's suite, like the runs of enough earlier commits.
    #[serde(default)]
    suite_gone: bool,
    /// A run has a test of the leak. Then the tests are not gone, even if another run lacks them.
    #[serde(default)]
    listed: bool,
    /// A run has the leak's suite; it may be a partial run.
    #[serde(default)]
    has_suite: bool,
    /// A run judged the tests and did not see the leak.
    missed: bool,
    /// The first run that saw it, and the first that missed it, each with its start.
    #[serde(default)]
    first_seen: Option<(i64, i64)>,
    #[serde(default)]
    first_missed: Option<(i64, i64)>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Sighting {
    run: i64,
    at_us: i64,
    /// The first run of the commit that saw as much, and its start.
    #[serde(default)]
    first: Option<(i64, i64)>,
    waived: bool,
    bytes: f64,
    count: f64,
}

/// The life of a leak; `None` if it was never seen. `observations` must be in the order of the line.
#[must_use]
pub fn fold(observations: &[Observation]) -> Option<Life> {
    let mut fold = Fold::default();
    for run in observations {
        fold.push(run);
    }
    fold.life()
}

impl Fold {
    /// Do these uncommitted changes no longer count, because their commit was measured later?
    #[must_use]
    pub fn is_void(&self, (key, commit): (&str, &str), at: (i64, i64), seen: bool) -> bool {
        let Measured { commit: last, newest, judged } = &self.measured;
        key != commit && last == commit && *newest > at && (*judged || !seen)
    }

    /// Adds the next run of the line.
    pub fn push(&mut self, run: &Observation) {
        let at = (run.at_us, run.run);
        if self.is_void((&run.key, &run.commit), at, run.seen) {
            return;
        }
        if run.key == run.commit {
            if self.measured.commit != run.commit {
                self.measured = Measured { commit: run.commit.clone(), newest: at, judged: false };
            }
            self.measured.newest = self.measured.newest.max(at);
            self.measured.judged |= run.seen || run.judged;
        }
        match &mut self.commit {
            Some(commit) if commit.key == run.key => commit.add(run),
            _ => {
                self.settle();
                self.commit = Some(Commit::new(run));
            }
        }
    }

    /// The current life of the leak; `None` if it was never seen.
    #[must_use]
    pub fn life(&self) -> Option<Life> {
        let mut whole = self.clone();
        whole.settle();
        let mut life = whole.leak?.finish();
        life.window = whole.window;
        Some(life)
    }

    /// The commit of the last run.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.commit.as_ref().map(|commit| commit.key.as_str())
    }

    /// Processes a commit after all of its runs were added.
    fn settle(&mut self) {
        let Some(commit) = self.commit.take() else { return };
        if commit.judged {
            self.after.push(commit.seen.is_some());
        }
        if commit.seen.is_some() || self.leak.as_ref().is_none_or(|leak| leak.life.state.is_alive()) {
            self.window.append(std::mem::take(&mut self.after));
        }
        match (&mut self.leak, &commit.seen) {
            (Some(leak), _) => leak.goes_on(&commit),
            (None, Some(seen)) => {
                self.leak = Some(Folding::begins(&commit, seen, std::mem::take(&mut self.clean)));
            }
            (None, None) if commit.judged => note_clean(&mut self.clean, &commit.key),
            (None, None) => {}
        }
    }
}

impl Commit {
    fn new(run: &Observation) -> Self {
        let mut commit = Self {
            key: run.key.clone(),
            run: run.run,
            at_us: run.at_us,
            seen: None,
            judged: false,
            gone: false,
            suite_gone: false,
            listed: false,
            has_suite: false,
            missed: false,
            first_seen: None,
            first_missed: None,
        };
        commit.add(run);
        commit
    }

    fn add(&mut self, run: &Observation) {
        let Observation { run: id, at_us, waived, bytes, count, .. } = *run;
        // Descriptors and threads have no bytes.
        let than = |seen: &Sighting| bytes.total_cmp(&seen.bytes).then(count.total_cmp(&seen.count));
        let more = self.seen.as_ref().map(than);
        if run.seen && more.is_none_or(Ordering::is_ge) {
            let as_much = self.seen.as_ref().filter(|_| more == Some(Ordering::Equal));
            let first = as_much.and_then(|seen| seen.first).or(Some((id, at_us)));
            self.seen = Some(Sighting { run: id, at_us, first, waived, bytes, count });
        }
        self.judged |= run.seen || run.judged;
        self.gone |= run.gone;
        self.suite_gone |= run.suite_gone;
        self.listed |= run.listed || run.seen || run.judged;
        self.has_suite |= run.has_suite;
        self.missed |= run.judged && !run.seen;
        if run.seen {
            self.first_seen.get_or_insert((id, at_us));
        } else if run.judged {
            self.first_missed.get_or_insert((id, at_us));
        }
    }

    /// The run that first saw the leak.
    fn saw_at(&self, seen: &Sighting) -> (String, i64, i64) {
        let (run, at_us) = self.first_seen.unwrap_or((seen.run, seen.at_us));
        (self.key.clone(), run, at_us)
    }

    /// The run that first missed it.
    fn missed_at(&self) -> (String, i64, i64) {
        let (run, at_us) = self.first_missed.unwrap_or((self.run, self.at_us));
        (self.key.clone(), run, at_us)
    }

    const fn are_tests_gone(&self) -> bool {
        !self.listed && (self.gone || self.suite_gone && !self.has_suite)
    }
}

/// A leak that was seen.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Folding {
    life: Life,
    /// Judged commits since its first sighting, or since it came back after a long gap: seen or not.
    bits: Bits,
    /// The first commit without it since it was last seen, and the run that showed that.
    missing: Option<(String, i64, i64)>,
    /// The last commit without it, since it was last seen.
    clean: String,
    /// Number of judged commits since runs of one commit disagreed about it.
    disagreed: Option<usize>,
    /// The most bytes and objects that it leaked on a commit since it came.
    #[serde(default)]
    most: (f64, f64),
}

impl Folding {
    fn begins(commit: &Commit, seen: &Sighting, clean: String) -> Self {
        let life = Life {
            state: State::New,
            flaky: false,
            waived: false,
            first: commit.key.clone(),
            clean: clean.clone(),
            last: String::new(),
            fixed: String::new(),
            since_us: commit.at_us,
            last_run: 0,
            window: Bits::default(),
            rate: 1.0,
            bytes: 0.0,
            count: 0.0,
            events: Vec::new(),
        };
        let mut folding = Self {
            life,
            bits: Bits::default(),
            missing: None,
            clean: String::new(),
            disagreed: None,
            most: (0.0, 0.0),
        };
        folding.comes_to(State::New, commit.saw_at(seen), clean);
        folding.saw(commit, seen);
        folding
    }

    fn goes_on(&mut self, commit: &Commit) {
        match &commit.seen {
            Some(seen) => {
                match self.life.state {
                    State::New | State::Regressed => {
                        self.comes_to(State::Known, commit.saw_at(seen), String::new());
                    }
                    State::Known => {}
                    State::Fixed | State::Gone => self.comes_back(commit, seen),
                }
                self.saw(commit, seen);
            }
            None if commit.judged => self.missed(commit),
            None if commit.are_tests_gone() && self.life.state.is_alive() => {
                let at = (commit.key.clone(), commit.run, commit.at_us);
                self.comes_to(State::Gone, at, self.life.last.clone());
            }
            None => {}
        }
    }

    fn comes_back(&mut self, commit: &Commit, seen: &Sighting) {
        let gap = self.bits.trailing(false);
        let clean = std::mem::take(&mut self.clean);
        if gap >= CONCLUSIVE_GAP {
            self.bits = Bits::default();
            self.disagreed = None;
            self.life.first = commit.key.clone();
            self.life.since_us = seen.at_us;
            self.life.clean.clone_from(&clean);
        }
        self.life.fixed.clear();
        (self.most, self.life.bytes, self.life.count) = ((0.0, 0.0), 0.0, 0.0);
        self.comes_to(State::Regressed, commit.saw_at(seen), clean);
    }

    fn saw(&mut self, commit: &Commit, seen: &Sighting) {
        self.push(true);
        if commit.missed {
            self.disagreed = Some(0);
        }
        self.missing = None;
        self.clean.clear();
        self.compare(commit, seen);
        self.life.last = commit.key.clone();
        self.life.last_run = seen.run;
        self.life.waived = seen.waived;
        self.life.bytes = seen.bytes;
        self.life.count = seen.count;
    }

    /// Is it larger than on all commits since it came? The size of a leak that comes and goes is chance, and a waiver
    /// has a limit of its own.
    fn compare(&mut self, commit: &Commit, seen: &Sighting) {
        let Life { bytes, count, .. } = self.life;
        // A fold that an older program stored knows only the last sighting.
        let most = (self.most.0.max(bytes), self.most.1.max(count));
        let (now, before) = if seen.bytes > 0.0 { (seen.bytes, most.0) } else { (seen.count, most.1) };
        let is_steady = !self.disagreed_before(0) && !comes_and_goes(self.bits);
        if before > 0.0 && now > LARGER * before && is_steady && !seen.waived {
            let (run, at_us) = seen.first.unwrap_or((seen.run, seen.at_us));
            let (key, before) = (commit.key.clone(), self.life.last.clone());
            self.life.events.push(Event { what: What::Larger, key, run, at_us, before });
        }
        self.most = (most.0.max(seen.bytes), most.1.max(seen.count));
    }

    fn missed(&mut self, commit: &Commit) {
        // The rate up to the last sighting is compared with the commits since then. If runs of one commit disagreed
        // about the leak, the only run of the next commit may miss it.
        let gap = self.bits.trailing(false);
        let rate = self.rate_when_seen().min(if self.disagreed_before(gap) { 0.5 } else { 1.0 });
        let misses = gap + 1;
        self.push(false);
        let at = commit.missed_at();
        note_clean(&mut self.clean, &commit.key);
        let is_commit = |key: &str| !commit_of(key).is_empty();
        // Uncommitted changes may have been the first without it: a commit names what happened.
        let missing = match self.missing.take() {
            Some(missing) if is_commit(&missing.0) || !is_commit(&at.0) => missing,
            _ => at,
        };
        self.missing = Some(missing.clone());
        if self.life.state.is_alive() && misses >= misses_of_a_fix(rate) {
            self.life.fixed.clone_from(&missing.0);
            self.comes_to(State::Fixed, missing, self.life.last.clone());
        } else if self.life.is_fixed_without_commit() && is_commit(&commit.key) {
            // Uncommitted changes showed the fix. The first commit that confirms it gives it a name.
            self.life.fixed.clone_from(&commit.key);
        }
    }

    fn push(&mut self, seen: bool) {
        self.bits.push(seen);
        self.disagreed = self.disagreed.map(|commits| commits + 1);
    }

    /// Did runs of one commit disagree shortly before the last `gap` judged commits?
    fn disagreed_before(&self, gap: usize) -> bool {
        self.disagreed.is_some_and(|commits| commits < CONCLUSIVE_GAP + gap)
    }

    /// Share of judged commits that saw it, up to its last sighting.
    fn rate_when_seen(&self) -> f64 {
        self.bits.before_trailing(false).share()
    }

    fn comes_to(&mut self, state: State, (key, run, at_us): (String, i64, i64), before: String) {
        self.life.state = state;
        self.life.events.push(Event { what: What::To(state), key, run, at_us, before });
    }

    fn finish(mut self) -> Life {
        self.life.rate = self.rate_when_seen();
        self.life.flaky = self.life.state.is_alive()
            && (comes_and_goes(self.bits) || self.disagreed_before(self.bits.trailing(false)));
        self.life
    }
}

/// Did some of the judged commits see a leak and others not, as chance arranges them?
#[must_use]
pub fn comes_and_goes(bits: Bits) -> bool {
    let rate = bits.before_trailing(false).share();
    // A leak that comes and goes has this many sightings in a row with a probability of at most 1 %.
    let ends = if rate >= 1.0 { 1 } else { misses_of_a_fix(1.0 - rate) };
    FLAKY.contains(&rate) && bits.trailing(true) < ends && !bits.is_in_blocks(MISSED)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `#` seen, `.` judged and not seen, `?` not judged, `x` its test is gone, `y` its suite is, `-` a partial run
    /// without the test, `_` without the suite, `w` seen and waived, a digit that it is so many times as large, `(…)`
    /// runs of one commit.
    fn observations(script: &str) -> Vec<Observation> {
        // In front of a run: `~` its changes are in no commit, `^` and that commit was measured again later.
        let (mut is_run, mut is_old, mut measured) = (false, false, String::new());
        let (mut found, mut commit, mut inside) = (Vec::new(), 0, false);
        for c in script.chars() {
            match c {
                '(' => (commit, inside) = (commit + 1, true),
                ')' => inside = false,
                '~' => is_run = true,
                '^' => (is_run, is_old) = (true, true),
                c => {
                    commit += i64::from(!inside);
                    let run = i64::try_from(found.len()).unwrap();
                    let key = if std::mem::take(&mut is_run) {
                        key_of_run(commit)
                    } else {
                        measured = format!("c{commit}");
                        measured.clone()
                    };
                    found.push(Observation {
                        key,
                        commit: measured.clone(),
                        run,
                        at_us: if std::mem::take(&mut is_old) { run - 1000 } else { run },
                        seen: "#w".contains(c) || c.is_ascii_digit(),
                        judged: "#w.".contains(c) || c.is_ascii_digit(),
                        gone: c == 'x',
                        suite_gone: c == 'y',
                        listed: !"xy-_".contains(c),
                        has_suite: !"y_".contains(c),
                        waived: c == 'w',
                        bytes: 7.0 * f64::from(c.to_digit(10).unwrap_or(1)),
                        count: 1.0,
                    });
                }
            }
        }
        found
    }

    fn of(script: &str) -> Life {
        fold(&observations(script)).unwrap()
    }

    fn told(script: &str) -> Vec<(&'static str, String, String)> {
        of(script).events.into_iter().map(|event| (event.what.name(), event.key, event.before)).collect()
    }

    #[test]
    fn a_leak_is_new_known_fixed_and_regressed_at_the_right_commits() {
        let event = |state, key: &str, before: &str| (state, key.to_owned(), before.to_owned());
        assert_eq!(
            told("..##..#"),
            [
                event("new", "c3", "c2"),
                event("known", "c4", ""),
                event("fixed", "c5", "c4"),
                event("regressed", "c7", "c6"),
            ]
        );
        let life = of("..##.");
        assert_eq!((life.state, life.first.as_str(), life.clean.as_str()), (State::Fixed, "c3", "c2"));
        assert_eq!((life.last.as_str(), life.fixed.as_str()), ("c4", "c5"));
        assert_eq!(of("#").clean, "", "nobody measured before");
    }

    /// Regression: a run with uncommitted changes hid the last clean commit, and a fix that one had shown had no name.
    #[test]
    fn a_run_with_uncommitted_changes_counts_but_commits_are_named() {
        let event = |state, key: &str, before: &str| (state, key.to_owned(), before.to_owned());
        assert_eq!(told("..~.#"), [event("new", "c4", "c2")]);
        assert_eq!(told("~.#"), [event("new", "c2", "run-1")], "no commit is known");
        assert_eq!(told("#.~.#")[2], event("regressed", "c4", "c2"));
        let of = |script| of(script).fixed;
        assert_eq!((of("##~."), of("##~.?"), of("##~.~.")), ("run-3".into(), "run-3".into(), "run-3".into()));
        assert_eq!((of("##~.."), of("##~.~..."), of("##~.#")), ("c4".into(), "c5".into(), String::new()));
        assert_eq!(of("#.#.#~........"), "c7", "of a leak that comes and goes, too");
        assert_eq!(told("##~...").len(), 3, "new, known, and fixed once");
    }

    /// Regression: a leak stayed fixed although the changes that fixed it were taken back.
    #[test]
    fn uncommitted_changes_count_until_their_commit_is_measured_again() {
        for script in ["#^.", "(##)^.", "(#?)^.~#", "#?^."] {
            let life = of(script);
            let events: Vec<_> = life.events.iter().map(|event| event.what).collect();
            assert!(life.state.is_alive() && !events.contains(&What::To(State::Fixed)), "{script}");
            assert!(!life.flaky, "{script}");
        }
        assert_eq!(of("#^.~.").fixed, "run-3", "newer changes count");
        assert_eq!(of("##^#.").fixed, "c4");
        assert_eq!(fold(&observations(".^#.")), None, "the commit does not have what its changes leaked");
        assert_eq!(told("?^#"), [("new", "run-2".to_owned(), String::new())], "it did not judge the tests");
    }

    /// Regression: later runs of the commit took the event.
    #[test]
    fn the_run_that_first_shows_a_change_has_its_event() {
        let told = |script| of(script).events.iter().map(|event| event.run).collect::<Vec<_>>();
        assert_eq!(told("(?##)(?##)(?..)(.##)"), [1, 4, 7, 10], "new, known, fixed, regressed");
    }

    #[test]
    fn never_seen_is_no_life() {
        assert_eq!(fold(&observations("..?.")), None);
        assert_eq!(fold(&[]), None);
    }

    #[test]
    fn a_commit_that_was_not_judged_is_no_absence() {
        for script in ["##?", "##???????????", "##?(??)"] {
            assert_eq!(of(script).state, State::Known, "{script}");
        }
        assert_eq!(of("##?.").fixed, "c4");
    }

    #[test]
    fn a_rare_leak_needs_as_many_commits_as_its_rate_demands() {
        for (rate, misses) in [(1.0, 1), (0.9, 2), (0.5, 7), (0.2, 21), (0.1, 44)] {
            assert_eq!(misses_of_a_fix(rate), misses, "{rate}");
        }
        let half = ".#.#.#.#.#.#.#.#";
        assert_eq!(of(&format!("{half}......")).state, State::Known);
        let fixed = of(&format!("{half}.........."));
        assert_eq!((fixed.state, fixed.fixed.as_str()), (State::Fixed, "c17"), "by its first absence");
    }

    #[test]
    fn a_leak_that_one_run_of_a_commit_missed_is_not_fixed_by_one_run_of_the_next() {
        for script in ["(#.)", "(.#)", "##(#.)", "(#.)###"] {
            let missed = |commits| of(&format!("{script}{}", ".".repeat(commits)));
            assert_eq!((missed(6).state.is_alive(), missed(6).flaky), (true, true), "{script}");
            assert_eq!(missed(7).state, State::Fixed, "{script}: as one of every second commit");
        }
        assert_eq!(of("(#.)#######.").state, State::Fixed, "evidence ends it");
    }

    #[test]
    fn what_comes_and_goes_is_flaky_until_it_does_not() {
        let flaky = |script: &str| of(script).flaky;
        assert!(flaky("#.#.#") && flaky("##(#.)#"), "on several commits, and on one");
        assert!(!flaky("#") && !flaky("#####") && !flaky("....##"));
        assert!(!flaky(&format!("#.#{}", "#".repeat(40))), "evidence ends it");
        assert!(!flaky("##(#.)########"));
        assert!(!flaky("#.#.#......................."), "it is fixed");
    }

    #[test]
    fn a_leak_whose_fix_was_reverted_is_not_flaky() {
        let of = |seen: usize, missed: usize| of(&format!("{}{}#", "#".repeat(seen), ".".repeat(missed)));
        for (seen, missed) in [(12, 4), (9, 5), (7, 6), (23, 3)] {
            let (told, earlier) = (of(seen, missed), of(seen - 1, missed));
            assert_eq!((told.state, told.flaky), (State::Regressed, false), "{seen} {missed}");
            assert!(earlier.flaky, "{seen} {missed}: with less evidence it may be chance");
        }
        assert!(of(15, 1).flaky, "one miss may always be chance");
        assert!(super::tests::of("###.####.####.##.#").flaky, "several gaps");
    }

    #[test]
    fn a_long_gap_ends_what_was_known_of_its_rate() {
        let life = of("##........................................##.");
        assert_eq!((life.state, life.fixed.as_str()), (State::Fixed, "c45"));
    }

    #[test]
    fn without_its_tests_a_leak_is_gone_and_not_fixed() {
        assert_eq!(of("##x").state, State::Gone);
        assert_eq!(of("##x#").state, State::Regressed, "they are back");
        assert_eq!(of("##.x").state, State::Fixed, "it was fixed before");
        for partial in ["##(x-)", "##(-x)", "##x-", "##(x-)x"] {
            assert_eq!(of(partial).state, State::Gone, "{partial}: a partial run proves nothing");
            assert_eq!(told(partial).len(), 3, "{partial}: new, known, gone");
        }
        for without_suite in ["##y", "##(y_)", "##(_y)"] {
            assert_eq!(of(without_suite).state, State::Gone, "{without_suite}");
        }
        assert_eq!(
            of("##(y-)").state,
            State::Known,
            "another job of the commit has the suite, and crashed in it"
        );
        assert_eq!(of("##(x?)").state, State::Known, "another run of the commit has the test");
    }

    #[test]
    fn a_waiver_is_a_mark_and_no_state() {
        let life = of("#ww");
        assert_eq!((life.state, life.waived), (State::Known, true));
        assert!(!of("w#").waived);
    }

    #[test]
    fn a_known_leak_that_leaks_more_than_ever_since_it_came_is_larger() {
        let larger = |script| {
            let told = told(script).into_iter().filter(|(what, ..)| *what == "larger");
            told.map(|(_, key, before)| format!("{before} {key}")).collect::<Vec<_>>()
        };
        assert_eq!(larger("##2#2?3"), ["c2 c3", "c5 c7"], "news once");
        assert_eq!(larger("#.2"), [""; 0], "it came back");
        assert_eq!(larger("#.......23"), ["c9 c10"]);
        assert_eq!(larger("(#2)(2#)(23)"), ["c2 c3"], "a commit counts once, with its largest run");
        assert_eq!(larger("#ww2"), ["c3 c4"]);
        assert_eq!(larger("#.#.2.3.4"), [""; 0], "what comes and goes has any size");
        // Regression: of two runs of a commit, the last one counted for what has no bytes, also if it showed less.
        let of_descriptors = |script| {
            let mut observations = observations(script);
            for seen in &mut observations {
                (seen.bytes, seen.count) = (0.0, seen.bytes);
            }
            let events = fold(&observations).unwrap().events.into_iter();
            let larger = events.filter(|event| event.what == What::Larger);
            larger.map(|event| format!("{} {} {}", event.before, event.key, event.run)).collect::<Vec<_>>()
        };
        assert_eq!(of_descriptors("#(#2)(2#)(23)"), ["c1 c2 2", "c3 c4 6"]);
        assert_eq!(of_descriptors("(2#)2"), [""; 0], "it is as large as it was");
        assert_eq!(of_descriptors("##(2#)"), ["c2 c3 2"]);
        let runs = |script| of(script).events.iter().map(|event| event.run).collect::<Vec<_>>();
        assert_eq!(runs("#(#22)"), [0, 1, 2], "new, known, larger: the first run that shows it");
    }

    proptest! {
        #[test]
        fn any_history_has_one_life(script in "[#2.?xyw_-]{0,200}") {
            let observations = observations(&script);
            if let Some(life) = fold(&observations) {
                let states = life.events.iter().filter_map(|event| match event.what {
                    What::To(state) => Some(state),
                    What::Larger => None,
                });
                let states: Vec<_> = states.collect();
                prop_assert_eq!(states.last(), Some(&life.state));
                prop_assert!(life.window.len() <= Bits::MOST && (0.0..=1.0).contains(&life.rate));
                prop_assert!(states.windows(2).all(|two| two[0] != two[1]), "{:?}", states);
                prop_assert_eq!(states.first(), Some(&State::New));
            }
        }

        #[test]
        fn a_fold_that_is_kept_and_read_again_goes_on_as_if_it_never_was(
            script in "([~^]?[#23.?xyw_-]|\\([#23.?xyw_-]{1,3}\\)){1,120}",
            kept in proptest::collection::vec(any::<bool>(), 400),
        ) {
            let observations = observations(&script);
            let (mut fold, mut told) = (Fold::default(), Vec::<Event>::new());
            for (run, kept) in observations.iter().zip(&kept) {
                if *kept {
                    let text = serde_json::to_string(&fold).unwrap();
                    fold = serde_json::from_str(&text).unwrap();
                    told = Vec::new();
                }
                fold.push(run);
                told = fold.life().map_or(told, |life| life.events);
            }
            let through = observations.len().min(kept.len());
            let (whole, kept) = (super::fold(&observations[..through]), fold.life());
            if let (Some(mut whole), Some(mut kept)) = (whole.clone(), kept.clone()) {
                prop_assert!(whole.events.ends_with(&told), "{told:?}");
                whole.events.clear();
                kept.events.clear();
                prop_assert_eq!(whole, kept);
            } else {
                prop_assert_eq!(whole, kept);
            }
        }
    }
}
