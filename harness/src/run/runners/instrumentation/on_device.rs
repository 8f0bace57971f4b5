//! A suite on one device: the state that its runs share, and the code that makes a run.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use memgate_adb::{AdbError, Device};
use memgate_analysis::JavaSuspect;
use memgate_config::HeapTime;
use memgate_history::hex;
use memgate_wire::options::{Carrier, Detail, Options, Target, Windows};

use super::drive::{Done, Job, drive};
use crate::agent::{look, of_java};
use crate::device::delivery::Delivery;
use crate::device::socket::Held;
use crate::exit::{ExpectedError, failed_to};
use crate::plan::PlannedInstrumentation;
use crate::run::engine::{Clocked, Context, MakeOrders, RunState, Stopped};
use crate::session::label::Label;
use crate::suite::instrumentation::{Call, Component, Mode, Selection, Share};

/// Folder in the session for the output of runs on devices.
const FOLDER: &str = "instrumentation";
/// How long the app waits for us at a boundary. If it waited longer while it starts, the system would call it
/// unresponsive.
pub(super) const WAIT: Duration = Duration::from_millis(4500);
/// The same for a repeated test, which ends if no order comes, however busy we are, and for a run in which a heap dump
/// may be taken. It is the longest wait that the agent allows. Only the test's own thread waits then, and the
/// connection to the app is known to work.
pub(super) const WAIT_FOR_ORDERS: Duration = Duration::from_secs(60);

/// Why a suite is not measured further.
pub(super) enum Broken {
    /// Stopped by the user, or by an error of ours.
    Stopped(Stopped),
    /// A failure of the device, the app or the run: an error of this suite only; others go on.
    Suite { what: String, hint: String },
}

impl<T: Into<Stopped>> From<T> for Broken {
    fn from(stopped: T) -> Self {
        Self::Stopped(stopped.into())
    }
}

impl Broken {
    pub(super) fn by(error: &AdbError) -> Self {
        Self::Suite { what: failed_to(error), hint: error.hint() }
    }
}

/// State that all runs of a suite on one device share.
pub(super) struct OnDevice<'a> {
    pub(super) planned: &'a PlannedInstrumentation,
    pub(super) device: Device,
    pub(super) component: Component,
    pub(super) delivery: Delivery,
    pub(super) token: String,
    /// Its name in the report.
    pub(super) name: String,
    /// The part of the tests that runs on this device.
    pub(super) share: Option<Share>,
    /// The ways in which the agent did not get into the app, each with the reason.
    pub(super) tried: Vec<String>,
    /// Classes with a failed test: only their other tests are repeated.
    pub(super) failing: BTreeSet<String>,
    /// Classes with a test whose name differs between processes.
    pub(super) unsteady: BTreeSet<String>,
    /// The tests of this shard of a run, as selected in the runner; `None`: all.
    pub(super) own: Option<Vec<Selection>>,
}

impl OnDevice<'_> {
    /// The selection of a class with these tests for the runner: the user's own arguments may exclude other tests,
    /// and others may have failed.
    pub(super) fn chosen(&self, class: &str, tests: &[String]) -> Vec<Selection> {
        let is_part = self.planned.chooses_classes() || self.failing.contains(class);
        match is_part && !self.unsteady.contains(class) {
            true => Selection::each(class, tests),
            false => vec![Selection { class: class.to_owned(), test: None }],
        }
    }

    /// Whether the runner can select the test by its name.
    pub(super) fn takes(&self, class: &str, test: &str) -> bool {
        Selection::takes(test) && !self.unsteady.contains(class)
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
        // The agent writes no file itself: the system writes it when we ask.
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

    /// One run on the device. Its output is kept in the session.
    pub(super) async fn run(
        &mut self,
        context: &mut Context<'_>,
        what: Run<'_>,
        show: &mut dyn FnMut(&RunState),
    ) -> Result<(Done, String), Broken> {
        let Run { mode, label, detail, orders, held, clocked, timeout, log } = what;
        // As in the build's own run elsewhere: classes are followed when the tests run as they are.
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
            silence: longest_silence(timeout, self.planned.timeout),
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

/// The purpose of a run.
pub(super) struct Run<'a> {
    pub(super) mode: Mode,
    pub(super) label: Label,
    pub(super) detail: Detail,
    pub(super) orders: MakeOrders,
    /// Called while the app waits at a boundary.
    pub(super) held: Option<Held>,
    pub(super) clocked: Clocked,
    pub(super) timeout: Duration,
    /// Name of the file for its output.
    pub(super) log: &'a str,
}

/// The time limit of one test, multiplied by the number of tests.
pub(super) fn times(timeout: Duration, tests: usize) -> Duration {
    timeout.saturating_mul(u32::try_from(tests.max(1)).unwrap_or(u32::MAX))
}

/// The longest time without any sign of the app in a run whose windows may take `limit`. The runner reports each test
/// of a window. A repeated one may take four times as long, and the app may wait for orders.
fn longest_silence(limit: Duration, of_test: Duration) -> Duration {
    limit.min(times(of_test, 4).saturating_add(WAIT_FOR_ORDERS))
}

/// An error of the machinery around a run.
pub(super) fn machinery(what: String) -> Stopped {
    ExpectedError::Machinery { what, hint: String::new() }.into()
}

/// `bytes` random bytes as hexadecimal digits.
pub(super) fn random(bytes: usize) -> Result<String, Stopped> {
    let mut random = vec![0; bytes];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut random))
        .map_err(|why| machinery(format!("failed to read /dev/urandom: {why}")))?;
    Ok(hex(&random))
}

/// Suspects of the rounds.
pub(super) type Suspects = Vec<JavaSuspect>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_hangs_in_the_rounds_of_a_large_class_does_not_hold_them_for_hours() {
        let test = Duration::from_secs(300);
        assert_eq!(longest_silence(test, test), test, "one test");
        assert_eq!(longest_silence(times(test, 200), test), Duration::from_secs(4 * 300 + 60));
    }
}
