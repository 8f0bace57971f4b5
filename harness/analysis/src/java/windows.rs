//! Objects that each window of the build's own run left, and their difference from an accepted run.
//!
//! A first execution always grows: classes load, caches fill. In a new virtual machine, the same tests in the same
//! order grow by the same. So a window that leaves what it left when it was found clean need not be screened again.

use std::collections::BTreeMap;

use memgate_wire::Outcome;

use super::names::{is_literal, is_made_by_machine, is_own};
use super::series::Heap;
use crate::record::{ProcessRecord, Window};

/// Objects of a class may be larger than before by one part in this many.
const SLACK_BYTES: u64 = 16;
/// Approximate bytes of an additional array.
const BYTES_OF_ONE: u64 = 128;
/// Allowed difference of JDK objects between runs.
const FEW: u64 = 2;
/// Allowed difference of objects that the virtual machine makes for methods and classes.
const SOME: u64 = 8;

/// Entries of the virtual machine's set of method types, each in a [`NODE`]. They stay after their method type is gone,
/// until the set is used again. So their number differs by about a hundred between runs.
const WEAK_ENTRY: &str = "java.lang.invoke.MethodType$ConcurrentWeakInternSet$WeakEntry";
const NODE: &str = "java.util.concurrent.ConcurrentHashMap$Node";

/// The number of instances by which the same tests may differ in two virtual machines. Classes of the project must not
/// differ. The virtual machine interns strings, resolves methods and fills caches as threads and its compiler reach
/// them. `None`: the class is ignored. Example: cleaners run after a collection, and the memory that they free is
/// counted separately (`java.direct_bytes`).
fn slack(name: &str, accepted: u64) -> Option<u64> {
    const CLEANED: [&str; 4] = [
        "jdk.internal.ref.",
        // Refers to a logger that is gone. It is removed when the next logger is made.
        "java.util.logging.LogManager$LoggerWeakRef",
        "java.nio.DirectByteBuffer",
        "java.lang.invoke.MethodHandleNatives$CallSiteContext",
    ];
    // Test runners are in the middle of their own work at the end of a window.
    const RUNNERS: [&str; 4] =
        ["org.apache.maven.surefire.", "org.gradle.", "org.junit.", "junit.framework."];
    const CACHES: [&str; 1] = [NODE];
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    if begins(&CLEANED) || begins(&RUNNERS) || name == WEAK_ENTRY {
        return None;
    }
    // The first thread that uses a class or a method type makes its node.
    if is_made_by_machine(name) || begins(&CACHES) {
        return Some(accepted.isqrt().saturating_add(SOME));
    }
    if is_literal(name) {
        return Some(accepted.isqrt().saturating_mul(2).saturating_add(FEW));
    }
    Some(if is_own(name) || name.starts_with("java.threads") { 0 } else { FEW })
}

/// Objects of one class that a window left, in addition to those before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Left {
    /// Instances.
    pub instances: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A window of the build's own run: one test class, or several small ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClassWindow {
    /// The test classes whose tests ran in it, in this order; the last one ended it.
    pub classes: Vec<String>,
    /// Objects that it left, by class (normalised). Counters of the virtual machine have the name of their metric.
    pub left: BTreeMap<String, Left>,
    /// Why it cannot be compared.
    pub unusable: Option<String>,
}

/// The windows of one process, in order. Test classes after the last end with a histogram belong to no window.
#[must_use]
pub fn class_windows(record: &ProcessRecord) -> Vec<ClassWindow> {
    let Some(java) = &record.java else { return Vec::new() };
    let mut windows = Vec::new();
    let mut heap = Heap::default();
    let mut known = Counters::default();
    let mut next = ClassWindow::default();
    for window in &record.windows {
        if !window.test.is_empty() {
            next.test(window);
            continue;
        }
        if !window.java.as_ref().is_some_and(|java| java.histogram) {
            continue;
        }
        let mut sums = BTreeMap::<&str, (i128, i128)>::new();
        heap.apply(window, |class, was, now| {
            if let Some(name) = java.class(class) {
                let sum = sums.entry(name).or_default();
                sum.0 += i128::from(now.instances) - i128::from(was.instances);
                sum.1 += i128::from(now.bytes) - i128::from(was.bytes);
            }
        });
        let counters = known.since(window);
        // Before the first class: this is the start of the virtual machine.
        if next.classes.is_empty() {
            continue;
        }
        let own =
            sums.into_iter().map(|(name, (instances, bytes))| (name.to_owned(), left(instances, bytes)));
        next.left = own.chain(counters).filter(|(_, left)| *left != Left::default()).collect();
        windows.push(std::mem::take(&mut next));
    }
    windows
}

