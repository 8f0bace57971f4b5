//! Client of the agent's socket in an app on a device.
//!
//! The agent listens, and sends complete frames in binary messages (`memgate.v1`): those that it would otherwise write
//! into a spool. They are written to a bare stream in the frames folder as they arrive, and delivered to the same
//! [`Follow`] as a spool's, so that later steps see no difference. At a boundary the guest waits for an `Order` frame.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{SinkExt, StreamExt};
use memgate_wire::{
    AgentCost, Boundary, BoundaryKind, Counters, Decoded, END_OF_TESTS, ErrorCode, ErrorFrame, Frame,
    Goodbye, GoodbyeReason, Hello, Order, WEBSOCKET_PROTOCOL, decode, encode,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::exit::chain;
use crate::recorder::{End, Follow, Observe, Process, ProcessEnd, ProcessKey, now_ns};

/// The agent keeps at most this much for a slow reader, so no message is longer.
const MAX_MESSAGE_BYTES: usize = 65 << 20;

/// Time limit for the reply of an agent on a device.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// Time limit, after the run of an app has ended, for the end of its connection.
const APP_END_LIMIT: Duration = Duration::from_secs(5);

/// Time limit, after the process of an app has ended, for the system's report about its run.
const RUN_END_LIMIT: Duration = Duration::from_secs(20);

/// Keys of processes with sockets, separate from those that a recorder assigns.
static NEXT_KEY: AtomicU64 = AtomicU64::new(1 << 48);

/// Called with the process at each boundary. The app also waits for its result: the device can be asked about the app
/// meanwhile.
pub type Held = Arc<dyn Fn(u32, &Boundary) -> BoxFuture<'static, ()> + Send + Sync>;

/// An agent on a device, already connected.
pub struct Reached<S> {
    /// Where it listens, for messages.
    pub endpoint: String,
    /// The connection.
    pub stream: S,
    /// Whether the system reported the run as complete; `None`: no report yet. The device ends an app as soon as its
    /// run has ended, so that the app cannot say goodbye.
    pub run_ended: watch::Receiver<Option<bool>>,
    /// Called at each boundary.
    pub held: Option<Held>,
}

/// Why nothing could be recorded from a socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The listener is not an agent, or refuses us.
    #[error("speak with the agent at {endpoint}")]
    Handshake {
        /// The endpoint.
        endpoint: String,
        /// The reason.
        source: Box<tungstenite::Error>,
    },
    /// The token cannot be sent.
    #[error("speak with the agent at {0}: the token holds a control character")]
    Token(String),
    /// The received data is not a stream.
    #[error("record from {endpoint}: {what}")]
    NoHello {
        /// The endpoint.
        endpoint: String,
        /// What was received instead.
        what: String,
    },
    /// The frames cannot be stored.
    #[error("write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// Records the process of an app until it ends.
///
/// Callbacks run on the task that polls this function: it should be a separate one.
///
/// # Errors
/// When there is no agent, it refuses us, or its frames cannot be stored. A connection that is lost later is not an
/// error here: it is an error frame in the stream, and is reported in the [`ProcessEnd`].
pub async fn record<S: AsyncRead + AsyncWrite + Unpin>(
    reached: Reached<S>,
    token: &str,
    frames: &Path,
    observe: &dyn Observe,
) -> Result<ProcessEnd, SocketError> {
    let Reached { endpoint, stream, run_ended, held } = reached;
    let socket = shake_hands(&endpoint, token, stream, Instant::now() + HANDSHAKE_LIMIT).await?;
    let recording = Recording {
        endpoint: &endpoint,
        folder: frames,
        observe,
        guest: None,
        frames: 0,
        unknown_frames: 0,
        counters: None,
        in_tests: false,
        said_goodbye: false,
        unanswered: None,
        cost: AgentCost::default(),
        last_ns: 0,
        run_ended,
        held,
    };
    recording.run(socket).await
}

async fn shake_hands<S: AsyncRead + AsyncWrite + Unpin>(
    endpoint: &str,
    token: &str,
    stream: S,
    until: Instant,
) -> Result<WebSocketStream<S>, SocketError> {
    let failed = |source| SocketError::Handshake { endpoint: endpoint.to_owned(), source: Box::new(source) };
    let mut request = "ws://localhost/".into_client_request().map_err(failed)?;
    let bearer = HeaderValue::from_str(&format!("Bearer {token}"));
    let bearer = bearer.map_err(|_invalid| SocketError::Token(endpoint.to_owned()))?;
    request.headers_mut().insert("authorization", bearer);
    request.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static(WEBSOCKET_PROTOCOL));
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    match timeout_at(until, client_async_with_config(request, stream, Some(config))).await {
        Ok(answer) => answer.map(|(socket, _response)| socket).map_err(failed),
        Err(_elapsed) => Err(failed(tungstenite::Error::Io(io::ErrorKind::TimedOut.into()))),
    }
}

