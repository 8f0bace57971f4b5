//! A pool of threads that is filling, and the buffers of its threads.
//!
//! Kotlin's `Dispatchers.IO` starts a thread whenever all others are busy, up to 64, and keeps them. So a test leaves a
//! thread now and then, with the objects of that thread. A thread that each execution leaves is a leak.

use super::series::thread_names;
use crate::record::Window;
use crate::stats::as_f64;

/// Names of the threads of pools that start one whenever all others are busy, and keep it. Others may be a leak: each
/// execution of a test may leave an executor of its own.
const POOLS: [&str; 1] = ["DefaultDispatcher-worker-…"];
/// Most threads of a pool. A larger number is a leak.
const MOST_THREADS: f64 = 64.0;
/// A pool starts threads in fewer executions than this share.
const RARELY: f64 = 0.5;
/// Buffers that replace others add fewer bytes per execution.
const REPLACED_BYTES: f64 = 8.0;

/// May the threads at these ends be those of a pool that is filling? Then all threads that stay have its name, only
/// some executions started threads, and there are no more of them than a pool has.
pub(crate) fn may_fill_a_pool(windows: &[&Window], threads: &[f64], warm_up: usize) -> bool {
    let stay = |counts: &[f64]| counts.last() > counts.get(warm_up);
    let mut staying = thread_names(windows).into_iter().filter(|(_, counts)| stay(counts)).peekable();
    staying.peek().is_some()
        && staying.all(|(name, _)| POOLS.contains(&name.as_str()))
        && is_slow(threads, warm_up)
}

fn is_slow(threads: &[f64], warm_up: usize) -> bool {
    rises_by(threads, warm_up).is_some_and(|more| more <= MOST_THREADS)
}

/// May these bytes be those of larger direct buffers that replaced others? The JDK keeps one for each thread that
/// writes to a channel, as large as its longest text so far. So now and then a few bytes come, but no buffers.
pub(super) fn may_replace_buffers(bytes: &[f64], warm_up: usize) -> bool {
    let executions = as_f64(bytes.len().saturating_sub(warm_up));
    rises_by(bytes, warm_up).is_some_and(|more| more < REPLACED_BYTES * executions)
}

/// By how much a series rises after the warm-up, if only few executions add to it.
fn rises_by(values: &[f64], warm_up: usize) -> Option<f64> {
    let counted = values.get(warm_up..).unwrap_or_default();
    let times = rises(values, warm_up).count();
    let most = counted.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let more = counted.first().map_or(0.0, |first| most - first);
    (times > 0 && as_f64(times) < RARELY * as_f64(counted.len())).then_some(more)
}

/// Does it rise, and only in executions that also start threads?
pub(super) fn rises_with(values: &[f64], threads: &[f64], warm_up: usize) -> bool {
    let mut rises = rises(values, warm_up).peekable();
    let started = |at: usize| matches!(threads.get(at..at + 2), Some([before, now]) if now > before);
    values.len() == threads.len() && rises.peek().is_some() && rises.all(started)
}

/// The number of executions that started threads, and how many threads there are more than after the warm-up.
pub(crate) fn started(threads: &[f64], warm_up: usize) -> (usize, f64) {
    let more = threads.last().zip(threads.get(warm_up)).map_or(0.0, |(last, first)| last - first);
    (rises(threads, warm_up).count(), more)
}

/// Where a series rises after the warm-up: the places of the values before.
fn rises(values: &[f64], warm_up: usize) -> impl Iterator<Item = usize> {
    let pairs = values.windows(2).enumerate().skip(warm_up);
    pairs.filter(|(_, pair)| pair[1] > pair[0]).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads after each of `executions`, if those after a multiple of `every` started `each`.
    fn threads(executions: usize, every: usize, each: f64) -> Vec<f64> {
        (0..executions).map(|i| 6.0 + each * as_f64(i / every)).collect()
    }

    #[test]
    fn a_pool_starts_few_threads_now_and_then() {
        for (threads, expected) in [
            (threads(400, 9, 1.0), true),
            (threads(60, 3, 3.0), true),
            (threads(40, 1, 1.0), false),
            (threads(40, 2, 2.0), true),
            (threads(400, 6, 1.0), false),
            (threads(40, 100, 1.0), false),
            (vec![], false),
        ] {
            assert_eq!(is_slow(&threads, 3), expected, "{threads:?}");
        }
    }

    #[test]
    fn objects_of_threads_come_with_them() {
        let threads = threads(20, 4, 1.0);
        let tasks: Vec<f64> = threads.iter().map(|threads| 3.0 * threads).collect();
        assert!(rises_with(&tasks, &threads, 3));
        let once_alone: Vec<f64> = (0..).zip(&tasks).map(|(i, tasks)| tasks + f64::from(i / 7)).collect();
        assert!(!rises_with(&once_alone, &threads, 3));
        assert!(!rises_with(&[1.0; 20], &threads, 3), "it never rises");
        assert_eq!(started(&threads, 3), (4, 4.0));
    }
}
