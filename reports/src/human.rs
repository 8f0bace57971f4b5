//! The report as text for people: the tests that ran, the leaks and their places, advice, and one line at the end.
//!
//! Data flow: `crate::figures` puts metrics into words, `stack` aligns frames, `block` joins them for one test (JUnit
//! shows the same text), this file orders the blocks, the worst last, next to the prompt.

mod block;
mod followed;
mod hunt;
mod memory;
mod paint;
mod sampled;
mod stack;
mod wrap;

use std::collections::BTreeMap;

use memgate_model::{
    AgentCost, BoundaryQuality, Followed, Leak, LeakKind, Outcome, Problem, RunReport, ScreenCost, Shard,
    SuiteReport, TestReport, Verdict, WaiverReport, WaiverState, format_bytes, format_list, format_number_of,
};

pub(crate) use block::leak_stack;
pub use block::name_in_waiver;
pub(crate) use block::{BlockStyle, accepting, suite_block, test_block, test_body, waive_command};
use block::{unmeasured_block, unmeasured_body};
pub(crate) use followed::{lifetimes, times};
pub(crate) use hunt::hunted;
pub(crate) use memory::app_memory;
pub(crate) use paint::Paint;
pub(crate) use sampled::sampled;
pub use stack::stack;
use stack::width;

use crate::figures::is_certain;
use crate::rerun;
use crate::suite_test::SuiteTest;
use crate::summary::{missed, unused};
use crate::visible::{visible, without_commands};
use crate::words::{own_outcome, tests_of, verdict_word, waive_until};

/// Most names listed in one line; the others are counted.
const NAMES: usize = 10;

/// The caller's settings for the output.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HumanOptions {
    /// Write ANSI colours.
    pub colour: bool,
    /// Columns of the terminal; `None` for a file or a pipe: nothing is cut.
    pub width: Option<usize>,
    /// Show every leak group and frame, and the stacks of one-time allocations.
    pub verbose: bool,
    /// Path of the full report, for the last line.
    pub report_path: Option<String>,
}

/// The whole report as text.
#[must_use]
pub fn human(report: &RunReport, options: &HumanOptions) -> String {
    let style = BlockStyle {
        paint: Paint::new(options.colour),
        width: options.width,
        verbose: options.verbose,
        until: waive_until(&report.started),
    };
    let mut sections = vec![suites(report), shards(report)];
    sections.extend(blocks(report, &style));
    if options.verbose {
        sections.push(one_time_stacks(report, &style));
    }
    sections.push(followed::section(report.followed.as_ref(), style.paint, options.verbose));
    sections.push(waivers(report, &style));
    sections.push(problems(&report.errors, &style));
    sections.push(warnings(&report.warnings, &style));
    let closing = [
        one_time(report),
        not_judged(report),
        agent_cost(&report.agent_cost, report.duration_s, report.shards.len()),
        summary(report, options, &style),
    ];
    sections.push(closing.concat());
    sections.retain(|section| !section.is_empty());
    let text = sections.join("\n");
    // A break can move any word to the start of a line, where it could become a command of a CI system.
    without_commands(&match options.width {
        Some(columns) => wrap::wrapped(&text, columns),
        None => text,
    })
}

/// Two lines for each suite: the tests that ran, and the tests that ran again.
fn suites(report: &RunReport) -> String {
    let column = report.suites.iter().map(|suite| width(&visible(&suite.name))).max().unwrap_or(0);
    report.suites.iter().map(|suite| suite_lines(suite, column)).collect()
}

/// A line for each machine on which the tests ran.
fn shards(report: &RunReport) -> String {
    report.shards.iter().map(|shard| format!("{}\n", visible(&told_of_shard(shard)))).collect()
}

/// Most named tests on which attempts at a shard disagree.
const DISAGREE_SHOWN: usize = 10;

/// `shard 3/8: 12 of 100 units in 4.2 s, pass`.
pub(crate) fn told_of_shard(shard: &Shard) -> String {
    let Shard { number, duration_s, verdict, units, of_units, .. } = shard;
    let mut told = format!(
        "shard {number}: {units} of {of_units} units in {duration_s:.1} s, {}",
        verdict_word(*verdict).1
    );
    if !shard.replaces.is_empty() {
        told += &format!(", the last of {} attempts", shard.replaces.len() + 1);
    }
    if !shard.disagree.is_empty() {
        told += &format!(", which disagree on {}", format_list(&shard.disagree, DISAGREE_SHOWN));
    }
    told
}