/// One process with a socket, from its first message to its end.
struct Recording<'a> {
    endpoint: &'a str,
    folder: &'a Path,
    observe: &'a dyn Observe,
    /// Set after the hello.
    guest: Option<Guest>,
    frames: u64,
    unknown_frames: u64,
    counters: Option<Counters>,
    /// Whether tests have begun and their end was not reported: more frames must come.
    in_tests: bool,
    said_goodbye: bool,
    /// Why the last order could not be sent.
    unanswered: Option<String>,
    /// Cost in the last boundary.
    cost: AgentCost,
    /// Time of the last frame.
    last_ns: u64,
    run_ended: watch::Receiver<Option<bool>>,
    held: Option<Held>,
}

struct Guest {
    pid: u32,
    follow: Box<dyn Follow>,
    path: PathBuf,
    file: File,
}

/// Why no more frames come.
enum Stop {
    /// The connection has ended, properly or not.
    Ended(Option<String>),
    /// The received data is not a stream, or no longer one.
    Garbage(String),
    /// An error on our side.
    Failed(SocketError),
}

impl Stop {
    /// The meaning of a connection error.
    fn by(error: &tungstenite::Error) -> Self {
        use tungstenite::Error::{AlreadyClosed, ConnectionClosed, Io, Protocol};
        use tungstenite::error::ProtocolError::ResetWithoutClosingHandshake;
        match error {
            Protocol(ResetWithoutClosingHandshake) => {
                Self::Ended(Some("it was closed without a goodbye".to_owned()))
            }
            ConnectionClosed | AlreadyClosed | Io(_) => Self::Ended(Some(chain(error))),
            _ => Self::Garbage(chain(error)),
        }
    }
}

impl From<SocketError> for Stop {
    fn from(error: SocketError) -> Self {
        Self::Failed(error)
    }
}

