//! GoogleTest boundaries are not supported on Android: apps' tests come from Java, and other programs can use the C
//! API.

/// Is GoogleTest in this process? Always false, because it is not searched.
pub(crate) const fn is_present(_executable: &str, _is_shared: bool) -> bool {
    false
}

/// Appends no listener.
pub(crate) const fn install(_executable: &str, _is_shared: bool) -> Result<(), &'static str> {
    Err("on Android they come from the test runner or the C API")
}

/// Does the agent receive the end of each iteration?
pub(crate) const fn hears_of_ends() -> bool {
    false
}

/// Does the agent itself listen to GoogleTest?
pub(crate) const fn is_installed() -> bool {
    false
}

/// Does this stack belong to an object that GoogleTest made for itself?
pub(crate) const fn is_its_own(_stack: u32) -> bool {
    false
}
