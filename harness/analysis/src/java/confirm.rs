//! Decides when a Java test that is repeated alone has run often enough.
//!
//! The limits, and the rule for a leak, are those of native tests. There are two differences. A virtual machine always
//! changes a little, so an early end needs every class to have stopped growing for a while. When something certainly
//! grows, the agent is asked for its holders before the virtual machine ends.
//!
//! A one-time cost is reported only after as many executions without growth as would show the rarest leak of the
//! policy, or after the shortest run.

use std::time::Duration;

use memgate_model::Metric;
use memgate_wire::Outcome;

use super::explain::{GROWING_TIMES, MOST_EXPLAINED};
use super::findings::Findings;
use super::hunt::executions_of_window;
use super::pool::may_fill_a_pool;
use super::series::{histograms, values};
use crate::confirm::Next;
use crate::growth::{Finding, judge_series};
use crate::policy::GatePolicy;
use crate::record::{ProcessRecord, Window};
use crate::repetition::{RepetitionLimits, limited, next_look};

/// Growth counts as over if nothing has grown for this many iterations after the shortest run. Earlier, it takes
/// [`crate::rare::executions_for`] iterations.
const QUIET_ITERATIONS: usize = 6;
/// Fewest iterations for any decision.
const FEWEST_ITERATIONS: usize = 8;
/// Processor time counts in full, so that a test is repeated as often on a busy machine as on an idle one. Time in
/// which the test slept is divided by this, so that the repetition ends.
const PATIENCE: u32 = 5;
/// Most requests for holders. A second one is needed if the first answer was about something else or missed some
/// classes: a request names the classes that grew in each of the last windows, and a class may pause for one window.
const MAX_EXPLAINED: u32 = 2;
/// The answer comes with the second end after the request: it is about objects allocated in one iteration that survived
/// the next.
const WINDOWS_TO_EXPLAIN: u32 = 2;
/// A test that has grown by this much is stopped before the heap is full.
const ENOUGH_BYTES: f64 = (128_u64 << 20) as f64;

/// A test that adds this much in each of its first iterations may run out of memory before its holders are requested.
/// So they are requested at once.
const HURRY_BYTES: f64 = (4_u64 << 20) as f64;
const HURRY_ITERATIONS: usize = 3;

/// Watches the repetitions of one test, or of one test class.
#[derive(Debug)]
pub struct JavaConfirmation {
    test: String,
    limits: Vec<(Metric, f64)>,
    run: RepetitionLimits,
    next_check: usize,
    /// Processor time of the process before the first end.
    cpu_before_ns: Option<u64>,
    /// How long its iterations have worked so far.
    worked: Duration,
    /// Number of requests for holders, and ends left until the answer.
    explained: u32,
    ends_to_answer: u32,
    /// Holders were requested early.
    hurried: bool,
    done: bool,
    leaks: bool,
}

impl JavaConfirmation {
    /// For the test or test class `test` of `suite`.
    #[must_use]
    pub fn new(policy: &GatePolicy, suite: &str, test: &str) -> Self {
        Self {
            test: test.to_owned(),
            limits: limited(policy, suite, test, |metric| metric.is_java() || metric == Metric::OsFds),
            run: RepetitionLimits::of(policy),
            next_check: 0,
            cpu_before_ns: None,
            worked: Duration::ZERO,
            explained: 0,
            ends_to_answer: 0,
            hurried: false,
            done: false,
            leaks: false,
        }
    }

