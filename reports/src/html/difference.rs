//! Leaked bytes by stack in two runs: an icicle whose widths show one run and whose colours show the difference in
//! bytes, and the same as a table.
//!
//! Data flow: stacks with their bytes before and after → a tree, outermost frame on top → SVG, which needs no script.
//! Stacks that are gone have no width in the second run, so they have an icicle of their own.

use std::collections::BTreeMap;

use memgate_model::{Leak, format_bytes};

use super::blocks::{ROW, written};
use super::write::{Html, escape};
use crate::stacks;

const MAX_DEPTH: usize = 128;
/// Most frames that are drawn; further frames, and those below this share of the width, are folded.
const MAX_FRAMES: usize = 2000;
const SMALLEST_SHARE: f64 = 0.001;
const WIDTH: f64 = 1000.0;

/// The fill of new frames: only the second run has any.
const HATCH: &str = "<defs><pattern id=hatch width=6 height=6 patternUnits=userSpaceOnUse patternTransform=\"rotate(45)\"><rect class=more width=6 height=6></rect><rect class=stripe width=2 height=6></rect></pattern></defs>";

/// A stack at which bytes are leaked in one of two runs, or in both.
#[derive(Debug, Clone, PartialEq)]
pub struct StackChange {
    /// Outermost first.
    frames: Vec<String>,
    before: f64,
    after: f64,
}

impl StackChange {
    /// The stack of a leak, with its bytes per iteration in both runs; 0: the run does not have it.
    #[must_use]
    pub fn of(leak: &Leak, before: f64, after: f64) -> Self {
        Self { frames: stacks::names(leak), before, after }
    }
}

#[derive(Default)]
struct Node<'a> {
    before: f64,
    after: f64,
    children: BTreeMap<&'a str, Self>,
}

#[derive(Clone, Copy, PartialEq)]
enum Shown {
    After,
    Before,
}

/// Both icicles and the table; empty if no stack leaks bytes.
#[must_use]
pub fn difference(changes: &[StackChange]) -> Html {
    let mut html = Html::default();
    let leaks = |change: &&StackChange| change.before > 0.0 || change.after > 0.0;
    let mut changes: Vec<&StackChange> = changes.iter().filter(leaks).collect();
    if changes.is_empty() {
        return html;
    }
    changes.sort_by(|a, b| (b.after - b.before).abs().total_cmp(&(a.after - a.before).abs()));
    html.markup("<p class=legend><span class=entry><span class=\"swatch more\"></span>+ more bytes than before</span><span class=entry><span class=\"swatch fresh\"></span>new</span><span class=entry><span class=\"swatch less\"></span>− fewer</span><span class=entry><span class=\"swatch same\"></span>the same</span></p>");
    let (gone, alive): (Vec<_>, Vec<_>) = changes.iter().copied().partition(|change| change.after <= 0.0);
    if !alive.is_empty() {
        html.markup("<h3>After</h3><p>The outermost function stands on top; the wider, the more bytes per iteration in the second run.</p>");
        icicle(&mut html, &alive, Shown::After);
    }
    if !gone.is_empty() {
        html.markup("<h3>Gone</h3><p>Stacks of the first run that the second one does not have.</p>");
        icicle(&mut html, &gone, Shown::Before);
    }
    table(&mut html, &changes);
    html
}

fn icicle(html: &mut Html, changes: &[&StackChange], shown: Shown) {
    let mut root = Node::default();
    let mut depth = 0;
    for change in changes {
        depth = depth.max(change.frames.len().min(MAX_DEPTH));
        root.before += change.before;
        root.after += change.after;
        let mut at = &mut root;
        for frame in change.frames.iter().take(MAX_DEPTH) {
            at = at.children.entry(frame).or_default();
            at.before += change.before;
            at.after += change.after;
        }
    }
    let mut drawing = Drawing { svg: String::new(), shown, all: shown.of(&root), left: MAX_FRAMES };
    drawing.children(&root, 0.0, 0);
    let label = match shown {
        Shown::After => "Leaked bytes by stack in the second run",
        Shown::Before => "Leaked bytes by stack that are gone",
    };
    html.markup("<div class=scroll tabindex=0 role=group").attribute("aria-label", label).markup(">");
    let defs = if shown == Shown::After { HATCH } else { "" };
    html.svg(&format!(
        "<svg class=diff viewBox=\"0 0 {WIDTH} {}\" role=img aria-label=\"{}; the table has the same figures\">{defs}{}</svg>",
        depth * ROW,
        escape(label),
        drawing.svg
    ));
    html.markup("</div>");
}

impl Shown {
    fn of(self, node: &Node<'_>) -> f64 {
        match self {
            Self::After => node.after,
            Self::Before => node.before,
        }
    }
}

struct Drawing {
    svg: String,
    shown: Shown,
    all: f64,
    left: usize,
}

