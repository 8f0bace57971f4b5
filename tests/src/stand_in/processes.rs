//! `/proc` of the device: this machine's `/proc`, limited to the processes that represent those of the device.

use std::fs;
use std::io;

use super::StandIn;
use super::files::Who;

/// Files that the shell may read for every process.
const OPEN: [&str; 4] = ["status", "stat", "statm", "cmdline"];
/// Files that belong to no process.
const GENERAL: [&str; 4] = ["/proc/net/unix", "/proc/meminfo", "/proc/version", "/proc/uptime"];

/// Reads a file below `/proc`.
pub(super) fn read(device: &StandIn, who: &Who, path: &str) -> io::Result<Vec<u8>> {
    if GENERAL.contains(&path) {
        return fs::read(path);
    }
    let (pid, name, file) = process(device, path)?;
    if !OPEN.contains(&file) && !may_look(who, &name) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    if file == "cmdline" {
        return Ok([name.as_bytes(), b"\0"].concat());
    }
    fs::read(format!("/proc/{pid}/{file}"))
}

/// Lists a folder below `/proc`.
pub(super) fn list(device: &StandIn, who: &Who, path: &str) -> io::Result<Vec<String>> {
    let (pid, name, file) = process(device, path)?;
    if !may_look(who, &name) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let entries = fs::read_dir(format!("/proc/{pid}/{file}"))?.filter_map(Result::ok);
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

/// Splits `/proc/PID/FILE`; the device must have the process.
fn process<'a>(device: &StandIn, path: &'a str) -> io::Result<(u32, String, &'a str)> {
    let parts = path.strip_prefix("/proc/").and_then(|rest| rest.split_once('/'));
    let found = parts.and_then(|(pid, file)| {
        let pid = pid.parse().ok()?;
        Some((pid, device.state().processes.get(&pid)?.clone(), file))
    });
    found.filter(|(_, _, file)| !file.contains("..")).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// An app sees its own processes: `com.example` and `com.example:remote`.
fn may_look(who: &Who, process: &str) -> bool {
    matches!(who, Who::App(package) if process.split(':').next() == Some(package))
}
