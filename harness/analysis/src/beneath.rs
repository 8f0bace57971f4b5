//! A leak hidden by other allocations that come and go in the same place.
//!
//! A group has all stacks of one place. A queue that fills and is drained sets a high there. A leak of the same
//! function reaches that high much later, or never, so the growth of the group seems to be over. Therefore the stacks
//! of a group that does not grow are judged one by one. Those that grow become a series of their own.

use crate::groups::{Part, Series};
use crate::growth::{Allowed, Finding, is_over_exactly, judge_exact};

/// Splits groups: leaks become series of their own.
pub(crate) fn leaks_apart(groups: Vec<Series>, allowed: Allowed) -> Vec<Series> {
    groups.into_iter().flat_map(|group| apart(group, allowed)).collect()
}

fn apart(group: Series, allowed: Allowed) -> Vec<Series> {
    let stacks: Vec<&[Part]> = group.parts.chunk_by(|a, b| a.stack == b.stack).collect();
    if stacks.len() < 2 || grows(&group, allowed) {
        return vec![group];
    }
    let iterations = group.bytes.len();
    let series = |parts| Series::of(group.place.clone(), iterations, parts);
    let leaks = |parts: &&[Part]| {
        let stack = series(parts.to_vec());
        grows(&stack, allowed) && !takes_over(&stack.bytes, &group.bytes, allowed.warm_up)
    };
    let (growing, others): (Vec<&[Part]>, Vec<&[Part]>) = stacks.into_iter().partition(leaks);
    if growing.is_empty() {
        return vec![group];
    }
    vec![series(growing.concat()), series(others.concat())]
}

fn grows(series: &Series, allowed: Allowed) -> bool {
    !is_over_exactly(&series.bytes, allowed.warm_up)
        && judge_exact(&series.bytes, Allowed { block: series.block, ..allowed }).finding == Finding::Grows
}

/// The stack allocates while the other stacks of its group free in the same iterations. Example: a ring that another
/// call had filled.
fn takes_over(stack: &[f64], group: &[f64], warm_up: usize) -> bool {
    let rest: Vec<f64> = group.iter().zip(stack).map(|(group, stack)| group - stack).collect();
    let gained = |values: &[f64]| match values.get(warm_up..) {
        Some([first, .., last]) => last - first,
        _ => 0.0,
    };
    let (mut rises, mut replaces) = (0, 0);
    for (stack, rest) in stack.windows(2).zip(rest.windows(2)).skip(warm_up) {
        if stack[1] > stack[0] {
            rises += 1;
            replaces += usize::from(rest[1] < rest[0]);
        }
    }
    gained(&rest) <= -gained(stack) / 2.0 && replaces * 2 >= rises
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dsl::{Process, frame};
    use crate::groups::{self, Places};
    use crate::record::ProcessRecord;
    use crate::resolve::{Resolve, ResolvedStack};

    const TEST: &str = "Client.Send";
    const QUEUE: u32 = 3;
    const LEAK: u32 = 5;

    /// Resolves all stacks to one function.
    struct OfOnePlace;

    impl Resolve for OfOnePlace {
        fn frames(&mut self, _: &ProcessRecord, _: u32) -> ResolvedStack {
            ResolvedStack { frames: vec![frame("engine_tests", "Client::send(Request)")], truncated: false }
        }
    }

    /// The series that grow over 300 iterations, each by its last bytes, and the number of series into which the place
    /// is split.
    fn growing(body: impl Fn(&mut Process, u32)) -> (Vec<f64>, usize) {
        let mut process = Process::confirm();
        process.alloc(QUEUE, 64, 100);
        (0..300).for_each(|i| process.run(TEST, i, |p| body(p, i)));
        let record = process.end();
        let allowed = Allowed { limit: 0.0, block: 0.0, warm_up: 3, confidence: 0.99 };
        let all = groups::series(TEST, &mut Places::new(&record, &mut OfOnePlace));
        assert_eq!(all.len(), 1, "one place");
        let apart = leaks_apart(all, allowed);
        let bytes =
            apart.iter().filter(|series| grows(series, allowed)).map(|series| *series.bytes.last().unwrap());
        (bytes.collect(), apart.len())
    }

    #[test]
    fn a_leak_beneath_a_queue_that_fills_and_is_drained_is_seen() {
        let queue = |p: &mut Process, i| match i {
            0..40 => p.alloc(QUEUE, 500, 1),
            60 => p.free(QUEUE, 500, 40),
            _ => {}
        };
        let leaking = growing(|p, i| {
            queue(p, i);
            p.alloc(LEAK, 24, 1);
        });
        assert_eq!(leaking, (vec![24.0 * 300.0], 2));
        assert_eq!(growing(queue), (vec![], 1));
    }

    /// A ring that another call had filled: it is no larger than before.
    #[test]
    fn what_takes_the_place_of_something_else_does_not_grow() {
        let ring = growing(|p, i| {
            p.alloc(LEAK, 64, 1);
            p.free(if i < 100 { QUEUE } else { LEAK }, 64, 1);
        });
        assert_eq!(ring, (vec![], 1));
        let longer = growing(|p, i| {
            if i % 3 == 0 {
                p.alloc(LEAK, 64, 1);
                p.free(QUEUE, 64, 1);
            }
        });
        assert_eq!(longer, (vec![], 1));
    }

    #[test]
    fn a_place_that_grows_as_a_whole_stays_one_series() {
        let whole = growing(|p, _| {
            p.alloc(QUEUE, 40, 1);
            p.alloc(LEAK, 24, 1);
        });
        assert_eq!(whole.1, 1);
    }
}
