//! Instrumented suites: the tests run on a device, in the app's own process, with the agent inside.
//!
//! Data flow: the devices are found ([`places`]) and each gets its share of the tests, all at the same time → the
//! instrumentation is found → the agent is delivered, and proves that it runs while the runner only lists the tests
//! ([`probe`]) → the tests run once as they are ([`once`]) → each test class runs several times ([`rounds`]) → suspects
//! run alone, each repeated in one process ([`repeat`]) → facts of the suite, judged like those of any Java suite. If
//! each test has a process of its own ([`alone`]), all these steps apply to single tests. Each step is a run of its own
//! ([`drive`]), because the system ends the app's process with each. At the end, everything that memgate put on the
//! device is removed, even after a failure.

mod alone;
mod drive;
mod dump;
mod heap;
mod memory;
mod on_device;
mod once;
mod places;
mod probe;
mod repeat;
mod rounds;

use std::collections::BTreeSet;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use memgate_adb::DeviceFacts;
use memgate_history::shards::UnitKind;

use self::on_device::{Broken, OnDevice};
use self::places::Place;
use self::probe::Named;
use super::framework::{Framework, Suite, Unit};
use super::missing;
use crate::exit::ExpectedError;
use crate::plan::PlannedInstrumentation;
use crate::run::engine::{Context, Finished, Interrupts, Stopped};
use crate::session::facts::{Facts, JavaFacts, Kind, problem};
use crate::suite::instrumentation::{Call, Selection};

/// What to look at if no agent came from the test APK.
const NOT_PACKAGED: &str = "is libmemgate_agent.so of the app's ABI in the test APK, with memgate's listener? An app \
                            without native code also needs `useLegacyPackaging = true` (`memgate docs android`)";

/// A measured suite, and whether a test or the run as a whole failed.
type Measured = (Suite, bool);

/// The result of one device.
struct OfDevice {
    /// `None`: it has no share of the tests.
    measured: Option<Measured>,
    named: Named,
}

/// The runner of instrumented tests: growth is confirmed on the device, before memgate leaves it.
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

/// Measures a suite on its device, or its tests spread over several.
pub(super) async fn measure(
    context: &mut Context<'_>,
    planned: &PlannedInstrumentation,
    facts: &mut Facts,
) -> Result<Vec<(Suite, Instrumentation)>, Stopped> {
    let places = places::places(context.console, planned).await;
    // The runs on several devices each listen anew, and would not see this signal.
    if is_interrupted(context) {
        return Err(Stopped::Interrupted);
    }
    let mut places = match places {
        Ok(places) => places,
        Err(broken) => return not_measured(facts, &planned.suite.name, broken).map(|()| Vec::new()),
    };
    let names: Vec<String> = places.iter().map(|place| place.name.clone()).collect();
    let errors = facts.errors.len();
    let outcomes = match places.len() {
        1 => vec![on_device(context, planned, places.remove(0)).await],
        _ => on_devices(context, planned, places).await?,
    };
    let (mut measured, mut failed, mut named) = (Vec::new(), None, Vec::new());
    for (name, outcome) in names.iter().zip(outcomes) {
        match outcome {
            Ok(device) => {
                named.push(device.named);
                if let Some((suite, fails)) = device.measured {
                    failed = Some(failed.unwrap_or(false) || fails);
                    measured.push((suite, Instrumentation));
                }
            }
            // The device may have failed before the run that would have ended.
            Err(_) if is_interrupted(context) => return Err(Stopped::Interrupted),
            Err(broken) => not_measured(facts, name, broken)?,
        }
    }
    let nowhere = probe::nowhere(&named);
    let nowhere: Vec<&str> = nowhere.iter().map(String::as_str).collect();
    if let Some(what) = missing::told("ran on no device", &nowhere).filter(|_| named.len() == names.len()) {
        let hint = "the device to which such a test falls leaves it out (@SdkSuppress, @RequiresDevice): run the suite on devices of one kind, or on one";
        facts.errors.push(problem(&planned.suite.name, format!("not measured: {what}"), hint));
    }
    match failed {
        Some(failed) => facts.command_ended(i32::from(failed)),
        None if facts.errors.len() == errors && context.this_shard.is_none() => {
            let what = "no test ran: the filter matches none".to_owned();
            facts.errors.push(problem(&planned.suite.name, format!("not measured: {what}"), ""));
        }
        None => {}
    }
    Ok(measured)
}

/// Whether the user has ended the run, and nothing has reacted yet.
fn is_interrupted(context: &mut Context<'_>) -> bool {
    context.interrupts.next().now_or_never().is_some()
}

