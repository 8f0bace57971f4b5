//! The screen of a JVM suite: rounds of all its test classes in one virtual machine, compared with one another.
//!
//! A first execution always grows (classes, literals, reflection data), so nothing is concluded from one. A window is a
//! suspect when the same class grows in it in each of the last three rounds, by more than is allowed, and when there is
//! more of it at this window's end than a round before: what the rest of the round gives back is no growth.

use std::collections::{BTreeMap, BTreeSet};

use memgate_model::{Metric, Per};
use memgate_wire::Outcome;

use super::names::is_filler;
use super::series::{Count, Heap, values};
use crate::groups::float;
use crate::policy::{GatePolicy, smallest_limit};
use crate::record::{ProcessRecord, Window};
use crate::screen::described;
use crate::text;

/// Rounds that must agree.
const AGREEING: usize = 3;
/// Classes a suspect names in words.
const NAMED: usize = 3;

/// A test class to look at alone.
#[derive(Debug, Clone, PartialEq)]
pub struct JavaSuspect {
    /// The test class.
    pub suite: String,
    /// Classes that grow in it, the most bytes first; empty where only threads, buffers and the like do.
    pub classes: Vec<String>,
    /// What grew, in words: `12 × com.example.Tile, 24 × byte[]`.
    pub why: String,
}

/// Suspects of the launcher's rounds, in the order they ran. `suite` is the name thresholds know.
///
/// # Errors
/// When the rounds tell nothing; a fragment that fits after "the rounds were not measured: ".
pub fn screen_rounds(
    record: &ProcessRecord,
    suite: &str,
    policy: &GatePolicy,
) -> Result<Vec<JavaSuspect>, String> {
    let rounds = Rounds::of(record)?;
    let grown = rounds.grown();
    let suspect = |window: &str| {
        let own: Vec<_> = grown.get(window).into_iter().flatten().collect();
        let mut why = objects(&own, suite, window, policy);
        why.extend(rounds.counters(window, suite, policy));
        let classes = own.iter().map(|g| g.class.clone()).collect();
        (!why.is_empty()).then(|| JavaSuspect { suite: window.to_owned(), classes, why: why.join(", ") })
    };
    let judged = rounds.order.iter().filter(|window| !rounds.failing.contains(**window));
    Ok(judged.filter_map(|window| suspect(window)).collect())
}

/// Test classes that fail in the rounds: nothing is known of what they leave.
pub(crate) fn failing(record: &ProcessRecord) -> BTreeSet<&str> {
    let failed = |w: &&Window| w.outcome == Some(Outcome::Failed);
    record.windows.iter().filter(failed).map(|w| w.suite.as_str()).collect()
}

/// A class that grows in one window.
struct Grown {
    class: String,
    /// Of each of the rounds that must agree.
    deltas: [Delta; AGREEING],
}

#[derive(Debug, Clone, Copy, Default)]
struct Delta {
    instances: f64,
    bytes: f64,
}

/// The windows of whole test classes, round by round.
struct Rounds<'a> {
    record: &'a ProcessRecord,
    /// Test classes in the order they ran.
    order: Vec<&'a str>,
    failing: BTreeSet<&'a str>,
    /// The last rounds, and the one before them.
    last: Vec<u32>,
}

