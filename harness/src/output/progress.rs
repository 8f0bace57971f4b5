//! Progress of one pass over the tests: a bar on a terminal, otherwise an occasional plain line.
//!
//! In the screening pass, the tests themselves write to the terminal. A bar between their lines would garble both, so
//! that pass prints plain lines even on a terminal, and only if it takes longer.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use memgate_reports::harmless;

use super::{Console, Step};

/// Work that ends sooner prints nothing.
pub const QUIET: Duration = Duration::from_secs(2);
/// Time between two plain lines.
const PLAIN_INTERVAL: Duration = Duration::from_secs(10);

/// What a pass of an unknown number of tests shows at first.
const NO_TEST: &str = "no test has begun";

/// One pass.
#[derive(Debug)]
pub struct Progress<'a> {
    console: &'a Console,
    title: String,
    total: Option<u64>,
    /// Whether the remaining time can be estimated.
    estimates: bool,
    done: u64,
    /// When the last test ended, since the start.
    ended: Duration,
    shown: Shown,
    started: Instant,
}

#[derive(Debug)]
enum Shown {
    Bar(ProgressBar),
    Lines { next: Instant },
}

impl<'a> Progress<'a> {
    /// For a pass whose tests write to our own terminal, or may do so.
    #[must_use]
    pub fn beside_tests(console: &'a Console, title: &str, total: Option<u64>) -> Self {
        Self::new(console, title, (total, true), console.is_live_beside_tests())
    }

    /// For a pass whose tests print nothing.
    #[must_use]
    pub fn of_silent_tests(console: &'a Console, title: &str, total: u64) -> Self {
        Self::new(console, title, (Some(total), true), console.is_live())
    }

    /// For silent tests that run several times: later rounds have fewer tests with other durations, so the remaining
    /// time cannot be estimated.
    #[must_use]
    pub fn of_rounds(console: &'a Console, title: &str, most: u64) -> Self {
        Self::new(console, title, (Some(most), false), console.is_live())
    }

    fn new(console: &'a Console, title: &str, (total, estimates): (Option<u64>, bool), live: bool) -> Self {
        let started = Instant::now();
        let shown = if live {
            let bar = bar(title, total);
            console.set_bar(Some(bar.clone()));
            Shown::Bar(bar)
        } else {
            Shown::Lines { next: started + QUIET }
        };
        console.step(Step { phase: title, done: 0, of: total, now: "" });
        Self {
            console,
            title: title.to_owned(),
            total,
            estimates,
            done: 0,
            ended: Duration::ZERO,
            shown,
            started,
        }
    }

    /// Sets a new total.
    pub fn expect(&mut self, total: u64) {
        self.total = Some(total);
        if let Shown::Bar(bar) = &self.shown {
            bar.set_length(total);
        }
    }