fn suite_lines(suite: &SuiteReport, column: usize) -> String {
    let survivors = suite.tests.iter().filter(|test| test.confirmed || left_something(test)).count();
    // A test that was not measured may have left something.
    let is_unknown = |test: &&TestReport| {
        test.verdict == Verdict::Error && !test.confirmed && !test.is_class && !left_something(test)
    };
    let unknown = suite.tests.iter().filter(is_unknown).count();
    let survivors = match (survivors, unknown) {
        (0, 0) if tests_of(suite) == 0 || suite.verdict == Verdict::Error => String::new(),
        (0, 0) => ", none with survivors".to_owned(),
        (0, _) => format!(", {unknown} not measured"),
        (_, 0) => format!(", {survivors} with survivors"),
        _ => format!(", {survivors} with survivors, {unknown} not measured"),
    };
    let boundary = match suite.boundary {
        BoundaryQuality::Exact => "",
        BoundaryQuality::Class => ", boundaries of classes only",
        BoundaryQuality::Observed => ", boundaries observed from outside",
        BoundaryQuality::Process => ", the process is the test",
    };
    let times = match suite.screen_executions {
        None => String::new(),
        Some((fewest, most)) if fewest == most => format!("{most} times "),
        Some((fewest, most)) => format!("{fewest} to {most} times "),
    };
    let (name, tests) = (visible(&suite.name), format_number_of(tests_of(suite), "test"));
    let line = format!(
        "{name:column$}  {tests}  screened {times}in {:.1} s{survivors}{boundary}\n",
        suite.screened_s
    );
    let cost = suite.screen_cost.as_ref().map_or_else(String::new, |cost| {
        let ScreenCost { alone_s, screened_s, ratio } = cost;
        format!(
            "{:column$}  rounds of its classes {screened_s:.1} s, {ratio:.1} × the tests alone ({alone_s:.1} s)\n",
            ""
        )
    });
    let memory = suite.app_memory.as_ref().map_or_else(String::new, |memory| {
        format!("{:column$}  memory of the app behind {}\n", "", app_memory(memory))
    });
    let sampled = suite
        .native_sampling
        .map_or_else(String::new, |interval| format!("{:column$}  {}\n", "", sampled(interval)));
    let hunt =
        suite.hunt.as_ref().map_or_else(String::new, |hunt| format!("{:column$}  {}\n", "", hunted(hunt)));
    line + &sampled + &cost + &memory + &confirmations(&suite.tests) + &hunt
}

fn left_something(test: &TestReport) -> bool {
    !test.leaks.is_empty() || !test.one_time.is_empty()
}

/// `confirming 9: 8 one-time, 1 grows`.
fn confirmations(tests: &[TestReport]) -> String {
    const KINDS: [&str; 9] = [
        "one-time",
        "clean",
        "waived or allowed",
        "not judged",
        "inconclusive",
        "not measured",
        "above a threshold that warns",
        "known on the base",
        "grows",
    ];
    let mut counts = [0_usize; KINDS.len()];
    for test in tests.iter().filter(|test| test.confirmed) {
        let kind = match test.verdict {
            Verdict::Pass if !test.leaks.is_empty() => 2,
            Verdict::Pass if test.one_time.is_empty() => 1,
            Verdict::Pass => 0,
            Verdict::NotJudged => 3,
            Verdict::Warn if test.against_base.is_some() => 7,
            Verdict::Warn if is_certain(test) => 6,
            Verdict::Warn => 4,
            Verdict::Error => 5,
            Verdict::Fail => 8,
        };
        counts[kind] += 1;
    }
    let all: usize = counts.iter().sum();
    if all == 0 {
        return String::new();
    }
    let found: Vec<_> = KINDS
        .into_iter()
        .zip(counts)
        .filter(|(_, count)| *count > 0)
        .map(|(kind, count)| format!("{count} {}", if kind == "grows" && count > 1 { "grow" } else { kind }))
        .collect();
    format!("confirming {all}: {}\n", found.join(", "))
}

