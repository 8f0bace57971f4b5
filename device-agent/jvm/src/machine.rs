//! A virtual machine as the boundaries see it: it collects, counts, and reports its state. HotSpot ([`super::vm`])
//! and Android's runtime ([`super::art`]) answer the same questions in different ways.

use core::fmt;

use jni::Env;
pub(crate) use memgate_wire::hotspot::ClassInstances as Live;
use memgate_wire::java::JavaState;

/// Why an answer is missing.
pub(crate) enum Failure {
    /// A call into Java failed.
    Java(jni::errors::Error),
    /// JVMTI refused.
    Tools(memgate_jvmti::Error),
    /// The class histogram is cut off.
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

/// Questions to a virtual machine. No answer leaves a pending exception for the guest.
pub(crate) trait Machine: Send + Sync {
    /// Collects garbage, and counts live objects.
    fn histogram(&self, env: &mut Env<'_>) -> Result<Vec<Live>, Failure>;

    /// Like [`Self::histogram`], for rounds: without objects that disappear by themselves, which are those held softly,
    /// and those that finalizers and cleaners are about to release. Such objects would look like growth here, and hide
    /// growth in the next window.
    fn settled_histogram(&self, env: &mut Env<'_>) -> Result<Vec<Live>, Failure> {
        self.histogram(env)
    }

    /// Its current state. Values that it does not know stay empty.
    fn state(&self, env: &mut Env<'_>) -> JavaState;

    /// Waits until the references that the last collection cleared are in their queues. A thread of the runtime puts
    /// them there as soon as it gets a processor. Without this wait, a cache that reads its queue in the next
    /// iteration would be emptied sooner or later.
    fn wait_for_references(&self, env: &mut Env<'_>);

    /// Name of the collector, empty if unknown.
    fn collector(&self) -> &str;

    /// Options it was started with.
    fn arguments(&self) -> &[String];

    /// Keeps the virtual machine from printing a line when it reports an out-of-memory error to the agent, and makes it
    /// write a dump to this path on such an error; empty: no dump.
    fn watch_memory(&self, env: &mut Env<'_>, dump: &str) -> Result<(), Failure>;

    /// Adds the compiler directives of this file; returns the answer.
    fn direct_compilers(&self, env: &mut Env<'_>, file: &str) -> Result<String, Failure>;

    /// Writes a dump of the live objects to this path; returns the answer.
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
