//! `measure`: how often and how long tests are measured.

use std::ops::RangeInclusive;
use std::time::Duration;

use memgate_model::Level;

use crate::read::{At, Reader, choice, table};
use crate::settings::java::{JavaFile, MeasureJava};
use crate::value::duration::Time;
use crate::value::number::{Count, Share};
use crate::value::size::Size;

const WARM_UP: u32 = 3;
const SCREEN_REPETITIONS: u32 = 1;
const MOST_SCREEN_REPETITIONS: u32 = 1_000;
const ITERATIONS: u32 = 10;
const RAREST_LEAK: u32 = 20;
const CONFIDENCE: f64 = 0.99;
const TIMEOUT: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_millis(250);
const SETTLE: Duration = Duration::from_millis(50);
/// A slope with a confidence interval needs some points.
const FEWEST_ITERATIONS: u32 = 5;
const MOST_ITERATIONS: u32 = 100_000;
const RAREST: u32 = 10_000;
/// A shorter interval costs as much as it saves; a longer one records nothing.
const SAMPLING_INTERVALS: RangeInclusive<u64> = 4 << 10..=1 << 30;
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);
/// A leak is observed for this long before it is confirmed.
const SHORTEST_BUDGET: Duration = Duration::from_secs(2);
const LONGEST_SETTLE: Duration = Duration::from_secs(60);

table! {
    /// How tests are measured.
    MeasureFile {
        /// Executions of a suspect before the first measured one.
        #[schemars(extend("default" = WARM_UP))]
        warm_up: At<Count>,
        /// Smallest number of measured executions of a suspect. There are more as long as they take less than 2 s in
        /// total, and up to 40 if the result is still open.
        #[schemars(extend("default" = ITERATIONS))]
        iterations: At<Count>,
        /// The rarest leak that a confirmation must find: one in this many executions, missed with a probability of
        /// 1 % at most. A suspect is repeated often enough for this before its memory counts as one-time. A slow
        /// suspect is repeated for 2 s, and the report says what was reached.
        #[schemars(extend("default" = RAREST_LEAK))]
        rarest_leak: At<Count>,
        /// Verdict for growth that cannot be confirmed, because the suite cannot be repeated or the
        /// test fails alone.
        #[schemars(extend("default" = "warn"))]
        unconfirmed: LevelFile,
        /// Longest time for confirming the suspects of a native suite or of a JUnit suite. Default:
        /// ten times the time of the suite, at least `60s`, or `5m` for JUnit. A test that has begun
        /// still runs `warm_up` and `iterations` times. Tests that were not reached are unconfirmed.
        confirm_budget: At<Time>,
        /// How a JVM suite is screened. (Native suites are always screened in one pass.)
        #[schemars(extend("default" = "baseline"))]
        screen: Screen,
        /// How often the screen executes each GoogleTest test, in one process. More executions find leaks that begin
        /// after the first one. Other tests are executed once, those of a JVM suite in rounds.
        #[schemars(extend("default" = SCREEN_REPETITIONS))]
        screen_repetitions: At<Count>,
        /// Confidence of the interval that decides a verdict.
        #[schemars(extend("default" = CONFIDENCE))]
        confidence: At<Share>,
        /// Longest time of one test that memgate repeats, or that runs on a device. A repeated test must also end
        /// within a hundred times its time in the screen, or within 10 s if that is more. Four times its time in the
        /// screen is always allowed. In the command's own run memgate kills nothing: it reports a test that takes
        /// longer.
        #[schemars(extend("default" = "60s"))]
        timeout: At<Time>,
        /// Time between two samples of the figures of the operating system.
        #[schemars(extend("default" = "250ms"))]
        interval: At<Time>,
        /// Longest wait for late frees at the end of a test that left something. `0s`: no wait.
        #[schemars(extend("default" = "50ms"))]
        settle: At<Time>,
        /// Measurements in native programs.
        native: NativeFile,
        /// Measurements in Java virtual machines.
        java: JavaFile,
    }
}

