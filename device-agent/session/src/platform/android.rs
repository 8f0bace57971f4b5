//! Android: the system attaches an agent without options, so the agent looks for them.
//!
//! Data flow: the text of the entry is the options, or names a file or a data folder → else the environment
//! (`wrap.sh`) → else the file `memgate.options` ([`places`]; one that a harness left behind does not count) → then
//! single options from system properties `debug.memgate.*`. adb's shell may set these properties and every app may read
//! them, so they count only if `debug.memgate.package` names this app.

use std::ffi::CString;

use memgate_ffi::process;
use memgate_wire::Runtime;
use memgate_wire::options::{Carrier, Options, Target};

use super::{parse, places};

/// The platform, for the hello.
#[cfg(target_arch = "aarch64")]
pub(crate) const ABI: &str = "aarch64-linux-android";
#[cfg(target_arch = "x86_64")]
pub(crate) const ABI: &str = "x86_64-linux-android";
pub(crate) const RUNTIME_OF_JAVA: Runtime = Runtime::Art;

/// adbd's user, unless it runs as root: the user of connections through adb.
const SHELL: u32 = 2000;
/// Options that a property can set.
const BY_PROPERTY: [&str; 14] = [
    "carrier",
    "detail",
    "dir",
    "follow",
    "follow_at_least",
    "follow_at_most",
    "follow_every",
    "harness",
    "java",
    "label",
    "target",
    "token",
    "wait_ms",
    "windows",
];

/// The app of this process.
fn package() -> String {
    places::package_of(&command_line())
}

fn command_line() -> Vec<u8> {
    std::fs::read("/proc/self/cmdline").unwrap_or_default()
}

/// The options of a process that was started with the agent. Properties are for users without a file, so they are
/// read last.
pub fn options_at_load(has_room: impl FnOnce() -> bool) -> Option<String> {
    // If the agent is loaded later, the entry point that follows reports it.
    if !is_preloaded() || !has_room() || !memgate_tracker::has_thread_words() {
        return None;
    }
    process::variable(c"MEMGATE_AGENT_OPTIONS").or_else(from_files).or(Some(String::new()))
}

/// The options to which an entry's text leads. `None`: no options were given.
pub fn options_of(text: &str) -> Option<Options> {
    let given = if places::is_options(text) { Some(text.to_owned()) } else { from_path(text) };
    let found = given.or_else(|| process::variable(c"MEMGATE_AGENT_OPTIONS")).or_else(from_files);
    let mut options = parse(found.as_deref().unwrap_or_default().trim_end());
    let is_awaited = options.harness;
    complete(&mut options);
    // No harness looks for this process.
    if is_awaited && !options.harness {
        return None;
    }
    // An agent that is attached to a Java runtime measures Java.
    options.java = true;
    (!options.directory.is_empty() || options.carrier != Carrier::Spool).then_some(options)
}

fn from_path(path: &str) -> Option<String> {
    if path.is_empty() {
        return None;
    }
    // A folder cannot be read.
    written_in(path).or_else(|| written_in(&places::in_data(path)))
}

fn from_files() -> Option<String> {
    let library = process::path_of(package as fn() -> String as usize);
    let files = places::option_files(&library, &package(), process::user_id());
    files.iter().find_map(|file| written_in(file))
}

/// The options of a file. If its harness was killed, nobody removed it.
fn written_in(file: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let written = std::fs::metadata(file).and_then(|about| about.modified());
    // A clock that was set back gives no age.
    let age = written.ok().and_then(|at| at.elapsed().ok());
    (!places::is_left_behind(&parse(text.trim_end()), age)).then_some(text)
}

/// Adds data that the text did not contain: the app's name, and the options from properties.
pub fn complete(options: &mut Options) {
    if options.package.is_empty() {
        options.package = package();
    }
    // The system loads the agent into all processes of the app. The others would wait at their start.
    options.harness &= !places::is_other(&command_line(), &options.package);
    // The runtime's own program becomes an app. Java starts later, and the agent is then attached to it.
    options.java |=
        std::fs::read_link("/proc/self/exe").is_ok_and(|exe| exe.to_string_lossy().contains("/app_process"));
    if options.targets.is_empty() {
        // An app's `wrap.sh` starts no other program.
        options.targets.push(Target::All);
    }
    let meant = process::property(c"debug.memgate.package");
    if meant.is_empty() || meant != "*" && meant != options.package {
        return;
    }
    for key in BY_PROPERTY {
        let Ok(name) = CString::new(format!("debug.memgate.{key}")) else { continue };
        let value = process::property(&name);
        if !value.is_empty() && options.set(key, value).is_none() {
            options.complaints.push(format!("property `debug.memgate.{key}` was not understood"));
        }
    }
}

/// Changes nothing, because `wrap.sh` set its variables for the whole app.
pub const fn leave_environment(_: Option<&str>) -> Vec<String> {
    Vec::new()
}

/// May a peer with this user id connect?
pub(crate) const fn may_speak(user: u32, own: u32) -> bool {
    user == 0 || user == own || user == SHELL
}

/// Was the library preloaded, so that allocations go through it?
fn is_preloaded() -> bool {
    let first = process::symbol(c"malloc");
    process::object_of(first) == process::object_of(package as fn() -> String as usize)
}
