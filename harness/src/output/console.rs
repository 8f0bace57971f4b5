//! Lines on stderr, results on stdout, colours where they are wanted.

use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use anstream::stream::RawStream;
use anstyle::{AnsiColor, Style};
use indicatif::ProgressBar;
use memgate_reports::{harmless, harmless_in_colours};

use crate::cli::ColorChoice;
use crate::exit::ExpectedError;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default().bold();

/// How a report is shown to a person.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    /// With colours?
    pub colour: bool,
    /// Columns of the terminal; `None`: it is no terminal.
    pub width: Option<usize>,
    /// Everything?
    pub verbose: bool,
}

/// Takes each step of a pass.
pub(crate) type Watcher = Arc<dyn Fn(Step<'_>) + Send + Sync>;

/// Where everything is printed.
pub struct Console {
    /// A bar must be lifted while a line is printed.
    bar: Mutex<Option<ProgressBar>>,
    live: bool,
    stdout_is_terminal: bool,
    /// Where else progress is told.
    watched: Mutex<Option<Watcher>>,
}

/// How far a pass is.
#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    /// `screening`, `confirming`
    pub phase: &'a str,
    /// Tests that are over.
    pub done: u64,
    /// How many there are.
    pub of: Option<u64>,
    /// What runs now, and the verdict so far.
    pub now: &'a str,
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console").field("live", &self.live).finish_non_exhaustive()
    }
}

impl Console {
    /// Prints to this process's stderr and stdout.
    #[must_use]
    pub fn new(color: ColorChoice) -> Self {
        match color {
            ColorChoice::Auto => anstream::ColorChoice::Auto,
            ColorChoice::Always => anstream::ColorChoice::Always,
            ColorChoice::Never => anstream::ColorChoice::Never,
        }
        .write_global();
        let in_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false");
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let live = io::stderr().is_terminal() && !in_ci && !dumb;
        Self {
            bar: Mutex::new(None),
            live,
            stdout_is_terminal: io::stdout().is_terminal(),
            watched: Mutex::new(None),
        }
    }

    /// Progress is told there, too, from now on; `None`: no longer.
    pub(crate) fn watched_by(&self, watcher: Option<Watcher>) {
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = watcher;
    }

    pub(super) fn step(&self, step: Step<'_>) {
        if let Some(watcher) = &*self.watched.lock().unwrap_or_else(PoisonError::into_inner) {
            watcher(step);
        }
    }

    /// Can a bar be drawn?
    pub(super) const fn is_live(&self) -> bool {
        self.live
    }

    /// Can a bar be drawn while the tests write to the same stdout? Not where that is the same
    /// terminal.
    #[must_use]
    pub const fn is_live_beside_tests(&self) -> bool {
        self.live && !self.stdout_is_terminal
    }

    /// How a report looks that is printed by [`Console::line`].
    #[must_use]
    pub fn stderr_screen(&self, verbose: bool) -> Screen {
        screen(&io::stderr(), verbose)
    }

    /// How a report looks that is printed by [`Console::result`].
    #[must_use]
    pub fn stdout_screen(&self, verbose: bool) -> Screen {
        screen(&io::stdout(), verbose)
    }

    /// A line about the work, to stderr. Names in it may come from tests, libraries and files:
    /// none of them acts on the terminal or on the CI server that reads it.
    pub fn line(&self, text: &str) {
        self.rendered(&harmless(text));
    }

    /// What was made harmless where it was rendered, and may have colours, to stderr.
    pub fn rendered(&self, text: &str) {
        self.above_bar(|| {
            // Nobody can be told that stderr is gone.
            drop(writeln!(anstream::stderr().lock(), "{text}"));
        });
    }

    /// Something to look at, to stderr.
    pub fn warning(&self, text: &str) {
        self.labelled(WARNING, "warning", text);
    }

    /// What to do, to stderr.
    pub fn hint(&self, text: &str) {
        self.labelled(HINT, "hint", text);
    }

    fn labelled(&self, style: Style, label: &str, text: &str) {
        self.rendered(&format!("{style}{label}:{style:#} {}", harmless(text)));
    }

    /// An error with its hint, to stderr. A configuration's mistakes come rendered, in colours.
    pub fn error(&self, error: &ExpectedError) {
        match error {
            ExpectedError::Configuration(rendered) => {
                self.rendered(&harmless_in_colours(rendered.trim_end()));
            }
            other => self.labelled(ERROR, "error", &other.to_string()),
        }
        if let Some(hint) = error.hint() {
            self.hint(&hint);
        }
    }

    /// What was asked for, as text for people, to stdout: harmless as [`Console::line`] is.
    ///
    /// # Errors
    /// As [`Console::result`].
    pub fn text(&self, text: &str) -> Result<(), ExpectedError> {
        self.result(harmless(text).as_bytes())
    }

    /// What was asked for and is no text with names from outside, or was made harmless where it
    /// was rendered, to stdout.
    ///
    /// # Errors
    /// When stdout cannot be written to, except that nobody reads it any more (`memgate report |
    /// head`).
    pub fn result(&self, bytes: &[u8]) -> Result<(), ExpectedError> {
        let mut stdout = anstream::stdout().lock();
        match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(ExpectedError::file("write", "stdout".as_ref())(error))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn set_bar(&self, bar: Option<ProgressBar>) {
        *self.bar.lock().unwrap_or_else(PoisonError::into_inner) = bar;
    }

    fn above_bar(&self, print: impl FnOnce()) {
        match &*self.bar.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }
}

fn screen(stream: &(impl RawStream + AsFd), verbose: bool) -> Screen {
    let size = rustix::termios::tcgetwinsize(stream).ok();
    Screen {
        colour: anstream::AutoStream::choice(stream) != anstream::ColorChoice::Never,
        width: size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0),
        verbose,
    }
}
