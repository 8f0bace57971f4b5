//! Mistakes with their position, rendered like rustc's.
//!
//! A diagnostic shows the line it is about. Values that look like secrets are masked in that line,
//! and values that came from the environment are never part of a message.

use std::fmt;
use std::sync::Arc;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::source::{Source, Span};

/// Largest number of mistakes that are shown; the others are counted. Nobody reads more, and a hostile file could have
/// millions.
const SHOWN: usize = 100;
const WIDTH: usize = 120;

/// Severity of a mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// The file can be used all the same.
    Warning,
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub(crate) source: Arc<Source>,
    pub(crate) severity: Severity,
    pub(crate) title: String,
    pub(crate) span: Span,
    pub(crate) label: String,
    /// Another place of the same file that explains this one.
    pub(crate) context: Option<(Span, String)>,
    pub(crate) hint: Option<String>,
}

impl Diagnostic {
    /// What is wrong, in one line.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.title
    }

    /// Advice, if there is any.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Name of the file.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.source.name
    }

    /// Line, from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.source.line(self.span.start)
    }

    /// Column in characters, from 1.
    #[must_use]
    pub fn column(&self) -> usize {
        self.source.column(self.span.start)
    }

    /// Severity of the mistake.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.severity
    }

    fn render(&self, renderer: &Renderer) -> String {
        let first =
            self.context.as_ref().map_or(self.span.start, |(span, _)| span.start.min(self.span.start));
        let last = self.context.as_ref().map_or(self.span.start, |(span, _)| span.start.max(self.span.start));
        let window = self.source.line_range(first).start..self.source.line_range(last).end;
        let text = mask_secrets(self.source.text.get(window.clone()).unwrap_or(""));
        let within = |span: &Span| {
            let line = self.source.line_range(span.start);
            let start = span.start.min(line.end);
            let end = span.end.clamp(start, line.end);
            start - window.start..end - window.start
        };
        let mut snippet = Snippet::source(text)
            .path(self.source.name.as_ref())
            .line_start(self.source.line(first))
            .annotation(AnnotationKind::Primary.span(within(&self.span)).label(self.label.as_str()));
        if let Some((span, label)) = &self.context {
            snippet = snippet.annotation(AnnotationKind::Context.span(within(span)).label(label.as_str()));
        }
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut group: Group<'_> = level.primary_title(self.title.as_str()).element(snippet);
        if let Some(hint) = &self.hint {
            group = group.element(Level::HELP.with_name("hint").message(hint.as_str()));
        }
        renderer.render(&[group])
    }
}