impl ClassWindow {
    fn test(&mut self, window: &Window) {
        if !self.classes.contains(&window.suite) {
            self.classes.push(window.suite.clone());
        }
        if window.outcome == Some(Outcome::Failed) {
            self.unusable.get_or_insert_with(|| format!("{} failed", window.id()));
        }
        if window.open_tests > 1 {
            self.unusable.get_or_insert_with(|| format!("{} ran beside another test", window.id()));
        }
    }

    /// The objects that it left in excess of `accepted`, most instances first. Differences between two executions of
    /// the same tests are allowed: see [`slack`].
    #[must_use]
    pub fn beyond(&self, accepted: &BTreeMap<String, Left>) -> Vec<(&str, Left)> {
        let instances = |of: &BTreeMap<String, Left>| of.get(WEAK_ENTRY).map_or(0, |left| left.instances);
        let weak = instances(&self.left).saturating_sub(instances(accepted));
        let more = |(name, now): (&String, &Left)| {
            let was = accepted.get(name).copied().unwrap_or_default();
            let Some(slack) = slack(name, was.instances) else { return false };
            let slack = slack.saturating_add(if name == NODE { weak } else { 0 });
            // All objects of a class have one size, which may be large (a thread: 376 B). Array sizes differ.
            let of_one =
                if name.ends_with("[]") { 0 } else { now.bytes.checked_div(now.instances).unwrap_or(0) };
            let bytes = was
                .bytes
                .saturating_add(was.bytes / SLACK_BYTES)
                .saturating_add(slack.saturating_mul(of_one.max(BYTES_OF_ONE)));
            now.instances > was.instances.saturating_add(slack) || now.bytes > bytes
        };
        let mut beyond: Vec<(&str, Left)> = self
            .left
            .iter()
            .filter(|entry| more(*entry))
            .map(|(name, left)| (name.as_str(), *left))
            .collect();
        beyond.sort_by(|a, b| b.1.instances.cmp(&a.1.instances).then_with(|| a.0.cmp(b.0)));
        beyond
    }
}

/// Counters of the virtual machine at the previous end.
#[derive(Default)]
struct Counters {
    threads: u64,
    direct_bytes: u64,
}

impl Counters {
    fn since(&mut self, window: &Window) -> [(String, Left); 2] {
        let state = window.java.as_ref().and_then(|java| java.state.as_ref());
        let threads = state.and_then(|state| state.threads).unwrap_or(self.threads);
        let direct_bytes = state.and_then(|state| state.direct_bytes).unwrap_or(self.direct_bytes);
        let before = std::mem::replace(self, Self { threads, direct_bytes });
        let only = |instances, bytes| Left { instances, bytes };
        [
            ("java.threads".to_owned(), only(threads.saturating_sub(before.threads), 0)),
            ("java.direct_bytes".to_owned(), only(0, direct_bytes.saturating_sub(before.direct_bytes))),
        ]
    }
}

