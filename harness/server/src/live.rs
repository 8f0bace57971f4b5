//! Runs in progress, as `memgate run --live` reports them, for people who watch now. Nothing is stored.
//!
//! Data flow: one summary a second (`POST …/live`) → [`Board`], the newest of each run → the page, and a stream of
//! events for watchers. A slow watcher misses states, but never the newest one.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Most runs at the same time.
const MOST_RUNS: usize = 1000;
/// Longest text, in bytes; the rest is cut.
const LONGEST: usize = 300;
/// A run that is silent for this long is dropped: it was killed, or its machine is gone.
const SILENT: Duration = Duration::from_secs(60);
/// How long the end of a run is shown.
const ENDED: Duration = Duration::from_secs(600);

/// Progress of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveRun {
    /// Id that the run chose; unique in its project.
    pub id: String,
    /// Its branch; empty: not known.
    pub branch: String,
    /// Its commit; empty: not known.
    pub sha: String,
    /// Page of its CI job; empty: none.
    pub job: String,
    /// Its phase: `screening`, `confirming`.
    pub phase: String,
    /// Tests that have ended in this phase.
    pub done: u64,
    /// Number of tests in this phase; `None`: not known.
    pub of: Option<u64>,
    /// The current test, and what was seen so far.
    pub now: String,
    /// Seconds since the run began.
    pub seconds: u64,
    /// Its verdict; empty: the run goes on.
    pub verdict: String,
    /// Path of its page in the history, once it is there.
    pub page: String,
}

struct Kept {
    run: LiveRun,
    at: Instant,
}

/// The newest state of each run, by project and id.
pub(crate) struct Board {
    runs: Mutex<BTreeMap<(String, String), Kept>>,
    changed: watch::Sender<u64>,
}

impl Default for Board {
    fn default() -> Self {
        Self { runs: Mutex::default(), changed: watch::Sender::new(0) }
    }
}

impl Board {
    /// Stores the state of a run; `false`: there are too many runs.
    pub(crate) fn tell(&self, project: &str, run: LiveRun) -> bool {
        let run = run.cut();
        let key = (project.to_owned(), run.id.clone());
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.retain(|_, kept| kept.is_fresh());
        if runs.len() >= MOST_RUNS && !runs.contains_key(&key) {
            return false;
        }
        runs.insert(key, Kept { run, at: Instant::now() });
        drop(runs);
        self.changed.send_modify(|version| *version += 1);
        true
    }

    /// Runs of a project, ordered by id.
    pub(crate) fn of(&self, project: &str) -> Vec<LiveRun> {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = runs.iter().filter(|((of, _), kept)| of == project && kept.is_fresh());
        fresh.map(|(_, kept)| kept.run.clone()).collect()
    }

    /// Returns a receiver that is notified of every change of any run.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

impl Kept {
    fn is_fresh(&self) -> bool {
        self.at.elapsed() < if self.run.verdict.is_empty() { SILENT } else { ENDED }
    }
}

impl LiveRun {
    fn cut(mut self) -> Self {
        for text in [
            &mut self.id,
            &mut self.branch,
            &mut self.sha,
            &mut self.job,
            &mut self.phase,
            &mut self.now,
            &mut self.verdict,
            &mut self.page,
        ] {
            text.truncate(text.floor_char_boundary(LONGEST));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(id: &str, done: u64) -> LiveRun {
        LiveRun { id: id.into(), done, ..LiveRun::default() }
    }

    #[test]
    fn the_newest_of_each_run_is_there_and_watchers_are_told() {
        let board = Board::default();
        let mut watcher = board.watch();
        assert!(board.tell("tiles", run("a", 1)) && board.tell("tiles", run("a", 2)));
        assert!(board.tell("roads", run("b", 9)) && board.tell("tiles", run("b", 5)));
        let done = |project: &str| board.of(project).into_iter().map(|run| run.done).collect::<Vec<_>>();
        assert_eq!((done("tiles"), done("roads"), done("none")), (vec![2, 5], vec![9], vec![]));
        assert!(watcher.has_changed().unwrap() && *watcher.borrow_and_update() == 4);
    }

    #[test]
    fn nobody_fills_the_memory_of_a_server() {
        let board = Board::default();
        let long = LiveRun { now: "ä".repeat(10_000), ..run("long", 0) };
        assert!(board.tell("tiles", long) && board.of("tiles")[0].now.len() == LONGEST);
        for number in 1..MOST_RUNS {
            assert!(board.tell("tiles", run(&number.to_string(), 0)));
        }
        assert!(!board.tell("tiles", run("one more", 0)) && board.tell("tiles", run("1", 7)));
        assert_eq!(board.of("tiles").len(), MOST_RUNS);
    }
}