/// Tests and suites that did not pass, the worst last. Tests that could not be measured for the same cause share a
/// block.
fn blocks(report: &RunReport, style: &BlockStyle) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut unmeasured: Vec<(String, Vec<String>)> = Vec::new();
    for suite in &report.suites {
        for test in &suite.tests {
            if !matches!(test.verdict, Verdict::Warn | Verdict::Error | Verdict::Fail) {
                continue;
            }
            let (name, at) = (qualified(report, suite, test), SuiteTest { suite, test });
            let Some(body) = unmeasured_body(at, style) else {
                let again = rerun::command(report, at);
                blocks.push((test.verdict, test_block(at, &name, again.as_deref(), style)));
                continue;
            };
            match unmeasured.iter_mut().find(|(known, _)| *known == body) {
                Some((_, names)) => names.push(name),
                None => unmeasured.push((body, vec![name])),
            }
        }
        blocks.extend(suite_block(suite, style));
    }
    let unmeasured = unmeasured.iter().map(|(body, names)| unmeasured_block(names, body, style));
    blocks.extend(unmeasured.map(|block| (Verdict::Error, block)));
    blocks.sort_by_key(|(verdict, _)| *verdict);
    blocks.into_iter().map(|(_, block)| block).collect()
}

/// `engine::MapCache.scroll`, as thresholds name it, if there are several suites.
fn qualified(report: &RunReport, suite: &SuiteReport, test: &TestReport) -> String {
    let id = visible(&test.id);
    if report.suites.len() > 1 { format!("{}::{id}", visible(&suite.name)) } else { id.into_owned() }
}

/// Every one-time allocation once, with the tests that had it.
fn one_time_stacks(report: &RunReport, style: &BlockStyle) -> String {
    one_time_groups(report)
        .values()
        .map(|(leak, tests)| {
            let others = match tests.len() {
                1 => String::new(),
                more => format!(", also in {}", format_number_of(more - 1, "other test")),
            };
            let (first, bytes) = (style.paint.strong(&tests[0]), format_bytes(leak.bytes_per_iteration));
            format!("one-time  {first}{others}   {bytes}\n{}", leak_stack(leak, style))
        })
        .collect::<Vec<_>>()
        .join("\n")
}

/// A cache shared by tests appears in each test that is confirmed alone. It counts once, with its largest size.
pub(crate) fn one_time_groups(report: &RunReport) -> BTreeMap<(&str, &str), (&Leak, Vec<String>)> {
    let mut groups: BTreeMap<_, (&Leak, Vec<String>)> = BTreeMap::new();
    for suite in &report.suites {
        for test in &suite.tests {
            for leak in &test.one_time {
                let name = qualified(report, suite, test);
                let (largest, tests) = groups
                    .entry((suite.name.as_str(), leak.id.as_str()))
                    .or_insert_with(|| (leak, Vec::new()));
                if leak.bytes_per_iteration > largest.bytes_per_iteration {
                    *largest = leak;
                }
                if tests.last() != Some(&name) {
                    tests.push(name);
                }
            }
        }
    }
    groups
}

fn one_time(report: &RunReport) -> String {
    let groups = one_time_groups(report);
    let bytes: f64 = groups.values().map(|(leak, _)| leak.bytes_per_iteration).sum();
    let tests = report.entries().filter(|test| !test.one_time.is_empty()).count();
    if tests == 0 {
        return String::new();
    }
    let of_os = groups.values().filter(|(leak, _)| leak.kind == LeakKind::Os);
    let handles: f64 = of_os.map(|(leak, _)| leak.count_per_iteration).sum();
    let parts = [
        (bytes > 0.0 || handles <= 0.0).then(|| format_bytes(bytes)),
        (handles > 0.0).then(|| format!("{handles:.0} × descriptor or thread")),
    ];
    format!(
        "one-time: {} in {}, allocated once and kept: not a leak\n",
        parts.into_iter().flatten().collect::<Vec<_>>().join(" and "),
        format_number_of(tests, "test")
    )
}

fn waivers(report: &RunReport, style: &BlockStyle) -> String {
    // Where only a part of the tests ran, a waiver that matched nothing says nothing.
    let is_idle = |waiver: &WaiverReport| {
        let may_be_needed = waiver.state == WaiverState::InForce && waiver.used == 0;
        may_be_needed && missed(waiver, report).is_none() && crate::base::fixed(waiver).is_none()
    };
    let waivers: Vec<_> = report.waivers.iter().filter(|waiver| !is_idle(waiver)).collect();
    let column = waivers.iter().map(|waiver| width(&visible(&waiver.matches))).max().unwrap_or(0);
    waivers.into_iter().map(|waiver| waiver_line(waiver, report, column, style)).collect()
}

