//! The option string (`MEMGATE_AGENT_OPTIONS`): `key=value` pairs separated by `;`, `%XX` for `;`,
//! `%`, `=` and control bytes. The harness prints it, the agent parses it.
//!
//! Parsing always succeeds and returns options. Text that was not understood becomes a complaint, and the complaint an
//! error frame. Printed options parse to the same options.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

/// The snapshots that are written at the end of a test.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Detail {
    /// Survivors of the test's window: for the screen.
    #[default]
    Survivors,
    /// Changes in the whole table since the last snapshot: for the confirmation.
    Growth,
}

impl Detail {
    const fn text(self) -> &'static str {
        match self {
            Self::Survivors => "survivors",
            Self::Growth => "growth",
        }
    }
}

/// The call stacks of native allocations that are taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StackMode {
    /// All.
    #[default]
    Always,
    /// None in tests of GoogleTest, because another run takes those of the suspects. All in other programs.
    Later,
    /// None. Only for measuring the agent.
    Never,
}

impl StackMode {
    const fn text(self) -> &'static str {
        match self {
            Self::Always => "",
            Self::Later => "later",
            Self::Never => "never",
        }
    }
}

/// When the blocks that are alive at the end of `main` are written. Exit handlers and static destructors run later.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EndOfMain {
    /// Never.
    #[default]
    Unreported,
    /// If the process has reported no test.
    WithoutTests,
    /// Always. The process is the test: tests that it reports are no boundaries.
    OfTheTest,
}

impl EndOfMain {
    const fn text(self) -> &'static str {
        match self {
            Self::Unreported => "",
            Self::WithoutTests => "without_tests",
            Self::OfTheTest => "of_the_test",
        }
    }
}

fn parse_end_of_main(value: &str) -> Option<EndOfMain> {
    [EndOfMain::WithoutTests, EndOfMain::OfTheTest].into_iter().find(|end| end.text() == value)
}

/// The processes that are tracked. In all others the agent stays dormant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Any process that contains GoogleTest.
    GoogleTest,
    /// The executable with this absolute path.
    Executable(String),
    /// Executables whose absolute path matches a pattern of `*` and `?`.
    Glob(String),
    /// Every process.
    All,
}

impl Target {
    fn text(&self) -> String {
        match self {
            Self::GoogleTest => "gtest".to_owned(),
            Self::Executable(path) => format!("exe:{path}"),
            Self::Glob(glob) => format!("glob:{glob}"),
            Self::All => "all".to_owned(),
        }
    }
}

/// How frames leave the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Carrier {
    /// A mapped spool file in the folder of the options.
    #[default]
    Spool,
    /// A Unix socket; a leading `@` means an abstract name.
    Unix(String),
    /// An abstract name made of the app and the process: see [`app_socket`].
    App,
    /// A TCP port on the loopback address.
    Tcp(u16),
}

impl Carrier {
    fn text(&self) -> String {
        match self {
            Self::Spool => String::new(),
            Self::Unix(name) => format!("unix:{name}"),
            Self::App => "app".to_owned(),
            Self::Tcp(port) => format!("tcp:127.0.0.1:{port}"),
        }
    }
}

/// After which test classes of the build's own run the agent collects and counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Windows {
    /// After none.
    #[default]
    Nowhere,
    /// As often as possible within a tenth of the time.
    Budget,
    /// After each test class: wherever the listener reports an end, as in memgate's launcher.
    Each,
    /// Once, when the virtual machine ends.
    End,
    /// According to the file with this path: `+ CLASS` where a window ends, `- CLASS` where none does; other classes
    /// by the budget.
    Listed(String),
}

impl Windows {
    fn text(&self) -> &str {
        match self {
            Self::Nowhere => "",
            Self::Budget => "budget",
            Self::Each => "each",
            Self::End => "end",
            Self::Listed(path) => path,
        }
    }
}

/// How often allocations in Java are sampled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sampling {
    /// At the virtual machine's default interval.
    #[default]
    Usual,
    /// Never.
    Off,
    /// With this many bytes between samples, on average.
    Every(u32),
}

impl Sampling {
    /// Mean bytes between samples; `None`: none are taken.
    #[must_use]
    pub const fn interval(self) -> Option<u32> {
        match self {
            Self::Usual => Some(512 << 10),
            Self::Off => None,
            Self::Every(bytes) => Some(bytes),
        }
    }

