//! Runs the tests of each framework: once in the screening pass, and again to confirm suspects.
//!
//! Data flow: a command of the plan → [`choose`] decides how it is measured → the screening pass of that kind →
//! [`Screened`]: the known facts of a suite ([`framework::Suite`]), and the [`Runner`] that runs its tests again. A
//! runner implements [`Framework`] on top of the [engine](super::engine): confirm suspects, name candidates of a hunt,
//! repeat one. Only [`frameworks!`] lists the frameworks: code that has a [`Screened`] suite calls it, and does not
//! know its framework.
//!
//! | folder | what is a test | screened by | repeated by |
//! |---|---|---|---|
//! | `gtest` | the code between two boundaries that the agent sees | [`native`] | one process, a filter |
//! | `gtest/one_by_one` | the same, if the agent sees no boundary | [`native`] | processes of different length |
//! | `process` | the process | [`native`], `junit/process` | processes of different length |
//! | `junit` | a test class, then its tests | the build, then rounds | a virtual machine of ours |
//! | `instrumentation` | a test class, then its tests | `am instrument`, then rounds | the same |
//!
//! `instrumentation` confirms each device's suspects before it leaves the device: its suites are complete after the
//! screening pass.

mod choose;
mod divide;
mod framework;
mod gtest;
mod instrumentation;
mod java;
mod junit;
mod missing;
mod native;
mod process;
mod starts;

use instrumentation::Instrumentation;
use junit::Junit;
use process::Process;

use self::gtest::{GoogleTest, OneByOne};
use super::engine::{Context, Finished, RunState, Stopped};
use crate::plan::{self, PlannedInstrumentation, PlannedSuite};
use crate::session::facts::Facts;
use crate::suite::{Program, ctest};
use choose::{Mode, choose};
pub(super) use choose::{is_java, search_path, start_folder};
use framework::{Framework, Suite};
pub(super) use framework::{Ran, Share, Unit};

/// Runs one command of the plan.
pub(super) async fn screen(
    context: &mut Context<'_>,
    planned: &PlannedSuite,
    program: &Program,
    facts: &mut Facts,
) -> Result<Vec<Screened>, Stopped> {
    let choice = choose(planned, program);
    context.console.line(&choice.text);
    let Some(selected) = divide::selected(context, planned, (program, &choice), facts).await? else {
        return Ok(Vec::new());
    };
    let takes_filter = ctest::is_ctest(&planned.command) && !ctest::chooses_numbers(&planned.command);
    let planned = &selected.planned;
    let mut suites: Vec<Screened> = match choice.mode {
        Mode::Jvm => {
            let suites = junit::screen(context, (planned, &selected.known.modules), facts).await?;
            suites.into_iter().map(|(suite, it)| Screened { suite, runner: Runner::Junit(it) }).collect()
        }
        Mode::JvmProcess => {
            let suites = junit::screen_program(context, planned, facts).await?;
            suites.into_iter().map(|(suite, it)| Screened { suite, runner: Runner::Process(it) }).collect()
        }
        Mode::Direct | Mode::Tree | Mode::Process => {
            native::screen(context, &selected, (program, &choice), facts).await?
        }
    };
    suites.iter_mut().for_each(|screened| screened.suite.facts.takes_filter = takes_filter);
    if let Some(shard) = context.this_shard {
        let came = suites.iter().filter_map(|Screened { suite, .. }| divide::what_it_is(suite));
        shard.measured(&divide::name(planned), &came.collect::<Vec<_>>());
    }
    Ok(suites)
}

/// Completely measures a suite on its device, or its tests spread over several.
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

macro_rules! frameworks {
    ($($framework:ident)*) => {
        /// Runs the tests of a suite again.
        #[derive(Debug)]
        enum Runner {
            $($framework($framework),)*
        }

        impl Screened {
            /// Whether a hunt repeats its test classes instead of its tests.
            pub(super) fn hunts_classes(&self) -> bool {
                match &self.runner {
                    $(Runner::$framework(_) => $framework::HUNTS_CLASSES,)*
                }
            }

            /// Units that were never suspect and can be repeated, those with most survivors first; or why none can.
            pub(super) fn candidates(&self, context: &Context<'_>) -> Result<Vec<Unit>, String> {
                match &self.runner {
                    $(Runner::$framework(it) => it.candidates(context, &self.suite),)*
                }
            }

            /// Repeats one candidate for its time.
            pub(super) async fn hunt(
                &mut self,
                context: &mut Context<'_>,
                unit: &Unit,
                share: Share,
                finished: &mut Vec<Finished>,
                show: &mut dyn FnMut(&RunState),
            ) -> Result<Ran, Stopped> {
                let Self { suite, runner } = self;
                match runner {
                    $(Runner::$framework(it) => it.hunt(context, suite, unit, share, finished, show).await,)*
                }
            }
        }

        /// Confirms all suspects, framework by framework.
        pub(super) async fn confirm(
            context: &mut Context<'_>,
            suites: &mut [Screened],
        ) -> Result<Vec<Finished>, Stopped> {
            let mut finished = Vec::new();
            $(
                let its = suites.iter_mut().filter_map(|Screened { suite, runner }| match runner {
                    Runner::$framework(it) => Some((suite, it)),
                    _ => None,
                });
                finished.extend($framework::confirm(context, its.collect()).await?);
            )*
            Ok(finished)
        }
    };
}

// The order in which suspects are confirmed.
frameworks! { GoogleTest Junit OneByOne Process Instrumentation }

/// A suite after its screening pass, and how its tests run again.
#[derive(Debug)]
pub(super) struct Screened {
    pub(super) suite: Suite,
    runner: Runner,
}

impl Screened {
    /// Whether the typed command is a script that gave one of its programs only a part of its tests.
    pub(super) fn is_filtered(&self, typed: &PlannedSuite) -> bool {
        let command: Vec<String> =
            typed.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        self.suite.processes.iter().any(|process| plan::is_filtered(&command, &process.hello().arguments))
    }
}
