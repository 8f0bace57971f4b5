//! Runs each test in a process of its own, like Android's Test Orchestrator. memgate itself starts them one by one, so
//! that it can put back the agent and its options if the app's data is cleared in between.
//!
//! Data flow: the tests that the runner listed → one run for each, compared with its own result ([`once`]) → each of
//! which a test passed runs several times in one process, and is repeated there if it grows ([`repeat`]) → facts of
//! the suite. Every process writes a stream of its own. Growth from one test to the next cannot be seen: the process
//! has ended by then.

use std::collections::{BTreeMap, BTreeSet};

use memgate_analysis::{ProcessRecord, screen_rounds};
use memgate_config::Screen;
use memgate_formats::instrumentation::TestResult;
use memgate_model::format_number_of;
use memgate_wire::Outcome;

use super::memory::Memory;
use super::on_device::{Broken, OnDevice};
use super::once::{self, Once};
use super::repeat::{Alone, one};
use super::rounds::{self, Rounds};
use crate::output::Progress;
use crate::run::engine::{Context, Finished, RunState, Stopped};
use crate::run::runners::framework::{NOT_CONFIRMED, Suite};
use crate::run::runners::missing;
use crate::session::facts::{ConfirmationFacts, JavaFacts, problem};
use crate::suite::instrumentation::{Mode, Selection};

/// Limits of such a run.
pub(super) const LIMITS: &str =
    "each test ran in a process of its own: figures are within a test, growth from test to test is not seen";

/// Tests that share a process of their own: a test, or a class with tests that the runner cannot select by their names.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    selection: Selection,
    /// Its tests, as reports name them.
    tests: BTreeSet<String>,
}

impl Part {
    /// Its name: the app reports a class with one test as that test.
    fn id(&self) -> String {
        match self.tests.first() {
            Some(only) if self.tests.len() == 1 => only.clone(),
            _ => self.selection.id(),
        }
    }
}

/// The parts of the tests that the runner listed, in its order.
fn parts(named: &[Selection]) -> Vec<Part> {
    let is_plain = |test: &Option<String>| test.as_deref().is_some_and(Selection::takes);
    let mixed: BTreeSet<&String> =
        named.iter().filter(|test| !is_plain(&test.test)).map(|test| &test.class).collect();
    let mut parts: Vec<Part> = Vec::new();
    for test in named {
        let selection = match mixed.contains(&test.class) {
            true => Selection { class: test.class.clone(), test: None },
            false => test.clone(),
        };
        match parts.iter_mut().find(|part| part.selection == selection) {
            Some(part) => drop(part.tests.insert(test.id())),
            None => parts.push(Part { selection, tests: BTreeSet::from([test.id()]) }),
        }
    }
    parts
}

/// Runs each test once, as it is; also returns the parts that can be repeated.
pub(super) async fn once(
    context: &mut Context<'_>,
    suite: &mut OnDevice<'_>,
    named: &[Selection],
) -> Result<(Once, Vec<Part>), Broken> {
    let console = context.console;
    let cleared = if suite.planned.clear_data { ", with the app's data cleared before" } else { "" };
    console.line(&format!("{}: each test in a process of its own{cleared}", suite.name));
    let mut progress = Progress::beside_tests(console, "testing", Some(named.len() as u64));
    let memory = Memory::of_run(named.len());
    let mut all = Once { complete: true, whole: true, ..Once::default() };
    let mut results: Vec<TestResult> = Vec::new();
    let mut said = Said::default();
    let (mut parts_seen, mut parts) = (Vec::new(), parts(named).into_iter());
    for part in parts.by_ref() {
        let before = results.len() as u64;
        let mut show = |state: &RunState| progress.update(before + state.tests(), &state.status());
        let run = once::run(suite, Mode::Alone(part.selection.clone()), &memory);
        let id = part.id();
        let (done, output) = match suite.run(context, run, &mut show).await {
            Ok(ran) => ran,
            // The device did not even accept the options of this run.
            Err(Broken::Suite { what, .. }) => {
                said.add(format!("not measured: {what}"), id);
                (all.complete, all.whole) = (false, false);
                break;
            }
            Err(stopped) => return Err(stopped),
        };
        results.extend_from_slice(done.run.tests());
        let gone = done.lost.as_ref().is_some_and(|lost| lost.device_is_gone);
        let looked = once::look(done, &part.tests, &suite.tried, &output);
        all.elapsed += looked.elapsed;
        all.failed |= looked.failed;
        all.whole &= looked.whole;
        all.finished.extend(looked.finished);
        all.failures.extend(looked.failures);
        looked.problems.into_iter().for_each(|what| said.add(what, id.clone()));
        // A part of which no test passed, or that was not measured, is not repeated.
        if looked.complete && !looked.seen.is_empty() {
            parts_seen.push(part);
        }
        if gone {
            all.complete = false;
            break;
        }
    }
    drop(progress);
    let missing: Vec<String> = parts.flat_map(|part| part.tests).collect();
    let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
    all.problems = said.told();
    all.problems.extend(missing::told("did not run", &missing));
    let retraced = |trace: &str| context.names.retraced(&suite.planned.suite.name, trace);
    let of = (!all.whole || !missing.is_empty()).then_some(named.len());
    console.text(&once::shown(&results, of, retraced)).map_err(Stopped::from)?;
    all.memory = memory.tell(console, &suite.name, &all.finished);
    Ok((all, parts_seen))
}

