//! Client of the agent's socket: for guests that can have an additional thread, and for other machines through a
//! forwarded port.
//!
//! The agent listens, and sends complete frames in binary messages (`memgate.v1`): those that it would otherwise write
//! into a spool. They are written to a bare stream in the frames folder as they arrive, and delivered to the same
//! [`Follow`] as a spool's, so that later steps see no difference. At a boundary the guest waits for an `Order` frame.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{SinkExt, StreamExt};
use memgate_wire::{
    AgentCost, Boundary, Counters, Decoded, ErrorCode, ErrorFrame, Frame, Goodbye, GoodbyeReason, Hello,
    Order, OsSample, WEBSOCKET_PROTOCOL, decode, encode,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout_at};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::exit::chain;
use crate::proc_fs;
use crate::reading::stream::os_path;
use crate::recorder::{
    End, Follow, MIN_INTERVAL, Observe, Occasion, Options, Process, ProcessEnd, ProcessKey, Sampler, now_ns,
};

/// The agent keeps at most this much for a slow reader, so no message is longer.
const MAX_MESSAGE_BYTES: usize = 65 << 20;

/// The thread that serves the socket in the guest.
const AGENT_THREAD: &str = "memgate-agent";

/// Time limit for the reply of an agent on a device.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// Time limit, after the run of an app has ended, for the end of its connection.
const APP_END_LIMIT: Duration = Duration::from_secs(5);

/// Time limit, after the process of an app has ended, for the system's report about its run.
const RUN_END_LIMIT: Duration = Duration::from_secs(20);

/// How often to look for a listener: nothing reports that it has appeared.
const RETRY: Duration = Duration::from_millis(20);

/// Keys of processes with sockets, separate from those that a recorder assigns.
static NEXT_KEY: AtomicU64 = AtomicU64::new(1 << 48);

/// Where an agent listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A Unix socket with a path: `unix:/path`.
    Unix(PathBuf),
    /// An abstract Unix socket: `unix:@name`.
    Abstract(String),
    /// A port of this machine: `tcp:127.0.0.1:PORT`.
    Tcp(SocketAddr),
    /// The socket of an app on a device; the agent makes its name from the package and the process.
    App {
        /// The package.
        package: String,
        /// Where it was found; empty until the app runs.
        found: String,
    },
}

/// Called with the process at each boundary. The app also waits for its result: the device can be asked about the app
/// meanwhile.
pub type Held = Arc<dyn Fn(u32, &Boundary) -> BoxFuture<'static, ()> + Send + Sync>;

/// An agent on a device, already connected.
pub struct Reached<S> {
    /// Its endpoint.
    pub endpoint: Endpoint,
    /// The connection.
    pub stream: S,
    /// Whether the system reported the run as complete; `None`: no report yet. The device ends an app as soon as its
    /// run has ended, so that the app cannot say goodbye.
    pub run_ended: watch::Receiver<Option<bool>>,
    /// Called at each boundary.
    pub held: Option<Held>,
}

/// A text that is not an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("read the endpoint {0:?}: it is neither unix:/path, unix:@name nor tcp:127.0.0.1:PORT")]
pub struct EndpointError(pub String);

/// Why nothing could be recorded from a socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Nobody listens there.
    #[error("connect to {endpoint}")]
    Connect {
        /// The endpoint.
        endpoint: Endpoint,
        /// The reason.
        source: io::Error,
    },
    /// The listener is not an agent, or refuses us.
    #[error("speak with the agent at {endpoint}")]
    Handshake {
        /// The endpoint.
        endpoint: Endpoint,
        /// The reason.
        source: Box<tungstenite::Error>,
    },
    /// The token cannot be sent.
    #[error("speak with the agent at {0}: the token holds a control character")]
    Token(Endpoint),
    /// The received data is not a stream.
    #[error("record from {endpoint}: {what}")]
    NoHello {
        /// The endpoint.
        endpoint: Endpoint,
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

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let wrong = || EndpointError(text.to_owned());
        if let Some(name) = text.strip_prefix("unix:@").filter(|name| !name.is_empty()) {
            return Ok(Self::Abstract(name.to_owned()));
        }
        if let Some(path) = text.strip_prefix("unix:/") {
            return Ok(Self::Unix(Path::new("/").join(path)));
        }
        let address: SocketAddr =
            text.strip_prefix("tcp:").and_then(|address| address.parse().ok()).ok_or_else(wrong)?;
        if address.ip().is_loopback() { Ok(Self::Tcp(address)) } else { Err(wrong()) }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Abstract(name) => write!(f, "unix:@{name}"),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::App { found, .. } if found.is_empty() => f.write_str("app"),
            Self::App { found, .. } => f.write_str(found),
        }
    }
}