    /// `done` tests have ended; `status` says what runs now and the verdict so far.
    pub fn update(&mut self, done: u64, status: &str) {
        let elapsed = self.started.elapsed();
        if done != self.done {
            (self.done, self.ended) = (done, elapsed);
        }
        // A build may compile for minutes before it runs a test.
        let status = if done == 0 && self.total.is_none() && status.is_empty() { NO_TEST } else { status };
        let of = self.total;
        self.console.step(Step { phase: &self.title, done, of, now: status });
        let left = time_left(done, of.filter(|_| self.estimates), (self.ended, elapsed))
            .map_or_else(String::new, |left| format!(", about {} s left", left.as_secs()));
        match &mut self.shown {
            Shown::Bar(bar) => {
                bar.set_position(done);
                bar.set_message(one_line(status) + &left);
            }
            Shown::Lines { next } if Instant::now() >= *next => {
                *next = Instant::now() + PLAIN_INTERVAL;
                self.console.line(&plain_line(
                    &self.title,
                    done,
                    (self.total, self.estimates),
                    &one_line(status),
                    (elapsed, &left),
                ));
            }
            Shown::Lines { .. } => {}
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if let Shown::Bar(bar) = &self.shown {
            self.console.set_bar(None);
            bar.finish_and_clear();
        }
    }
}

const WITH_TOTAL: &str = "{prefix} {wide_bar:.cyan/dim} {pos}/{len}  {msg:.bold}  {elapsed}";
const WITHOUT_TOTAL: &str = "{spinner} {prefix} {pos}  {msg:.bold}  {elapsed}";

fn bar(title: &str, total: Option<u64>) -> ProgressBar {
    let template = if total.is_some() { WITH_TOTAL } else { WITHOUT_TOTAL };
    // The template is ours: a test below finds an error in it, and a user would only lose the colours.
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr_with_hz(10)).with_style(style);
    bar.set_prefix(title.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn plain_line(
    title: &str,
    done: u64,
    (total, estimates): (Option<u64>, bool),
    status: &str,
    (elapsed, left): (Duration, &str),
) -> String {
    let most = if estimates { "" } else { "at most " };
    let of = total.map_or_else(String::new, |total| format!(" of {most}{total}"));
    if status == NO_TEST {
        return format!("{title}: {status}, {} s", elapsed.as_secs());
    }
    // Before the first test there is no name.
    let status = if status.is_empty() { String::new() } else { format!(", {status}") };
    format!("{title}: {done}{of}{status}, {} s{left}", elapsed.as_secs())
}

/// The time that the other tests take if they are as quick as those that ended, by `ended`. A test that takes longer
/// does not raise it: then it is not known any more.
fn time_left(done: u64, total: Option<u64>, (ended, elapsed): (Duration, Duration)) -> Option<Duration> {
    let left = total?.checked_sub(done)?;
    let done = u32::try_from(done).ok().filter(|done| *done > 0)?;
    let whole = (ended / done).checked_mul(u32::try_from(left).ok()?)?;
    whole.checked_sub(elapsed.saturating_sub(ended))
}

/// A test's name comes from the tested process: it must not control the terminal.
fn one_line(status: &str) -> String {
    harmless(&status.replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ColorChoice;

    #[test]
    fn a_plain_line_tells_how_far_it_is_and_what_is_left() {
        let seconds = Duration::from_secs;
        let left = (seconds(6), ", about 12 s left");
        let line = plain_line("confirming", 3, (Some(9), true), "MapCache.scroll", left);
        assert_eq!(line, "confirming: 3 of 9, MapCache.scroll, 6 s, about 12 s left");
        let line = plain_line("rounds", 3, (Some(9), false), "MapTest", (seconds(6), ""));
        assert_eq!(line, "rounds: 3 of at most 9, MapTest, 6 s", "later rounds are of fewer tests");
        let line = plain_line("screening", 0, (None, true), "A.b", (seconds(2), ""));
        assert_eq!(line, "screening: 0, A.b, 2 s");
        let line = plain_line("screening", 0, (None, true), NO_TEST, (seconds(2), ""));
        assert_eq!(line, "screening: no test has begun, 2 s");
    }

    #[test]
    fn a_bar_counts_a_test_that_is_confirmed_besides_and_tells_that_none_has_begun() {
        let console = Console::new(ColorChoice::Never);
        let mut progress = Progress::new(&console, "confirming", (Some(1), true), true);
        progress.expect(2);
        let Shown::Bar(bar) = &progress.shown else { panic!("{progress:?}") };
        assert_eq!((bar.length(), progress.total), (Some(2), Some(2)));
        let mut compiling = Progress::new(&console, "screening", (None, true), true);
        compiling.update(0, "");
        let Shown::Bar(bar) = &compiling.shown else { panic!("{compiling:?}") };
        assert_eq!(bar.message(), NO_TEST);
    }

    #[test]
    fn a_bar_tells_what_is_left_only_after_a_test_has_ended() {
        let console = Console::new(ColorChoice::Never);
        let mut progress = Progress::new(&console, "confirming", (Some(3), true), true);
        let message = |progress: &Progress<'_>| match &progress.shown {
            Shown::Bar(bar) => bar.message(),
            Shown::Lines { .. } => panic!("{progress:?}"),
        };
        progress.update(0, "A.b");
        assert_eq!(message(&progress), "A.b", "nothing is known yet");
        progress.update(1, "A.c");
        assert!(message(&progress).starts_with("A.c, about "), "{}", message(&progress));
    }

    #[test]
    fn names_cannot_steer_the_terminal() {
        assert_eq!(one_line("a\x1b[2Jb\n::error::"), r"a\u{1b}[2Jb\n::error::");
    }

    #[test]
    fn all_templates_are_well_formed() {
        for template in [WITH_TOTAL, WITHOUT_TOTAL] {
            assert!(ProgressStyle::with_template(template).is_ok());
        }
    }

    #[test]
    fn nothing_is_left_to_tell_of_an_unknown_end() {
        let second = (Duration::from_secs(1), Duration::from_secs(1));
        assert_eq!(time_left(3, None, second), None);
        assert_eq!(time_left(0, Some(3), second), None);
        assert_eq!(time_left(5, Some(3), second), None);
    }

    #[test]
    fn the_time_left_never_rises_while_a_test_runs() {
        let left = |elapsed| time_left(2, Some(5), (Duration::from_secs(6), Duration::from_secs(elapsed)));
        assert_eq!([6, 10, 15].map(left), [9, 5, 0].map(|left| Some(Duration::from_secs(left))));
        assert_eq!(left(16), None, "the third one takes longer than all others together should");
    }
}
