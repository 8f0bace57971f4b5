//! Programs that report their own tests (`memgate.h`) and do not contain GoogleTest. memgate cannot select or repeat
//! their tests: only the program itself can.
//!
//! Data flow: suspects of such a process. If it repeats them, it runs once more as it was, and records the changes at
//! each end → facts of these suspects. If it does not, they cannot be confirmed.

use std::ffi::OsStr;
use std::path::Path;

use memgate_analysis::{ENOUGH_REPETITIONS, ProcessRecord, Suspect};
use memgate_wire::options::Detail;

use super::patience_with_all;
use crate::exit::ExpectedError;
use crate::run::engine::{
    Clocked, Context, Finished, Job, Limit, MakeOrders, Settle, Stopped, cannot_run_again, keep_output,
    options_of, silent, supervise,
};
use crate::run::runners::framework::Suite;
use crate::session::facts::{ConfirmationFacts, ProcessFacts};
use crate::session::label::Label;
use crate::suite::{Program, gtest, inspect};

/// Why a suspect is not confirmed that its program did not repeat.
const RAN_ONCE: &str = "its program reports its tests by memgate.h, so only the program can repeat it: \
                        let it run all its tests 20 times or more in one process, without sampling (memgate docs agent)";

/// Confirms the suspects of all such processes of a suite.
pub(super) async fn confirm(
    context: &mut Context<'_>,
    suite: &mut Suite,
    finished: &mut Vec<Finished>,
) -> Result<(), Stopped> {
    if !context.plan.confirm {
        return Ok(());
    }
    let repeats_itself =
        |process: &Finished| !process.record.windows.is_empty() && reports_its_own_tests(process);
    let is_its_own: Vec<bool> = suite.processes.iter().map(repeats_itself).collect();
    if !is_its_own.contains(&true) {
        return Ok(());
    }
    let suspects = memgate_analysis::screen(&suite.records(), &suite.facts.name, &context.plan.policy);
    let is_one = |suspect: &Suspect| is_its_own.get(suspect.record) == Some(&true);
    let records = suite.records();
    let repeats = |suspect: &Suspect| {
        let record = records.get(suspect.record);
        let exact = |record: &&ProcessRecord| {
            // Samples do not show which test allocates where.
            let windows = || record.windows_of(&suspect.test);
            windows().count() >= ENOUGH_REPETITIONS && windows().all(|window| window.interval.is_none())
        };
        record.is_some_and(exact)
    };
    let (repeated, once): (Vec<_>, Vec<_>) = suspects.into_iter().filter(is_one).partition(repeats);
    for suspect in once {
        let why = ConfirmationFacts::Impossible(RAN_ONCE.to_owned());
        suite.facts.confirmations.insert(suspect.test, why);
    }
    for index in 0..suite.processes.len() {
        let tests: Vec<&String> =
            repeated.iter().filter(|suspect| suspect.record == index).map(|suspect| &suspect.test).collect();
        let Some(first) = tests.first() else { continue };
        let what = if tests.len() == 1 { (*first).clone() } else { format!("{} tests", tests.len()) };
        context.console.line(&format!("confirming {what}: the program runs once more"));
        let again = again(context, suite, index, finished).await?;
        for test in tests {
            let facts = match &again {
                Ok(process) => ConfirmationFacts::Repeated(process.clone()),
                Err(why) => ConfirmationFacts::Impossible(why.clone()),
            };
            suite.facts.confirmations.insert(test.clone(), facts);
        }
    }
    Ok(())
}

/// Whether only the program can list, select and repeat its tests.
pub(in crate::run::runners) fn reports_its_own_tests(process: &Finished) -> bool {
    let executable = &process.hello().executable;
    let contains_gtest =
        || inspect(OsStr::new(executable), None, Path::new("/")).is_ok_and(|found| Program::is_gtest(&found));
    process.record.tells_its_own_tests() && !contains_gtest()
}

/// Runs the process once more, with its own arguments.
async fn again(
    context: &mut Context<'_>,
    suite: &Suite,
    index: usize,
    finished: &mut Vec<Finished>,
) -> Result<Result<ProcessFacts, String>, Stopped> {
    let process = suite.processes.get(index).and_then(|process| Some((process, process.environment()?)));
    let Some((process, environment)) = process else {
        return Ok(Err("the environment it ran in cannot be read (another process namespace?)".to_owned()));
    };
    let label = Label::Company { suite: suite.facts.name.clone() };
    let mut options = options_of(context, &process.hello().executable, &label);
    options.detail = Detail::Growth;
    let settles = !context.plan.settle.is_zero();
    let orders: MakeOrders = Box::new(move |_| Box::new(Settle::new(settles)));
    let limit = Limit::Ends(patience_with_all(suite.timeout, &process.record));
    let launch = silent(gtest::once_more(process.hello(), environment));
    let job = Job::new(launch, options, Clocked::Alone, limit).with(orders).listing_where_numbers_change();
    let done = match supervise(context, job, &mut |_| ()).await {
        Ok(done) => done,
        Err(Stopped::Failed(gone @ ExpectedError::Program { .. })) => {
            return Ok(Err(cannot_run_again(&gone)));
        }
        Err(stopped) => return Err(stopped),
    };
    let (output, exit) = (keep_output(context, "once-more", &done)?, done.ended.exit);
    let ran = |process: &Finished| process.is_main() && !process.record.windows.is_empty();
    Ok(match done.finished.into_iter().find(ran) {
        Some(process) => {
            let facts = process.facts();
            finished.push(process);
            Ok(facts)
        }
        None => {
            Err(format!("when its program ran once more, it reported no test ({exit}; its output: {output})"))
        }
    })
}
