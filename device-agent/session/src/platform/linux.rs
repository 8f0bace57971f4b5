//! Linux: options come from the environment, or from the file that a virtual machine's option
//! names.

use core::ffi::CStr;
use std::ffi::CString;

use memgate_ffi::process;
use memgate_wire::Runtime;
use memgate_wire::options::Options;

const OPTIONS: &CStr = c"MEMGATE_AGENT_OPTIONS";

/// What runs here, for the hello.
pub(crate) const ABI: &str = "x86_64-linux-gnu";
pub(crate) const RUNTIME_OF_JAVA: Runtime = Runtime::HotSpot;

/// What the environment says. `None`, without having allocated anything: nothing.
pub fn options_at_load(has_room: impl FnOnce() -> bool) -> Option<String> {
    if !process::has_variable(OPTIONS) || !has_room() {
        return None;
    }
    process::variable(OPTIONS)
}

/// The options of this text.
pub fn parse(text: &str) -> Options {
    Options::default().parse(text)
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
///
/// # Errors
/// What they see all the same, and why.
pub fn leave_environment() -> Result<(), String> {
    if !process::has_variable(OPTIONS) {
        return Ok(());
    }
    let own = process::path_of(leave_environment as fn() -> Result<(), String> as usize);
    let preloaded = process::variable(c"LD_PRELOAD").unwrap_or_default();
    let others = preloaded.split([':', ' ']).filter(|path| !path.is_empty() && *path != own);
    let others = CString::new(others.collect::<Vec<_>>().join(":")).unwrap_or_default();
    let others = (!others.is_empty()).then_some(others);
    for (name, value) in [(c"LD_PRELOAD", others.as_deref()), (OPTIONS, None)] {
        process::set_variable(name, value)
            .map_err(|why| format!("tests see memgate's {}: {why}", name.to_string_lossy()))?;
    }
    Ok(())
}

/// May a peer with this user id speak at all?
pub(crate) const fn may_speak(user: u32, own: u32) -> bool {
    user == 0 || user == own
}
