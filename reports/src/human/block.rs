//! One judged test as text: headline, reason, leak groups with their stacks.

use memgate_model::{
    Leak, LeakKind, Metric, RunReport, SuiteReport, TestReport, Verdict, format_amount, format_bytes,
    format_list,
};

use crate::culprit;
use crate::figures::{GAP, suite_figures, test_figures};
use crate::holder::holder;
use crate::human::paint::Paint;
use crate::human::stack::{source, stack_lines, width};
use crate::names::is_of_platform;
use crate::rerun::quoted;
use crate::suite_test::SuiteTest;
use crate::visible::visible;
use crate::words::waive_until;

/// Leak groups and frames shown, unless all are requested.
const GROUPS: usize = 10;
const INNER_FRAMES: usize = 16;
/// The test's own frames are the outermost ones.
const OUTER_FRAMES: usize = 4;
const INDENT: &str = "      ";
/// Longer titles are on a line of their own.
const WIDEST_TITLE: usize = 24;

/// How blocks are written.
#[derive(Debug, Clone)]
pub(crate) struct BlockStyle {
    pub(crate) paint: Paint,
    /// Columns of the terminal; `None`: nothing is cut.
    pub(crate) width: Option<usize>,
    /// Show all groups and frames.
    pub(crate) verbose: bool,
    /// Date for the hint that waives a leak.
    pub(crate) until: String,
}

impl BlockStyle {
    /// For documents: without colours, and nothing is cut.
    pub(crate) fn plain(report: &RunReport) -> Self {
        Self { paint: Paint::new(false), width: None, verbose: false, until: waive_until(&report.started) }
    }
}

/// The block of a test that did not pass, under its displayed name; `again` is the command that runs it alone.
pub(crate) fn test_block(at: SuiteTest<'_>, name: &str, again: Option<&str>, style: &BlockStyle) -> String {
    let test = at.test;
    let mut figures = test_figures(test).into_iter();
    let first = culprit::of_test(test).or_else(|| figures.next());
    let mut block = headline(test.verdict, name, first, style);
    figures.for_each(|figure| push(&mut block, &figure));
    block.push_str(&test_body(at, style));
    if let Some(command) = again.filter(|_| !test.leaks.is_empty()) {
        push(&mut block, &style.paint.faint(format!("run only this test: {}", visible(command))));
    }
    block
}

/// Most names in the headline of a block for several tests, unless all are requested.
const NAMED: usize = 3;

/// The text below the headline, if the test was not measured and has nothing else to show. Such tests with an equal
/// text share a block.
pub(crate) fn unmeasured_body(at: SuiteTest<'_>, style: &BlockStyle) -> Option<String> {
    let test = at.test;
    let is_bare = test.verdict == Verdict::Error && test.leaks.is_empty() && test_figures(test).is_empty();
    is_bare.then(|| test_body(at, style))
}

/// The block of tests that were not measured for one reason.
pub(crate) fn unmeasured_block(names: &[String], body: &str, style: &BlockStyle) -> String {
    let shown = if style.verbose { names.len() } else { NAMED };
    headline(Verdict::Error, &format_list(names, shown), None, style) + body
}

/// The block of a suite that does not pass by itself, whatever its tests do, with its own verdict.
pub(crate) fn suite_block(suite: &SuiteReport, style: &BlockStyle) -> Option<(Verdict, String)> {
    let (figures, verdict) = (suite_figures(suite).0, suite.own_verdict());
    if figures.is_empty() && suite.reason.is_empty() {
        return None;
    }
    let mut figures = figures.into_iter();
    let mut block = headline(verdict, &format!("{} (suite)", visible(&suite.name)), figures.next(), style);
    figures.for_each(|figure| push(&mut block, &figure));
    push_some(&mut block, &visible(&suite.reason));
    Some((verdict, block))
}

/// The text below the headline: reason, curve, leak groups.
pub(crate) fn test_body(at: SuiteTest<'_>, style: &BlockStyle) -> String {
    let test = at.test;
    let mut body = String::new();
    let reason = match test.verdict {
        // These have no headline with figures.
        Verdict::Pass | Verdict::NotJudged => &test.reason,
        Verdict::Warn | Verdict::Error | Verdict::Fail => {
            test.reason_beside_figures.as_ref().unwrap_or(&test.reason)
        }
    };
    push_some(&mut body, &visible(reason));
    if test.verdict == Verdict::Error {
        push_some(&mut body, &last_known_curve(test));
    }
    let shown = if style.verbose { test.leaks.len() } else { GROUPS };
    for leak in test.leaks.iter().take(shown) {
        body.push_str(&leak_group(leak, at, style));
    }
    if let Some(hidden @ [_, ..]) = test.leaks.get(shown..) {
        let bytes = hidden.iter().map(|leak| leak.bytes_per_iteration).sum();
        push(
            &mut body,
            &format!("and {} smaller groups, {}{}", hidden.len(), format_bytes(bytes), hidden[0].kind.per()),
        );
    }
    body
}

/// A leak group with its stack and the command to waive it.
fn leak_group(leak: &Leak, at: SuiteTest<'_>, style: &BlockStyle) -> String {
    let mut text = leak_stack(leak, style);
    let id = visible(&leak.id);
    let advice = match &leak.waiver {
        Some(reason) => format!("waived: {}", visible(reason)),
        None => format!("{}: {}", accepting(leak), waive_command(leak, at, &style.until)),
    };
    if !leak.owners.is_empty() {
        push(&mut text, &format!("owner{GAP}{}", visible(&leak.owners.join(" "))));
    }
    push(&mut text, &format!("leak {}{GAP}{}", style.paint.strong(&id), style.paint.faint(advice)));
    text
}

