//! `--hunt`: repeats tests that were never suspect, to find growth that does not occur in every execution.
//!
//! Data flow: screened and confirmed suites → [`Unit`]s (native tests, Java test classes), the suites in turn, and in
//! each suite the units with most survivors first → each is repeated alone for its share of the remaining time
//! ([`Clock`]) → units that grew join the confirmations of their suite and are judged like them; for the others the
//! `Hunt` of the suite only keeps how often they ran.

use std::time::{Duration, Instant};

use memgate_analysis::{HuntTime, rarest_after};
use memgate_model::Hunt;

use super::engine::{Context, Finished, RunState, Stopped};
use super::runners::{Ran, Screened, Share, Unit};
use crate::output::Progress;

/// With less time, repeating a test shows nothing that the screening pass did not show.
const LEAST_OF_TEST: Duration = Duration::from_millis(500);
/// The same for a test class: its virtual machine takes a second to start.
const LEAST_OF_CLASS: Duration = Duration::from_secs(4);
/// Cap on the time of a hunt: no hunt needs more, and `Instant` may overflow.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
/// Growth is watched for up to this multiple of a test's share.
const OPEN_FACTOR: u32 = 3;
/// And for at least this long, if the share is short: as long as in a confirmation.
const LEAST_OF_OPEN: Duration = Duration::from_secs(6);
/// Maximum number of named tests that cannot be repeated.
const NAMED: usize = 20;

/// Hunts in all suites, and notes the result in each.
pub(super) async fn hunt(
    context: &mut Context<'_>,
    suites: &mut [Screened],
) -> Result<Vec<Finished>, Stopped> {
    let Some(time) = context.plan.hunt else { return Ok(Vec::new()) };
    let time = time.min(LONGEST);
    let clock = Clock { end: Instant::now() + time };
    let units = units(context, suites);
    let total = units.len();
    if total == 0 {
        return Ok(Vec::new());
    }
    let what = match units.iter().filter(|(suite, _)| suites[*suite].hunts_classes()).count() {
        0 => format!("{total} tests"),
        classes if classes == total => format!("{total} test classes"),
        _ => format!("{total} tests and test classes"),
    };
    let time = time.as_secs_f64();
    context.console.line(&format!("hunting for {time} s in {what} that were never suspect, the worst first"));
    let mut progress = Progress::of_silent_tests(context.console, "hunting", total as u64);
    let mut finished = Vec::new();
    for (done, (suite, unit)) in units.into_iter().enumerate() {
        let suite = &mut suites[suite];
        let least = if suite.hunts_classes() { LEAST_OF_CLASS } else { LEAST_OF_TEST };
        let Some(time) = clock.share(total - done, least) else {
            tally(suite).not_reached += 1;
            continue;
        };
        let share = Share { time, end: clock.end };
        let mut show = |_: &RunState| progress.update(done as u64, &unit.id);
        let ran = suite.hunt(context, &unit, share, &mut finished, &mut show).await?;
        note(tally(suite), &unit.id, ran);
    }
    Ok(finished)
}

fn tally(suite: &mut Screened) -> &mut Hunt {
    suite.suite.facts.hunt.get_or_insert_with(Hunt::default)
}

/// The units that can be repeated, each with the index of its suite; notes why others cannot. The worst of each suite
/// come first, in turn.
fn units(context: &Context<'_>, suites: &mut [Screened]) -> Vec<(usize, Unit)> {
    let mut ranked = Vec::new();
    for (index, suite) in suites.iter_mut().enumerate() {
        let found = suite.candidates(context);
        let hunt = match &found {
            Ok(found) => Hunt { of: found.len() as u64, classes: suite.hunts_classes(), ..Hunt::default() },
            Err(why) => Hunt { not_hunted: Some(why.clone()), ..Hunt::default() },
        };
        suite.suite.facts.hunt = Some(hunt);
        ranked.extend(found.into_iter().flatten().enumerate().map(|(rank, unit)| (rank, index, unit)));
    }
    ranked.sort_by_key(|(rank, index, _)| (*rank, *index));
    ranked.into_iter().map(|(_, index, unit)| (index, unit)).collect()
}

/// The time of the hunt.
#[derive(Clone, Copy)]
struct Clock {
    end: Instant,
}

impl Clock {
    fn left(self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// The time for one of `units` units, at least `least`; `None`: too little is left to learn anything.
    fn share(self, units: usize, least: Duration) -> Option<HuntTime> {
        let left = self.left();
        let share = (left / u32::try_from(units.max(1)).unwrap_or(u32::MAX)).max(least);
        let most = share.saturating_mul(OPEN_FACTOR).max(LEAST_OF_OPEN).min(left);
        (left >= least).then_some(HuntTime { share: share.min(left), most })
    }
}

fn note(hunt: &mut Hunt, name: &str, ran: Ran) {
    let executions = match ran {
        Ran::Still(executions) => executions,
        Ran::Grew(executions) => {
            hunt.grew += 1;
            executions
        }
        Ran::Unusable(why) => {
            hunt.failing += 1;
            if hunt.failures.len() < NAMED {
                hunt.failures.push(format!("{name}: {why}"));
            }
            return;
        }
    };
    let (least, most) = hunt.executions;
    let least = if hunt.repeated == 0 { executions } else { least.min(executions) };
    hunt.repeated += 1;
    hunt.executions = (least, most.max(executions));
    hunt.one_in = rarest_after(least);
}
