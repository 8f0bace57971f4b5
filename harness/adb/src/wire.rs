//! The smart-socket protocol: a request is four hexadecimal digits of length and a text, the answer `OKAY` or `FAIL`
//! with such a text. Four digits limit every text, so nothing here can grow.
//!
//! The caller decides which side broke a connection (the server or the device).

use std::fmt;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use super::duplex::Duplex;

/// Maximum value of four hexadecimal digits.
const LONGEST_TEXT: usize = 0xffff;
/// Bytes read at once; also the longest piece that a shell returns at once.
const BUFFER_BYTES: usize = 64 << 10;

/// A connection to the server, or through it to a service of a device.
pub(super) struct Connection {
    stream: BufReader<Box<dyn Duplex>>,
}

/// How an exchange failed.
#[derive(Debug)]
pub(super) enum Broken {
    /// The other side is gone. Every socket error means this, whatever its code.
    Closed,
    /// `FAIL`, with its reason.
    Fail(String),
    /// The answer violates the protocol.
    Garbage(String),
}

/// A text that has arrived in part, so that waiting for the rest can be cancelled.
#[derive(Debug, Default)]
pub(super) struct Frame {
    bytes: Vec<u8>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

impl From<std::io::Error> for Broken {
    fn from(_: std::io::Error) -> Self {
        Self::Closed
    }
}

/// Why a request cannot be sent at all.
pub(super) fn unsayable(request: &str) -> Option<&'static str> {
    if request.len() > LONGEST_TEXT {
        return Some("it is longer than 65535 bytes");
    }
    // A device ends the name of a service at a NUL.
    request.contains('\0').then_some("it holds a NUL")
}

impl Connection {
    pub(super) fn over(stream: Box<dyn Duplex>) -> Self {
        Self { stream: BufReader::with_capacity(BUFFER_BYTES, stream) }
    }

    /// Sends a request and waits until it is granted or refused.
    pub(super) async fn ask(&mut self, request: &str) -> Result<(), Broken> {
        self.stream.write_all(format!("{:04x}{request}", request.len()).as_bytes()).await?;
        self.verdict().await
    }

    async fn verdict(&mut self) -> Result<(), Broken> {
        let mut status = [0; 4];
        self.exactly(&mut status).await?;
        match &status {
            b"OKAY" => Ok(()),
            b"FAIL" => Err(Broken::Fail(self.text().await?)),
            other => Err(Broken::Garbage(format!(
                "neither OKAY nor FAIL, but `{}`",
                start_of(&String::from_utf8_lossy(other))
            ))),
        }
    }

    /// A text after its length.
    pub(super) async fn text(&mut self) -> Result<String, Broken> {
        self.frame(&mut Frame::default()).await
    }

    /// The same; may be cancelled and called again with the same frame.
    pub(super) async fn frame(&mut self, frame: &mut Frame) -> Result<String, Broken> {
        self.until(&mut frame.bytes, 4).await?;
        let length = hexadecimal(&frame.bytes[..4])?;
        self.until(&mut frame.bytes, 4 + length).await?;
        let bytes = std::mem::take(&mut frame.bytes);
        match String::from_utf8(bytes) {
            Ok(text) => Ok(text[4..].to_owned()),
            Err(_) => Err(Broken::Garbage("a text that is no UTF-8".to_owned())),
        }
    }

    async fn until(&mut self, bytes: &mut Vec<u8>, want: usize) -> Result<(), Broken> {
        while bytes.len() < want {
            let got = self.piece(want - bytes.len()).await?;
            if got.is_empty() {
                return Err(Broken::Closed);
            }
            bytes.extend(got);
        }
        Ok(())
    }

    /// The bytes that have arrived, at most `most`; empty at the end. May be cancelled.
    pub(super) async fn piece(&mut self, most: usize) -> Result<Vec<u8>, Broken> {
        let there = self.stream.fill_buf().await?;
        let piece = there.get(..most).unwrap_or(there).to_vec();
        self.stream.consume(piece.len());
        Ok(piece)
    }