table! {
    /// Measurements in native programs.
    NativeFile {
        /// Whether memgate finds out what holds leaked memory: a variable, a stack, other memory, or nothing. It
        /// searches a copy of the process whose test leaks, made as by `fork` at the end of the last execution.
        #[schemars(extend("default" = "on"))]
        holders: Holders,
        /// Mean bytes between two recorded native allocations in the screen; `0`: all are recorded. Meant for suites
        /// that take hours: with `512 KiB` hardly any allocation is recorded. Every byte has the same chance, so
        /// figures are estimates with an interval. A test that leaves little may leave no sample: the report says how
        /// much remains unseen. A test that leaves a sample is confirmed as usual, by runs that record everything.
        #[schemars(extend("default" = 0))]
        sampling: At<Size>,
        /// Which tests get call stacks of their allocations. `suspects`: the screen of a GoogleTest program that
        /// memgate starts itself records no stacks. Tests that leave something run once more, together, to record
        /// stacks before they are confirmed. `always`: the screen records stacks. It also does so without
        /// confirmation (`--no-confirm`), if the command starts the test programs, with `sampling`, with repeated or
        /// shuffled tests, and in recordings.
        #[schemars(extend("default" = "suspects"))]
        stacks: StacksFile,
    }
}

choice! {
    /// Whether memgate finds out what holds leaked memory.
    pub(crate) enum Holders ("whether holders are searched") {
        /// In tests that leak.
        On = "on",
        /// Never.
        Off = "off",
    }
}

choice! {
    /// Which tests get stacks.
    pub(crate) enum StacksFile ("whose stacks are taken") {
        /// Those that left something.
        Suspects = "suspects",
        /// All.
        Always = "always",
    }
}

choice! {
    /// Level of a finding.
    pub(crate) enum LevelFile ("a level") {
        /// Shown, does not fail.
        Warn = "warn",
        /// Fails the build.
        Fail = "fail",
    }
}

choice! {
    /// How a JVM suite is screened.
    pub enum Screen ("a way to screen") {
        /// Rounds of the whole suite.
        Thorough = "thorough",
        /// Rounds only where the build's own run differs from the baseline.
        Baseline = "baseline",
        /// No rounds.
        Off = "off",
    }
}

/// How tests are measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Measure {
    /// Executions before the first measured one.
    pub warm_up: u32,
    /// Smallest number of measured executions.
    pub iterations: u32,
    /// The rarest leak that a confirmation must find: one in this many executions.
    pub rarest_leak: u32,
    /// The level of growth that could not be confirmed.
    pub unconfirmed: Level,
    /// Longest time for confirming the suspects of a suite; `None`: it depends on the time of the suite.
    pub confirm_budget: Option<Duration>,
    /// How a JVM suite is screened.
    pub screen: Screen,
    /// How often the screen executes each test of GoogleTest.
    pub screen_repetitions: u32,
    /// Confidence of the interval, from 0.5 to below 1.
    pub confidence: f64,
    /// Longest time of one test.
    pub timeout: Duration,
    /// Time between two samples of the figures of the operating system.
    pub interval: Duration,
    /// Longest wait for late frees; zero: none.
    pub settle: Duration,
    /// Measurements in native programs.
    pub native: MeasureNative,
    /// Measurements in Java virtual machines.
    pub java: MeasureJava,
}

/// Measurements in native programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeasureNative {
    /// Does memgate find out what holds leaked memory?
    pub holders: bool,
    /// Mean bytes between two recorded allocations of the screen; 0: all are recorded.
    pub sampling: u64,
    /// Does the screen record stacks? If not, only suspects get stacks.
    pub stacks_always: bool,
}

impl Default for MeasureNative {
    fn default() -> Self {
        Self { holders: true, sampling: 0, stacks_always: false }
    }
}

impl MeasureNative {
    fn check(NativeFile { holders, sampling, stacks }: NativeFile, reader: &mut Reader<'_>) -> Self {
        let default = Self::default();
        let sampling = sampling.map_or(default.sampling, |At { value: Size(bytes), span }| {
            if bytes != 0 && !SAMPLING_INTERVALS.contains(&bytes) {
                reader
                    .error(&span, "the sampling interval is out of range")
                    .label("expected 0, or 4 KiB to 1 GiB")
                    .hint(Some("`0` records every allocation, `512 KiB` hardly any"));
            }
            bytes
        });
        Self {
            holders: holders.map_or(default.holders, |it| it == Holders::On),
            sampling,
            stacks_always: stacks.map_or(default.stacks_always, |it| it == StacksFile::Always),
        }
    }
}

