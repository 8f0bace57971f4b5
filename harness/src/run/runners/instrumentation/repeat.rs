//! Confirms the suspects of the rounds: the class is repeated alone in one process of the app, and if it grows, each of
//! its tests. The rounds of a class follow each other, so no other class has added what grew in each of them.

use std::iter;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use memgate_analysis::{JavaSuspect, ProcessRecord, Window};
use memgate_wire::Boundary;
use memgate_wire::options::Detail;
use memgate_wire::reply::Reply;
use memgate_wire::spool::order;

use super::drive::Done;
use super::dump::Dump;
use super::on_device::{Broken, OnDevice, Run, Suspects, WAIT_FOR_ORDERS, times};
use crate::output::Progress;
use crate::run::engine::{Clocked, Context, Finished, Orders, RunState, Stopped, elapsed};
use crate::run::runners::framework::{NOT_CONFIRMED, Suite};
use crate::run::runners::java::{Classes, Last, Repeating, list, tests_of};
use crate::session::facts::ConfirmationFacts;
use crate::session::label::Label;
use crate::suite::instrumentation::{Mode, Selection};

/// Confirms the suspects; `seen` are the tests that the agent saw.
pub(super) async fn confirm(
    context: &mut Context<'_>,
    suite: &mut OnDevice<'_>,
    seen: &Classes,
    suspects: &Suspects,
    measured: &mut Suite,
) -> Result<(), Broken> {
    if !suspects.is_empty() && context.plan.confirm {
        context.console.line(&format!("{}: confirming {}, each alone", suite.name, suspects.len()));
        let line = |suspect: &JavaSuspect| format!("{} grew by {} in each round", suspect.suite, suspect.why);
        list(context.console, suspects.iter().map(line));
    }
    let mut progress = Progress::of_silent_tests(context.console, "confirming", suspects.len() as u64);
    // A device that is gone gets no more requests.
    let mut gone: Option<String> = None;
    for (done, suspect) in (0..).zip(suspects) {
        let mut show = |id: &str| progress.update(done, id);
        let tests = tests_of(seen, &suspect.suite);
        confirm_class(context, suite, (&suspect.suite, tests), measured, &mut gone, &mut show).await?;
    }
    Ok(())
}

/// Repeats a class, and test by test if it leaks. `gone`: why the device cannot be asked any more.
async fn confirm_class(
    context: &mut Context<'_>,
    suite: &mut OnDevice<'_>,
    (class, tests): (&str, &[String]),
    measured: &mut Suite,
    gone: &mut Option<String>,
    show: &mut dyn FnMut(&str),
) -> Result<(), Broken> {
    let whole = Selection { class: class.to_owned(), test: None };
    let single = |test: &String| Selection { class: class.to_owned(), test: Some(test.clone()) };
    // A method may have hundreds of parameters.
    let plain = tests.iter().all(|test| suite.takes(class, test) && !test.contains('['));
    let mut next = match tests {
        [test] => vec![single(test)],
        _ => vec![whole.clone()],
    };
    while let Some(selection) = next.pop() {
        let id = selection.id();
        let is_divided = selection == whole && plain;
        let outcome = match &gone {
            _ if !context.plan.confirm => {
                Outcome::of(ConfirmationFacts::Impossible(NOT_CONFIRMED.to_owned()))
            }
            Some(why) => Outcome::of(ConfirmationFacts::Broken(why.clone())),
            None => {
                let (chosen, or) = match &selection.test {
                    Some(test) if suite.takes(class, test) => (vec![selection.clone()], None),
                    // The class may also have ignored tests, or tests of the same name.
                    Some(_) => (suite.chosen(class, tests), Some(class.to_owned())),
                    None => (suite.chosen(class, tests), None),
                };
                let count = if selection == whole { tests.len() } else { 1 };
                let alone = Alone { id: id.clone(), or, chosen, tests: count, last: !is_divided };
                one(context, suite, alone, measured, &mut |_| show(&id)).await?
            }
        };
        *gone = gone.take().or(outcome.gone);
        measured.facts.confirmations.insert(outcome.id.unwrap_or(id), outcome.facts);
        if outcome.leaks && is_divided {
            next.extend(tests.iter().rev().map(single));
        }
    }
    Ok(())
}