    fn text(self) -> String {
        match self {
            Self::Usual => String::new(),
            Self::Off => "off".to_owned(),
            Self::Every(bytes) => bytes.to_string(),
        }
    }
}

/// The Java objects that are followed from their allocation to their end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowOptions {
    /// Names of classes, or prefixes with a `*` at the end; a `!` in front excludes classes again. Empty: nothing is
    /// followed.
    pub classes: Vec<String>,
    /// Size of the smallest object that is followed, in bytes.
    pub at_least: u64,
    /// One object in this many is followed.
    pub every: u64,
    /// Maximum number of followed objects.
    pub at_most: u64,
}

impl Default for FollowOptions {
    fn default() -> Self {
        Self { classes: Vec::new(), at_least: 0, every: 1, at_most: 10_000_000 }
    }
}

impl FollowOptions {
    /// Is this class chosen? The last part that matches decides, so a part with `!` excludes classes that earlier parts
    /// selected.
    #[must_use]
    pub fn chooses(&self, class: &str) -> bool {
        let fits = |part: &str| match part.strip_suffix('*') {
            Some(prefix) => class.starts_with(prefix),
            None => class == part,
        };
        let parts = self.classes.iter().rev();
        let mut parts =
            parts.map(|part| part.strip_prefix('!').map_or((part.as_str(), true), |p| (p, false)));
        parts.find(|(part, _)| fits(part)).is_some_and(|(_, includes)| includes)
    }
}

/// Everything that the harness can request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Absolute folder for spools.
    pub directory: String,
    /// A process that any of these matches is tracked.
    pub targets: Vec<Target>,
    /// The data that is recorded at the end of a test.
    pub detail: Detail,
    /// Free text for the hello.
    pub label: String,
    /// The agent's longest wait for the recorder.
    pub wait: Duration,
    /// Whether a recorder watches. The agent then waits for it before `main`.
    pub harness: bool,
    /// How frames leave the process.
    pub carrier: Carrier,
    /// The app; empty: not given.
    pub package: String,
    /// The secret that a client of the socket must know.
    pub token: String,
    /// The Java part of the agent may become active.
    pub java: bool,
    /// Folder of the jars it needs.
    pub jars: String,
    /// Where windows of the build's own run end.
    pub windows: Windows,
    /// Sampling of Java allocations.
    pub sampling: Sampling,
    /// Java objects that are followed.
    pub follow: FollowOptions,
    /// Percent of the maximum heap; a heap above it causes an event; `None`: no limit.
    pub heap_limit: Option<u64>,
    /// Folder of the heap dump that this event writes; empty: none is written.
    pub heap_limit_dump: String,
    /// Folder of the heap dump that an `OutOfMemoryError` leaves; empty: none is written.
    pub heap_dump: String,
    /// Folder of the heap dump that is written when the last test is over; empty: none is written. In an app any
    /// text: the harness has the dump written.
    pub end_dump: String,
    /// Folder of the heap dump that is written at the end of the first failed test; empty: none is written.
    pub failed_dump: String,
    /// File of compiler directives that stop further compilation; empty: none.
    pub directives: String,
    /// Mean bytes between two samples of native allocations; 0: all are recorded.
    pub native_sampling: u64,
    /// The call stacks of native allocations that are taken.
    pub stacks: StackMode,
    /// The end of a test without survivors need not wait for the harness if the harness looked at the process within
    /// this time; zero: each end waits.
    pub look_lasts: Duration,
    /// When the blocks that are alive at the end of `main` are written.
    pub end_of_main: EndOfMain,
    /// The windows around tests that are reported ([`crate::setup`]); empty: none.
    pub setups: String,
    /// The list of started programs ([`crate::starts`]); empty: there is none.
    pub starts: String,
    /// Dex file with memgate's listener for an app that brings none; empty: none.
    pub dex: String,
    /// The class whose loader gets this file: the tests' runner.
    pub runner: String,
    /// The process reads its own figures of the operating system: on Android no other process may.
    pub os: bool,
    /// Every virtual machine is treated like Android's: for memgate's own tests.
    pub as_art: bool,
    /// One capture in this many is compared with the system unwinder; 0: none. A proof tool.
    pub crosscheck: u64,
    /// Text that was not understood. Not printed.
    pub complaints: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            directory: String::new(),
            targets: Vec::new(),
            detail: Detail::default(),
            label: String::new(),
            wait: Duration::from_secs(2),
            harness: false,
            carrier: Carrier::default(),
            package: String::new(),
            token: String::new(),
            java: false,
            jars: String::new(),
            windows: Windows::default(),
            sampling: Sampling::default(),
            follow: FollowOptions::default(),
            heap_limit: None,
            heap_limit_dump: String::new(),
            heap_dump: String::new(),
            end_dump: String::new(),
            failed_dump: String::new(),
            directives: String::new(),
            native_sampling: 0,
            stacks: StackMode::default(),
            look_lasts: Duration::ZERO,
            end_of_main: EndOfMain::default(),
            setups: String::new(),
            starts: String::new(),
            dex: String::new(),
            runner: String::new(),
            os: false,
            as_art: false,
            crosscheck: 0,
            complaints: Vec::new(),
        }
    }
}

