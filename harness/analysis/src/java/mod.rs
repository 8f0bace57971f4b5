//! Java suites: from class histograms to suspects, leaks and their holders.
//!
//! Data flow: `reader` stores what the frames report about the virtual machine ([`JavaRecord`] in `record`, and one
//! [`JavaWindow`] per end of a test). `series` follows every class over the ends of a test by its normalised name
//! (`names`). `rounds` compares the rounds of a screen; `replaced` finds leaks that they hide. `findings` decides which
//! classes keep growing; `held` finds their holders; `caches` knows caches with a limit. `windows` describes what the
//! build's own run left, for comparison with a baseline. `groups` joins classes that are held through one another into
//! leaks. `confirm` decides when enough was seen; `explain` chooses the classes whose holders the agent then searches.
//! `beside` compares the growth of a test class with that of its tests. `hunt` repeats test classes that are no
//! suspects. `lengths` judges a program that is a test as a whole.
//!
//! In addition, `out_of_memory` finds the window in which memory ran out and what filled the heap. `tracked_objects`
//! counts objects of tracked classes; `tracked_report` reports them.

mod beside;
mod caches;
mod confirm;
#[cfg(test)]
pub(crate) mod dsl;
mod explain;
mod findings;
mod groups;
mod held;
mod hunt;
mod lengths;
mod names;
mod one_class;
mod out_of_memory;
mod pool;
mod reader;
mod record;
mod replaced;
mod rounds;
mod series;
mod shape;
mod thread_groups;
mod tracked_objects;
mod tracked_report;
mod windows;

pub use beside::grows_beside;
pub use confirm::JavaConfirmation;
pub use explain::classes_to_explain;
pub use hunt::{JavaHunt, JavaHunted, Rare, java_hunted};
pub use out_of_memory::ran_out_of_memory;
pub use record::{Exhaustion, JavaNames, JavaRecord, JavaSnapshot, JavaWindow};
pub use replaced::grew_in_company;
pub use rounds::{
    JavaSuspect, NarrowedTests, ROUNDS_OF_LITERALS, RoundsWatch, base_of, growing_tests, left_out,
    screen_rounds,
};
pub use tracked_objects::Followed;
pub use tracked_report::followed;
pub use windows::{ClassWindow, Left, class_windows};

pub(crate) use findings::{DIRECT_BUFFER, Findings, until_full};
pub(crate) use groups::{JavaLeak, LeakedThreads, leaks};
pub(crate) use held::Noise;
pub(crate) use hunt::executions_of_window;
pub(crate) use lengths::of_lengths;
pub(crate) use names::is_made_by_machine;
pub(crate) use one_class::LITERAL_BYTES;
pub(crate) use out_of_memory::{ended_by_error, ran_out};
pub(crate) use pool::{may_fill_a_pool, started};
pub(crate) use reader::JavaReader;
pub(crate) use rounds::{failing, skipped};
pub(crate) use series::{grown, histograms, live, thread_names, totals, values};
