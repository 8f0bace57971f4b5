//! Repeats a test class that is no suspect: does anything grow, however rarely?
//!
//! Each window has many executions, so a rare leak shows in some windows. Another run confirms what rose. Its windows
//! have so many executions that the leak grows in each of them ([`Rare::window`]). That run is checked against the
//! thresholds and explained.

use std::time::Duration;

use memgate_model::{Area, Kind, Metric, Per, Unit, format_amount, format_count, format_number_of};
use memgate_wire::Outcome;

use super::names::{is_literal, is_own};
use super::one_class::LITERAL_BYTES;
use super::out_of_memory::ran_out_of_memory;
use super::series::{ClassSeries, grown, histograms, values};
use super::shape::{FEW_STEPS, has_stalled, is_regular};
use crate::confirm::{HUNTED_EXECUTIONS, HuntTime, Next};
use crate::growth::{Allowed, Finding, judge_exact, judge_series, last_rise, steps};
use crate::policy::{GatePolicy, smallest_limit};
use crate::record::{ProcessRecord, Window};
use crate::stats::as_f64;

/// Fewest windows for any result.
const LEAST_WINDOWS: usize = 8;
/// Fewest windows for a certain leak.
const WINDOWS_OF_GROWTH: usize = 13;
/// A random event that happens once in `k` executions is missing in `CERTAIN * k` executions with a probability of 5 %.
const CERTAIN: f64 = 3.0;
/// Most rising classes to name.
const NAMED: usize = 3;

/// Watches the repetitions of one test class.
#[derive(Debug)]
pub struct JavaHunt {
    suite: String,
    test: String,
    policy: GatePolicy,
    time: HuntTime,
    next_check: usize,
}

/// Result of a hunt for one test class.
#[derive(Debug, Clone, PartialEq)]
pub struct JavaHunted {
    /// Executions.
    pub executions: u64,
    /// Duration of one execution, and pause between two windows.
    pub execution: Duration,
    /// See [`Self::execution`].
    pub pause: Duration,
    /// The class or counter that may grow; `None`: nothing grows.
    pub rare: Option<Rare>,
}

/// Something that rose in some windows.
#[derive(Debug, Clone, PartialEq)]
pub struct Rare {
    /// Description: `3 × com.example.Chunk`.
    pub what: String,
    /// Executions per window so that it rises in every window, or with a probability of 95 %.
    pub window: u32,
}

struct Risen {
    what: String,
    bytes: f64,
    steps: usize,
    sure: bool,
}

impl JavaHunt {
    /// Hunts for leaks in a test class of `suite`.
    #[must_use]
    pub fn new(policy: &GatePolicy, suite: &str, test: &str, time: HuntTime) -> Self {
        let policy = policy.clone();
        Self { suite: suite.to_owned(), test: test.to_owned(), policy, time, next_check: 0 }
    }

    /// Must be called after each window. `elapsed` is the time since the virtual machine was started.
    pub fn observe(&mut self, record: &ProcessRecord, elapsed: Duration) -> Next {
        let ended = |w: &Window| w.outcome.is_some_and(|outcome| outcome != Outcome::Passed);
        if record.damaged.is_some() || elapsed >= self.time.most || record.windows_of(&self.test).any(ended) {
            return Next::Stop;
        }
        let ends = histograms(record, &self.test).len();
        if ends < LEAST_WINDOWS || ends < self.next_check {
            return Next::Continue;
        }
        self.next_check = ends + (ends / 8).max(1);
        let risen = risen(record, &self.suite, &self.test, &self.policy);
        let sure = ends >= WINDOWS_OF_GROWTH && risen.iter().any(|risen| risen.sure);
        let executions = as_f64(ends) * executions_of_window(&histograms(record, &self.test));
        let over = elapsed >= self.time.share || executions >= as_f64(HUNTED_EXECUTIONS);
        if sure || over && risen.is_empty() { Next::Stop } else { Next::Continue }
    }
}

