//! Hunting in Java test classes that the rounds did not suspect.
//!
//! Data flow: a class → repeated in one virtual machine, many executions in a window ([`JavaHunt`]) → growth in some of
//! the windows is confirmed like any suspect ([`Repeater`]), with enough executions in a window that it grows in each.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use memgate_analysis::{HuntTime, JavaHunt, JavaHunted, Next, ProcessRecord, Rare, java_hunted};
use memgate_config::Screen;
use memgate_wire::Boundary;
use memgate_wire::reply::Reply;
use memgate_wire::spool::order;

use super::ours::{Junit, silenced, worker};
use super::repeat::{How, Repeater, again};
use crate::exit::failed_to;
use crate::run::engine::{Context, Finished, MakeOrders, Orders, RunState, Stopped, forget};
use crate::run::runners::framework::{Ran, Share, Suite, Unit};
use crate::run::runners::java::tests_of;
use crate::session::facts::ConfirmationFacts;
use crate::session::label::Label;
use crate::suite::junit::{Batch, Selection};

/// Windows in a share of a hunt, roughly.
const WINDOWS: u32 = 40;
const SHORTEST_WINDOW: Duration = Duration::from_millis(100);
const LONGEST_WINDOW: Duration = Duration::from_millis(500);
/// Number of windows that a confirmation may need, and the start time of its virtual machine.
const WINDOWS_TO_CONFIRM: u32 = 20;
const START: Duration = Duration::from_secs(2);

/// Classes that were never suspect, those with most survivors in the build's own run first.
///
/// # Errors
/// Returns why none can be repeated.
pub(super) fn candidates(context: &Context<'_>, suite: &Suite, junit: &Junit) -> Result<Vec<Unit>, String> {
    if context.plan.screen == Screen::Off {
        return Err("`screen: off`".to_owned());
    }
    worker(suite, junit)?;
    let known = |class: &String| {
        junit.suspects.iter().any(|suspect| suspect.suite == *class)
            || suite.facts.confirmations.contains_key(class)
    };
    let can_run = |(class, tests): &&(String, Vec<String>)| {
        !tests.is_empty() && !known(class) && Selection::class(class, tests).is_plain()
    };
    let mut classes: Vec<String> =
        junit.classes.iter().filter(can_run).map(|(class, _)| class.clone()).collect();
    let left = |class: &String| {
        let of_class = junit.windows.iter().filter(|window| window.classes.contains(class));
        let left = of_class.flat_map(|window| window.left.values());
        left.fold((0_u64, 0_u64), |sum, left| {
            (sum.0.saturating_add(left.bytes), sum.1.saturating_add(left.instances))
        })
    };
    classes.sort_by_key(|class| Reverse(left(class)));
    Ok(classes.into_iter().map(|id| Unit { id, record: 0 }).collect())
}

/// Repeats one class for its time; possible growth is confirmed before the hunt ends.
pub(super) async fn of_class(
    context: &mut Context<'_>,
    suite: &mut Suite,
    junit: &Junit,
    name: &str,
    Share { time, end }: Share,
    finished: &mut Vec<Finished>,
    show: &mut dyn FnMut(&RunState),
) -> Result<Ran, Stopped> {
    let seen = match look(context, suite, junit, name, time, show).await? {
        Ok(seen) => seen,
        Err(why) => return Ok(Ran::Unusable(why)),
    };
    let Some(rare) = &seen.rare else { return Ok(Ran::Still(seen.executions)) };
    let before = format!("in the hunt {} more in {} executions", rare.what, seen.executions);
    // Leave time: another class may grow too.
    let now = Instant::now();
    let left = end.saturating_duration_since(now) / 2;
    match batch(&seen, rare, left) {
        None => {
            let why = format!("{before}; there was no time to confirm it");
            suite.facts.confirmations.insert(name.to_owned(), ConfirmationFacts::Impossible(why));
        }
        Some(executions) => {
            let over = "the time of the hunt was over before it could be confirmed".to_owned();
            let how = How { batch: Batch::Of(executions), until: Some(now + left), share: None, over };
            Repeater { context, suite, junit, how, finished }.class(name, &mut |_| ()).await?;
        }
    }
    Ok(Ran::Grew(seen.executions))
}

