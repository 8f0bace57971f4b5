//! The stream on a socket: a client with the token gets it, any other client gets nothing.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use memgate_e2e::waiting::{Running, until};
use memgate_e2e::{Project, agent, samples};
use memgate_wire::reply::Reply;
use memgate_wire::{BoundaryKind, Decoded, Frame, Order, WEBSOCKET_PROTOCOL, decode, encode};
use tungstenite::client::IntoClientRequest as _;
use tungstenite::handshake::client::Request;
use tungstenite::http::{HeaderValue, StatusCode};
use tungstenite::{Error, HandshakeError, Message, WebSocket};

pub(crate) const TOKEN: &str = "correct-horse-battery-staple";
const DEADLINE: Duration = Duration::from_secs(20);
/// The guest continues by itself after [`DEADLINE`]: if a step takes half of that, the order was not taken.
const PROMPT: Duration = Duration::from_secs(10);

/// Starts a program with an agent that listens.
pub(crate) fn listening(program: &Path, arguments: &[&str], carrier: &str, options: &str) -> Running {
    let options = format!("target=all;carrier={carrier};token={TOKEN};{options}");
    let mut command = Command::new(program);
    command.args(arguments).env("LD_PRELOAD", agent()).env("MEMGATE_AGENT_OPTIONS", options);
    Running::start(command.env_remove("LD_LIBRARY_PATH"))
}

/// Starts two tests of the sample `leaks`, which wait for a client.
fn guest(carrier: &str) -> Running {
    let filter = "--gtest_filter=Leaks.Strdup:Levels/OneParameter.Loads/0";
    let waits = format!("harness=1;wait_ms={}", DEADLINE.as_millis());
    listening(&samples::suite("leaks"), &[filter], carrier, &waits)
}

pub(crate) fn connected<S>(connect: impl Fn() -> std::io::Result<S>) -> S {
    until(DEADLINE, "somebody listens", || connect().ok())
}

type Headers<'a> = &'a [(&'static str, String)];

fn request(headers: Headers<'_>) -> Request {
    let mut request = "ws://localhost/".into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, HeaderValue::from_str(value).unwrap());
    }
    request
}

pub(crate) fn let_in<S: Read + Write>(stream: S) -> WebSocket<S> {
    let (socket, response) = tungstenite::client(request(&[protocol(), bearer(TOKEN)]), stream)
        .unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(response.headers()["sec-websocket-protocol"], WEBSOCKET_PROTOCOL);
    socket
}

