//! Chooses the classes of a repeated test to explain: those that grew in several windows in a row.
//!
//! Data flow: the histograms of a record's windows → how many windows in a row each class grew ([`Grown`]) → class
//! numbers for the agent. The agent tags the instances of these classes and searches their holders, so the number of
//! classes is limited.

use std::collections::HashMap;

use memgate_wire::reply::ClassNumbers;

use crate::record::ProcessRecord;

use super::names::is_own;
use super::series::Heap;

/// Most classes to explain: those with the most bytes, and some more of the project's own.
pub(super) const MOST_EXPLAINED: usize = 24;
const MOST_OWN: usize = 24;
/// A class must grow in this many windows in a row to be explained.
pub(super) const GROWING_TIMES: u32 = 3;

/// Number of windows in a row in which a class grew, and the bytes it gained in all of them.
#[derive(Clone, Copy, Default)]
struct Grown {
    times: u32,
    bytes: u64,
}

/// The classes that grew in each of the last windows, those with the most bytes first. They come from the project that
/// is tested by `suite`, then from all other classes. If the project has fewer classes than its share, more classes
/// outside the JDK fill it up.
#[must_use]
pub fn classes_to_explain(record: &ProcessRecord, suite: &str) -> ClassNumbers {
    let Some(java) = &record.java else { return ClassNumbers::default() };
    let growing = growing(record).into_iter().filter(|(_, grown)| grown.times >= GROWING_TIMES);
    let named = growing.filter_map(|(class, grown)| Some((grown.bytes, class, java.class(class)?)));
    let mut growing: Vec<(u64, u32, &str)> = named.collect();
    // Class numbers differ between runs. Sorting equal growth by name gives the same choice in every run.
    growing.sort_unstable_by_key(|(bytes, class, name)| (std::cmp::Reverse(*bytes), *name, *class));
    let named = growing.into_iter().map(|(_, class, name)| (class, name));
    let package = package_of(suite);
    let is_project = |(_, name): &(u32, &str)| !package.is_empty() && name.starts_with(&package);
    let (mut chosen, others): (Vec<_>, Vec<_>) = named.partition(is_project);
    chosen.truncate(MOST_OWN);
    let left = MOST_OWN - chosen.len();
    let mut others = others.into_iter();
    chosen.extend(others.by_ref().take(MOST_EXPLAINED));
    chosen.extend(others.filter(|(_, name)| is_own(name)).take(left));
    chosen.into_iter().map(|(class, _)| class).collect()
}

/// The classes that grew in the last window.
fn growing(record: &ProcessRecord) -> HashMap<u32, Grown> {
    let (mut heap, mut growing) = (Heap::default(), HashMap::<u32, Grown>::new());
    let measured = |java: &super::JavaWindow| java.histogram;
    for window in record.windows.iter().filter(|window| window.java.as_deref().is_some_and(measured)) {
        let mut next = HashMap::new();
        heap.apply(window, |class, was, now| {
            // Bytes count by themselves: small strings and arrays come and go while a large one stays.
            if now.instances > was.instances || now.bytes > was.bytes {
                let before = growing.get(&class).copied().unwrap_or_default();
                let grown: &mut Grown =
                    next.entry(class).or_insert(Grown { times: before.times.saturating_add(1), ..before });
                grown.bytes = grown.bytes.saturating_add(now.bytes.saturating_sub(was.bytes));
            }
        });
        growing = next;
    }
    growing
}

