//! Decodes the output of a command: packets of `shell,v2` (`u8` id, `u32` length, bytes), or an output followed by a
//! line with the status. Pure: pieces in, [`Chunk`] out.

use std::sync::atomic::{AtomicU32, Ordering};

use super::wire::Broken;

/// adb's largest payload: a packet that claims more is not adb's.
const LONGEST_PACKET: u32 = 1 << 20;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const EXIT: u8 = 3;
pub(super) const CLOSE_STDIN: u8 = 4;

/// Output of a running command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    /// On standard output.
    Stdout(Vec<u8>),
    /// On standard error.
    Stderr(Vec<u8>),
    /// It ended.
    Exit(u8),
}

/// A packet of `shell,v2`.
pub(super) fn packet(id: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    [&[id], &length.to_le_bytes()[..], bytes].concat()
}

/// Reads packets from pieces of any size.
#[derive(Debug, Default)]
pub(super) struct Packets {
    header: Vec<u8>,
    /// Bytes of the payload that are not read yet.
    left: usize,
}

impl Packets {
    /// Takes bytes from the front: returns how many, and their output.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(usize, Option<Chunk>), Broken> {
        let missing = 5 - self.header.len();
        let head = bytes.get(..missing).unwrap_or(bytes);
        self.header.extend(head);
        let Ok([id, length @ ..]) = <[u8; 5]>::try_from(self.header.as_slice()) else {
            return Ok((head.len(), None));
        };
        if missing > 0 {
            let length = u32::from_le_bytes(length);
            check(id, length)?;
            self.left = length as usize;
        }
        let bytes = bytes.get(head.len()..).unwrap_or_default();
        let payload = bytes.get(..self.left).unwrap_or(bytes);
        self.left -= payload.len();
        if self.left == 0 {
            self.header.clear();
        }
        let said = match (id, payload) {
            (_, []) => None,
            (STDOUT, payload) => Some(Chunk::Stdout(payload.to_vec())),
            (STDERR, payload) => Some(Chunk::Stderr(payload.to_vec())),
            (_, [status, ..]) => Some(Chunk::Exit(*status)),
        };
        Ok((head.len() + payload.len(), said))
    }
}

fn check(id: u8, length: u32) -> Result<(), Broken> {
    match (id, length) {
        (STDOUT | STDERR, 0..=LONGEST_PACKET) | (EXIT, 1) => Ok(()),
        _ => Err(Broken::Garbage(format!("a shell packet with id {id} and {length} bytes came"))),
    }
}

/// Finds the line with the status after an output. Bytes that may be its beginning are held back.
#[derive(Debug)]
pub(super) struct Marked {
    pub(super) marker: String,
    held: Vec<u8>,
}

impl Marked {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { marker: format!("memgate-status-{}-{number}:", std::process::id()), held: Vec::new() }
    }

    pub(super) fn take(&mut self, bytes: &[u8]) -> Option<Chunk> {
        self.held.extend(bytes);
        // The length of status and line end.
        let keep = self.marker.len() + 5;
        let rest = self.held.split_off(self.held.len().saturating_sub(keep));
        // A line end must not be split.
        let mut ready = std::mem::replace(&mut self.held, rest);
        if ready.last() == Some(&b'\r') {
            ready.pop();
            self.held.insert(0, b'\r');
        }
        (!ready.is_empty()).then(|| Chunk::Stdout(lines_ended(&ready)))
    }

    /// The output has ended: returns first its last part, then the status.
    pub(super) fn end(&mut self) -> Result<Chunk, Broken> {
        let marker = self.marker.as_bytes();
        let at =
            self.held.windows(marker.len()).rposition(|window| window == marker).ok_or(Broken::Closed)?;
        if at > 0 {
            let rest = self.held.split_off(at);
            let before = std::mem::replace(&mut self.held, rest);
            return Ok(Chunk::Stdout(lines_ended(&before)));
        }
        let status = std::str::from_utf8(self.held.get(marker.len()..).unwrap_or_default()).ok();
        let status = status.and_then(|text| text.trim_end().parse().ok());
        status.map(Chunk::Exit).ok_or(Broken::Garbage("the exit status is no number".to_owned()))
    }
}

