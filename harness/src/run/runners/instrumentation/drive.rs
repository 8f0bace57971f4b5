//! Runs one `am instrument` and follows it until it ends, together with the agent's frames.
//!
//! Data flow: the stream of `am` → `RawStream` → `InstrumentationRun`; the app's process is searched, the agent's
//! socket in it is reached through adb, and its frames take the usual path ([`Watch`], `RunState`). Both are needed:
//! the system reports whether the run is complete, the frames contain the survivors. The system's report comes last. If
//! the system killed a process at once, this report decides whether its stream counts as complete.
//!
//! Nothing here waits forever: a test that takes too long, an app that does not start and a silent device are ended
//! after the time limit of one test.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use memgate_adb::{AdbError, Bounds, Chunk, Device, Shell, command};
use memgate_formats::instrumentation::{Ending, InstrumentationRun, RawStream, TestResult};
use memgate_wire::options::app_socket;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::device::socket::{Held, Reached, record};
use crate::exit::{chain, failed_to};
use crate::output::Console;
use crate::run::engine::{
    Clocked, Context, Finished, Limit, MakeOrders, News, Overdue, RunState, Stopped, Watch, at,
};

/// How often waiting events are read, and progress is shown.
const TICK: Duration = Duration::from_millis(250);
/// How often to look for the app and its agent: neither reports that it has started.
const LOOK: Duration = Duration::from_millis(50);
/// A process that has just started refuses the agent. Each request starts a process on the device.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Limits of one small request to the device.
const QUESTION: Bounds = Bounds { time: Duration::from_secs(10), bytes: 1 << 20 };
/// How long `am` may take to begin; includes the wait for a device that is away.
const START: Duration = Duration::from_secs(45);
/// How long frames may still come after the run has ended.
const LINGER: Duration = Duration::from_secs(60);
/// Maximum kept output of `am`.
const OUTPUT_BYTES: usize = 1 << 20;
/// Maximum number of followed processes of the app: one after the other, if it is started again for each test.
const MOST_PROCESSES: usize = 10_000;

/// One run.
pub(super) struct Job {
    /// The app in whose process the tests run.
    pub(super) package: String,
    /// Argument of `am attach-agent`, if the agent is attached to the running app.
    pub(super) attached: Option<String>,
    /// The command line of `am instrument`.
    pub(super) command: String,
    /// Secret that the agent's client must send.
    pub(super) token: String,
    pub(super) orders: MakeOrders,
    /// Called while the app waits at a boundary.
    pub(super) held: Option<Held>,
    pub(super) clocked: Clocked,
    pub(super) timeout: Duration,
    /// Longest time without a message of `am` or the agent.
    pub(super) silence: Duration,
}

/// A run that has ended.
pub(super) struct Done {
    pub(super) run: InstrumentationRun,
    /// How it ended, as reported by the system.
    pub(super) ending: Ending,
    /// Why the stream of `am` could not be read to its end. If the device is gone, it gets no more requests.
    pub(super) lost: Option<Lost>,
    /// Processes that were measured, in the order they began.
    pub(super) finished: Vec<Finished>,
    pub(super) elapsed: Duration,
    /// Output of `am`; only its end if it is long.
    pub(super) output: Vec<u8>,
    /// Problems of the recorder.
    pub(super) problems: Vec<String>,
}

/// Why nothing more comes from the device.
#[derive(Debug, Clone)]
pub(super) struct Lost {
    pub(super) why: String,
    /// Whether further requests to the device are useless.
    pub(super) device_is_gone: bool,
}

impl Done {
    /// Why the run is incomplete; `None`: it is complete.
    pub(super) fn incomplete(&self) -> Option<String> {
        match (&self.lost, &self.ending) {
            (Some(lost), _) => Some(lost.why.clone()),
            (None, Ending::Complete) => None,
            (None, other) => Some(format!("the instrumentation run: {other}")),
        }
    }
}