/// Records one process until it ends. The agent may not listen yet: `patience` is how long to wait for it.
///
/// Callbacks run on the task that polls this function: it should be a separate one.
///
/// # Errors
/// When there is no agent, it refuses us, or its frames cannot be stored. A connection that is lost later is not an
/// error here: it is an error frame in the stream, and is reported in the [`ProcessEnd`].
pub async fn record(
    endpoint: &Endpoint,
    token: &str,
    patience: Duration,
    frames: &Path,
    options: &Options,
    observe: &dyn Observe,
) -> Result<ProcessEnd, SocketError> {
    let until = Instant::now() + patience;
    let connected = match endpoint {
        Endpoint::Tcp(address) => retry(until, || TcpStream::connect(address)).await.map(Connection::from),
        Endpoint::Unix(path) => retry(until, || UnixStream::connect(path)).await.map(Connection::from),
        Endpoint::Abstract(name) => {
            let name = format!("\0{name}");
            retry(until, || UnixStream::connect(&name)).await.map(Connection::from)
        }
        Endpoint::App { .. } => Err(io::ErrorKind::Unsupported.into()),
    };
    let connection =
        connected.map_err(|source| SocketError::Connect { endpoint: endpoint.clone(), source })?;
    let peer = connection.peer;
    let socket = shake_hands(endpoint, token, connection.stream, until).await?;
    Recording::new(endpoint, peer, frames, options, observe).run(socket).await
}

/// Like [`record`], for an app on a device: its process does not run on this machine.
///
/// # Errors
/// Like [`record`].
pub async fn record_app<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    reached: Reached<S>,
    token: &str,
    frames: &Path,
    options: &Options,
    observe: &dyn Observe,
) -> Result<ProcessEnd, SocketError> {
    let Reached { endpoint, stream, run_ended, held } = reached;
    let socket = shake_hands(&endpoint, token, Box::new(stream), Instant::now() + HANDSHAKE_LIMIT).await?;
    let mut recording = Recording::new(&endpoint, None, frames, options, observe);
    (recording.run_ended, recording.held) = (Some(run_ended), held);
    recording.run(socket).await
}

trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

type Socket = WebSocketStream<Box<dyn Bytes>>;

struct Connection {
    stream: Box<dyn Bytes>,
    /// The listening process, if the system reports it.
    peer: Option<u32>,
}

impl From<UnixStream> for Connection {
    fn from(stream: UnixStream) -> Self {
        let peer = stream.peer_cred().ok().and_then(|peer| u32::try_from(peer.pid()?).ok());
        Self { stream: Box::new(stream), peer }
    }
}

impl From<TcpStream> for Connection {
    fn from(stream: TcpStream) -> Self {
        Self { stream: Box::new(stream), peer: None }
    }
}

async fn retry<T, F: Future<Output = io::Result<T>>>(
    until: Instant,
    connect: impl Fn() -> F,
) -> io::Result<T> {
    loop {
        match connect().await {
            Ok(stream) => return Ok(stream),
            Err(e) if Instant::now() + RETRY >= until => return Err(e),
            Err(_not_yet) => sleep_until(Instant::now() + RETRY).await,
        }
    }
}

async fn shake_hands(
    endpoint: &Endpoint,
    token: &str,
    stream: Box<dyn Bytes>,
    until: Instant,
) -> Result<Socket, SocketError> {
    let failed = |source| SocketError::Handshake { endpoint: endpoint.clone(), source: Box::new(source) };
    let mut request = "ws://localhost/".into_client_request().map_err(failed)?;
    let bearer = HeaderValue::from_str(&format!("Bearer {token}"));
    let bearer = bearer.map_err(|_invalid| SocketError::Token(endpoint.clone()))?;
    request.headers_mut().insert("authorization", bearer);
    request.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static(WEBSOCKET_PROTOCOL));
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    let shaken = timeout_at(
        until.max(Instant::now() + RETRY),
        client_async_with_config(request, stream, Some(config)),
    );
    match shaken.await {
        Ok(answer) => answer.map(|(socket, _response)| socket).map_err(failed),
        Err(_elapsed) => Err(failed(tungstenite::Error::Io(io::ErrorKind::TimedOut.into()))),
    }
}

/// One process with a socket, from its first message to its end.
struct Recording<'a> {
    endpoint: &'a Endpoint,
    peer: Option<u32>,
    folder: &'a Path,
    options: &'a Options,
    observe: &'a dyn Observe,
    /// Set after the hello.
    guest: Option<Guest>,
    frames: u64,
    unknown_frames: u64,
    counters: Option<Counters>,
    said_goodbye: bool,
    /// Why the last order could not be sent.
    unanswered: Option<String>,
    /// Cost in the last boundary.
    cost: AgentCost,
    /// Time of the last frame.
    last_ns: u64,
    /// For an app on a device.
    run_ended: Option<watch::Receiver<Option<bool>>>,
    held: Option<Held>,
}

struct Guest {
    pid: u32,
    follow: Box<dyn Follow>,
    path: PathBuf,
    file: File,
    sampler: Option<Sampler>,
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

impl<'a> Recording<'a> {
    fn new(
        endpoint: &'a Endpoint,
        peer: Option<u32>,
        folder: &'a Path,
        options: &'a Options,
        observe: &'a dyn Observe,
    ) -> Self {
        let (guest, counters, unanswered, run_ended, held) = (None, None, None, None, None);
        let (frames, unknown_frames, said_goodbye) = (0, 0, false);
        Self {
            endpoint,
            peer,
            folder,
            options,
            observe,
            guest,
            frames,
            unknown_frames,
            counters,
            said_goodbye,
            unanswered,
            cost: AgentCost::default(),
            last_ns: 0,
            run_ended,
            held,
        }
    }

