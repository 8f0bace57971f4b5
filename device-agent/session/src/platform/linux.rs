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
/// The variable in which a build's virtual machine finds its agent.
const TOOL_OPTIONS: &CStr = c"JAVA_TOOL_OPTIONS";

/// The platform, for the hello.
#[cfg(target_arch = "aarch64")]
pub(crate) const ABI: &str = "aarch64-linux-gnu";
#[cfg(target_arch = "x86_64")]
pub(crate) const ABI: &str = "x86_64-linux-gnu";
pub(crate) const RUNTIME_OF_JAVA: Runtime = Runtime::HotSpot;

/// The options in the environment. `None`: there are none, and nothing was allocated.
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

/// Changes nothing, because the options are already complete.
pub const fn complete(_: &mut Options) {}

/// A virtual machine is loading the agent: its tests, and processes they start, get the environment as it would be
/// without the agent. No Java code runs yet. The option with this text is removed too, if no child process is to be
/// measured. Returns the variables that they still see, and why.
#[must_use]
pub fn leave_environment(option: Option<&str>) -> Vec<String> {
    let own = process::path_of(leave_environment as fn(Option<&str>) -> Vec<String> as usize);
    let value = |text: String| CString::new(text).unwrap_or_default();
    let mut seen = Vec::new();
    let option = option.map(|text| format!("-agentpath:{own}={text}"));
    let others = process::variable(TOOL_OPTIONS).zip(option);
    if let Some(others) = others.and_then(|(options, ours)| without_option(&options, &ours)) {
        let others = value(others);
        let others = (!others.is_empty()).then_some(others.as_c_str());
        seen.extend(set_each(&[(TOOL_OPTIONS, others)], process::set_variable));
    }
    if process::has_variable(OPTIONS) {
        let preloaded = process::variable(c"LD_PRELOAD").unwrap_or_default();
        let others = preloaded.split([':', ' ']).filter(|path| !path.is_empty() && *path != own);
        let others = value(others.collect::<Vec<_>>().join(":"));
        let others = (!others.is_empty()).then_some(others.as_c_str());
        seen.extend(set_each(&[(c"LD_PRELOAD", others), (OPTIONS, None)], process::set_variable));
    }
    seen
}

/// The options of a variable without ours, which is quoted if it has blanks. `None` if ours is not among them, or the
/// value is not text.
fn without_option(options: &str, ours: &str) -> Option<String> {
    let (before, after) = options.rsplit_once(ours).filter(|_| !options.contains('\u{fffd}'))?;
    let unquoted = before.strip_suffix('"').zip(after.strip_prefix('"'));
    let (before, after) = unquoted.unwrap_or((before, after));
    let others = [before.trim_end(), after.trim_start()];
    Some(others.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" "))
}

/// Sets all variables that can be set; returns why the others could not be set.
fn set_each<E: Display>(
    variables: &[(&CStr, Option<&CStr>)],
    set: impl Fn(&CStr, Option<&CStr>) -> Result<(), E>,
) -> Vec<String> {
    let seen = |name: &CStr, why: E| format!("tests see memgate's {}: {why}", name.to_string_lossy());
    variables.iter().filter_map(|&(name, value)| set(name, value).err().map(|why| seen(name, why))).collect()
}

/// May a peer with this user id connect?
pub(crate) const fn may_speak(user: u32, own: u32) -> bool {
    user == 0 || user == own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_options_of_virtual_machines_stay() {
        for (options, others) in [
            ("-agentpath:/a.so=/o", Some("")),
            ("-Du=1 -agentpath:/a.so=/o", Some("-Du=1")),
            ("-Du=1 -agentpath:/a.so=/o -Dv=2", Some("-Du=1 -Dv=2")),
            ("-Du=1 -agentpath:/other.so=/o", None),
            ("-Du=\u{fffd} -agentpath:/a.so=/o", None),
        ] {
            assert_eq!(without_option(options, "-agentpath:/a.so=/o").as_deref(), others, "{options}");
        }
        let quoted = without_option("'-Du=1 2' \"-agentpath:/a b.so=/o\"", "-agentpath:/a b.so=/o");
        assert_eq!(quoted.as_deref(), Some("'-Du=1 2'"));
    }

    #[test]
    fn a_variable_that_cannot_be_set_does_not_keep_the_next_one() {
        let told = set_each(&[(c"A", None), (c"B", None)], |_, _| Err("no room"));
        assert_eq!(told, ["tests see memgate's A: no room", "tests see memgate's B: no room"]);
    }
}
