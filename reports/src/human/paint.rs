//! Colours by meaning. Without colour every style is empty, so the text is the same.

use std::fmt::Display;

use anstyle::{AnsiColor, Style};
use memgate_model::Verdict;

/// The styles of a report.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Paint {
    fail: Style,
    warn: Style,
    pass: Style,
    strong: Style,
    faint: Style,
}

impl Paint {
    pub(crate) const fn new(colour: bool) -> Self {
        if !colour {
            let none = Style::new();
            return Self { fail: none, warn: none, pass: none, strong: none, faint: none };
        }
        Self {
            fail: AnsiColor::Red.on_default().bold(),
            warn: AnsiColor::Yellow.on_default().bold(),
            pass: AnsiColor::Green.on_default().bold(),
            strong: Style::new().bold(),
            faint: Style::new().dimmed(),
        }
    }

    /// Text in the colour of a verdict.
    pub(crate) fn verdict(self, verdict: Verdict, text: impl Display) -> String {
        match verdict {
            Verdict::Fail | Verdict::Error => styled(self.fail, text),
            Verdict::Warn | Verdict::NotJudged => styled(self.warn, text),
            Verdict::Pass => styled(self.pass, text),
        }
    }

    /// A name that the reader looks for.
    pub(crate) fn strong(self, text: impl Display) -> String {
        styled(self.strong, text)
    }

    /// Less important text.
    pub(crate) fn faint(self, text: impl Display) -> String {
        styled(self.faint, text)
    }
}

fn styled(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}