/// Final result from the windows of `test`.
///
/// # Errors
/// Why there is no result.
pub fn java_hunted(
    record: &ProcessRecord,
    suite: &str,
    test: &str,
    policy: &GatePolicy,
) -> Result<JavaHunted, String> {
    if let Some(why) = crate::measured::unmeasured(record, None).or_else(|| record.damaged.clone()) {
        return Err(why);
    }
    let windows = histograms(record, test);
    let ended = |outcome| windows.iter().any(|window| window.outcome == Some(outcome));
    let ran_out = ran_out_of_memory(record, test);
    if ended(Outcome::Failed) && !ran_out {
        return Err("it fails when it is repeated".to_owned());
    }
    if ended(Outcome::Skipped) {
        return Err("it is skipped when it is repeated".to_owned());
    }
    if windows.len() < LEAST_WINDOWS && !ran_out {
        return Err(format!("only {} in its time", format_number_of(windows.len(), "window")));
    }
    let batch = executions_of_window(&windows);
    let executions = as_f64(windows.len()) * batch;
    let mut risen = risen(record, suite, test, policy);
    risen.sort_by(|a, b| b.sure.cmp(&a.sure).then(b.bytes.total_cmp(&a.bytes)));
    let rare = risen.first().map(|first| {
        let what: Vec<&str> = risen.iter().take(NAMED).map(|risen| risen.what.as_str()).collect();
        let counted = windows.len().saturating_sub(warm_up(policy, windows.len()) + 1);
        let every =
            if first.steps >= counted { 1.0 } else { CERTAIN * as_f64(counted) / as_f64(first.steps) };
        Rare { what: what.join(", "), window: whole(every * batch) }
    });
    let median = |mut times: Vec<u64>| {
        times.sort_unstable();
        Duration::from_nanos(times.get(times.len() / 2).copied().unwrap_or_default())
    };
    let took = median(windows.iter().map(|w| w.end_ns.saturating_sub(w.start_ns)).collect());
    let pause = median(windows.windows(2).map(|w| w[1].start_ns.saturating_sub(w[0].end_ns)).collect());
    Ok(JavaHunted { executions: u64::from(whole(executions)), execution: took.div_f64(batch), pause, rare })
}

fn warm_up(policy: &GatePolicy, windows: usize) -> usize {
    (policy.warm_up as usize).min(windows / 3)
}