/// All mistakes of a file, in the order of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diagnostics {
    items: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Takes mistakes in their order. A mistake that an alias repeats is kept once.
    pub(crate) fn new(mut items: Vec<Diagnostic>) -> Self {
        items.dedup_by(|a, b| a.span == b.span && a.title == b.title && a.source.name == b.source.name);
        Self { items }
    }

    /// Every mistake.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.items.iter()
    }

    /// Number of mistakes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Are there no mistakes?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The text to print; with `colour` it has terminal colours.
    #[must_use]
    pub fn render(&self, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let renderer = renderer.term_width(WIDTH).decor_style(DecorStyle::Ascii);
        let mut blocks = self.items.iter().take(SHOWN).map(|d| d.render(&renderer)).collect::<Vec<_>>();
        if let Some(more) = self.items.len().checked_sub(SHOWN).filter(|&more| more > 0) {
            blocks.push(format!("… and {more} more"));
        }
        blocks.join("\n\n")
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Diagnostics {}

const SECRET_KEYS: [&str; 5] = ["password", "secret", "token", "webhook", "url"];
/// What ends a value within a line.
const ENDS: [char; 5] = [',', '"', '\'', ']', '}'];

/// Replaces each value after a key that names a secret with `*`, one per byte so that positions stay. References to the
/// environment (`${…}`) are kept: they reveal nothing and help the reader.
fn mask_secrets(text: &str) -> String {
    text.split_inclusive('\n').map(mask_line).collect()
}

fn mask_line(line: &str) -> String {
    let lower = line.to_ascii_lowercase();
    let after_keys = SECRET_KEYS.iter().flat_map(|key| lower.match_indices(key)).filter_map(|(at, key)| {
        let key_end = at + key.len();
        let from = key_end + lower.get(key_end..)?.find(':')? + 1;
        let value = line.get(from..)?;
        // The keys of a table are looked at one by one.
        let is_table = value.trim_start().trim_start_matches('[').trim_start().starts_with('{');
        (!is_table && !is_reference(value)).then(|| (from, from + end_of_value(value)))
    });
    let users = lower.match_indices("://").filter_map(|(at, slashes)| {
        let authority = at + slashes.len();
        let user = lower.get(authority..)?.split_once('@')?.0;
        // `server: smtps://host, to: [anna@host]`: the address ends before that `@`.
        let ends = |(first, _): (&str, &str)| !first.contains(':') && first.ends_with(ENDS);
        let is_other = user.split_once([' ', '\t']).is_some_and(ends);
        let colon = user.find(':').filter(|_| !is_other)?;
        Some((authority + colon + 1, authority + user.len()))
    });
    after_keys.chain(users).fold(line.to_owned(), |masked, (from, to)| cover(&masked, from, to))
}

/// Is a value one reference to the environment, without a default?
fn is_reference(value: &str) -> bool {
    let value = value.trim_start().trim_start_matches(['"', '\'']);
    value.strip_prefix("${").and_then(|rest| rest.split_once('}')).is_some_and(|(name, rest)| {
        !name.contains(":-") && rest.chars().next().is_none_or(|c| c.is_whitespace() || ENDS.contains(&c))
    })
}

/// The length of a value in its line: up to its closing quote, otherwise up to the next entry.
fn end_of_value(value: &str) -> usize {
    let text = value.trim_start();
    let quote = text.chars().next().filter(|c| ['"', '\''].contains(c));
    match quote.and_then(|quote| closing(text, quote)) {
        Some(end) => value.len() - text.len() + end,
        None => end_of_plain(value).unwrap_or(value.len()),
    }
}

/// Where a value without quotes ends. References are part of it: `${A:-b}c`.
fn end_of_plain(value: &str) -> Option<usize> {
    let mut before = ' ';
    let mut is_inside = false;
    for (at, c) in value.char_indices() {
        match c {
            '\n' | '\r' => return Some(at),
            ',' | '}' if !is_inside => return Some(at),
            '}' => is_inside = false,
            '{' if before == '$' => is_inside = true,
            _ => {}
        }
        before = c;
    }
    None
}

/// Where the quote that begins a text ends: `"a\"b"`, `'a''b'`.
fn closing(text: &str, quote: char) -> Option<usize> {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        let escapes = match quote {
            '"' => c == '\\',
            _ => c == quote && chars.peek().is_some_and(|(_, next)| *next == quote),
        };
        if escapes {
            chars.next();
        } else if c == quote {
            return Some(at);
        }
    }
    None
}

fn cover(text: &str, from: usize, to: usize) -> String {
    let keep = |c: char| c == ' ' || c == '"' || c == '\'';
    text.char_indices()
        .flat_map(|(at, c)| {
            let hidden = (from..to).contains(&at) && !keep(c);
            std::iter::repeat_n(if hidden { '*' } else { c }, if hidden { c.len_utf8() } else { 1 })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_the_shown_line_are_masked_and_positions_stay() {
        for (line, expected) in [
            ("  password: hunter2", "  password: *******"),
            ("mail: { password: \"hünter\", when: x }", "mail: { password: \"*******\", when: x }"),
            ("  password: ${SMTP}", "  password: ${SMTP}"),
            ("server: smtps://ci:pw@host", "server: smtps://ci:**@host"),
            ("server: smtps://ci@host", "server: smtps://ci@host"),
            ("SLACK_TOKEN: abc", "SLACK_TOKEN: ***"),
            ("[{ url: one }, { url: two }]", "[{ url: *** }, { url: *** }]"),
            ("{ url: one, token: \"${TWO}\" }", "{ url: ***, token: \"${TWO}\" }"),
            ("{ token: ${A:-b} }", "{ token: ******* }"),
            ("{ token: ${A}b }", "{ token: ***** }"),
            ("webhooks: [{ chat: slack, url: one }]", "webhooks: [{ chat: slack, url: *** }]"),
            ("server: smtps://some user:pw@host", "server: smtps://some user:**@host"),
            ("{ password: \"a,b}c\", to: x }", "{ password: \"*****\", to: x }"),
            ("{ server: smtps://host, to: [anna@host] }", "{ server: smtps://host, to: [anna@host] }"),
            ("[https://host, https://ci:pw@host]", "[https://host, https://ci:**@host]"),
        ] {
            assert_eq!(mask_secrets(line), expected);
            assert_eq!(mask_secrets(line).len(), line.len(), "{line}");
        }
    }
}
