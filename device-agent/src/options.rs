//! The option string (`MEMGATE_AGENT_OPTIONS`): `key=value` pairs separated by `;`, `%XX` for `;`,
//! `%`, `=` and control bytes.
//!
//! Total: whatever stands in it, options come out; what was not understood becomes an error frame.

use core::time::Duration;

/// Which snapshots are written at the end of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Survivors of the test's window.
    Survivors,
    /// What changed in the whole table since the last snapshot.
    Growth,
}

/// Which processes are tracked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// Any in which GoogleTest is found.
    GoogleTest,
    /// The executable with this absolute path.
    Executable(String),
    /// Executables whose absolute path fits a pattern of `*` and `?`.
    Glob(String),
    /// Every process.
    All,
}

/// How frames leave the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CarrierKind {
    /// A mapped spool file in `dir`.
    Spool,
    /// A Unix socket; a leading `@` means an abstract name.
    Unix(String),
    /// An abstract name that tells the app and the process: see [`app_socket`].
    App,
    /// A TCP port on the loopback address.
    Tcp(u16),
}

/// Which Java objects are followed from their allocation to their end.
#[derive(Debug, Clone)]
pub(crate) struct FollowOptions {
    /// Names of classes, or beginnings of them with a `*` behind; with a `!` before, what is left
    /// out again. Empty: nothing is followed.
    pub(crate) classes: Vec<String>,
    /// Bytes of the smallest object that counts.
    pub(crate) at_least: u64,
    /// One of so many.
    pub(crate) every: u64,
    /// Objects in all.
    pub(crate) at_most: u64,
}

/// Everything the harness can ask for.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) directory: String,
    pub(crate) targets: Vec<Target>,
    pub(crate) detail: Detail,
    pub(crate) label: String,
    pub(crate) wait: Duration,
    pub(crate) harness: bool,
    pub(crate) token: String,
    /// The Java part may wake up.
    pub(crate) java: bool,
    /// Folder of the jars it needs.
    pub(crate) jars: String,
    /// Where windows of the build's own run end: see `jvm::pace`; `each`: wherever the listener
    /// says, as in memgate's launcher.
    pub(crate) windows: String,
    /// Mean bytes between sampled allocations in Java; `None`: none are sampled.
    pub(crate) sampling: Option<u32>,
    pub(crate) follow: FollowOptions,
    /// Folder of the heap dump that an `OutOfMemoryError` leaves; empty: none is written.
    pub(crate) heap_dump: String,
    /// Percent of the largest heap whose use is an event; `None`: no limit.
    pub(crate) heap_limit: Option<u64>,
    /// Folder of the heap dump that is written then; empty: none is.
    pub(crate) heap_limit_dump: String,
    /// File of compiler directives, for when nothing more is to be compiled; empty: none.
    pub(crate) directives: String,
    pub(crate) carrier: CarrierKind,
    /// The process reads its own figures of the operating system: nobody else may on Android.
    pub(crate) os: bool,
    /// Dex file with memgate's listener for an app that brings none, and the signature of the class
    /// beside which it belongs: the tests' runner. Empty: none.
    pub(crate) dex: String,
    pub(crate) runner: String,
    /// Any virtual machine is asked as Android's is: for memgate's own tests.
    pub(crate) as_art: bool,
    /// The app; empty: not told.
    pub(crate) package: String,
    /// One capture in this many is compared with the system unwinder; 0: none.
    #[cfg(feature = "crosscheck")]
    pub(crate) crosscheck: u64,
    /// What is alive where `main` ends is written, too: static destructors come later.
    #[cfg(not(target_os = "android"))]
    pub(crate) end_of_main: bool,
    /// The list of programs that are started (`memgate_wire::starts`); empty: there is none.
    #[cfg(not(target_os = "android"))]
    pub(crate) starts: String,
    /// Which windows around tests are told (`memgate_wire::setup`); empty: none.
    pub(crate) setups: String,
    /// What was not understood.
    pub(crate) complaints: Vec<String>,
}