    async fn run(mut self, mut socket: Socket) -> Result<ProcessEnd, SocketError> {
        let interval = self.options.interval.max(MIN_INTERVAL);
        let mut ticks = interval_at(Instant::now() + interval, interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut over = pin!(over(self.run_ended.clone()));
        let stop = loop {
            let next = tokio::select! {
                message = socket.next() => message,
                _ = ticks.tick() => {
                    self.sample_between();
                    continue;
                }
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
        let complete = match self.run_ended.take() {
            Some(ended) if !self.said_goodbye => is_complete(ended).await,
            _ => false,
        };
        if complete {
            self.say_goodbye()?;
            return self.end(None);
        }
        self.end(damage)
    }

    /// The system reported the run as complete and ended the process at once. Adds the goodbye that the process could
    /// not send, so that later readers of the stream see it.
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
    async fn take_in(&mut self, message: &[u8], socket: &mut Socket) -> Result<(), Stop> {
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

    async fn frame(&mut self, frame: Frame, t_ns: u64, raw: &[u8], socket: &mut Socket) -> Result<(), Stop> {
        // The guest waits from here on: take the sample first, because the guest waits for it.
        let sample = matches!(frame, Frame::Boundary(_)).then(|| self.sample(Occasion::Boundary)).flatten();
        if self.guest.is_none() {
            let Frame::Hello(hello) = &frame else {
                let what = format!("its first frame is a {:?}, not a hello", frame.frame_type());
                return Err(SocketError::NoHello { endpoint: self.endpoint.clone(), what }.into());
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
        if let Some((mut sample, t_ns)) = sample {
            sample.boundary = boundary.sequence;
            self.record_sample(sample, t_ns)?;
        }
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
        let pid = self.peer.unwrap_or(hello.pid);
        let visible = self.run_ended.is_none() && proc_fs::runs(pid, &hello.executable);
        let sampler = visible.then(|| Sampler::create(&path, pid, hello, &self.options.version));
        let sampler = sampler.transpose().map_err(write)?;
        let process = Process {
            key: ProcessKey(NEXT_KEY.fetch_add(1, Ordering::Relaxed)),
            file: path.clone(),
            hello: hello.clone(),
            environ: if visible { proc_fs::environ(pid) } else { None },
            visible,
        };
        Ok(Guest { pid, follow: self.observe.started(&process), path, file, sampler })
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

    fn sample(&mut self, occasion: Occasion) -> Option<(OsSample, u64)> {
        let (mut sample, t_ns) = self.guest.as_mut()?.sampler.as_mut()?.take(occasion)?;
        // Our own thread is not counted. Our descriptors stay the same from start to end, so they appear in no
        // difference.
        sample.threads.retain(|thread| thread.name != AGENT_THREAD);
        Some((sample, t_ns))
    }

    fn sample_between(&mut self) {
        if let Some((sample, t_ns)) = self.sample(Occasion::Interval)
            && self.record_sample(sample, t_ns).is_err()
            && let Some(guest) = &mut self.guest
        {
            // The stream itself matters most; without its samples, only the system's figures are missing.
            guest.sampler = None;
        }
    }

    fn record_sample(&mut self, sample: OsSample, t_ns: u64) -> Result<(), SocketError> {
        let Some(guest) = &mut self.guest else { return Ok(()) };
        let frame = Frame::OsSample(sample);
        if let Some(sampler) = &mut guest.sampler {
            let failed = |source| SocketError::Write { path: os_path(&guest.path), source };
            sampler.write(&frame, t_ns).map_err(failed)?;
        }
        guest.follow.frame(frame, t_ns);
        Ok(())
    }

    fn end(mut self, damage: Option<String>) -> Result<ProcessEnd, SocketError> {
        if self.guest.is_none() {
            let what = damage.unwrap_or_else(|| "the connection ended before the hello".to_owned());
            return Err(SocketError::NoHello { endpoint: self.endpoint.clone(), what });
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

/// Waits until the run of an app has ended and the app should have ended too. Waits forever if there is no such run.
async fn over(ended: Option<watch::Receiver<Option<bool>>>) {
    if let Some(mut ended) = ended
        && ended.wait_for(Option::is_some).await.is_ok()
    {
        return sleep_until(Instant::now() + APP_END_LIMIT).await;
    }
    std::future::pending().await
}

/// Waits for the system's report about the run.
async fn is_complete(mut ended: watch::Receiver<Option<bool>>) -> bool {
    let word = timeout_at(Instant::now() + RUN_END_LIMIT, ended.wait_for(Option::is_some)).await;
    matches!(word, Ok(Ok(said)) if *said == Some(true))
}

#[cfg(test)]
mod tests;