/// Runs `job`; calls `show` from time to time.
pub(super) async fn drive(
    context: &mut Context<'_>,
    device: &Device,
    frames: &Path,
    job: Job,
    show: &mut dyn FnMut(&RunState),
) -> Result<Done, Stopped> {
    let news = Arc::new(News::default());
    let (said, run_ended) = watch::channel(None);
    let started = Instant::now();
    let (shell, lost) = match start(context, device, &job).await? {
        Ok(shell) => (Some(shell), None),
        Err(lost) => (None, Some(lost)),
    };
    let follower = Follower {
        device: device.clone().with_bounds(QUESTION).with_patience(Duration::ZERO),
        package: job.package.clone(),
        attached: job.attached,
        token: job.token,
        frames: frames.to_owned(),
        watch: Watch { news: Arc::clone(&news), orders: job.orders, names: Arc::clone(&context.names) },
        run_ended,
        held: job.held,
    };
    let mut driving = Driving {
        package: job.package,
        shell,
        stream: RawStream::new(),
        run: InstrumentationRun::new(),
        output: Vec::new(),
        news,
        state: RunState::new(job.clocked, Limit::Ends(job.timeout)),
        timeout: job.timeout,
        silence: job.silence,
        sign_of_life: started,
        lost,
    };
    let followed = tokio::spawn(follower.follow());
    let outcome = driving.follow_run(context, device, show).await;
    std::mem::take(&mut driving.stream).finish(|item| driving.run.apply(item));
    let ending = driving.run.end();
    let complete = driving.lost.is_none() && outcome.is_ok() && ending == Ending::Complete;
    said.send_replace(Some(complete));
    let problems = driving.end_of_frames(followed).await;
    outcome?;
    Ok(Done {
        run: driving.run,
        ending,
        lost: driving.lost,
        finished: driving.state.into_finished(),
        elapsed: started.elapsed(),
        output: driving.output,
        problems,
    })
}

/// Starts the command on the device. `Err(Stopped)`: the user interrupted it.
async fn start(
    context: &mut Context<'_>,
    device: &Device,
    job: &Job,
) -> Result<Result<Shell, Lost>, Stopped> {
    let started = tokio::select! {
        started = timeout(START, device.start(&job.command)) => started,
        () = context.interrupts.next() => {
            // `am` may have started the app anyway.
            force_stop(device, &job.package).await;
            return Err(Stopped::Interrupted);
        }
    };
    Ok(match started {
        Ok(shell) => shell.map_err(|why| Lost::by(&why)),
        Err(_elapsed) => Err(Lost::silent(START)),
    })
}

impl Lost {
    fn by(why: &AdbError) -> Self {
        let hint = why.hint();
        let hint = if hint.is_empty() { hint } else { format!("; {hint}") };
        Self { why: format!("failed to {}{hint}", chain(why)), device_is_gone: true }
    }

    fn silent(after: Duration) -> Self {
        Self {
            why: format!("nothing came from the device for {} s", after.as_secs_f64()),
            device_is_gone: true,
        }
    }
}

struct Driving {
    package: String,
    /// The stream of `am`; `None` after it has ended.
    shell: Option<Shell>,
    stream: RawStream,
    run: InstrumentationRun,
    output: Vec<u8>,
    news: Arc<News>,
    state: RunState,
    timeout: Duration,
    silence: Duration,
    /// Time of the last message of `am` or the agent.
    sign_of_life: Instant,
    lost: Option<Lost>,
}

impl Driving {
    async fn follow_run(
        &mut self,
        context: &mut Context<'_>,
        device: &Device,
        show: &mut dyn FnMut(&RunState),
    ) -> Result<(), Stopped> {
        let mut ticks = tokio::time::interval(TICK);
        while self.shell.is_some() {
            self.take_note();
            let Some(shell) = &mut self.shell else { break };
            let silent = self.sign_of_life.checked_add(self.silence);
            let deadline = match (self.state.next_deadline(), silent) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            tokio::select! {
                said = shell.next() => self.said(said),
                () = self.news.urgent() => {}
                () = at(deadline) => self.end_overdue(context.console, device).await,
                () = context.interrupts.next() => {
                    context.console.line("stopping the tests on the device");
                    self.shell = None;
                    force_stop(device, &self.package).await;
                    return Err(Stopped::Interrupted);
                }
                _ = ticks.tick() => {
                    self.take_note();
                    show(&self.state);
                }
            }
        }
        Ok(())
    }

