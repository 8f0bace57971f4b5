//! A virtual machine as the boundaries see it: it collects, counts, and tells of itself. HotSpot
//! ([`super::vm`]) and Android's runtime ([`super::art`]) answer the same questions in different
//! ways.

use core::fmt;

use jni::Env;
pub(crate) use memgate_wire::hotspot::ClassInstances as Live;
use memgate_wire::java::JavaState;

/// Why an answer is missing.
pub(crate) enum Failure {
    /// A call into Java failed.
    Java(jni::errors::Error),
    /// The tool interface refused.
    Tools(memgate_jvmti::Error),
    /// A class histogram without its end.
    Cut,
}

impl From<jni::errors::Error> for Failure {
    fn from(why: jni::errors::Error) -> Self {
        Self::Java(why)
    }
}

impl From<memgate_jvmti::Error> for Failure {
    fn from(why: memgate_jvmti::Error) -> Self {
        Self::Tools(why)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Java(why) => why.fmt(f),
            Self::Tools(why) => why.fmt(f),
            Self::Cut => f.write_str("the class histogram has no end"),
        }
    }
}

/// The questions. None of them leaves an exception behind for the guest.
pub(crate) trait Machine: Send + Sync {
    /// Collects what is garbage, and counts what is alive.
    fn histogram(&self, env: &mut Env<'_>) -> Result<Vec<Live>, Failure>;

    /// The same in rounds, without what goes by itself: what is held softly, and what finalizers and cleaners are about
    /// to let go. It would seem to grow here, and to hide growth in the next window.
    fn settled_histogram(&self, env: &mut Env<'_>) -> Result<Vec<Live>, Failure> {
        self.histogram(env)
    }

    /// What it says of itself now. What it does not answer stays open.
    fn state(&self, env: &mut Env<'_>) -> JavaState;

    /// Waits until the references that the last collection cleared are in their queues. A thread of
    /// the runtime takes them there, as soon as it gets a processor: a cache that looks into its
    /// queue in the next iteration would be emptied sooner or later.
    fn wait_for_references(&self, env: &mut Env<'_>);

    /// Name of the collector, empty where it is not told.
    fn collector(&self) -> &str;

    /// Options it was started with.
    fn arguments(&self) -> &[String];

    /// Makes it say less about the agent's wish to hear of errors for lack of memory, and write a
    /// dump to this place then; empty: none.
    fn watch_memory(&self, env: &mut Env<'_>, dump: &str) -> Result<(), Failure>;

    /// Adds the compiler directives of this file; returns what it says to that.
    fn direct_compilers(&self, env: &mut Env<'_>, file: &str) -> Result<String, Failure>;

    /// Writes a dump of what is alive to this place; returns what it says to that.
    fn dump_heap(&self, env: &mut Env<'_>, place: &str) -> Result<String, Failure>;
}

/// Runs `work` in a local frame; no exception is left behind for the guest.
pub(super) fn clearing<T>(
    env: &mut Env<'_>,
    work: impl FnOnce(&mut Env<'_>) -> Result<T, jni::errors::Error>,
) -> Result<T, Failure> {
    let result = env.with_local_frame(16, work);
    if result.is_err() {
        env.exception_clear();
    }
    Ok(result?)
}
