//! The agent's socket with a hostile harness as peer: arbitrary bytes before and after the handshake, and
//! orders. The connection ends, and the next one is served.

use std::io::{ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::OnceLock;
use std::time::Duration;

use memgate_session::carrier::Socket;
use memgate_wire::handshake::meet;
use memgate_wire::options::Carrier;

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Protocol: memgate.v1\r\nAuthorization: Bearer secret\r\n\r\n";
/// Longer than the socket waits for a handshake.
const HANG: Duration = Duration::from_secs(10);

fn served() -> &'static (Socket, String) {
    static SERVED: OnceLock<(Socket, String)> = OnceLock::new();
    SERVED.get_or_init(|| {
        let name = format!("memgate-fuzz-{}", std::process::id());
        let kind = Carrier::Unix(format!("@{name}"));
        (Socket::serve(&kind, "", "secret").expect("a name of our own"), name)
    })
}

/// One masked binary message (the mask is zero).
fn message(body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x82, 0xff];
    bytes.extend_from_slice(&(body.len() as u64).to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(body);
    bytes
}

/// Runs one input.
///
/// # Panics
/// When a checked property does not hold; this is a finding.
pub fn run(data: &[u8]) {
    let Some((how, said)) = data.split_first() else { return };
    let (socket, name) = served();
    let address = SocketAddr::from_abstract_name(name).expect("a short name");
    let mut peer = UnixStream::connect_addr(&address).expect("it listens");
    peer.set_read_timeout(Some(HANG)).expect("a timeout");
    peer.set_write_timeout(Some(HANG)).expect("a timeout");
    let mut bytes = Vec::new();
    if how & 3 != 0 {
        bytes.extend_from_slice(REQUEST.as_bytes());
    }
    match how & 3 {
        2 => bytes.extend(message(&crate::sealed(said))),
        3 => crate::sealed(said).chunks(64).for_each(|part| bytes.extend(message(part))),
        _ => bytes.extend_from_slice(said),
    }
    if how & 4 != 0 {
        socket.write(&said[..said.len().min(64)]);
    }
    // The socket may close before everything is sent.
    let _said = peer.write_all(&bytes).and_then(|()| peer.shutdown(std::net::Shutdown::Write));
    let mut heard = Vec::new();
    if let Err(e) = peer.read_to_end(&mut heard) {
        assert!(
            !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            "the connection stays open"
        );
    }
    // A boundary without a peer does not wait.
    if how & 8 != 0 {
        let Ok(_orders) = meet(socket, u32::from(*how), Duration::from_millis(5), false);
    }
}
