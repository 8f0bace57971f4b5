use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use memgate_wire::reply::Reply;
use memgate_wire::spool::order;
use memgate_wire::{AgentCost, Boundary, BoundaryKind, Goodbye, GoodbyeReason};
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;
use tokio_tungstenite::accept_hdr_async;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};

use super::*;
use crate::reading::stream::read_process;

fn hello() -> Frame {
    Frame::Hello(Hello {
        agent_version: "guest".into(),
        pid: std::process::id(),
        executable: std::env::current_exe().unwrap().to_string_lossy().into_owned(),
        working_directory: "/".into(),
        ..Hello::default()
    })
}

fn boundary(sequence: u32) -> Frame {
    Frame::Boundary(Boundary {
        sequence,
        kind: BoundaryKind::TestEnd,
        suite: "S".into(),
        test: "t".into(),
        thread_id: 1,
        open_tests: 1,
        counters: Counters { allocations: 3, ..Counters::default() },
        ..Boundary::default()
    })
}

fn goodbye() -> Frame {
    let (counters, cost) = (Counters { allocations: 4, ..Counters::default() }, AgentCost::default());
    Frame::Goodbye(Goodbye { reason: GoodbyeReason::Exit, status: Some(0), counters, cost })
}

/// The next message of an agent in these tests.
enum Step {
    /// Frames, with their sending time.
    Frames(Vec<Frame>),
    /// Only this message.
    Raw(Message),
}

fn frames<const N: usize>(frames: [Frame; N]) -> Step {
    Step::Frames(frames.into())
}

const CLOSE: Step = Step::Raw(Message::Close(None));

fn encoded(frames: &[Frame]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for frame in frames {
        encode(frame, now_ns(), &mut bytes);
    }
    bytes
}

/// The handshake of an agent that expects the token `secret`; `None`: the client has another one.
async fn accepted(stream: DuplexStream) -> Option<WebSocketStream<DuplexStream>> {
    #[expect(clippy::result_large_err, reason = "the callback's type is tungstenite's")]
    let check = |request: &Request, mut response: Response| -> Result<Response, ErrorResponse> {
        let header = |name: &str| request.headers().get(name).unwrap().to_str().unwrap();
        assert_eq!(header("sec-websocket-protocol"), WEBSOCKET_PROTOCOL);
        if header("authorization") != "Bearer secret" {
            let mut refused = ErrorResponse::new(None);
            *refused.status_mut() = tungstenite::http::StatusCode::UNAUTHORIZED;
            return Err(refused);
        }
        let protocol = HeaderValue::from_static(WEBSOCKET_PROTOCOL);
        response.headers_mut().insert("sec-websocket-protocol", protocol);
        Ok(response)
    };
    accept_hdr_async(stream, check).await.ok()
}

/// An agent that plays a script; after a boundary it waits for the order. Returns the bits of the orders.
async fn agent(stream: DuplexStream, script: Vec<Step>) -> Vec<u32> {
    let Some(mut socket) = accepted(stream).await else { return Vec::new() };
    let mut orders = Vec::new();
    for step in script {
        let (message, waits) = match step {
            Step::Frames(frames) => {
                let waits = frames.iter().any(|frame| matches!(frame, Frame::Boundary(_)));
                (Message::binary(encoded(&frames)), waits)
            }
            Step::Raw(message) => (message, false),
        };
        socket.send(message).await.unwrap();
        if !waits {
            continue;
        }
        loop {
            let Some(Ok(answer)) = socket.next().await else { return orders };
            if let Ok(Decoded::Frame { frame: Frame::Order(order), .. }) = decode(&answer.into_data(), 0) {
                orders.push(order.reply.bits);
                break;
            }
        }
    }
    // Dropped without a closing handshake, unless the script contains one.
    orders
}

struct Tell(Mutex<Sender<Frame>>);

impl Observe for Tell {
    fn started(&self, process: &Process) -> Box<dyn Follow> {
        assert!(!process.visible, "it does not run on this machine");
        Box::new(TellOf(self.0.lock().unwrap().clone()))
    }
}

struct TellOf(Sender<Frame>);

impl Follow for TellOf {
    fn frame(&mut self, frame: Frame, _t_ns: u64) {
        self.0.send(frame).unwrap();
    }
    fn orders(&mut self, boundary: &Boundary) -> Reply {
        Reply::of(if boundary.sequence == 2 { order::STOP } else { 0 })
    }
    fn ended(&mut self, _end: &ProcessEnd) {}
}

fn observer() -> (Tell, Receiver<Frame>) {
    let (tell, told) = channel();
    (Tell(Mutex::new(tell)), told)
}