/// Executions per window. The iteration numbers of these windows count executions.
pub(crate) fn executions_of_window(windows: &[&Window]) -> f64 {
    let (Some(first), Some(last)) = (windows.first(), windows.last()) else { return 1.0 };
    let between = f64::from(last.iteration.saturating_sub(first.iteration));
    (between / as_f64((windows.len() - 1).max(1))).max(1.0)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn whole(value: f64) -> u32 {
    (value.round() as u32).max(1)
}

/// Everything that rose and has not settled.
fn risen(record: &ProcessRecord, suite: &str, test: &str, policy: &GatePolicy) -> Vec<Risen> {
    let windows = histograms(record, test);
    let warm_up = warm_up(policy, windows.len());
    let allowed = Allowed { limit: 0.0, block: 0.0, warm_up, confidence: policy.confidence };
    let mut all: Vec<Risen> =
        grown(record, test, warm_up).iter().filter_map(|series| class(series, allowed)).collect();
    let batch = executions_of_window(&windows);
    all.extend(Metric::of(Area::Java, &[Kind::Held]).filter_map(|metric| {
        let limit = smallest_limit(policy, suite, test, metric, Per::Iteration)? * batch;
        let values = values(&windows, metric);
        let steps = steps(&values, warm_up);
        let grows = values.len() == windows.len()
            && judge_series(&values, Allowed { limit, block: 1.0, ..allowed }).finding == Finding::Grows;
        let by = last_rise(&values, warm_up).by;
        let bytes = if metric.unit() == Unit::Bytes { by } else { 0.0 };
        (grows && steps >= FEW_STEPS).then(|| Risen {
            what: format_amount(metric, by),
            bytes,
            steps,
            sure: true,
        })
    }));
    all
}

/// A class that keeps rising. A class of the JDK must have risen several times, because the JDK's own caches fill late.
fn class(series: &ClassSeries, allowed: Allowed) -> Option<Risen> {
    let warm_up = allowed.warm_up;
    let bytes = last_rise(&series.bytes, warm_up).by;
    [&series.instances, &series.bytes].into_iter().find_map(|figures| {
        let steps = steps(figures, warm_up);
        if steps == 0 || has_stalled(figures, warm_up) {
            return None;
        }
        let exactly = judge_exact(figures, allowed);
        let grows = judge_series(figures, allowed).finding == Finding::Grows;
        let sure = grows && steps >= FEW_STEPS;
        let counts = if is_literal(&series.class) {
            sure && (is_regular(figures, exactly.slope.slope, warm_up)
                || bytes / as_f64(steps) >= LITERAL_BYTES)
        } else {
            sure || is_own(&series.class) && exactly.finding != Finding::Still
        };
        let count = last_rise(&series.instances, warm_up).by;
        let what = if count > 0.0 {
            format!("{} × {}", format_count(count), series.class)
        } else {
            format!("growing {}", series.class)
        };
        counts.then_some(Risen { what, bytes, steps, sure })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::java::dsl::Jvm;
    use crate::observer::Observer;

    const TIME: HuntTime = HuntTime { share: Duration::from_secs(5), most: Duration::from_secs(15) };

    /// Windows of 50 executions that take 100 ms each, until the hunt ends.
    fn hunt(body: impl Fn(&mut Jvm, u32)) -> (usize, Result<JavaHunted, String>) {
        let (mut jvm, mut observer, policy) = (Jvm::new(), Observer::new(), GatePolicy::default());
        let mut hunt = JavaHunt::new(&policy, "loaders", "A", TIME);
        for i in 0..1000 {
            jvm.window("A", "", 50 * i, |jvm| (50 * i..50 * (i + 1)).for_each(|n| body(jvm, n)));
            jvm.pass_to(&mut observer);
            let elapsed = Duration::from_millis(100 * u64::from(i + 1));
            if hunt.observe(observer.record(), elapsed) == Next::Stop {
                return (i as usize + 1, java_hunted(observer.record(), "loaders", "A", &policy));
            }
        }
        panic!("never stops")
    }

    #[test]
    fn what_comes_now_and_then_is_seen_with_how_often() {
        let add = |class: &'static str, size, every: u32| {
            move |jvm: &mut Jvm, n: u32| jvm.add(class, u64::from(n % every == every - 1), size)
        };
        for (class, size, every, window) in [
            ("com.example.Tile", 24, 7, 50..51),
            ("com.example.Chunk", 24, 250, 550..900),
            ("byte[]", 65_536, 250, 550..900),
        ] {
            let (windows, hunted) = hunt(add(class, size, every));
            let rare = hunted.unwrap().rare.unwrap_or_else(|| panic!("{class}"));
            assert!(windows < 60 && rare.what.ends_with(class), "{windows} {rare:?}");
            assert!(window.contains(&rare.window), "{class}: {}", rare.window);
        }
        // Once in 2400: it is seen three times and watched for as long as allowed.
        let (windows, hunted) = hunt(add("com.example.Chunk", 24, 2400));
        assert_eq!(
            (windows, hunted.unwrap().rare.map(|rare| rare.what)),
            (150, Some("3 × com.example.Chunk".to_owned()))
        );
    }

    #[test]
    fn what_is_still_takes_its_share_and_no_more() {
        let (windows, hunted) = hunt(|jvm, n| {
            if n < 300 {
                jvm.add("com.example.Tile", 1, 24);
            }
            if n == 2000 || n == 3700 {
                jvm.add("java.lang.Class", 1, 104);
            }
        });
        let hunted = hunted.unwrap();
        assert_eq!(hunted.rare, None);
        assert!((50..60).contains(&windows), "{windows}");
        assert_eq!(hunted.executions, 50 * windows as u64);
    }
}
