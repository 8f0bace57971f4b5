//! The life of a leak on one line and environment: new, known, fixed, regressed, gone.
//!
//! Data flow: all observations of the leak, in the order of the line → [`fold`] → its [`Life`] with every event. The fold begins at the
//! first observation each time. So the order in which runs arrive changes nothing: a late run of an old commit takes its place, and
//! an event is the same whenever it is found, which its `kind` and `key` tell.
//!
//! A leak is **fixed** when it was not seen as often as its own rate p demands: the smallest number of judged commits of which a leak of
//! that rate would have shown in one with 99 %. p counts from its first sighting on, and begins anew after a gap so long that a
//! leak of every second commit would have shown.

/// Judged commits that are remembered.
const WINDOW: usize = 63;
/// A gap of so many judged commits is none of a leak that comes every second time (1 % at most).
const CONCLUSIVE_GAP: usize = 7;
const FLAKY: std::ops::RangeInclusive<f64> = 0.05..=0.95;
const MISSED: f64 = 0.01;

/// What one run says about a leak.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// What was measured: the commit, or the run itself where there is no commit. Runs with the same key follow one another.
    pub key: String,
    /// The run.
    pub run: i64,
    /// When it began, microseconds since 1970.
    pub at_us: i64,
    /// The leak was seen.
    pub seen: bool,
    /// A test that has had the leak was judged.
    pub judged: bool,
    /// None of its tests exists any more: the run was a whole one.
    pub gone: bool,
    /// Covered by a waiver.
    pub waived: bool,
    /// Bytes per iteration, of the test that leaks most.
    pub bytes: f64,
    /// Objects per iteration of that test.
    pub count: f64,
}

/// Where a leak stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Seen on one commit.
    New,
    /// Seen on several.
    Known,
    /// Not seen any more, as often as its rate demands.
    Fixed,
    /// Seen again after its fix.
    Regressed,
    /// Its tests are gone.
    Gone,
}

impl State {
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

    /// Its word.
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

    /// The way back from its number.
    #[must_use]
    pub fn of_number(number: i64) -> Option<Self> {
        let all = [Self::New, Self::Known, Self::Fixed, Self::Regressed, Self::Gone];
        all.into_iter().find(|state| state.number() == number)
    }

    /// New, known or regressed.
    #[must_use]
    pub const fn is_alive(self) -> bool {
        matches!(self, Self::New | Self::Known | Self::Regressed)
    }
}

/// Something that happened to a leak.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// The state it came to.
    pub state: State,
    /// The commit, or run, that showed it.
    pub key: String,
    /// The run.
    pub run: i64,
    /// When that began.
    pub at_us: i64,
    /// The last judged commit before it that said otherwise; empty: none.
    pub before: String,
}

/// A leak on a line.
#[derive(Debug, Clone, PartialEq)]
pub struct Life {
    /// Where it stands.
    pub state: State,
    /// It comes and goes on the same code.
    pub flaky: bool,
    /// A waiver covered it when it was last seen.
    pub waived: bool,
    /// First commit that saw it, since its last fix that was followed by a conclusive gap.
    pub first: String,
    /// The last judged commit before that one; empty: none.
    pub clean: String,
    /// Last commit that saw it.
    pub last: String,
    /// First commit without it, where it is fixed.
    pub fixed: String,
    /// When the run of `first` began.
    pub since_us: i64,
    /// The run that saw it last.
    pub last_run: i64,
    /// The last judged commits, oldest first: seen or not.
    pub window: Vec<bool>,
    /// Share of judged commits that saw it, since `first`.
    pub rate: f64,
    /// Bytes per iteration when it was last seen.
    pub bytes: f64,
    /// Objects per iteration when it was last seen.
    pub count: f64,
    /// What happened, in the order of the line.
    pub events: Vec<Event>,
}

/// How many judged commits without it show that a leak is fixed that was seen in this share of them.
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

/// All runs of one commit.
struct Commit<'a> {
    key: &'a str,
    first: &'a Observation,
    /// The largest of those that saw it.
    seen: Option<&'a Observation>,
    judged: bool,
    gone: bool,
    /// One run saw it, another one did not.
    disagrees: bool,
}

