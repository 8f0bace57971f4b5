//! A leak group: what leaks, who holds it, where it was allocated, and how to accept it.

use memgate_model::{Frame, Leak, LeakKind, format_bytes};

use super::write::Html;
use crate::human::holder;
use crate::names::{in_module, of_frame};
use crate::stacks::own;

pub(super) fn group(html: &mut Html, leak: &Leak, grows: bool) {
    html.markup("<div class=leak><h3>").text(&leak.title);
    if leak.kind != LeakKind::Os {
        let per = if grows { " per iteration" } else { "" };
        html.markup(" <span class=faint>").text(&format!("{}{per}", format_bytes(leak.bytes_per_iteration)));
        html.markup("</span>");
    }
    html.markup("</h3>");
    let held_by = holder(leak);
    if !held_by.is_empty() {
        html.element("p class=holder", &held_by);
    }
    if leak.kind == LeakKind::Java && !leak.frames.is_empty() {
        html.markup("<p>allocated at</p>");
    }
    if !leak.frames.is_empty() {
        let own = own(leak);
        html.markup("<ol class=stack>");
        own.iter().for_each(|frame| stack_line(html, frame));
        if leak.truncated {
            html.markup("<li class=faint>… cut off: not unwound to its root");
        }
        html.markup("</ol>");
        if let Some(runner @ [_, ..]) = leak.frames.get(own.len()..) {
            html.markup("<details class=more><summary>frames of the test runner</summary><ol class=stack>");
            runner.iter().for_each(|frame| stack_line(html, frame));
            html.markup("</ol></details>");
        }
    }
    html.markup("<p class=facts>");
    if grows {
        html.markup("leak <code>").text(&leak.id).markup("</code>");
        match &leak.waiver {
            Some(reason) => html.text(&format!(" · waived: {reason}")),
            None => html
                .markup(" · accept it for now: <code>memgate waive ")
                .text(&leak.id)
                .markup(" --reason … --until …</code>"),
        };
    } else {
        html.markup("<code>").text(&leak.id).markup("</code>");
    }
    html.markup("</p></div>");
}

fn stack_line(html: &mut Html, frame: &Frame) {
    html.markup("<li><code>").text(&of_frame(frame)).markup("</code>");
    let place = match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("{file}:{line}"),
        (Some(file), None) => file.clone(),
        (None, _) if frame.function.is_some() => in_module(frame),
        (None, _) => String::new(),
    };
    let inlined = if frame.inlined { " (inlined)" } else { "" };
    html.markup(" <span class=faint>").text(&place).text(inlined).markup("</span>");
}
