//! Confirming what the rounds suspect: the class alone, repeated in one virtual machine, and where it grows, its tests.
//!
//! Data flow: a suspect class → repeated as a whole → grows: its tests are halved until single tests are left ([`Halves`]). A half is
//! repeated as the class was; one that does not grow is done with, of one that grows each half is looked at. Where one half does not
//! grow, the other one is the one that does, and is not asked. Each single test that is left is confirmed alone, as the class was.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use memgate_analysis::{JavaConfirmation, Next, ProcessRecord, ran_out_of_memory};
use memgate_wire::Boundary;
use memgate_wire::spool::order;

use super::super::board::{Board, Clocked, Finished, Limit};
use super::super::confirm::{keep_output, outcome};
use super::super::facts::ConfirmationFacts;
use super::super::label::Label;
use super::super::screen::{Screened, Setting};
use super::super::supervise::{Done, Job, Stopped, Surroundings, supervise};
use super::super::watch::{MakeOrders, Orders};
use super::{Files, JavaSuite, WAIT, patience, silenced, worker};
use crate::device::Detail;
use crate::device::agentless::Agentless;
use crate::output::Progress;
use crate::proc_fs;
use crate::recorder::chain;
use crate::suite::junit::{self, Batch, Selection};

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
            around.console.line(&format!("  {}: {}", suspect.suite, suspect.seen()));
        }
        if total > SHOWN {
            around.console.line(&format!("  and {} more", total - SHOWN));
        }
    }
    let console = around.console;
    let mut progress = Progress::of_silent_tests(console, "confirming", total as u64);
    let how = How { batch: Batch::Of(1), until: None };
    for (done, suspect) in (0..).zip(&java.suspects) {
        let mut show = |id: &str| progress.update(done, id);
        class(around, setting, suite, java, &suspect.suite, how, &mut finished, &mut show).await?;
    }
    drop(progress);
    Ok(finished)
}

/// How a selection is repeated.
#[derive(Debug, Clone, Copy)]
pub(super) struct How {
    /// Executions in a window.
    pub(super) batch: Batch,
    /// The end of the time there is for it.
    pub(super) until: Option<Instant>,
}

impl How {
    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| until <= Instant::now())
    }
}

/// The tests of a class that ran in the build and can be repeated.
pub(super) fn tests_of<'a>(java: &'a JavaSuite, class: &str) -> &'a [String] {
    java.classes.iter().find(|(known, _)| known == class).map_or(&[], |(_, tests)| tests.as_slice())
}

/// Confirms a class, and where it grows its tests, until the time is over.
#[expect(clippy::too_many_arguments, reason = "what a run needs, and what this one is")]
pub(super) async fn class(
    around: &mut Surroundings<'_>,
    setting: Setting<'_>,
    suite: &mut Screened,
    java: &JavaSuite,
    class: &str,
    how: How,
    finished: &mut Vec<Finished>,
    show: &mut dyn FnMut(&str),
) -> Result<(), Stopped> {
    let tests = tests_of(java, class);
    let mut halves = Halves::of(tests);
    while let Some(group) = halves.next() {
        if group.len() < tests.len() && how.is_over() {
            break;
        }
        let selection = match group {
            // One test is the class, told more exactly.
            [test] => Selection::one(class, test),
            group => Selection::class(class, group),
        };
        let narrows = group.len() > 1 && group.len() < tests.len();
        let mut show = |_: &_| show(&selection.id());
        let (outcome, leaks) =
            one(around, setting, suite, java, &selection, narrows, how, finished, &mut show).await?;
        if narrows {
            // What broke told nothing.
            halves.answer(leaks || !matches!(outcome, ConfirmationFacts::Repeated(_)));
        } else {
            halves.answer(leaks);
            // What the class does is known, and of this test no more.
            if group.len() < tests.len() && how.is_over() && !leaks {
                break;
            }
            suite.facts.confirmations.insert(selection.id(), outcome);
        }
    }
    Ok(())
}

/// Which tests of a class that grows are repeated next, together or alone.
struct Halves<'a> {
    /// What is still open, the next one last.
    open: Vec<Group<'a>>,
    asked: &'a [String],
}

/// Tests that are repeated together.
struct Group<'a> {
    tests: &'a [String],
    /// The other half of a group that grows: where that one does not, this one does.
    other: &'a [String],
    grows: bool,
}