impl<'a> Rounds<'a> {
    fn of(record: &'a ProcessRecord) -> Result<Self, String> {
        if let Some(why) = crate::judge::unmeasured(record, None) {
            return Err(why);
        }
        if let Some(damage) = &record.damaged {
            return Err(format!("their recording is damaged: {damage}"));
        }
        let ends: Vec<&Window> = record.windows.iter().filter(|w| is_end(w)).collect();
        let mut rounds: Vec<u32> = ends.iter().map(|w| w.iteration).collect();
        rounds.sort_unstable();
        rounds.dedup();
        let Some(last) = rounds.len().checked_sub(AGREEING + 1).and_then(|at| rounds.get(at..)) else {
            return Err(format!("{} rounds with class histograms, at least 4 are needed", rounds.len()));
        };
        let mut seen = BTreeSet::new();
        let order: Vec<&str> = ends.iter().map(|w| w.suite.as_str()).filter(|s| seen.insert(*s)).collect();
        for round in last {
            let in_it = |w: &&&Window| w.iteration == *round;
            let ran: BTreeSet<&str> = ends.iter().filter(in_it).map(|w| w.suite.as_str()).collect();
            if let Some(missing) = order.iter().find(|suite| !ran.contains(**suite)) {
                return Err(format!("round {} has no end of {missing}", round.saturating_add(1)));
            }
        }
        Ok(Self { record, order, failing: failing(record), last: last.to_vec() })
    }

    /// What one round of the last ones is called: its place among them.
    fn place(&self, window: &Window) -> Option<usize> {
        self.last.iter().position(|round| *round == window.iteration).filter(|_| is_end(window))
    }

    /// Classes that grow, by window.
    fn grown(&self) -> BTreeMap<&'a str, Vec<Grown>> {
        let candidates = self.growing_in_each();
        let mut heights = BTreeMap::<(&str, &str), [Count; AGREEING + 1]>::new();
        let wanted: BTreeSet<&str> = candidates.keys().map(|(_, class)| *class).collect();
        let mut live = BTreeMap::<&str, Count>::new();
        let mut heap = Heap::default();
        for window in &self.record.windows {
            heap.apply(window, |class, was, now| {
                if let Some(name) = self.name(class).filter(|name| wanted.contains(name)) {
                    let live = live.entry(name).or_default();
                    live.instances =
                        live.instances.saturating_sub(was.instances).saturating_add(now.instances);
                    live.bytes = live.bytes.saturating_sub(was.bytes).saturating_add(now.bytes);
                }
            });
            let Some(place) = self.place(window) else { continue };
            let from = (window.suite.as_str(), "");
            let mine = candidates.range(from..).take_while(|((suite, _), _)| *suite == from.0);
            for ((suite, class), _) in mine {
                let height = heights.entry((suite, class)).or_default();
                height[place] = live.get(class).copied().unwrap_or_default();
            }
        }
        let mut grown = BTreeMap::<&str, Vec<Grown>>::new();
        for ((suite, class), deltas) in candidates {
            let heights = heights.get(&(suite, class)).copied().unwrap_or_default();
            if heights.windows(2).all(|pair| higher(pair[0], pair[1])) {
                grown.entry(suite).or_default().push(Grown { class: class.to_owned(), deltas });
            }
        }
        for of_window in grown.values_mut() {
            of_window.sort_by(|a, b| {
                b.least().bytes.total_cmp(&a.least().bytes).then_with(|| a.class.cmp(&b.class))
            });
        }
        grown
    }

    /// By window and class, what each of the agreeing rounds added, where each added something.
    fn growing_in_each(&self) -> BTreeMap<(&'a str, &'a str), [Delta; AGREEING]> {
        let mut sums = BTreeMap::<(&str, &str), [Delta; AGREEING + 1]>::new();
        let mut heap = Heap::default();
        for window in &self.record.windows {
            let place = self.place(window).filter(|place| *place > 0);
            heap.apply(window, |class, was, now| {
                let (Some(place), Some(name)) = (place, self.name(class)) else { return };
                let delta = &mut sums.entry((&window.suite, name)).or_default()[place];
                delta.instances += float(now.instances) - float(was.instances);
                delta.bytes += float(now.bytes) - float(was.bytes);
            });
        }
        let agreeing = |deltas: [Delta; AGREEING + 1]| {
            let [_, a, b, c] = deltas;
            let more = |d: &Delta| d.instances > 0.0 || d.instances >= 0.0 && d.bytes > 0.0;
            [a, b, c].iter().all(more).then_some([a, b, c])
        };
        sums.into_iter().filter_map(|(key, deltas)| Some((key, agreeing(deltas)?))).collect()
    }

    fn name(&self, class: u32) -> Option<&'a str> {
        self.record.java.as_ref()?.class(class).filter(|name| !is_filler(name))
    }

    /// Threads, buffers and the like that grow in a window like objects do, by more than is allowed.
    fn counters(&self, suspect: &str, suite: &str, policy: &GatePolicy) -> Vec<String> {
        let ends: Vec<&Window> = self.record.windows.iter().filter(|w| is_end(w)).collect();
        let metrics = [
            Metric::JavaDirectBytes,
            Metric::JavaThreads,
            Metric::JavaJniGlobals,
            Metric::JavaClassesLoaded,
            Metric::JavaMetaspace,
        ];
        let found = metrics.into_iter().filter_map(|metric| {
            let limit = smallest_limit(policy, suite, suspect, metric, Per::Iteration)?;
            let values = values(&ends, metric);
            if values.len() != ends.len() {
                return None;
            }
            let mut least = f64::INFINITY;
            let mut height = f64::NEG_INFINITY;
            for (i, window) in ends.iter().enumerate().filter(|(_, w)| w.suite == suspect) {
                let Some(place) = self.place(window) else { continue };
                if place > 0 {
                    let before = i.checked_sub(1).map_or(0.0, |i| values[i]);
                    least = least.min(values[i] - before).min(values[i] - height);
                }
                height = values[i];
            }
            (least.is_finite() && least > limit).then(|| described(metric, least))
        });
        found.collect()
    }
}