/// The HTTP status of the refusal.
fn refused<S: Read + Write>(stream: S, headers: Headers<'_>) -> StatusCode {
    match tungstenite::client(request(headers), stream) {
        Err(HandshakeError::Failure(Error::Http(response))) => response.status(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("let in with {headers:?}"),
    }
}

fn protocol() -> (&'static str, String) {
    ("sec-websocket-protocol", WEBSOCKET_PROTOCOL.to_owned())
}

fn bearer(token: &str) -> (&'static str, String) {
    ("authorization", format!("Bearer {token}"))
}

pub(crate) fn order(boundary: u32, reply: Reply) -> Message {
    let mut bytes = Vec::new();
    encode(&Frame::Order(Order { boundary, reply }), 1, &mut bytes);
    Message::binary(bytes)
}

/// The frames of a message, which holds only whole ones.
pub(crate) fn frames(message: &[u8]) -> Vec<Frame> {
    let (mut at, mut frames) = (0, Vec::new());
    while at < message.len() {
        let Decoded::Frame { frame, bytes, .. } = decode(&message[at..], at as u64).unwrap() else {
            panic!("a message holds whole frames")
        };
        at += bytes;
        frames.push(frame);
    }
    frames
}

/// Reads the stream to its end and lets the guest continue at each boundary, by two orders that arrive
/// together: one for the boundary before, and the one it waits for.
fn taken<S: Read + Write>(mut socket: WebSocket<S>) -> Vec<Frame> {
    let (begun, mut frames) = (Instant::now(), Vec::new());
    loop {
        let read = socket.read();
        assert!(begun.elapsed() < PROMPT, "an order was not taken: {:?}", frames.last());
        let bytes = match read {
            Ok(Message::Binary(bytes)) => bytes,
            Ok(_) => continue,
            // The process ended before it read our answer to its last frame.
            Err(Error::ConnectionClosed | Error::Io(_))
                if matches!(frames.last(), Some(Frame::Goodbye(_))) =>
            {
                return frames;
            }
            Err(other) => panic!("{other} after {frames:#?}"),
        };
        for frame in self::frames(&bytes) {
            if let Frame::Boundary(boundary) = &frame {
                for sequence in [boundary.sequence - 1, boundary.sequence] {
                    socket.write(order(sequence, Reply::default())).unwrap();
                }
                // At the end of the process, the agent does not wait for the answer.
                let sent = socket.flush();
                assert!(sent.is_ok() || boundary.kind == BoundaryKind::ProcessEnd, "{sent:?} {boundary:?}");
            }
            frames.push(frame);
        }
    }
}

#[track_caller]
fn is_complete(frames: &[Frame]) {
    assert!(matches!(frames.first(), Some(Frame::Hello(_))), "{frames:#?}");
    assert!(matches!(frames.last(), Some(Frame::Goodbye(_))), "{frames:#?}");
    let ended: Vec<(&str, u64)> = frames
        .iter()
        .filter_map(|frame| match frame {
            Frame::Boundary(b) if b.kind == BoundaryKind::TestEnd => Some((b.test.as_str(), b.survivors)),
            _ => None,
        })
        .collect();
    assert_eq!(ended, [("Strdup", 1), ("Loads/0", 0)]);
}

/// As on Android: no other process may inspect the app's process, so it sends its own figures.
#[test]
fn an_app_listens_under_its_name_and_tells_its_own_figures() {
    let guest = guest("app;package=com.example.app;os=1");
    let name = format!("memgate-com.example.app-{}", guest.id());
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let frames = taken(let_in(connected(|| UnixStream::connect_addr(&address))));
    is_complete(&frames);
    let pairs = frames.iter().zip(frames.iter().skip(1)).filter_map(|pair| match pair {
        (Frame::OsSample(sample), Frame::Boundary(boundary)) => Some((sample, boundary)),
        _ => None,
    });
    let pairs: Vec<_> = pairs.collect();
    let boundaries =
        frames.iter().filter(|f| matches!(f, Frame::Boundary(b) if b.kind != BoundaryKind::ProcessEnd));
    assert!(pairs.len() >= boundaries.count() && pairs.len() >= 4, "{frames:#?}");
    for (sample, boundary) in pairs {
        assert_eq!((sample.boundary, sample.pid), (boundary.sequence, guest.id()));
        assert!(sample.rss_bytes > 100_000 && sample.cpu_ns > 0, "{sample:?}");
        assert_eq!(sample.threads.len(), 1, "the agent's own thread is not told: {sample:?}");
        assert!(sample.fds.iter().any(|d| d.target.starts_with("pipe:")), "{sample:?}");
        assert_eq!(sample.pss_bytes.is_some(), boundary.kind == BoundaryKind::TestEnd, "{sample:?}");
    }
    passes(guest);
}

#[track_caller]
fn passes(guest: Running) {
    let output = guest.output();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("[  PASSED  ] 2 tests."), "{told}");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_wrong_token_gets_401_and_the_right_one_afterwards_still_the_whole_stream() {
    let project = Project::new("socket-path");
    let path = project.folder().join("agent.sock");
    let guest = guest(&format!("unix:{}", path.display()));
    let connect = || connected(|| UnixStream::connect(&path));
    for wrong in [
        vec![protocol()],
        vec![protocol(), bearer("")],
        vec![protocol(), bearer("wrong")],
        vec![protocol(), bearer(&TOKEN[1..])],
        vec![protocol(), bearer(&format!("{TOKEN}x"))],
        vec![protocol(), ("authorization", format!("Basic {TOKEN}"))],
    ] {
        assert_eq!(refused(connect(), &wrong), StatusCode::UNAUTHORIZED, "{wrong:?}");
    }
    assert_eq!(refused(connect(), &[bearer(TOKEN)]), StatusCode::BAD_REQUEST, "without the protocol");

    is_complete(&taken(let_in(connect())));
    passes(guest);
}

#[test]
fn a_peer_that_talks_nonsense_is_dropped() {
    let project = Project::new("socket-nonsense");
    let path = project.folder().join("agent.sock");
    let guest = guest(&format!("unix:{}", path.display()));
    for nonsense in [&b"\x16\x03\x01\x02\x00hello"[..], b"GET / HTTP/1.1\r\n\r\n", b""] {
        let mut peer = connected(|| UnixStream::connect(&path));
        peer.write_all(nonsense).unwrap();
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        peer.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut answer = Vec::new();
        // The connection is closed, cleanly or not, but no handshake succeeds.
        let end = peer.read_to_end(&mut answer).err().map(|e| e.kind());
        assert!(end.is_none_or(|kind| kind == std::io::ErrorKind::ConnectionReset), "{end:?}");
        assert!(!String::from_utf8_lossy(&answer).contains("101 Switching"), "{answer:?}");
    }
    let stream = connected(|| UnixStream::connect(&path));
    is_complete(&taken(let_in(stream)));
    passes(guest);
}

#[test]
fn abstract_names_and_loopback_ports_carry_the_same_stream() {
    let name = format!("memgate-e2e-{}", std::process::id());
    let by_name = guest(&format!("unix:@{name}"));
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let stream = connected(|| UnixStream::connect_addr(&address));
    is_complete(&taken(let_in(stream)));
    passes(by_name);

    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let by_port = guest(&format!("tcp:127.0.0.1:{port}"));
    let connect = || connected(|| TcpStream::connect(("127.0.0.1", port)));
    assert_eq!(refused(connect(), &[protocol()]), StatusCode::UNAUTHORIZED);
    is_complete(&taken(let_in(connect())));
    passes(by_port);
}
