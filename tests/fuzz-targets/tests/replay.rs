//! Every target holds for its seeds and for a fixed series of mutated seeds, the same inputs on every run.
//! The fuzzer finds new inputs (`tests/prove fuzz`).
//!
//! `MEMGATE_REPLAY_RUNS` sets how many mutated seeds each target gets, `MEMGATE_REPLAY_SEED` selects another
//! series.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "what a test cannot do without fails it")]

use std::env;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;

use memgate_fuzz_targets::{TARGETS, Target, mutate_frames};

const RUNS: usize = 1000;
/// For targets that talk to a peer for each input.
const RUNS_WITH_A_PEER: usize = 150;
/// The fuzzer's maximum input size.
const LONGEST: usize = 16 << 10;

/// One test per target, so that they run in parallel and each is timed.
macro_rules! replay {
    ($($target:ident)*) => {
        const NAMES: &[&str] = &[$(stringify!($target)),*];
        $(#[test]
        fn $target() {
            replay(TARGETS.iter().find(|target| target.name == stringify!($target)).unwrap());
        })*
    };
}

replay! {
    adb agent_options agent_socket classfile config elf gtest_list harness_socket heap hprof instrumentation java_session
    malloc_debug mapping meminfo saved session spool unwind wire
}

#[test]
fn no_target_is_left_out() {
    assert!(TARGETS.iter().map(|target| target.name).eq(NAMES.iter().copied()), "{NAMES:?}");
}

/// xorshift64*: small, and the same on every platform.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next()).unwrap() % end.max(1)
    }

    fn byte(&mut self) -> u8 {
        const ODD: [u8; 12] = [0, 1, 0x7f, 0x80, 0xff, b'\n', b'"', b'\\', b'-', b'9', b'*', b':'];
        if self.below(2) == 0 { ODD[self.below(ODD.len())] } else { u8::try_from(self.below(256)).unwrap() }
    }

    /// Changes `data[..size]` in one to four places; returns the new size, at most `longest`.
    fn mutate(&mut self, data: &mut [u8], mut size: usize, longest: usize) -> usize {
        let longest = longest.min(data.len());
        for _ in 0..=self.below(4) {
            let at = self.below(size);
            match self.below(6) {
                0 | 1 if size > 0 => data[at] = self.byte(),
                2 if size > 0 => data[at] ^= 1 << self.below(8),
                3 if size > 1 => {
                    let gone = self.below(size - at) + 1;
                    data.copy_within(at + gone..size, at);
                    size -= gone;
                }
                4 if size > 0 => {
                    let from = self.below(size);
                    let more = (self.below(size - from) + 1).min(longest - size);
                    let part = data[from..from + more].to_vec();
                    data.copy_within(at..size, at + more);
                    data[at..at + more].copy_from_slice(&part);
                    size += more;
                }
                _ if size < longest => {
                    data.copy_within(at..size, at + 1);
                    data[at] = self.byte();
                    size += 1;
                }
                _ => {}
            }
        }
        size
    }
}

fn seeds(target: &Target) -> Vec<(String, Vec<u8>)> {
    let fuzz = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let mut files: Vec<PathBuf> = fs::read_dir(fuzz.join("seeds").join(target.name))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files.iter().map(|file| (file.display().to_string(), fs::read(file).unwrap())).collect()
}

fn number(variable: &str) -> Option<usize> {
    env::var(variable).ok().map(|text| text.parse().unwrap())
}

fn replay(target: &Target) {
    let seeds = seeds(target);
    assert!(!seeds.is_empty(), "{} has no seed", target.name);
    for (name, seed) in &seeds {
        attempt(target, seed, name);
    }
    let meets_a_peer = ["adb", "agent_socket", "harness_socket"].contains(&target.name);
    let runs = number("MEMGATE_REPLAY_RUNS").unwrap_or(if meets_a_peer { RUNS_WITH_A_PEER } else { RUNS });
    let first = number("MEMGATE_REPLAY_SEED").unwrap_or(1);
    for run in 0..runs {
        let (name, seed) = &seeds[run % seeds.len()];
        let mut random = Random((first * 1_000_003 + run + 1) as u64);
        let size = seed.len().min(LONGEST);
        let mut input = seed[..size].to_vec();
        input.resize(LONGEST, 0);
        let choice = u32::try_from(random.below(1 << 30)).unwrap();
        let new = match target.frames_at {
            Some(prefix) => {
                let change = |data: &mut [u8], size, longest| random.mutate(data, size, longest);
                mutate_frames(&mut input, size, LONGEST, choice, prefix, change)
            }
            None => random.mutate(&mut input, size, LONGEST),
        };
        input.truncate(new);
        attempt(target, &input, &format!("change {run} of {name}, MEMGATE_REPLAY_SEED={first}"));
    }
}

/// Runs an input; reports a finding with its input, which is kept.
fn attempt(target: &Target, input: &[u8], origin: &str) {
    if let Err(finding) = catch_unwind(AssertUnwindSafe(|| (target.run)(input))) {
        let kept = env::temp_dir().join(format!("memgate-finding-{}", target.name));
        fs::write(&kept, input).unwrap();
        let told =
            format!("{}: a finding with {origin}; the input is kept in {}\n", target.name, kept.display());
        std::io::Write::write_all(&mut std::io::stderr(), told.as_bytes()).unwrap();
        resume_unwind(finding);
    }
}
