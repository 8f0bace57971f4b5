//! Which classes are to be explained: those that grew in window after window. Pure.
//!
//! This chooses, which is the harness's to do: its order says only that something is to be
//! explained, and there is no room in it for names.

use std::collections::BTreeMap;

/// Classes that are explained at most: those with most bytes, and of the project's own some more.
const MAX_CLASSES: usize = 24;
const MAX_OWN_CLASSES: usize = 24;
/// Windows in a row in which a class has to grow to be worth an explanation.
const GROWING_TIMES: u32 = 3;

/// Instances and bytes of classes, by their number in the stream.
pub(crate) type Counts = BTreeMap<u32, (u64, u64)>;

/// Classes that grew in the last windows: in how many in a row, and by how many bytes in them all.
pub(crate) struct Growth(BTreeMap<u32, (u32, u64)>);

impl Growth {
    pub(crate) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// A window ended.
    pub(crate) fn note(&mut self, before: &Counts, now: &Counts) {
        let mut growing = BTreeMap::new();
        for (&id, &(instances, bytes)) in now {
            let &(instances_before, bytes_before) = before.get(&id).unwrap_or(&(0, 0));
            // Of strings and arrays some come and go while a large one stays.
            if instances > instances_before || bytes > bytes_before {
                let &(times, grown) = self.0.get(&id).unwrap_or(&(0, 0));
                let grown = grown.saturating_add(bytes.saturating_sub(bytes_before));
                growing.insert(id, (times.saturating_add(1), grown));
            }
        }
        self.0 = growing;
    }

    /// The classes that grew in each of the last windows, those with most bytes first: of the
    /// project that tests with `suite`, of all others, and as many more that are not the JDK's as
    /// there are less of the project.
    pub(crate) fn chosen<'a>(&self, suite: &str, name: impl Fn(u32) -> Option<&'a String>) -> Vec<String> {
        let growing = self.0.iter().filter(|(_, (times, _))| *times >= GROWING_TIMES);
        let mut growing: Vec<(u64, u32)> = growing.map(|(&id, &(_, bytes))| (bytes, id)).collect();
        growing.sort_unstable_by(|a, b| b.cmp(a));
        let package = package_of(suite);
        let is_project = |name: &String| !package.is_empty() && name.starts_with(&package);
        let names = growing.into_iter().filter_map(|(_, id)| name(id).cloned());
        let (mut chosen, others): (Vec<String>, Vec<String>) = names.partition(is_project);
        chosen.truncate(MAX_OWN_CLASSES);
        let left = MAX_OWN_CLASSES.saturating_sub(chosen.len());
        let mut others = others.into_iter();
        chosen.extend(others.by_ref().take(MAX_CLASSES));
        chosen.extend(others.filter(|name| !is_of_the_jdk(name)).take(left));
        chosen
    }
}

/// The first two parts of the package of a test class: what the project's own classes begin with.
fn package_of(suite: &str) -> String {
    let package = suite.rsplit_once('.').map_or("", |(package, _)| package);
    package.split('.').filter(|part| !part.is_empty()).take(2).map(|part| format!("{part}.")).collect()
}

/// Arrays of primitive types and everything in a package of the JDK, or of Android as Robolectric
/// brings it.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The choice after these windows, in each of which class `id` has so many bytes.
    fn chosen(names: &[&str], windows: &[&[u64]], suite: &str) -> Vec<String> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let (mut growth, mut before) = (Growth::new(), Counts::new());
        for window in windows {
            let now: Counts = (0..).zip(window.iter().map(|&bytes| (1, bytes))).collect();
            growth.note(&before, &now);
            before = now;
        }
        growth.chosen(suite, |id| names.get(id as usize))
    }

    #[test]
    fn a_class_is_chosen_that_grew_in_three_windows_in_a_row_most_bytes_first() {
        let names = ["x.Small", "x.Large", "x.Rests", "x.Shrinks"];
        let windows: [&[u64]; 4] = [&[1, 10, 1, 9], &[2, 20, 2, 1], &[3, 30, 3, 2], &[4, 40, 3, 3]];
        assert_eq!(chosen(&names, &windows, "a.Test"), ["x.Large", "x.Small"]);
        assert!(chosen(&names, &windows[..2], "a.Test").is_empty());
    }

    #[test]
    fn the_projects_own_classes_come_first_and_the_jdks_leave_room() {
        let jdk: Vec<String> = (0..40).map(|i| format!("java.util.C{i}")).collect();
        let mut names: Vec<&str> = jdk.iter().map(String::as_str).collect();
        names.extend(["com.example.app.Cache", "org.lib.Pool", "int[]"]);
        let windows: Vec<Vec<u64>> =
            (1..=3).map(|n| (0..43).map(|i| n * (if i < 40 { 1000 - i } else { 1 })).collect()).collect();
        let windows: Vec<&[u64]> = windows.iter().map(Vec::as_slice).collect();
        let all = chosen(&names, &windows, "com.example.tests.CacheTest");
        assert_eq!(all.first().map(String::as_str), Some("com.example.app.Cache"));
        assert_eq!(all.get(1).map(String::as_str), Some("java.util.C0"));
        assert_eq!(all.len(), 1 + MAX_CLASSES + 1, "{all:?}");
        assert_eq!(all.last().map(String::as_str), Some("org.lib.Pool"));
    }

    #[test]
    fn packages_tell_whose_a_class_is() {
        for (suite, package) in
            [("com.example.x.ATest", "com.example."), ("a.Test", "a."), ("Test", ""), ("", "")]
        {
            assert_eq!(package_of(suite), package);
        }
        assert!(is_of_the_jdk("int[]") && is_of_the_jdk("java.lang.String") && !is_of_the_jdk("Main"));
    }
}