/// Executions in a window of the confirmation; `None`: the time is too short.
fn batch(seen: &JavaHunted, rare: &Rare, left: Duration) -> Option<u32> {
    let of_window = (left.checked_sub(START)? / WINDOWS_TO_CONFIRM).checked_sub(seen.pause)?;
    let nanos = seen.execution.as_nanos().max(1);
    let fits = u32::try_from(of_window.as_nanos() / nanos).unwrap_or(u32::MAX);
    // With fewer executions, some windows would see no growth, and the confirmation would prove nothing.
    let least = rare.window / 3 * 2;
    (fits >= least).then_some(rare.window.min(fits))
}

/// Repeats a class for its time.
async fn look(
    context: &mut Context<'_>,
    suite: &Suite,
    junit: &Junit,
    name: &str,
    time: HuntTime,
    show: &mut dyn FnMut(&RunState),
) -> Result<Result<JavaHunted, String>, Stopped> {
    let selection = Selection::class(name, tests_of(&junit.classes, name));
    let (policy, of_suite, began) = (context.plan.policy.clone(), suite.facts.name.clone(), Instant::now());
    let test = name.to_owned();
    let orders: MakeOrders =
        Box::new(move |_| Box::new(Hunting { hunt: JavaHunt::new(&policy, &of_suite, &test, time), began }));
    // Labelled as a narrowing run, so that nothing else judges it.
    let label = Label::Narrow { suite: suite.facts.name.clone(), class: name.to_owned() };
    let window = (time.share / WINDOWS).clamp(SHORTEST_WINDOW, LONGEST_WINDOW);
    let how = (label, Batch::Lasting(window));
    let (done, speaker) = match again(context, suite, junit, &selection, how, orders, show).await? {
        Ok(ended) => ended,
        Err(why) => return Ok(Err(why)),
    };
    let spoken = silenced(speaker).map_err(|why| failed_to(&why));
    let exit = done.ended.exit;
    let process = done.finished.iter().find(|process| process.is_main());
    let seen = match (spoken, process) {
        (Err(why), _) => Err(why),
        (Ok(()), Some(process)) if exit.is_success() => {
            java_hunted(&process.record, &suite.facts.name, name, &context.plan.policy)
        }
        (Ok(()), _) => Err(format!("the launcher ended with {exit}")),
    };
    for process in &done.finished {
        forget(&process.process.file)?;
    }
    Ok(seen)
}

struct Hunting {
    hunt: JavaHunt,
    began: Instant,
}

impl Orders for Hunting {
    fn at_test_end(&mut self, _: &Boundary, record: &ProcessRecord) -> Reply {
        match self.hunt.observe(record, self.began.elapsed()) {
            Next::Continue | Next::Explain => Reply::default(),
            Next::Stop => Reply::of(order::STOP),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confirmation_has_windows_that_all_grow_or_none_at_all() {
        let seen = |execution_ms| JavaHunted {
            executions: 5000,
            execution: Duration::from_millis(execution_ms),
            pause: Duration::from_millis(50),
            rare: None,
        };
        let rare = Rare { what: "1 × Chunk".to_owned(), window: 750 };
        for (execution_ms, left_s, want) in [
            (1, 100, Some(750)),
            (1, 15, Some(600)),
            (1, 10, None),
            (0, 5, Some(750)),
            (100, 300, None),
            (1, 1, None),
        ] {
            let left = Duration::from_secs(left_s);
            assert_eq!(batch(&seen(execution_ms), &rare, left), want, "{execution_ms} ms, {left_s} s");
        }
    }
}
