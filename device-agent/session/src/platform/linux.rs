//! Linux: options come from the environment, or from the file that a virtual machine's option
//! names.

use core::ffi::CStr;
use std::ffi::CString;

use memgate_ffi::process;
use memgate_tracker::cfi::FindObject;
use memgate_wire::options::Options;
use memgate_wire::{LogLevel, Runtime};

use crate::{entry, session};

const OPTIONS: &CStr = c"MEMGATE_AGENT_OPTIONS";

/// What runs here, for the hello.
pub(crate) const ABI: &str = "x86_64-linux-gnu";
pub(crate) const RUNTIME_OF_JAVA: Runtime = Runtime::HotSpot;

/// What the environment says. `None`, without having allocated anything: nothing.
pub(crate) fn options_at_load(has_room: impl FnOnce() -> bool) -> Option<String> {
    if !process::has_variable(OPTIONS) || !has_room() {
        return None;
    }
    process::variable(OPTIONS)
}

/// The options of this text.
pub(crate) fn parse(text: &str) -> Options {
    Options::default().parse(text)
}

/// The options in the file that a virtual machine's option names.
pub(crate) fn options_of(file: &str) -> Option<Options> {
    let text = std::fs::read_to_string(file).ok()?;
    Some(parse(text.trim_end())).filter(|options| options.java)
}

/// The options say everything there is to say.
pub(crate) const fn complete(_: &mut Options) {}

/// A virtual machine that is loading an agent, and was started with it preloaded: its tests, and
/// what they start, find the environment as it would be without us. No code of Java's runs yet.
pub(crate) fn leave_environment() {
    if !process::has_variable(OPTIONS) {
        return;
    }
    let own = process::path_of(leave_environment as fn() as usize);
    let preloaded = process::variable(c"LD_PRELOAD").unwrap_or_default();
    let others = preloaded.split([':', ' ']).filter(|path| !path.is_empty() && *path != own);
    let others = CString::new(others.collect::<Vec<_>>().join(":")).unwrap_or_default();
    let others = (!others.is_empty()).then_some(others);
    for (name, value) in [(c"LD_PRELOAD", others.as_deref()), (OPTIONS, None)] {
        if let Err(why) = process::set_variable(name, value) {
            session::log(LogLevel::Warn, &format!("tests see memgate's {}: {why}", name.to_string_lossy()));
        }
    }
}

/// May a peer with this user id speak at all?
pub(crate) const fn may_speak(user: u32, own: u32) -> bool {
    user == 0 || user == own
}

/// glibc's lookup of unwind tables.
pub(crate) fn find_object() -> Option<FindObject> {
    entry::find_object()
}

/// Top of the main thread's stack; 0: unknown.
pub(crate) fn stack_end() -> usize {
    entry::stack_end()
}
