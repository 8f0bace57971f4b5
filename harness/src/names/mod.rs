//! Original names of Java programs that R8 or ProGuard renamed.
//!
//! Data flow: mapping files (of `suites.NAME.mapping`, of `--mapping`, of a session) → where there
//! are several, the one of the tested build ([`builds`]) → each read once, and kept as long as the
//! program runs → a [`Renamer`] for each stream, which takes the mapping of the suite that the
//! stream's hello names → frames with original names, before anything looks at them. So ids,
//! thresholds, waivers, baselines and reports know original names only. The stream itself keeps
//! what the agent saw; beside it the session keeps a copy of the mapping, so that it can be judged
//! again anywhere.
//!
//! Names of tests stay as they are: they are what the runner is asked for.

mod builds;
mod dump;
mod files;
mod mappings;
mod patterns;
mod rename;

pub use dump::OfDump;
pub use mappings::{Mappings, OfSuite};
pub use rename::Renamer;