fn left(instances: i128, bytes: i128) -> Left {
    let more = |value: i128| u64::try_from(value.max(0)).unwrap_or(u64::MAX);
    Left { instances: more(instances), bytes: more(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::java::dsl::Jvm;

    fn run(leaks: u64) -> Vec<ClassWindow> {
        let mut jvm = Jvm::new();
        jvm.window("", "", 0, |_| ());
        jvm.test("ATest", "a");
        jvm.test("BTest", "b");
        jvm.window("BTest", "", 0, |jvm| jvm.add("com.example.Settings", 1, 24));
        jvm.test("CTest", "c");
        jvm.window("CTest", "", 0, |jvm| {
            jvm.add("com.example.Tile", leaks, 24);
            jvm.remove("com.example.Settings", 1, 24);
            jvm.threads.push("pool".to_owned());
        });
        jvm.test("DTest", "d");
        class_windows(&jvm.end())
    }

    #[test]
    fn a_window_is_the_classes_since_the_last_one_and_what_they_left() {
        let windows = run(3);
        let classes: Vec<_> = windows.iter().map(|w| w.classes.join(" ")).collect();
        assert_eq!(classes, ["ATest BTest", "CTest"], "behind the last end there is no window");
        let first: Vec<_> = windows[0].left.keys().collect();
        assert_eq!(first, ["com.example.Settings"], "what was alive before the first class is in no window");
        let left: Vec<_> =
            windows[1].left.iter().map(|(name, l)| (name.as_str(), l.instances, l.bytes)).collect();
        assert_eq!(left, [("com.example.Tile", 3, 72), ("java.threads", 1, 0)]);
    }

    #[test]
    fn only_more_than_what_was_accepted_counts() {
        let accepted = &run(3)[1].left;
        for (leaks, beyond) in [(2, vec![]), (3, vec![]), (4, vec!["com.example.Tile"])] {
            let windows = run(leaks);
            let found: Vec<_> = windows[1].beyond(accepted).iter().map(|(name, _)| *name).collect();
            assert_eq!(found, beyond, "{leaks}");
        }
    }

    #[test]
    fn what_the_machine_does_by_itself_has_room() {
        let accepted = BTreeMap::from([("byte[]".to_owned(), Left { instances: 100, bytes: 4800 })]);
        for (class, instances, beyond) in [
            ("byte[]", 122, false),
            ("byte[]", 123, true),
            ("java.util.HashMap$Node", 2, false),
            ("java.util.HashMap$Node", 3, true),
            ("jdk.internal.ref.Cleaner", 50, false),
            ("java.util.logging.LogManager$LoggerWeakRef", 50, false),
            ("java.util.logging.Logger", 50, true),
            ("org.apache.maven.surefire.api.util.internal.ClassMethod", 2, false),
            ("java.util.concurrent.ConcurrentHashMap$Node", 8, false),
            ("java.util.concurrent.ConcurrentHashMap$Node", 9, true),
            ("java.lang.invoke.MethodType", 8, false),
            ("java.lang.invoke.MethodType", 9, true),
            ("com.example.Tile", 1, true),
            ("java.threads", 1, true),
        ] {
            let left = Left { instances, bytes: instances * 48 };
            assert_eq!(is_beyond(class, left, &accepted), beyond, "{instances} {class}");
        }
    }

    #[test]
    fn an_object_may_be_large_and_an_array_may_not() {
        for (class, instances, bytes, beyond) in [
            ("java.lang.Thread", 1, 376, false),
            ("java.lang.Thread", 3, 3 * 376, true),
            ("byte[]", 1, 256, false),
            ("byte[]", 1, 376, true),
        ] {
            let left = Left { instances, bytes };
            assert_eq!(is_beyond(class, left, &BTreeMap::new()), beyond, "{instances} {class}");
        }
    }

    fn is_beyond(class: &str, left: Left, accepted: &BTreeMap<String, Left>) -> bool {
        let left = BTreeMap::from([(class.to_owned(), left)]);
        let window = ClassWindow { left, ..ClassWindow::default() };
        !window.beyond(accepted).is_empty()
    }

    #[test]
    fn nodes_of_weak_entries_come_and_go_with_them() {
        let left = |nodes, weak| {
            let of = |name: &str, instances| (name.to_owned(), Left { instances, bytes: instances * 32 });
            BTreeMap::from([of(NODE, nodes), of(WEAK_ENTRY, weak)])
        };
        for (nodes, weak, beyond) in [(1131, 163, false), (1231, 263, false), (1231, 163, true)] {
            let window = ClassWindow { left: left(nodes, weak), ..ClassWindow::default() };
            assert_eq!(!window.beyond(&left(1131, 163)).is_empty(), beyond, "{nodes} {weak}");
        }
    }

    #[test]
    fn a_window_with_a_failed_test_says_nothing() {
        let mut jvm = Jvm::new();
        jvm.outcome = Outcome::Failed;
        jvm.test("ATest", "a");
        jvm.window("ATest", "", 0, |_| ());
        assert_eq!(class_windows(&jvm.end())[0].unusable.as_deref(), Some("ATest.a failed"));
    }
}
