//! GoogleTest, and other sources of boundaries that behave like it: suspects run again, each alone.
//!
//! Data flow: screened suites → [`stacks`], if the screening pass took none → `analysis::screen` → each suspect gets a
//! process of its own that repeats this one test ([`confirm`]; several at the same time if the user's own run had
//! several: [`lanes`]), where `analysis::Confirmation` decides after each execution whether to go on ([`alone`]) →
//! suspects that behave differently alone run with the tests around them ([`company`]) → facts of the suite.
//! [`one_by_one`] is for executables whose boundaries cannot be seen, [`itself`] for programs that report their own
//! tests and are not GoogleTest's.

mod alone;
mod company;
mod confirm;
mod hunt;
mod itself;
mod lanes;
mod listing;
mod one_by_one;
mod stacks;

use std::time::Duration;

use memgate_analysis::{ProcessRecord, Window};

use self::alone::{Lasts, alone};
pub(super) use self::itself::reports_its_own_tests;
use self::listing::AllTests;
pub(super) use self::listing::{LIST_TIMEOUT, listing};
pub(super) use self::one_by_one::OneByOne;
use super::framework::{Framework, Ran, Share, Suite, Unit};
use crate::run::engine::{Context, Finished, RunState, Stopped};

/// A repeated test, and the work between tests, may always take this multiple of its time in the screening pass.
const SLOWER_AGAIN: u32 = 4;

/// A suite of GoogleTest, with the tests its executables list.
#[derive(Debug, Default)]
pub(super) struct GoogleTest(AllTests);

impl Framework for GoogleTest {
    async fn confirm(
        context: &mut Context<'_>,
        suites: Vec<(&mut Suite, &mut Self)>,
    ) -> Result<Vec<Finished>, Stopped> {
        confirm::suites(context, suites).await
    }

    fn candidates(&self, context: &Context<'_>, suite: &Suite) -> Result<Vec<Unit>, String> {
        hunt::candidates(context, suite)
    }

    async fn hunt(
        &mut self,
        context: &mut Context<'_>,
        suite: &mut Suite,
        unit: &Unit,
        Share { time, .. }: Share,
        finished: &mut Vec<Finished>,
        show: &mut dyn FnMut(&RunState),
    ) -> Result<Ran, Stopped> {
        let process = (unit.id.as_str(), unit.record);
        let ran = alone(context, suite, process, &self.0, Lasts::Hunt(time), show).await?;
        hunt::seen(context, suite, &unit.id, ran, finished)
    }
}

/// How long a repeated process may take between two events: `of_test`, or longer if its preparation was longer in the
/// screening pass (before its first test, or between two tests).
fn patience(of_test: Duration, screened: &ProcessRecord) -> Duration {
    of_test.max(screened.longest_beside_tests() * SLOWER_AGAIN)
}

/// The same for a process in which any of its tests may run.
fn patience_with_all(timeout: Duration, screened: &ProcessRecord) -> Duration {
    let took = |window: &Window| window.end_ns.saturating_sub(window.start_ns);
    let slowest = screened.windows.iter().filter(|window| !window.is_setup()).map(took).max();
    patience(timeout.max(Duration::from_nanos(slowest.unwrap_or(0)) * SLOWER_AGAIN), screened)
}
