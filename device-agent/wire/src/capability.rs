//! What a process can do: the names in [`crate::Hello::capabilities`], which the agent writes and the harness
//! looks for.

/// The hooks see native allocations.
pub const NATIVE_LIVE: &str = "native.live";

/// Native allocations have their stacks.
pub const NATIVE_STACKS: &str = "native.stacks";

/// It takes no stacks of its allocations: a run of the suspects does.
pub const STACKS_LATER: &str = "native.stacks.later";

/// One byte in so many is noted: the interval follows ([`crate::sampling`]).
pub const NATIVE_SAMPLED: &str = "native.sampled=";

/// The agent can make a copy of the process ([`crate::native_holders`]).
pub const NATIVE_COPY: &str = "native.copy";

/// Java's live objects are counted by class.
pub const JAVA_HISTOGRAM: &str = "java.histogram";

/// GoogleTest's listener tells where tests begin and end.
pub const GTEST: &str = "boundary.gtest";

/// JUnit's listener tells where tests begin and end.
pub const JUNIT: &str = "boundary.junit";

/// The program can tell by the C API where its tests begin and end.
pub const C_API: &str = "boundary.c_api";

/// The frameworks whose listeners tell of tests. Where one is offered, the program itself does not use [`C_API`] for
/// them.
pub const LISTENERS: [&str; 2] = [GTEST, JUNIT];

/// Not every end of a test waits for the harness.
pub const LOOKS_NOW_AND_THEN: &str = "boundary.now_and_then";

/// It tells when all tests of a round of GoogleTest have run, by an event of this name: a process that ends before has
/// not run them all.
pub const ROUND_ENDS: &str = "boundary.round_ends";

/// The harness read figures of the operating system from `/proc`.
pub const OS: &str = "os";
