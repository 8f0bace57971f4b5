//! Answers of `memgate heap` as text.

use std::path::Path;

use memgate_hprof::{Analysis, Bitmap, Growing, Leak, Node, Pixels, Texts, Thread, lonely, tree};
use memgate_model::format_bytes;

use super::{Changed, ClassRow, Shown, Tree, printable};
use crate::cli::HeapBy;

/// Classes of a leak that are named; the others are counted.
const SHOWN_CLASSES: usize = 3;

impl Shown {
    pub(in crate::commands::heap) fn text(&self) -> String {
        end(match self {
            Self::Analysis { head, analysis, largest, top, exact } => {
                analysis_lines(head, analysis, largest, *top, *exact)
            }
            Self::LeakCanary(text) => return text.clone(),
            Self::Paths { analysis, top } => paths_lines(analysis, *top),
            Self::Classes { rows, hidden, count, bytes } => classes_lines(rows, *hidden, (*count, *bytes)),
            Self::Dominators { reachable, bytes, unreachable, trees } => {
                dominators_lines(*reachable, *bytes, *unreachable, trees)
            }
            Self::Threads { threads } => threads_lines(threads),
            Self::Strings { texts } => strings_lines(texts),
            Self::Bitmaps { bitmaps, hidden, count, bytes } => {
                bitmaps_lines(bitmaps, *hidden, (*count, *bytes))
            }
            Self::Diff { by, changes, hidden, count, bytes } => {
                diff_lines(*by, changes, *hidden, (*count, *bytes))
            }
            Self::Growth { dumps, growing, hidden } => growth_lines(dumps, growing, *hidden),
            Self::Check { facts, roots, odd, whole } => check_lines(facts, roots, odd, *whole),
        })
    }
}

/// `10 → 12 → 14`.
fn series(values: &[u64]) -> String {
    values.iter().map(|value| number(*value)).collect::<Vec<_>>().join(" → ")
}

fn analysis_lines(
    head: &[String],
    analysis: &Analysis,
    largest: &[Tree],
    top: usize,
    exact: bool,
) -> Vec<String> {
    let mut lines = head.to_vec();
    leaks(&mut lines, "leak", &analysis.leaks, top);
    leaks(&mut lines, "library leak", &analysis.library_leaks, top);
    alone(&mut lines, analysis, top);
    if exact {
        lines.push(String::new());
        lines.push("largest objects: what would go with each".to_owned());
        largest.iter().for_each(|tree| row(&mut lines, tree, 0));
    }
    lines
}

fn paths_lines(analysis: &Analysis, top: usize) -> Vec<String> {
    let mut lines = Vec::new();
    leaks(&mut lines, "path", &all(analysis), top);
    let gone = analysis.unreachable.len() as u64 + analysis.unreachable_more;
    if gone > 0 {
        lines.push(String::new());
        lines.push(format!("{} held by nothing that is alive", number(gone)));
    }
    if analysis.not_looked_at > 0 {
        lines.push(format!("{} more objects were not looked at", number(analysis.not_looked_at)));
    }
    lines.drain(..usize::from(lines.first().is_some_and(String::is_empty)));
    lines
}

fn classes_lines(rows: &[ClassRow], hidden: usize, (count, bytes): (u64, u64)) -> Vec<String> {
    let retained = rows.iter().any(|row| row.retained.is_some());
    // Two totals of one dump differ: each says what it counts.
    let (objects, which) = match retained {
        true => ("reachable objects", "class objects count"),
        false => ("objects", "class objects do not count"),
    };
    let mut lines = vec![format!("{} {objects}, {} ({which})", number(count), exact_bytes(bytes))];
    let title = if retained { "    retained      largest" } else { "" };
    lines.push(format!("{:>12} {:>14} {title}  class", "objects", "bytes"));
    for row in rows {
        let more = row.retained.zip(row.largest).map_or_else(String::new, |(all, largest)| {
            format!("{:>12} {:>12}", number(all), number(largest))
        });
        let class = printable(&row.class);
        lines.push(format!("{:>12} {:>14} {more}  {class}", number(row.count), number(row.bytes)));
    }
    more(&mut lines, hidden, "classes");
    lines
}