impl<'a> Halves<'a> {
    /// Below this many, each alone is as quick.
    const SMALLEST: usize = 4;

    /// Begins with all tests of the class together; also where it is not known which it has.
    fn of(tests: &'a [String]) -> Self {
        Self { open: vec![Group { tests, other: &[], grows: false }], asked: tests }
    }

    /// The group that is to be repeated.
    fn next(&mut self) -> Option<&'a [String]> {
        loop {
            let group = self.open.pop()?;
            if group.grows && group.tests.len() > 1 {
                self.split(group.tests);
                continue;
            }
            self.asked = group.tests;
            return Some(group.tests);
        }
    }

    /// Did what [`Self::next`] gave grow?
    fn answer(&mut self, grows: bool) {
        let asked = self.asked;
        if grows && asked.len() > 1 {
            self.split(asked);
        } else if let Some(next) =
            self.open.last_mut().filter(|next| !grows && std::ptr::eq(next.other, asked))
        {
            next.grows = true;
        }
    }

    fn split(&mut self, tests: &'a [String]) {
        if tests.len() < Self::SMALLEST {
            self.open.extend(tests.chunks(1).rev().map(|tests| Group { tests, other: &[], grows: false }));
        } else {
            let (first, second) = tests.split_at(tests.len() / 2);
            self.open.push(Group { tests: second, other: first, grows: false });
            self.open.push(Group { tests: first, other: &[], grows: false });
        }
    }
}