impl Options {
    /// The longest wait that is accepted.
    const LONGEST_WAIT: Duration = Duration::from_secs(60);

    /// These options, overridden by those of an option string.
    #[must_use]
    pub fn parse(self, text: &str) -> Self {
        self.parse_known(text, |_| true)
    }

    /// Like [`Self::parse`], if not every option is known.
    #[must_use]
    pub fn parse_known(mut self, text: &str, is_known: impl Fn(&str) -> bool) -> Self {
        for pair in text.split(';').filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !is_known(key) || self.set(key, decode(value)).is_none() {
                self.complaints.push(format!("option `{key}` was not understood"));
            }
        }
        self
    }

    /// Sets one option. `None`: it was not understood, and changed nothing.
    pub fn set(&mut self, key: &str, value: String) -> Option<()> {
        match key {
            "dir" => self.directory = value,
            "target" => self.targets.push(parse_target(&value)?),
            "detail" => self.detail = parse_detail(&value)?,
            "label" => self.label = value,
            "wait_ms" => {
                let wait = Duration::from_millis(value.parse::<u32>().ok()?.into());
                self.wait = wait.min(Self::LONGEST_WAIT);
            }
            "harness" => self.harness = value == "1",
            "carrier" => self.carrier = parse_carrier(&value)?,
            "package" => self.package = value,
            "token" => self.token = value,
            "java" => self.java = value == "1",
            "jars" => self.jars = value,
            "windows" => self.windows = parse_windows(value),
            "sampling" if value == "off" => self.sampling = Sampling::Off,
            "sampling" => self.sampling = Sampling::Every(value.parse().ok()?),
            "follow" => self.follow.classes.extend(value.split(',').map(str::to_owned)),
            "follow_at_least" => self.follow.at_least = value.parse().ok()?,
            "follow_every" => self.follow.every = value.parse().ok().filter(|every| *every > 0)?,
            "follow_at_most" => self.follow.at_most = value.parse().ok()?,
            "heap_limit" => {
                self.heap_limit = Some(value.parse().ok().filter(|percent| (1..=99).contains(percent))?);
            }
            "heap_limit_dump" => self.heap_limit_dump = value,
            "heap_dump" => self.heap_dump = value,
            "end_dump" => self.end_dump = value,
            "failed_dump" => self.failed_dump = value,
            "directives" => self.directives = value,
            "native_sampling" => self.native_sampling = value.parse().ok()?,
            "stacks" => self.stacks = parse_stacks(&value)?,
            "look_lasts_us" => self.look_lasts = Duration::from_micros(value.parse::<u32>().ok()?.into()),
            "end_of_main" => self.end_of_main = parse_end_of_main(&value)?,
            "setup" => self.setups = value,
            "starts" => self.starts = value,
            "dex" => self.dex = value,
            "runner" => self.runner = value,
            "os" => self.os = value == "1",
            "machine" if value == "art" => self.as_art = true,
            "crosscheck" => self.crosscheck = value.parse().ok()?,
            _ => return None,
        }
        Some(())
    }
}

