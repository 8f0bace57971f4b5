//! Original names of Java programs that R8 or ProGuard renamed.
//!
//! Data flow: mapping files (of `suites.NAME.mapping`, of `--mapping`, of a session) → with several, the one of the
//! tested build ([`builds`]) → each read once, and kept as long as the program runs → a [`Renamer`] for each stream,
//! with the mapping of the suite that the stream's hello names → frames with original names, before anything else reads
//! them. Ids, thresholds, waivers, baselines and reports therefore contain only original names. The stream itself
//! contains the names that the agent saw. The session also keeps a copy of the mapping, so that the session can be
//! judged again anywhere.
//!
//! Test names stay as they are: the runner needs them in this form.

mod builds;
mod dump;
mod files;
mod mappings;
mod patterns;
mod rename;

pub(crate) use dump::OfDump;
pub(crate) use mappings::{Mappings, OfSuite};
pub(crate) use rename::Renamer;
