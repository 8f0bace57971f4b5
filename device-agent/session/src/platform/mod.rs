//! What differs between the platforms: where options come from, and what the process is called.

#[cfg(target_os = "android")]
mod android;
#[cfg(not(target_os = "android"))]
mod linux;
#[cfg(any(target_os = "android", test))]
mod places;

#[cfg(target_os = "android")]
use android as here;
#[cfg(not(target_os = "android"))]
use linux as here;

pub(crate) use here::{ABI, RUNTIME_OF_JAVA, may_speak};
pub use here::{complete, leave_environment, options_at_load, options_of, parse};