/// The options that differ from the agent's defaults; always the folder, the detail and the wait.
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Every field is named, so that a new option which is not printed does not compile.
        let Self {
            directory,
            targets,
            detail,
            label,
            wait,
            harness,
            carrier,
            package,
            token,
            java,
            jars,
            windows,
            sampling,
            follow,
            heap_limit,
            heap_limit_dump,
            heap_dump,
            end_dump,
            failed_dump,
            directives,
            native_sampling,
            stacks,
            look_lasts,
            end_of_main,
            setups,
            starts,
            dex,
            runner,
            os,
            as_art,
            crosscheck,
            complaints: _,
        } = self;
        write!(f, "dir={}", Escaped(directory))?;
        let mut add = |key: &str, value: &str| write!(f, ";{key}={}", Escaped(value));
        for target in targets {
            add("target", &target.text())?;
        }
        let flag = |on: bool| if on { "1" } else { "" };
        let follows = *follow != FollowOptions::default();
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let number = |told: bool, number: u64| if told { number.to_string() } else { String::new() };
        // The key, the value, and whether it is printed if empty.
        for (key, value, anyway) in [
            ("detail", detail.text(), true),
            ("label", label, false),
            ("wait_ms", &wait.as_millis().to_string(), true),
            ("harness", flag(*harness), false),
            ("carrier", &carrier.text(), false),
            ("package", package, *carrier == Carrier::App),
            ("token", token, false),
            ("java", flag(*java), false),
            ("jars", jars, *java),
            ("windows", windows.text(), false),
            ("sampling", &sampling.text(), false),
            ("follow", &follow.classes.join(","), !follow.classes.is_empty()),
            ("follow_at_least", &number(follows, follow.at_least), false),
            ("follow_every", &number(follows, follow.every), false),
            ("follow_at_most", &number(follows, follow.at_most), false),
            ("heap_limit", &number(heap_limit.is_some(), heap_limit.unwrap_or(0)), false),
            ("heap_limit_dump", heap_limit_dump, false),
            ("heap_dump", heap_dump, false),
            ("end_dump", end_dump, false),
            ("failed_dump", failed_dump, false),
            ("directives", directives, false),
            ("native_sampling", &number(*native_sampling > 0, *native_sampling), false),
            ("stacks", stacks.text(), false),
            ("look_lasts_us", &number(!look_lasts.is_zero(), micros(*look_lasts)), false),
            ("end_of_main", end_of_main.text(), false),
            ("setup", setups, false),
            ("starts", starts, false),
            ("dex", dex, false),
            ("runner", runner, false),
            ("os", flag(*os), false),
            ("machine", if *as_art { "art" } else { "" }, false),
            ("crosscheck", &number(*crosscheck > 0, *crosscheck), false),
        ] {
            if anyway || !value.is_empty() {
                add(key, value)?;
            }
        }
        Ok(())
    }
}

/// A value with its special characters written as `%XX`.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            ';' | '%' | '=' | '\0'..='\x1f' | '\x7f' => write!(f, "%{:02X}", u32::from(c)),
            c => write!(f, "{c}"),
        })
    }
}

fn parse_stacks(value: &str) -> Option<StackMode> {
    match value {
        "later" => Some(StackMode::Later),
        "never" => Some(StackMode::Never),
        _ => None,
    }
}

fn parse_detail(value: &str) -> Option<Detail> {
    match value {
        "survivors" => Some(Detail::Survivors),
        "growth" => Some(Detail::Growth),
        _ => None,
    }
}

fn parse_target(value: &str) -> Option<Target> {
    match value.split_once(':') {
        None if value == "gtest" => Some(Target::GoogleTest),
        None if value == "all" => Some(Target::All),
        Some(("exe", path)) => Some(Target::Executable(path.to_owned())),
        Some(("glob", glob)) => Some(Target::Glob(glob.to_owned())),
        _ => None,
    }
}

fn parse_carrier(value: &str) -> Option<Carrier> {
    match value.split_once(':') {
        None if value == "spool" => Some(Carrier::Spool),
        None if value == "app" => Some(Carrier::App),
        Some(("unix", path)) if !path.is_empty() => Some(Carrier::Unix(path.to_owned())),
        // Only the loopback address is accepted.
        Some(("tcp", address)) => Some(Carrier::Tcp(address.strip_prefix("127.0.0.1:")?.parse().ok()?)),
        _ => None,
    }
}

fn parse_windows(value: String) -> Windows {
    match value.as_str() {
        "" => Windows::Nowhere,
        "budget" => Windows::Budget,
        "each" => Windows::Each,
        "end" => Windows::End,
        _ => Windows::Listed(value),
    }
}

/// Longest part of a package's name in an address: 107 bytes must also hold the prefix and a process number.
const MOST_PACKAGE_BYTES: usize = 80;

