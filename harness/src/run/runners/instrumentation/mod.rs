//! Instrumented suites: the tests run on a device, in the app's own process, with the agent inside.
//!
//! Data flow: the devices are found ([`places`]) and each, at once with the others, gets its share
//! of the tests → the instrumentation is found → the agent is delivered and proves itself while the
//! runner only names the tests ([`probe`]) → the tests run once as they are ([`once`]) → each test
//! class several times over ([`rounds`]) → suspects alone, each repeated in one process
//! ([`repeat`]) → facts of the suite, judged as those of any Java suite. Where each test has a
//! process of its own ([`alone`]), all of these are of single tests. Every one of these is a run of
//! its own ([`drive`]), because the system ends the app's process with each. Everything that was
//! put on the device is removed at the end, whatever the end is.

mod alone;
mod drive;
mod dump;
mod files;
mod memory;
mod once;
mod places;
mod probe;
mod repeat;
mod rounds;

use futures_util::future::join_all;
use memgate_adb::{AdbError, Device, DeviceFacts};
use memgate_analysis::JavaSuspect;

use self::drive::{Done, Job, drive};
use self::files::Files;
use self::places::Place;
use super::framework::{Framework, Suite, Unit};
use crate::device::delivery::Delivery;
use crate::device::socket::{Endpoint, Held};
use crate::device::{AgentOptions, Detail, JavaLook, Target, Windows};
use crate::exit::{ExpectedError, chain};
use crate::plan::PlannedInstrumentation;
use crate::run::engine::{Clocked, Context, Finished, Interrupts, MakeOrders, RunState, Stopped};
use crate::session::facts::{Facts, JavaFacts, Kind, problem};
use crate::session::label::Label;
use crate::suite::instrumentation::{Call, Component, Mode, Share};

/// How long the app waits for us at a boundary. Longer would make the system call it unresponsive
/// where it waits while it starts.
const WAIT: std::time::Duration = std::time::Duration::from_millis(4500);
/// The same where a test is repeated, which ends where no order comes, however busy we are, and
/// where a heap dump may be taken meanwhile: the most that the agent grants. Nothing but a test's
/// own thread waits then, and that we reach the app is known.
const WAIT_FOR_ORDERS: std::time::Duration = std::time::Duration::from_secs(60);

/// A suite that was measured. Did a test fail, or the run as a whole?
type Measured = (Suite, bool);

/// The runner of instrumented tests: what grows is confirmed on the device, before memgate leaves it.
#[derive(Debug)]
pub(super) struct Instrumentation;

impl Framework for Instrumentation {
    async fn confirm(_: &mut Context<'_>, _: Vec<(&mut Suite, &mut Self)>) -> Result<Vec<Finished>, Stopped> {
        Ok(Vec::new())
    }

    fn candidates(&self, _: &Context<'_>, _: &Suite) -> Result<Vec<Unit>, String> {
        Err("instrumented tests are repeated by their rounds alone".to_owned())
    }
}

/// Why a suite is not measured any further.
enum Broken {
    /// The user's will, or an error of ours.
    Stopped(Stopped),
    /// The device, the app or the run: an error of this suite; the others go on.
    Suite { what: String, hint: String },
}

impl<T: Into<Stopped>> From<T> for Broken {
    fn from(stopped: T) -> Self {
        Self::Stopped(stopped.into())
    }
}

impl Broken {
    fn by(error: &AdbError) -> Self {
        Self::Suite { what: format!("failed to {}", chain(error)), hint: error.hint() }
    }
}