    /// The bytes that have arrived, to be marked as [`used`](Self::used); empty at the end. May be cancelled.
    pub(super) async fn there(&mut self) -> Result<&[u8], Broken> {
        Ok(self.stream.fill_buf().await?)
    }

    pub(super) fn used(&mut self, bytes: usize) {
        self.stream.consume(bytes);
    }

    pub(super) async fn exactly(&mut self, bytes: &mut [u8]) -> Result<(), Broken> {
        self.stream.read_exact(bytes).await?;
        Ok(())
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        self.stream.write_all(bytes).await?;
        Ok(())
    }

    pub(super) fn into_stream(self) -> BufReader<Box<dyn Duplex>> {
        self.stream
    }
}

/// The beginning of a text that was not understood.
pub(super) fn start_of(text: &str) -> String {
    text.chars().take(60).flat_map(char::escape_debug).collect()
}

fn hexadecimal(digits: &[u8]) -> Result<usize, Broken> {
    // `from_str_radix` alone would accept a sign.
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
    text.and_then(|text| usize::from_str_radix(text, 16).ok()).ok_or_else(|| {
        let shown = start_of(&String::from_utf8_lossy(digits));
        Broken::Garbage(format!("`{shown}` is no length"))
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    /// The result for an answer to a `host:version` request.
    async fn heard(answer: &[u8]) -> Result<String, String> {
        let (ours, mut theirs) = duplex(1 << 20);
        theirs.write_all(answer).await.unwrap();
        theirs.shutdown().await.unwrap();
        let mut connection = Connection::over(Box::new(ours));
        let heard = match connection.ask("host:version").await {
            Ok(()) => connection.text().await,
            Err(broken) => Err(broken),
        };
        let mut sent = [0; 16];
        theirs.read_exact(&mut sent).await.unwrap();
        assert_eq!(&sent, b"000chost:version");
        heard.map_err(|broken| format!("{broken:?}"))
    }

    #[tokio::test]
    async fn answers_are_what_the_protocol_says_or_errors() {
        assert_eq!(heard(b"OKAY00040029").await.unwrap(), "0029");
        assert_eq!(heard(b"OKAY0000").await.unwrap(), "");
        for (answer, error) in [
            (&b""[..], "Closed"),
            (b"OK", "Closed"),
            (b"OKAY0004002", "Closed"),
            (b"FAIL0014unknown host service", r#"Fail("unknown host service")"#),
            (b"FAIL", "Closed"),
            (b"HTTP/1.1 400", r#"Garbage("neither OKAY nor FAIL, but `HTTP`")"#),
            (b"OKAY+004", r#"Garbage("`+004` is no length")"#),
            (b"OKAY\xff\xff00", r#"Garbage("`"#),
            (b"OKAY0002\xff\xff", r#"Garbage("a text that is no UTF-8")"#),
        ] {
            let told = heard(answer).await.unwrap_err();
            assert!(told.starts_with(error), "{told}");
        }
    }

    #[tokio::test]
    async fn a_frame_that_was_waited_for_in_vain_is_gone_on_with() {
        let (ours, mut theirs) = duplex(100);
        let mut connection = Connection::over(Box::new(ours));
        let mut frame = Frame::default();
        for part in [&b"00"[..], b"0", b"5", b"a", b"b\tc"] {
            tokio::select! {
                biased;
                heard = connection.frame(&mut frame) => panic!("{heard:?}"),
                () = tokio::task::yield_now() => theirs.write_all(part).await.unwrap(),
            }
        }
        theirs.write_all(b"d0000").await.unwrap();
        assert_eq!(connection.frame(&mut frame).await.unwrap(), "ab\tcd");
        assert_eq!(connection.frame(&mut frame).await.unwrap(), "");
    }

    #[test]
    fn what_no_request_can_say_is_known_before() {
        assert_eq!(unsayable(&"x".repeat(0xffff)), None);
        assert!(unsayable(&"x".repeat(0x1_0000)).is_some());
        assert!(unsayable("shell:a\0b").is_some());
    }
}
