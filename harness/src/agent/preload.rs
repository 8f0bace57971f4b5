//! Puts the agent into processes of this machine.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use memgate_launch::Launch;

use memgate_wire::options::Options;

use super::options::OPTIONS_VARIABLE;

/// The variable through which the dynamic linker loads the agent.
pub const PRELOAD_VARIABLE: &str = "LD_PRELOAD";
const ASAN_VARIABLE: &str = "ASAN_OPTIONS";

/// Why the agent cannot be preloaded from its path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("preload {}: the dynamic linker splits LD_PRELOAD at spaces and colons", .0.display())]
pub struct PreloadError(pub PathBuf);

/// Preloads the agent into the process that `launch` starts, and its descendants.
///
/// # Errors
/// When the agent's path cannot be preloaded.
pub fn with_agent(launch: &mut Launch, agent: &Path, options: &Options) -> Result<(), PreloadError> {
    let existing = launch.environment.get(OsStr::new(PRELOAD_VARIABLE));
    let value = preload(agent, existing.as_deref())?;
    launch.environment.set(PRELOAD_VARIABLE.into(), value);
    // AddressSanitizer ends programs that load another library before its own. Ours forwards to it, so this is
    // harmless.
    let mut asan = launch.environment.get(OsStr::new(ASAN_VARIABLE)).unwrap_or_default();
    if !asan.is_empty() {
        asan.push(":");
    }
    asan.push("verify_asan_link_order=0");
    launch.environment.set(ASAN_VARIABLE.into(), asan);
    launch.environment.set(OPTIONS_VARIABLE.into(), options.to_string().into());
    Ok(())
}

/// The value of `LD_PRELOAD` with the agent before all existing entries.
///
/// # Errors
/// When the dynamic linker would split the path.
pub fn preload(agent: &Path, existing: Option<&OsStr>) -> Result<OsString, PreloadError> {
    let ours = agent.as_os_str();
    if ours.as_bytes().iter().any(|b| matches!(b, b' ' | b':')) {
        return Err(PreloadError(agent.into()));
    }
    let mut value = ours.to_os_string();
    let existing = existing.unwrap_or_default().as_bytes();
    for other in
        existing.split(|b| matches!(b, b' ' | b':')).filter(|o| !o.is_empty() && *o != ours.as_bytes())
    {
        value.push(":");
        value.push(OsStr::from_bytes(other));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use memgate_launch::{Environment, Stream, output};

    use super::*;
    use crate::agent::of_tests;

    #[tokio::test]
    async fn the_agent_is_put_before_what_is_preloaded_already() {
        let script = "echo $LD_PRELOAD; echo $MEMGATE_AGENT_OPTIONS; echo $0";
        let mut launch = Launch::new("sh", ["-c", script]);
        launch.stdout = Stream::Capture { limit: 1000 };
        launch.arg0 = Some("other name".into());
        launch.environment = Environment::Exactly(vec![
            ("LD_PRELOAD".into(), "".into()),
            ("PATH".into(), "/usr/bin:/bin".into()),
        ]);
        with_agent(&mut launch, Path::new("/nowhere/agent.so"), &of_tests(Path::new("/frames"))).unwrap();
        let printed = output(launch, Duration::from_secs(20)).await.unwrap().stdout;
        let options = "dir=/frames;target=gtest;detail=survivors;wait_ms=2000;harness=1";
        let want = format!("/nowhere/agent.so\n{options}\nother name\n");
        assert_eq!(String::from_utf8(printed).unwrap(), want);
    }

    #[test]
    fn the_agent_comes_first_and_only_once() {
        let agent = Path::new("/c/agent.so");
        for (existing, want) in [
            (None, "/c/agent.so"),
            (Some(""), "/c/agent.so"),
            (Some("/x.so"), "/c/agent.so:/x.so"),
            (Some("/x.so:/c/agent.so /y.so"), "/c/agent.so:/x.so:/y.so"),
        ] {
            assert_eq!(preload(agent, existing.map(OsStr::new)).unwrap(), want, "{existing:?}");
        }
        let text = preload(Path::new("/my cache/a.so"), None).unwrap_err().to_string();
        assert_eq!(text, "preload /my cache/a.so: the dynamic linker splits LD_PRELOAD at spaces and colons");
    }
}
