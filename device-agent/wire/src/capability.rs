//! Capabilities of the agent in a process: the names in [`crate::Hello::capabilities`], which the agent writes and the
//! harness reads.

/// The hooks see native allocations.
pub const NATIVE_LIVE: &str = "native.live";

/// Native allocations have their stacks.
pub const NATIVE_STACKS: &str = "native.stacks";

/// The agent takes no stacks of the tests' allocations: another run takes those of the suspects.
pub const STACKS_LATER: &str = "native.stacks.later";

/// One byte in this many is noted: the interval follows ([`crate::sampling`]).
pub const NATIVE_SAMPLED: &str = "native.sampled=";

/// The agent can make a copy of the process ([`crate::native_holders`]).
pub const NATIVE_COPY: &str = "native.copy";

/// Java's live objects are counted by class.
pub const JAVA_HISTOGRAM: &str = "java.histogram";

/// GoogleTest's listener reports where tests begin and end.
pub const GTEST: &str = "boundary.gtest";

/// JUnit's listener reports where tests begin and end.
pub const JUNIT: &str = "boundary.junit";

/// The program can report through the C API where its tests begin and end.
pub const C_API: &str = "boundary.c_api";

/// The frameworks whose listeners report tests. If one is offered, the program itself does not use [`C_API`] for
/// them.
pub const LISTENERS: [&str; 2] = [GTEST, JUNIT];

/// Not every end of a test waits for the harness.
pub const LOOKS_NOW_AND_THEN: &str = "boundary.now_and_then";

/// An event of this name reports that all tests of a GoogleTest round have run. A process that ends before has not
/// run them all.
pub const ROUND_ENDS: &str = "boundary.round_ends";

/// An event of this name reports that a listener of the test framework let the test fail that has just ended.
pub const FAILED_BY_LISTENER: &str = "boundary.failed_by_listener";

/// The harness read figures of the operating system from `/proc`.
pub const OS: &str = "os";
