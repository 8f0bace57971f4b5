//! Confirming what the rounds suspect: the class alone, repeated in one virtual machine, and where it grows each of its tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use memgate_analysis::{JavaConfirmation, Next, ProcessRecord};
use memgate_wire::Boundary;
use memgate_wire::spool::order;

use super::super::board::{Clocked, Finished};
use super::super::confirm::{keep_output, outcome};
use super::super::facts::ConfirmationFacts;
use super::super::label::Label;
use super::super::screen::{Screened, Setting};
use super::super::supervise::{Job, Stopped, Surroundings, supervise};
use super::super::watch::Orders;
use super::{Files, JavaSuite, WAIT, patience, silenced, worker};
use crate::device::Detail;
use crate::output::Progress;
use crate::proc_fs;
use crate::recorder::chain;
use crate::suite::junit::{self, Selection};

/// Suspects that are told one by one.
const SHOWN: usize = 5;

/// Confirms the suspects of one suite.
pub(in super::super) async fn confirm(
    around: &mut Surroundings<'_>,
    setting: Setting<'_>,
    suite: &mut Screened,
) -> Result<Vec<Finished>, Stopped> {
    let Some(java) = suite.java.take() else { return Ok(Vec::new()) };
    let confirmed = confirm_all(around, setting, suite, &java).await;
    suite.java = Some(java);
    confirmed
}

async fn confirm_all(
    around: &mut Surroundings<'_>,
    setting: Setting<'_>,
    suite: &mut Screened,
    java: &JavaSuite,
) -> Result<Vec<Finished>, Stopped> {
    let mut finished = Vec::new();
    let total = java.suspects.len();
    if total > 0 && setting.plan.confirm {
        let what =
            if total == 1 { "1 test class".to_owned() } else { format!("{total} test classes, each alone") };
        around.console.line(&format!("{}: confirming {what}", suite.facts.name));
        for suspect in java.suspects.iter().take(SHOWN) {
            around
                .console
                .line(&format!("  {} grew by {} in each of the last rounds", suspect.suite, suspect.why));
        }
        if total > SHOWN {
            around.console.line(&format!("  and {} more", total - SHOWN));
        }
    }
    let console = around.console;
    let mut progress = Progress::of_silent_tests(console, "confirming", total as u64);
    for (done, suspect) in (0..).zip(&java.suspects) {
        let tests =
            java.classes.iter().find(|(class, _)| *class == suspect.suite).map(|(_, tests)| tests.as_slice());
        let class = Selection::class(&suspect.suite, tests.unwrap_or_default());
        let single = |test: &String| Selection::one(&suspect.suite, test);
        // One test is the class, told more exactly.
        let mut next: Vec<Selection> = match tests {
            Some([test]) => vec![single(test)],
            _ => vec![class.clone()],
        };
        while let Some(selection) = next.pop() {
            let mut show = |_: &_| progress.update(done, &selection.id());
            let (outcome, leaks) =
                one(around, setting, suite, java, &selection, &mut finished, &mut show).await?;
            suite.facts.confirmations.insert(selection.id(), outcome);
            if leaks && selection == class {
                next.extend(tests.unwrap_or_default().iter().rev().map(single));
            }
        }
    }
    drop(progress);
    Ok(finished)
}