/// The life of a leak; `None`: it was never seen. `observations` stand in the order of the line.
#[must_use]
pub fn fold(observations: &[Observation]) -> Option<Life> {
    let mut life: Option<Folding> = None;
    let mut clean = "";
    // Commits after a fix are remembered once it is seen again: what is fixed needs no look at each run.
    let (mut window, mut after) = (Vec::new(), Vec::new());
    for commit in observations.chunk_by(|a, b| a.key == b.key).filter_map(commit) {
        if commit.judged {
            after.push(commit.seen.is_some());
        }
        if commit.seen.is_some() || life.as_ref().is_none_or(|life| life.life.state.is_alive()) {
            window.append(&mut after);
        }
        match (&mut life, commit.seen) {
            (Some(life), _) => life.goes_on(&commit),
            (None, Some(seen)) => life = Some(Folding::begins(&commit, seen, clean)),
            (None, None) if commit.judged => clean = commit.key,
            (None, None) => {}
        }
    }
    let mut life = life?.finish();
    life.window = window.split_off(window.len().saturating_sub(WINDOW));
    Some(life)
}

fn commit(runs: &[Observation]) -> Option<Commit<'_>> {
    let first = runs.first()?;
    let seen = runs.iter().filter(|run| run.seen).max_by(|a, b| a.bytes.total_cmp(&b.bytes));
    Some(Commit {
        key: &first.key,
        first,
        seen,
        judged: runs.iter().any(|run| run.seen || run.judged),
        gone: runs.iter().all(|run| run.gone && !run.judged),
        disagrees: seen.is_some() && runs.iter().any(|run| run.judged && !run.seen),
    })
}

/// A life that is being followed.
struct Folding {
    life: Life,
    /// Judged commits since its first sighting, or since it came back after a long gap: seen or not.
    bits: Vec<bool>,
    /// The first commit without it, since it was last seen, with the run that showed it.
    missing: Option<(String, i64, i64)>,
    /// The last commit without it, since it was last seen.
    clean: String,
    /// Runs of one commit said different things, that many judged commits ago.
    disagreed: Option<usize>,
}

impl Folding {
    fn begins(commit: &Commit<'_>, seen: &Observation, clean: &str) -> Self {
        let life = Life {
            state: State::New,
            flaky: false,
            waived: false,
            first: commit.key.to_owned(),
            clean: clean.to_owned(),
            last: String::new(),
            fixed: String::new(),
            since_us: commit.first.at_us,
            last_run: 0,
            window: Vec::new(),
            rate: 1.0,
            bytes: 0.0,
            count: 0.0,
            events: Vec::new(),
        };
        let mut folding =
            Self { life, bits: Vec::new(), missing: None, clean: String::new(), disagreed: None };
        folding.comes_to(State::New, (commit.key.to_owned(), seen.run, seen.at_us), clean.to_owned());
        folding.saw(commit, seen);
        folding
    }

    fn goes_on(&mut self, commit: &Commit<'_>) {
        match commit.seen {
            Some(seen) => {
                match self.life.state {
                    State::New | State::Regressed => {
                        self.comes_to(
                            State::Known,
                            (commit.key.to_owned(), seen.run, seen.at_us),
                            String::new(),
                        );
                    }
                    State::Known => {}
                    State::Fixed | State::Gone => self.comes_back(commit, seen),
                }
                self.saw(commit, seen);
            }
            None if commit.judged => self.missed(commit),
            None if commit.gone && self.life.state.is_alive() => {
                let at = (commit.key.to_owned(), commit.first.run, commit.first.at_us);
                self.comes_to(State::Gone, at, self.life.last.clone());
            }
            None => {}
        }
    }

    fn comes_back(&mut self, commit: &Commit<'_>, seen: &Observation) {
        let gap = self.bits.iter().rev().take_while(|seen| !**seen).count();
        let clean = std::mem::take(&mut self.clean);
        if gap >= CONCLUSIVE_GAP {
            self.bits.clear();
            self.disagreed = None;
            self.life.first = commit.key.to_owned();
            self.life.since_us = seen.at_us;
            self.life.clean.clone_from(&clean);
        }
        self.life.fixed.clear();
        self.comes_to(State::Regressed, (commit.key.to_owned(), seen.run, seen.at_us), clean);
    }

    fn saw(&mut self, commit: &Commit<'_>, seen: &Observation) {
        self.push(true);
        if commit.disagrees {
            self.disagreed = Some(0);
        }
        self.missing = None;
        self.clean.clear();
        self.life.last = commit.key.to_owned();
        self.life.last_run = seen.run;
        self.life.waived = seen.waived;
        self.life.bytes = seen.bytes;
        self.life.count = seen.count;
    }

