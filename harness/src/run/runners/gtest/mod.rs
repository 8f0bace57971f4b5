//! GoogleTest, and whatever tells boundaries as it does: suspects run again, each alone.
//!
//! Data flow: screened suites → [`stacks`], where the screen took none → `analysis::screen` → for every
//! suspect a process of its own that repeats this one test ([`confirm`]; several at once where the user's own run had
//! several: [`lanes`]), with `analysis::Confirmation` deciding at each end whether to go on ([`alone`]) → for those
//! that do something else alone the tests around them ([`company`]) → facts of the suite.
//! [`one_by_one`] is for executables whose boundaries cannot be seen.

mod alone;
mod company;
mod confirm;
mod hunt;
mod lanes;
mod listing;
mod one_by_one;
mod stacks;

use std::time::Duration;

use memgate_analysis::ProcessRecord;

use self::alone::{Lasts, alone};
use self::listing::AllTests;
pub(super) use self::listing::{LIST_TIMEOUT, listing};
pub(super) use self::one_by_one::OneByOne;
use super::framework::{Framework, Ran, Share, Suite, Unit};
use crate::run::engine::{Context, Finished, RunState, Stopped};

/// Work of a process beside its tests may take so many times as long as in the screen.
const SLOWER_BESIDE_TESTS: u32 = 4;

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

/// How long a process that runs again may take from one event to the next: `of_test`, and longer where it prepared
/// longer in the screen (before its first test, between two of them).
fn patience(of_test: Duration, screened: &ProcessRecord) -> Duration {
    of_test.max(screened.longest_beside_tests() * SLOWER_BESIDE_TESTS)
}
