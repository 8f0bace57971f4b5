//! What the agent is told through the environment.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::socket::Endpoint;

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

/// What is recorded at the end of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// What the test left behind: for the screen.
    Survivors,
    /// What changed since the end before: for the confirmation.
    Growth,
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
    /// Frames of a stack at most; `None`: the agent's default.
    pub stack_depth: Option<u32>,
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
            stack_depth: None,
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
        let Self {
            directory,
            targets,
            detail,
            label,
            harness,
            wait,
            stack_depth,
            carrier,
            token,
            java,
            windows,
            look,
            directives,
            end_of_main,
            setup,
            starts,
            listener,
        } = self;
        let mut value = Pairs::default();
        value.add("dir", directory.as_os_str().as_bytes());
        for target in targets {
            match target {
                Target::GTest => value.add("target", b"gtest"),
                Target::Executable(path) => {
                    value.add("target", &[b"exe:", path.as_os_str().as_bytes()].concat())
                }
                Target::Glob(glob) => value.add("target", format!("glob:{glob}").as_bytes()),
                Target::All => value.add("target", b"all"),
            }
        }
        value.add("detail", if *detail == Detail::Growth { b"growth" } else { b"survivors" });
        if !label.is_empty() {
            value.add("label", label.as_bytes());
        }
        value.add("wait_ms", wait.as_millis().to_string().as_bytes());
        if *harness {
            value.add("harness", b"1");
        }
        if let Some(depth) = stack_depth {
            value.add("stack_depth", depth.to_string().as_bytes());
        }
        if let Some(carrier) = carrier {
            value.add("carrier", carrier.to_string().as_bytes());
            if let Endpoint::App { package, .. } = carrier {
                value.add("package", package.as_bytes());
            }
        }
        if let Some(token) = token {
            value.add("token", token.as_bytes());
        }
        if let Some(jars) = java {
            value.add("java", b"1");
            value.add("jars", jars.as_os_str().as_bytes());
        }
        match windows {
            Windows::Nowhere => {}
            Windows::Budget => value.add("windows", b"budget"),
            Windows::Each => value.add("windows", b"each"),
            Windows::End => value.add("windows", b"end"),
            Windows::Listed(path) => value.add("windows", path.as_os_str().as_bytes()),
        }
        if let Some(look) = look {
            look.add_to(&mut value);
        }
        if let Some(directives) = directives {
            value.add("directives", directives.as_os_str().as_bytes());
        }
        if *end_of_main {
            value.add("end_of_main", b"1");
        }
        if let Some(setup) = setup {
            value.add("setup", setup.as_bytes());
        }
        if let Some(starts) = starts {
            value.add("starts", starts.as_os_str().as_bytes());
        }
        if let Some((dex, runner)) = listener {
            value.add("dex", dex.as_bytes());
            value.add("runner", runner.as_bytes());
        }
        OsString::from_vec(value.0)
    }
}

impl JavaLook {
    fn add_to(&self, value: &mut Pairs) {
        let Self { sampling, follow, follow_at_least, follow_every, follow_at_most, heap_limit, heap_dump } =
            self;
        value
            .add("sampling", sampling.map_or_else(|| "off".to_owned(), |bytes| bytes.to_string()).as_bytes());
        if !follow.is_empty() {
            value.add("follow", follow.join(",").as_bytes());
            value.add("follow_at_least", follow_at_least.to_string().as_bytes());
            value.add("follow_every", follow_every.to_string().as_bytes());
            value.add("follow_at_most", follow_at_most.to_string().as_bytes());
        }
        if let Some((percent, dump)) = heap_limit {
            value.add("heap_limit", percent.to_string().as_bytes());
            if let Some(folder) = dump {
                value.add("heap_limit_dump", folder.as_os_str().as_bytes());
            }
        }
        if let Some(folder) = heap_dump {
            value.add("heap_dump", folder.as_os_str().as_bytes());
        }
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

/// `key=value;key=value`, with the characters that mean something written as `%XX`.
#[derive(Default)]
struct Pairs(Vec<u8>);

impl Pairs {
    fn add(&mut self, key: &str, value: &[u8]) {
        if !self.0.is_empty() {
            self.0.push(b';');
        }
        self.0.extend_from_slice(key.as_bytes());
        self.0.push(b'=');
        for byte in value {
            match byte {
                b';' | b'%' | b'=' | 0..=0x1f | 0x7f => {
                    self.0.extend_from_slice(format!("%{byte:02X}").as_bytes())
                }
                _ => self.0.push(*byte),
            }
        }
    }
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
            directory: PathBuf::from(OsString::from_vec(b"/a;b=c%d\xff".to_vec())),
            targets: vec![Target::Executable("/bin/x y".into()), Target::Glob("*/t?".into()), Target::All],
            detail: Detail::Growth,
            label: "confirm\n3".into(),
            harness: false,
            wait: Duration::ZERO,
            stack_depth: Some(64),
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
        let want: &[u8] =
            b"dir=/a%3Bb%3Dc%25d\xff;target=exe:/bin/x y;target=glob:*/t?;target=all;detail=growth;\
            label=confirm%0A3;wait_ms=0;stack_depth=64;carrier=unix:@gate;token=t%3D1;\
            java=1;jars=/c/jars;windows=budget;\
            sampling=off;follow=a.*,!a.B;follow_at_least=64;follow_every=3;follow_at_most=9;\
            heap_limit=80;heap_limit_dump=/d;heap_dump=/s;directives=/f/1.directives;end_of_main=1;setup=A.SetUpTestSuite();starts=/f/starts;dex=/data/l.dex;runner=a.Runner";
        assert_eq!(options.to_env().as_bytes(), want, "{:?}", options.to_env());
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
