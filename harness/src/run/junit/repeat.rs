//! Confirming what the rounds suspect: the class alone, repeated in one virtual machine, and where it grows, its tests.
//!
//! Data flow: a suspect class → repeated as a whole → grows: its tests are halved until single tests are left ([`Halves`]). A half is
//! repeated as the class was; one that does not grow is done with, of one that grows each half is looked at. Where one half does not
//! grow, the other one is the one that does, and is not asked. Each single test that is left is confirmed alone, as the class was.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use memgate_analysis::{JavaConfirmation, NativeConfirmation, Next, ProcessRecord, ran_out_of_memory};
use memgate_wire::Boundary;
use memgate_wire::spool::order;

use super::super::board::{Clocked, Finished, Limit};
use super::super::confirm::{keep_output, outcome};
use super::super::facts::ConfirmationFacts;
use super::super::kept::KeptFiles;
use super::super::label::Label;
use super::super::screen::{Screened, Setting};
use super::super::supervise::{Job, Stopped, Surroundings, supervise};
use super::super::watch::{Orders, Settle};
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
            around.console.line(&format!("  {}: {}", suspect.suite, suspect.seen()));
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
        let tests = tests.unwrap_or_default();
        let mut halves = Halves::of(tests);
        while let Some(group) = halves.next() {
            let selection = match group {
                // One test is the class, told more exactly.
                [test] => Selection::one(&suspect.suite, test),
                group => Selection::class(&suspect.suite, group),
            };
            let narrows = group.len() > 1 && group.len() < tests.len();
            let mut show = |_: &_| progress.update(done, &selection.id());
            let (outcome, leaks) =
                one(around, setting, suite, java, &selection, narrows, &mut finished, &mut show).await?;
            if narrows {
                // What broke told nothing.
                halves.answer(leaks || !matches!(outcome, ConfirmationFacts::Repeated(_)));
            } else {
                halves.answer(leaks);
                suite.facts.confirmations.insert(selection.id(), outcome);
            }
        }
    }
    drop(progress);
    Ok(finished)
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
    let name = suite.facts.name.clone();
    let label = if narrows {
        Label::Narrow { suite: name.clone(), class: id.clone() }
    } else {
        Label::Confirm { suite: name.clone(), test: id.clone() }
    };
    let (options, option) = files.options(around, &label, |options| {
        options.detail = Detail::Growth;
        options.wait = WAIT;
    })?;
    let ours =
        files.launcher(around, (worker, java.native), (&options, &option), &junit::repeat(selection))?;
    let last = Arc::new(Last::default());
    let policy = setting.plan.policy.clone();
    let (test, said, kept) = (id.clone(), Arc::clone(&last), Arc::clone(&around.kept));
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
            let mut confirmation = JavaConfirmation::new(&policy, &name, &test);
            if narrows {
                confirmation = confirmation.narrows();
            }
            let pid = Some(process.hello.pid).filter(|_| process.visible);
            Box::new(Repeating {
                confirmation,
                native: NativeConfirmation::new(&policy, &name, &test),
                settle: Settle::new(true),
                kept: Arc::clone(&kept),
                pid,
                starved_before: None,
                last: Arc::clone(&said),
            })
        }),
        clocked: Clocked::Alone,
        limit: Limit::Ends(patience(suite, tests)),
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
    let filled_the_heap = matches!(outcome, ConfirmationFacts::Repeated(_))
        && finished.last().is_some_and(|process| ran_out_of_memory(&process.record, &id));
    Ok((outcome, filled_the_heap || last.leaks.load(Ordering::Acquire)))
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
    /// Of what its libraries allocate, where that is tracked.
    native: NativeConfirmation,
    settle: Settle,
    kept: Arc<KeptFiles>,
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
    fn at_test_end(&mut self, boundary: &Boundary, record: &ProcessRecord) -> u32 {
        self.native.observe(record);
        // Finalizers and cleaners may be about to free what is more now.
        if self.native.has_risen() && self.settle.again(boundary, record) {
            return order::SETTLE;
        }
        let starved = self.starved();
        let enough = self.native.is_enough(took(record));
        match self.confirmation.observe(record, took(record), starved) {
            Next::Explain => order::EXPLAIN,
            Next::Stop if !enough => 0,
            Next::Continue => 0,
            Next::Stop => {
                self.kept.keep(record, self.pid);
                let leaks = self.confirmation.leaks() || self.native.grows();
                self.last.leaks.store(leaks, Ordering::Release);
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
