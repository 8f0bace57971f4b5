//! Input and output of a command: packets of `shell,v2`, or the bare stream of older services.

use std::io;
use std::sync::Arc;

use super::transport::Channel;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const EXIT: u8 = 3;
const CLOSE_STDIN: u8 = 4;
/// Size of adbd's own buffer.
const PACKET_BYTES: usize = 32 << 10;

/// Input and output of a command; not a real terminal.
pub struct Terminal {
    channel: Arc<Channel>,
    packets: bool,
    /// Received, not read yet.
    came: Vec<u8>,
    input: Vec<u8>,
    input_ended: bool,
    out_is_nothing: bool,
    err_is_nothing: bool,
    err_is_out: bool,
}

impl Terminal {
    pub(super) fn new(channel: &Arc<Channel>, packets: bool) -> Self {
        Self {
            channel: Arc::clone(channel),
            packets,
            came: Vec::new(),
            input: Vec::new(),
            input_ended: false,
            out_is_nothing: false,
            err_is_nothing: false,
            err_is_out: false,
        }
    }

    /// Sets where the outputs of the next command go.
    pub(super) fn redirect(&mut self, out_is_nothing: bool, err_is_nothing: bool, err_is_out: bool) {
        (self.out_is_nothing, self.err_is_nothing, self.err_is_out) =
            (out_is_nothing, err_is_nothing, err_is_out);
    }

    /// Prints to standard output.
    ///
    /// # Errors
    /// The client has hung up.
    pub fn out(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.out_is_nothing {
            return Ok(());
        }
        self.write(STDOUT, bytes)
    }

    /// Prints to standard error.
    ///
    /// # Errors
    /// The client has hung up.
    pub fn err(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.err_is_nothing {
            return Ok(());
        }
        self.write(if self.err_is_out { STDOUT } else { STDERR }, bytes)
    }

    /// Has the client hung up? A device then sends SIGHUP.
    #[must_use]
    pub fn gone(&self) -> bool {
        self.channel.gone()
    }

    pub(super) fn exit(&mut self, status: u8) -> io::Result<()> {
        if self.packets { self.channel.write(&packet(EXIT, &[status])) } else { Ok(()) }
    }

    fn write(&mut self, id: u8, bytes: &[u8]) -> io::Result<()> {
        if !self.packets {
            return self.channel.write(bytes);
        }
        for piece in bytes.chunks(PACKET_BYTES) {
            self.channel.write(&packet(id, piece))?;
        }
        Ok(())
    }

    /// Takes the complete packets.
    fn unpack(&mut self) {
        while let Some((head, rest)) = self.came.split_first_chunk::<5>() {
            let [id, length @ ..] = *head;
            let Some(payload) = rest.get(..u32::from_le_bytes(length) as usize) else { return };
            match id {
                STDIN => self.input.extend(payload),
                CLOSE_STDIN => self.input_ended = true,
                _ => {}
            }
            self.came.drain(..5 + payload.len());
        }
    }
}

impl io::Read for Terminal {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.input.is_empty() && !self.input_ended {
            match self.channel.read()? {
                None => self.input_ended = true,
                Some(bytes) if self.packets => {
                    self.came.extend(bytes);
                    self.unpack();
                }
                Some(bytes) => self.input.extend(bytes),
            }
        }
        let length = into.len().min(self.input.len());
        into[..length].copy_from_slice(&self.input[..length]);
        self.input.drain(..length);
        Ok(length)
    }
}

fn packet(id: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    [&[id], &length.to_le_bytes()[..], bytes].concat()
}