/// What [`waive_command`] is for.
pub(crate) fn accepting(leak: &Leak) -> String {
    let Some(up_to) = leak.waived_up_to else { return "to accept it for now".to_owned() };
    let up_to = match leak.kind {
        LeakKind::Os => up_to.to_string(),
        _ => format_bytes(up_to),
    };
    format!("its waiver accepts up to {up_to}{}; to accept this", leak.kind.per())
}

/// The command that accepts a leak of a test until a date. If its id names only the kind, it is limited to this
/// test.
pub(crate) fn waive_command(leak: &Leak, SuiteTest { suite, test }: SuiteTest<'_>, until: &str) -> String {
    let only = match leak.is_of_kind(suite.runner) {
        true => format!(" --test {}", quoted(&visible(&name_in_waiver(&suite.name, &test.id)))),
        false => String::new(),
    };
    format!("memgate waive {}{only} --reason \"…\" --until {until}", quoted(&visible(&leak.id)))
}

/// The pattern with which a waiver names one test.
#[must_use]
pub fn name_in_waiver(suite: &str, test: &str) -> String {
    format!("{suite}::{test}").replace(['\\', '*', '?'], "?")
}

/// Title, holder and stack of a leak group.
pub(crate) fn leak_stack(leak: &Leak, style: &BlockStyle) -> String {
    let title = visible(&leak.title);
    if leak.kind.is_java() {
        return java_leak(leak, style);
    }
    let held_by = holder(leak);
    let beside = width(&title) <= WIDEST_TITLE && held_by.is_empty();
    let column = if beside { width(&title) + 2 } else { 4 };
    let room = style.width.map(|columns| columns.saturating_sub(INDENT.len() + column));
    let mut lines = stack_lines(&leak.frames, room, style.paint);
    if !style.verbose && lines.len() > INNER_FRAMES + OUTER_FRAMES {
        let hidden = INNER_FRAMES..lines.len() - OUTER_FRAMES;
        let more = style.paint.faint(format!("… {} more frames", hidden.len()));
        lines.splice(hidden, [more]);
    }
    if !leak.frames.is_empty() && leak.frames.iter().all(|frame| frame.function.is_none()) {
        lines.push(
            style.paint.faint("no function is known: build with -g, or name files with symbols by --symbols"),
        );
    }
    if leak.truncated {
        let is_known = !leak.frames.is_empty();
        let what = if is_known { "… cut off: not unwound to its root" } else { "its stack is not known" };
        lines.push(style.paint.faint(what));
    }

    let mut text = String::new();
    let mut lines = lines.into_iter();
    let first = if beside { lines.next() } else { None };
    push(&mut text, &first.map_or_else(|| title.to_string(), |line| format!("{title}  {line}")));
    push_some(&mut text, &held_by);
    lines.for_each(|line| push(&mut text, &format!("{:column$}{line}", "")));
    text
}

/// Class, holder, and the first frame of the project on the allocating stack; verbose reports show all frames.
fn java_leak(leak: &Leak, style: &BlockStyle) -> String {
    let mut text = String::new();
    let bytes = format_bytes(leak.bytes_per_iteration);
    push(&mut text, &format!("{}, {bytes}{}", visible(&leak.title), leak.kind.per()));
    push_some(&mut text, &holder(leak));
    let own = leak.frames.iter().position(|frame| !frame.function.as_deref().is_none_or(is_of_platform));
    let frames = if style.verbose { leak.frames.as_slice() } else { &leak.frames[own.unwrap_or(0)..] };
    let shown = if style.verbose { frames.len() } else { 1 };
    for (frame, label) in
        frames.iter().take(shown).zip(std::iter::once("allocated at").chain(std::iter::repeat("")))
    {
        let function = frame.function.as_deref().map_or_else(String::new, |name| visible(name).into_owned());
        push(&mut text, &format!("{label:12}  {function}{}", style.paint.faint(source(frame))));
    }
    text
}

/// The memory curve of a test that did not finish.
fn last_known_curve(test: &TestReport) -> String {
    let Some(metric) =
        Metric::ALL.into_iter().find(|metric| test.curve.iter().any(|point| point.metric == *metric))
    else {
        return String::new();
    };
    let points: Vec<_> = test.curve.iter().filter(|point| point.metric == metric).collect();
    let ([first, ..], [.., last]) = (points.as_slice(), points.as_slice()) else { return String::new() };
    let peak = points.iter().map(|point| point.value).fold(f64::NEG_INFINITY, f64::max);
    let [first_amount, peak, last_amount] =
        [first.value, peak, last.value].map(|value| format_amount(metric, value));
    // A test that ended at once, or in which nothing changed.
    if first_amount == last_amount && last_amount == peak {
        return String::new();
    }
    // Exact enough: a curve of a hundred days has fewer nanoseconds than an f64 has whole numbers.
    #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
    let seconds = last.t_ns.saturating_sub(first.t_ns) as f64 / 1e9;
    format!("{metric}: {first_amount} → {last_amount} in its last {seconds:.1} s, at most {peak}")
}

fn headline(verdict: Verdict, name: &str, figure: Option<String>, style: &BlockStyle) -> String {
    let label = style.paint.verdict(verdict, format!("{:4}", verdict.label()));
    let figure = figure.map_or_else(String::new, |figure| format!("{GAP}{figure}"));
    format!("{label}  {}{figure}\n", style.paint.strong(name))
}

fn push(text: &mut String, line: &str) {
    text.push_str(INDENT);
    text.push_str(line);
    text.push('\n');
}

fn push_some(text: &mut String, line: &str) {
    if !line.is_empty() {
        push(text, line);
    }
}
