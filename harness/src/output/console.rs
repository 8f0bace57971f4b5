//! Messages on stderr, results on stdout, in colour if wanted.

use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::AsFd;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};

use anstream::stream::RawStream;
use anstyle::{AnsiColor, Style};
use indicatif::ProgressBar;
use memgate_reports::{harmless, harmless_in_colours};

use crate::cli::ColorChoice;
use crate::exit::ExpectedError;
use crate::output::QUIET;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default().bold();

/// How a report is displayed.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    /// Whether to use colours.
    pub colour: bool,
    /// Columns of the terminal; `None`: it is no terminal.
    pub width: Option<usize>,
    /// Whether to show everything.
    pub verbose: bool,
}

/// Called with each step of a pass.
pub(crate) type Watcher = Arc<dyn Fn(Step<'_>) + Send + Sync>;

/// All output of the program.
pub struct Console {
    /// The bar must be hidden while a line is printed.
    bar: Mutex<Option<ProgressBar>>,
    live: bool,
    stdout_is_terminal: bool,
    /// Receives progress too.
    watched: Mutex<Option<Watcher>>,
}

/// Progress of a pass.
#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    /// `screening`, `confirming`
    pub phase: &'a str,
    /// Tests that have ended.
    pub done: u64,
    /// Total number of tests.
    pub of: Option<u64>,
    /// The current test or step, and the verdict so far.
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

    /// Sets the watcher that also receives progress; `None`: removes it.
    pub(crate) fn watched_by(&self, watcher: Option<Watcher>) {
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = watcher;
    }

    pub(super) fn step(&self, step: Step<'_>) {
        if let Some(watcher) = &*self.watched.lock().unwrap_or_else(PoisonError::into_inner) {
            watcher(step);
        }
    }

    /// Whether a bar can be drawn.
    pub(super) const fn is_live(&self) -> bool {
        self.live
    }

    /// Whether a bar can be drawn while the tests write to the same stdout: not if stdout is the same terminal.
    #[must_use]
    pub const fn is_live_beside_tests(&self) -> bool {
        self.live && !self.stdout_is_terminal
    }

    /// Display settings of a report printed with [`Console::line`].
    #[must_use]
    pub fn stderr_screen(&self, verbose: bool) -> Screen {
        screen(&io::stderr(), verbose)
    }

    /// Display settings of a report printed with [`Console::result`].
    #[must_use]
    pub fn stdout_screen(&self, verbose: bool) -> Screen {
        screen(&io::stdout(), verbose)
    }

    /// Prints a line about the work to stderr. Names in it may come from tests, libraries and files, so control
    /// characters are escaped, for terminals and CI servers.
    pub fn line(&self, text: &str) {
        self.rendered(&harmless(text));
    }

    /// Prints a text to stderr that was already made harmless when rendered; it may have colours.
    pub fn rendered(&self, text: &str) {
        self.above_bar(|| {
            // If stderr is closed, the error cannot be reported anywhere.
            drop(writeln!(anstream::stderr().lock(), "{text}"));
        });
    }

    /// Does some work; if it takes longer, prints `what` is waited for.
    pub fn tell_if_slow<T>(&self, what: &str, work: impl FnOnce() -> T) -> T {
        let (working, is_over) = channel::<()>();
        std::thread::scope(|scope| {
            let tell = move || {
                if is_over.recv_timeout(QUIET) == Err(RecvTimeoutError::Timeout) {
                    self.line(what);
                }
            };
            // If no thread can be started, the work is silent.
            drop(std::thread::Builder::new().spawn_scoped(scope, tell));
            let done = work();
            drop(working);
            done
        })
    }

    /// Prints a warning to stderr.
    pub fn warning(&self, text: &str) {
        self.labelled(WARNING, "warning", text);
    }

    /// Prints advice to stderr.
    pub fn hint(&self, text: &str) {
        self.labelled(HINT, "hint", text);
    }

    fn labelled(&self, style: Style, label: &str, text: &str) {
        self.rendered(&format!("{style}{label}:{style:#} {}", harmless(text)));
    }

    /// Prints an error with its hint to stderr. Configuration errors are already rendered, in colour.
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

    /// Prints a requested text for people to stdout, made harmless like [`Console::line`].
    ///
    /// # Errors
    /// Like [`Console::result`].
    pub fn text(&self, text: &str) -> Result<(), ExpectedError> {
        self.result(harmless(text).as_bytes())
    }

    /// Prints requested data to stdout that contain no names from outside, or were made harmless when rendered.
    ///
    /// # Errors
    /// When stdout cannot be written, except if its reader has ended (`memgate report | head`).
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