impl Recording<'_> {
    async fn run<S: AsyncRead + AsyncWrite + Unpin>(
        mut self,
        mut socket: WebSocketStream<S>,
    ) -> Result<ProcessEnd, SocketError> {
        let mut over = pin!(over(self.run_ended.clone()));
        let stop = loop {
            let next = tokio::select! {
                message = socket.next() => message,
                () = &mut over => break Stop::Ended(Some("the device did not end the app".to_owned())),
            };
            let outcome = match next {
                Some(Ok(Message::Binary(bytes))) => self.take_in(&bytes, &mut socket).await,
                None | Some(Ok(Message::Close(_))) => break Stop::Ended(None),
                Some(Ok(_)) => Ok(()),
                Some(Err(e)) => Err(Stop::by(&e)),
            };
            if let Err(stop) = outcome {
                break stop;
            }
        };
        let damage = match stop {
            Stop::Failed(error) => return Err(error),
            // Frames are missing, whatever the system reports about the run.
            Stop::Garbage(text) => return self.end(Some(text)),
            Stop::Ended(damage) => damage,
        };
        if !self.said_goodbye && !self.in_tests && is_complete(self.run_ended.clone()).await {
            self.say_goodbye()?;
            return self.end(None);
        }
        self.end(damage)
    }

    /// The system reported the run as complete and ended the process at once: one without memgate's listener, which
    /// only listed its tests, or one whose tests were over. Adds the goodbye that the process could not send, so that
    /// later readers of the stream see it.
    fn say_goodbye(&mut self) -> Result<(), SocketError> {
        let goodbye = Goodbye {
            reason: GoodbyeReason::Exit,
            status: None,
            counters: self.counters.unwrap_or_default(),
            cost: self.cost,
        };
        let (frame, t_ns) = (Frame::Goodbye(goodbye), self.last_ns);
        let mut bytes = Vec::new();
        encode(&frame, t_ns, &mut bytes);
        self.keep(&bytes)?;
        self.deliver(frame, t_ns);
        self.said_goodbye = true;
        Ok(())
    }

    /// Handles the frames of one message.
    async fn take_in<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        message: &[u8],
        socket: &mut WebSocketStream<S>,
    ) -> Result<(), Stop> {
        let mut at = 0;
        while let Some(rest) = message.get(at..).filter(|rest| !rest.is_empty()) {
            let (frame, t_ns, bytes) = match decode(rest, at as u64) {
                Ok(Decoded::Frame { frame, t_ns, bytes }) => (Some(frame), t_ns, bytes),
                Ok(Decoded::Unknown { bytes, .. }) => (None, 0, bytes),
                Ok(Decoded::Incomplete { .. }) => {
                    return Err(Stop::Garbage(format!("a message ends inside the frame at its byte {at}")));
                }
                Err(e) => return Err(Stop::Garbage(format!("a message holds a {e}"))),
            };
            let raw = rest.get(..bytes).unwrap_or_default();
            at += bytes;
            match frame {
                Some(frame) => self.frame(frame, t_ns, raw, socket).await?,
                None => {
                    self.keep(raw)?;
                    self.unknown_frames += 1;
                }
            }
        }
        Ok(())
    }

    async fn frame<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        frame: Frame,
        t_ns: u64,
        raw: &[u8],
        socket: &mut WebSocketStream<S>,
    ) -> Result<(), Stop> {
        if self.guest.is_none() {
            let Frame::Hello(hello) = &frame else {
                let what = format!("its first frame is a {:?}, not a hello", frame.frame_type());
                return Err(SocketError::NoHello { endpoint: self.endpoint.to_owned(), what }.into());
            };
            self.guest = Some(self.introduce(hello, t_ns)?);
        }
        self.keep(raw)?;
        self.frames += 1;
        self.last_ns = t_ns;
        let boundary = match &frame {
            Frame::Boundary(boundary) => Some(boundary.clone()),
            Frame::Counters(counters) => {
                self.counters = Some(*counters);
                None
            }
            Frame::Goodbye(goodbye) => {
                self.counters = Some(goodbye.counters);
                self.said_goodbye = true;
                None
            }
            _ => None,
        };
        self.deliver(frame, t_ns);
        let Some(boundary) = boundary else { return Ok(()) };
        self.counters = Some(boundary.counters);
        self.cost = boundary.cost;
        self.in_tests = is_in_tests(&boundary).unwrap_or(self.in_tests);
        let reply = self.guest.as_mut().map(|guest| guest.follow.orders(&boundary)).unwrap_or_default();
        if let Some((held, guest)) = self.held.as_ref().zip(self.guest.as_ref()) {
            held(guest.pid, &boundary).await;
        }
        let mut bytes = Vec::new();
        encode(&Frame::Order(Order { boundary: boundary.sequence, reply }), now_ns(), &mut bytes);
        if let Err(e) = socket.send(Message::binary(bytes)).await {
            // A guest that ends does not wait for a reply; its last frames must still be read.
            self.unanswered = Some(chain(&e));
        }
        Ok(())
    }

    fn introduce(&self, hello: &Hello, t_ns: u64) -> Result<Guest, SocketError> {
        let path = self.folder.join(format!("{}-{t_ns}.mgf", hello.pid));
        let write = |source| SocketError::Write { path: path.clone(), source };
        let file = File::create_new(&path).map_err(write)?;
        let process = Process {
            key: ProcessKey(NEXT_KEY.fetch_add(1, Ordering::Relaxed)),
            file: path.clone(),
            hello: hello.clone(),
            environ: None,
            // It does not run on this machine.
            visible: false,
        };
        Ok(Guest { pid: hello.pid, follow: self.observe.started(&process), path, file })
    }

    fn keep(&mut self, raw: &[u8]) -> Result<(), SocketError> {
        let Some(guest) = &mut self.guest else { return Ok(()) };
        guest.file.write_all(raw).map_err(|source| SocketError::Write { path: guest.path.clone(), source })
    }

    fn deliver(&mut self, frame: Frame, t_ns: u64) {
        if let Some(guest) = &mut self.guest {
            guest.follow.frame(frame, t_ns);
        }
    }

    fn end(mut self, damage: Option<String>) -> Result<ProcessEnd, SocketError> {
        if self.guest.is_none() {
            let what = damage.unwrap_or_else(|| "the connection ended before the hello".to_owned());
            return Err(SocketError::NoHello { endpoint: self.endpoint.to_owned(), what });
        }
        let how = if self.said_goodbye { End::Closed } else { End::Died };
        let damage = damage.or(self.unanswered.take()).filter(|_| !self.said_goodbye);
        if !self.said_goodbye {
            let why = damage.as_deref().unwrap_or("it was closed without a goodbye");
            let text = format!("the connection to {} was lost: {why}", self.endpoint);
            let frame = Frame::Error(ErrorFrame { code: ErrorCode::Carrier, text });
            let (mut bytes, t_ns) = (Vec::new(), now_ns());
            encode(&frame, t_ns, &mut bytes);
            self.keep(&bytes)?;
            self.deliver(frame, t_ns);
        }
        let Self { frames, unknown_frames, counters, .. } = self;
        let end = ProcessEnd { how, damage, frames, unknown_frames, counters };
        if let Some(guest) = &mut self.guest {
            guest.follow.ended(&end);
        }
        Ok(end)
    }
}

/// Whether tests run after this boundary; `None`: it says nothing of it.
fn is_in_tests(boundary: &Boundary) -> Option<bool> {
    match boundary.kind {
        BoundaryKind::IterationStart | BoundaryKind::TestStart | BoundaryKind::TestEnd => Some(true),
        BoundaryKind::ProcessEnd => Some(false),
        BoundaryKind::Mark => {
            ((boundary.suite.as_str(), boundary.test.as_str()) == END_OF_TESTS).then_some(false)
        }
        BoundaryKind::ProcessStart => None,
    }
}

/// Waits until the run of an app has ended and the app should have ended too.
async fn over(mut ended: watch::Receiver<Option<bool>>) {
    if ended.wait_for(Option::is_some).await.is_err() {
        // The end of the connection ends the recording.
        std::future::pending().await
    }
    sleep_until(Instant::now() + APP_END_LIMIT).await;
}

/// Waits for the system's report about the run.
async fn is_complete(mut ended: watch::Receiver<Option<bool>>) -> bool {
    let word = timeout_at(Instant::now() + RUN_END_LIMIT, ended.wait_for(Option::is_some)).await;
    matches!(word, Ok(Ok(said)) if *said == Some(true))
}

#[cfg(test)]
mod tests;
