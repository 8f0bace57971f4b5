//! How the tests of each framework run: once for the screen, and again.
//!
//! Data flow: a command of the plan → [`choose`] says how it is measured → the screen of that kind
//! → [`Screened`]: what is known of a suite ([`framework::Suite`]), and the [`Runner`] that runs
//! its tests again. A runner implements [`Framework`] over the [engine](super::engine): confirm
//! suspects, name candidates of a hunt, repeat one. Who screens, confirms or hunts asks the runner
//! and tests no field of it.
//!
//! | folder | what is a test | screened by | repeated by |
//! |---|---|---|---|
//! | `gtest` | what lies between two boundaries that the agent sees | [`native`] | one process, a filter |
//! | `gtest/one_by_one` | the same, where no boundary is seen | [`native`] | processes of different length |
//! | `process` | the process | [`native`], `junit/process` | processes of different length |
//! | `junit` | a test class, then its tests | the build, then rounds | a virtual machine of ours |
//! | `instrumentation` | a test class, then its tests | `am instrument`, then rounds | the same |
//!
//! `instrumentation` confirms each device's suspects before it leaves the device: its suites are
//! complete when they are screened.

mod choose;
mod framework;
mod gtest;
mod instrumentation;
mod java;
mod junit;
mod native;
mod process;
mod runner;
mod starts;

use instrumentation::Instrumentation;
use junit::Junit;
use process::Process;

use self::gtest::{GoogleTest, OneByOne};
use super::engine::{Context, Finished, Stopped};
use crate::plan::{PlannedInstrumentation, PlannedSuite};
use crate::session::facts::Facts;
use crate::suite::Program;
use choose::{Mode, choose};
pub(super) use choose::{is_java, search_path, start_folder};
use framework::Framework;
pub(super) use framework::{Ran, Share, Unit};
use runner::Runner;
pub(super) use runner::Screened;

/// Runs one command of the plan.
pub(super) async fn screen(
    context: &mut Context<'_>,
    planned: &PlannedSuite,
    program: &Program,
    facts: &mut Facts,
) -> Result<Vec<Screened>, Stopped> {
    let choice = choose(planned, program);
    context.console.line(&choice.text);
    Ok(match choice.mode {
        Mode::Jvm => {
            let suites = junit::screen(context, planned, facts).await?;
            suites.into_iter().map(|(suite, it)| Screened { suite, runner: Runner::Junit(it) }).collect()
        }
        Mode::JvmProcess => {
            let suites = junit::screen_program(context, planned, facts).await?;
            suites.into_iter().map(|(suite, it)| Screened { suite, runner: Runner::Process(it) }).collect()
        }
        Mode::Direct | Mode::Tree | Mode::Process => {
            native::screen(context, planned, (program, &choice), facts).await?
        }
    })
}

/// Measures a suite on its device, or its tests spread over several: to the end.
pub(super) async fn instrument(
    context: &mut Context<'_>,
    planned: &PlannedInstrumentation,
    facts: &mut Facts,
) -> Result<Vec<Screened>, Stopped> {
    let suites = instrumentation::measure(context, planned, facts).await?;
    Ok(suites
        .into_iter()
        .map(|(suite, it)| Screened { suite, runner: Runner::Instrumentation(it) })
        .collect())
}

/// Confirms everything that needs it, framework by framework.
pub(super) async fn confirm(
    context: &mut Context<'_>,
    suites: &mut [Screened],
) -> Result<Vec<Finished>, Stopped> {
    let (mut tests, mut classes, mut each_alone, mut programs, mut on_devices) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for Screened { suite, runner } in suites {
        match runner {
            Runner::GoogleTest(it) => tests.push((suite, it)),
            Runner::Junit(it) => classes.push((suite, it)),
            Runner::OneByOne(it) => each_alone.push((suite, it)),
            Runner::Process(it) => programs.push((suite, it)),
            Runner::Instrumentation(it) => on_devices.push((suite, it)),
        }
    }
    let mut finished = GoogleTest::confirm(context, tests).await?;
    finished.extend(Junit::confirm(context, classes).await?);
    finished.extend(OneByOne::confirm(context, each_alone).await?);
    finished.extend(Process::confirm(context, programs).await?);
    finished.extend(Instrumentation::confirm(context, on_devices).await?);
    Ok(finished)
}
