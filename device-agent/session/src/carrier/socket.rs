//! The socket: a WebSocket server (`memgate.v1`) on a Unix socket or on loopback TCP, in one thread of the agent. It is
//! used only if requested.
//!
//! Threads at a boundary append bytes to a queue and ring an eventfd; the agent's thread sends them as binary
//! messages and receives `Order` frames. Access is limited: the upgrade request must carry the token (compared in
//! constant time), a Unix peer must have our own user or root (on Android also the shell's, which adb uses), and TCP
//! listens on 127.0.0.1 only.

use core::convert::Infallible;
use core::sync::atomic::{AtomicU32, Ordering, fence};
use core::time::Duration;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
#[cfg(target_os = "android")]
use std::os::android::net::SocketAddrExt;
use std::os::fd::{AsFd, BorrowedFd};
#[cfg(not(target_os = "android"))]
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;

use memgate_ffi::lock::Lock;
use memgate_ffi::process;
use memgate_ffi::shared::{Polled, event_fd, futex_wait, futex_wake, peer_user, poll, store_and_wake};
use memgate_tracker::thread::Inside;
use memgate_wire::handshake::{self, Waiting, Words};
use memgate_wire::options::{Carrier as CarrierKind, app_socket};
use memgate_wire::reply::MOST_CLASSES;
use memgate_wire::spool::offset;
use memgate_wire::{Counters, Frame, WEBSOCKET_PROTOCOL, decode_order, encode};
use tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tungstenite::http::{HeaderValue, StatusCode};
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Message, WebSocket};

use crate::platform::may_speak;
use crate::recording;

/// Maximum number of queued bytes for a reader that does not read. Beyond it, recording stops.
const MOST_QUEUED_BYTES: usize = 64 << 20;
/// How often a peer gets the live counters.
const COUNTERS_EVERY: Duration = Duration::from_millis(250);
/// A peer that has not shown its token within this time is disconnected, however much it sends, because other peers
/// wait.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(2);
/// Longest wait at the end of the process for a peer to read the queued frames.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);
/// Maximum number of messages taken before the queue is checked again: a flood of orders must not delay the frames.
const MESSAGES_AT_ONCE: u32 = 64;

/// Handle of the guest's side.
#[derive(Clone)]
pub struct Socket(Arc<Shared>);

struct Shared {
    queue: Lock<Queue>,
    bell: File,
    boundary: AtomicU32,
    acknowledged: AtomicU32,
    orders: AtomicU32,
    /// The list of classes, preceded by its tag.
    classes: [AtomicU32; 1 + MOST_CLASSES],
    connected: AtomicU32,
    drained: AtomicU32,
    dropped: AtomicU32,
    /// Id of the thread; 0: it has not begun.
    thread: AtomicU32,
}

/// Longest wait for the thread to report its id, which it does first.
const START_LIMIT: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Queue {
    messages: VecDeque<Vec<u8>>,
    bytes: usize,
    closed: bool,
}

