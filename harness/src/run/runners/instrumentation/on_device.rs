//! A suite on one device: what its runs share, and how each is made.

use std::path::Path;
use std::time::Duration;

use memgate_adb::{AdbError, Device};
use memgate_analysis::JavaSuspect;
use memgate_config::HeapTime;
use memgate_wire::options::{Carrier, Detail, Options, Target, Windows};

use super::drive::{Done, Job, drive};
use crate::device::delivery::Delivery;
use crate::device::socket::Held;
use crate::device::{look, of_java};
use crate::exit::{ExpectedError, chain};
use crate::plan::PlannedInstrumentation;
use crate::run::engine::{Clocked, Context, MakeOrders, RunState, Stopped};
use crate::session::label::Label;
use crate::suite::instrumentation::{Call, Component, Mode, Selection, Share};

/// What runs on devices printed, in the session.
const FOLDER: &str = "instrumentation";
/// How long the app waits for us at a boundary. Longer would make the system call it unresponsive
/// where it waits while it starts.
pub(super) const WAIT: Duration = Duration::from_millis(4500);
/// The same where a test is repeated, which ends where no order comes, however busy we are, and
/// where a heap dump may be taken meanwhile: the most that the agent grants. Nothing but a test's
/// own thread waits then, and that we reach the app is known.
pub(super) const WAIT_FOR_ORDERS: Duration = Duration::from_secs(60);

/// Why a suite is not measured any further.
pub(super) enum Broken {
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
    pub(super) fn by(error: &AdbError) -> Self {
        Self::Suite { what: format!("failed to {}", chain(error)), hint: error.hint() }
    }
}

/// What every run of a suite on one device shares.
pub(super) struct OnDevice<'a> {
    pub(super) planned: &'a PlannedInstrumentation,
    pub(super) device: Device,
    pub(super) component: Component,
    pub(super) delivery: Delivery,
    pub(super) token: String,
    /// Its name in the report.
    pub(super) name: String,
    /// Which part of the tests is run here.
    pub(super) share: Option<Share>,
    /// The tests that fall to this shard of a run, as the runner is told of them; `None`: all.
    pub(super) own: Option<Vec<Selection>>,
}

impl OnDevice<'_> {
    /// As the runner is told of a class with these tests: the user's own arguments may leave others out.
    pub(super) fn chosen(&self, class: &str, tests: &[String]) -> Vec<Selection> {
        match self.planned.chooses_classes() {
            true => Selection::each(class, tests),
            false => vec![Selection { class: class.to_owned(), test: None }],
        }
    }

    fn call(&self, context: &Context<'_>, mode: Mode) -> String {
        Call {
            component: &self.component,
            user: self.delivery.app().user,
            arguments: &self.planned.suite.arguments,
            filter: context.plan.filter.as_deref(),
            share: self.share,
            own: self.own.as_deref(),
            awaits_agent: self.delivery.attached().is_some(),
            mode,
        }
        .command()
    }

    fn options(
        &self,
        context: &Context<'_>,
        (mode, label): (&Mode, &Label),
        detail: Detail,
        follow: Vec<String>,
    ) -> Options {
        let mut options = of_java(Path::new(""), Path::new(""));
        options.targets = vec![Target::All];
        options.carrier = Carrier::App;
        options.package.clone_from(&self.delivery.app().package);
        options.token.clone_from(&self.token);
        options.label = label.to_text();
        options.detail = detail;
        if detail == Detail::Survivors {
            options.native_sampling = context.plan.native_sampling;
        }
        let dumps = self.planned.suite.heap.as_ref().filter(|_| *mode == Mode::Once);
        let waits_long = dumps.is_some() || matches!(label, Label::Confirm { .. });
        options.wait = if waits_long { WAIT_FOR_ORDERS } else { WAIT };
        // It asks for no file: the system writes it, because we ask.
        if dumps.is_some_and(|heap| heap.at == HeapTime::SuiteEnd) {
            options.end_dump = "asked".to_owned();
        }
        options.windows = Windows::Each;
        if let Some(dex) = self.delivery.listener() {
            (options.dex, options.runner) = (dex, self.component.runner_class());
        }
        look(&mut options, &context.plan.java, follow);
        options
    }

    /// One run on the device, whose output is kept in the session.
    pub(super) async fn run(
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
                context.names.renamed(&self.planned.suite.name, context.plan.java.follow.clone())
            }
            Mode::List | Mode::Rounds(_) | Mode::Repeat(_) => Vec::new(),
        };
        let options = self.options(context, (&mode, &label), detail, follow);
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
        let output = context.session.keep_output(FOLDER, log, "txt", &done.output).map_err(Stopped::from)?;
        Ok((done, output))
    }
}

/// What one run is for.
pub(super) struct Run<'a> {
    pub(super) mode: Mode,
    pub(super) label: Label,
    pub(super) detail: Detail,
    pub(super) orders: MakeOrders,
    /// What is done while the app waits at a boundary.
    pub(super) held: Option<Held>,
    pub(super) clocked: Clocked,
    pub(super) timeout: Duration,
    /// Name of the file its output goes to.
    pub(super) log: &'a str,
}

/// As long as one test may take, for so many.
pub(super) fn times(timeout: Duration, tests: usize) -> Duration {
    timeout.saturating_mul(u32::try_from(tests.max(1)).unwrap_or(u32::MAX))
}

/// An error of the machinery around a run.
pub(super) fn machinery(what: String) -> Stopped {
    ExpectedError::Machinery { what, hint: String::new() }.into()
}

/// What the rounds suspect.
pub(super) type Suspects = Vec<JavaSuspect>;
