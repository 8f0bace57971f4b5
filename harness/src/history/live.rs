//! Reports a run while it goes on (`memgate run --live`).
//!
//! Data flow: each step of a pass (`Console::step`) → the latest state → a separate thread posts it, at most once a
//! second → the server's page. The run never waits; the first failure is reported once, as a warning.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use memgate_config::Upload;
use memgate_model::{Origin, Verdict};
use memgate_server::live::LiveRun;

use super::upload::Summaries;
use crate::output::{Console, Step};

/// Time between two posts.
const PACE: Duration = Duration::from_secs(1);
/// Time limit of one post; the end of a run waits for the last one.
const LIMIT: Duration = Duration::from_secs(3);
/// A run without changes is also posted: the server assumes that a silent one has ended.
const ALIVE: Duration = Duration::from_secs(20);

/// Posts the state of a run until dropped.
pub(crate) struct Live<'a> {
    console: &'a Console,
    state: Arc<Mutex<LiveRun>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Option<String>>>,
}

impl<'a> Live<'a> {
    /// Begins to post to a server.
    #[must_use]
    pub(crate) fn begin(to: &Upload, project: &str, origin: &Origin, console: &'a Console) -> Self {
        let commit = origin.commit.clone().unwrap_or_default();
        let state = Arc::new(Mutex::new(LiveRun {
            id: format!("{:016x}", RandomState::new().hash_one(std::process::id())),
            branch: commit.branch,
            sha: commit.sha,
            job: origin.ci.as_ref().map_or_else(String::new, |ci| ci.url.clone()),
            phase: "starting".to_owned(),
            ..LiveRun::default()
        }));
        let (stop, stopped) = channel();
        let (to, project, told) = (to.clone(), project.to_owned(), Arc::clone(&state));
        let thread = std::thread::spawn(move || tell(&to, &project, &told, &stopped));
        let steps = Arc::clone(&state);
        console.watched_by(Some(Arc::new(move |step: Step<'_>| {
            let mut state = steps.lock().unwrap_or_else(PoisonError::into_inner);
            state.phase = step.phase.to_owned();
            (state.done, state.of) = (step.done, step.of);
            state.now = step.now.to_owned();
        })));
        Self { console, state, stop: Some(stop), thread: Some(thread) }
    }

    /// The run has ended with this number of tests; `page` is its page in the history, if it has one.
    pub(crate) fn end(self, (verdict, tests): (Verdict, usize), page: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.verdict = verdict_word(verdict).to_owned();
        page.clone_into(&mut state.page);
        "ended".clone_into(&mut state.phase);
        (state.done, state.of) = (u64::try_from(tests).unwrap_or(u64::MAX), None);
        state.now.clear();
    }
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        self.console.watched_by(None);
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.verdict.is_empty() {
                "broken off".clone_into(&mut state.verdict);
            }
        }
        // The thread waits for this channel to close, then posts the last state.
        drop(self.stop.take());
        let failed = self.thread.take().and_then(|thread| thread.join().ok()).flatten();
        if let Some(why) = failed {
            self.console.warning(&format!("nobody could watch this run: {why}"));
        }
    }
}

const fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Warn => "warn",
        Verdict::Fail => "fail",
        Verdict::Error => "error",
        Verdict::NotJudged => "not judged",
    }
}

/// Posts changes until the run has ended; returns why the first failed post failed.
fn tell(to: &Upload, project: &str, state: &Mutex<LiveRun>, stopped: &Receiver<()>) -> Option<String> {
    let mut summaries = match Summaries::to(to, project) {
        Ok(summaries) => summaries,
        Err(why) => return Some(why),
    };
    let began = Instant::now();
    let (mut last, mut at, mut failed) = (LiveRun::default(), None::<Instant>, None);
    loop {
        let over = matches!(stopped.recv_timeout(PACE), Err(RecvTimeoutError::Disconnected));
        let now = state.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_due = now != last || at.is_none_or(|at| at.elapsed() >= ALIVE);
        if is_due || over {
            let told = LiveRun { seconds: began.elapsed().as_secs(), ..now.clone() };
            if let Err(why) = summaries.post(&told, LIMIT) {
                failed.get_or_insert(why);
            }
            (last, at) = (now, Some(Instant::now()));
        }
        if over {
            return failed;
        }
    }
}