/// Measures a suite on its device, or its tests spread over several.
pub(super) async fn measure(
    context: &mut Context<'_>,
    planned: &PlannedInstrumentation,
    facts: &mut Facts,
) -> Result<Vec<(Suite, Instrumentation)>, Stopped> {
    let mut places = match places::places(planned).await {
        Ok(places) => places,
        Err(broken) => return not_measured(facts, &planned.name, broken).map(|()| Vec::new()),
    };
    let names: Vec<String> = places.iter().map(|place| place.name.clone()).collect();
    let errors = facts.errors.len();
    let outcomes = match places.len() {
        1 => vec![on_device(context, planned, places.remove(0)).await],
        _ => on_devices(context, planned, places).await?,
    };
    let (mut measured, mut failed) = (Vec::new(), None);
    for (name, outcome) in names.iter().zip(outcomes) {
        match outcome {
            Ok(Some((suite, fails))) => {
                failed = Some(failed.unwrap_or(false) || fails);
                measured.push((suite, Instrumentation));
            }
            // No test fell to it.
            Ok(None) => {}
            Err(broken) => not_measured(facts, name, broken)?,
        }
    }
    match failed {
        Some(failed) => facts.command_ended(i32::from(failed)),
        None if facts.errors.len() == errors => {
            let what = "no test ran: the filter matches none".to_owned();
            facts.errors.push(problem(&planned.name, format!("not measured: {what}"), ""));
        }
        None => {}
    }
    Ok(measured)
}

/// All at once, each with its share of the tests.
async fn on_devices(
    context: &mut Context<'_>,
    planned: &PlannedInstrumentation,
    places: Vec<Place>,
) -> Result<Vec<Result<Option<Measured>, Broken>>, Stopped> {
    context.console.line(&format!("{}: its tests are spread over {} devices", planned.name, places.len()));
    // Whoever is interrupted cleans up its own device.
    let listening: Result<Vec<Interrupts>, ExpectedError> =
        places.iter().map(|_| Interrupts::listen()).collect();
    let context = &*context;
    let on_each = places.into_iter().zip(listening?).map(|(place, mut interrupts)| async move {
        on_device(&mut context.interrupted_by(&mut interrupts), planned, place).await
    });
    Ok(join_all(on_each).await)
}

fn not_measured(facts: &mut Facts, name: &str, broken: Broken) -> Result<(), Stopped> {
    match broken {
        Broken::Stopped(stopped) => Err(stopped),
        Broken::Suite { what, hint } => {
            facts.errors.push(problem(name, format!("not measured: {what}"), &hint));
            Ok(())
        }
    }
}

/// What every run of a suite on one device shares.
struct OnDevice<'a> {
    planned: &'a PlannedInstrumentation,
    device: Device,
    component: Component,
    delivery: Delivery,
    files: Files,
    token: String,
    /// Its name in the report.
    name: String,
    /// Which part of the tests is run here.
    share: Option<Share>,
}

/// Nothing: no test fell to this device.
async fn on_device(
    context: &mut Context<'_>,
    planned: &PlannedInstrumentation,
    place: Place,
) -> Result<Option<Measured>, Broken> {
    let (mut suite, about) = probe::prepare(context, planned, place).await?;
    let outcome = in_order(context, &mut suite, &about).await;
    // Whatever happened: nothing of ours stays.
    let left = suite.delivery.remove().await;
    for what in &left {
        context.console.warning(what);
    }
    let Some(mut measured) = outcome? else { return Ok(None) };
    measured.0.facts.problems.extend(left.into_iter().map(|what| problem(&suite.name, what, "")));
    Ok(Some(measured))
}

async fn in_order(
    context: &mut Context<'_>,
    suite: &mut OnDevice<'_>,
    about: &DeviceFacts,
) -> Result<Option<Measured>, Broken> {
    let Some(named) = probe::probe(context, suite, about).await? else { return Ok(None) };
    let (once, parts) = match suite.planned.process_per_test {
        true => alone::once(context, suite, &named).await?,
        false => (once::once(context, suite, &named).await?, Vec::new()),
    };
    let times = (once.elapsed, suite.planned.timeout);
    let mut measured = Suite::new(Kind::Instrumentation, suite.name.clone(), once.finished, times);
    measured.facts.java = Some(JavaFacts {
        app_memory: once.memory,
        limits: suite.planned.process_per_test.then(|| alone::LIMITS.to_owned()),
        ..JavaFacts::default()
    });
    measured.facts.problems =
        once.problems.iter().map(|what| problem(&suite.name, what.clone(), "")).collect();
    if once.complete && !parts.is_empty() {
        alone::repeat(context, suite, &parts, &mut measured).await?;
    } else if once.complete && !once.seen.classes.is_empty() {
        let suspects = rounds::rounds(context, suite, &once.seen, &mut measured).await?;
        repeat::confirm(context, suite, &once.seen, &suspects, &mut measured).await?;
    }
    Ok(Some((measured, once.failed)))
}