    /// Must be called after each end of the test, including the ends before the holders are reported. `elapsed` is the
    /// time that its iterations took so far. `starved` is the part of it in which threads of the process waited for a
    /// processor that other processes used.
    pub fn observe(&mut self, record: &ProcessRecord, elapsed: Duration, starved: Duration) -> Next {
        if self.done {
            return Next::Stop;
        }
        self.cpu_before_ns = self.cpu_before_ns.or(record.cpu_ns);
        let just_explained = self.ends_to_answer == 1;
        self.ends_to_answer = self.ends_to_answer.saturating_sub(1);
        self.worked = self.worked(record, elapsed, starved);
        let early = self.is_filling(record);
        let next = match early {
            true => Next::Explain,
            false => self.decide(record, self.worked, just_explained),
        };
        self.hurried |= early;
        self.done = next == Next::Stop;
        if next == Next::Explain {
            self.explained += u32::from(!early);
            self.ends_to_answer = WINDOWS_TO_EXPLAIN;
            self.next_check = 0;
        }
        next
    }

    /// Is the heap about to be full? Checked once.
    fn is_filling(&self, record: &ProcessRecord) -> bool {
        let windows = histograms(record, &self.test);
        let grew = |pair: &[f64]| pair[1] - pair[0] > HURRY_BYTES;
        !self.hurried
            && windows.len() == HURRY_ITERATIONS
            && values(&windows, Metric::JavaLiveBytes).windows(2).all(grew)
            && windows.iter().all(|window| window.outcome == Some(Outcome::Passed))
    }

    fn worked(&self, record: &ProcessRecord, elapsed: Duration, starved: Duration) -> Duration {
        let cpu = record.cpu_ns.zip(self.cpu_before_ns).map(|(now, before)| now.saturating_sub(before));
        let slept = elapsed.saturating_sub(starved) / PATIENCE;
        cpu.map_or(elapsed, |cpu| elapsed.min(Duration::from_nanos(cpu)).max(slept))
    }

    fn decide(&mut self, record: &ProcessRecord, elapsed: Duration, just_explained: bool) -> Next {
        let failed = |w: &Window| w.outcome.is_some_and(|o| o != Outcome::Passed);
        if record.damaged.is_some() || record.windows_of(&self.test).any(failed) {
            return Next::Stop;
        }
        if self.ends_to_answer > 0 {
            return Next::Continue;
        }
        let ends = histograms(record, &self.test).len();
        if ends < FEWEST_ITERATIONS.min(self.run.fewest) || ends < self.next_check {
            return Next::Continue;
        }
        self.next_check = next_look(ends);
        let findings = Findings::of(record, &self.test, self.run.warm_up, self.run.confidence);
        let counters = self.counters(record, &findings);
        self.leaks = !findings.growing.is_empty() || counters.contains(&Finding::Grows);
        let may_be_full_soon = findings.filling && elapsed < self.run.patience();
        if just_explained && self.leaks && !may_be_full_soon {
            let is_whole = !findings.unexplained || findings.growing.len() > MOST_EXPLAINED;
            if is_whole || self.explained >= MAX_EXPLAINED {
                return Next::Stop;
            }
            self.next_check = ends + GROWING_TIMES as usize;
            return Next::Continue;
        }
        if just_explained && findings.unasked && self.explained < MAX_EXPLAINED {
            self.next_check = ends + GROWING_TIMES as usize;
            return Next::Continue;
        }
        // Its holders may have shown that the growth is no leak, or it has settled meanwhile.
        if !self.enough(&findings, &counters, elapsed) {
            return Next::Continue;
        }
        let unexplained = !just_explained && self.explained < MAX_EXPLAINED;
        let may_leak = self.leaks || !findings.open.is_empty() || findings.unasked;
        if unexplained && may_leak { Next::Explain } else { Next::Stop }
    }

    /// May it end for lack of time, after `next`? Only if it ran as often and as long as required, and no leak is about
    /// to be explained.
    #[must_use]
    pub fn may_give_way(&self, record: &ProcessRecord, next: Next) -> bool {
        let explains = self.ends_to_answer > 0 && (self.leaks || next != Next::Explain);
        let ran_its_least =
            || self.worked >= self.run.min_run && histograms(record, &self.test).len() >= self.run.fewest;
        !explains && ran_its_least()
    }