    fn missed(&mut self, commit: &Commit<'_>) {
        // Its rate is that up to its last sighting: what came after is what it is compared with.
        let (misses, rate) = (self.trailing_misses() + 1, self.rate_when_seen());
        self.push(false);
        let at = (commit.key.to_owned(), commit.first.run, commit.first.at_us);
        commit.key.clone_into(&mut self.clean);
        let missing = self.missing.get_or_insert(at).clone();
        if self.life.state.is_alive() && misses >= misses_of_a_fix(rate) {
            self.life.fixed.clone_from(&missing.0);
            self.comes_to(State::Fixed, missing, self.life.last.clone());
        }
    }

    fn push(&mut self, seen: bool) {
        self.bits.push(seen);
        if self.bits.len() > WINDOW {
            self.bits.remove(0);
        }
        self.disagreed = self.disagreed.map(|commits| commits + 1);
    }

    fn trailing_misses(&self) -> usize {
        self.bits.iter().rev().take_while(|seen| !**seen).count()
    }

    /// Share of the judged commits that saw it, up to the last one that did.
    fn rate_when_seen(&self) -> f64 {
        let bits = &self.bits[..self.bits.len() - self.trailing_misses()];
        share(bits)
    }

    fn comes_to(&mut self, state: State, (key, run, at_us): (String, i64, i64), before: String) {
        self.life.state = state;
        self.life.events.push(Event { state, key, run, at_us, before });
    }

    fn finish(mut self) -> Life {
        self.life.rate = share(&self.bits);
        let rate = self.rate_when_seen();
        // A leak that comes and goes shows so many sightings in a row with 1 % at most.
        let steady = self.bits.iter().rev().take_while(|seen| **seen).count();
        let ends = if rate >= 1.0 { 1 } else { misses_of_a_fix(1.0 - rate) };
        let disagreed = self.disagreed.is_some_and(|commits| commits < CONCLUSIVE_GAP);
        self.life.flaky =
            self.life.state.is_alive() && ((FLAKY.contains(&rate) && steady < ends) || disagreed);
        self.life
    }
}

#[expect(clippy::cast_precision_loss, reason = "63 at most")]
fn share(bits: &[bool]) -> f64 {
    if bits.is_empty() {
        return 1.0;
    }
    bits.iter().filter(|seen| **seen).count() as f64 / bits.len() as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `#` seen, `.` judged and not seen, `?` not judged, `x` its test is gone, `w` seen and waived, `(…)` runs of one commit.
    fn observations(script: &str) -> Vec<Observation> {
        let (mut found, mut commit, mut inside) = (Vec::new(), 0, false);
        for c in script.chars() {
            match c {
                '(' => (commit, inside) = (commit + 1, true),
                ')' => inside = false,
                c => {
                    commit += i64::from(!inside);
                    let run = i64::try_from(found.len()).unwrap();
                    found.push(Observation {
                        key: format!("c{commit}"),
                        run,
                        at_us: run,
                        seen: "#w".contains(c),
                        judged: "#w.".contains(c),
                        gone: c == 'x',
                        waived: c == 'w',
                        bytes: 7.0,
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
        of(script).events.into_iter().map(|event| (event.state.name(), event.key, event.before)).collect()
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
    fn what_comes_and_goes_is_flaky_until_it_does_not() {
        let flaky = |script: &str| of(script).flaky;
        assert!(flaky("#.#.#") && flaky("##(#.)#"), "on several commits, and on one");
        assert!(!flaky("#") && !flaky("#####") && !flaky("....##"));
        assert!(!flaky(&format!("#.#{}", "#".repeat(40))), "evidence ends it");
        assert!(!flaky("##(#.)########"));
        assert!(!flaky("#.#.#......................."), "it is fixed");
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
    }

    #[test]
    fn a_waiver_is_a_mark_and_no_state() {
        let life = of("#ww");
        assert_eq!((life.state, life.waived), (State::Known, true));
        assert!(!of("w#").waived);
    }

    proptest! {
        #[test]
        fn any_history_has_one_life(script in "[#.?xw]{0,200}") {
            let observations = observations(&script);
            if let Some(life) = fold(&observations) {
                prop_assert_eq!(life.events.last().map(|event| event.state), Some(life.state));
                prop_assert!(life.window.len() <= WINDOW && (0.0..=1.0).contains(&life.rate));
                let states: Vec<_> = life.events.iter().map(|event| event.state).collect();
                prop_assert!(states.windows(2).all(|two| two[0] != two[1]), "{:?}", states);
                prop_assert_eq!(states.first(), Some(&State::New));
            }
        }
    }
}
