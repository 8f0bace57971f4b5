//! Loads the agent into Java virtual machines: one of their options names the library and a file with the agent's
//! options.
//!
//! A build starts its virtual machines itself, so the option is passed in `JAVA_TOOL_OPTIONS`. Every virtual machine
//! prints that variable, so it contains only the two paths.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use memgate_wire::options::Options;

/// The variable with options for every Java virtual machine.
pub(crate) const TOOL_OPTIONS: &str = "JAVA_TOOL_OPTIONS";

/// Why the agent cannot be named in an option.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AgentPathError {
    /// The text after the first `=` is the agent's option string.
    #[error("load {0}: a Java virtual machine ends the agent's path at `=`")]
    Equals(String),
    /// A quote cannot be escaped.
    #[error("load {0}: JAVA_TOOL_OPTIONS cannot hold a path with quotes")]
    Quote(String),
}

/// The option of a virtual machine that loads the agent.
///
/// # Errors
/// When the path of the agent contains `=`.
pub(crate) fn agent_option(agent: &Path, options_file: &Path) -> Result<OsString, AgentPathError> {
    if agent.as_os_str().as_bytes().contains(&b'=') {
        return Err(AgentPathError::Equals(agent.display().to_string()));
    }
    let mut option = OsString::from("-agentpath:");
    option.push(agent);
    option.push("=");
    option.push(options_file);
    Ok(option)
}

/// The value of [`TOOL_OPTIONS`] with `option` after the existing options.
///
/// # Errors
/// When the option cannot be written there.
pub(crate) fn with_option(existing: Option<&OsStr>, option: &OsStr) -> Result<OsString, AgentPathError> {
    let existing = existing.unwrap_or_default().as_bytes();
    let gap: &[u8] = if existing.is_empty() { b"" } else { b" " };
    Ok(OsString::from_vec([existing, gap, &quoted(option)?].concat()))
}

/// The value of [`TOOL_OPTIONS`] as it was before [`with_option`]; `None`: it was not set.
#[must_use]
pub(crate) fn without_option(value: &OsStr, option: &OsStr) -> Option<OsString> {
    let Ok(ours) = quoted(option) else { return Some(value.to_owned()) };
    let bytes = value.as_bytes();
    let Some(before) = bytes.strip_suffix(ours.as_slice()) else { return Some(value.to_owned()) };
    let before = before.strip_suffix(b" ").unwrap_or(before);
    (!before.is_empty()).then(|| OsString::from_vec(before.to_vec()))
}

/// The virtual machine splits the variable at white space outside of quotes.
fn quoted(option: &OsStr) -> Result<Vec<u8>, AgentPathError> {
    let bytes = option.as_bytes();
    if bytes.iter().any(|b| matches!(b, b'"' | b'\'' | b'\n' | b'\r')) {
        return Err(AgentPathError::Quote(option.to_string_lossy().into_owned()));
    }
    if bytes.iter().any(u8::is_ascii_whitespace) {
        return Ok([b"\"", bytes, b"\""].concat());
    }
    Ok(bytes.to_vec())
}

/// Writes the agent's options to a file that only we can read.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write_options(path: &Path, options: &Options) -> io::Result<()> {
    write_private(path, format!("{options}\n").as_bytes())
}

/// Writes a file that only we can read.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::agent::of_java;

    #[test]
    fn the_option_is_put_behind_the_users_own_and_taken_away_again() {
        let option = agent_option(Path::new("/c/agent.so"), Path::new("/s 1/options")).unwrap();
        assert_eq!(option, "-agentpath:/c/agent.so=/s 1/options");
        for (before, with) in [
            (None, "\"-agentpath:/c/agent.so=/s 1/options\""),
            (Some("-Da=b"), "-Da=b \"-agentpath:/c/agent.so=/s 1/options\""),
        ] {
            let value = with_option(before.map(OsStr::new), &option).unwrap();
            assert_eq!(value, with);
            assert_eq!(without_option(&value, &option), before.map(Into::into));
        }
        assert_eq!(without_option(OsStr::new("-Dx"), &option), Some("-Dx".into()), "not ours: stays");
    }

    #[test]
    fn what_cannot_be_told_is_refused() {
        assert!(agent_option(Path::new("/c=d/agent.so"), Path::new("/s")).is_err());
        let option = agent_option(Path::new("/c/agent.so"), Path::new("/it's")).unwrap();
        assert!(with_option(None, &option).is_err());
    }

    #[test]
    fn the_options_are_for_our_eyes_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("options");
        let options = Options { token: "secret".into(), ..of_java(Path::new("/f"), Path::new("/j")) };
        write_options(&path, &options).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(std::fs::read_to_string(&path).unwrap().contains(";token=secret;java=1;jars=/j\n"));
    }
}
