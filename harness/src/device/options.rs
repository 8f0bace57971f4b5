//! Creates the agent's options in the environment. [`memgate_wire::options`] defines the format and the possible
//! options.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use memgate_config::MeasureJava;
use memgate_wire::options::{FollowOptions, Options, Sampling, Target};

/// The variable with the agent's options.
pub const OPTIONS_VARIABLE: &str = "MEMGATE_AGENT_OPTIONS";

/// The variable through which the dynamic linker loads the agent.
pub const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// Why the agent cannot be preloaded from its path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("preload {}: the dynamic linker splits LD_PRELOAD at spaces and colons", .0.display())]
pub struct PreloadError(pub PathBuf);

/// Options for screening GoogleTest executables with a recorder.
#[must_use]
pub fn of_tests(frames: &Path) -> Options {
    let targets = vec![Target::GoogleTest];
    Options { directory: text(frames), targets, harness: true, ..Options::default() }
}

/// Options for the Java virtual machines that run tests.
#[must_use]
pub fn of_java(frames: &Path, jars: &Path) -> Options {
    Options { targets: Vec::new(), java: true, jars: text(jars), ..of_tests(frames) }
}

/// Sets what is measured besides the heap's classes; `follow` are the classes whose objects are followed.
pub fn look(options: &mut Options, java: &MeasureJava, follow: Vec<String>) {
    options.sampling = java.sampling.map_or(Sampling::Off, Sampling::Every);
    if !follow.is_empty() {
        options.follow = FollowOptions {
            classes: follow,
            at_least: java.follow_at_least,
            every: java.follow_every.into(),
            at_most: java.follow_at_most.into(),
        };
    }
}

/// A path in the form for the agent: it cannot use one that is not UTF-8.
#[must_use]
pub fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
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
    use super::*;

    #[test]
    fn the_defaults_are_those_of_a_screen() {
        let value = of_tests(Path::new("/tmp/frames")).to_string();
        assert_eq!(value, "dir=/tmp/frames;target=gtest;detail=survivors;wait_ms=2000;harness=1");
    }

    #[test]
    fn java_is_looked_at_as_the_user_wrote() {
        let java =
            MeasureJava { sampling: None, follow_at_least: 64, follow_every: 3, ..MeasureJava::default() };
        let mut options = of_java(Path::new("/f"), Path::new("/c/jars"));
        look(&mut options, &java, Vec::new());
        let begins = "dir=/f;detail=survivors;wait_ms=2000;harness=1;java=1;jars=/c/jars;sampling=off";
        assert_eq!(options.to_string(), begins);
        look(&mut options, &java, vec!["a.*".into(), "!a.B".into()]);
        let follow =
            format!("{begins};follow=a.*,!a.B;follow_at_least=64;follow_every=3;follow_at_most=10000000");
        assert_eq!(options.to_string(), follow);
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
