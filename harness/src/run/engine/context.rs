//! Context that all commands of a run share, and why a run can stop early.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::interrupt::Interrupts;
use super::kept::KeptFiles;
use crate::exit::ExpectedError;
use crate::names::Mappings;
use crate::output::Console;
use crate::plan::Plan;
use crate::run::this_shard::ThisShard;
use crate::session::Session;

/// Context that all commands of a run share.
#[derive(Debug)]
pub(in crate::run) struct Context<'a> {
    pub(in crate::run) plan: &'a Plan,
    pub(in crate::run) session: &'a Session,
    /// Folder in the session to which repeated tests write their streams.
    pub(in crate::run) frames: PathBuf,
    pub(in crate::run) console: &'a Console,
    /// The agent's library.
    pub(in crate::run) agent: &'a Path,
    /// Folder with the jars of the agent's Java part, where a suite needs them.
    pub(in crate::run) jars: Option<&'a Path>,
    pub(in crate::run) interrupts: &'a mut Interrupts,
    /// Time between two samples.
    pub(in crate::run) interval: Duration,
    /// Original names of Java programs that were renamed (by R8 or ProGuard).
    pub(in crate::run) names: Arc<Mappings>,
    /// Open files of libraries that leak.
    pub(in crate::run) kept: Arc<KeptFiles>,
    /// Units of this shard; `None`: all.
    pub(in crate::run) this_shard: Option<&'a ThisShard>,
}

impl Context<'_> {
    /// The same context for one of several runs in parallel: each has its own interrupts.
    pub(in crate::run) fn interrupted_by<'b>(&'b self, interrupts: &'b mut Interrupts) -> Context<'b> {
        let (frames, names, kept) = (self.frames.clone(), Arc::clone(&self.names), Arc::clone(&self.kept));
        Context { frames, interrupts, names, kept, ..*self }
    }
}

/// Why a run stopped early.
#[derive(Debug)]
pub(in crate::run) enum Stopped {
    /// By the user. Everything recorded so far is in the session.
    Interrupted,
    /// By an error.
    Failed(ExpectedError),
}

impl From<ExpectedError> for Stopped {
    fn from(error: ExpectedError) -> Self {
        Self::Failed(error)
    }
}