    /// What replaces `next` when no time is left: a test that leaks runs on until its holders are known, because its
    /// leaks have other ids without them. This is requested once.
    pub fn out_of_time(&mut self, next: Next) -> Next {
        if self.done || !self.leaks || self.explained > 1 {
            return Next::Stop;
        }
        if self.ends_to_answer > 0 {
            return next;
        }
        if self.explained > 0 {
            return Next::Stop;
        }
        self.explained = 1;
        self.ends_to_answer = WINDOWS_TO_EXPLAIN;
        Next::Explain
    }

    /// Was it still growing when it was stopped?
    #[must_use]
    pub fn leaks(&self) -> bool {
        self.leaks
    }

    fn enough(&self, findings: &Findings, counters: &[Finding], elapsed: Duration) -> bool {
        let ends = findings.ends;
        if ends >= self.run.cap {
            return true;
        }
        let still = counters.iter().all(|finding| *finding == Finding::Still);
        let settled = findings.growing.is_empty() && findings.open.is_empty();
        let quiet = if elapsed < self.run.min_run { self.run.unchanged } else { QUIET_ITERATIONS };
        if still && settled && findings.quiet >= quiet && ends >= self.run.fewest {
            return true;
        }
        if ends >= self.run.fewest && findings.grown_bytes > ENOUGH_BYTES {
            return true;
        }
        if ends < self.run.fewest || elapsed < self.run.min_run {
            return false;
        }
        if (findings.paused || findings.irregular || findings.filling) && elapsed < self.run.patience() {
            return false;
        }
        if findings.noted && !counters.contains(&Finding::Grows) {
            return false;
        }
        // If something certainly leaks, the other classes need not be decided.
        let objects = findings.open.is_empty() || !findings.growing.is_empty();
        let decided = objects && counters.iter().all(|finding| *finding != Finding::Open);
        decided || ends >= self.run.most
    }

