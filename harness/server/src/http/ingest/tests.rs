//! Real requests over a loopback socket.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Mutex;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

mod signed;
mod story;

use super::*;
use crate::store::Choice;
use crate::store::tests::{Postgres, add_one_at, sqlite};
use crate::view::LeakFilter;

/// A server for one test.
struct Served {
    at: SocketAddr,
    store: Store,
    log: Arc<Mutex<Vec<String>>>,
    /// Responses of other servers, by URL.
    others: Arc<Mutex<HashMap<String, Value>>>,
}

/// A response.
#[derive(Debug)]
struct Answered {
    status: u16,
    head: String,
    body: String,
}

impl Answered {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|why| panic!("{why}: {self:?}"))
    }

    #[track_caller]
    fn is(&self, status: u16, error: &str) {
        let told = self.json()["error"].as_str().unwrap_or_default().to_owned();
        assert!(self.status == status && told.contains(error), "{status} {error}: {self:?}");
    }
}

impl Served {
    async fn send(&self, request: &[u8]) -> Answered {
        let mut stream = TcpStream::connect(self.at).await.unwrap();
        stream.write_all(request).await.unwrap();
        answered(stream).await
    }

    /// Uploads with these additional headers.
    async fn upload(&self, headers: &str, body: &[u8]) -> Answered {
        self.send(&request("tiles", &format!("{headers}Content-Length: {}\r\n", body.len()), body)).await
    }

    async fn with(&self, token: &str, body: &Value) -> Answered {
        self.upload(&bearer(token), body.to_string().as_bytes()).await
    }
}

async fn answered(mut stream: TcpStream) -> Answered {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answered { status, head: head.to_lowercase(), body: body.to_owned() }
}

fn bearer(token: &str) -> String {
    format!("Content-Type: application/json\r\nAuthorization: Bearer {token}\r\n")
}

const JSON: &str = "Content-Type: application/json\r\n";

fn request(project: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /api/v1/projects/{project}/runs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"
    );
    [head.as_bytes(), body].concat()
}

fn served(limits: Limits, is_local: bool, test: impl AsyncFnOnce(Served)) {
    let folder = tempfile::tempdir().unwrap();
    served_from(async || sqlite(&folder, "h.db").await, limits, is_local, test);
}

fn served_from(
    open: impl AsyncFnOnce() -> Store,
    limits: Limits,
    is_local: bool,
    test: impl AsyncFnOnce(Served),
) {
    served_with(open, limits, is_local, None, test);
}

fn served_with(
    open: impl AsyncFnOnce() -> Store,
    limits: Limits,
    is_local: bool,
    artefacts: Option<crate::artefacts::Artefacts>,
    test: impl AsyncFnOnce(Served),
) {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(
        async {
            let store = open().await;
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let at = listener.local_addr().unwrap();
            let (stop, stopped) = oneshot::channel::<()>();
            let log = Arc::new(Mutex::new(Vec::new()));
            let lines = Arc::clone(&log);
            let others = Arc::new(Mutex::new(HashMap::<String, Value>::new()));
            let answers = Arc::clone(&others);
            let log_line = Arc::new(move |line: &str| lines.lock().unwrap().push(line.to_owned()));
            let options = Arc::new(Options {
                public_hosts: Vec::new(),
                added: Arc::default(),
                artefacts,
                fetch: Arc::new(move |at| match answers.lock().unwrap().get(at) {
                    Some(answer) => Ok(answer.to_string().into_bytes()),
                    None => Err("it is away".to_owned()),
                }),
                log: log_line,
            });
            let grants = Arc::new(Grants::new(store.clone(), Arc::clone(&options), is_local));
            let shared = (Arc::default(), Arc::default());
            let router = router(store.clone(), options, limits, Arc::clone(&grants), shared)
                .merge(super::super::grants::router(grants));
            let serving = tokio::spawn(async move {
                let stopped = async { drop(stopped.await) };
                axum::serve(listener, router).with_graceful_shutdown(stopped).await.unwrap();
            });
            test(Served { at, store, log, others }).await;
            stop.send(()).unwrap();
            serving.await.unwrap();
        },
    );
}

fn sha(number: usize) -> String {
    format!("{number:040x}")
}

