//! The harness with a hostile agent as peer: a WebSocket whose other side sends arbitrary bytes, before or
//! after the handshake. Whatever arrives, the recording ends, and only whole frames are kept.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use memgate_wire::reply::Reply;
use memgate_wire::{Boundary, Frame, WEBSOCKET_PROTOCOL};

use crate::{folder, sealed};
use memgate::device::socket::{Reached, record};
use memgate::reading::stream::{read, streams_in};
use memgate::recorder::{Follow, Observe, Process, ProcessEnd};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio_tungstenite::accept_hdr_async;
use tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tungstenite::http::HeaderValue;

/// Bytes before the frames.
pub(crate) const PREFIX: usize = 2;
/// No answer takes longer.
const HANG: Duration = Duration::from_secs(20);

struct Nobody;

impl Observe for Nobody {
    fn started(&self, _process: &Process) -> Box<dyn Follow> {
        Box::new(Nobody)
    }
}

impl Follow for Nobody {
    fn frame(&mut self, _frame: Frame, _t_ns: u64) {}
    fn orders(&mut self, boundary: &Boundary) -> Reply {
        let classes = (boundary.sequence & 1 == 1).then(|| (1..boundary.sequence % 64).collect());
        Reply { bits: boundary.sequence, classes }
    }
    fn ended(&mut self, end: &ProcessEnd) {
        assert!(end.damage.as_ref().is_none_or(|text| !text.is_empty()));
    }
}

struct World {
    runtime: Runtime,
    frames: PathBuf,
    socket: PathBuf,
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let frames = folder("harness_socket").join("frames");
        std::fs::create_dir_all(&frames).expect("a folder for frames");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        World { runtime: runtime.expect("a runtime"), socket: folder("harness_socket").join("agent"), frames }
    })
}

/// Answers the WebSocket handshake correctly, without checking the request.
async fn shake_hands(stream: UnixStream) -> Option<UnixStream> {
    #[expect(clippy::result_large_err, reason = "the callback's type is tungstenite's")]
    let check = |_: &Request, mut response: Response| -> Result<Response, ErrorResponse> {
        response.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static(WEBSOCKET_PROTOCOL));
        Ok(response)
    };
    accept_hdr_async(stream, check).await.ok().map(tokio_tungstenite::WebSocketStream::into_inner)
}

/// One binary message, unmasked.
fn message(body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x82, 127];
    bytes.extend_from_slice(&(body.len() as u64).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

async fn agent(listener: UnixListener, how: u8, chunk: usize, said: Vec<u8>) {
    let Ok((mut stream, _)) = listener.accept().await else { return };
    // 0: bytes instead of the handshake; 1: raw bytes after it; otherwise: in binary messages.
    if how & 3 != 0 {
        let Some(shaken) = shake_hands(stream).await else { return };
        stream = shaken;
    }
    let said = match how & 3 {
        0 | 1 => said,
        2 => message(&sealed(&said)),
        _ => sealed(&said).chunks(chunk * 16 + 1).flat_map(message).collect(),
    };
    if stream.write_all(&said).await.is_ok() && stream.shutdown().await.is_ok() {
        let mut heard = Vec::new();
        let _until_it_ends = stream.read_to_end(&mut heard).await;
    }
}

/// Runs one input.
///
/// # Panics
/// When a checked property does not hold; this is a finding.
pub fn run(data: &[u8]) {
    let Some((&[how, chunk], said)) = data.split_first_chunk::<PREFIX>() else { return };
    let World { runtime, frames, socket } = world();
    let _gone = std::fs::remove_file(socket);
    let outcome = runtime.block_on(async {
        let listener = UnixListener::bind(socket).expect("a socket in our own folder");
        let stream = UnixStream::connect(socket).await.expect("somebody listens");
        // The system has reported that the run failed.
        let (_said, run_ended) = watch::channel(Some(false));
        let reached = Reached { endpoint: "the test".to_owned(), stream, run_ended, held: None };
        let recording = record(reached, "t", frames, &Nobody);
        let both =
            async { tokio::join!(recording, agent(listener, how, usize::from(chunk), said.to_vec())).0 };
        tokio::time::timeout(HANG, both).await.expect("the recording ends")
    });
    if let Err(why) = &outcome {
        assert!(!why.to_string().is_empty());
    }
    for stream in streams_in(frames).expect("our own folder") {
        let whole = read(&stream, |_, _| ());
        assert!(whole.is_ok(), "{whole:?}");
        std::fs::remove_file(&stream).expect("our own file");
    }
}