/// Runs each part of which a test passed several times in one process, and repeats it if it grows.
pub(super) async fn repeat(
    context: &mut Context<'_>,
    suite: &mut OnDevice<'_>,
    parts: &[Part],
    measured: &mut Suite,
) -> Result<(), Broken> {
    let java = measured.facts.java.get_or_insert_with(JavaFacts::default);
    if context.plan.screen == Screen::Off {
        (java.not_screened, java.is_off) = (JavaFacts::off().not_screened, true);
        return Ok(());
    }
    let count = format_number_of(parts.iter().map(|part| part.tests.len()).sum::<usize>(), "test");
    context.console.line(&format!("{}: rounds over {count} on {}", suite.name, suite.device.serial()));
    let mut progress = Progress::of_silent_tests(context.console, "rounds", parts.len() as u64);
    let mut said = Said::default();
    for (done, part) in (0..).zip(parts) {
        let id = part.id();
        let mut show = |_: &RunState| progress.update(done, &id);
        if !repeat_part(context, suite, part, measured, &mut said, &mut show).await? {
            break;
        }
    }
    measured.facts.problems.extend(said.told().into_iter().map(|what| problem(&suite.name, what, "")));
    Ok(())
}

/// Repeats one part. False: the device cannot be asked any more.
async fn repeat_part(
    context: &mut Context<'_>,
    suite: &mut OnDevice<'_>,
    part: &Part,
    measured: &mut Suite,
    said: &mut Said,
    show: &mut dyn FnMut(&RunState),
) -> Result<bool, Broken> {
    let (id, tests) = (part.id(), part.tests.len());
    let chosen = (vec![part.selection.clone()], tests);
    let Rounds { finished, problems, gone } = match rounds::run(context, suite, chosen, show).await {
        Ok(ran) => ran,
        Err(Broken::Suite { what, .. }) => Rounds { finished: Vec::new(), problems: vec![what], gone: true },
        Err(stopped) => return Err(stopped),
    };
    let java = measured.facts.java.get_or_insert_with(JavaFacts::default);
    java.rounds.extend(finished.iter().map(Finished::facts));
    let whole = problems.is_empty();
    problems.into_iter().for_each(|why| said.add(format!("the rounds were not measured: {why}"), id.clone()));
    let suspected = finished.iter().any(|process| {
        // Errors in the frames of the rounds are reported later, when the rounds are judged.
        screen_rounds(&process.record, &suite.name, &context.plan.policy)
            .is_ok_and(|suspects| !suspects.is_empty())
    });
    let fails = finished.iter().any(|process| has_failed(&process.record));
    measured.processes.extend(finished);
    if gone {
        said.add("the tests behind it were not repeated".to_owned(), id);
        return Ok(false);
    }
    let confirmation = match (fails, suspected && whole) {
        (true, _) => ConfirmationFacts::Unscreened("it fails when it is repeated".to_owned()),
        (false, false) => return Ok(true),
        (false, true) if !context.plan.confirm => ConfirmationFacts::Impossible(NOT_CONFIRMED.to_owned()),
        (false, true) => {
            let chosen = vec![part.selection.clone()];
            let class = part.selection.id();
            let or = Some(class).filter(|class| *class != id);
            let alone = Alone { id: id.clone(), or, chosen, tests, last: true };
            let outcome = one(context, suite, alone, measured, show).await?;
            measured.facts.confirmations.insert(outcome.id.unwrap_or_else(|| id.clone()), outcome.facts);
            if let Some(why) = outcome.gone {
                said.add(format!("the tests behind it were not repeated: {why}"), id);
                return Ok(false);
            }
            return Ok(true);
        }
    };
    measured.facts.confirmations.insert(id, confirmation);
    Ok(true)
}

/// Whether a test failed. If a test fails only in its second round, the first round alone is known.
fn has_failed(record: &ProcessRecord) -> bool {
    record.windows.iter().any(|window| window.outcome == Some(Outcome::Failed))
}

/// Things that were not measured, each with its tests. For example, a missing listener is reported once, not for each
/// test.
#[derive(Debug, Default)]
struct Said(BTreeMap<String, Vec<String>>);

impl Said {
    fn add(&mut self, what: String, id: String) {
        self.0.entry(what).or_default().push(id);
    }

    fn told(self) -> Vec<String> {
        let tell = |(what, ids): (String, Vec<String>)| match ids.as_slice() {
            [id] => format!("{id}: {what}"),
            [first, ..] => format!("{what} ({} tests, {first} first)", ids.len()),
            [] => what,
        };
        self.0.into_iter().map(tell).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(class: &str, test: &str) -> Selection {
        Selection { class: class.into(), test: Some(test.into()) }
    }

    #[test]
    fn each_test_is_a_part_and_those_that_cannot_be_selected_are_their_class() {
        let named = [
            test("a.B", "x"),
            test("a.C", "y[Tile@1f]"),
            test("a.B", "z[0]"),
            test("a.C", "y[Tile@2e]"),
            test("a.D", "1, 2"),
        ];
        let ids: Vec<(String, String)> =
            parts(&named).iter().map(|part| (part.selection.argument(), part.id())).collect();
        let want = [("a.B#x", "a.B.x"), ("a.C", "a.C"), ("a.B#z[0]", "a.B.z[0]"), ("a.D", "a.D.1, 2")];
        assert_eq!(ids, want.map(|(argument, id)| (argument.to_owned(), id.to_owned())));
    }

    #[test]
    fn the_same_of_many_tests_is_told_once() {
        let mut said = Said::default();
        for id in ["A.a", "A.b"] {
            said.add("not measured: the agent did not report from the app".to_owned(), id.to_owned());
        }
        assert_eq!(said.told(), ["not measured: the agent did not report from the app (2 tests, A.a first)"]);
    }
}
