//! What the agent is told through the environment.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use memgate_wire::options::{self, Carrier, FollowOptions, Options, Sampling};

use super::socket::Endpoint;

pub use memgate_wire::options::Detail;

/// The variable that carries the agent's options.
pub const OPTIONS_VARIABLE: &str = "MEMGATE_AGENT_OPTIONS";

/// The variable by which the dynamic linker learns of the agent.
pub const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// The processes the agent wakes up in; in all others it stays dormant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Any executable in which GoogleTest is recognised.
    GTest,
    /// This executable, by its exact absolute path.
    Executable(PathBuf),
    /// Executables whose absolute path matches.
    Glob(String),
    /// Every process.
    All,
}

/// The agent's options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentOptions {
    /// Absolute folder for spools.
    pub directory: PathBuf,
    /// Any of these matches.
    pub targets: Vec<Target>,
    /// What is recorded.
    pub detail: Detail,
    /// Free text for the hello.
    pub label: String,
    /// Whether a recorder watches: the agent then waits for it before `main`.
    pub harness: bool,
    /// How long the agent waits for the recorder at most.
    pub wait: Duration,
    /// Where the agent listens; `None`: it writes a spool.
    pub carrier: Option<Endpoint>,
    /// The secret a client of the socket must know.
    pub token: Option<String>,
    /// Folder of the jars: the agent may wake up in Java virtual machines that run tests, and only
    /// there.
    pub java: Option<PathBuf>,
    /// Where the build's own run of a JVM suite is measured.
    pub windows: Windows,
    /// What the agent looks at in Java virtual machines; `None`: its defaults.
    pub look: Option<JavaLook>,
    /// Compiler directives for when `order::COMPILED` comes.
    pub directives: Option<PathBuf>,
    /// What is alive where `main` ends is recorded, too.
    pub end_of_main: bool,
    /// Which windows around tests are recorded (`memgate_wire::setup`):
    /// [`EACH`](memgate_wire::setup::EACH) that left something, or one, by its id.
    pub setup: Option<String>,
    /// The list in which processes note what they start (`memgate_wire::starts`).
    pub starts: Option<PathBuf>,
    /// A dex file on the device with memgate's listener, and the class of the tests' runner, whose
    /// class loader gets it.
    pub listener: Option<(String, String)>,
}

/// What the agent looks at beside the classes of the heap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JavaLook {
    /// Mean bytes between sampled allocations; `None`: none are sampled.
    pub sampling: Option<u32>,
    /// Classes that are followed, as the user wrote them.
    pub follow: Vec<String>,
    /// Bytes of the smallest followed object.
    pub follow_at_least: u64,
    /// One object of so many.
    pub follow_every: u32,
    /// Objects that are followed at most.
    pub follow_at_most: u32,
    /// Percent of the largest heap whose use is an event, and the folder of the heap dump that is
    /// written then.
    pub heap_limit: Option<(u32, Option<PathBuf>)>,
    /// Folder of the heap dump that an `OutOfMemoryError` leaves.
    pub heap_dump: Option<PathBuf>,
}

/// Behind which test classes of the build's own run the agent collects and counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Windows {
    /// Behind none.
    #[default]
    Nowhere,
    /// As often as costs a tenth of the time.
    Budget,
    /// As this file says: `+ CLASS` where a window ends, `- CLASS` where none does; others by the
    /// budget.
    Listed(PathBuf),
    /// Behind each.
    Each,
    /// Once, as the virtual machine ends.
    End,
}

/// Why the agent cannot be preloaded from where it lies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("preload {}: the dynamic linker splits LD_PRELOAD at spaces and colons", .0.display())]
pub struct PreloadError(pub PathBuf);

