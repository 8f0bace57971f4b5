//! Leaks that no window of the rounds shows, because a test class replaces what another one left. Example: several test
//! classes set a static field, and one of them also keeps the object that it sets. In its own window one object is
//! added and another goes. The kept object shows in the window of the next class that sets the field, but only while
//! the leaking class runs before that one.
//!
//! So check for a class of the project or of a library that grew in a window while all test classes ran, and stopped
//! growing when fewer of them ran. Then rounds in which each test class runs twice in a row help: the second execution
//! replaces what the first one left.

use std::collections::{BTreeMap, BTreeSet};

use super::names::is_own;
use super::rounds::WARM_UP;
use super::series::Heap;
use crate::record::{ProcessRecord, Unit};

/// Rounds after the warm-up that are checked. Later, test classes that change nothing no longer run.
const LOOKED_AT: u32 = 2;

/// Growth counts if it happened in this many rounds in a row: a cache that is filled once does not.
const GREW: u32 = 2;

/// The last measured window of a test class.
#[derive(Default)]
struct Last<'a> {
    /// Number of windows that had ended, and how many of them ended after the previous window of this test class.
    at: usize,
    since: usize,
    /// Instances at its end, of classes that are checked.
    live: BTreeMap<&'a str, u64>,
    /// Classes that grew both in the window and since the round before, with the number of such rounds in a row.
    grew: BTreeMap<&'a str, u32>,
}

/// A class that stopped growing when fewer test classes ran.
#[must_use]
pub fn grew_in_company(record: &ProcessRecord) -> Option<String> {
    let java = record.java.as_ref()?;
    let mut heap = Heap::default();
    let mut live = BTreeMap::<&str, u64>::new();
    let mut units = BTreeMap::<String, Last<'_>>::new();
    let mut at = 0;
    for window in &record.windows {
        // The first histogram also contains what was there before.
        let is_first = live.is_empty();
        let mut added = BTreeSet::new();
        heap.apply(window, |class, was, now| {
            let Some(name) = java.class(class).filter(|name| is_own(name)) else { return };
            let live = live.entry(name).or_default();
            *live = live.saturating_sub(was.instances).saturating_add(now.instances);
            if now.instances > was.instances && !is_first {
                added.insert(name);
            }
        });
        if !Unit::Class.is(window) {
            continue;
        }
        at += 1;
        let unit = units.entry(Unit::Class.of(window)).or_default();
        let since = at - unit.at;
        added.retain(|class| unit.at > 0 && live.get(class) > unit.live.get(class));
        let stopped = |(class, rounds): &(&&str, &u32)| **rounds >= GREW && !added.contains(**class);
        if since < unit.since
            && let Some((class, _)) = unit.grew.iter().find(stopped)
        {
            return Some((*class).to_owned());
        }
        let is_early = window.iteration < WARM_UP + LOOKED_AT;
        let in_a_row = |class: &'_ str| unit.grew.get(class).map_or(1, |rounds| rounds + 1);
        let grew = added.iter().filter(|_| is_early).map(|class| (*class, in_a_row(class))).collect();
        *unit = Last { at, since, live: live.clone(), grew };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::java::dsl::Jvm;

    /// Each test class sets a static field, and `KeepsTest` keeps what it sets. Those that change nothing run three
    /// times.
    fn found(keeps: bool, class: &str) -> Option<String> {
        let mut jvm = Jvm::new();
        let mut kept_by_last = false;
        for round in 0..6 {
            for test in ["FirstTest", "OtherTest", "KeepsTest", "PlainTest", "LastTest"] {
                let is_done = round > 3 || round > 2 && !matches!(test, "FirstTest" | "LastTest");
                if is_done {
                    continue;
                }
                jvm.window(test, "", round, |jvm| {
                    if matches!(test, "PlainTest" | "OtherTest") {
                        return;
                    }
                    jvm.add(class, 1, 24);
                    if round > 0 && !kept_by_last {
                        jvm.remove(class, 1, 24);
                    }
                });
                if !matches!(test, "PlainTest" | "OtherTest") {
                    kept_by_last = keeps && test == "KeepsTest";
                }
            }
        }
        grew_in_company(&jvm.end())
    }

    #[test]
    fn a_class_that_grows_only_while_all_test_classes_run_is_told() {
        let told = Some("com.example.App".to_owned());
        assert_eq!(found(true, "com.example.App"), told);
        assert_eq!(found(false, "com.example.App"), None, "each replaces what another left");
        assert_eq!(found(true, "java.io.ClassCache$CacheRef"), None, "the JDK's come and go");
    }
}
