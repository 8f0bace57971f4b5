//! What differs between the platforms: where options come from, what the process is called, where
//! stacks begin.

#[cfg(target_os = "android")]
mod android;
#[cfg(not(target_os = "android"))]
mod linux;
// Pure, so that its tests run everywhere: see `tests/options.rs`.
#[cfg(target_os = "android")]
mod places;

#[cfg(target_os = "android")]
pub(crate) use android::{
    ABI, RUNTIME_OF_JAVA, complete, find_object, leave_environment, may_speak, options_at_load, options_of,
    parse, stack_end,
};
#[cfg(not(target_os = "android"))]
pub(crate) use linux::{
    ABI, RUNTIME_OF_JAVA, complete, find_object, leave_environment, may_speak, options_at_load, options_of,
    parse, stack_end,
};