/// The result of one suspect.
pub(super) struct Outcome {
    /// The other name of the selection, if the app reported it by that.
    pub(super) id: Option<String>,
    pub(super) facts: ConfirmationFacts,
    /// Whether it was seen to leak.
    leaks: bool,
    /// Why the device cannot be asked any more.
    pub(super) gone: Option<String>,
}

impl Outcome {
    const fn of(facts: ConfirmationFacts) -> Self {
        Self { id: None, facts, leaks: false, gone: None }
    }
}

/// A class or test that is repeated alone.
pub(super) struct Alone {
    /// Its name.
    pub(super) id: String,
    /// The app reports a class with a single test as that test: the other name it may have.
    pub(super) or: Option<String>,
    /// The selection for the runner.
    pub(super) chosen: Vec<Selection>,
    /// Number of tests in it.
    pub(super) tests: usize,
    /// Whether nothing smaller is repeated after it.
    pub(super) last: bool,
}

/// Repeats one selection of tests.
pub(super) async fn one(
    context: &mut Context<'_>,
    suite: &mut OnDevice<'_>,
    alone: Alone,
    measured: &mut Suite,
    show: &mut dyn FnMut(&RunState),
) -> Result<Outcome, Broken> {
    let Alone { id, or, chosen, tests, last } = alone;
    let outcome = Arc::new(Last::default());
    let dump = (last && suite.planned.suite.heap_dumps)
        .then(|| Dump::of(context.session, &id, suite.planned.suite.trimmed_dumps))
        .transpose()
        .map_err(Stopped::from)?;
    let held = dump.as_ref().map(|dump| dump.order(suite, Arc::clone(&outcome)));
    let (policy, name) = (context.plan.policy.clone(), suite.name.clone());
    let (ids, said) = (iter::once(id.clone()).chain(or).collect::<Vec<_>>(), Arc::clone(&outcome));
    let known = ids.clone();
    let run = Run {
        mode: Mode::Repeat(chosen),
        label: Label::Confirm { suite: suite.name.clone(), test: id.clone() },
        detail: Detail::Growth,
        orders: Box::new(move |_| {
            let (policy, name, said) = (policy.clone(), name.clone(), Arc::clone(&said));
            let repeats = move |id: &str| Repeating::new(&policy, (&name, id), elapsed, &said);
            Box::new(OfTest { ids: ids.clone(), repeats: Box::new(repeats), repeating: None })
        }),
        held,
        clocked: Clocked::Alone,
        // While the app waits for its dump, it sends nothing.
        timeout: times(suite.planned.timeout, tests)
            .saturating_add(dump.as_ref().map_or(Duration::ZERO, |_| WAIT_FOR_ORDERS)),
        log: &id,
    };
    let (done, output) = match suite.run(context, run, show).await {
        Ok(ran) => ran,
        // The device did not even accept the options of this run.
        Err(Broken::Suite { what, .. }) => {
            return Ok(Outcome { gone: Some(what.clone()), ..Outcome::of(ConfirmationFacts::Broken(what)) });
        }
        Err(stopped) => return Err(stopped),
    };
    if let Some(dump) = dump {
        dump.finish(context.console).await;
    }
    Ok(outcome_of(done, known, &outcome, &output, measured))
}