/// A terminal ends lines with `\r\n`.
fn lines_ended(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len());
    for (at, byte) in bytes.iter().enumerate() {
        if !(*byte == b'\r' && bytes.get(at + 1) == Some(&b'\n')) {
            text.push(*byte);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(packets: &mut Packets, mut bytes: &[u8]) -> Result<Vec<Chunk>, String> {
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let (used, said) = packets.take(bytes).map_err(|broken| format!("{broken:?}"))?;
            all.extend(said);
            // A piece without a continuation fails too.
            bytes = bytes.get(used.max(1)..).unwrap_or_default();
        }
        Ok(all)
    }

    #[test]
    fn packets_are_read_however_they_are_cut() {
        let bytes = [packet(1, b"out"), packet(2, b"err"), packet(1, b""), packet(3, &[7])].concat();
        let whole = told(&mut Packets::default(), &bytes).unwrap();
        assert_eq!(whole, [Chunk::Stdout(b"out".into()), Chunk::Stderr(b"err".into()), Chunk::Exit(7)]);
        let mut packets = Packets::default();
        let (mut stdout, mut stderr, mut exits) = (Vec::new(), Vec::new(), Vec::new());
        for byte in bytes {
            for said in told(&mut packets, &[byte]).unwrap() {
                match said {
                    Chunk::Stdout(piece) => stdout.extend(piece),
                    Chunk::Stderr(piece) => stderr.extend(piece),
                    Chunk::Exit(status) => exits.push(status),
                }
            }
        }
        assert_eq!(
            (stdout.as_slice(), stderr.as_slice(), exits.as_slice()),
            (&b"out"[..], &b"err"[..], &[7][..])
        );
    }

    #[test]
    fn what_is_no_packet_is_an_error() {
        for (bytes, what) in [
            (packet(0, b"x"), "id 0 and 1 bytes"),
            (packet(9, b""), "id 9 and 0 bytes"),
            (packet(3, b""), "id 3 and 0 bytes"),
            (packet(3, b"ab"), "id 3 and 2 bytes"),
            (b"\x01\xff\xff\xff\xff".to_vec(), "id 1 and 4294967295 bytes"),
            (b"* daemon".to_vec(), "id 42"),
        ] {
            let error = told(&mut Packets::default(), &bytes).unwrap_err();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn the_marker_of_a_legacy_shell_is_found_however_it_is_cut() {
        for (output, step, text, status) in [
            ("{m}0\n", 1, "", Ok(0)),
            ("a\r\nb\r\n{m}127\r\n", 1, "a\nb\n", Ok(127)),
            ("no line end{m}3\n", 7, "no line end", Ok(3)),
            ("memgate-status-{m}1\n", 1000, "memgate-status-", Ok(1)),
            ("cut", 1, "", Err("Closed")),
            ("{m}999\n", 1, "", Err("Garbage")),
        ] {
            let mut marked = Marked::new();
            let bytes = output.replace("{m}", &marked.marker).into_bytes();
            let mut read = Vec::new();
            let mut keep = |said: Option<Chunk>| {
                if let Some(Chunk::Stdout(piece)) = said {
                    read.extend(piece);
                }
            };
            for piece in bytes.chunks(step) {
                keep(marked.take(piece));
            }
            let mut end = marked.end();
            if let Ok(said @ Chunk::Stdout(_)) = end {
                keep(Some(said));
                end = marked.end();
            }
            match (end, status) {
                (Ok(Chunk::Exit(code)), Ok(want)) => {
                    assert_eq!((String::from_utf8(read).unwrap().as_str(), code), (text, want))
                }
                (Err(broken), Err(want)) => assert!(format!("{broken:?}").starts_with(want)),
                (end, _) => panic!("{output}: {end:?}"),
            }
        }
    }
}