fn waiver_line(waiver: &WaiverReport, report: &RunReport, column: usize, style: &BlockStyle) -> String {
    let until = visible(&waiver.until);
    let end = if until == "never" { "no end date".to_owned() } else { format!("until {until}") };
    let (verdict, label, state) = match waiver.state {
        WaiverState::InForce => match missed(waiver, report).filter(|_| waiver.used == 0) {
            Some(missed) => (Verdict::Warn, "unused", visible(&missed).into_owned()),
            None => (Verdict::Pass, "waived", end),
        },
        WaiverState::Expired => (Verdict::Warn, "expired", format!("ended {until}, covers nothing any more")),
        WaiverState::Unused => (Verdict::Warn, "unused", visible(&unused(waiver, report)).into_owned()),
    };
    let (verdict, label, state) = match crate::base::fixed(waiver) {
        Some((Verdict::Fail, fixed)) => (Verdict::Fail, "FAIL", fixed),
        Some((verdict, fixed)) => (verdict, "stale", fixed),
        None => (verdict, label, state),
    };
    let used = match waiver.used as usize {
        0 => String::new(),
        // It names one leak, which several tests have.
        tests @ 2.. if waiver.matches.starts_with("leak ") => format!("in {tests} tests, "),
        leaks => format!("{}, ", format_number_of(leaks, "leak")),
    };
    let owner = waiver.owner.as_ref().map_or_else(String::new, |owner| format!(", {}", visible(owner)));
    let label = style.paint.verdict(verdict, format!("{label:7}"));
    let matches = visible(&waiver.matches);
    let why = style.paint.faint(format!("{}{owner}", visible(&waiver.reason)));
    format!("{label}  {matches:column$}  {used}{state}: {why}\n")
}

