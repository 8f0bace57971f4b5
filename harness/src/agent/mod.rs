//! How the agent gets into a process of this machine: the library that this program carries ([`embedded`]), its options
//! in the environment, and the dynamic linker, which preloads it.
//!
//! Java virtual machines load it with options of their own ([`hotspot`](crate::hotspot)); apps on a device get it over
//! adb ([`device`](crate::device)).

pub(crate) mod embedded;
mod options;
mod preload;

pub use options::{OPTIONS_VARIABLE, look, of_java, of_tests, text};
pub use preload::{PRELOAD_VARIABLE, PreloadError, preload, with_agent};
