//! The services that a stream can open: a command, file transfer, a socket of an app.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::Arc;
use std::thread;

use super::transport::Channel;
use super::{StandIn, Terminal, commands, sync};

/// Serves one stream to its end.
pub(super) fn serve(device: &StandIn, channel: &Arc<Channel>) -> io::Result<()> {
    let service = channel.service().to_owned();
    let has_v2 = device.inner.made.features.split(',').any(|feature| feature == "shell_v2");
    let (kind, rest) = service.split_once(':').unwrap_or((&service, ""));
    match kind {
        "shell" | "exec" if !rest.is_empty() => {
            channel.accept()?;
            run(device, Terminal::new(channel, false), rest)
        }
        _ if kind.starts_with("shell,v2") && has_v2 && !rest.is_empty() => {
            channel.accept()?;
            run(device, Terminal::new(channel, true), rest)
        }
        "sync" => {
            channel.accept()?;
            sync::serve(device, channel)
        }
        "localabstract" => bridge(device, channel, rest),
        _ => {
            device.not_known(&format!("service {service}"));
            channel.refuse()
        }
    }
}

fn run(device: &StandIn, mut terminal: Terminal, line: &str) -> io::Result<()> {
    device.state().commands.push(line.to_owned());
    let status = commands::run(device, line, &mut terminal)?;
    terminal.redirect(false, false, false);
    terminal.exit(status)
}

fn bridge(device: &StandIn, channel: &Arc<Channel>, name: &str) -> io::Result<()> {
    if let Some(handler) = device.inner.made.handlers.get(name).cloned() {
        channel.accept()?;
        handler(&mut Ends { channel, came: Vec::new() });
        return Ok(());
    }
    let Ok(socket) =
        SocketAddr::from_abstract_name(name).and_then(|address| UnixStream::connect_addr(&address))
    else {
        return channel.refuse();
    };
    channel.accept()?;
    let (mut from, back) = (socket.try_clone()?, Arc::clone(channel));
    let up = thread::spawn(move || -> io::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            match from.read(&mut buffer)? {
                0 => return Ok(()),
                got => back.write(&buffer[..got])?,
            }
        }
    });
    let down = Arc::clone(channel);
    let mut into = socket.try_clone()?;
    thread::spawn(move || {
        while let Ok(Some(bytes)) = down.read() {
            if into.write_all(&bytes).is_err() {
                break;
            }
        }
        // The client left: shutting down tells the app, which then ends the other direction.
        drop(into.shutdown(Shutdown::Both));
    });
    // The app hung up: its output has been delivered, so the stream ends.
    drop(up.join());
    drop(socket.shutdown(Shutdown::Both));
    Ok(())
}

/// A stream as a handler sees it, with the bytes not read yet.
struct Ends<'a> {
    channel: &'a Channel,
    came: Vec<u8>,
}

impl Read for Ends<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.came.is_empty() {
            self.came = self.channel.read()?.unwrap_or_default();
        }
        let length = into.len().min(self.came.len());
        into[..length].copy_from_slice(&self.came[..length]);
        self.came.drain(..length);
        Ok(length)
    }
}

impl Write for Ends<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.channel.write(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