fn problems(problems: &[Problem], style: &BlockStyle) -> String {
    problems
        .iter()
        .map(|Problem { r#where, what, hint }| {
            let label = style.paint.verdict(Verdict::Error, "error");
            let hint = if hint.is_empty() { String::new() } else { format!("hint:  {}\n", visible(hint)) };
            format!("{label}  {}: {}\n{hint}", style.paint.strong(visible(r#where)), visible(what))
        })
        .collect()
}

fn warnings(warnings: &[String], style: &BlockStyle) -> String {
    let label = style.paint.verdict(Verdict::Warn, "warning:");
    warnings.iter().map(|warning| format!("{label} {}\n", visible(warning))).collect()
}

/// The user's own failures. Their runner has shown them, so they are only listed as not judged.
fn not_judged(report: &RunReport) -> String {
    let mut names: Vec<String> = Vec::new();
    let (mut skipped, mut passed) = (0, 0);
    for suite in &report.suites {
        for test in suite.tests.iter().filter(|test| test.verdict == Verdict::NotJudged) {
            match test.outcome {
                Outcome::Skipped => skipped += 1,
                // Their suite or class states the reason.
                Outcome::Passed => passed += 1,
                outcome => {
                    names.push(format!("{} ({})", qualified(report, suite, test), own_outcome(outcome)))
                }
            }
        }
    }
    if names.len() > NAMES {
        let rest = names.len() - NAMES;
        names.truncate(NAMES);
        names.push(format!("{rest} more"));
    }
    for (count, what) in [(skipped, "skipped"), (passed, "that passed")] {
        if count > 0 {
            names.push(format!("{count} {what}"));
        }
    }
    if names.is_empty() { String::new() } else { format!("not judged for leaks: {}\n", names.join(", ")) }
}

/// The cost of measuring; empty if nothing was measured.
fn agent_cost(cost: &AgentCost, duration_s: f64, shards: usize) -> String {
    let AgentCost { cpu_ratio, peak_bytes, boundary_s, truncated_stacks, repeated_s, .. } = *cost;
    if *cost == AgentCost::default() {
        return String::new();
    }
    let cpu =
        cpu_ratio.map_or_else(String::new, |ratio| format!("{:.0} % CPU time, ", 100.0 * (ratio - 1.0)));
    #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
    let peak = format_bytes(peak_bytes as f64);
    let truncated = match truncated_stacks {
        0 => String::new(),
        #[expect(clippy::cast_possible_truncation, reason = "a count of stacks")]
        stacks => format!(", {} not unwound to the root", format_number_of(stacks as usize, "stack")),
    };
    let repeated = match repeated_s {
        0.0 => String::new(),
        // With several machines, the time of the run is the time of the slowest one.
        seconds if shards > 1 => format!("; repeating tests took {seconds:.1} s on all machines together"),
        // For a recorded run, the time is unknown.
        seconds if duration_s < seconds => format!("; repeating tests took {seconds:.1} s"),
        seconds => format!("; repeating tests took {seconds:.1} s of {duration_s:.1} s (without judging)"),
    };
    format!(
        "cost of measuring: the agent {cpu}{peak} at most, {boundary_s:.1} s at boundaries{truncated}{repeated}\n"
    )
}

/// `1 of 214 tests leaks · report: PATH`.
fn summary(report: &RunReport, options: &HumanOptions, style: &BlockStyle) -> String {
    let text = crate::summary::headline(report);
    let path =
        options.report_path.as_ref().map_or_else(String::new, |path| format!(" · report: {}", visible(path)));
    format!("{}{path}\n", style.paint.verdict(report.verdict, text))
}

/// How followed objects ended, as text for people.
#[must_use]
pub fn followed(followed: &Followed, colour: bool) -> String {
    followed::section(Some(followed), Paint::new(colour), true)
}

#[cfg(test)]
mod tests {
    use memgate_model::Outcome;

    use super::*;
    use crate::sample;

    fn options() -> HumanOptions {
        HumanOptions {
            report_path: Some(".memgate/latest/report.html".to_owned()),
            ..HumanOptions::default()
        }
    }

    #[test]
    fn a_leak_reads_as_promised() {
        insta::assert_snapshot!(human(&sample::leak(), &options()));
    }

    #[test]
    fn a_holder_stands_before_the_stack_and_a_waived_group_says_why() {
        insta::assert_snapshot!(human(&sample::held(), &options()));
    }

    #[test]
    fn a_clean_run_is_two_lines() {
        insta::assert_snapshot!(human(&sample::clean(), &options()));
    }

    #[test]
    fn every_verdict_waiver_and_problem_is_told() {
        insta::assert_snapshot!(human(&sample::mixed(), &options()));
    }

    #[test]
    fn a_terminal_of_100_columns_gets_shorter_names() {
        let text = human(&sample::mixed(), &HumanOptions { width: Some(100), ..options() });
        let stacks = text.lines().skip_while(|line| !line.contains("2 × 128 B")).take(4);
        insta::assert_snapshot!(stacks.collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn no_line_is_wider_than_a_terminal_of_80_columns_unless_it_is_a_command() {
        for (name, report) in sample::all() {
            let text = human(&report, &HumanOptions { width: Some(80), ..options() });
            for line in text.lines().filter(|line| width(line) > 80) {
                let words = line.split_whitespace().count();
                assert!(line.contains("memgate ") || words == 1, "{name}: {line}");
            }
        }
        let text = human(&sample::leak(), &HumanOptions { width: Some(80), ..options() });
        let headline =
            "FAIL  MapCache.scroll\n      MapCache::insert leaks 48.0 KiB per run · src/map_cache.cpp:88\n";
        assert!(text.contains(headline), "{text}");
    }

    #[test]
    fn verbose_shows_every_frame_and_each_one_time_stack_once() {
        let text = human(&sample::mixed(), &HumanOptions { verbose: true, ..options() });
        assert!(text.contains("recurse29()") && !text.contains("more frames"), "{text}");
        let one_time: Vec<_> =
            text.lines().skip_while(|line| !line.starts_with("one-time  ")).take(3).collect();
        insta::assert_snapshot!(one_time.join("\n"));
        assert_eq!(text.matches("FcInit()").count(), 1, "{text}");
    }

    #[test]
    fn a_stack_of_which_nothing_is_known_is_not_cut_off() {
        let mut report = sample::leak();
        for leak in
            report.suites.iter_mut().flat_map(|suite| &mut suite.tests).flat_map(|test| &mut test.leaks)
        {
            (leak.frames, leak.truncated) = (Vec::new(), true);
        }
        let text = human(&report, &options());
        assert!(text.contains("its stack is not known") && !text.contains("cut off"), "{text}");
    }

    #[test]
    fn nothing_measured_is_not_a_clean_run() {
        insta::assert_snapshot!(human(&sample::nothing(), &options()));
    }

    #[test]
    fn colours_only_add_styles() {
        let colour = human(&sample::mixed(), &HumanOptions { colour: true, ..options() });
        let plain = human(&sample::mixed(), &options());
        assert!(!plain.contains('\u{1b}'));
        assert!(colour.contains("\u{1b}[1m\u{1b}[31mFAIL"), "{colour:?}");
        let mut stripped = String::new();
        for part in colour.split("\u{1b}[") {
            let text = if stripped.is_empty() { part } else { part.split_once('m').unwrap().1 };
            stripped.push_str(text);
        }
        assert_eq!(stripped, plain);
    }

    #[test]
    fn hostile_names_cannot_act_on_the_terminal() {
        let text = human(&sample::hostile(), &HumanOptions { verbose: true, width: Some(0), ..options() });
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
        assert!(!text.contains(['\u{202e}', '\u{fffe}']));
        assert!(text.contains(r"a\u{0}b\u{1b}[31mred"), "shown, not dropped");
        let mut report = sample::clean();
        report.suites[0].name = "::error::boo".to_owned();
        let text = human(&report, &options());
        assert!(text.starts_with(r"\u{3a}:error::boo  3 tests"), "{text}");
    }

    #[test]
    fn the_waiver_hint_ends_three_to_four_months_after_the_run() {
        for (started, until) in [
            ("2026-11-21T10:15:00+01:00", "2027-03-01"),
            ("2026-01-31T00:00:00Z", "2026-05-01"),
            ("2026-08-01T00:00:00Z", "2026-12-01"),
            ("2026-09-01T00:00:00Z", "2027-01-01"),
            ("2026-12-31T23:59:59Z", "2027-04-01"),
            ("2026-13-01", "YYYY-MM-DD"),
            ("20261121T101500Z", "YYYY-MM-DD"),
            ("", "YYYY-MM-DD"),
            ("größe", "YYYY-MM-DD"),
        ] {
            assert_eq!(waive_until(started), until, "{started}");
        }
    }

    #[test]
    fn a_reason_that_the_figures_say_is_not_said_again() {
        let mut report = sample::leak();
        let said = "48.0 KiB per iteration (allowed 0 B)";
        let leaks = report.suites[0].tests.iter().position(|test| test.verdict == Verdict::Fail).unwrap();
        report.suites[0].tests[leaks].reason = said.to_owned();
        let times = |report: &RunReport| {
            human(report, &HumanOptions::default()).lines().filter(|line| line.trim() == said).count()
        };
        assert_eq!(times(&report), 1);
        report.suites[0].tests[leaks].reason_beside_figures = Some(String::new());
        assert_eq!(times(&report), 0);
        // A reason that no figure states is kept.
        report.suites[0].tests[leaks].reason_beside_figures = Some("in 8 of 2000 executions".to_owned());
        assert_eq!(times(&report), 0);
        assert!(human(&report, &HumanOptions::default()).contains("\n      in 8 of 2000 executions\n"));
        let style = BlockStyle::plain(&report);
        let allowed = TestReport { verdict: Verdict::Pass, ..report.suites[0].tests[leaks].clone() };
        assert!(
            test_body(SuiteTest { suite: &report.suites[0], test: &allowed }, &style).contains(said),
            "no headline shows the figures of a pass"
        );
    }

    /// Regression test: a program with an allocator of its own printed one block for each of its 228 tests.
    #[test]
    fn tests_that_one_cause_made_unmeasurable_share_a_block() {
        let mut report = sample::leak();
        let broken = |id: &str, reason: &str| TestReport {
            verdict: Verdict::Error,
            reason: reason.to_owned(),
            ..sample::test(id)
        };
        let same = ["A.a", "A.b", "A.c", "A.d", "A.e"].map(|id| broken(id, "not measured: its own malloc"));
        report.suites[0].tests.extend(same);
        report.suites[0].tests.push(broken("B.a", "crashed"));
        let text = human(&report, &options());
        let blocks: Vec<_> = text.lines().filter(|line| line.starts_with("ERROR")).collect();
        assert_eq!(blocks, ["ERROR  A.a, A.b, A.c and 2 more", "ERROR  B.a"]);
        assert_eq!(text.matches("not measured: its own malloc").count(), 1);
        let all = human(&report, &HumanOptions { verbose: true, ..options() });
        assert!(all.contains("ERROR  A.a, A.b, A.c, A.d, A.e\n"), "{all}");
    }

    /// Regression: `native.live_bytes: 4.1 KiB → 4.1 KiB in its last 0.0 s` below a test that crashed at once.
    #[test]
    fn a_curve_in_which_nothing_changed_is_not_told() {
        let mut report = sample::mixed();
        assert!(human(&report, &options()).contains("native.live_bytes: 12.0 MiB → 450.0 MiB in its last"));
        let tests = report.suites.iter_mut().flat_map(|suite| &mut suite.tests);
        let points = tests.filter(|test| test.verdict == Verdict::Error).flat_map(|test| &mut test.curve);
        points.for_each(|point| point.value = 4200.0);
        let text = human(&report, &options());
        assert!(!text.contains("in its last"), "{text}");
    }

    #[test]
    fn an_unused_waiver_with_the_wrong_test_names_the_test_that_has_its_leak() {
        let mut report = sample::leak();
        let test = report.suites[0].tests.iter().find(|test| !test.leaks.is_empty()).unwrap();
        let (leak, name) =
            (test.leaks[0].id.clone(), SuiteTest { suite: &report.suites[0], test }.qualified());
        let waiver = |id: &str| WaiverReport {
            matches: format!("leak {id} in Parser.Shrt"),
            state: WaiverState::Unused,
            reason: "known".to_owned(),
            owner: None,
            until: "never".to_owned(),
            used: 0,
            named: false,
            fixed: None,
        };
        report.waivers = vec![waiver(&leak), waiver("n1-00000000000000ff")];
        let text = human(&report, &HumanOptions::default());
        assert!(text.contains(&format!("does not match {name}, which has its leak: known")), "{text}");
        assert!(
            text.contains("n1-00000000000000ff in Parser.Shrt  matches nothing, remove it: known"),
            "{text}"
        );
        report.waivers.iter_mut().for_each(|waiver| waiver.state = WaiverState::InForce);
        let text = human(&report, &HumanOptions::default());
        assert!(!text.contains("n1-00000000000000ff"), "its test may not have run: {text}");
        assert!(
            text.contains(&format!("does not match {name}, which has its leak: known")),
            "also in a part"
        );
        let leaks =
            report.suites.iter_mut().flat_map(|suite| &mut suite.tests).flat_map(|test| &mut test.leaks);
        leaks.for_each(|leak| leak.waived_up_to = Some(4096.0));
        let text = human(&report, &HumanOptions::default());
        assert!(!text.contains("does not match"), "it is for less than that: {text}");
        assert!(
            text.contains("its waiver accepts up to 4.0 KiB per iteration; to accept this: memgate waive"),
            "{text}"
        );
    }

    /// Regression: a leak that two tests have was two leaks.
    #[test]
    fn a_waiver_of_one_leak_counts_its_tests() {
        let waiver = |matches: &str| WaiverReport {
            matches: matches.to_owned(),
            state: WaiverState::InForce,
            reason: "known".to_owned(),
            owner: None,
            until: "never".to_owned(),
            used: 2,
            named: false,
            fixed: None,
        };
        let mut report = sample::clean();
        report.waivers = vec![waiver("leak n1-a"), waiver("frame f")];
        let text = human(&report, &HumanOptions::default());
        assert!(text.contains("leak n1-a  in 2 tests, no end date: known"), "{text}");
        assert!(text.contains("frame f    2 leaks, no end date: known"), "{text}");
    }

    #[test]
    fn a_stack_of_bare_addresses_says_how_to_get_names() {
        let hint = "no function is known: build with -g";
        let mut report = sample::leak();
        assert!(!human(&report, &options()).contains(hint));
        let leaks =
            report.suites.iter_mut().flat_map(|suite| &mut suite.tests).flat_map(|test| &mut test.leaks);
        leaks.flat_map(|leak| &mut leak.frames).for_each(|frame| frame.function = None);
        assert!(human(&report, &options()).contains(hint));
    }

    #[test]
    fn a_java_leak_names_the_frame_of_the_project_that_the_headline_names() {
        let mut report = sample::held();
        let own = report.suites[0].tests[0].leaks[0].frames[0].clone();
        let library =
            |method: &str| memgate_model::Frame { function: Some(method.to_owned()), ..own.clone() };
        let called = ["javax.crypto.Cipher.init", "com.sun.crypto.provider.Key.of", "kotlin.LazyKt.lazy"];
        let called: Vec<_> = called.into_iter().map(library).collect();
        let before = human(&report, &options());
        report.suites[0].tests[0].leaks[0].frames.splice(0..0, called);
        assert_eq!(human(&report, &options()), before);
    }

    #[test]
    fn a_note_about_a_suite_does_not_stand_under_the_verdict_of_its_tests() {
        let mut report = sample::leak();
        report.suites[0].reason = "1 test not judged".to_owned();
        report.suites[0].own_verdict = Some(Verdict::NotJudged);
        let text = human(&report, &HumanOptions::default());
        assert!(
            text.contains("engine_tests (suite)") && !text.contains("FAIL  engine_tests (suite)"),
            "{text}"
        );
    }

    #[test]
    fn the_last_line_counts_what_did_not_pass() {
        let line =
            |report: &RunReport| human(report, &HumanOptions::default()).lines().last().unwrap().to_owned();
        assert_eq!(line(&sample::clean()), "no leak in 3 tests");
        assert_eq!(line(&sample::leak()), "1 of 2 tests leaks");
        let mut lost = sample::clean();
        lost.verdict = Verdict::Error;
        assert_eq!(line(&lost), "no leak in 3 tests, not everything was measured");
        let mut known = sample::clean();
        known.suites[0].tests[0].against_base = Some(memgate_model::AgainstBase::Known);
        assert_eq!(line(&known), "no new leak in 3 tests, 1 with leaks that the base has too");
        let with = |verdicts: [(Verdict, Outcome); 3]| {
            let mut report = sample::clean();
            for (test, (verdict, outcome)) in report.suites[0].tests.iter_mut().zip(verdicts) {
                (test.verdict, test.outcome) = (verdict, outcome);
            }
            line(&report)
        };
        let (pass, warn) = ((Verdict::Pass, Outcome::Passed), (Verdict::Warn, Outcome::Passed));
        let (failed, skipped) =
            ((Verdict::NotJudged, Outcome::Failed), (Verdict::NotJudged, Outcome::Skipped));
        for (verdicts, said) in [
            ([pass, pass, warn], "no leak in 2 of 3 tests, 1 to look at"),
            ([pass, failed, skipped], "no leak in 1 of 3 tests, 1 failed by itself, 1 skipped"),
            ([warn, warn, failed], "3 tests, 2 to look at, 1 failed by itself"),
            ([failed, failed, skipped], "nothing was judged of 3 tests, 2 failed by itself, 1 skipped"),
        ] {
            assert_eq!(with(verdicts), said);
        }
        let (mut allowed, mut waived) = (sample::clean(), sample::clean());
        let leak = sample::leak().suites[0].tests[1].leaks[0].clone();
        waived.suites[0].tests[0].leaks =
            vec![memgate_model::Leak { waiver: Some("known".to_owned()), ..leak.clone() }];
        assert_eq!(line(&waived), "no leak without a waiver in 3 tests, 1 with waived leaks");
        for (class, said) in [("ATest", "1 with waived leaks"), ("BTest", "2 with waived leaks")] {
            let mut report = waived.clone();
            report.suites[0].tests[0].id = "ATest.tile".to_owned();
            let class = TestReport { id: class.to_owned(), ..report.suites[0].tests[0].clone() };
            report.suites[0].tests.push(TestReport { is_class: true, ..class });
            assert_eq!(line(&report), format!("no leak without a waiver in 3 tests, {said}"));
        }
        allowed.suites[0].tests[1].leaks = vec![leak];
        let within = "1 with an allowed amount left";
        assert_eq!(line(&allowed), format!("no leak above its threshold in 3 tests, {within}"));
        allowed.suites[0].tests[0] = waived.suites[0].tests[0].clone();
        let both = format!("no leak above its threshold in 3 tests, 1 with waived leaks, {within}");
        assert_eq!(line(&allowed), both);
        let mut unlisted = sample::clean();
        let bytes = memgate_model::Metric::NativeLiveBytes;
        let mut figure = sample::leak().suites[0].tests[1].metrics[&bytes].clone();
        figure.threshold.as_mut().unwrap().limit = figure.value;
        unlisted.suites[0].tests[0].metrics.insert(bytes, figure);
        assert_eq!(line(&unlisted), format!("no leak above its threshold in 3 tests, {within}"));
        let mut suite = sample::clean();
        suite.suites[0].own_verdict = Some(Verdict::Warn);
        assert_eq!(line(&suite), "no leak in 3 tests, 1 suite to look at");
        let mut dump = sample::clean();
        let heap =
            TestReport { is_class: true, verdict: Verdict::Fail, ..sample::test("heap dump at the end") };
        dump.suites[0].tests.push(heap);
        assert_eq!(line(&dump), "1 heap dump with leaks, no leak in 3 tests");
        for (mut report, said) in [
            (sample::clean(), "1 test class leaks as a whole, none of 3 tests alone"),
            (sample::leak(), "1 of 2 tests leaks, 1 test class leaks as a whole"),
        ] {
            let class = TestReport { is_class: true, verdict: Verdict::Fail, ..sample::test("ATest") };
            report.suites[0].tests.push(class);
            assert_eq!(line(&report), said);
        }
    }
}
