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
const OPENING: [char; 4] = ['[', '{', '"', '\''];
const CLOSING: [char; 5] = [',', ']', '}', '"', '\''];

/// Replaces what follows a key of a secret in its line, and passwords in addresses, with `*`, one per byte so that
/// positions stay. Where a secret ends is not certain in a line with errors.
fn mask_secrets(text: &str) -> String {
    text.split_inclusive('\n').map(mask_line).collect()
}

fn mask_line(line: &str) -> String {
    let lower = line.to_ascii_lowercase();
    let after_key = SECRET_KEYS.iter().filter_map(|key| {
        let key_end = lower.find(key)? + key.len();
        Some(key_end + lower.get(key_end..)?.find(':')? + 1)
    });
    // The name of a user may contain blanks. So the first address of the line lasts to the next `@`.
    let of_first = line.find("://").and_then(|at| password(line.get(..=at + line.get(at..)?.find('@')?)?));
    let ranges = after_key.min().map(|from| (from, line.len())).into_iter().chain(of_first);
    let words = line.split_inclusive(char::is_whitespace);
    let masked: String =
        words.map(|word| mask(word.to_owned(), password(word).unwrap_or_default())).collect();
    ranges.fold(masked, mask)
}

/// Where the password of an address is: `smtps://user:password@host`.
fn password(text: &str) -> Option<(usize, usize)> {
    let authority = text.find("://")? + 3;
    let end = authority + text.get(authority..)?.rfind('@')?;
    let colon = authority + text.get(authority..end)?.find(':')?;
    Some((colon + 1, end))
}

fn mask(text: String, (from, to): (usize, usize)) -> String {
    match (text.get(..from), text.get(from..to), text.get(to..)) {
        (Some(before), Some(secret), Some(after)) => {
            format!("{before}{}{after}", mask_values(secret, text.contains('{')))
        }
        _ => text,
    }
}

/// Masks all words but the keys of tables in braces, and references to the environment (`${…}`): these reveal nothing
/// and help the reader.
fn mask_values(text: &str, has_tables: bool) -> String {
    let (mut may_be_key, mut quotes) = (false, 0);
    let mask = |word: &str| {
        let inner = word.trim_start_matches(OPENING).trim_end().trim_end_matches(CLOSING);
        let is_key = may_be_key && word.trim_end().ends_with(':');
        let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let is_reference = word.contains('}') && inner.strip_prefix("${").is_some_and(is_name);
        quotes += word.matches(['"', '\'']).count();
        may_be_key = has_tables && quotes % 2 == 0 && word.trim_end().ends_with(['{', ',']);
        match inner.is_empty() || is_key || is_reference {
            true => word.to_owned(),
            false => word.replacen(inner, &"*".repeat(inner.len()), 1),
        }
    };
    text.split_inclusive(char::is_whitespace).map(mask).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_the_shown_line_are_masked_and_positions_stay() {
        for (line, expected) in [
            ("  password: hunter2", "  password: *******"),
            ("mail: { password: \"hünter\", when: x }", "mail: { password: \"*******\", when: * }"),
            ("  password: ${SMTP}", "  password: ${SMTP}"),
            ("server: smtps://ci:pw@host", "server: smtps://ci:**@host"),
            ("server: smtps://ci:p@ss@host", "server: smtps://ci:****@host"),
            ("server: smtps://ci@host", "server: smtps://ci@host"),
            ("[https://host, https://ci:pw@host]", "[https://host, https:*******@host]"),
            ("{ A: https://a:x@h, B: https://b:pw@h }", "{ A: https://a:*@h, B: https://b:**@h }"),
            ("password: \"correct, horse: battery\"", "password: \"*******, ****** *******\""),
            ("SLACK_TOKEN: abc", "SLACK_TOKEN: ***"),
            ("[{ url: one }, { url: two }]", "[{ url: *** }, { url: *** }]"),
            ("{ url: one, token: \"${TWO}\" }", "{ url: ***, token: \"${TWO}\" }"),
            ("{ token: ${A:-b} }", "{ token: ******} }"),
            ("{ token: ${A}b }", "{ token: ***** }"),
            ("password: \"${USER} ${PW:-hunter2}\"", "password: \"${USER} *************}\""),
            (
                "webhooks: [{ chat: slack, link: https://h/one }]",
                "webhooks: [{ chat: *****, link: ************* }]",
            ),
            ("token: {hunter2}", "token: {*******}"),
            ("token: { value: hunter2 }", "token: { value: ******* }"),
            ("password: hunter2: ", "password: ******** "),
            ("password: hunter,2", "password: ********"),
            ("password: 'hun ter", "password: '*** ***"),
            ("server: smtps://some user:pw@host", "server: smtps://some user:**@host"),
            ("{ password: \"a,b}c\", to: x }", "{ password: \"*****\", to: * }"),
        ] {
            assert_eq!(mask_secrets(line), expected);
            assert_eq!(mask_secrets(line).len(), line.len(), "{line}");
        }
    }
}
