//! Hunts in native tests that were never suspect: each is repeated alone for its time; tests that grew join the
//! confirmations.

use memgate_analysis::{Hunted, hunted};

use crate::run::engine::{Context, Done, Finished, Stopped, forget, keep_output, outcome};
use crate::run::runners::framework::{Ran, Suite, Unit};
use crate::session::facts::{ConfirmationFacts, ProcessFacts};

/// The result of repeating a test.
pub(super) fn seen(
    context: &Context<'_>,
    suite: &mut Suite,
    test: &str,
    ran: Result<Done, ConfirmationFacts>,
    finished: &mut Vec<Finished>,
) -> Result<Ran, Stopped> {
    let done = match ran {
        Ok(done) => done,
        Err(ConfirmationFacts::Impossible(why) | ConfirmationFacts::Broken(why)) => {
            return Ok(Ran::Unusable(why));
        }
        Err(_) => return Ok(Ran::Unusable("it cannot be repeated".to_owned())),
    };
    let mut processes = Vec::new();
    let streams: Vec<_> = done.finished.iter().map(|process| process.process.file.clone()).collect();
    let output = done.ended.exit.is_success().then(String::new);
    let output = output.map_or_else(|| keep_output(context, test, &done), Ok)?;
    let facts = outcome(context, done, test, &output, &mut processes);
    let (ConfirmationFacts::Repeated(facts), Some(process)) = (facts, processes.first_mut()) else {
        return Ok(Ran::Unusable("alone it did not run".to_owned()));
    };
    let seen = look(process, &facts, &suite.facts.name, test, context);
    let ran = match seen {
        Hunted::MayGrow(executions) => {
            suite.facts.confirmations.insert(test.to_owned(), ConfirmationFacts::Repeated(facts));
            finished.append(&mut processes);
            return Ok(Ran::Grew(executions));
        }
        Hunted::Still(executions) => Ran::Still(executions),
        Hunted::Unusable(why) => Ran::Unusable(why),
    };
    for stream in &streams {
        forget(stream)?;
    }
    Ok(ran)
}

fn look(
    process: &mut Finished,
    facts: &ProcessFacts,
    suite: &str,
    test: &str,
    context: &Context<'_>,
) -> Hunted {
    let input = facts.input(&mut |_| std::mem::take(&mut process.record));
    let seen = hunted(&input, suite, test, &context.plan.policy);
    process.record = input.record;
    seen
}

/// Tests that were never suspect.
pub(super) fn candidates(context: &Context<'_>, suite: &Suite) -> Result<Vec<Unit>, String> {
    if suite.processes.is_empty() {
        return Err("it was not measured".to_owned());
    }
    let tests = memgate_analysis::candidates(&suite.records(), &suite.facts.name, &context.plan.policy);
    let unknown = tests.into_iter().filter(|it| !suite.facts.confirmations.contains_key(&it.test));
    Ok(unknown.map(|it| Unit { id: it.test, record: it.record }).collect())
}
