//! Peers of the agent's socket that read slowly or not at all, send garbage, flood, never finish, or come in
//! crowds. Whatever they do, the tests pass as they do alone, and are delayed no longer than allowed.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use memgate_e2e::waiting::Running;
use memgate_e2e::{Project, samples};
use memgate_wire::reply::Reply;
use memgate_wire::{Boundary, BoundaryKind, Frame, spool};
use rustix::process::Signal;
use tungstenite::{Message, WebSocket};

use crate::agent::socket::{connected, frames, let_in, listening, order};
use crate::guest::DEEP;

/// Nothing here takes longer, even on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long a guest may wait for a peer: once for a first answer that does not come, and once until its last
/// frames have been read.
const WAIT: Duration = Duration::from_millis(700);
const MOST_WAITS: u32 = 2;

/// Tests that leave much behind: more than a socket buffers, so that the peer has to read it.
const MUCH: &str = r#"
#include <gtest/gtest.h>
class Much : public testing::TestWithParam<int> {};
TEST_P(Much, Left) { for (unsigned i = 0; i < 20000; i++) deep(15, i); }
INSTANTIATE_TEST_SUITE_P(All, Much, testing::Range(0, 6));
"#;

/// A tested process that listens.
struct Guest {
    running: Running,
    socket: PathBuf,
    begun: Instant,
    _project: Project,
}

impl Guest {
    fn start(name: &str, wait: Duration, expects_a_harness: bool) -> Self {
        let project = Project::new(name);
        let socket = project.folder().join("s");
        let program = samples::own_suite("much", &[DEEP, MUCH].concat());
        let options = format!("harness={};wait_ms={}", u8::from(expects_a_harness), wait.as_millis());
        let begun = Instant::now();
        let running = listening(&program, &[], &format!("unix:{}", socket.display()), &options);
        Self { running, socket, begun, _project: project }
    }

    fn connect(&self) -> UnixStream {
        let stream = connected(|| UnixStream::connect(&self.socket));
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
    }

    /// Checks that it ends as it does alone, delayed by no more than `waits`.
    #[track_caller]
    fn passes(self, alone: Duration, waits: Duration) {
        let output = self.running.output();
        let took = self.begun.elapsed();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("[  PASSED  ] 6 tests."), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        // The machine may be busy with other tests; a wait at each of the twelve boundaries would still
        // exceed the limit.
        let limit = alone * 4 + waits + Duration::from_secs(4);
        assert!(took < limit, "it took {took:?}, alone {alone:?} and may wait {waits:?}");
    }
}

/// How long the tests take without any waiting.
fn alone() -> Duration {
    static ALONE: std::sync::OnceLock<Duration> = std::sync::OnceLock::new();
    *ALONE.get_or_init(|| {
        let guest = Guest::start("survive-alone", Duration::ZERO, false);
        let begun = guest.begun;
        guest.passes(DEADLINE, Duration::ZERO);
        begun.elapsed()
    })
}

fn ordered(boundary: u32, bits: u32) -> Message {
    order(boundary, Reply::of(bits))
}

/// Reads until a boundary of this kind arrives.
fn boundary(socket: &mut WebSocket<UnixStream>, kind: BoundaryKind) -> Boundary {
    loop {
        let Message::Binary(bytes) = socket.read().unwrap() else { continue };
        for frame in frames(&bytes) {
            match frame {
                Frame::Boundary(found) if found.kind == kind => return found,
                _ => {}
            }
        }
    }
}

#[test]
fn a_peer_that_stops_reading_costs_its_timeout_once() {
    let alone = alone();
    let guest = Guest::start("survive-stops-reading", WAIT, true);
    let mut socket = let_in(guest.connect());
    boundary(&mut socket, BoundaryKind::ProcessStart);
    // Connected, but from now on it neither reads nor writes.
    guest.passes(alone, WAIT * MOST_WAITS);
    drop(socket);
}

#[test]
fn a_peer_that_reads_slowly_gets_whole_frames_and_holds_nobody_up() {
    let alone = alone();
    let guest = Guest::start("survive-reads-slowly", WAIT, true);
    let mut socket = let_in(guest.connect());
    let reader = std::thread::spawn(move || {
        let mut chunk = [0; 2048];
        let mut all = Vec::new();
        // Deliberately slow.
        while let Ok(got @ 1..) = socket.get_mut().read(&mut chunk) {
            all.extend_from_slice(&chunk[..got]);
            std::thread::sleep(Duration::from_millis(20));
        }
        all
    });
    guest.passes(alone, WAIT * MOST_WAITS);
    let all = reader.join().unwrap();
    assert!(all.len() > 2048, "something came: {} bytes", all.len());
}