/// The result of a run that was to repeat a selection; `known`: the names that the selection may have in the app.
fn outcome_of(done: Done, known: Vec<String>, last: &Last, output: &str, measured: &mut Suite) -> Outcome {
    let gone = done.lost.as_ref().filter(|lost| lost.device_is_gone).map(|lost| lost.why.clone());
    let failed = done.incomplete().or_else(|| done.problems.first().cloned());
    let ran = |record: &ProcessRecord, id: &str| {
        record.windows.iter().any(|w| w.is(id)) || record.open.iter().any(|open| open.id == id)
    };
    let other = done.finished.iter().find_map(|process| process.record.windows.first().map(Window::id));
    let found = done.finished.into_iter().filter(Finished::is_main).find_map(|process| {
        let as_what = known.iter().position(|id| ran(&process.record, id))?;
        Some((process, as_what))
    });
    let Some((process, as_what)) = found else {
        let other = other.map(|other| format!("alone, {other} ran instead"));
        let why = failed.or(other).unwrap_or_else(|| "alone, the test did not run".to_owned());
        let facts = ConfirmationFacts::Broken(format!("{why} (what was printed: {output})"));
        return Outcome { gone, ..Outcome::of(facts) };
    };
    let facts = ConfirmationFacts::Repeated(process.facts());
    measured.processes.push(process);
    let id = known.into_iter().nth(as_what).filter(|_| as_what > 0);
    Outcome { id, facts, leaks: last.leaks.load(Ordering::Acquire), gone }
}

/// Orders for a process that repeats one test. If the process names the test differently than before (a parameter
/// without a name of its own: `Tile@1f2e`), the results of its executions would be unknown, and it would repeat the
/// test forever.
struct OfTest {
    /// The names that it may have.
    ids: Vec<String>,
    repeats: Box<dyn Fn(&str) -> Repeating + Send>,
    repeating: Option<Repeating>,
}

impl Orders for OfTest {
    fn at_test_end(&mut self, boundary: &Boundary, record: &ProcessRecord) -> Reply {
        let Some(id) = record.windows.last().and_then(|window| self.ids.iter().find(|id| window.is(id)))
        else {
            return Reply::of(order::DONE);
        };
        self.repeating.get_or_insert_with(|| (self.repeats)(id)).at_test_end(boundary, record)
    }
}

#[cfg(test)]
mod tests {
    use memgate_analysis::GatePolicy;
    use memgate_formats::instrumentation::{Ending, InstrumentationRun};

    use super::*;
    use crate::session::facts::Kind;

    #[test]
    fn a_suspect_that_was_not_repeated_says_why() {
        let facts = |problems: &[&str]| {
            let problems = problems.iter().map(|why| (*why).to_owned()).collect();
            let (run, ending) = (InstrumentationRun::new(), Ending::Complete);
            let (lost, finished, elapsed, output) = Default::default();
            let done = Done { run, ending, lost, finished, elapsed, output, problems };
            let mut measured =
                Suite::new(Kind::Instrumentation, "app".to_owned(), Vec::new(), Default::default());
            outcome_of(done, vec!["a.B.x".to_owned()], &Last::default(), "x.txt", &mut measured).facts
        };
        let broken = |why: &str| ConfirmationFacts::Broken(format!("{why} (what was printed: x.txt)"));
        let full = "failed to write frames/4711.mgf: No space left on device";
        assert_eq!(facts(&[full]), broken(full));
        assert_eq!(facts(&[]), broken("alone, the test did not run"));
    }

    #[test]
    fn a_test_with_another_name_than_before_is_not_repeated() {
        let ids = ["a.B.x[Tile@1f]", "a.B"].map(str::to_owned).to_vec();
        let repeats = |id: &str| {
            Repeating::new(&GatePolicy::default(), ("app", id), |_| Duration::ZERO, &Arc::default())
        };
        let reply = |test: &str| {
            let java = Some(Box::default());
            let suite = "a.B".to_owned();
            let mut record = ProcessRecord::default();
            record.windows.push(Window { suite, test: test.to_owned(), java, ..Window::default() });
            let mut orders = OfTest { ids: ids.clone(), repeats: Box::new(repeats), repeating: None };
            orders.at_test_end(&Boundary::default(), &record)
        };
        assert_eq!(reply("x[Tile@1f]"), Reply::default());
        assert_eq!(reply(""), Reply::default(), "the class, for it has other tests too");
        assert_eq!(reply("x[Tile@2e]"), Reply::of(order::DONE));
    }
}