/// A connection to an agent whose run the system reports as complete, or not.
fn reached(complete: bool) -> (Reached<DuplexStream>, DuplexStream) {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let run_ended = watch::channel(Some(complete)).1;
    (Reached { endpoint: "@memgate".to_owned(), stream: ours, run_ended, held: None }, theirs)
}

/// Plays the script of an app whose run does not end well, and records it.
async fn play(
    folder: &Path,
    token: &str,
    script: Vec<Step>,
) -> (Result<ProcessEnd, SocketError>, Vec<Frame>, JoinHandle<Vec<u32>>) {
    let (reached, theirs) = reached(false);
    let agent = tokio::spawn(agent(theirs, script));
    let (tell, told) = observer();
    let end = record(reached, token, folder, &tell).await;
    drop(tell);
    (end, told.try_iter().collect(), agent)
}

fn stream_of(folder: &Path) -> PathBuf {
    crate::reading::stream::streams_in(folder).unwrap().pop().unwrap()
}

#[tokio::test]
async fn a_whole_stream_is_kept_delivered_and_answered() {
    let folder = tempfile::tempdir().unwrap();
    let script =
        vec![frames([hello()]), frames([boundary(1)]), frames([boundary(2)]), frames([goodbye()]), CLOSE];
    let (end, live, agent) = play(folder.path(), "secret", script).await;
    let end = end.unwrap();
    assert_eq!((end.how, &end.damage, end.frames), (End::Closed, &None, 4));
    assert_eq!(end.counters.unwrap().allocations, 4);
    assert_eq!(agent.await.unwrap(), [0, order::STOP]);

    let stream = stream_of(folder.path());
    let mut again = Vec::new();
    read_process(&stream, |frame, _| again.push(frame)).unwrap();
    assert_eq!(again, live);
}

#[tokio::test]
async fn a_lost_connection_is_an_error_frame_behind_what_came() {
    let folder = tempfile::tempdir().unwrap();
    let script = vec![frames([hello()]), frames([boundary(1)])];
    let (end, live, _agent) = play(folder.path(), "secret", script).await;
    let end = end.unwrap();
    assert_eq!(end.how, End::Died);
    let Some(Frame::Error(error)) = live.last() else { panic!("{live:?}") };
    assert_eq!(error.code, ErrorCode::Carrier);
    assert!(error.text.contains("was lost"), "{}", error.text);
    let mut last = None;
    crate::reading::stream::read(&stream_of(folder.path()), |frame, _| last = Some(frame)).unwrap();
    assert_eq!(last.as_ref(), live.last());
}

#[tokio::test]
async fn an_agent_that_ends_without_waiting_for_its_order_is_still_read_to_its_goodbye() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = Vec::new();
    for frame in [hello(), boundary(1), goodbye()] {
        let message = encoded(&[frame]);
        // A binary message from a server: final, type 2, unmasked, 16-bit length.
        bytes.extend_from_slice(&[0x82, 126]);
        bytes.extend_from_slice(&u16::try_from(message.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(&message);
    }
    let (reached, theirs) = reached(true);
    let agent = tokio::spawn(async move {
        let mut socket = accepted(theirs).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(socket.get_mut(), &bytes).await.unwrap();
    });
    let (tell, _told) = observer();
    let end = record(reached, "secret", folder.path(), &tell).await.unwrap();
    agent.await.unwrap();
    assert_eq!((end.how, end.damage, end.frames), (End::Closed, None, 3));
}

#[tokio::test]
async fn a_damaged_message_keeps_what_precedes_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = encoded(&[hello(), goodbye()]);
    *bytes.last_mut().unwrap() ^= 0x40;
    let (end, live, _agent) = play(folder.path(), "secret", vec![Step::Raw(Message::binary(bytes))]).await;
    let end = end.unwrap();
    assert!(end.damage.unwrap().starts_with("a message holds a damaged frame at byte "));
    assert!(matches!(live.as_slice(), [Frame::Hello(_), Frame::Error(_)]));
}

/// Records an app whose run the system reports as complete; it plays the script, then its connection ends.
async fn of_a_complete_run(folder: &Path, script: Vec<Step>) -> (ProcessEnd, Vec<Frame>) {
    let (reached, theirs) = reached(true);
    let agent = tokio::spawn(agent(theirs, script));
    let (tell, told) = observer();
    let end = record(reached, "secret", folder, &tell).await.unwrap();
    agent.await.unwrap();
    drop(tell);
    (end, told.try_iter().collect())
}

