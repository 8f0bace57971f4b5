//! Commands on the device: `shell,v2` if the device offers it, else `shell` with an extra line after the command that
//! prints its status (both are decoded in `output`).
//!
//! Dropping a [`Shell`] closes the stream; the device then sends the command a SIGHUP.

use std::borrow::Cow;

use super::AdbError;
use super::device::{Bounds, Device};
use super::output::{CLOSE_STDIN, Chunk, Marked, Packets, packet};
use super::wire::{Broken, Connection};

/// A command's outputs and status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Standard output. Without `shell_v2` standard error too, and line ends are `\n`.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Exit status, or 128 plus the number of a signal.
    pub exit: u8,
}

/// A running command.
#[derive(Debug)]
pub struct Shell {
    device: Device,
    during: String,
    connection: Connection,
    protocol: Protocol,
    ended: Option<u8>,
}

#[derive(Debug)]
enum Protocol {
    Packets(Packets),
    Marked(Marked),
}

impl Output {
    /// Standard output as text, without the line end at its end.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        match String::from_utf8_lossy(&self.stdout) {
            Cow::Borrowed(text) => Cow::Borrowed(text.trim_end()),
            Cow::Owned(text) => Cow::Owned(text.trim_end().to_owned()),
        }
    }

    /// Turns an exit status other than 0 into an error of `what`.
    ///
    /// # Errors
    /// [`AdbError::Command`] with the output of the command.
    pub fn success(self, what: &str) -> Result<Self, AdbError> {
        if self.exit == 0 {
            return Ok(self);
        }
        let said = if self.stderr.is_empty() { &self.stdout } else { &self.stderr };
        let said: String = String::from_utf8_lossy(said).trim().chars().take(500).collect();
        Err(AdbError::Command { during: what.to_owned(), exit: self.exit, said })
    }
}

impl Device {
    /// Runs a command to its end, within the device's bounds. An exit status other than 0 is no error here.
    ///
    /// # Errors
    /// The device cannot be asked, is lost, or sends too much or too late.
    pub async fn shell(&self, command: &str) -> Result<Output, AdbError> {
        self.shell_within(command, self.bounds()).await
    }

    /// The same within other bounds.
    ///
    /// # Errors
    /// As [`Device::shell`].
    pub async fn shell_within(&self, command: &str, bounds: Bounds) -> Result<Output, AdbError> {
        let mut shell = self.start(command).await?;
        shell.close_stdin().await?;
        let during = shell.during.clone();
        self.within(bounds.time, &during, shell.finish(bounds.bytes)).await
    }

    /// Starts a command. The caller limits its time.
    ///
    /// # Errors
    /// The device cannot be asked.
    pub async fn start(&self, command: &str) -> Result<Shell, AdbError> {
        let during = during(command);
        let (service, protocol) = if self.has("shell_v2") {
            (format!("shell,v2,raw:{command}"), Protocol::Packets(Packets::default()))
        } else {
            let marked = Marked::new();
            // The status gets a line of its own, whatever the command ends with.
            (format!("shell:{command}\necho {}$?", marked.marker), Protocol::Marked(marked))
        };
        let connection = self.open(&service, &during).await?;
        Ok(Shell { device: self.clone(), during, connection, protocol, ended: None })
    }
}

/// Long commands are shortened: the beginning identifies them.
fn during(command: &str) -> String {
    const SHOWN: usize = 120;
    let shown: String = command.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    format!("run `{shown}{}`", if command.chars().nth(SHOWN).is_some() { "…" } else { "" })
}

impl Shell {
    /// The next output; at the end, and from then on, the status. May be cancelled and called again.
    ///
    /// # Errors
    /// The device is lost, or violates the protocol.
    pub async fn next(&mut self) -> Result<Chunk, AdbError> {
        if let Some(status) = self.ended {
            return Ok(Chunk::Exit(status));
        }
        match self.protocol.next(&mut self.connection).await {
            Ok(said) => {
                if let Chunk::Exit(status) = said {
                    self.ended = Some(status);
                }
                Ok(said)
            }
            Err(broken) => Err(self.device.broken(broken, &self.during).await),
        }
    }

    /// Ends its standard input. A legacy shell keeps it open.
    async fn close_stdin(&mut self) -> Result<(), AdbError> {
        if matches!(self.protocol, Protocol::Packets(_)) {
            // A command that has ended has already sent its status, which is still to be read.
            if let Err(Broken::Garbage(_) | Broken::Fail(_)) =
                self.connection.write(&packet(CLOSE_STDIN, &[])).await
            {
                return Err(self.device.broken(Broken::Closed, &self.during).await);
            }
        }
        Ok(())
    }

    async fn finish(&mut self, limit: usize) -> Result<Output, AdbError> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        loop {
            match self.next().await? {
                Chunk::Stdout(bytes) => stdout.extend(bytes),
                Chunk::Stderr(bytes) => stderr.extend(bytes),
                Chunk::Exit(exit) => return Ok(Output { stdout, stderr, exit }),
            }
            if stdout.len() + stderr.len() > limit {
                return Err(AdbError::TooMuch { during: self.during.clone(), limit });
            }
        }
    }
}

impl Protocol {
    async fn next(&mut self, connection: &mut Connection) -> Result<Chunk, Broken> {
        loop {
            let there = connection.there().await?;
            if there.is_empty() {
                return match self {
                    Self::Packets(_) => Err(Broken::Closed),
                    Self::Marked(marked) => marked.end(),
                };
            }
            let (used, said) = match self {
                Self::Packets(packets) => packets.take(there)?,
                Self::Marked(marked) => (there.len(), marked.take(there)),
            };
            connection.used(used);
            if let Some(said) = said {
                return Ok(said);
            }
        }
    }
}