#[test]
fn a_peer_that_is_stopped_and_goes_on_still_finds_an_agent_that_speaks() {
    let alone = alone();
    let guest = Guest::start("survive-guest-stopped", DEADLINE, true);
    let mut socket = let_in(guest.connect());
    let begin = boundary(&mut socket, BoundaryKind::ProcessStart);
    guest.running.signal(Signal::STOP);
    socket.send(ordered(begin.sequence, 0)).unwrap();
    guest.running.signal(Signal::CONT);
    let first = boundary(&mut socket, BoundaryKind::TestStart);
    assert!(first.sequence > begin.sequence);
    drop(socket);
    // The agent does not wait for a peer that has gone.
    guest.passes(alone, Duration::ZERO);
}

#[test]
fn garbage_after_the_handshake_ends_the_connection_and_the_next_peer_is_served() {
    let alone = alone();
    let guest = Guest::start("survive-garbage", DEADLINE, true);
    let garbage: [&[u8]; 5] = [
        &[0xff; 4096],
        // A binary message of 2^63 bytes.
        &[0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0],
        // A message longer than any order.
        &[0x82, 0xff, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0],
        // A client's frame without a mask.
        &[0x82, 0x03, 1, 2, 3],
        // A ping longer than the protocol allows.
        &[&[0x89, 0xfe, 0x10, 0][..], &[0; 4100]].concat(),
    ];
    for bytes in garbage {
        let mut socket = let_in(guest.connect());
        socket.get_mut().write_all(bytes).unwrap();
        // The agent closes the connection: reading reaches an end.
        let mut heard = Vec::new();
        let end = socket.get_mut().read_to_end(&mut heard).err().map(|e| e.kind());
        assert!(
            end.is_none_or(|kind| kind == std::io::ErrorKind::ConnectionReset),
            "{end:?} after {bytes:x?}"
        );
    }
    // Messages that are not orders are ignored.
    let mut socket = let_in(guest.connect());
    for message in [&b""[..], b"\0", b"not a frame at all, but longer than its header"] {
        socket.send(Message::binary(message.to_vec())).unwrap();
    }
    socket.send(Message::text("hello")).unwrap();
    socket.close(None).unwrap();
    drop(socket);
    guest.passes(alone, Duration::ZERO);
}

#[test]
fn a_flood_of_orders_for_other_boundaries_neither_stops_the_tests_nor_holds_up_the_frames() {
    let alone = alone();
    let guest = Guest::start("survive-flood", WAIT, true);
    let mut socket = let_in(guest.connect());
    let mut back = socket.get_ref().try_clone().unwrap();
    let flood = std::thread::spawn(move || {
        let mut sent = 0_u64;
        // Each order would end the process if it were for the current boundary.
        while socket.write(ordered(0, spool::order::STOP)).and_then(|()| socket.flush()).is_ok() {
            sent += 1;
        }
        sent
    });
    let mut heard = 0;
    let mut chunk = vec![0; 64 << 10];
    while let Ok(got @ 1..) = back.read(&mut chunk) {
        heard += got;
    }
    guest.passes(alone, WAIT * MOST_WAITS);
    assert!(flood.join().unwrap() > 1000, "it was a flood");
    // Each of six tests makes 20000 stacks of fifteen frames.
    assert!(heard > 100_000, "the frames came meanwhile: {heard} bytes");
}

#[test]
fn an_order_for_another_boundary_is_not_obeyed_when_its_sender_goes() {
    let alone = alone();
    let guest = Guest::start("survive-stale-order", DEADLINE, true);
    let mut socket = let_in(guest.connect());
    let begin = boundary(&mut socket, BoundaryKind::ProcessStart);
    // The guest waits at the first boundary. It continues because the peer is gone, not because of the order
    // sent before.
    socket.send(ordered(begin.sequence - 1, spool::order::STOP)).unwrap();
    drop(socket);
    guest.passes(alone, Duration::ZERO);
}

#[test]
fn handshakes_that_never_end_and_crowds_only_delay_the_one_who_knows_the_token() {
    let alone = alone();
    let guest = Guest::start("survive-crowd", DEADLINE, true);
    // A client that sends byte by byte, longer than a handshake may take.
    let mut drip = guest.connect();
    let dripping = std::thread::spawn(move || {
        let begun = Instant::now();
        let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ".iter().chain(std::iter::repeat(&b'x'));
        for byte in request {
            if drip.write_all(&[*byte]).is_err() || begun.elapsed() > DEADLINE {
                break;
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        begun.elapsed()
    });
    // Clients that send nothing at all, and many that leave at once.
    let silent: Vec<_> = (0..2).map(|_| guest.connect()).collect();
    (0..64).for_each(|_| drop(guest.connect()));
    let dripped = dripping.join().unwrap();
    assert!(dripped < Duration::from_secs(15), "it was let drip for {dripped:?}");
    let mut socket = let_in(guest.connect());
    let begin = boundary(&mut socket, BoundaryKind::ProcessStart);
    socket.send(ordered(begin.sequence, 0)).unwrap();
    drop((socket, silent));
    guest.passes(alone, Duration::from_secs(15));
}
