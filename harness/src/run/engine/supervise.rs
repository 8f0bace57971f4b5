//! Runs one command with the agent inside and follows it until it ends: common to screening and confirming.
//!
//! Data flow: [`Job`] → child process and recorder → [`RunState`] → [`Done`]. Three things end a run early: in
//! memgate's own runs a test that takes too long ends its process; the user's signal ends everything; a command that
//! cannot be started is an error for the user to fix.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memgate_launch::{Ended, Exit, Launch, LaunchError, Running};
use memgate_wire::options::Options;
use memgate_wire::{OsSample, ThreadEntry};
use tokio::task::block_in_place;

use super::context::{Context, Stopped};
use super::news::News;
use super::orders::{MakeOrders, Settle, Watch};
use super::state::{Clocked, Finished, Limit, Overdue, RunState};
use crate::agent::with_agent;
use crate::exit::{ExpectedError, chain};
use crate::output::Console;
use crate::recorder::{self, ProcessKey, Recorder};
use crate::session::facts::EndingFacts;

/// How long a listing of descriptors and threads stays valid while their numbers do not change. The names of
/// descriptors and threads that appear and vanish unseen by the agent may be this old.
const LISTING_STANDS: Duration = Duration::from_millis(20);
/// How often waiting events are read, and progress is shown.
const TICK: Duration = Duration::from_millis(250);
/// How long processes get to end by themselves after the user's first signal.
const GRACE: Duration = Duration::from_secs(10);
/// Maximum number of threads named for a hanging test.
const SHOWN_THREADS: usize = 8;

/// One command.
pub(in crate::run) struct Job {
    launch: Launch,
    pub(in crate::run) options: Options,
    /// Whether the agent is preloaded. Otherwise `launch` already names it, as Java virtual machines need.
    preload: bool,
    orders: MakeOrders,
    clocked: Clocked,
    limit: Limit,
    limits: BTreeMap<String, Duration>,
    listing_stands: Duration,
}

impl Job {
    /// A command with the agent preloaded, without orders at the ends of its tests.
    pub(in crate::run) fn new(launch: Launch, options: Options, clocked: Clocked, limit: Limit) -> Self {
        let orders: MakeOrders = Box::new(|_| Box::new(Settle::new(false)));
        let (limits, listing_stands) = (BTreeMap::new(), Duration::ZERO);
        Self { launch, options, preload: true, orders, clocked, limit, limits, listing_stands }
    }

    /// Sets time limits for single tests.
    pub(in crate::run) fn with_limits(self, limits: BTreeMap<String, Duration>) -> Self {
        Self { limits, ..self }
    }

    /// With orders at the ends of its tests.
    pub(in crate::run) fn with(self, orders: MakeOrders) -> Self {
        Self { orders, ..self }
    }

    /// Lists descriptors and threads only when their numbers change, or [`LISTING_STANDS`] after the last listing.
    pub(in crate::run) fn listing_where_numbers_change(self) -> Self {
        Self { listing_stands: LISTING_STANDS, ..self }
    }

    /// For virtual machines that load the agent by themselves.
    pub(in crate::run) fn loaded(self) -> Self {
        Self { preload: false, ..self }
    }
}

/// A command that has ended.
#[derive(Debug)]
pub(in crate::run) struct Done {
    pub(in crate::run) ended: Ended,
    /// Processes that were measured, in the order they began.
    pub(in crate::run) finished: Vec<Finished>,
    pub(in crate::run) elapsed: Duration,
    /// Problems of the recorder.
    pub(in crate::run) problems: Vec<String>,
}

