//! A stream to a socket of an app, through the server's own port. So no port forward can be lost or left over, and a
//! socket without a listener can be distinguished from one that is closed.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};

use super::AdbError;
use super::device::Device;
use super::duplex::Duplex;

/// A stream to a socket on the device. It ends when the app closes it or the connection is lost: [`Device::state`]
/// shows which.
pub struct Pipe(BufReader<Box<dyn Duplex>>);

impl Device {
    /// Connects to the abstract Unix socket `@name`.
    ///
    /// # Errors
    /// [`AdbError::NobodyListens`], or the device cannot be asked.
    pub async fn open_local_abstract(&self, name: &str) -> Result<Pipe, AdbError> {
        match self.open(&format!("localabstract:{name}"), &format!("connect to @{name}")).await {
            Ok(connection) => Ok(Pipe(connection.into_stream())),
            Err(AdbError::Refused { message, .. }) if message == "closed" => {
                Err(AdbError::NobodyListens { serial: self.serial().to_owned(), name: name.to_owned() })
            }
            Err(why) => Err(why),
        }
    }
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pipe")
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
