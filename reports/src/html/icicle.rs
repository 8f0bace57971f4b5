//! Leaked bytes by stack: the data of the icicle view, and the same as a table for screen readers.

use std::collections::BTreeMap;

use memgate_model::{LeakKind, RunReport, format_bytes};
use serde::Serialize;

use super::write::Html;
use crate::error::RenderError;
use crate::stacks::{Frames, Stack, stacks};

/// Most stacks that are shown, the largest first: a page cannot draw more, and more would not be read.
const MAX_STACKS: usize = 1000;
const MAX_DEPTH: usize = 128;
/// Rows of the table of functions.
const ROWS: usize = 15;

#[derive(Serialize)]
struct Data {
    frames: Vec<String>,
    /// For each stack: kind (`n` native, `j` Java), bytes, frames by index, outermost first.
    stacks: Vec<(char, f64, Vec<usize>)>,
}

pub(super) fn section(report: &RunReport) -> Result<Html, RenderError> {
    let mut html = Html::default();
    let mut stacks = stacks(report);
    if stacks.is_empty() {
        return Ok(html);
    }
    let left_out = stacks.split_off(stacks.len().min(MAX_STACKS));
    let all: f64 = stacks.iter().map(|stack| stack.bytes).sum();
    html.markup("<section id=stacks aria-labelledby=stacks-h><h2 id=stacks-h>Leaked bytes by stack</h2><p>");
    html.text(&format!(
        "{} per iteration over all tests, without what is waived. The test stands on top, what it calls below; the wider, the more.",
        format_bytes(all)
    ));
    if !left_out.is_empty() {
        let bytes: f64 = left_out.iter().map(|stack| stack.bytes).sum();
        html.text(&format!(" {} smaller stacks ({}) are left out.", left_out.len(), format_bytes(bytes)));
    }
    html.markup("</p>");
    let java = stacks.iter().any(|stack| stack.kind == LeakKind::Java);
    let native = stacks.iter().any(|stack| stack.kind != LeakKind::Java);
    if java && native {
        html.markup(
            "<p><label>Show <select id=icicle-kind><option value=\"\">native and Java<option value=n>native<option value=j>Java</select></label></p>",
        );
    }
    html.markup("<div id=icicle role=group aria-label=\"Leaked bytes by stack; arrow keys move, Enter zooms, Escape goes back\"></div>");
    table(&mut html, &stacks, all);
    let mut names = Frames::default();
    let stacks = stacks
        .iter()
        .map(|stack| {
            let frames = stack.frames.get(..MAX_DEPTH).unwrap_or(&stack.frames);
            (if stack.kind == LeakKind::Java { 'j' } else { 'n' }, stack.bytes, names.indices(frames))
        })
        .collect();
    let data = Data { stacks, frames: names.names };
    let json = serde_json::to_string(&data).map_err(RenderError::Json)?;
    html.markup("<script type=\"application/json\" id=icicle-data>")
        .json(&json)
        .markup("</script></section>");
    Ok(html)
}

/// The bytes that each function leaks itself, and together with the functions that it calls.
fn table(html: &mut Html, stacks: &[Stack], all: f64) {
    let mut bytes: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for stack in stacks {
        let mut seen = std::collections::BTreeSet::new();
        for frame in &stack.frames {
            // A recursive function is counted once.
            if seen.insert(frame) {
                bytes.entry(frame).or_default().1 += stack.bytes;
            }
        }
        if let Some(last) = stack.frames.last() {
            bytes.entry(last).or_default().0 += stack.bytes;
        }
    }
    let mut rows: Vec<_> = bytes.into_iter().collect();
    rows.sort_by(|(_, a), (_, b)| b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1)));
    let more = rows.len().saturating_sub(ROWS);
    html.markup("<div class=scroll tabindex=0 role=group aria-label=\"Leaked bytes by function\"><table><caption>By function</caption><thead><tr><th scope=col>function<th scope=col class=n>itself<th scope=col class=n>with what it calls</thead><tbody>");
    for (name, (own, total)) in rows.into_iter().take(ROWS) {
        let share = |part: f64| format!("{} ({:.0} %)", format_bytes(part), 100.0 * part / all);
        html.markup("<tr><th scope=row class=code>").text(name).markup("<td class=n>").text(&share(own));
        html.markup("<td class=n>").text(&share(total));
    }
    html.markup("</tbody></table></div>");
    if more > 0 {
        html.element("p class=faint", &format!("and {more} more functions"));
    }
}