/// The abstract name under which the agent of a process of an app listens.
#[must_use]
pub fn app_socket(package: &str, pid: u32) -> String {
    // Names are ASCII. Of another name, only a part that fits is used.
    let from = package.len().saturating_sub(MOST_PACKAGE_BYTES);
    let tail = (from..=package.len()).find_map(|i| package.get(i..)).unwrap_or_default();
    format!("memgate-{tail}-{pid}")
}

fn decode(value: &str) -> String {
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let hex = |b: &u8| char::from(*b).to_digit(16).and_then(|d| u8::try_from(d).ok());
        match tail {
            [high, low, after @ ..] if byte == b'%' => match (hex(high), hex(low)) {
                (Some(h), Some(l)) => {
                    out.push(h << 4 | l);
                    rest = after;
                    continue;
                }
                _ => out.push(byte),
            },
            _ => out.push(byte),
        }
        rest = tail;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Does `text` match a pattern of `*` (any bytes) and `?` (one byte)?
#[must_use]
pub fn fits(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t, mut star) = (pattern, text, None);
    loop {
        match (p.split_first(), t.split_first()) {
            (Some((b'*', p_rest)), _) => {
                star = Some((p_rest, t));
                p = p_rest;
            }
            (Some((&want, p_rest)), Some((&have, t_rest))) if want == b'?' || want == have => {
                (p, t) = (p_rest, t_rest)
            }
            (None, None) => return true,
            _ => match star {
                // Let the last star match one byte more.
                Some((after, [_, more @ ..])) => {
                    star = Some((after, more));
                    (p, t) = (after, more);
                }
                _ => return false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Options {
        Options::default().parse(text)
    }

    #[test]
    fn every_option_is_understood() {
        let text = "dir=/a%3Bb;target=gtest;target=exe:/x/y;target=glob:*_tests;target=all;detail=growth;label=confirm 3%25;\
                    wait_ms=250;harness=1;token=s3cret;carrier=unix:@name";
        let o = parse(text);
        assert_eq!(
            (o.directory.as_str(), o.label.as_str(), o.token.as_str()),
            ("/a;b", "confirm 3%", "s3cret")
        );
        let exe = Target::Executable("/x/y".to_owned());
        assert_eq!(o.targets, [Target::GoogleTest, exe, Target::Glob("*_tests".to_owned()), Target::All]);
        assert_eq!((o.detail, o.wait, o.harness), (Detail::Growth, Duration::from_millis(250), true));
        assert_eq!(o.carrier, Carrier::Unix("@name".to_owned()));
        assert!(o.complaints.is_empty(), "{:?}", o.complaints);
    }

    #[test]
    fn what_is_not_understood_is_told_and_changes_nothing() {
        for bad in [
            "nonsense",
            "wait_ms=-1",
            "detail=all",
            "target=",
            "carrier=tcp:0.0.0.0:80",
            "carrier=tcp:127.0.0.1:x",
            "=",
            "dir",
        ] {
            let o = parse(bad);
            let told = !o.complaints.is_empty();
            assert_eq!(told, bad != "dir", "{bad}");
            assert_eq!(
                (o.carrier, o.detail, o.wait),
                (Carrier::Spool, Detail::Survivors, Duration::from_secs(2)),
                "{bad}"
            );
        }
    }

    #[test]
    fn what_is_known_elsewhere_only_is_told_and_changes_nothing() {
        let o = Options::default().parse_known("starts=/x;label=y;crosscheck=0", |key| key == "label");
        assert_eq!((o.starts.as_str(), o.label.as_str()), ("", "y"));
        assert_eq!(
            o.complaints,
            ["starts", "crosscheck"].map(|key| format!("option `{key}` was not understood"))
        );
    }

    #[test]
    fn broken_escapes_stay_as_they_are() {
        for (text, want) in [
            ("%", "%"),
            ("%4", "%4"),
            ("%zz", "%zz"),
            ("a%00b", "a\0b"),
            ("%ff", "\u{fffd}"),
            ("%C3%A4", "ä"),
        ] {
            assert_eq!(parse(&format!("label={text}")).label, want);
        }
    }

    #[test]
    fn patterns_take_any_text_for_a_star() {
        for (pattern, text, want) in [
            ("*", "", true),
            ("*_tests", "/b/engine_tests", true),
            ("*_tests", "/b/engine_tests.old", false),
            ("/b/?", "/b/x", true),
            ("/b/?", "/b/", false),
            ("*a*b*c", "aabbcab", false),
            ("*a*b*c", "aabbcabc", true),
            ("", "x", false),
        ] {
            assert_eq!(fits(pattern.as_bytes(), text.as_bytes()), want, "{pattern} {text}");
        }
        let stars = "*a".repeat(40);
        assert!(!fits(stars.as_bytes(), "a".repeat(39).as_bytes()), "and in time");
    }

    #[test]
    fn an_app_listens_under_its_own_name() {
        let o = parse("carrier=app;package=com.example.app;os=1;windows=each");
        assert_eq!((o.carrier, o.package.as_str(), o.os), (Carrier::App, "com.example.app", true));
        assert_eq!(app_socket("com.example.app", 4711), "memgate-com.example.app-4711");
        // A name in the abstract space has at most 107 bytes.
        let long = app_socket(&"x".repeat(300), u32::MAX);
        assert_eq!(long, format!("memgate-{}-{}", "x".repeat(80), u32::MAX));
        assert!(long.len() <= 107);
        assert_eq!(app_socket(&"ä".repeat(60), 1).len(), "memgate--1".len() + 80);
        assert!(app_socket(&format!("a{}", "ä".repeat(50)), 1).len() <= 107);
    }

    #[test]
    fn the_last_part_that_fits_decides_what_is_followed() {
        let follow = parse("follow=a.*,!a.b.*;follow=a.b.C").follow;
        for (class, chosen) in [("a.X", true), ("a.b.X", false), ("a.b.C", true), ("b.X", false)] {
            assert_eq!(follow.chooses(class), chosen, "{class}");
        }
        assert!(!FollowOptions::default().chooses("a.X"));
    }

    prop_compose! {
        fn any_options()(
            texts in proptest::array::uniform15(any::<String>()),
            (path, glob) in any::<(String, String)>(),
            flags in any::<[bool; 5]>(),
            (wait_ms, look_us, port, interval) in (0_u32..=60_000, any::<u32>(), any::<u16>(), any::<u32>()),
            classes in proptest::collection::vec("[^,]+", 0..3),
            (at_least, every, at_most, crosscheck) in (any::<u64>(), 1_u64.., any::<u64>(), any::<u64>()),
            native_sampling in any::<u64>(),
            heap_limit in proptest::option::of(1_u64..=99),
            (carrier, windows, sampling, stacks, end) in (0_usize..4, 0_usize..5, 0_usize..3, 0_usize..3, 0_usize..3),
        ) -> Options {
            let [directory, label, package, token, jars, heap_limit_dump, heap_dump, end_dump, failed_dump, directives, setups, starts, dex, runner, name] = texts;
            let [harness, java, os, as_art, growth] = flags;
            let targets = [Target::GoogleTest, Target::Executable(path), Target::Glob(glob), Target::All];
            Options {
                targets: targets.into_iter().skip(classes.len()).collect(),
                detail: if growth { Detail::Growth } else { Detail::Survivors },
                wait: Duration::from_millis(wait_ms.into()),
                look_lasts: Duration::from_micros(look_us.into()),
                carrier: match carrier {
                    0 => Carrier::Spool,
                    1 => Carrier::App,
                    2 => Carrier::Tcp(port),
                    _ => Carrier::Unix(format!("@{name}")),
                },
                windows: [Windows::Nowhere, Windows::Budget, Windows::Each, Windows::End, Windows::Listed(format!("/{name}"))][windows].clone(),
                stacks: [StackMode::Always, StackMode::Later, StackMode::Never][stacks],
                end_of_main: [EndOfMain::Unreported, EndOfMain::WithoutTests, EndOfMain::OfTheTest][end],
                sampling: [Sampling::Usual, Sampling::Off, Sampling::Every(interval)][sampling],
                follow: FollowOptions { classes, at_least, every, at_most },
                directory, label, harness, package, token, java, jars, heap_limit, heap_limit_dump, heap_dump,
                end_dump, failed_dump, directives, native_sampling, setups, starts, dex, runner, os, as_art, crosscheck,
                complaints: Vec::new(),
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_parses_to_the_same(options in any_options()) {
            prop_assert_eq!(parse(&options.to_string()), options);
        }

        #[test]
        fn any_text_becomes_options_that_are_printed_and_parsed_again(text in "(([a-z_]{2,10}|target|follow|wait_ms)=[^;]{0,9};?){0,9}") {
            let options = Options { complaints: Vec::new(), ..parse(&text) };
            prop_assert_eq!(parse(&options.to_string()), options);
        }
    }
}