impl Socket {
    /// Listens and starts the thread.
    pub fn serve(kind: &CarrierKind, package: &str, token: &str) -> io::Result<Self> {
        if token.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a socket needs a token"));
        }
        let listener = Listener::bind(kind, package)?;
        let shared = Arc::new(Shared {
            queue: Lock::new(Queue::default()),
            bell: event_fd()?,
            boundary: AtomicU32::new(0),
            acknowledged: AtomicU32::new(0),
            orders: AtomicU32::new(0),
            classes: [const { AtomicU32::new(0) }; 1 + MOST_CLASSES],
            connected: AtomicU32::new(0),
            drained: AtomicU32::new(0),
            dropped: AtomicU32::new(0),
            thread: AtomicU32::new(0),
        });
        let (server, token) = (Arc::clone(&shared), token.to_owned());
        std::thread::Builder::new().name("memgate-agent".to_owned()).spawn(move || {
            // All work of this thread is the agent's own.
            let _inside = Inside::enter();
            store_and_wake(&server.thread, process::thread_id());
            server.run(&listener, &token);
        })?;
        // After a spurious wake-up the id may still be unknown. The thread is then listed among the guest's threads.
        futex_wait(&shared.thread, 0, Some(START_LIMIT));
        Ok(Self(shared))
    }

    /// The thread's id, so that it is not counted as a thread of the guest.
    pub(crate) fn thread(&self) -> u32 {
        self.0.thread.load(Ordering::Acquire)
    }

    /// Queues the bytes of whole frames. Returns false if there is no room; nothing more is accepted then.
    pub fn write(&self, frames: &[u8]) -> bool {
        let mut queue = self.0.queue.lock();
        if queue.closed || queue.bytes.saturating_add(frames.len()) > MOST_QUEUED_BYTES {
            queue.closed = true;
            return false;
        }
        let mut message = Vec::new();
        if message.try_reserve_exact(frames.len()).and_then(|()| queue.messages.try_reserve(1)).is_err() {
            queue.closed = true;
            return false;
        }
        message.extend_from_slice(frames);
        queue.bytes = queue.bytes.saturating_add(frames.len());
        queue.messages.push_back(message);
        drop(queue);
        self.0.ring();
        true
    }

    /// Waits, at most `limit`, until the queue has been sent, because the process is about to end.
    pub(crate) fn close(&self, limit: Duration) {
        self.0.queue.lock().closed = true;
        self.0.ring();
        let limit = u64::try_from(limit.min(DRAIN_LIMIT).as_nanos()).unwrap_or(0);
        let end = process::monotonic_ns().saturating_add(limit);
        while self.0.connected.load(Ordering::Acquire) != 0 && self.0.drained.load(Ordering::Acquire) == 0 {
            let now = process::monotonic_ns();
            if now >= end {
                return;
            }
            futex_wait(&self.0.drained, 0, Some(Duration::from_nanos(end.saturating_sub(now))));
        }
    }
}

impl Words for Socket {
    type Error = Infallible;

    fn load(&self, offset: usize) -> Result<u32, Infallible> {
        self.0.load(offset)
    }

    fn store(&self, offset: usize, value: u32) -> Result<(), Infallible> {
        self.0.store(offset, value)
    }

    fn wake(&self, offset: usize) -> Result<(), Infallible> {
        self.0.wake(offset)
    }

    fn barrier(&self) {
        self.0.barrier();
    }
}

impl Waiting for Socket {
    fn wait(&self, offset: usize, seen: u32, limit: Duration) {
        if let Some(word) = self.0.word(offset) {
            futex_wait(word, seen, Some(limit));
        }
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(process::monotonic_ns())
    }
}

/// The words of the spool's control page that the handshake needs.
impl Words for Shared {
    type Error = Infallible;

    fn load(&self, offset: usize) -> Result<u32, Infallible> {
        Ok(self.word(offset).map_or(0, |word| word.load(Ordering::Acquire)))
    }

    fn store(&self, offset: usize, value: u32) -> Result<(), Infallible> {
        if let Some(word) = self.word(offset) {
            word.store(value, Ordering::Release);
        }
        Ok(())
    }

    fn wake(&self, offset: usize) -> Result<(), Infallible> {
        if let Some(word) = self.word(offset) {
            futex_wake(word);
        }
        Ok(())
    }

    fn barrier(&self) {
        fence(Ordering::SeqCst);
    }
}

impl Shared {
    fn word(&self, at: usize) -> Option<&AtomicU32> {
        match at {
            offset::BOUNDARY => Some(&self.boundary),
            offset::ACKNOWLEDGED => Some(&self.acknowledged),
            offset::ORDERS => Some(&self.orders),
            offset::HARNESS => Some(&self.connected),
            _ => self.classes.get(at.checked_sub(offset::CLASSES)? / 4),
        }
    }

    fn ring(&self) {
        // If the counter is full, the thread is already being woken.
        let rung = (&self.bell).write(&1_u64.to_ne_bytes());
        drop(rung);
    }

