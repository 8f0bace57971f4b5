//! Runs each test class several times in one process of the app, to see what grows each time: like any Java suite, but
//! class by class, because the runner creates its classes one after the other.

use std::collections::BTreeSet;

use memgate_analysis::{ProcessRecord, RoundsWatch, Unit, base_of, leaves_native, left_out, screen_rounds};
use memgate_config::Screen;
use memgate_wire::Boundary;
use memgate_wire::options::Detail;
use memgate_wire::reply::Reply;
use memgate_wire::spool::order;

use super::on_device::{Broken, OnDevice, Run, Suspects, times};
use crate::output::Progress;
use crate::run::engine::{Clocked, Context, Finished, Orders, RunState};
use crate::run::runners::framework::Suite;
use crate::run::runners::java::{Classes, classes_text};
use crate::session::facts::{JavaFacts, problem};
use crate::session::label::Label;
use crate::suite::instrumentation::{Mode, Selection};

/// Runs the rounds, notes their processes, and returns the classes that grew. Tests that fail when they are repeated
/// are removed from `seen`: they are left out from then on.
pub(super) async fn rounds(
    context: &mut Context<'_>,
    suite: &mut OnDevice<'_>,
    seen: &mut Classes,
    measured: &mut Suite,
) -> Result<Suspects, Broken> {
    let java = measured.facts.java.get_or_insert_with(JavaFacts::default);
    if context.plan.screen == Screen::Off {
        (java.not_screened, java.is_off) = (JavaFacts::off().not_screened, true);
        return Ok(Vec::new());
    }
    let most_tests = seen.iter().map(|(_, tests)| tests.len()).max().unwrap_or(1);
    let what = classes_text(seen.len());
    context.console.line(&format!("{}: rounds over {what} on {}", suite.name, suite.device.serial()));
    let total = seen.len() as u64;
    let mut progress =
        Progress::of_silent_tests(context.console, &format!("rounds of {}", suite.name), total);
    let mut show = |state: &RunState| progress.update(0, &state.status());
    let chosen = seen.iter().flat_map(|(class, tests)| suite.chosen(class, tests)).collect();
    let Rounds { finished, problems, .. } = run(context, suite, (chosen, most_tests), &mut show).await?;
    drop(progress);
    java.rounds = finished.iter().map(Finished::facts).collect();
    let failed = !problems.is_empty();
    let told = problems
        .into_iter()
        .map(|why| problem(&suite.name, format!("the rounds were not measured: {why}"), ""));
    measured.facts.problems.extend(told);
    // Errors in the frames of the rounds are reported when the rounds are judged.
    let suspects =
        |process: &Finished| screen_rounds(&process.record, &suite.name, &context.plan.policy).ok();
    let suspects = if failed { Vec::new() } else { finished.iter().filter_map(suspects).flatten().collect() };
    let failed: BTreeSet<_> = finished.iter().flat_map(|process| left_out(&process.record)).collect();
    suite.failing.extend(failed.iter().map(|(class, _)| class.clone()));
    for (class, tests) in seen {
        tests.retain(|test| !failed.contains(&(class.clone(), base_of(test).to_owned())));
    }
    measured.processes.extend(finished);
    Ok(suspects)
}

/// The result of one run of rounds.
pub(super) struct Rounds {
    pub(super) finished: Vec<Finished>,
    /// Why it is incomplete.
    pub(super) problems: Vec<String>,
    /// Whether the device cannot be asked any more.
    pub(super) gone: bool,
}

/// Runs these selections several times in one process; the largest has `most_tests` tests.
pub(super) async fn run(
    context: &mut Context<'_>,
    suite: &mut OnDevice<'_>,
    (chosen, most_tests): (Vec<Selection>, usize),
    show: &mut dyn FnMut(&RunState),
) -> Result<Rounds, Broken> {
    let (policy, name) = (context.plan.policy.clone(), suite.name.clone());
    let run = Run {
        mode: Mode::Rounds(chosen),
        label: Label::Rounds { suite: suite.name.clone() },
        detail: Detail::Survivors,
        orders: Box::new(move |_| Box::new(Suspicion(RoundsWatch::new(&policy, &name, Unit::Class)))),
        held: None,
        clocked: Clocked::Alone,
        // A window is a whole class.
        timeout: times(suite.planned.timeout, most_tests),
        log: "rounds",
    };
    let (done, output) = suite.run(context, run, show).await?;
    let mut problems = done.problems.clone();
    problems.extend(done.incomplete().map(|why| format!("{why} (what was printed: {output})")));
    if done.finished.is_empty() {
        problems.push("the agent did not report from the app".to_owned());
    }
    let gone = done.lost.as_ref().is_some_and(|lost| lost.device_is_gone);
    let finished = done.finished.into_iter().filter(Finished::is_main).collect();
    Ok(Rounds { finished, problems, gone })
}

/// Ends the rounds of a test class that is no longer suspect.
struct Suspicion(RoundsWatch);

impl Orders for Suspicion {
    fn at_test_end(&mut self, boundary: &Boundary, record: &ProcessRecord) -> Reply {
        self.0.observe(record);
        // Native allocations are compared round by round too.
        let done = self.0.is_done(&boundary.suite, &boundary.test) && !leaves_native(record);
        Reply::of(if done { order::DONE } else { 0 })
    }
}