#[tokio::test]
async fn the_system_ends_an_app_before_its_goodbye_and_that_is_no_damage_but_garbage_is() {
    let (suite, test) = END_OF_TESTS;
    let mark =
        Boundary { kind: BoundaryKind::Mark, suite: suite.into(), test: test.into(), ..Boundary::default() };
    let over = Boundary { kind: BoundaryKind::ProcessEnd, ..Boundary::default() };
    for last in [vec![], vec![boundary(1), Frame::Boundary(mark)], vec![boundary(1), Frame::Boundary(over)]] {
        let folder = tempfile::tempdir().unwrap();
        let mut script = vec![frames([hello()])];
        script.extend(last.into_iter().map(|frame| frames([frame])));
        let (end, live) = of_a_complete_run(folder.path(), script).await;
        assert_eq!((end.how, end.damage), (End::Closed, None));
        assert!(matches!(live.last(), Some(Frame::Goodbye(_))), "{live:?}");
    }

    let mut broken = encoded(&[boundary(2)]);
    *broken.last_mut().unwrap() ^= 0x40;
    let script = vec![frames([hello()]), frames([boundary(1)]), Step::Raw(Message::binary(broken))];
    let folder = tempfile::tempdir().unwrap();
    let (end, live) = of_a_complete_run(folder.path(), script).await;
    assert_eq!(end.how, End::Died);
    assert!(end.damage.unwrap().starts_with("a message holds a damaged frame"));
    assert!(matches!(live.last(), Some(Frame::Error(_))), "{live:?}");
}

#[tokio::test]
async fn a_connection_that_is_lost_in_the_tests_is_an_error_though_the_run_ends_well() {
    let begins = |kind| Frame::Boundary(Boundary { kind, ..Boundary::default() });
    let mark = begins(BoundaryKind::Mark);
    for last in [begins(BoundaryKind::IterationStart), begins(BoundaryKind::TestStart), boundary(1)] {
        let folder = tempfile::tempdir().unwrap();
        let script = vec![frames([hello()]), frames([last]), frames([mark.clone()])];
        let (end, live) = of_a_complete_run(folder.path(), script).await;
        assert_eq!(end.how, End::Died);
        let Some(Frame::Error(error)) = live.last() else { panic!("{live:?}") };
        assert_eq!(error.code, ErrorCode::Carrier);
    }
}

#[tokio::test]
async fn a_wrong_token_is_refused_and_nothing_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let (end, live, _agent) = play(folder.path(), "guess", Vec::new()).await;
    let error = end.unwrap_err();
    assert!(matches!(error, SocketError::Handshake { .. }));
    assert!(chain(&error).contains("401"), "{}", chain(&error));
    assert!(live.is_empty());
}

#[tokio::test]
async fn a_stream_without_a_hello_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (end, ..) = play(folder.path(), "secret", vec![frames([goodbye()])]).await;
    let text = end.unwrap_err().to_string();
    assert!(text.ends_with("its first frame is a Goodbye, not a hello"), "{text}");
}

#[tokio::test]
async fn who_never_shakes_hands_or_talks_nonsense_instead_is_an_error_that_names_the_endpoint() {
    use tokio::io::AsyncWriteExt;

    let endless = [&b"HTTP/1.1 101 Switching Protocols\r\nx: "[..], &b"x".repeat(1 << 20)].concat();
    for said in [Vec::new(), b"\x16\x03\x01\x02\x00hello\r\n\r\n".to_vec(), vec![0; 1 << 20], endless] {
        let (reached, mut theirs) = reached(true);
        let silent = tokio::spawn(async move {
            // The other side may close the connection early; afterwards this side stays silent.
            drop(theirs.write_all(&said).await);
            std::future::pending::<()>().await;
        });
        let until = Instant::now() + Duration::from_millis(200);
        let error = shake_hands(&reached.endpoint, "secret", reached.stream, until).await.unwrap_err();
        silent.abort();
        assert_eq!(error.to_string(), "speak with the agent at @memgate");
    }
}

#[tokio::test]
async fn a_flood_of_unknown_frames_is_kept_counted_and_ends_with_its_sender() {
    let folder = tempfile::tempdir().unwrap();
    let mut unknown = encoded(&[boundary(1)]);
    // A future frame type with its checksum: 16 bytes of header and no body.
    unknown.truncate(16);
    unknown[..6].copy_from_slice(&[0, 0, 0, 0, 0xe7, 0x03]);
    unknown[6..].fill(0);
    unknown.extend_from_slice(&CRC_OF_EMPTY_999.to_le_bytes());
    let flood = || Step::Raw(Message::binary(unknown.repeat(10_000)));
    let mut script = vec![frames([hello()])];
    script.extend((0..20).map(|_| flood()));
    let (end, live, _agent) = play(folder.path(), "secret", script).await;
    let end = end.unwrap();
    assert_eq!((end.how, end.frames, end.unknown_frames), (End::Died, 1, 200_000));
    assert!(matches!(live.as_slice(), [Frame::Hello(_), Frame::Error(_)]), "and it says that it was lost");
}

/// CRC-32C of that header, computed independently of this program.
const CRC_OF_EMPTY_999: u32 = 0xf7e1_c83a;