/// Repeats one selection; tells also whether it was seen to leak. `narrows`: that is all that is to be known.
#[expect(clippy::too_many_arguments, reason = "what a run needs, and what this one is")]
async fn one(
    around: &mut Surroundings<'_>,
    setting: Setting<'_>,
    suite: &Screened,
    java: &JavaSuite,
    selection: &Selection,
    narrows: bool,
    how: How,
    finished: &mut Vec<Finished>,
    show: &mut dyn FnMut(&Board),
) -> Result<(ConfirmationFacts, bool), Stopped> {
    let impossible = |why: &str| Ok((ConfirmationFacts::Impossible(why.to_owned()), false));
    if !setting.plan.confirm {
        return impossible("--no-confirm was given");
    }
    if !selection.is_plain() {
        return impossible("its name holds a line break, which a plan cannot");
    }
    let (name, id) = (suite.facts.name.clone(), selection.id());
    let label = if narrows {
        Label::Narrow { suite: name.clone(), class: id.clone() }
    } else {
        Label::Confirm { suite: name.clone(), test: id.clone() }
    };
    let last = Arc::new(Last::default());
    let policy = setting.plan.policy.clone();
    let (test, said) = (id.clone(), Arc::clone(&last));
    let orders: MakeOrders = Box::new(move |process| {
        let mut confirmation = JavaConfirmation::new(&policy, &name, &test);
        if narrows {
            confirmation = confirmation.without_holders();
        }
        let pid = Some(process.hello.pid).filter(|_| process.visible);
        Box::new(Repeating { confirmation, pid, starved_before: None, how, last: Arc::clone(&said) })
    });
    let (done, speaker) =
        match again(around, setting, suite, java, selection, (label, how.batch), orders, show).await? {
            Ok(ended) => ended,
            Err(why) => return impossible(&why),
        };
    let output = keep_output(setting, &id, &done)?;
    if let Err(why) = silenced(speaker) {
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
    let filled_the_heap = matches!(outcome, ConfirmationFacts::Repeated(_))
        && finished.last().is_some_and(|process| ran_out_of_memory(&process.record, &id));
    let leaks = filled_the_heap || last.leaks.load(Ordering::Acquire);
    if last.out_of_time.load(Ordering::Acquire) && !leaks {
        return impossible("the time of the hunt was over before it could be confirmed");
    }
    Ok((outcome, leaks))
}

/// Repeats one selection in a virtual machine of ours; or why that cannot be.
#[expect(clippy::too_many_arguments, reason = "what a run needs, and what this one is")]
pub(super) async fn again(
    around: &mut Surroundings<'_>,
    setting: Setting<'_>,
    suite: &Screened,
    java: &JavaSuite,
    selection: &Selection,
    (label, batch): (Label, Batch),
    orders: MakeOrders,
    show: &mut dyn FnMut(&Board),
) -> Result<Result<(Done, Option<Agentless>), String>, Stopped> {
    let worker = match worker(suite, java) {
        Ok(worker) => worker,
        Err(why) => return Ok(Err(why)),
    };
    let files = Files::new(setting)?;
    let (options, option) = files.options(around, &label, |options| {
        options.detail = Detail::Growth;
        options.wait = WAIT;
    })?;
    let plan = junit::repeat(selection, batch);
    let ours = files.launcher(around, worker, (&options, &option), &plan)?;
    let tests = if selection.test.is_empty() { tests_of(java, &selection.class).len().max(1) } else { 1 };
    let executions = match batch {
        Batch::Of(executions) => executions,
        Batch::Lasting(_) => 1,
    };
    let job = Job {
        launch: ours.launch,
        options,
        preload: false,
        orders,
        clocked: Clocked::Alone,
        limit: Limit::Ends(patience(suite, tests).saturating_mul(executions)),
    };
    let done = supervise(around, job, show).await?;
    Ok(Ok((done, ours.speaker)))
}

/// How repeating ended.
#[derive(Default)]
struct Last {
    /// It was told to stop.
    was_told: AtomicBool,
    leaks: AtomicBool,
    /// Because there was no more time.
    out_of_time: AtomicBool,
}

/// Goes on until enough is known; what leaks is explained before the end.
struct Repeating {
    confirmation: JavaConfirmation,
    /// The process, where it can be seen.
    pid: Option<u32>,
    /// How long its threads had waited for a processor at the first end.
    starved_before: Option<Duration>,
    how: How,
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
        let next = self.confirmation.observe(record, took(record), starved);
        let over = next != Next::Stop && self.how.is_over();
        self.last.out_of_time.store(over, Ordering::Release);
        match next {
            Next::Continue if !over => 0,
            Next::Explain if !over => order::EXPLAIN,
            _ => {
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

    /// What is asked until all is known, `company`: the tests grow only with the first of them.
    fn asked(count: usize, leaking: &[usize], company: bool) -> (Vec<Vec<usize>>, Vec<usize>) {
        let tests: Vec<String> = (0..count).map(|i| i.to_string()).collect();
        let (mut halves, mut asked, mut found) = (Halves::of(&tests), Vec::new(), Vec::new());
        while let Some(group) = halves.next() {
            let group: Vec<usize> = group.iter().map(|test| test.parse().unwrap()).collect();
            let grows = group.iter().any(|test| leaking.contains(test)) && (!company || group.contains(&0));
            halves.answer(grows);
            if grows && group.len() == 1 {
                found.extend(&group);
            }
            asked.push(group);
        }
        (asked, found)
    }

    #[test]
    fn halving_finds_every_test_that_grows_and_asks_about_few() {
        for count in 0..40 {
            for leaking in
                [vec![], vec![0], vec![count / 2], vec![count.max(1) - 1], vec![1, count / 3, count / 2]]
            {
                let mut want: Vec<usize> = leaking.iter().copied().filter(|test| *test < count).collect();
                want.sort_unstable();
                want.dedup();
                let (asked, mut found) = asked(count, &want, false);
                found.sort_unstable();
                assert_eq!(found, want, "of {count}: {asked:?}");
                let halvings = count.max(2).ilog2() as usize + 1;
                assert!(asked.len() <= 1 + want.len() * (halvings + 4), "of {count}, {want:?}: {asked:?}");
            }
        }
        assert_eq!(asked(1, &[0], false).0, [[0]]);
        assert_eq!(asked(3, &[1], false).0, [vec![0, 1, 2], vec![0], vec![1], vec![2]]);
        assert_eq!(
            asked(8, &[5], false).0[1..],
            [vec![0, 1, 2, 3], vec![4, 5], vec![4], vec![5], vec![6, 7]]
        );
    }

    /// What grows only with another test is nobody's alone: the class has it.
    #[test]
    fn what_needs_company_is_found_in_no_test_alone() {
        let (asked, found) = asked(16, &[9], true);
        assert!(found.is_empty() && asked.len() < 16, "{asked:?}");
    }

    #[test]
    fn what_lies_between_the_iterations_does_not_count() {
        let window = |start_ns, end_ns| Window { start_ns, end_ns, ..Window::default() };
        let mut record = ProcessRecord::default();
        record.windows = vec![window(100, 200), window(5000, 5800)];
        assert_eq!(took(&record), Duration::from_nanos(900));
    }
}