/// A run of commit `number` of main, whose test has these leaks.
fn run(session: &str, number: usize, leaks: &[&str]) -> Value {
    let leak = |id: &&str| {
        json!({
            "id": id, "kind": "native", "title": "1 × 7 B", "bytes_per_iteration": 7.0, "count_per_iteration": 1.0,
            "frames": [{ "function": "tiles::load()", "file": "src/tiles.cc", "line": 7, "module": "t", "offset": 1, "inlined": false }],
            "holder": [],
        })
    };
    json!({
        "manifest": {
            "project": "tiles", "session": session, "lines": ["main"],
            "commit": { "sha": sha(number), "branch": "main" },
            "ancestors": (0..number).rev().map(sha).collect::<Vec<_>>(),
            "ci": { "provider": "gitlab", "pipeline": session },
            "environment": { "architecture": "x86_64" },
        },
        "report": {
            "schema_version": 1, "verdict": "fail", "exit_code": 1, "project": "tiles", "session": session,
            "started": "2026-11-15T08:00:00Z", "duration_s": 1.5,
            "agent_cost": { "cpu_ratio": null, "peak_bytes": 0, "boundary_s": 0.0, "truncated_stacks": 0 },
            "suites": [{
                "name": "engine", "runner": "gtest", "boundary": "exact", "verdict": "fail", "screened_s": 1.0, "reason": "",
                "metrics": {}, "tests": [{
                    "id": "Map.scroll", "outcome": "passed", "verdict": if leaks.is_empty() { "pass" } else { "fail" },
                    "reason": "", "duration_s": 0.1, "confirmed": false, "metrics": {}, "curve": [], "one_time": [],
                    "leaks": leaks.iter().map(leak).collect::<Vec<_>>(),
                }],
            }],
            "waivers": [], "errors": [],
        },
    })
}

fn packed(body: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(body).unwrap();
    gzip.finish().unwrap()
}

const FAR: i64 = i64::MAX;

async fn a_run_is_added_once(server: Served) {
    let body = run("s1", 3, &["n1-a"]);
    let plain = body.to_string().into_bytes();
    let (gzip, packed) = (format!("{JSON}Content-Encoding: gzip\r\n"), packed(&plain));
    let (one, two) = tokio::join!(server.upload(JSON, &plain), server.upload(&gzip, &packed));
    let mut statuses = [one.status, two.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 201], "{one:?} {two:?}");
    assert_eq!(one.json()["run"], two.json()["run"]);
    let added = if one.status == 201 { one } else { two }.json();
    assert_eq!(added["page"], format!("/p/tiles/runs/{}", added["run"]));
    assert_eq!((&added["on_line"], &added["events"]), (&json!(true), &json!(["new"])));
    server
        .upload(JSON, run("s1", 3, &[]).to_string().as_bytes())
        .await
        .is(409, "another run of the same session");
    let runs = server.store.runs("tiles", &Choice::default(), None).await.unwrap().unwrap().runs;
    assert_eq!(runs.len(), 1);

    // The curves within a run are not stored: with and without them it is the same run.
    let mut curves = body;
    curves["report"]["suites"][0]["tests"][0]["curve"] = json!([[7, "os.rss", 4096.0]]);
    let again = server.upload(JSON, curves.to_string().as_bytes()).await;
    assert_eq!((again.status, &again.json()["run"]), (200, &added["run"]));
    let odd = json!("<script>'; DROP TABLE run;--\\../\u{1f4a3}");
    let mut named = run("s2", 4, &[]);
    named["report"]["suites"][0]["tests"][0]["id"] = odd.clone();
    named["manifest"]["environment"]["runner"] = odd;
    assert_eq!(server.upload(JSON, named.to_string().as_bytes()).await.status, 201);
    assert_eq!(*server.log.lock().unwrap(), [""; 0]);
}

#[test]
fn a_run_is_added_once_however_often_and_however_packed_it_is_sent() {
    served(Limits::default(), true, a_run_is_added_once);
}

#[test]
fn what_is_true_in_sqlite_is_in_postgresql() {
    let Some(postgres) = Postgres::start() else { return };
    served_from(async || postgres.database("once").await, Limits::default(), true, a_run_is_added_once);
    served_from(async || postgres.database("line").await, Limits::default(), false, the_line_stays);
}

