//! The stream on a socket: whoever knows the token gets it, nobody else gets anything.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use memgate_e2e::{Project, agent, samples};
use memgate_wire::{BoundaryKind, Decoded, Frame, Order, WEBSOCKET_PROTOCOL, decode, encode};
use tungstenite::client::IntoClientRequest as _;
use tungstenite::http::{HeaderValue, StatusCode};
use tungstenite::{Error, HandshakeError, Message, WebSocket};

const TOKEN: &str = "correct-horse-battery-staple";
const DEADLINE: Duration = Duration::from_secs(20);

/// Starts two tests of the sample `leaks` with an agent that listens and waits for somebody.
fn guest(carrier: &str) -> Child {
    Command::new(samples::suite("leaks"))
        .arg("--gtest_filter=Leaks.Strdup:Levels/OneParameter.Loads/0")
        .env("LD_PRELOAD", agent())
        .env(
            "MEMGATE_AGENT_OPTIONS",
            format!("target=all;harness=1;wait_ms=20000;carrier={carrier};token={TOKEN}"),
        )
        .env_remove("LD_LIBRARY_PATH")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn connected<S>(connect: impl Fn() -> std::io::Result<S>) -> S {
    let begun = Instant::now();
    loop {
        match connect() {
            Ok(stream) => return stream,
            Err(why) => assert!(begun.elapsed() < DEADLINE, "nobody listens: {why}"),
        }
        // Nothing tells when a listener appears.
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The upgrade request with these headers; the socket, or the status of the refusal.
fn shake_hands<S: Read + Write>(stream: S, headers: &[(&'static str, String)]) -> Result<WebSocket<S>, StatusCode> {
    let mut request = "ws://localhost/".into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, HeaderValue::from_str(value).unwrap());
    }
    match tungstenite::client(request, stream) {
        Ok((socket, response)) => {
            assert_eq!(response.headers()["sec-websocket-protocol"], WEBSOCKET_PROTOCOL);
            Ok(socket)
        }
        Err(HandshakeError::Failure(Error::Http(response))) => Err(response.status()),
        Err(other) => panic!("{other}"),
    }
}

fn protocol() -> (&'static str, String) {
    ("sec-websocket-protocol", WEBSOCKET_PROTOCOL.to_owned())
}

fn bearer(token: &str) -> (&'static str, String) {
    ("authorization", format!("Bearer {token}"))
}

/// Takes the stream to its end and lets the guest go on at each boundary.
fn taken<S: Read + Write>(mut socket: WebSocket<S>) -> Vec<Frame> {
    let mut frames = Vec::new();
    loop {
        let bytes = match socket.read() {
            Ok(Message::Binary(bytes)) => bytes,
            Ok(_) => continue,
            Err(Error::ConnectionClosed) => return frames,
            Err(other) => panic!("{other} after {frames:#?}"),
        };
        let mut at = 0;
        while at < bytes.len() {
            let Decoded::Frame { frame, bytes: length, .. } = decode(&bytes[at..], at as u64).unwrap() else {
                panic!("a message holds whole frames")
            };
            at += length;
            if let Frame::Boundary(boundary) = &frame {
                let mut order = Vec::new();
                encode(&Frame::Order(Order { boundary: boundary.sequence, bits: 0 }), 1, &mut order);
                socket.send(Message::binary(order)).unwrap();
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

#[track_caller]
fn passes(guest: Child) {
    let output = guest.wait_with_output().unwrap();
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
        let refused = shake_hands(connect(), &wrong).map(|_| "let in").unwrap_err();
        assert_eq!(refused, StatusCode::UNAUTHORIZED, "{wrong:?}");
    }
    let refused = shake_hands(connect(), &[bearer(TOKEN)]).map(|_| "let in").unwrap_err();
    assert_eq!(refused, StatusCode::BAD_REQUEST, "without the protocol");

    is_complete(&taken(shake_hands(connect(), &[protocol(), bearer(TOKEN)]).unwrap()));
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
        // Cut off, with or without a word; but never a frame.
        let end = peer.read_to_end(&mut answer).err().map(|e| e.kind());
        assert!(end.is_none_or(|kind| kind == std::io::ErrorKind::ConnectionReset), "{end:?}");
        assert!(!String::from_utf8_lossy(&answer).contains("101 Switching"), "{answer:?}");
    }
    let stream = connected(|| UnixStream::connect(&path));
    is_complete(&taken(shake_hands(stream, &[protocol(), bearer(TOKEN)]).unwrap()));
    passes(guest);
}

#[test]
fn abstract_names_and_loopback_ports_carry_the_same_stream() {
    let name = format!("memgate-e2e-{}", std::process::id());
    let by_name = guest(&format!("unix:@{name}"));
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let stream = connected(|| UnixStream::connect_addr(&address));
    is_complete(&taken(shake_hands(stream, &[protocol(), bearer(TOKEN)]).unwrap()));
    passes(by_name);

    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let by_port = guest(&format!("tcp:127.0.0.1:{port}"));
    let connect = || connected(|| TcpStream::connect(("127.0.0.1", port)));
    assert_eq!(shake_hands(connect(), &[protocol()]).map(|_| "let in").unwrap_err(), StatusCode::UNAUTHORIZED);
    is_complete(&taken(shake_hands(connect(), &[protocol(), bearer(TOKEN)]).unwrap()));
    passes(by_port);
}