impl Options {
    /// Reads an option string.
    pub(crate) fn parse(text: &str) -> Self {
        let mut options = Self {
            directory: String::new(),
            targets: Vec::new(),
            detail: Detail::Survivors,
            label: String::new(),
            wait: Duration::from_secs(2),
            harness: false,
            token: String::new(),
            java: false,
            jars: String::new(),
            windows: String::new(),
            sampling: Some(512 << 10),
            follow: FollowOptions { classes: Vec::new(), at_least: 0, every: 1, at_most: 10_000_000 },
            heap_dump: String::new(),
            heap_limit: None,
            heap_limit_dump: String::new(),
            directives: String::new(),
            carrier: CarrierKind::Spool,
            os: cfg!(target_os = "android"),
            dex: String::new(),
            runner: String::new(),
            as_art: false,
            package: String::new(),
            #[cfg(feature = "crosscheck")]
            crosscheck: 0,
            #[cfg(not(target_os = "android"))]
            end_of_main: false,
            #[cfg(not(target_os = "android"))]
            starts: String::new(),
            setups: String::new(),
            complaints: Vec::new(),
        };
        for pair in text.split(';').filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !options.set(key, decode(value)) {
                options.complaints.push(format!("option `{key}` was not understood"));
            }
        }
        options
    }

    /// Takes one option over. False: it was not understood, and changed nothing.
    pub(crate) fn set(&mut self, key: &str, value: String) -> bool {
        match key {
            "machine" => match value.as_str() {
                "art" => self.as_art = true,
                _ => return false,
            },
            "package" => self.package = value,
            "dex" => self.dex = value,
            "runner" => self.runner = format!("L{};", value.replace('.', "/")),
            "os" => self.os = value == "1",
            "dir" => self.directory = value,
            #[cfg(not(target_os = "android"))]
            "starts" => self.starts = value,
            #[cfg(not(target_os = "android"))]
            "end_of_main" => self.end_of_main = value == "1",
            "setup" => self.setups = value,
            "label" => self.label = value,
            "token" => self.token = value,
            "java" => self.java = value == "1",
            "jars" => self.jars = value,
            "windows" => self.windows = value,
            "sampling" => match (value.as_str(), value.parse()) {
                ("off", _) => self.sampling = None,
                (_, Ok(bytes)) => self.sampling = Some(bytes),
                _ => return false,
            },
            "follow" => self.follow.classes.extend(value.split(',').map(str::to_owned)),
            "follow_at_least" => return set_number(&mut self.follow.at_least, &value),
            "follow_every" => {
                let good = set_number(&mut self.follow.every, &value) && self.follow.every > 0;
                self.follow.every = self.follow.every.max(1);
                return good;
            }
            "follow_at_most" => return set_number(&mut self.follow.at_most, &value),
            "heap_dump" => self.heap_dump = value,
            "heap_limit" => match value.parse() {
                Ok(percent @ 1..=99) => self.heap_limit = Some(percent),
                _ => return false,
            },
            "heap_limit_dump" => self.heap_limit_dump = value,
            "directives" => self.directives = value,
            "harness" => self.harness = value == "1",
            "detail" => match value.as_str() {
                "survivors" => self.detail = Detail::Survivors,
                "growth" => self.detail = Detail::Growth,
                _ => return false,
            },
            "wait_ms" => match value.parse::<u32>() {
                Ok(ms) => self.wait = Duration::from_millis(ms.min(60_000).into()),
                Err(_) => return false,
            },
            #[cfg(feature = "crosscheck")]
            "crosscheck" => match value.parse() {
                Ok(every) => self.crosscheck = every,
                Err(_) => return false,
            },
            "target" => match parse_target(&value) {
                Some(target) => self.targets.push(target),
                None => return false,
            },
            "carrier" => match parse_carrier(&value) {
                Some(carrier) => self.carrier = carrier,
                None => return false,
            },
            _ => return false,
        }
        true
    }
}

fn set_number(place: &mut u64, value: &str) -> bool {
    let number = value.parse().ok();
    number.inspect(|&number| *place = number).is_some()
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

fn parse_carrier(value: &str) -> Option<CarrierKind> {
    match value.split_once(':') {
        None if value == "spool" => Some(CarrierKind::Spool),
        None if value == "app" => Some(CarrierKind::App),
        Some(("unix", path)) if !path.is_empty() => Some(CarrierKind::Unix(path.to_owned())),
        // Loopback only, whatever else stands there.
        Some(("tcp", address)) => Some(CarrierKind::Tcp(address.strip_prefix("127.0.0.1:")?.parse().ok()?)),
        _ => None,
    }
}

/// Longest part of a package's name in an address: 107 bytes hold the prefix and a process number,
/// too.
const MOST_PACKAGE_BYTES: usize = 80;

/// The abstract name under which the agent of a process of an app listens.
pub(crate) fn app_socket(package: &str, pid: u32) -> String {
    // Names are ASCII; of others what fits.
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
                    out.push(h * 16 + l);
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

/// Does `text` fit a pattern of `*` (any bytes) and `?` (one byte)?
pub(crate) fn fits(pattern: &[u8], text: &[u8]) -> bool {
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
                // Let the last star take one byte more.
                Some((after, [_, more @ ..])) => {
                    star = Some((after, more));
                    (p, t) = (after, more);
                }
                _ => return false,
            },
        }
    }
}