/// Repeats one selection; tells also whether it was seen to leak.
async fn one(
    around: &mut Surroundings<'_>,
    setting: Setting<'_>,
    suite: &Screened,
    java: &JavaSuite,
    selection: &Selection,
    finished: &mut Vec<Finished>,
    show: &mut dyn FnMut(&super::super::board::Board),
) -> Result<(ConfirmationFacts, bool), Stopped> {
    let impossible = |why: &str| Ok((ConfirmationFacts::Impossible(why.to_owned()), false));
    if !setting.plan.confirm {
        return impossible("--no-confirm was given");
    }
    if !selection.is_plain() {
        return impossible("its name holds a line break, which a plan cannot");
    }
    let worker = match worker(suite, java) {
        Ok(worker) => worker,
        Err(why) => return impossible(&why),
    };
    let id = selection.id();
    let files = Files::new(setting)?;
    let label = Label::Confirm { suite: suite.facts.name.clone(), test: id.clone() };
    let (options, option) = files.options(around, &label, |options| {
        options.detail = Detail::Growth;
        options.wait = WAIT;
    })?;
    let ours = files.launcher(around, worker, (&options, &option), &junit::repeat(selection))?;
    let last = Arc::new(Last::default());
    let (policy, name) = (setting.plan.policy.clone(), suite.facts.name.clone());
    let (test, said) = (id.clone(), Arc::clone(&last));
    let tests = if selection.test.is_empty() {
        java.classes.iter().find(|(class, _)| *class == selection.class).map_or(1, |(_, tests)| tests.len())
    } else {
        1
    };
    let job = Job {
        launch: ours.launch,
        options,
        preload: false,
        orders: Box::new(move |process| {
            let confirmation = JavaConfirmation::new(&policy, &name, &test);
            let pid = Some(process.hello.pid).filter(|_| process.visible);
            Box::new(Repeating { confirmation, pid, starved_before: None, last: Arc::clone(&said) })
        }),
        clocked: Clocked::Alone,
        timeout: patience(suite, tests),
    };
    let done = supervise(around, job, show).await?;
    let output = keep_output(setting, &id, &done)?;
    if let Err(why) = silenced(ours.speaker) {
        let why = format!("failed to {}", chain(&why));
        return Ok((ConfirmationFacts::Broken(why), false));
    }
    let ended_well = done.ended.exit.is_success();
    let outcome = match outcome(done, &id, &output, finished) {
        // Nobody told it to stop: it waited in vain.
        ConfirmationFacts::Repeated(_) if ended_well && !last.was_told.load(Ordering::Acquire) => {
            ConfirmationFacts::Broken(
                "it ended before enough was known: memgate answered too late".to_owned(),
            )
        }
        outcome => outcome,
    };
    Ok((outcome, last.leaks.load(Ordering::Acquire)))
}

/// How repeating ended.
#[derive(Default)]
struct Last {
    /// It was told to stop.
    was_told: AtomicBool,
    leaks: AtomicBool,
}

/// Goes on until enough is known; what leaks is explained before the end.
struct Repeating {
    confirmation: JavaConfirmation,
    /// The process, where it can be seen.
    pid: Option<u32>,
    /// How long its threads had waited for a processor at the first end.
    starved_before: Option<Duration>,
    last: Arc<Last>,
}

impl Repeating {
    fn starved(&mut self) -> Duration {
        let now = self.pid.map(proc_fs::starved).unwrap_or_default();
        now.saturating_sub(*self.starved_before.get_or_insert(now))
    }
}

impl Orders for Repeating {
    fn at_test_end(&mut self, _: &Boundary, record: &ProcessRecord) -> u32 {
        let starved = self.starved();
        match self.confirmation.observe(record, took(record), starved) {
            Next::Continue => 0,
            Next::Explain => order::EXPLAIN,
            Next::Stop => {
                self.last.leaks.store(self.confirmation.leaks(), Ordering::Release);
                self.last.was_told.store(true, Ordering::Release);
                order::STOP
            }
        }
    }
}

/// What all iterations took, without what the harness needed to think about them.
fn took(record: &ProcessRecord) -> Duration {
    Duration::from_nanos(record.windows.iter().map(|w| w.end_ns.saturating_sub(w.start_ns)).sum())
}

#[cfg(test)]
mod tests {
    use memgate_analysis::Window;

    use super::*;

    #[test]
    fn what_lies_between_the_iterations_does_not_count() {
        let window = |start_ns, end_ns| Window { start_ns, end_ns, ..Window::default() };
        let mut record = ProcessRecord::default();
        record.windows = vec![window(100, 200), window(5000, 5800)];
        assert_eq!(took(&record), Duration::from_nanos(900));
    }
}
