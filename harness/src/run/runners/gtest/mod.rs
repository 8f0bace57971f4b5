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
/// One execution may take this multiple of the test's time in the screening pass, but at least `LEAST_LONGEST`.
const SLOWER: u32 = 100;
const LEAST_LONGEST: Duration = Duration::from_secs(10);

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
    patience(longest(timeout, slowest.map(Duration::from_nanos)), screened)
}

/// Time limit of one execution of a test that took so long in the screening pass. A test that hangs because it cannot
/// be repeated must not cost a minute. A slow test may take `SLOWER_AGAIN` times its time, even if that is more than
/// `timeout`.
fn longest(timeout: Duration, took: Option<Duration>) -> Duration {
    let limit = |took| timeout.min(LEAST_LONGEST.max(took * SLOWER)).max(took * SLOWER_AGAIN);
    took.map_or(timeout, limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_hang_with_others_are_ended_as_early_as_alone() {
        let window = |test: &str, ms: u64| Window {
            suite: "A".to_owned(),
            test: test.to_owned(),
            end_ns: ms * 1_000_000,
            ..Window::default()
        };
        let mut record = ProcessRecord::default();
        let seconds = |record: &ProcessRecord| patience_with_all(Duration::from_secs(60), record).as_secs();
        assert_eq!(seconds(&record), 60, "their times are unknown");
        record.windows = vec![window("quick", 3)];
        assert_eq!(seconds(&record), 10);
        record.windows.push(window("slow", 300));
        assert_eq!(seconds(&record), 30);
        record.windows.push(window("slowest", 55_000));
        assert_eq!(seconds(&record), 220);
    }
}