/// Measures on all devices at the same time, each with its share of the tests.
async fn on_devices(
    context: &mut Context<'_>,
    planned: &PlannedInstrumentation,
    places: Vec<Place>,
) -> Result<Vec<Result<OfDevice, Broken>>, Stopped> {
    context.console.line(&format!(
        "{}: its tests are spread over {} devices",
        planned.suite.name,
        places.len()
    ));
    // After an interrupt, each run cleans up its own device.
    let listening: Result<Vec<Interrupts>, ExpectedError> =
        places.iter().map(|_| context.interrupts.listen_too()).collect();
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

async fn on_device(
    context: &mut Context<'_>,
    planned: &PlannedInstrumentation,
    place: Place,
) -> Result<OfDevice, Broken> {
    let (mut suite, about) = probe::prepare(context, planned, place).await?;
    let outcome = in_order(context, &mut suite, &about).await;
    // Even after a failure, nothing of ours stays on the device.
    let left = suite.delivery.remove().await;
    for what in &left {
        context.console.warning(what);
    }
    let mut outcome = outcome?;
    if let Some((measured, _)) = &mut outcome.measured {
        measured.facts.problems.extend(left.into_iter().map(|what| problem(&suite.name, what, "")));
    }
    Ok(outcome)
}

/// The tests of this shard of a run, by class; `None` if it has none.
fn own(
    context: &Context<'_>,
    suite: &mut OnDevice<'_>,
    named: Option<Vec<Selection>>,
) -> Result<Option<Vec<Selection>>, Broken> {
    let Some(shard) = context.this_shard else { return Ok(named) };
    let named = named.unwrap_or_default();
    let mut known = BTreeSet::new();
    let classes =
        named.iter().map(|test| &test.class).filter(|class| known.insert(*class)).cloned().collect();
    let own: BTreeSet<String> = shard.own_alone(&suite.name, UnitKind::Class, classes).into_iter().collect();
    let of = named.len();
    let named: Vec<Selection> = named.into_iter().filter(|test| own.contains(&test.class)).collect();
    context.console.line(&format!("{}: {} of {of} tests fall to {}", suite.name, named.len(), shard.name()));
    if named.is_empty() {
        return Ok(None);
    }
    let tests_of = |class: &String| -> Vec<String> {
        named.iter().filter(|test| test.class == *class).filter_map(|test| test.test.clone()).collect()
    };
    let own: Vec<Selection> = own.iter().flat_map(|class| suite.chosen(class, &tests_of(class))).collect();
    if !Call::has_room_for(&own) {
        let what = format!("what falls to {} is too long for one request to adb", shard.name());
        return Err(Broken::Suite { what, hint: "divide it into more parts".to_owned() });
    }
    suite.own = Some(own);
    Ok(Some(named))
}

async fn in_order(
    context: &mut Context<'_>,
    suite: &mut OnDevice<'_>,
    about: &DeviceFacts,
) -> Result<OfDevice, Broken> {
    let named = probe::probe(context, suite, about).await?;
    let measured = match own(context, suite, named.own.clone())? {
        Some(own) => Some(tests_of(context, suite, &own).await?),
        None => None,
    };
    Ok(OfDevice { measured, named })
}

/// Why a measured run has nothing to repeat: its tests failed, or were skipped. `passed`: those with a process of their
/// own.
fn not_screened(once: &once::Once, passed: usize) -> Option<String> {
    let is_empty = once.complete && once.seen.is_empty() && passed == 0;
    is_empty.then(|| "none of its tests passed".to_owned())
}

/// Measures these tests.
async fn tests_of(
    context: &mut Context<'_>,
    suite: &mut OnDevice<'_>,
    named: &[Selection],
) -> Result<Measured, Broken> {
    let (mut once, parts) = match suite.planned.suite.process_per_test {
        true => alone::once(context, suite, named).await?,
        false => (once::once(context, suite, named).await?, Vec::new()),
    };
    let way = suite.delivery.way();
    if way.needs_listener() && !once.finished.is_empty() {
        context.console.line(&format!("{}: {}", suite.name, probe::comes_by(way)));
    }
    let hint = (suite.planned.suite.packaged && once.finished.is_empty()).then_some(NOT_PACKAGED);
    let times = (once.elapsed, suite.planned.timeout);
    let not_screened = not_screened(&once, parts.len());
    let mut measured = Suite::new(Kind::Instrumentation, suite.name.clone(), once.finished, times);
    measured.facts.java = Some(JavaFacts {
        app_memory: once.memory,
        failures: once.failures,
        not_screened,
        limits: suite.planned.suite.process_per_test.then(|| alone::LIMITS.to_owned()),
        ..JavaFacts::default()
    });
    measured.facts.heap = once.heap;
    let problems = once.problems.iter().map(String::as_str).chain(hint);
    measured.facts.problems = problems.map(|what| problem(&suite.name, what.to_owned(), "")).collect();
    if once.complete && !parts.is_empty() {
        alone::repeat(context, suite, &parts, &mut measured).await?;
    } else if once.complete && !once.seen.is_empty() {
        (suite.failing, suite.unsteady) = (once.failing, once.unsteady);
        let suspects = rounds::rounds(context, suite, &mut once.seen, &mut measured).await?;
        repeat::confirm(context, suite, &once.seen, &suspects, &mut measured).await?;
    }
    if let Some(shard) = context.this_shard {
        let is_there = !measured.processes.is_empty();
        let came = is_there.then(|| (suite.name.clone(), suite.planned.suite.package.clone()));
        shard.measured(&suite.name, came.as_slice());
    }
    Ok((measured, once.failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_whose_tests_are_all_ignored_says_that_none_passed() {
        let mut once = once::Once { complete: true, ..once::Once::default() };
        assert_eq!(not_screened(&once, 0).unwrap(), "none of its tests passed");
        assert_eq!(not_screened(&once, 1), None, "in a process of its own");
        once.seen = vec![("a.B".to_owned(), vec!["x".to_owned()])];
        assert_eq!(not_screened(&once, 0), None);
        assert_eq!(not_screened(&once::Once::default(), 0), None, "it was not measured");
    }
}