#[test]
fn only_a_token_that_holds_adds_runs_and_no_answer_or_log_repeats_it() {
    served(Limits::default(), false, async |server| {
        let body = run("s1", 1, &["n1-a"]);
        server.upload(JSON, body.to_string().as_bytes()).await.is(401, "a token is needed");
        let create = async |project: &str, ends| {
            server.store.create_token(project, &["main".to_owned()], ends).await.unwrap()
        };
        let (holds, other) = (create("tiles", FAR).await, create("roads", FAR).await);
        let (expired, revoked) = (create("tiles", 1_800_000).await, create("tiles", FAR).await);
        server.store.revoke_token(revoked.id()).await.unwrap();
        let unknown = crate::token::Token::random().unwrap();
        let cut = &holds.secret()[..60];
        let mut answers = Vec::new();
        for (token, status, error) in [
            (cut, 401, "the token is not valid"),
            ("", 401, "the token is not valid"),
            (unknown.secret(), 401, "is not known here"),
            (expired.secret(), 401, "expired at 1970-01-01T00:00:01Z"),
            (revoked.secret(), 401, "was revoked"),
            (other.secret(), 403, "is for another project than `tiles`"),
        ] {
            let answer = server.with(token, &body).await;
            answer.is(status, error);
            assert_eq!(answer.head.contains("www-authenticate: bearer"), status == 401);
            answers.push(answer.body);
        }
        let basic = format!("{JSON}Authorization: Basic {}\r\n", holds.secret());
        server.upload(&basic, b"{}").await.is(401, "the token is not valid");
        assert!(server.store.projects().await.unwrap().is_empty(), "nothing was added");
        let ask = async |token: &str| {
            let request = request("tiles", &bearer(token), b"");
            let request =
                String::from_utf8(request).unwrap().replace("POST", "GET").replace("/runs", "/token");
            server.send(request.as_bytes()).await
        };
        let told = ask(holds.secret()).await;
        assert_eq!((told.status, told.json()["branches"].clone()), (200, json!(["main"])));
        ask(revoked.secret()).await.is(401, "was revoked");
        ask(other.secret()).await.is(403, "is for another project");
        let added = server.with(holds.secret(), &body).await;
        assert_eq!(added.status, 201, "{added:?}");
        answers.push(added.body);
        answers.extend(server.log.lock().unwrap().iter().cloned());
        for token in [&holds, &other, &expired, &revoked, &unknown] {
            assert!(!answers.iter().any(|text| text.contains(&token.secret()[12..30])), "{answers:?}");
        }
    });
}

#[test]
fn without_tokens_only_this_machine_adds_runs_and_no_web_page_does() {
    served(Limits::default(), true, async |server| {
        let body = run("s1", 1, &[]).to_string();
        for (headers, status, error) in [
            ("Origin: https://evil.example.com\r\n", 403, "a web page cannot"),
            ("Origin: null\r\n", 403, "a web page cannot"),
            ("X-Forwarded-For: 10.0.0.1\r\n", 401, "a token is needed"),
            ("Via: 1.1 proxy\r\n", 401, "a token is needed"),
        ] {
            server.upload(&format!("{JSON}{headers}"), body.as_bytes()).await.is(status, error);
        }
        // A form sends this type without a CORS preflight.
        server.upload("Content-Type: text/plain\r\n", body.as_bytes()).await.is(415, "application/json");
        assert_eq!(server.upload(JSON, body.as_bytes()).await.status, 201);
        server.store.create_token("other", &[], FAR).await.unwrap();
        server.upload(JSON, body.as_bytes()).await.is(401, "a token is needed");
    });
}

/// The views of main, without the names of other branches and without other sightings of its leaks.
async fn shown(store: &Store) -> Value {
    let choice = Choice { branch: "main".into(), ..Choice::default() };
    let mut all = json!([
        store.leaks("tiles", &choice, &LeakFilter::default()).await.unwrap(),
        store.leak("tiles", &choice, "n1-a").await.unwrap(),
        store.leak("tiles", &choice, "n1-b").await.unwrap(),
        store.runs("tiles", &choice, None).await.unwrap(),
        store.overview("tiles", &choice).await.unwrap(),
    ]);
    for view in all.as_array_mut().unwrap() {
        assert_ne!(*view, Value::Null);
        view["selection"]["branches"] = Value::Null;
        view["sightings"] = Value::Null;
    }
    // The newest runs of all branches.
    all[4]["runs"] = Value::Null;
    all
}