    /// Findings for threads, buffers and other counters with a limit.
    fn counters(&self, record: &ProcessRecord, findings: &Findings) -> Vec<Finding> {
        let windows = histograms(record, &self.test);
        let counted = self
            .limits
            .iter()
            .filter(|(metric, _)| !matches!(metric, Metric::JavaLiveBytes | Metric::JavaLiveObjects));
        let judged = counted.filter_map(|&(metric, limit)| {
            let values = values(&windows, metric);
            // A window of a hunt has many executions.
            let limit = limit * executions_of_window(&windows);
            let allowed = self.run.allowed(limit, 1.0);
            let may_be_over = match metric {
                Metric::JavaThreads => may_fill_a_pool(&windows, &values, self.run.warm_up),
                Metric::JavaDirectBytes => findings.may_replace_buffers(&values, self.run.warm_up),
                _ => false,
            };
            (!values.is_empty()).then(|| match judge_series(&values, allowed).finding {
                Finding::Grows if may_be_over => Finding::Open,
                finding => finding,
            })
        });
        judged.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::java::dsl::Jvm;
    use crate::observer::Observer;

    /// The first request other than to continue, and after how many iterations of this length. If it is for holders,
    /// the test certainly grows.
    fn asks(iteration_ms: u64, body: impl Fn(&mut Jvm, u32)) -> (Next, usize) {
        let (next, iterations, leaks) = asks_unsure(iteration_ms, body);
        assert_eq!(leaks, next == Next::Explain);
        (next, iterations)
    }

    /// The same, and whether the test certainly grows.
    fn asks_unsure(iteration_ms: u64, body: impl Fn(&mut Jvm, u32)) -> (Next, usize, bool) {
        let mut jvm = Jvm::new();
        let mut observer = Observer::new();
        let mut confirmation = JavaConfirmation::new(&GatePolicy::default(), "loaders", "A.a");
        for i in 0..3000 {
            jvm.window("A", "a", i, |jvm| body(jvm, i));
            jvm.pass_to(&mut observer);
            let elapsed = Duration::from_millis(iteration_ms * u64::from(i + 1));
            let next = confirmation.observe(observer.record(), elapsed, Duration::ZERO);
            if next != Next::Continue {
                let leaks = confirmation.leaks();
                let mut again = || confirmation.observe(observer.record(), elapsed, Duration::ZERO);
                // The answer comes with the second end.
                assert_eq!(again(), if next == Next::Explain { Next::Continue } else { Next::Stop });
                if leaks || next == Next::Stop {
                    assert_eq!(again(), Next::Stop);
                }
                return (next, i as usize + 1, leaks);
            }
        }
        panic!("never stops")
    }

    #[test]
    fn what_comes_to_rest_is_told_quickly() {
        // Two seconds, or so many iterations that a leak in one of twenty would have shown.
        assert_eq!(asks(100, |_, _| ()), (Next::Stop, 20));
        assert_eq!(asks(1, |_, _| ()), (Next::Stop, 91));
        assert_eq!(asks(3000, |_, _| ()), (Next::Stop, 13));
        assert_eq!(
            asks(100, |jvm, i| if i < 2 {
                jvm.tiles(12)
            }),
            (Next::Stop, 20)
        );
        let (next, iterations) = asks(100, |jvm, i| {
            if i < 7 {
                jvm.tiles(1)
            }
        });
        assert_eq!(next, Next::Stop);
        assert!(iterations <= 24, "{iterations}");
        assert_eq!(asks(1, |jvm, i| jvm.tiles(u64::from(i % 20 == 13))).0, Next::Explain, "in one of twenty");
    }

    #[test]
    fn a_leak_takes_ten_iterations_and_two_seconds_and_is_explained_once() {
        let (next, iterations) = asks(100, |jvm, _| jvm.tiles(12));
        assert_eq!(next, Next::Explain);
        assert!((20..=23).contains(&iterations), "{iterations}");
        assert_eq!(asks(1000, |jvm, _| jvm.tiles(12)).1, 13);
        assert_eq!(asks(100, |jvm, i| jvm.threads.push(format!("w{i}"))).0, Next::Explain);
        assert_eq!(
            asks(100, |jvm, i| if i % 3 == 0 {
                jvm.tiles(1)
            })
            .0,
            Next::Explain
        );
    }

    /// The caches of Guava and Hibernate empty their queue of reads after 64 and 48 reads.
    #[test]
    fn a_queue_that_a_cache_empties_is_no_leak_and_one_that_grows_on_is() {
        let queue = |emptied_after: u32| {
            asks(100, move |jvm, i| {
                let nodes = u64::from(i % emptied_after);
                jvm.set("java.util.concurrent.ConcurrentLinkedQueue$Node", 10 + nodes, 24 * (10 + nodes));
            })
        };
        for emptied_after in [48, 64] {
            assert_eq!(queue(emptied_after).0, Next::Stop, "{emptied_after}");
        }
        let (next, iterations) = queue(1000);
        assert_eq!(next, Next::Explain);
        assert!((72..90).contains(&iterations), "{iterations}");
        let (next, iterations) = asks(100, |jvm, i| {
            jvm.add("java.util.concurrent.ConcurrentLinkedQueue$Node", 1, 24);
            jvm.add("com.example.Tile", u64::from(i > 0), 24);
        });
        assert_eq!(next, Next::Explain);
        assert!(iterations <= 23, "what is in the queue grows, too: {iterations}");
    }

    /// Recorded with Tomcat and the JDK's HTTP client: 16 B came one by one in 45 executions, and no more later.
    #[test]
    fn direct_buffers_that_larger_ones_replace_are_watched_until_no_more_bytes_come() {
        let few = |jvm: &mut Jvm, i: u32| jvm.direct_bytes += u64::from(i < 45 && i.is_multiple_of(3));
        assert_eq!(asks(100, few).0, Next::Stop);
        for (what, leaks) in [("each execution", 1), ("many bytes", 48)] {
            let (next, _) =
                asks(100, |jvm, i| jvm.direct_bytes += leaks * u64::from(leaks == 1 || i.is_multiple_of(3)));
            assert_eq!(next, Next::Explain, "{what}");
        }
    }

    /// When time is short for waiting tests, a test that has begun is not stopped a few executions before its end.
    #[test]
    fn it_gives_way_when_it_ran_its_least_and_nothing_is_about_to_be_explained() {
        let mut jvm = Jvm::new();
        let mut observer = Observer::new();
        let mut confirmation = JavaConfirmation::new(&GatePolicy::default(), "loaders", "A.a");
        let mut said = Vec::new();
        for i in 0..30 {
            jvm.window("A", "a", i, |jvm| jvm.tiles(1));
            jvm.pass_to(&mut observer);
            let elapsed = Duration::from_millis(100 * u64::from(i + 1));
            let next = confirmation.observe(observer.record(), elapsed, Duration::ZERO);
            said.push((next, confirmation.may_give_way(observer.record(), next)));
        }
        let asked = said.iter().position(|(next, _)| *next == Next::Explain).expect("it leaks");
        assert!(said[asked..asked + 2].iter().all(|(_, may)| !may), "its holders are about to be known");
        assert!(said[..19].iter().all(|(_, may)| !may), "less than two seconds");
        assert!(said.iter().any(|(_, may)| *may), "{said:?}");
    }

    #[test]
    fn without_time_a_test_that_leaks_runs_on_for_its_holders_and_another_one_ends() {
        let after = |iterations: u32, tiles: fn(u32) -> u64| {
            let mut jvm = Jvm::new();
            let mut observer = Observer::new();
            let mut confirmation = JavaConfirmation::new(&GatePolicy::default(), "loaders", "A.a");
            let mut said = Vec::new();
            for i in 0..iterations + 9 {
                jvm.window("A", "a", i, |jvm| jvm.tiles(tiles(i)));
                jvm.pass_to(&mut observer);
                let next =
                    confirmation.observe(observer.record(), Duration::from_millis(i.into()), Duration::ZERO);
                if i < iterations {
                    assert_eq!(next, Next::Continue);
                    continue;
                }
                said.push(confirmation.out_of_time(next));
                if said.last() == Some(&Next::Stop) {
                    break;
                }
            }
            said
        };
        assert_eq!(after(15, |_| 12), [Next::Explain, Next::Continue, Next::Stop]);
        assert_eq!(after(15, |_| 0), [Next::Stop]);
        assert_eq!(after(2, |_| 12), [Next::Stop], "too few executions to tell");
    }

    /// The virtual machine loads a class when its compiler reaches it, for example after 15, 26 and 34 iterations.
    #[test]
    fn three_steps_are_no_leak() {
        let late = [14, 25, 33];
        let mut jvm = Jvm::new();
        for i in 0..37 {
            jvm.window("A", "a", i, |jvm| jvm.add("java.lang.Class", u64::from(late.contains(&i)), 128));
        }
        let findings = Findings::of(&jvm.end(), "A.a", 3, 0.99);
        assert!(findings.growing.is_empty(), "{findings:?}");
        assert_eq!(findings.open, ["java.lang.Class"]);
        assert_eq!(asks(200, |jvm, i| jvm.tiles(u64::from(i % 5 == 0))).0, Next::Explain);
    }

    /// Recorded with JDK 25. The compiler reached methods that are called once per execution and made two classes of
    /// arrays; no class was loaded. The number of executions that follow depends on the load of the machine. Holders
    /// are not requested: that alone would make one more for a while.
    #[test]
    fn a_late_step_of_the_machine_is_watched_until_it_is_known_to_be_all() {
        for late in [48, 54, 60, 66] {
            let (next, iterations) = asks(20, |jvm, i| {
                if i < 8 {
                    jvm.add("byte[]", 5, 112);
                }
                jvm.add("java.lang.Class", if i == late { 2 } else { 0 }, 120);
            });
            assert_eq!(next, Next::Stop, "{late}");
            assert!(iterations < 300, "{late}: {iterations}");
        }
        // Growth that continues is explained, and no later than other rare growth.
        let loader = |jvm: &mut Jvm, i: u32| {
            let loads = u64::from(i % 30 == 24);
            jvm.add("java.lang.Class", loads, 120);
            jvm.add("com.example.Loader", loads, 80);
        };
        let (next, iterations) = asks(20, loader);
        assert_eq!(next, Next::Explain);
        assert!(iterations < 340, "{iterations}");
    }

    /// How many iterations of 20 ms it takes to judge a map that gets an entry in each of so many, and whether it
    /// leaks.
    fn map_with(entries: u32, field: &str, entry: &str) -> (usize, bool) {
        let mut jvm = Jvm::new();
        let mut observer = Observer::new();
        let mut confirmation = JavaConfirmation::new(&GatePolicy::default(), "loaders", "A.a");
        let mut asked = false;
        for i in 0..3000 {
            jvm.window("A", "a", i, |jvm| {
                jvm.add(entry, u64::from(i < entries), 40);
                if asked {
                    let map = "static com.example.App.map -> com.example.Lru";
                    jvm.held(entry, &[(1, &[map, &format!("field {field} -> {entry}")])]);
                }
            });
            jvm.pass_to(&mut observer);
            let elapsed = Duration::from_millis(20 * u64::from(i + 1));
            match confirmation.observe(observer.record(), elapsed, Duration::ZERO) {
                Next::Stop => return (i as usize + 1, confirmation.leaks()),
                next => asked |= next == Next::Explain,
            }
        }
        panic!("never stops")
    }

    #[test]
    fn a_map_that_may_have_a_limit_is_watched_longer() {
        const ENTRY: &str = "java.util.LinkedHashMap$Entry";
        let (iterations, leaks) = map_with(u32::MAX, "java.util.LinkedHashMap.tail", ENTRY);
        assert!(leaks && iterations < 150, "{iterations}");
        let guava = [
            "com.google.common.cache.LocalCache$Segment.table",
            "com.google.common.cache.LocalCache$StrongAccessEntry",
        ];
        for [field, entry] in [["com.example.Lru#java.util.LinkedHashMap.tail", ENTRY], guava] {
            let (iterations, leaks) = map_with(u32::MAX, field, entry);
            assert!(leaks && (300..400).contains(&iterations), "{field}: {iterations}");
            let (iterations, leaks) = map_with(120, field, entry);
            assert!(!leaks && iterations < 400, "{field}: {iterations}");
        }
    }

    #[test]
    fn a_bounded_cache_is_watched_until_it_is_full() {
        let (next, iterations) = asks(100, |jvm, i| {
            if i < 14 {
                jvm.add("com.example.Tile", 5, 24)
            }
        });
        assert_eq!(next, Next::Stop);
        assert!((24..60).contains(&iterations), "{iterations}");
    }

    /// Objects that grew for a while are freed while their holders are searched. The test continues and settles.
    #[test]
    fn growth_that_is_over_when_it_is_explained_is_no_leak() {
        let mut jvm = Jvm::new();
        let mut observer = Observer::new();
        let mut confirmation = JavaConfirmation::new(&GatePolicy::default(), "loaders", "A.a");
        let mut asked = None;
        for i in 0..200 {
            jvm.window("A", "a", i, |jvm| match asked {
                None => jvm.add("java.util.logging.Ref", 2, 48),
                Some(when) if when + WINDOWS_TO_EXPLAIN == i => {
                    jvm.remove("java.util.logging.Ref", u64::from(2 * (when + 1)), 48)
                }
                Some(_) => (),
            });
            jvm.pass_to(&mut observer);
            let elapsed = Duration::from_millis(200 * u64::from(i + 1));
            match confirmation.observe(observer.record(), elapsed, Duration::ZERO) {
                Next::Explain => asked = Some(i),
                Next::Stop => break,
                Next::Continue => (),
            }
        }
        assert!(asked.is_some() && confirmation.done && !confirmation.leaks());
    }

    /// The first execution makes thousands of strings that the second one frees. The class grows although it is still
    /// below the first end.
    #[test]
    fn a_leak_below_what_the_first_execution_left_is_no_rest() {
        let (next, iterations) = asks(100, |jvm, i| match i {
            0 => jvm.add("byte[]", 10_000, 64),
            1 => jvm.remove("byte[]", 9_000, 64),
            _ => jvm.add("byte[]", 5, 160),
        });
        assert_eq!(next, Next::Explain);
        assert!(iterations > 12, "{iterations}");
    }

    /// One more array each time, among those that the virtual machine makes irregularly.
    #[test]
    fn irregular_arrays_are_asked_for_before_they_are_called_noise() {
        let noise = [9, 0, 7, 1, 12, 0, 3, 8, 0, 5];
        let (next, _, leaks) = asks_unsure(100, |jvm, i| jvm.add("byte[]", 1 + noise[i as usize % 10], 100));
        assert_eq!((next, leaks), (Next::Explain, false));
    }

    #[test]
    fn a_test_that_fails_alone_is_not_repeated() {
        let mut jvm = Jvm::new();
        jvm.outcome = Outcome::Failed;
        jvm.window("A", "a", 0, |_| ());
        let mut confirmation = JavaConfirmation::new(&GatePolicy::default(), "loaders", "A.a");
        assert_eq!(confirmation.observe(&jvm.cut(), Duration::ZERO, Duration::ZERO), Next::Stop);
        assert!(!confirmation.leaks());
    }

    /// A request names classes that grew in each of the last windows. A class that paused once is not among them.
    #[test]
    fn a_class_that_was_left_out_is_asked_for_once_more() {
        let mut jvm = Jvm::new();
        let mut observer = Observer::new();
        let mut confirmation = JavaConfirmation::new(&GatePolicy::default(), "loaders", "A.a");
        let (mut asked, mut last) = (Vec::new(), Next::Continue);
        for i in 0..200 {
            jvm.window("A", "a", i, |jvm| {
                jvm.add("com.example.Page", 1, 24);
                jvm.add("com.example.Tile", 2, 24);
                if asked.last().is_some_and(|when| when + WINDOWS_TO_EXPLAIN == i) {
                    jvm.held(
                        "com.example.Tile",
                        &[(2, &["static com.example.Registry.all -> com.example.Tile"])],
                    );
                }
            });
            jvm.pass_to(&mut observer);
            let elapsed = Duration::from_millis(100 * u64::from(i + 1));
            last = confirmation.observe(observer.record(), elapsed, Duration::ZERO);
            match last {
                Next::Explain => asked.push(i),
                Next::Stop => break,
                Next::Continue => (),
            }
        }
        let [first, second] = asked[..] else { panic!("{asked:?}") };
        assert!(
            second > first + WINDOWS_TO_EXPLAIN + 2,
            "the windows between are what is chosen by: {asked:?}"
        );
        assert!(last == Next::Stop && confirmation.leaks());
    }

    #[test]
    fn a_busy_machine_changes_nothing_and_a_test_that_sleeps_is_not_repeated_for_ever() {
        let mut confirmation = JavaConfirmation::new(&GatePolicy::default(), "loaders", "A.a");
        confirmation.cpu_before_ns = Some(1_000_000_000);
        let record = ProcessRecord { cpu_ns: Some(1_500_000_000), ..ProcessRecord::default() };
        for (elapsed, starved, worked) in
            [(1000, 0, 500), (10_000, 0, 2000), (10_000, 9000, 500), (10_000, 30_000, 500), (300, 0, 300)]
        {
            let [elapsed, starved, worked] = [elapsed, starved, worked].map(Duration::from_millis);
            assert_eq!(
                confirmation.worked(&record, elapsed, starved),
                worked,
                "{elapsed:?}, {starved:?} without"
            );
        }
    }
}
