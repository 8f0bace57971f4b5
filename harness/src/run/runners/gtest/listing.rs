//! The tests that an executable lists.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use memgate_analysis::Window;
use memgate_launch::Launch;
use tokio::sync::Mutex;

use crate::run::engine::Finished;
use crate::suite::gtest;

/// Longest time an executable may take to list its tests.
pub(in crate::run::runners) const LIST_TIMEOUT: Duration = Duration::from_secs(60);

/// The tests of the executables of one suite, by process of the screening pass. Listed when first needed.
#[derive(Debug, Default)]
pub(super) struct AllTests(Mutex<BTreeMap<usize, Arc<[String]>>>);

impl AllTests {
    /// The tests that `process` lists, and those that were seen to run. A listing is text: a line break in a name
    /// spoils the following lines, and a program may refuse to list.
    pub(super) async fn of(&self, index: usize, process: &Finished) -> Arc<[String]> {
        // Locked during the listing: others that need it wait for this listing.
        let mut known = self.0.lock().await;
        if let Some(all) = known.get(&index) {
            return Arc::clone(all);
        }
        let listing = gtest::list(process.hello(), process.environment().map(Vec::as_slice));
        let mut all = gtest::list_tests(listing, LIST_TIMEOUT).await.unwrap_or_default();
        for test in process.record.windows.iter().filter(|w| !w.is_setup()).map(Window::id) {
            if !all.contains(&test) {
                all.push(test);
            }
        }
        let all: Arc<[String]> = all.into();
        known.insert(index, Arc::clone(&all));
        all
    }
}

/// The command that lists the tests which this process was to run, with its filter.
pub(in crate::run::runners) fn listing(process: &Finished) -> Launch {
    let mut listing = gtest::list(process.hello(), process.environment().map(Vec::as_slice));
    let is_filter = |argument: &&String| gtest::selects_tests(argument) || gtest::is_our_selection(argument);
    listing.arguments.extend(process.hello().arguments.iter().filter(is_filter).map(Into::into));
    let filter = process.environment().and_then(|all| all.iter().find(|(name, _)| name == "GTEST_FILTER"));
    if let Some((name, value)) = filter {
        listing.environment.set(name.clone(), value.clone());
    }
    listing
}