impl AgentOptions {
    /// Options for the screen of GoogleTest executables, watched by a recorder.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            targets: vec![Target::GTest],
            detail: Detail::Survivors,
            label: String::new(),
            harness: true,
            wait: Duration::from_secs(2),
            carrier: None,
            token: None,
            java: None,
            windows: Windows::Nowhere,
            look: None,
            directives: None,
            end_of_main: false,
            setup: None,
            starts: None,
            listener: None,
        }
    }

    /// Options for the Java virtual machines that run tests.
    #[must_use]
    pub fn of_java(directory: impl Into<PathBuf>, jars: impl Into<PathBuf>) -> Self {
        Self { targets: Vec::new(), java: Some(jars.into()), ..Self::new(directory) }
    }

    /// The value of [`OPTIONS_VARIABLE`].
    #[must_use]
    pub fn to_env(&self) -> OsString {
        self.told().to_string().into()
    }

    /// As the agent reads them. It takes no path that is not UTF-8.
    fn told(&self) -> Options {
        let text = |path: &PathBuf| path.to_string_lossy().into_owned();
        let told = |path: &Option<PathBuf>| path.as_ref().map(text).unwrap_or_default();
        let (carrier, package) = match &self.carrier {
            None => (Carrier::Spool, String::new()),
            Some(Endpoint::Unix(path)) => (Carrier::Unix(text(path)), String::new()),
            Some(Endpoint::Abstract(name)) => (Carrier::Unix(format!("@{name}")), String::new()),
            Some(Endpoint::Tcp(address)) => (Carrier::Tcp(address.port()), String::new()),
            Some(Endpoint::App { package, .. }) => (Carrier::App, package.clone()),
        };
        let target = |target: &Target| match target {
            Target::GTest => options::Target::GoogleTest,
            Target::Executable(path) => options::Target::Executable(text(path)),
            Target::Glob(glob) => options::Target::Glob(glob.clone()),
            Target::All => options::Target::All,
        };
        let (dex, runner) = self.listener.clone().unwrap_or_default();
        let mut options = Options {
            directory: text(&self.directory),
            targets: self.targets.iter().map(target).collect(),
            detail: self.detail,
            label: self.label.clone(),
            wait: self.wait,
            harness: self.harness,
            carrier,
            package,
            token: self.token.clone().unwrap_or_default(),
            java: self.java.is_some(),
            jars: told(&self.java),
            windows: match &self.windows {
                Windows::Nowhere => options::Windows::Nowhere,
                Windows::Budget => options::Windows::Budget,
                Windows::Each => options::Windows::Each,
                Windows::End => options::Windows::End,
                Windows::Listed(path) => options::Windows::Listed(text(path)),
            },
            directives: told(&self.directives),
            end_of_main: self.end_of_main,
            setups: self.setup.clone().unwrap_or_default(),
            starts: told(&self.starts),
            dex,
            runner,
            ..Options::default()
        };
        if let Some(look) = &self.look {
            options.sampling = look.sampling.map_or(Sampling::Off, Sampling::Every);
            options.heap_dump = told(&look.heap_dump);
            if let Some((percent, dump)) = &look.heap_limit {
                options.heap_limit = Some((*percent).into());
                options.heap_limit_dump = told(dump);
            }
            if !look.follow.is_empty() {
                options.follow = FollowOptions {
                    classes: look.follow.clone(),
                    at_least: look.follow_at_least,
                    every: look.follow_every.into(),
                    at_most: look.follow_at_most.into(),
                };
            }
        }
        options
    }
}

/// The value of `LD_PRELOAD` that puts the agent before everything that is there already.
///
/// # Errors
/// A path that the dynamic linker would split.
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
        let value = AgentOptions::new("/tmp/frames").to_env();
        assert_eq!(value, "dir=/tmp/frames;target=gtest;detail=survivors;wait_ms=2000;harness=1");
    }

    #[test]
    fn every_option_is_told_and_what_would_end_it_is_escaped() {
        let options = AgentOptions {
            directory: "/a;b=c%dä".into(),
            targets: vec![Target::Executable("/bin/x y".into()), Target::Glob("*/t?".into()), Target::All],
            detail: Detail::Growth,
            label: "confirm\n3".into(),
            harness: false,
            wait: Duration::ZERO,
            carrier: Some(Endpoint::Abstract("gate".into())),
            token: Some("t=1".into()),
            java: Some("/c/jars".into()),
            windows: Windows::Budget,
            look: Some(JavaLook {
                sampling: None,
                follow: vec!["a.*".into(), "!a.B".into()],
                follow_at_least: 64,
                follow_every: 3,
                follow_at_most: 9,
                heap_limit: Some((80, Some("/d".into()))),
                heap_dump: Some("/s".into()),
            }),
            directives: Some("/f/1.directives".into()),
            end_of_main: true,
            setup: Some("A.SetUpTestSuite()".into()),
            starts: Some("/f/starts".into()),
            listener: Some(("/data/l.dex".into(), "a.Runner".into())),
        };
        let want = "dir=/a%3Bb%3Dc%25dä;target=exe:/bin/x y;target=glob:*/t?;target=all;detail=growth;\
            label=confirm%0A3;wait_ms=0;carrier=unix:@gate;token=t%3D1;\
            java=1;jars=/c/jars;windows=budget;\
            sampling=off;follow=a.*,!a.B;follow_at_least=64;follow_every=3;follow_at_most=9;\
            heap_limit=80;heap_limit_dump=/d;heap_dump=/s;directives=/f/1.directives;end_of_main=1;setup=A.SetUpTestSuite();starts=/f/starts;dex=/data/l.dex;runner=a.Runner";
        assert_eq!(options.to_env(), want);
    }

    #[test]
    fn an_agent_in_an_app_listens_where_its_package_and_process_say() {
        let options = AgentOptions {
            carrier: Some(Endpoint::App { package: "com.example".into(), found: String::new() }),
            token: Some("t".into()),
            windows: Windows::Each,
            ..AgentOptions::of_java("", "")
        };
        let want = "dir=;detail=survivors;wait_ms=2000;harness=1;carrier=app;package=com.example;token=t;java=1;jars=;windows=each";
        assert_eq!(options.to_env(), want);
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
