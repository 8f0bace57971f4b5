//! Boundaries in GoogleTest binaries are not taken on Android: apps' tests come from Java, and the
//! C API is there for others.

/// Is GoogleTest in this process? It is not looked for.
pub(crate) const fn is_present(_executable: &str, _is_shared: bool) -> bool {
    false
}

/// Appends no listener.
pub(crate) const fn install(_executable: &str, _is_shared: bool) -> Result<(), &'static str> {
    Err("on Android they come from the test runner or the C API")
}

/// Does the agent hear of the end of each iteration?
pub(crate) const fn hears_of_ends() -> bool {
    false
}

/// Does the agent itself listen to GoogleTest?
pub(crate) const fn is_installed() -> bool {
    false
}

/// Does this stack belong to an object of GoogleTest's own?
pub(crate) const fn is_its_own(_stack: u32) -> bool {
    false
}
