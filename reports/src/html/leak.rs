//! A group of leaks: its title and holder, its allocation site, and how to accept it.

use memgate_model::{Frame, Leak, LeakKind, format_bytes};

use super::write::Html;
use crate::holder::holder;
use crate::human::{accepting, waive_command};
use crate::names::{in_module, of_frame};
use crate::stacks::own;
use crate::suite_test::SuiteTest;

/// `grows`: the leak grows in this test of a suite, and may be waived until this day; `None`: it was allocated once.
pub(super) fn group(html: &mut Html, leak: &Leak, grows: Option<(SuiteTest<'_>, &str)>) {
    html.markup("<div class=leak").attribute("data-leak", &leak.id).markup("><h3>").text(&leak.title);
    if leak.kind != LeakKind::Os {
        let per = if grows.is_some() { leak.kind.per() } else { "" };
        html.markup(" <span class=faint>").text(&format!("{}{per}", format_bytes(leak.bytes_per_iteration)));
        html.markup("</span>");
    }
    html.markup("</h3>");
    holder_and_stack(html, leak);
    html.markup("<p class=facts>");
    if grows.is_some() {
        html.markup("leak ");
    }
    html.markup("<code>").text(&leak.id).markup("</code>");
    if !leak.owners.is_empty() {
        html.text(&format!(" · owner {}", leak.owners.join(" ")));
    }
    match (grows, &leak.waiver) {
        (Some(_), Some(reason)) => {
            html.text(&format!(" · waived: {reason}")).markup("</p>");
        }
        (Some((at, until)), None) => {
            html.markup(" · <a")
                .attribute("href", &format!("#l:{}", leak.id))
                .markup(">link to this leak</a></p>");
            html.markup("<p class=facts>").text(&format!("{}: ", accepting(leak)));
            command(html, &waive_command(leak, at, until));
            html.markup("</p>");
        }
        (None, _) => {
            html.markup("</p>");
        }
    }
    html.markup("</div>");
}

/// The holder, and the stack of the allocation; frames of the test runner are collapsed.
pub fn holder_and_stack(html: &mut Html, leak: &Leak) {
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
}

/// A command, with a button to copy it.
pub(super) fn command(html: &mut Html, command: &str) {
    html.markup("<code class=command>")
        .text(command)
        .markup("</code> <button type=button class=copy>copy</button>");
}

fn stack_line(html: &mut Html, frame: &Frame) {
    html.markup("<li><code>").text(&of_frame(frame)).markup("</code>");
    let place = match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("{file}:{line}"),
        (Some(file), None) => file.clone(),
        (None, _) if frame.function.is_some() && !frame.module.is_empty() => in_module(frame),
        (None, _) => String::new(),
    };
    let inlined = if frame.inlined { " (inlined)" } else { "" };
    html.markup(" <span class=faint>").text(&place).text(inlined).markup("</span>");
}