    fn run(&self, listener: &Listener, token: &str) {
        loop {
            let Ok(stream) = listener.accept() else { return };
            if let Some(mut socket) = shake_hands(stream, token) {
                self.connected.store(1, Ordering::Release);
                self.talk(&mut socket);
                // A thread that waits at a boundary stops waiting when the peer is gone.
                let Ok(()) = handshake::detach(self);
            }
        }
    }

    /// Sends the queued frames and takes orders until the peer is gone or the stream is complete.
    fn talk(&self, socket: &mut WebSocket<Stream>) {
        let mut unread = false;
        loop {
            loop {
                let (message, closed) = {
                    let mut queue = self.queue.lock();
                    let message = queue.messages.pop_front();
                    queue.bytes = queue.bytes.saturating_sub(message.as_ref().map_or(0, Vec::len));
                    (message, queue.closed)
                };
                match message {
                    Some(bytes) => {
                        if socket.send(Message::binary(bytes)).is_err() {
                            return;
                        }
                    }
                    None if closed => {
                        let said = socket.close(None).and_then(|()| socket.flush());
                        drop(said);
                        store_and_wake(&self.drained, 1);
                        return;
                    }
                    None => break,
                }
            }
            let pause = if unread { Duration::ZERO } else { COUNTERS_EVERY };
            let Ok(polled) = poll(socket.get_ref().as_fd(), self.bell.as_fd(), pause) else {
                return;
            };
            let Polled { heard, rung, writable } = polled;
            if !heard && !rung && !unread {
                // Counters are the only frames that may be dropped. The next counters frame says how many were.
                if !writable {
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                } else if self.send_counters(socket).is_err() {
                    return;
                }
            }
            if rung {
                let mut count = [0; 8];
                if (&self.bell).read_exact(&mut count).is_err() {
                    return;
                }
            }
            if heard || unread {
                let Ok(more) = self.listen(socket) else { return };
                unread = more;
            }
        }
    }