/// The first two parts of the package of a test class: the common prefix of the project's own classes.
fn package_of(suite: &str) -> String {
    let package = suite.rsplit_once('.').map_or("", |(package, _)| package);
    package.split('.').filter(|part| !part.is_empty()).take(2).map(|part| format!("{part}.")).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use memgate_wire::Frame;
    use proptest::prelude::*;

    use super::*;
    use crate::java::dsl::Jvm;

    /// Instances and bytes by class, one window after the other.
    type Windows = Vec<BTreeMap<&'static str, (u64, u64)>>;

    /// Names of the chosen classes after these windows, and all class names in the stream.
    fn chosen(windows: &Windows, suite: &str) -> (Vec<String>, BTreeMap<u32, String>) {
        let mut jvm = Jvm::new();
        let every: Vec<&str> = windows.iter().flat_map(BTreeMap::keys).copied().collect();
        for (i, window) in (0..).zip(windows) {
            jvm.window("A", "a", i, |jvm| {
                for class in &every {
                    let (instances, bytes) = window.get(class).copied().unwrap_or_default();
                    jvm.set(class, instances, bytes);
                }
            });
        }
        let names: BTreeMap<u32, String> = jvm
            .frames
            .iter()
            .filter_map(
                |(frame, _)| if let Frame::Classes(told) = frame { Some(&told.classes) } else { None },
            )
            .flatten()
            .map(|class| (class.id, class.name.clone()))
            .collect();
        let numbers = classes_to_explain(&jvm.end(), suite);
        (numbers.as_slice().iter().map(|number| names[number].clone()).collect(), names)
    }

    /// The choice that the agent made by itself before version 3 of the stream, written as it was but for classes that
    /// grew by as many bytes: it took the one with the larger number first.
    mod before {
        use std::collections::BTreeMap;

        pub(super) type Counts = BTreeMap<u32, (u64, u64)>;

        #[derive(Default)]
        pub(super) struct Growth(BTreeMap<u32, (u32, u64)>);

        impl Growth {
            pub(super) fn note(&mut self, before: &Counts, now: &Counts) {
                let mut growing = BTreeMap::new();
                for (&id, &(instances, bytes)) in now {
                    let &(instances_before, bytes_before) = before.get(&id).unwrap_or(&(0, 0));
                    if instances > instances_before || bytes > bytes_before {
                        let &(times, grown) = self.0.get(&id).unwrap_or(&(0, 0));
                        growing.insert(id, (times + 1, grown + bytes.saturating_sub(bytes_before)));
                    }
                }
                self.0 = growing;
            }

            pub(super) fn chosen(&self, suite: &str, names: &BTreeMap<u32, String>) -> Vec<String> {
                let growing = self.0.iter().filter(|(_, (times, _))| *times >= 3);
                let mut growing: Vec<(u64, u32)> = growing.map(|(&id, &(_, bytes))| (bytes, id)).collect();
                growing.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| names[&a.1].cmp(&names[&b.1])));
                let package = suite.rsplit_once('.').map_or("", |(package, _)| package);
                let package: String = package.split('.').take(2).map(|part| format!("{part}.")).collect();
                let package = if suite.contains('.') { package } else { String::new() };
                let is_project = |name: &String| !package.is_empty() && name.starts_with(&package);
                let names = growing.into_iter().map(|(_, id)| names[&id].clone());
                let (mut chosen, others): (Vec<String>, Vec<String>) = names.partition(is_project);
                chosen.truncate(24);
                let left = 24 - chosen.len();
                let mut others = others.into_iter();
                chosen.extend(others.by_ref().take(24));
                chosen.extend(others.filter(|name| !is_of_the_jdk(name)).take(left));
                chosen
            }
        }

        fn is_of_the_jdk(class: &str) -> bool {
            const PACKAGES: [&str; 10] = [
                "java.",
                "javax.",
                "jdk.",
                "sun.",
                "com.sun.",
                "android.",
                "com.android.",
                "dalvik.",
                "libcore.",
                "org.robolectric.",
            ];
            let primitive = !class.contains('.') && class.starts_with(|c: char| c.is_lowercase());
            primitive || PACKAGES.iter().any(|package| class.starts_with(package))
        }
    }

    fn chosen_before(windows: &Windows, suite: &str, names: &BTreeMap<u32, String>) -> Vec<String> {
        let ids: BTreeMap<&str, u32> = names.iter().map(|(id, name)| (name.as_str(), *id)).collect();
        let (mut growth, mut last) = (before::Growth::default(), before::Counts::new());
        for window in windows {
            let alive = window.iter().filter(|(_, figures)| **figures != (0, 0));
            let now: before::Counts = alive.map(|(class, figures)| (ids[class], *figures)).collect();
            growth.note(&last, &now);
            last = now;
        }
        growth.chosen(suite, names)
    }

    /// Names of every kind: of the project, of libraries, of the JDK and of Android, generated ones,
    /// arrays.
    fn pool() -> Vec<&'static str> {
        const KINDS: [&str; 14] = [
            "com.example.app.C#",
            "com.example.D#[]",
            "com.example.E#$$Lambda/0x0000000800c0#",
            "com.other.F#",
            "org.lib.G#[][]",
            "H#",
            "java.util.I#",
            "javax.J#",
            "jdk.internal.reflect.GeneratedMethodAccessor#",
            "jdk.proxy2.$Proxy#",
            "android.os.K#",
            "org.robolectric.L#",
            "com.sun.M#",
            "sun.N#",
        ];
        let numbered = KINDS
            .iter()
            .flat_map(|kind| (1..8).map(move |n| kind.replace('#', &n.to_string()).leak() as &str));
        numbered.chain(["int[]", "byte[]", "long[][]", "Main"]).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn the_harness_chooses_what_the_agent_chose(
            steps in proptest::collection::vec(proptest::collection::vec(0_u8..8, 102), 1..7),
            suite in prop_oneof![
                Just("com.example.tests.CacheTest"), Just("com.example.CacheTest"), Just("com.CacheTest"),
                Just("CacheTest"), Just("org.lib.other.Test"), Just(""),
            ],
        ) {
            let pool = pool();
            let mut live = BTreeMap::<&str, (u64, u64)>::new();
            let windows: Windows = steps.iter().map(|steps| {
                for (class, step) in pool.iter().zip(steps) {
                    let (instances, bytes) = live.entry(*class).or_default();
                    match step {
                        // Most grow, some with equal bytes. Others stay, shrink, vanish, or have fewer and larger
                        // instances.
                        0 => (*instances, *bytes) = (0, 0),
                        1 => {}
                        2 => (*instances, *bytes) = (*instances / 2, *bytes / 2),
                        3 => (*instances, *bytes) = (*instances / 2 + 1, *bytes + 100),
                        step => (*instances, *bytes) = (*instances + 1, *bytes + u64::from(*step) * 8),
                    }
                }
                live.clone()
            }).collect();
            let (now, names) = chosen(&windows, suite);
            prop_assert_eq!(now, chosen_before(&windows, suite, &names));
        }
    }

    /// Windows with the bytes of each class.
    fn windows(names: &[&'static str], bytes: &[Vec<u64>]) -> Windows {
        let window = |bytes: &Vec<u64>| names.iter().copied().zip(bytes.iter().map(|b| (1, *b))).collect();
        bytes.iter().map(window).collect()
    }

    #[test]
    fn a_class_is_chosen_that_grew_in_three_windows_in_a_row_most_bytes_first() {
        let names = ["x.Small", "x.Large", "x.Rests", "x.Shrinks"];
        let bytes = [vec![1, 10, 1, 9], vec![2, 20, 2, 1], vec![3, 30, 3, 2], vec![4, 40, 3, 3]];
        assert_eq!(chosen(&windows(&names, &bytes), "a.Test").0, ["x.Large", "x.Small"]);
        assert!(chosen(&windows(&names, &bytes[..2]), "a.Test").0.is_empty());
    }

    /// The id of a leak is stable only if every run explains the same classes.
    #[test]
    fn classes_that_grow_alike_are_chosen_in_the_same_way_whatever_their_numbers() {
        let mut names: Vec<&'static str> =
            (0..60).map(|i| format!("java.util.C{i}").leak() as &str).collect();
        let bytes: Vec<Vec<u64>> = (1..6).map(|end| vec![32 * end; 60]).collect();
        let in_order = chosen(&windows(&names, &bytes), "a.Test").0;
        names.reverse();
        let mut reversed = Jvm::new();
        for (i, bytes) in (0..).zip(&bytes) {
            reversed.window("A", "a", i, |jvm| names.iter().for_each(|name| jvm.set(name, 1, bytes[0])));
        }
        let record = reversed.end();
        let java = record.java.as_ref().expect("a virtual machine");
        let numbers = classes_to_explain(&record, "a.Test");
        let chosen: Vec<&str> = numbers.as_slice().iter().filter_map(|class| java.class(*class)).collect();
        assert_eq!(
            (chosen.len(), chosen),
            (MOST_EXPLAINED, in_order.iter().map(String::as_str).collect::<Vec<_>>())
        );
    }

    #[test]
    fn the_projects_own_classes_come_first_and_the_jdks_leave_room() {
        let jdk: Vec<&'static str> = (0..40).map(|i| format!("java.util.C{i}").leak() as &str).collect();
        let names = [jdk, vec!["com.example.app.Cache", "org.lib.Pool", "int[]"]].concat();
        let bytes: Vec<Vec<u64>> =
            (1..=3).map(|n| (0..43).map(|i| n * (if i < 40 { 1000 - i } else { 1 })).collect()).collect();
        let all = chosen(&windows(&names, &bytes), "com.example.tests.CacheTest").0;
        assert_eq!(all.first().map(String::as_str), Some("com.example.app.Cache"));
        assert_eq!(all.get(1).map(String::as_str), Some("java.util.C0"));
        assert_eq!(all.len(), 1 + MOST_EXPLAINED + 1, "{all:?}");
        assert_eq!(all.last().map(String::as_str), Some("org.lib.Pool"));
    }

    #[test]
    fn a_package_tells_what_the_projects_classes_begin_with() {
        for (suite, package) in
            [("com.example.x.ATest", "com.example."), ("a.Test", "a."), ("Test", ""), ("", "")]
        {
            assert_eq!(package_of(suite), package);
        }
    }
}
