//! The tests that an executable lists.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use memgate_analysis::Window;
use memgate_launch::Launch;

use crate::run::engine::Finished;
use crate::suite::gtest;

/// Longest time an executable may take to list its tests.
pub(in crate::run::runners) const LIST_TIMEOUT: Duration = Duration::from_secs(60);

/// The tests of the executables of one suite, by process of the screen, listed when the first is
/// needed.
#[derive(Debug, Default)]
pub(super) struct AllTests(BTreeMap<usize, Vec<String>>);

impl AllTests {
    /// What `process` lists and what was seen to run. A listing is text: a name with a line break
    /// in it spoils what follows, and a program may refuse to list.
    pub(super) async fn of(&mut self, index: usize, process: &Finished) -> &[String] {
        if let Entry::Vacant(entry) = self.0.entry(index) {
            let listing = gtest::list(process.hello(), process.environment().map(Vec::as_slice));
            let mut all = gtest::list_tests(listing, LIST_TIMEOUT).await.unwrap_or_default();
            for test in process.record.windows.iter().filter(|w| !w.is_setup()).map(Window::id) {
                if !all.contains(&test) {
                    all.push(test);
                }
            }
            entry.insert(all);
        }
        &self.0[&index]
    }
}

/// The listing of what this very process was to run: with its filter.
pub(in crate::run::runners) fn listing(process: &Finished) -> Launch {
    let mut listing = gtest::list(process.hello(), process.environment().map(Vec::as_slice));
    let is_filter = |argument: &&String| {
        argument.trim_start_matches('-').starts_with("gtest_filter=") || gtest::is_our_selection(argument)
    };
    listing.arguments.extend(process.hello().arguments.iter().filter(is_filter).map(Into::into));
    let filter = process.environment().and_then(|all| all.iter().find(|(name, _)| name == "GTEST_FILTER"));
    if let Some((name, value)) = filter {
        listing.environment.set(name.clone(), value.clone());
    }
    listing
}