    /// Takes the orders that have arrived. Returns whether there may be more: the next poll would not report an order
    /// that tungstenite has read ahead.
    fn listen(&self, socket: &mut WebSocket<Stream>) -> tungstenite::Result<bool> {
        socket.get_ref().set_nonblocking(true)?;
        let mut more = true;
        for _ in 0..MESSAGES_AT_ONCE {
            match socket.read() {
                Ok(Message::Binary(bytes)) => self.obey(&bytes),
                Ok(Message::Close(_)) => return Err(tungstenite::Error::ConnectionClosed),
                Ok(_) => {}
                Err(tungstenite::Error::Io(e)) if e.kind() == io::ErrorKind::WouldBlock => {
                    more = false;
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        socket.get_ref().set_nonblocking(false)?;
        Ok(more)
    }

    fn send_counters(&self, socket: &mut WebSocket<Stream>) -> tungstenite::Result<()> {
        let dropped_frames = self.dropped.load(Ordering::Relaxed).into();
        let frame = Frame::Counters(Counters { dropped_frames, ..recording::counters() });
        let mut bytes = Vec::new();
        encode(&frame, process::monotonic_ns(), &mut bytes);
        socket.send(Message::binary(bytes))
    }

    fn obey(&self, bytes: &[u8]) {
        if let Some(order) = decode_order(bytes) {
            let Ok(()) = handshake::acknowledge(self, order.boundary, &order.reply);
        }
    }
}

fn shake_hands(mut stream: Stream, token: &str) -> Option<WebSocket<Stream>> {
    stream.until_ns = process::monotonic_ns().saturating_add(u64::try_from(HANDSHAKE_LIMIT.as_nanos()).ok()?);
    #[expect(clippy::result_large_err, reason = "the callback's type is tungstenite's")]
    let check = |request: &Request, mut response: Response| -> Result<Response, ErrorResponse> {
        let refuse = |status: StatusCode| {
            let mut response = ErrorResponse::new(None);
            *response.status_mut() = status;
            response
        };
        let given = request.headers().get("authorization").and_then(|v| v.to_str().ok()).unwrap_or_default();
        if !same(given.strip_prefix("Bearer ").unwrap_or_default().as_bytes(), token.as_bytes()) {
            return Err(refuse(StatusCode::UNAUTHORIZED));
        }
        let offered =
            request.headers().get("sec-websocket-protocol").and_then(|v| v.to_str().ok()).unwrap_or_default();
        if !offered.split(',').any(|p| p.trim() == WEBSOCKET_PROTOCOL) {
            return Err(refuse(StatusCode::BAD_REQUEST));
        }
        response.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static(WEBSOCKET_PROTOCOL));
        Ok(response)
    };
    let config = WebSocketConfig::default()
        .read_buffer_size(8 << 10)
        .max_message_size(Some(64 << 10))
        .max_frame_size(Some(64 << 10));
    let mut socket = tungstenite::accept_hdr_with_config(stream, check, Some(config)).ok()?;
    socket.get_mut().until_ns = 0;
    socket.get_ref().peer.limit(None).ok()?;
    Some(socket)
}

/// Compares in a time that depends only on the length.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (x, y)| difference | (x ^ y)) == 0
}

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// A connection, and its deadline; 0: none.
struct Stream {
    peer: Peer,
    until_ns: u64,
}

enum Peer {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Listener {
    fn bind(kind: &CarrierKind, package: &str) -> io::Result<Self> {
        let own_name =
            |name: &str| UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?).map(Self::Unix);
        match kind {
            CarrierKind::App if package.is_empty() => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "the app is not known"))
            }
            CarrierKind::App => own_name(&app_socket(package, process::pid())),
            CarrierKind::Unix(name) => match name.strip_prefix('@') {
                Some(name) => own_name(name),
                None => UnixListener::bind(name).map(Self::Unix),
            },
            CarrierKind::Tcp(port) => TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).map(Self::Tcp),
            CarrierKind::Spool => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// The next peer that may connect.
    fn accept(&self) -> io::Result<Stream> {
        loop {
            match self {
                Self::Tcp(listener) => return listener.accept().map(|(s, _)| Stream::new(Peer::Tcp(s))),
                Self::Unix(listener) => {
                    let (stream, _) = listener.accept()?;
                    if peer_user(stream.as_fd()).is_ok_and(|user| may_speak(user, process::user_id())) {
                        return Ok(Stream::new(Peer::Unix(stream)));
                    }
                }
            }
        }
    }
}

impl Stream {
    const fn new(peer: Peer) -> Self {
        Self { peer, until_ns: 0 }
    }

    fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        match &self.peer {
            Peer::Unix(s) => s.set_nonblocking(on),
            Peer::Tcp(s) => s.set_nonblocking(on),
        }
    }

    /// Makes the time left until the deadline the limit of the next call.
    fn hurry(&self) -> io::Result<()> {
        if self.until_ns == 0 {
            return Ok(());
        }
        match self.until_ns.saturating_sub(process::monotonic_ns()) {
            0 => Err(io::ErrorKind::TimedOut.into()),
            left => self.peer.limit(Some(Duration::from_nanos(left))),
        }
    }
}

impl Peer {
    fn limit(&self, time: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(s) => s.set_read_timeout(time).and_then(|()| s.set_write_timeout(time)),
            Self::Tcp(s) => s.set_read_timeout(time).and_then(|()| s.set_write_timeout(time)),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.peer {
            Peer::Unix(s) => s.as_fd(),
            Peer::Tcp(s) => s.as_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.hurry()?;
        match &mut self.peer {
            Peer::Unix(s) => s.read(into),
            Peer::Tcp(s) => s.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.hurry()?;
        match &mut self.peer {
            // std's sockets send with MSG_NOSIGNAL: a peer that has gone is an error, not a SIGPIPE
            // in the guest.
            Peer::Unix(s) => s.write(from),
            Peer::Tcp(s) => s.write(from),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(listener) = self {
            // Without this, a socket with a path would leave its file behind.
            if let Some(path) = listener.local_addr().ok().as_ref().and_then(SocketAddr::as_pathname) {
                let removed = std::fs::remove_file(path);
                drop(removed);
            }
        }
    }
}