fn dominators_lines(reachable: u64, bytes: u64, unreachable: u64, trees: &[Tree]) -> Vec<String> {
    let mut lines = vec![
        format!(
            "{} objects are reachable, {}; {} are not",
            number(reachable),
            exact_bytes(bytes),
            number(unreachable)
        ),
        format!("{:>14} {:>12}  object", "retained", "itself"),
    ];
    trees.iter().for_each(|tree| row(&mut lines, tree, 0));
    lines
}

fn threads_lines(threads: &[Thread]) -> Vec<String> {
    let mut lines = Vec::new();
    for thread in threads {
        let name = thread.name.as_deref().unwrap_or("?");
        let state = thread.state.map_or_else(String::new, |state| format!(" {state}"));
        lines.push(format!("\"{name}\"{state}  {} 0x{:x}", thread.class, thread.id));
        for frame in &thread.frames {
            lines.push(format!("    at {}({})", frame.method, frame.place));
            locals(&mut lines, &frame.locals);
        }
        locals(&mut lines, &thread.locals);
        lines.push(String::new());
    }
    lines.push(plural(threads.len(), "thread", "threads"));
    lines
}

fn strings_lines(texts: &Texts) -> Vec<String> {
    let mut lines = vec![
        format!(
            "{} texts in {} arrays of {}; {} of them are copies",
            number(texts.texts),
            number(texts.arrays),
            exact_bytes(texts.bytes),
            exact_bytes(texts.wasted)
        ),
        format!("{:>12} {:>10} {:>12}  text", "wasted", "copies", "bytes each"),
    ];
    for text in &texts.duplicates {
        lines.push(format!(
            "{:>12} {:>10} {:>12}  \"{}\"",
            number(text.wasted),
            number(text.copies),
            number(text.bytes),
            text.text
        ));
    }
    more(&mut lines, usize::try_from(texts.more).unwrap_or(usize::MAX), "texts");
    if texts.trimmed > 0 {
        let zeros = number(texts.trimmed);
        lines.push(format!("{zeros} arrays hold zeros alone, as trimming leaves them: not compared"));
    }
    lines
}

fn bitmaps_lines(bitmaps: &[Bitmap], hidden: usize, (count, bytes): (u64, u64)) -> Vec<String> {
    let mut lines = vec![format!("{} pictures, {}", number(count), exact_bytes(bytes))];
    lines.push(format!("{:>14} {:>8} {:>8}  pixels", "bytes", "width", "height"));
    for bitmap in bitmaps {
        let pixels = match bitmap.pixels {
            Pixels::Heap => "in the heap",
            Pixels::Native => "in native memory",
            Pixels::Unknown => "somewhere, 4 bytes each",
            Pixels::Gone => "none: it was recycled",
        };
        lines.push(format!(
            "{:>14} {:>8} {:>8}  {pixels}  0x{:x}",
            number(bitmap.bytes),
            bitmap.width,
            bitmap.height,
            bitmap.id
        ));
    }
    more(&mut lines, hidden, "pictures");
    lines
}

fn diff_lines(by: HeapBy, changes: &[Changed], hidden: usize, (count, bytes): (i64, i64)) -> Vec<String> {
    let mut lines = vec![format!("{count:+} objects, {bytes:+} B")];
    lines.push(format!("{:>14} {:>12} {:>14} {:>12}  class", "bytes", "objects", "bytes now", "objects now"));
    for change in changes {
        lines.push(format!(
            "{:>+14} {:>+12} {:>14} {:>12}  {}",
            change.bytes,
            change.count,
            number(change.bytes_after),
            number(change.count_after),
            printable(&change.class)
        ));
        if !change.held_by.is_empty() {
            lines.push(format!("{:>57}held by {}", "", printable(&change.held_by)));
        }
    }
    more(&mut lines, hidden, if by == HeapBy::Class { "classes" } else { "places" });
    lines
}