#[test]
fn a_token_without_the_branch_changes_nothing_of_its_line() {
    served(Limits::default(), false, the_line_stays);
}

async fn the_line_stays(server: Served) {
    let main = server.store.create_token("tiles", &["main".to_owned()], FAR).await.unwrap();
    let review = server.store.create_token("tiles", &["release/*".to_owned()], FAR).await.unwrap();
    for (session, number, leaks) in
        [("s1", 1, &["n1-a"][..]), ("s2", 2, &["n1-a", "n1-b"]), ("s5", 5, &["n1-b"])]
    {
        let answer = server.with(main.secret(), &run(session, number, leaks)).await;
        assert!(answer.status == 201 && answer.json()["on_line"] == true, "{answer:?}");
    }
    let before = shown(&server.store).await;

    let mut attacks = Vec::new();
    // No leaks on a later commit of main; in CI, and as if on a developer's machine.
    attacks.push(run("x1", 9, &[]));
    let mut own = run("x2", 9, &[]);
    own["manifest"]["ci"] = Value::Null;
    attacks.push(own);
    // Without a branch or a commit: that is the only line if there is no other.
    let mut detached = run("x3", 9, &[]);
    detached["manifest"]["commit"]["branch"] = "".into();
    attacks.push(detached);
    let mut bare = run("x4", 9, &[]);
    bare["manifest"]["commit"] = Value::Null;
    attacks.push(bare);
    // As a review of main; every branch a line.
    let mut review_of_main = run("x5", 9, &[]);
    review_of_main["manifest"]["commit"]["target"] = "main".into();
    review_of_main["manifest"]["lines"] = json!(["*"]);
    attacks.push(review_of_main);
    // Other parents for the commits of main.
    let mut parents = run("x6", 0, &[]);
    parents["manifest"]["ancestors"] = json!([sha(6)]);
    attacks.push(parents);
    // A known leak with another description, and a field that only the server sets.
    let mut look = run("x7", 9, &["n1-a"]);
    look["report"]["suites"][0]["tests"][0]["leaks"][0]["title"] = "nothing to see".into();
    look["report"]["suites"][0]["tests"][0]["leaks"][0]["frames"] = json!([]);
    look["manifest"]["unproven"] = false.into();
    attacks.push(look);
    // With the session of a run that main adds later.
    attacks.push(run("s6", 6, &[]));
    for attack in &attacks {
        let answer = server.with(review.secret(), attack).await;
        assert!(answer.status == 201 && answer.json()["on_line"] == false, "{answer:?}");
        assert_eq!(answer.json()["events"], json!([]));
    }
    assert_eq!(shown(&server.store).await, before);

    let mut shallow = run("s6", 6, &["n1-b"]);
    shallow["manifest"]["ancestors"] = json!([]);
    let next = server.with(main.secret(), &shallow).await;
    assert!(next.status == 201 && next.json()["on_line"] == true, "{next:?}");
    let order = shown(&server.store).await[3]["runs"].clone();
    let order: Vec<_> = order.as_array().unwrap().iter().map(|run| run["session"].clone()).collect();
    assert_eq!(order, ["s6", "s5", "s2", "s1"], "by the parents that main named, and then by time");
    let release = {
        let mut release = run("r1", 7, &[]);
        release["manifest"]["commit"]["branch"] = "release/1".into();
        release["manifest"]["lines"] = json!(["release/*"]);
        release
    };
    assert_eq!(server.with(review.secret(), &release).await.json()["on_line"], true);
    // The client's own settings may still say that the branch is no line.
    let mut none = run("r2", 8, &[]);
    none["manifest"]["commit"]["branch"] = "release/1".into();
    assert_eq!(server.with(review.secret(), &none).await.json()["on_line"], false);
}

/// A change to a run, and the expected response.
type Case<'a> = (&'a dyn Fn(&mut Value), u16, &'a str);

