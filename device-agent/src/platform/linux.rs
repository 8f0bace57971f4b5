//! Linux: options come from the environment, or from the file that a virtual machine's option names.

use memgate_ffi::process;
use memgate_tracker::cfi::FindObject;
use memgate_wire::Runtime;

use crate::entry;
use crate::options::Options;

/// What runs here, for the hello.
pub(crate) const ABI: &str = "x86_64-linux-gnu";
pub(crate) const RUNTIME_OF_JAVA: Runtime = Runtime::HotSpot;

/// What the environment says. `None`, without having allocated anything: nothing.
pub(crate) fn options_at_load(has_room: impl FnOnce() -> bool) -> Option<String> {
    if !process::has_variable(c"MEMGATE_AGENT_OPTIONS") || !has_room() {
        return None;
    }
    process::variable(c"MEMGATE_AGENT_OPTIONS")
}

/// The options in the file that a virtual machine's option names.
pub(crate) fn options_of(file: &str) -> Option<Options> {
    let text = std::fs::read_to_string(file).ok()?;
    Some(Options::parse(text.trim_end())).filter(|options| options.java)
}

/// The options say everything there is to say.
pub(crate) const fn complete(_: &mut Options) {}

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