impl Drawing {
    fn children(&mut self, node: &Node<'_>, from: f64, row: usize) {
        let mut children: Vec<(&str, &Node<'_>)> =
            node.children.iter().map(|(name, node)| (*name, node)).collect();
        children.sort_by(|(_, a), (_, b)| self.shown.of(b).total_cmp(&self.shown.of(a)));
        let (mut x, mut folded) = (from, (0_usize, Node::default()));
        for (name, child) in children {
            let share = self.shown.of(child) / self.all;
            if share < SMALLEST_SHARE || self.left == 0 {
                folded.0 += 1;
                folded.1.before += child.before;
                folded.1.after += child.after;
                continue;
            }
            self.left -= 1;
            self.frame(name, child, (x, row));
            self.children(child, x, row + 1);
            x += share * WIDTH;
        }
        if folded.0 > 0 && self.shown.of(&folded.1) > 0.0 {
            self.frame(&format!("{} smaller", folded.0), &folded.1, (x, row));
        }
    }

    fn frame(&mut self, name: &str, node: &Node<'_>, (x, row): (f64, usize)) {
        let width = self.shown.of(node) / self.all * WIDTH;
        let (class, change) = changed(node.before, node.after);
        let title = format!("{name}: {} → {}", format_bytes(node.before), format_bytes(node.after));
        let y = row * ROW;
        self.svg.push_str(&format!(
            "<g><title>{}</title><rect class={class} x={x:.2} y={y} width={width:.2} height={ROW}></rect>",
            escape(&title)
        ));
        self.svg.push_str(&written(&format!("{change}{name}"), width, (x, y)));
        self.svg.push_str("</g>");
    }
}

/// The class of a frame, with its attributes, and the signed difference, if it changed.
fn changed(before: f64, after: f64) -> (&'static str, String) {
    if before <= 0.0 && after > 0.0 {
        return ("fresh fill=url(#hatch)", format!("+{} ", format_bytes(after)));
    }
    match after.total_cmp(&before) {
        std::cmp::Ordering::Greater => ("more", format!("+{} ", format_bytes(after - before))),
        std::cmp::Ordering::Less => ("less", format!("−{} ", format_bytes(before - after))),
        std::cmp::Ordering::Equal => ("same", String::new()),
    }
}

fn table(html: &mut Html, changes: &[&StackChange]) {
    const ROWS: usize = 50;
    html.markup("<div class=scroll tabindex=0 role=group aria-label=\"Leaked bytes by stack in both runs\"><table><caption>By stack, the largest difference first</caption><thead><tr><th scope=col>allocated by<th scope=col>test<th scope=col class=n>before<th scope=col class=n>after<th scope=col class=n>difference</thead><tbody>");
    for change in changes.iter().take(ROWS) {
        let end = |frame: Option<&String>| frame.map_or("", String::as_str).to_owned();
        html.markup("<tr><th scope=row class=code>").text(&end(change.frames.last()));
        html.markup("<td class=code>").text(&end(change.frames.first()));
        html.markup("<td class=n>").text(&format_bytes(change.before));
        html.markup("<td class=n>").text(&format_bytes(change.after));
        let (_, text) = changed(change.before, change.after);
        html.markup("<td class=n>").text(if text.is_empty() { "0 B" } else { text.trim_end() });
    }
    html.markup("</tbody></table></div>");
    if changes.len() > ROWS {
        html.element("p class=faint", &format!("and {} more stacks", changes.len() - ROWS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn change(frames: &[&str], before: f64, after: f64) -> StackChange {
        StackChange { frames: frames.iter().map(|name| (*name).to_owned()).collect(), before, after }
    }

    #[test]
    fn widths_are_the_second_run_and_colours_the_difference() {
        let html = difference(&[
            change(&["T", "kept"], 100.0, 100.0),
            change(&["T", "grown"], 100.0, 200.0),
            change(&["T", "fresh"], 0.0, 100.0),
            change(&["T", "lost"], 70.0, 0.0),
        ]);
        let text = html.written();
        assert!(
            text.contains("<title>T: 200 B → 400 B</title><rect class=more x=0.00 y=0 width=1000.00"),
            "{text}"
        );
        assert!(
            text.contains("<title>grown: 100 B → 200 B</title><rect class=more x=0.00 y=20 width=500.00"),
            "{text}"
        );
        assert!(
            text.contains("<title>fresh: 0 B → 100 B</title><rect class=fresh fill=url(#hatch) x="),
            "{text}"
        );
        assert!(text.contains("<title>kept: 100 B → 100 B</title><rect class=same x="), "{text}");
        let gone = text.split("<h3>Gone</h3>").nth(1).unwrap();
        assert!(
            gone.contains("<title>lost: 70 B → 0 B</title><rect class=less x=0.00 y=20 width=1000.00"),
            "{gone}"
        );
        assert!(gone.contains(">−70 B<") && gone.contains(">+100 B<"), "{gone}");
    }

    #[test]
    fn nothing_against_nothing_is_not_drawn_and_never_a_quotient_of_zeros() {
        assert_eq!(difference(&[]).written(), "");
        let both = difference(&[change(&["a"], 0.0, 0.0)]);
        assert_eq!(both.written(), "");
        let some = difference(&[change(&["a"], 0.0, 0.0), change(&["b"], 1.0, 1.0)]);
        assert!(!some.written().contains("NaN") && !some.written().contains("inf"), "{}", some.written());
    }

    #[test]
    fn small_ones_are_folded_and_counted() {
        let names: Vec<String> = (0..5000).map(|i| format!("f{i}")).collect();
        let mut all = vec![change(&["T", "big"], 1e9, 1e9)];
        all.extend(names.iter().map(|name| change(&["T", name], 1.0, 2.0)));
        let text = difference(&all).written().to_owned();
        assert!(text.contains("5000 smaller") && text.len() < 40_000, "{}", text.len());
        assert!(text.contains("and 4951 more stacks"));
    }

    #[test]
    fn a_deep_stack_and_a_hostile_name_are_harmless() {
        let leak = &sample::hostile().suites[0].tests[0].leaks[0];
        let deep: Vec<&str> = vec!["<script>"; 5000];
        let text =
            difference(&[StackChange::of(leak, 0.0, 5.0), change(&deep, 1.0, 2.0)]).written().to_owned();
        assert!(!text.contains("<script") && text.contains("&lt;script&gt;"), "{text}");
    }
}
