//! Puts the agent into processes of this machine.

use std::ffi::OsStr;
use std::path::Path;

use memgate_launch::Launch;

use memgate_wire::options::Options;

use super::options::{OPTIONS_VARIABLE, PRELOAD_VARIABLE, PreloadError, preload};

const ASAN_VARIABLE: &str = "ASAN_OPTIONS";

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use memgate_launch::{Environment, Stream, output};

    use super::*;
    use crate::device::of_tests;

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
}