#[test]
fn every_limit_is_named_and_nothing_beyond_one_is_kept() {
    let limits = Limits { body: 64 << 10, inflated: 1 << 20, values: 40_000, ..Limits::default() };
    served(limits, true, async |server| {
        let gzip = format!("{JSON}Content-Encoding: gzip\r\n");
        let head = br#"{"manifest":{"project":"tiles","session":"s"},"report":"#;
        let bomb = |filling: &str| {
            let text = filling.repeat((4 << 20) / filling.len());
            let bomb = packed(&[&head[..], text.as_bytes()].concat());
            assert!(bomb.len() < 64 << 10, "{}", bomb.len());
            bomb
        };
        server.upload(&gzip, &bomb("          ")).await.is(413, "more than 1048576 bytes, inflated");
        server.upload(&gzip, &bomb("[[[[[[[[[[")).await.is(422, "the body is no run");
        let many = packed(&[&head[..], br#"{"errors":["#, "0,".repeat(100_000).as_bytes()].concat());
        server.upload(&gzip, &many).await.is(422, "the body is no run");
        let suites = r#"{"name":"a","leaks":["#.to_owned() + &r#""","#.repeat(50_000);
        let values = packed(&[&head[..], br#"{"nobody_knows":["#, suites.as_bytes()].concat());
        server.upload(&gzip, &values).await.is(413, "more than 40000 values");
        server
            .upload(JSON, &vec![b' '; (64 << 10) + 1])
            .await
            .is(413, "the body has 65537 bytes: 65536 are the most");
        server.upload(&gzip, &packed(b"{}")[..10]).await.is(422, "the body cannot be unpacked");
        server.upload(JSON, b"{}").await.is(422, "missing field `manifest`");
        server.upload(JSON, b"").await.is(422, "the body is no run");
        server.upload(&format!("{JSON}Content-Encoding: br\r\n"), b"").await.is(415, "packed by gzip");
        server.send(&request("tiles", JSON, b"")).await.is(411, "no Content-Length");

        let with = |change: &dyn Fn(&mut Value)| {
            let mut body = run("s", 1, &["n1-a"]);
            change(&mut body);
            body
        };
        let many_tests = |body: &mut Value| {
            let test = body["report"]["suites"][0]["tests"][0].clone();
            body["report"]["suites"][0]["tests"] = vec![test; 3].into();
        };
        let cases: [Case<'_>; 15] = [
            (&|body| body["manifest"]["project"] = "roads".into(), 422, "the run is of project `roads`"),
            (&|body| body["manifest"]["session"] = "".into(), 422, "`manifest.session` is empty"),
            (
                &|body| body["manifest"]["session"] = "a\0b".into(),
                422,
                "`manifest.session` has a NUL character",
            ),
            (
                &|body| body["manifest"]["commit"]["branch"] = "x".repeat(1025).into(),
                422,
                "`manifest.commit.branch` has 1025 bytes: 1024 are the most",
            ),
            (
                &|body| body["manifest"]["ci"]["url"] = "x".repeat(4097).into(),
                422,
                "`manifest.ci.url` has 4097 bytes",
            ),
            (
                &|body| body["manifest"]["ancestors"] = vec!["a"; 501].into(),
                422,
                "501 ancestors: 500 are the most",
            ),
            (&|body| body["report"]["schema_version"] = 2.into(), 422, "schema version 2"),
            (
                &|body| body["report"]["suites"][0]["name"] = "x".repeat(1025).into(),
                422,
                "failed to keep the suite `xxx",
            ),
            (
                &|body| body["report"]["started"] = "yesterday".into(),
                422,
                "`report.started` is no time: `yesterday`",
            ),
            (
                &|body| body["report"]["suites"][0]["tests"][0]["id"] = "a\0".into(),
                422,
                "the name of a test has a NUL character",
            ),
            (
                &|body| body["report"]["suites"][0]["tests"][0]["duration_s"] = "NaN".into(),
                422,
                "the body is no run",
            ),
            (
                &|body| {
                    many_tests(body);
                    body["report"]["suites"][0]["tests"][0]["leaks"][0]["id"] = "n1\0".into();
                },
                422,
                "the id of a leak has a NUL character",
            ),
            (
                &|body| body["report"]["suites"][0]["tests"][0]["leaks"][0]["id"] = "".into(),
                422,
                "failed to keep a leak without a name",
            ),
            (
                &|body| body["report"]["suites"][0]["tests"][0]["id"] = "".into(),
                422,
                "failed to keep a test without a name",
            ),
            (
                &|body| body["report"]["suites"][0]["name"] = "".into(),
                422,
                "failed to keep a suite without a name",
            ),
        ];
        for (change, status, error) in cases {
            server.upload(JSON, with(change).to_string().as_bytes()).await.is(status, error);
        }
        let dots = with(&|body| body["manifest"]["project"] = "..".into()).to_string();
        let length = format!("{JSON}Content-Length: {}\r\n", dots.len());
        let answer = server.send(&request("%2E%2E", &length, dots.as_bytes())).await;
        answer.is(422, "`manifest.project` is \"..\": no page has such an address");
        assert!(server.store.projects().await.unwrap().is_empty(), "nothing was added");
        assert_eq!(*server.log.lock().unwrap(), [""; 0]);
    });
}

#[test]
fn more_tests_or_leaks_than_a_run_can_have_are_refused() {
    let limits = Limits { values: usize::MAX, ..Limits::default() };
    served(limits, true, async |server| {
        let mut body = run("s", 1, &["n1-a"]);
        let leak = body["report"]["suites"][0]["tests"][0]["leaks"][0].clone();
        let leaks = (0..=20_000).map(|number| {
            let mut leak = leak.clone();
            leak["id"] = format!("n1-{number}").into();
            leak
        });
        body["report"]["suites"][0]["tests"][0]["leaks"] = leaks.collect::<Vec<_>>().into();
        let gzip = format!("{JSON}Content-Encoding: gzip\r\n");
        let packed = packed(body.to_string().as_bytes());
        server.upload(&gzip, &packed).await.is(413, "20001 leaks: 20000 are the most");
    });
}

#[test]
fn a_slow_body_is_given_up_and_whoever_finds_no_room_is_told_when_to_come_again() {
    let limits = Limits { bodies: 1 << 10, arrival: Duration::from_millis(300), ..Limits::default() };
    served(limits, true, async |server| {
        let waiting =
            request("tiles", &format!("{JSON}Expect: 100-continue\r\nContent-Length: 1000\r\n"), b"");
        let mut slow = TcpStream::connect(server.at).await.unwrap();
        slow.write_all(&waiting).await.unwrap();
        // The server asks for the body: from now on the room is taken.
        let mut asked = [0; 25];
        slow.read_exact(&mut asked).await.unwrap();
        assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");
        let busy = server.upload(JSON, b"{}").await;
        busy.is(503, "too many runs");
        assert!(busy.head.contains("retry-after: 5"), "{busy:?}");
        answered(slow).await.is(408, "did not arrive within 0.3 s");
        server.upload(JSON, b"{}").await.is(422, "missing field");
    });
}

#[test]
fn a_run_that_its_sender_gives_up_leaves_nothing() {
    served(Limits::default(), true, async |server| {
        let body = run("s", 1, &["n1-a"]).to_string();
        let whole = request("tiles", &format!("{JSON}Content-Length: {}\r\n", body.len()), body.as_bytes());
        let mut stream = TcpStream::connect(server.at).await.unwrap();
        stream.write_all(&whole[..whole.len() - 1]).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        // The client gets an error, or the connection ends: either way nothing was added.
        drop(stream.read_to_end(&mut rest).await);
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 400 "), "{}", String::from_utf8_lossy(&rest));
        assert!(server.store.projects().await.unwrap().is_empty());
        assert_eq!(server.send(&whole).await.status, 201);
    });
}

#[test]
fn a_database_that_is_away_is_told_as_something_that_passes() {
    served(Limits::default(), true, async |server| {
        server.store.close().await;
        let answer = server.upload(JSON, run("s", 1, &[]).to_string().as_bytes()).await;
        answer.is(503, "the history cannot be written now");
        assert!(answer.head.contains("retry-after: 5") && !answer.body.contains("pool"), "{answer:?}");
        assert!(server.log.lock().unwrap()[0].starts_with("failed to use the history: "));
    });
}

fn in_folder(folder: &std::path::Path) -> crate::artefacts::Artefacts {
    let nobody: crate::artefacts::Exchange = Arc::new(|_| Err("nobody is asked here".to_owned()));
    crate::artefacts::Artefacts::open(folder.to_str().unwrap(), folder, |_| None, &nobody).unwrap()
}

/// Runs a test with pages kept in a folder, and a token for `tiles`.
fn with_pages(test: impl AsyncFnOnce(&Served, String, &std::path::Path)) {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("pages");
    let kept = in_folder(&pages);
    served_with(
        async || sqlite(&folder, "h.db").await,
        Limits::default(),
        false,
        Some(kept),
        async |server| {
            let token = server.store.create_token("tiles", &["main".to_owned()], FAR).await.unwrap();
            test(&server, token.secret().to_owned(), &pages).await;
        },
    );
}

#[test]
fn artefacts_are_of_the_run_whose_ticket_they_show_and_end_after_their_time() {
    with_pages(async |server, token, folder| {
        let added = server.with(&token, &run("s1", 1, &["n1-a"])).await.json();
        let other = server.with(&token, &run("s2", 2, &["n1-a"])).await.json();
        let number = added["run"].as_i64().unwrap();
        let put = async |(run, ticket): (&Value, &Value), name: &str, headers: &str, body: &[u8]| {
            let (path, ticket) = (run["artefacts"].as_str().unwrap(), ticket["ticket"].as_str().unwrap());
            let head = format!(
                "PUT {path}/{name}?ticket={ticket} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                 Authorization: Bearer {token}\r\n{headers}Content-Length: {}\r\n\r\n",
                body.len()
            );
            server.send(&[head.as_bytes(), body].concat()).await
        };
        let html = "Content-Type: text/html\r\nContent-Encoding: gzip\r\n";
        let (own, page) = ((&added, &added), packed(b"<!DOCTYPE html>"));
        put((&added, &other), "report.html", html, &page).await.is(404, "no such ticket");
        put(own, "report.html", "", &page).await.is(415, "text/html");
        put(own, "report.html", html, b"<!DOCTYPE html>").await.is(422, "that is no page");
        assert_eq!(put(own, "report.html", html, &page).await.status, 204);
        assert_eq!(
            put(own, "report.html", html, &packed(b"another")).await.status,
            204,
            "the first one stays"
        );
        assert_eq!(put(own, "java_pid7.hprof", "", b"JAVA PROFILE").await.status, 204);
        for name in [".hidden", "a%2Fb", "..%2f..%2fetc", "a%20b", &"x".repeat(101)] {
            put(own, name, "", b"x").await.is(422, "no name of a file");
        }
        let kept = in_folder(folder);
        let mut read = Vec::new();
        kept.get(number, "report.html").unwrap().read_to_end(&mut read).unwrap();
        assert_eq!(read, page);
        let names = async |run: i64| {
            let rows = server.store.artefacts("tiles", run).await.unwrap();
            rows.into_iter().map(|row| (row.name, row.bytes)).collect::<Vec<_>>()
        };
        let (dump, page) =
            (("java_pid7.hprof".to_owned(), 12), ("report.html".to_owned(), page.len() as u64));
        assert_eq!(names(number).await, [dump, page]);
        assert_eq!(names(other["run"].as_i64().unwrap()).await, []);

        let now_us = jiff::Timestamp::now().as_microsecond();
        let kept_us = i64::try_from(crate::artefacts::KEPT.as_micros()).unwrap();
        let (ended_us, day_us) = (now_us + kept_us + 60_000_000, 24 * 3600 * 1_000_000);
        add_one_at(&server.store, "half", now_us + kept_us / 2).await;
        assert_eq!(kept.retain(&server.store, now_us + kept_us / 2 + 2 * day_us).await.unwrap(), 0);
        assert_eq!(kept.retain(&server.store, ended_us).await.unwrap(), 0, "only the clock says so");
        add_one_at(&server.store, "later", ended_us).await;
        assert_eq!(
            kept.retain(&server.store, ended_us).await.unwrap(),
            0,
            "a clock may be ahead for some hours"
        );
        assert_eq!(kept.retain(&server.store, ended_us + day_us + 60_000_000).await.unwrap(), 2);
        assert!(names(number).await.is_empty() && kept.get(number, "report.html").is_err());
        assert!(server.store.check().await.unwrap().is_empty());
    });
}

#[test]
fn a_file_that_comes_in_pieces_goes_on_where_it_was_cut() {
    with_pages(async |server, token, folder| {
        let added = server.with(&token, &run("s1", 1, &[])).await.json();
        let (number, path) = (added["run"].as_i64().unwrap(), added["artefacts"].as_str().unwrap());
        let ticket = added["ticket"].as_str().unwrap();
        let dump: Vec<u8> = (0..50_000_u32).flat_map(u32::to_le_bytes).collect();
        let sha256 = memgate_history::sha256_hex(&dump);
        let head = |name: &str, sha256: &str, (offset, length): (usize, usize), piece: usize| {
            format!(
                "PATCH {path}/{name}?ticket={ticket}&sha256={sha256} HTTP/1.1\r\nHost: localhost\r\n\
                 Connection: close\r\nAuthorization: Bearer {token}\r\nUpload-Offset: {offset}\r\n\
                 Upload-Length: {length}\r\nContent-Length: {piece}\r\n\r\n"
            )
        };
        let send = async |name: &str, sha256: &str, at: usize, piece: &[u8]| {
            let head = head(name, sha256, (at, dump.len()), piece.len());
            server.send(&[head.as_bytes(), piece].concat()).await
        };
        let goes_on = |answer: &Answered, offset: usize| {
            assert!(answer.head.contains(&format!("upload-offset: {offset}\r\n")), "{offset}: {answer:?}");
        };
        let first = send("a.hprof", &sha256, 0, &dump[..70_000]).await;
        assert_eq!(first.status, 204);
        goes_on(&first, 70_000);
        let elsewhere = send("a.hprof", &sha256, 0, &dump[..70_000]).await;
        elsewhere.is(409, "70000 bytes of the file are there");
        goes_on(&elsewhere, 70_000);

        // The sender disconnects in the middle of a piece.
        let mut stream = TcpStream::connect(server.at).await.unwrap();
        let cut = head("a.hprof", &sha256, (70_000, dump.len()), 100_000);
        stream.write_all(&[cut.as_bytes(), &dump[70_000..90_000]].concat()).await.unwrap();
        stream.shutdown().await.unwrap();
        let answer = answered(stream).await;
        assert!(answer.status != 204, "{answer:?}");
        let there = send("a.hprof", &sha256, 0, b"").await;
        goes_on(&there, 90_000);
        let others = std::fs::read_dir(folder.join("arriving")).unwrap().count();
        assert_eq!(others, 1, "what is not whole is there");
        let rest = send("a.hprof", &sha256, 90_000, &dump[90_000..]).await;
        assert_eq!(rest.status, 204, "{rest:?}");
        goes_on(&rest, dump.len());
        let kept = in_folder(folder);
        let mut read = Vec::new();
        kept.get(number, "a.hprof").unwrap().read_to_end(&mut read).unwrap();
        assert!(read == dump);
        goes_on(&send("a.hprof", &sha256, 0, b"").await, dump.len());
        let another = head("a.hprof", &sha256, (0, 3), 0);
        server.send(another.as_bytes()).await.is(409, "another file is kept as a.hprof");

        // Another file under this name: the digest shows that the received bytes belong to the first one.
        assert_eq!(send("c.hprof", &sha256, 0, &dump[..70_000]).await.status, 204);
        let mixed = "1".repeat(64);
        let answer = send("c.hprof", &mixed, 70_000, &dump[70_000..]).await;
        answer.is(422, "another digest");
        goes_on(&answer, 0);
        assert_eq!(send("c.hprof", &sha256, 0, &dump[..70_000]).await.status, 204);
        let shorter = head("c.hprof", &mixed, (0, 3), 0);
        goes_on(&server.send(shorter.as_bytes()).await, 0);

        // A file with another digest than stated is removed, and can be sent again.
        let other = "0".repeat(64);
        send("b.hprof", &other, 0, &dump).await.is(422, "another digest");
        send("b.hprof", &other, 10, b"").await.is(409, "0 bytes of the file are there");
        send("b.hprof", &sha256[1..], 0, &dump).await.is(422, "`sha256`");
        let longer = head("b.hprof", &sha256, (0, 3), 4) + "long";
        server.send(longer.as_bytes()).await.is(413, "more than the 3 B");
        let huge = head("b.hprof", &sha256, (0, usize::MAX), 0);
        server.send(huge.as_bytes()).await.is(413, "more than the 4.0 GiB");
        let nowhere = head("b.hprof", &sha256, (0, 0), 0).replace("Upload-Offset: 0", "Upload-Offset: -1");
        server.send(nowhere.as_bytes()).await.is(422, "where it begins");
        assert_eq!(std::fs::read_dir(folder.join("arriving")).unwrap().count(), 0);
        let rows = server.store.artefacts("tiles", number).await.unwrap();
        let row = ("a.hprof", dump.len() as u64);
        assert_eq!(rows.iter().map(|row| (row.name.as_str(), row.bytes)).collect::<Vec<_>>(), [row]);
    });
}