    fn said(&mut self, said: Result<Chunk, AdbError>) {
        self.sign_of_life = Instant::now();
        match said {
            Ok(Chunk::Stdout(bytes)) => {
                self.keep(&bytes);
                let run = &mut self.run;
                self.stream.push(&bytes, |item| run.apply(item));
            }
            // Android prints its own errors to stderr, line by line between those of the protocol.
            Ok(Chunk::Stderr(bytes)) => self.keep(&bytes),
            Ok(Chunk::Exit(_)) => self.shell = None,
            Err(why) => {
                self.shell = None;
                self.lost = Some(Lost::by(&why));
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
        let too_much = self.output.len().saturating_sub(OUTPUT_BYTES);
        self.output.drain(..too_much);
    }

    fn take_note(&mut self) {
        for (seen, at) in self.news.take() {
            self.sign_of_life = self.sign_of_life.max(at);
            self.state.note(seen, at);
        }
    }

    /// Ends the app if a test takes too long or the device is silent; `am` then reports the end by itself.
    async fn end_overdue(&mut self, console: &Console, device: &Device) {
        self.take_note();
        let now = Instant::now();
        let overdue = self.state.overdue(now);
        for Overdue { what, .. } in &overdue {
            console.warning(&format!(
                "{what} has not ended after {} s: the app is ended",
                self.timeout.as_secs_f64()
            ));
        }
        let silent = is_silent(&overdue, (self.sign_of_life, self.silence), now);
        if overdue.is_empty() && !silent {
            return;
        }
        let stopped = force_stop(device, &self.package).await;
        // `am` reports the app's end: the device must not be silent from here on.
        self.sign_of_life = Instant::now();
        if silent {
            self.shell = None;
            let Lost { mut why, .. } = Lost::silent(self.silence);
            if let Some(TestResult { class, method: Some(method), .. }) = self.run.running() {
                why.push_str(&format!(", in {class}.{method}"));
            }
            why.push_str(": does it hang, or is the suite's `timeout` too short?");
            self.lost = Some(Lost { why, device_is_gone: !stopped });
        }
    }

    /// Reads everything recorded so far and updates the state with it.
    async fn end_of_frames(&mut self, mut followed: JoinHandle<Vec<String>>) -> Vec<String> {
        let problems = match timeout(LINGER, &mut followed).await {
            Ok(Ok(problems)) => problems,
            Ok(Err(_defect)) => vec!["the task that followed the app ended by a defect".to_owned()],
            Err(_elapsed) => {
                followed.abort();
                vec!["the app's frames did not come to an end".to_owned()]
            }
        };
        self.take_note();
        problems
    }
}

/// Whether nothing came for too long. If a test is overdue, its app is ended, and `am` says more.
fn is_silent(overdue: &[Overdue], (since, limit): (Instant, Duration), now: Instant) -> bool {
    overdue.is_empty() && since.checked_add(limit).is_some_and(|until| until <= now)
}

/// Ends the app; false: the device does not answer.
async fn force_stop(device: &Device, package: &str) -> bool {
    let device = device.clone().with_patience(Duration::ZERO);
    let line = command(&["am", "force-stop", package]);
    device.shell_within(&line, QUESTION).await.is_ok()
}

/// A request to load the agent; `None`: it was accepted.
type Asked = Option<JoinHandle<Result<(), AdbError>>>;

/// Finds the processes of the app and records each.
struct Follower {
    device: Device,
    package: String,
    attached: Option<String>,
    token: String,
    frames: PathBuf,
    watch: Watch,
    run_ended: watch::Receiver<Option<bool>>,
    held: Option<Held>,
}

impl Follower {
    /// Follows the app until the run has ended; returns what could not be recorded.
    async fn follow(mut self) -> Vec<String> {
        let (mut problems, mut recorded, mut measured) = (Vec::new(), BTreeSet::new(), false);
        let (mut asked, mut refused) = (BTreeMap::new(), None);
        while self.run_ended.borrow().is_none() && recorded.len() < MOST_PROCESSES {
            // The run of `am` notices a device that does not answer.
            for pid in self.processes().await.unwrap_or_default() {
                if recorded.contains(&pid) {
                    continue;
                }
                if let Some(agent) = &self.attached {
                    refused = self.attach(pid, agent, &mut asked).await.or(refused);
                }
                match self.record(pid).await {
                    Ok(true) => {
                        recorded.insert(pid);
                        measured = true;
                    }
                    Ok(false) => {}
                    Err(why) => {
                        problems.push(why);
                        recorded.insert(pid);
                    }
                }
            }
            tokio::select! {
                () = sleep(LOOK) => {}
                _ = self.run_ended.changed() => {}
            }
        }
        // An app may also have processes that end before they load the agent.
        problems.extend(refused.filter(|_| !measured));
        problems
    }

    /// Asks a running process to load the agent, and again if the system refuses because the process still starts.
    /// Returns why it refused. `am` never says whether the agent loaded.
    async fn attach(&self, pid: u32, agent: &str, asked: &mut BTreeMap<u32, Asked>) -> Option<String> {
        let ask = |pause| {
            let line = command(&["am", "attach-agent", &pid.to_string(), agent]);
            let device = self.device.clone();
            // Not awaited: the agent waits for us as soon as it is loaded.
            tokio::spawn(async move {
                sleep(pause).await;
                device.shell(&line).await?.success(&line).map(drop)
            })
        };
        let last = asked.entry(pid).or_insert_with(|| Some(ask(Duration::ZERO)));
        let running = last.as_mut().filter(|asked| asked.is_finished())?;
        let refused = running.await.ok().and_then(Result::err);
        *last = refused.is_some().then(|| ask(ASK_AGAIN));
        refused.map(|why| failed_to(&why))
    }

    /// The app's processes.
    async fn processes(&self) -> Result<Vec<u32>, AdbError> {
        let told = self.device.shell(&command(&["pidof", &self.package])).await?;
        Ok(told.text().split_whitespace().filter_map(|pid| pid.parse().ok()).collect())
    }

    /// Records one process until it ends; false: its agent does not listen (yet).
    async fn record(&self, pid: u32) -> Result<bool, String> {
        let name = app_socket(&self.package, pid);
        let stream = match self.device.open_local_abstract(&name).await {
            Ok(stream) => stream,
            Err(AdbError::NobodyListens { .. }) => return Ok(false),
            // The stream of `am` reports this too, in more detail.
            Err(why) if why.device_is_gone() => return Ok(false),
            Err(why) => return Err(failed_to(&why)),
        };
        let endpoint = format!("@{name} on {}", self.device.serial());
        let held = self.held.clone();
        let reached = Reached { endpoint, stream, run_ended: self.run_ended.clone(), held };
        match record(reached, &self.token, &self.frames, &self.watch).await {
            Ok(_told_in_the_record) => Ok(true),
            Err(why) => Err(failed_to(&why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::ProcessKey;

    #[test]
    fn a_test_that_hangs_is_no_silence_of_the_device() {
        let (since, limit) = (Instant::now(), Duration::from_secs(60));
        let hangs = Overdue { key: ProcessKey(1), what: "A.a".to_owned(), limit, goes_on: false };
        assert!(is_silent(&[], (since, limit), since + limit));
        assert!(!is_silent(&[], (since, limit), since + limit / 2));
        assert!(!is_silent(&[hangs], (since, limit), since + limit));
    }
}