/// Runs `job`; calls `show` from time to time.
pub(in crate::run) async fn supervise(
    context: &mut Context<'_>,
    job: Job,
    show: &mut dyn FnMut(&RunState),
) -> Result<Done, Stopped> {
    let Job { mut launch, options, preload, orders, clocked, limit, limits, listing_stands } = job;
    let news = Arc::new(News::default());
    if preload {
        with_agent(&mut launch, context.agent, &options).map_err(|why| ExpectedError::failed(&why))?;
    }
    let recorder_options = recorder::Options {
        interval: context.interval,
        wait: options.wait,
        listing_stands,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let watch = Arc::new(Watch { news: Arc::clone(&news), orders, names: Arc::clone(&context.names) });
    let recorder = Recorder::start(Path::new(&options.directory), recorder_options, watch)
        .map_err(|why| ExpectedError::failed(&why))?;
    let started = Instant::now();
    let program = launch.program.clone();
    let running = launch.start().map_err(|why| cannot_start(&program, &why))?;
    // Such a process repeats its test until told to stop. A process that sends nothing would run forever.
    let repeats = preload && clocked == Clocked::Alone;
    let state = RunState::new(clocked, limit).with_limits(limits);
    let unseen_since = repeats.then_some(started);
    let timeout = limit.duration();
    let ends = matches!(limit, Limit::Ends(_));
    let recorder = Some(recorder);
    let mut following = Following { running, recorder, news, state, timeout, ends, unseen_since };
    let ended = match following.follow(context, show).await {
        Ok(ended) => ended,
        Err(stopped) => {
            following.end_recording();
            return Err(stopped);
        }
    };
    let pid = following.running.pid();
    let problems = following.end_recording();
    let mut finished = following.state.into_finished();
    for process in finished.iter_mut().filter(|p| p.hello().pid == pid && p.ending == EndingFacts::Unknown) {
        process.ending = match ended.exit {
            Exit::Code(code) => EndingFacts::Exited(code),
            Exit::Signal { number, .. } => EndingFacts::Signalled(number),
        };
    }
    Ok(Done { ended, finished, elapsed: started.elapsed(), problems })
}

struct Following {
    running: Running,
    recorder: Option<Recorder>,
    news: Arc<News>,
    state: RunState,
    timeout: Duration,
    /// Whether tests that take too long are ended.
    ends: bool,
    /// Time of the last event of a process that ends only when told to.
    unseen_since: Option<Instant>,
}

impl Following {
    /// Follows the command until it has ended and the processes it left have no open test.
    async fn follow(
        &mut self,
        context: &mut Context<'_>,
        show: &mut dyn FnMut(&RunState),
    ) -> Result<Ended, Stopped> {
        let mut ticks = tokio::time::interval(TICK);
        let mut ended = None;
        loop {
            self.take_note();
            if let Some(ended) = ended.take_if(|_| !self.state.has_open_tests()) {
                return Ok(ended);
            }
            let deadline = self.state.next_deadline().or_else(|| self.unseen_deadline());
            tokio::select! {
                () = self.news.urgent() => {}
                end = self.running.wait(), if ended.is_none() => {
                    ended = Some(end.map_err(|why| ExpectedError::failed(&why))?);
                    self.state.command_ended();
                }
                () = at(deadline) => self.end_overdue(context.console),
                () = context.interrupts.next() => {
                    self.end_by_user(context).await;
                    return Err(Stopped::Interrupted);
                }
                _ = ticks.tick() => {
                    self.take_note();
                    show(&self.state);
                }
            }
        }
    }

    fn take_note(&mut self) {
        for (seen, at) in self.news.take() {
            self.state.note(seen, at);
            self.unseen_since = self.unseen_since.map(|_| at);
        }
    }

    /// Used if no process is known to run: it never said hello, or could not go on recording.
    fn unseen_deadline(&self) -> Option<Instant> {
        self.unseen_since?.checked_add(self.timeout)
    }

    fn end_overdue(&mut self, console: &Console) {
        self.take_note();
        let unseen = self.state.next_deadline().is_none().then(|| self.unseen_deadline()).flatten();
        if unseen.is_some_and(|deadline| deadline <= Instant::now()) {
            self.unseen_since = None;
            console.warning(&format!(
                "nothing was recorded for {} s from a test that is repeated: it is ended",
                self.timeout.as_secs_f64()
            ));
            self.running.kill();
        }
        for Overdue { key, what, limit, goes_on } in self.state.overdue(Instant::now()) {
            let Some(recorder) = &self.recorder else { return };
            let stands = block_in_place(|| recorder.capture(key));
            let more = if goes_on { "; it goes on: memgate ends nothing in a run of yours" } else { "" };
            console.warning(&format!(
                "{what} has not ended after {} s{}{more}",
                (limit.as_secs_f64() * 1000.0).round() / 1000.0,
                where_it_hangs(stands.as_ref())
            ));
            if self.ends {
                self.kill(key);
            }
        }
    }

    /// Kills this process only, so that the rest of the tree goes on; the whole group if that fails.
    fn kill(&self, key: ProcessKey) {
        let killed = self.recorder.as_ref().is_some_and(|recorder| recorder.kill(key));
        if !killed {
            self.running.kill();
        }
    }

    async fn end_by_user(&mut self, context: &mut Context<'_>) {
        if context.interrupts.is_first_to_tell() {
            context.console.line("stopping the tests; once more kills them");
        }
        // Tests that have ended by now are judged: this needs a sample of each process.
        for key in self.state.processes() {
            if let Some(recorder) = &self.recorder {
                drop(block_in_place(|| recorder.capture(key)));
            }
        }
        let patient = tokio::select! {
            _ = self.running.stop(GRACE) => true,
            () = context.interrupts.next() => false,
        };
        if !patient {
            self.running.kill();
        }
    }

    /// Reads everything written so far and updates the state with it.
    fn end_recording(&mut self) -> Vec<String> {
        let Some(recorder) = self.recorder.take() else { return Vec::new() };
        let summary = block_in_place(|| recorder.stop());
        self.take_note();
        summary.problems
    }
}

/// Waits until `deadline`; forever if there is none.
pub(in crate::run) async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

/// Where the threads of a process wait, as the end of a line.
fn where_it_hangs(sample: Option<&OsSample>) -> String {
    let Some(sample) = sample.filter(|sample| !sample.threads.is_empty()) else { return String::new() };
    let stands = |thread: &ThreadEntry| {
        let place = if thread.waits_in.is_empty() { "running" } else { &thread.waits_in };
        format!("{} ({place})", thread.name)
    };
    let mut shown: Vec<String> = sample.threads.iter().take(SHOWN_THREADS).map(stands).collect();
    let more = sample.threads.len().saturating_sub(SHOWN_THREADS);
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    format!("; its threads: {}", shown.join(", "))
}

fn cannot_start(program: &Path, why: &LaunchError) -> ExpectedError {
    let reason = match why {
        LaunchError::Start { source, .. } => source.to_string(),
        other => chain(other),
    };
    ExpectedError::Program { program: program.display().to_string(), why: reason, hint: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hang_is_told_with_the_place_of_every_thread() {
        let thread =
            |name: &str, waits_in: &str| ThreadEntry { id: 1, name: name.into(), waits_in: waits_in.into() };
        let sample = OsSample {
            threads: vec![thread("main", "futex_do_wait"), thread("spin", "")],
            ..OsSample::default()
        };
        assert_eq!(where_it_hangs(Some(&sample)), "; its threads: main (futex_do_wait), spin (running)");
        let many = OsSample { threads: vec![thread("t", ""); 10], ..OsSample::default() };
        assert!(where_it_hangs(Some(&many)).ends_with("t (running), 2 more"));
        assert_eq!(where_it_hangs(None), "");
    }
}