fn growth_lines(dumps: &[u64], growing: &[Growing], hidden: usize) -> Vec<String> {
    let mut lines =
        vec![format!("{} dumps with {} objects that the search reaches", dumps.len(), series(dumps))];
    if growing.is_empty() {
        lines.push("no container grows from dump to dump".to_owned());
    }
    for of in growing {
        lines.push(String::new());
        lines.push(format!(
            "{}: {} more from dump to dump, at least",
            printable(&of.class),
            number(of.rise())
        ));
        for container in &of.held_by {
            let newest = container.bytes.last().copied().unwrap_or(0);
            lines.push(format!(
                "  {} ({} B of their own in the newest)",
                series(&container.counts),
                number(newest)
            ));
            lines.push(format!("    held by {}", printable(&container.way())));
        }
    }
    more(&mut lines, hidden, "classes");
    lines
}

fn check_lines(
    facts: &[(&'static str, String)],
    roots: &[(String, u64)],
    odd: &[String],
    whole: bool,
) -> Vec<String> {
    let mut lines: Vec<String> =
        facts.iter().map(|(name, value)| format!("{name:<18} {}", printable(value))).collect();
    lines.push("roots".to_owned());
    lines.extend(roots.iter().map(|(name, count)| format!("  {:>10}  {name}", number(*count))));
    match odd.len() {
        0 => lines.push("nothing odd".to_owned()),
        _ => lines.extend(odd.iter().map(|odd| format!("odd: {odd}"))),
    }
    lines.push(if whole { "whole".to_owned() } else { "not whole".to_owned() });
    lines
}

/// Origin of a dump and summary of the findings, in three lines.
pub(in crate::commands::heap) fn head_of(
    path: &Path,
    analysis: &Analysis,
    nothing_asked: bool,
) -> Vec<String> {
    let about = &analysis.about;
    let name = about.process.clone();
    let name = name.unwrap_or_else(|| printable(&path.file_name().unwrap_or_default().to_string_lossy()));
    let device = match (about.sdk, &about.manufacturer) {
        (Some(sdk), Some(made)) => format!(" (Android, SDK {sdk}, {})", printable(made)),
        (Some(sdk), None) => format!(" (Android, SDK {sdk})"),
        _ => String::new(),
    };
    let objects = about.classes + about.instances + about.object_arrays + about.primitive_arrays;
    let odd = match about.odd.len() {
        0 => "nothing odd".to_owned(),
        1 => "odd: ".to_owned() + &about.odd[0],
        more => format!("{more} oddities: {}, …", about.odd[0]),
    };
    let when = when(about.milliseconds).map_or_else(String::new, |when| format!(" of {when}"));
    #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
    let [file, heap] = [about.file_bytes, about.heap_bytes].map(|bytes| format_bytes(bytes as f64));
    let found = if nothing_asked {
        "nothing was looked for: no rule knows a class of this dump".to_owned()
    } else {
        format!(
            "{} {} ({} objects); {}; {} unreachable",
            plural(analysis.leaks.len(), "leak retains", "leaks retain"),
            exact_bytes(analysis.attributed_bytes),
            number(analysis.attributed_objects),
            plural(analysis.library_leaks.len(), "library leak", "library leaks"),
            plural(
                analysis.unreachable.len() + usize::try_from(analysis.unreachable_more).unwrap_or(0),
                "object",
                "objects"
            ),
        )
    };
    vec![
        format!("heap of {name}{device}, {file} dump{when}"),
        format!("{} objects, {heap}; {} threads; {odd}", number(objects), about.threads),
        found,
    ]
}

pub(in crate::commands::heap) fn all(analysis: &Analysis) -> Vec<&Leak> {
    let mut all: Vec<&Leak> = analysis.leaks.iter().chain(&analysis.library_leaks).collect();
    all.sort_by_key(|leak| std::cmp::Reverse(leak.attributed));
    all
}

pub(in crate::commands::heap) fn head<T>(all: &[T], top: usize) -> &[T] {
    &all[..all.len().min(top)]
}

fn leaks(lines: &mut Vec<String>, what: &str, leaks: &[impl std::borrow::Borrow<Leak>], top: usize) {
    for leak in head(leaks, top) {
        let leak = leak.borrow();
        // Of one object only: those that hold each other do not add up.
        let of = if leak.instances > 1 { " by the first" } else { "" };
        let retained = leak
            .retained
            .map_or_else(String::new, |retained| format!(" · retained{of} {}", exact_bytes(retained)));
        lines.push(String::new());
        lines.push(format!(
            "{what} {}  {}   attributed {} in {}{retained}",
            leak.fingerprint.get(..8).unwrap_or_default(),
            classes_of(leak),
            exact_bytes(leak.attributed),
            plural(usize::try_from(leak.objects).unwrap_or(usize::MAX), "object", "objects"),
        ));
        if let Some(pattern) = &leak.library {
            lines.push(format!("  known: {pattern}"));
        }
        lines.extend(drawn(&tree(leak)));
    }
    more(lines, leaks.len().saturating_sub(top), if what == "path" { "paths" } else { "leaks" });
}

/// The classes of the leaking objects, each with its number.
pub(in crate::commands::heap) fn classes_of(leak: &Leak) -> String {
    let shown = head(&leak.classes, SHOWN_CLASSES).iter().map(|of| match of.instances {
        1 if leak.instances == 1 => of.class.clone(),
        instances => format!("{} × {}", of.class, number(instances)),
    });
    let shown: Vec<String> = shown.collect();
    let counted: u64 = head(&leak.classes, SHOWN_CLASSES).iter().map(|of| of.instances).sum();
    let more = match leak.instances.saturating_sub(counted) {
        0 => String::new(),
        more => format!(" and {} of other classes", number(more)),
    };
    shown.join(", ") + &more
}

/// The lines of a drawing, without the invisible character that LeakCanary puts before some of them: a terminal would
/// show its code instead.
pub(in crate::commands::heap) fn drawn(text: &str) -> impl Iterator<Item = String> {
    text.lines().map(|line| format!("  {}", line.strip_prefix('\u{200b}').unwrap_or(line)))
}

fn alone(lines: &mut Vec<String>, analysis: &Analysis, top: usize) {
    let shown: &[Node] = head(&analysis.unreachable, top);
    if !shown.is_empty() {
        lines.push(String::new());
        lines.push("over, and held by nothing that is alive".to_owned());
    }
    for node in shown {
        lines.extend(drawn(&lonely(node)));
    }
    let hidden = (analysis.unreachable.len() - shown.len()) as u64 + analysis.unreachable_more;
    more(lines, usize::try_from(hidden).unwrap_or(usize::MAX), "objects");
    if analysis.not_looked_at > 0 {
        lines.push(format!("{} more leaking objects were not looked at", number(analysis.not_looked_at)));
    }
}

fn row(lines: &mut Vec<String>, tree: &Tree, depth: usize) {
    let indent = "  ".repeat(depth);
    lines.push(format!(
        "{:>14} {:>12}  {indent}{} {}",
        number(tree.retained),
        number(tree.shallow),
        tree.class,
        tree.id
    ));
    tree.below.iter().for_each(|below| row(lines, below, depth + 1));
    let shown = tree.below.len() as u64;
    if shown > 0 && tree.dominates > shown {
        lines.push(format!("{:>14} {:>12}  {indent}  and {} more", "", "", number(tree.dominates - shown)));
    }
}

fn locals(lines: &mut Vec<String>, locals: &[memgate_hprof::Local]) {
    for local in locals {
        lines.push(format!("        local {} 0x{:x}", local.class, local.id));
    }
}

fn more(lines: &mut Vec<String>, hidden: usize, what: &str) {
    if hidden > 0 {
        lines.push(format!("and {} more {what}: --top shows more", number(hidden as u64)));
    }
}

fn end(mut lines: Vec<String>) -> String {
    lines.push(String::new());
    lines.join("\n")
}

pub(super) fn when(milliseconds: u64) -> Option<String> {
    let milliseconds = i64::try_from(milliseconds).ok().filter(|milliseconds| *milliseconds > 0)?;
    let when = jiff::Timestamp::from_millisecond(milliseconds).ok()?;
    Some(when.strftime("%Y-%m-%d %H:%M:%S UTC").to_string())
}

pub(in crate::commands::heap) fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{} {}", number(count as u64), if count == 1 { one } else { many })
}

pub(in crate::commands::heap) fn exact_bytes(count: u64) -> String {
    format!("{} B", number(count))
}

/// Formats a number with commas.
pub(in crate::commands::heap) fn number(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_numbers_have_commas() {
        for (count, told) in [(0, "0"), (999, "999"), (45_385, "45,385"), (1_000_000, "1,000,000")] {
            assert_eq!(number(count), told);
        }
    }
}