impl Grown {
    /// Of the rounds that agree, the one that added least.
    fn least(&self) -> Delta {
        let least = |of: fn(&Delta) -> f64| self.deltas.iter().map(of).fold(f64::INFINITY, f64::min);
        Delta { instances: least(|d| d.instances), bytes: least(|d| d.bytes) }
    }
}

/// Does it end a whole test class, with a histogram?
fn is_end(window: &Window) -> bool {
    window.test.is_empty() && window.java.as_ref().is_some_and(|java| java.histogram)
}

fn higher(before: Count, now: Count) -> bool {
    now.instances > before.instances || now.instances == before.instances && now.bytes > before.bytes
}

/// The classes in words, where all together are more than is allowed in each round.
fn objects(grown: &[&Grown], suite: &str, window: &str, policy: &GatePolicy) -> Vec<String> {
    let least = |of: fn(&Delta) -> f64| {
        let sum = |round: usize| grown.iter().map(|g| of(&g.deltas[round])).sum::<f64>();
        (0..AGREEING).map(sum).fold(f64::INFINITY, f64::min)
    };
    let over = |metric, value: f64| {
        smallest_limit(policy, suite, window, metric, Per::Iteration).is_some_and(|limit| value > limit)
    };
    if grown.is_empty()
        || !over(Metric::JavaLiveObjects, least(|d| d.instances))
            && !over(Metric::JavaLiveBytes, least(|d| d.bytes))
    {
        return Vec::new();
    }
    let named = grown.iter().take(NAMED).map(|g| match g.least() {
        Delta { instances, .. } if instances > 0.0 => format!("{} × {}", text::number(instances), g.class),
        Delta { bytes, .. } => format!("{} more of {}", text::bytes(bytes), g.class),
    });
    let rest = grown.len().saturating_sub(NAMED);
    let more = (rest > 0).then(|| format!("{rest} more classes"));
    named.chain(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::java::dsl::Jvm;

    type Body = Box<dyn Fn(&mut Jvm, u32)>;

    /// Six rounds of three classes, of which the second does this.
    fn suspects(body: &Body) -> Vec<(String, Vec<String>, String)> {
        let mut jvm = Jvm::new();
        for round in 0..6 {
            jvm.window("FirstTest", "", round, |jvm| {
                jvm.set("byte[]", 100, 9000 + 10 * u64::from(round % 2))
            });
            jvm.window("SecondTest", "", round, |jvm| body(jvm, round));
            jvm.window("ThirdTest", "", round, |_| ());
        }
        let found = screen_rounds(&jvm.end(), "loaders", &GatePolicy::default()).expect("six rounds");
        found.into_iter().map(|s| (s.suite, s.classes, s.why)).collect()
    }

    #[test]
    fn only_what_grows_in_each_of_the_last_three_rounds_is_suspect() {
        let cases: Vec<(&str, Body, Option<&str>)> = vec![
            ("nothing", Box::new(|_, _| ()), None),
            (
                "every round",
                Box::new(|jvm, _| jvm.add("com.example.Tile", 2, 24)),
                Some("2 × com.example.Tile"),
            ),
            (
                "the first three rounds",
                Box::new(|jvm, r| {
                    if r < 3 {
                        jvm.add("com.example.Tile", 2, 24)
                    }
                }),
                None,
            ),
            (
                "every other round",
                Box::new(|jvm, r| {
                    if r % 2 == 0 {
                        jvm.add("com.example.Tile", 2, 24)
                    }
                }),
                None,
            ),
            (
                "the last three rounds",
                Box::new(|jvm, r| {
                    if r >= 3 {
                        jvm.add("com.example.Tile", u64::from(r), 24)
                    }
                }),
                Some("3 × com.example.Tile"),
            ),
            (
                "an array that doubles in every round",
                Box::new(|jvm, r| jvm.set("int[]", 1, 64 << r)),
                Some("256 B more of int[]"),
            ),
            ("a thread", Box::new(|jvm, r| jvm.threads.push(format!("w{r}"))), Some("1 Java thread")),
            (
                "direct buffers",
                Box::new(|jvm, _| jvm.direct_bytes += 4096),
                Some("4.0 KiB of direct buffers"),
            ),
            ("global references, without a limit", Box::new(|jvm, _| jvm.jni_globals += 1), None),
            (
                "another lambda in every round",
                Box::new(|jvm, r| jvm.add(&format!("A$$Lambda${r}/0x0{r}"), 1, 16)),
                Some("1 × A$$Lambda"),
            ),
        ];
        for (what, body, why) in cases {
            let found = suspects(&body);
            let whys: Vec<_> = found.iter().map(|(suite, _, why)| (suite.as_str(), why.as_str())).collect();
            assert_eq!(whys, why.map(|why| ("SecondTest", why)).into_iter().collect::<Vec<_>>(), "{what}");
        }
    }

    #[test]
    fn what_the_rest_of_the_round_gives_back_is_no_growth() {
        let mut jvm = Jvm::new();
        for round in 0..6 {
            jvm.window("FillTest", "", round, |jvm| jvm.add("com.example.Tile", 7, 24));
            jvm.window("EmptyTest", "", round, |jvm| jvm.remove("com.example.Tile", 7, 24));
        }
        assert_eq!(screen_rounds(&jvm.end(), "loaders", &GatePolicy::default()), Ok(Vec::new()));
    }

    #[test]
    fn a_limit_is_for_all_classes_of_a_window_together() {
        let mut jvm = Jvm::new();
        for round in 0..6 {
            jvm.window("ManyTest", "", round, |jvm| {
                (0..10).for_each(|i| jvm.add(&format!("com.example.C{}", char::from(b'A' + i)), 3, 32));
            });
        }
        let record = jvm.end();
        for (objects, bytes, suspects) in [(29.0, 1e9, 1), (30.0, 960.0, 0), (30.0, 959.0, 1)] {
            let defaults = vec![
                crate::policy::Limit::fail(Metric::JavaLiveObjects, objects, "x"),
                crate::policy::Limit::fail(Metric::JavaLiveBytes, bytes, "x"),
            ];
            let policy = GatePolicy { defaults, ..GatePolicy::default() };
            assert_eq!(
                screen_rounds(&record, "loaders", &policy).map(|s| s.len()),
                Ok(suspects),
                "{objects} {bytes}"
            );
        }
    }
}