impl OnDevice<'_> {
    fn call(&self, context: &Context<'_>, mode: Mode) -> String {
        Call {
            component: &self.component,
            user: self.delivery.app().user,
            arguments: &self.planned.arguments,
            filter: context.plan.filter.as_deref(),
            share: self.share,
            awaits_agent: self.delivery.attached().is_some(),
            mode,
        }
        .command()
    }

    fn options(
        &self,
        context: &Context<'_>,
        label: &Label,
        detail: Detail,
        follow: Vec<String>,
    ) -> AgentOptions {
        let java = &context.plan.java;
        let mut options = AgentOptions::of_java("", "");
        options.targets = vec![Target::All];
        options.carrier =
            Some(Endpoint::App { package: self.delivery.app().package.clone(), found: String::new() });
        options.token = Some(self.token.clone());
        options.label = label.to_text();
        options.detail = detail;
        options.wait = if matches!(label, Label::Confirm { .. }) { WAIT_FOR_ORDERS } else { WAIT };
        options.windows = Windows::Each;
        options.listener = self.delivery.listener().map(|dex| (dex, self.component.runner_class()));
        options.look = Some(JavaLook {
            sampling: java.sampling,
            follow,
            follow_at_least: java.follow_at_least,
            follow_every: java.follow_every,
            follow_at_most: java.follow_at_most,
            heap_limit: None,
            heap_dump: None,
        });
        options
    }

    /// One run on the device, whose output is kept in the session.
    async fn run(
        &mut self,
        context: &mut Context<'_>,
        what: Run<'_>,
        show: &mut dyn FnMut(&RunState),
    ) -> Result<(Done, String), Broken> {
        let Run { mode, label, detail, orders, held, clocked, timeout, log } = what;
        // As in the build's own run elsewhere: classes are followed where the tests run as they
        // are.
        let follow = match mode {
            Mode::Once | Mode::Alone(_) => {
                context.names.renamed(&self.planned.name, context.plan.java.follow.clone())
            }
            Mode::List | Mode::Rounds(_) | Mode::Repeat(_) => Vec::new(),
        };
        let options = self.options(context, &label, detail, follow);
        if self.planned.clear_data && mode != Mode::List {
            let cleared = self.delivery.clear_data(&self.component.tests).await;
            cleared.map_err(|why| Broken::by(&why))?;
        }
        self.delivery.tell(&options).await.map_err(|why| Broken::by(&why))?;
        let job = Job {
            package: self.delivery.app().package.clone(),
            attached: self.delivery.attached(),
            command: self.call(context, mode),
            token: self.token.clone(),
            orders,
            held,
            clocked,
            timeout,
        };
        self.delivery.starts();
        let done = drive(context, &self.device, &context.session.frames(), job, show).await?;
        if done.lost.is_none() {
            self.delivery.ended();
        }
        let output = self.files.keep(log, &done.output).map_err(Stopped::from)?;
        Ok((done, output))
    }
}

/// What one run is for.
struct Run<'a> {
    mode: Mode,
    label: Label,
    detail: Detail,
    orders: MakeOrders,
    /// What is done while the app waits at a boundary.
    held: Option<Held>,
    clocked: Clocked,
    timeout: std::time::Duration,
    /// Name of the file its output goes to.
    log: &'a str,
}

/// As long as one test may take, for so many.
fn times(timeout: std::time::Duration, tests: usize) -> std::time::Duration {
    timeout.saturating_mul(u32::try_from(tests.max(1)).unwrap_or(u32::MAX))
}

/// An error of the machinery around a run.
fn machinery(what: String) -> Stopped {
    ExpectedError::Machinery { what, hint: String::new() }.into()
}

/// What the rounds suspect.
type Suspects = Vec<JavaSuspect>;