impl Default for Measure {
    fn default() -> Self {
        Self {
            warm_up: WARM_UP,
            iterations: ITERATIONS,
            rarest_leak: RAREST_LEAK,
            unconfirmed: Level::Warn,
            confirm_budget: None,
            screen: Screen::Baseline,
            screen_repetitions: SCREEN_REPETITIONS,
            confidence: CONFIDENCE,
            timeout: TIMEOUT,
            interval: INTERVAL,
            settle: SETTLE,
            native: MeasureNative::default(),
            java: MeasureJava::default(),
        }
    }
}

impl Measure {
    pub(crate) fn check(file: MeasureFile, reader: &mut Reader<'_>) -> Self {
        let MeasureFile {
            warm_up,
            iterations,
            rarest_leak,
            unconfirmed,
            confirm_budget,
            screen,
            screen_repetitions,
            confidence,
            timeout,
            interval,
            settle,
            native,
            java,
        } = file;
        let default = Self::default();
        let native = MeasureNative::check(native.unwrap_or_default(), reader);
        let java = MeasureJava::check(java.unwrap_or_default(), reader);
        let mut within = |given: Option<At<Count>>, low: u32, high: u32, default: u32| {
            given.map_or(default, |At { value: Count(value), span }| {
                if !(low..=high).contains(&value) {
                    reader
                        .error(&span, format!("`{value}` is out of range"))
                        .label(format!("expected {low} to {high}"));
                }
                value
            })
        };
        Self {
            warm_up: within(warm_up, 0, MOST_ITERATIONS, default.warm_up),
            iterations: within(iterations, FEWEST_ITERATIONS, MOST_ITERATIONS, default.iterations),
            rarest_leak: within(rarest_leak, 1, RAREST, default.rarest_leak),
            screen_repetitions: within(
                screen_repetitions,
                1,
                MOST_SCREEN_REPETITIONS,
                default.screen_repetitions,
            ),
            unconfirmed: unconfirmed.map_or(default.unconfirmed, |level| match level {
                LevelFile::Warn => Level::Warn,
                LevelFile::Fail => Level::Fail,
            }),
            confirm_budget: confirm_budget.map(|At { value: Time(value), span }| {
                if value < SHORTEST_BUDGET {
                    reader
                        .error(&span, "in this time no leak can be confirmed")
                        .label("expected 2s or more")
                        .hint(Some("`memgate run --no-confirm` confirms nothing"));
                }
                value
            }),
            screen: screen.unwrap_or(default.screen),
            confidence: confidence.map_or(default.confidence, |given| check_confidence(&given, reader)),
            timeout: timeout.map_or(default.timeout, |given| check_timeout(&given, reader)),
            interval: interval.map_or(default.interval, |At { value: Time(value), span }| {
                if value < SHORTEST_INTERVAL {
                    reader.error(&span, "the sampling interval is too short").label("expected 10ms or more");
                }
                value
            }),
            settle: settle.map_or(default.settle, |At { value: Time(value), span }| {
                if value > LONGEST_SETTLE {
                    reader.error(&span, "the time to settle is too long").label("expected 60s or less");
                }
                value
            }),
            native,
            java,
        }
    }
}

fn check_confidence(given: &At<Share>, reader: &mut Reader<'_>) -> f64 {
    let Share(value) = given.value;
    if !(0.5..1.0).contains(&value) {
        reader
            .error(&given.span, "the confidence must be from 0.5 to below 1")
            .label("out of range")
            .hint(Some("1 would ask for certainty, which no measurement gives: write `0.99`"));
    }
    value
}

pub(crate) fn check_timeout(given: &At<Time>, reader: &mut Reader<'_>) -> Duration {
    let Time(value) = given.value;
    if value.is_zero() {
        reader.error(&given.span, "a timeout of nothing stops every test").label("expected more than 0");
    }
    value
}
