//! Linux: options come from the environment, or from the file that a virtual machine's option
//! names.

use core::ffi::CStr;
use core::fmt::Display;
use std::ffi::CString;

use memgate_ffi::process;
use memgate_wire::Runtime;
use memgate_wire::options::Options;

use super::parse;

const OPTIONS: &CStr = c"MEMGATE_AGENT_OPTIONS";

/// What runs here, for the hello.
#[cfg(target_arch = "aarch64")]
pub(crate) const ABI: &str = "aarch64-linux-gnu";
#[cfg(target_arch = "x86_64")]
pub(crate) const ABI: &str = "x86_64-linux-gnu";
pub(crate) const RUNTIME_OF_JAVA: Runtime = Runtime::HotSpot;

/// What the environment says. `None`, without having allocated anything: nothing.
pub fn options_at_load(has_room: impl FnOnce() -> bool) -> Option<String> {
    if !process::has_variable(OPTIONS) || !has_room() {
        return None;
    }
    process::variable(OPTIONS)
}

/// The options in the file that a virtual machine's option names.
pub fn options_of(file: &str) -> Option<Options> {
    let text = std::fs::read_to_string(file).ok()?;
    Some(parse(text.trim_end())).filter(|options| options.java)
}

/// The options say everything there is to say.
pub const fn complete(_: &mut Options) {}

/// A virtual machine that is loading an agent, and was started with it preloaded: its tests, and
/// what they start, find the environment as it would be without us. No code of Java's runs yet.
/// Returns what they see all the same, and why.
#[must_use]
pub fn leave_environment() -> Vec<String> {
    if !process::has_variable(OPTIONS) {
        return Vec::new();
    }
    let own = process::path_of(leave_environment as fn() -> Vec<String> as usize);
    let preloaded = process::variable(c"LD_PRELOAD").unwrap_or_default();
    let others = preloaded.split([':', ' ']).filter(|path| !path.is_empty() && *path != own);
    let others = CString::new(others.collect::<Vec<_>>().join(":")).unwrap_or_default();
    let others = (!others.is_empty()).then_some(others);
    set_each(&[(c"LD_PRELOAD", others.as_deref()), (OPTIONS, None)], process::set_variable)
}

/// Sets all that can be set; returns why the others cannot.
fn set_each<E: Display>(
    variables: &[(&CStr, Option<&CStr>)],
    set: impl Fn(&CStr, Option<&CStr>) -> Result<(), E>,
) -> Vec<String> {
    let seen = |name: &CStr, why: E| format!("tests see memgate's {}: {why}", name.to_string_lossy());
    variables.iter().filter_map(|&(name, value)| set(name, value).err().map(|why| seen(name, why))).collect()
}

/// May a peer with this user id speak at all?
pub(crate) const fn may_speak(user: u32, own: u32) -> bool {
    user == 0 || user == own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_cannot_be_set_does_not_keep_the_next_one() {
        let told = set_each(&[(c"A", None), (c"B", None)], |_, _| Err("no room"));
        assert_eq!(told, ["tests see memgate's A: no room", "tests see memgate's B: no room"]);
    }
}
