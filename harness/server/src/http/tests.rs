//! Real requests over a loopback socket.

use std::sync::Mutex;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::*;

async fn ask(address: std::net::SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

fn served(test: impl AsyncFnOnce(std::net::SocketAddr, Store, Arc<Mutex<Vec<String>>>)) {
    served_with(None, test);
}

fn served_with(
    artefacts: Option<Artefacts>,
    test: impl AsyncFnOnce(std::net::SocketAddr, Store, Arc<Mutex<Vec<String>>>),
) {
    let folder = tempfile::tempdir().unwrap();
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(
        async {
            let store = crate::store::tests::sqlite(&folder, "h.db").await;
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let at = listener.local_addr().unwrap();
            let (stop, stopped) = oneshot::channel::<()>();
            let lines = Arc::new(Mutex::new(Vec::new()));
            let log = Arc::clone(&lines);
            let options = Options {
                public_hosts: vec!["memgate.example.com".into()],
                added: Arc::default(),
                artefacts,
                fetch: Arc::new(|_| Err("nobody is asked here".to_owned())),
                log: Arc::new(move |line| log.lock().unwrap().push(line.to_owned())),
            };
            let serving = tokio::spawn(serve(listener, store.clone(), options, async {
                drop(stopped.await);
            }));
            test(at, store, lines).await;
            stop.send(()).unwrap();
            serving.await.unwrap().unwrap();
        },
    );
}

fn get(path: &str, host: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
}

#[test]
fn every_answer_has_its_status_and_the_headers_that_keep_scripts_out() {
    served(async |at, _, _| {
        for (path, status) in [
            ("/", 200),
            ("/p/no", 404),
            ("/p/no/leaks/n1-x?branch=main", 404),
            ("/p/no/runs/x", 404),
            ("/p/no/compare/1...2", 404),
            ("/p/no/compare/1..2", 404),
            ("/p/no/compare/99999999999999999999...x", 404),
            ("/p/no/runs?before=x", 404),
            ("/p/no/tests/a%2Fb/c%3A%3Ad", 404),
            ("/p/no/tests/a/b?metric=nonsense", 404),
            ("/p/%ff/leaks", 400),
            ("/p/%2e%2e%2fetc/leaks", 404),
            ("/nothing", 404),
            ("/static/page.css", 200),
            ("/static/../Cargo.toml", 404),
            ("/healthz", 200),
            ("/readyz", 200),
            ("/metrics", 200),
            ("/api/v1/projects", 200),
            ("/api/v1/projects/no", 404),
        ] {
            let answer = ask(at, &get(path, "localhost")).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
            for header in [
                "content-security-policy: default-src 'none'; style-src 'self'",
                "x-content-type-options: nosniff",
                "referrer-policy: no-referrer",
            ] {
                assert!(answer.contains(header), "{path}: {answer}");
            }
        }
        let long = ask(at, &get(&format!("/p/{}", "x".repeat(9000)), "localhost")).await;
        assert!(long.starts_with("HTTP/1.1 414 "), "{long}");
        let nul = ask(at, &get("/api/v1/projects/no?branch=%00", "localhost")).await;
        assert!(nul.starts_with("HTTP/1.1 404 ") && nul.contains("NUL"), "PostgreSQL is not asked: {nul}");
    });
}

/// Regression: a page waited a minute for a database that was away.
#[tokio::test]
async fn a_page_of_a_database_that_does_not_answer_ends_in_time() {
    let (store, _folder, connections) = crate::store::tests::busy().await;
    let lines = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&lines);
    let options = Arc::new(Options {
        public_hosts: Vec::new(),
        added: Arc::default(),
        artefacts: None,
        fetch: Arc::new(|_| Err("nobody is asked here".to_owned())),
        log: Arc::new(move |line| log.lock().unwrap().push(line.to_owned())),
    });
    let grants = Arc::new(Grants::new(store.clone(), Arc::clone(&options), true));
    let readers = Readers { store: store.clone(), options: Arc::clone(&options), grants };
    let router = routes::router(store, options, readers, Duration::from_millis(50));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let serving = tokio::spawn(async { axum::serve(listener, router).await });
    for (path, told) in [
        ("/p/tiles/leaks", "The history cannot be read now; the server&#39;s log says why."),
        ("/api/v1/projects/tiles/leaks", r#"{"error":"the history cannot be read now"}"#),
    ] {
        let answer = ask(at, &get(path, "localhost")).await;
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: 5"), "{path}: {answer}");
        assert!(answer.contains(told), "{path}: {answer}");
    }
    assert_eq!(*lines.lock().unwrap(), ["failed to read the history within 0.05 s"; 2]);
    serving.abort();
    drop(connections);
}

#[test]
fn nothing_is_changed_and_no_foreign_name_is_answered() {
    served(async |at, _, _| {
        for method in ["POST", "PUT", "DELETE", "PATCH"] {
            let request = format!(
                "{method} /p/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            assert!(ask(at, &request).await.starts_with("HTTP/1.1 405 "), "{method}");
        }
        for host in ["evil.example.com", "192.168.0.9:7377"] {
            let answer = ask(at, &get("/api/v1/projects", host)).await;
            assert!(answer.starts_with("HTTP/1.1 421 ") && answer.contains("--public-host"), "{answer}");
        }
        assert!(ask(at, &get("/", "memgate.example.com")).await.starts_with("HTTP/1.1 200 "));
    });
}

/// The answer was an empty list, which a script took for a line without leaks.
#[test]
fn a_state_or_kind_that_no_leak_can_have_is_no_empty_list() {
    served(async |at, store, _| {
        crate::store::tests::add_one(&store).await;
        for (asked, status) in [
            ("state=any", 200),
            ("state=open", 404),
            ("kind=os", 200),
            ("kind=descriptor", 404),
            ("state=&kind=&text=x", 200),
        ] {
            for path in ["/p/tiles", "/api/v1/projects/tiles"] {
                let answer = ask(at, &get(&format!("{path}/leaks?{asked}"), "localhost")).await;
                assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{asked}: {answer}");
            }
        }
    });
}

#[test]
fn a_test_of_a_run_is_found_by_a_part_of_its_name() {
    served(async |at, store, _| {
        let run = crate::store::tests::add_one(&store).await;
        let tests = async |asked: &str| {
            let path = format!("/api/v1/projects/tiles/runs/{run}{asked}");
            let answer = ask(at, &get(&path, "localhost")).await;
            let (_, json) = answer.split_once("\r\n\r\n").unwrap();
            let json: serde_json::Value = serde_json::from_str(json).unwrap();
            json["of"].as_u64().unwrap()
        };
        assert_eq!(tests("").await, 3);
        assert_eq!((tests("?text=ENGINE::map.SCR").await, tests("?text=nothing").await), (1, 0));
        assert_eq!(tests("?order=slowest&text=map").await, 2);
        let page = ask(at, &get(&format!("/p/tiles/runs/{run}?text=scroll"), "localhost")).await;
        assert!(page.contains("Map.scroll") && !page.contains("Map.clean"), "{page}");
        assert!(page.contains("value=\"scroll\"") && page.contains("1 test<"), "{page}");
    });
}

/// The page said only that something may have another name.
#[test]
fn an_answer_that_something_is_not_there_names_it() {
    served(async |at, store, _| {
        crate::store::tests::add_one(&store).await;
        for (path, why) in [
            ("no/leaks/n1-x", "there is no project `no`"),
            ("tiles?branch=no", "the project `tiles` has no such page with `branch=no`"),
            ("tiles/runs/7", "the project `tiles` has no run `7`"),
            ("tiles/leaks/n1-x", "the project `tiles` has no leak `n1-x`"),
            ("tiles/tests/a%2Fb/c", "the project `tiles` has no test `a/b::c`"),
            ("tiles/compare/1..2", "the project `tiles` has no two runs `1..2`"),
        ] {
            for start in ["/p/", "/api/v1/projects/"] {
                let answer = ask(at, &get(&format!("{start}{path}"), "localhost")).await;
                assert!(answer.starts_with("HTTP/1.1 404 ") && answer.contains(why), "{path}: {answer}");
                // A token does not help whoever sees the project.
                let advises_token = start == "/api/v1/projects/" && path.starts_with("no/");
                assert_eq!(answer.contains("needs a token"), advises_token, "{path}: {answer}");
            }
        }
    });
}

/// Each page has a form to choose branch and environment. It led to "Not found".
#[test]
fn a_branch_without_the_chosen_environment_is_shown_in_its_own() {
    served(async |at, store, _| {
        crate::store::tests::add_one(&store).await;
        for page in ["/p/tiles", "/p/tiles/leaks", "/p/tiles/runs", "/p/tiles/tune"] {
            let asked = format!("{page}?branch=main&environment=aarch64&x=1");
            let answer = ask(at, &get(&asked, "localhost")).await;
            let there = format!("location: {page}?branch=main&x=1\r\n");
            assert!(answer.starts_with("HTTP/1.1 303 ") && answer.contains(&there), "{answer}");
        }
        for (path, status) in [
            ("/p/tiles?branch=main", 200),
            ("/p/tiles?branch=main&environment=x86_64", 200),
            ("/p/tiles?branch=main&environment=", 200),
            ("/p/tiles?branch=no", 404),
            ("/p/tiles?environment=aarch64", 404),
            ("/api/v1/projects/tiles?branch=main&environment=aarch64", 404),
        ] {
            let answer = ask(at, &get(path, "localhost")).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
        }
    });
}

#[test]
fn what_fails_inside_is_told_to_the_log_and_not_to_the_reader() {
    served(async |at, store, lines| {
        store.close().await;
        let answer = ask(at, &get("/p/x", "localhost")).await;
        let may_be_back = |answer: &str| {
            answer.starts_with("HTTP/1.1 503 ") && answer.to_lowercase().contains("\r\nretry-after: 5\r\n")
        };
        assert!(may_be_back(&answer) && !answer.contains("pool") && !answer.contains("closed"), "{answer}");
        assert!(ask(at, &get("/readyz", "localhost")).await.starts_with("HTTP/1.1 503 "));
        let json = ask(at, &get("/api/v1/projects/x", "localhost")).await;
        assert!(may_be_back(&json) && json.contains("the history cannot be read now"), "{json}");
        let lines = lines.lock().unwrap();
        assert!(
            lines.len() == 3 && lines.iter().all(|line| line.starts_with("failed to use the history: ")),
            "{lines:?}"
        );
    });
}

#[test]
fn a_file_that_cannot_be_read_is_named_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let nobody: crate::artefacts::Exchange = Arc::new(|_| Err("nobody is asked here".to_owned()));
    let kept = Artefacts::open(folder.path().to_str().unwrap(), folder.path(), |_| None, &nobody);
    served_with(Some(kept.unwrap()), async |at, store, lines| {
        let run = crate::store::tests::add_one(&store).await;
        let row = crate::view::ArtefactRow { name: "a.hprof".to_owned(), bytes: 5 };
        store.add_artefact("tiles", run, &row, i64::MAX / 2).await.unwrap();
        // A file in the place of the folder.
        std::fs::write(folder.path().join(format!("{:02x}", run & 0xff)), "").unwrap();
        let path = format!("/p/tiles/runs/{run}/artefacts/a.hprof");
        let answer = ask(at, &get(&path, "localhost")).await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
        let lines = lines.lock().unwrap();
        let expected = format!("failed to read a.hprof of run {run}: Not a directory (os error 20)");
        assert_eq!(*lines, [expected]);
    });
}

#[test]
fn the_metrics_count_answers_and_tell_of_the_database() {
    served(async |at, store, _| {
        ask(at, &get("/p/no", "localhost")).await;
        ask(at, &get("/p/no", "evil.example.com")).await;
        let body = "{}";
        let upload = format!(
            "POST /api/v1/projects/p/runs HTTP/1.1\r\nHost: memgate.example.com\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{body}"
        );
        let refused = ask(at, &upload).await;
        assert!(refused.starts_with("HTTP/1.1 401 ") && refused.contains("a token is needed"), "{refused}");
        assert!(refused.contains("content-security-policy: "), "{refused}");
        let metrics = async || {
            ask(at, &get("/metrics", "localhost")).await.split_once("\r\n\r\n").unwrap().1.to_owned()
        };
        let text = metrics().await;
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "memgate_runs_added_total 0",
                "memgate_http_requests_total{status=\"401\"} 1",
                "memgate_http_requests_total{status=\"404\"} 1",
                "memgate_http_requests_total{status=\"421\"} 1",
                "memgate_database_up 1",
            ]
        );
        assert!(
            text.contains("# TYPE memgate_runs_added_total counter\nmemgate_runs_added_total 0\n"),
            "{text}"
        );
        store.close().await;
        assert!(metrics().await.contains("\nmemgate_database_up 0\n"));
    });
}

fn form(path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {length}\r\nConnection: close\r\n{headers}\r\n{body}"
    )
}

fn with(request: &str, header: &str) -> String {
    request.replacen("\r\n\r\n", &format!("\r\n{header}\r\n\r\n"), 1)
}

const OURS: &str = "Sec-Fetch-Site: same-origin\r\n";

/// Every path below a project, from the routes.
fn below(project: &str) -> Vec<String> {
    let texts = [include_str!("routes.rs"), include_str!("live.rs")].concat();
    let routes = texts.split('"').filter(|text| text.starts_with('/') && text.contains("{project}"));
    let fill = [
        ("{project}", project),
        ("{run}", "7"),
        ("{pair}", "7...8"),
        ("{leak}", "n1-x"),
        ("{suite}", "s"),
        ("{test}", "t"),
        ("{name}", "report.html"),
    ];
    let all: Vec<String> = routes
        .map(|route| fill.iter().fold(route.to_owned(), |text, (name, value)| text.replace(name, value)))
        .collect();
    assert!(all.len() > 15 && all.iter().all(|path| !path.contains('{')), "{all:?}");
    all
}

fn dateless(answer: &str) -> String {
    answer.lines().filter(|line| !line.starts_with("date: ")).collect::<Vec<_>>().join("\n")
}

/// Signs in; returns the cookie.
async fn signed_in(at: std::net::SocketAddr, password: &str) -> String {
    let body = format!("name=Anna&password={password}&next=%2Fp%2Ftiles");
    let answer = ask(at, &form("/login", OURS, &body)).await;
    assert!(answer.starts_with("HTTP/1.1 303 ") && answer.contains("location: /p/tiles\r\n"), "{answer}");
    let cookie = answer.split("set-cookie: ").nth(1).unwrap().split("\r\n").next().unwrap();
    assert!(cookie.ends_with("; Max-Age=43200; Path=/; Secure; HttpOnly; SameSite=Lax"), "{cookie}");
    format!("Cookie: other=1; {}", cookie.split(';').next().unwrap())
}

#[test]
fn a_project_for_members_looks_to_others_as_if_it_were_not_there() {
    served(async |at, store, _| {
        // A password for this test only.
        let password = "correct-horse";
        store
            .add_account("anna", &crate::password::hash(password).unwrap(), &["tiles".to_owned()])
            .await
            .unwrap();
        let report = crate::store::tests::report("s1", 1, &[("Map.scroll", Some(vec![]))]);
        store.add(&crate::store::tests::manifest("s1", None, Vec::new()), &report).await.unwrap();
        assert!(ask(at, &get("/p/tiles", "localhost")).await.starts_with("HTTP/1.1 200 "));
        store.add_members_only("tiles").await.unwrap();

        let token = store.create_token("tiles", &[], i64::MAX).await.unwrap();
        let others = store.create_token("maps", &[], i64::MAX).await.unwrap();
        let bearer = |token: &crate::token::Token| format!("Authorization: Bearer {}", token.secret());
        let cookie = signed_in(at, password).await;
        let answer = async |path: &str, header: &str| {
            let request = get(path, "localhost");
            ask(at, &if header.is_empty() { request } else { with(&request, header) }).await
        };
        for (own, missing) in below("tiles").into_iter().zip(below("other")) {
            for header in ["", "Cookie: __Host-memgate=", "Cookie: __Host-memgate=x", &bearer(&others)] {
                let own = answer(&own, header).await;
                // The stream of an unknown project waits for its first run.
                let missing = if missing.ends_with("/events") {
                    own.replace("tiles", "other")
                } else {
                    answer(&missing, header).await
                };
                // The live page of an unknown project is empty: it reveals nothing.
                let is_same = dateless(&own).replace("tiles", "other") == dateless(&missing)
                    || missing.starts_with("HTTP/1.1 200 ");
                assert!(own.starts_with("HTTP/1.1 404 ") && is_same, "{header}: {own}\n{missing}");
            }
        }
        assert!(
            answer("/p/tiles/leaks?state=all", "")
                .await
                .contains("/login?next=%2Fp%2Ftiles%2Fleaks%3Fstate%3Dall")
        );
        // A name can be percent-encoded in several ways.
        for path in [
            "/p/til%65s",
            "/p/%74iles/leaks",
            "/api/v1/projects/tile%73",
            "//p/tiles",
            "/p/tiles/",
            "/p//tiles",
        ] {
            let answer = answer(path, "").await;
            assert!(
                answer.starts_with("HTTP/1.1 404 ") && !answer.contains("Map.scroll"),
                "{path}: {answer}"
            );
        }
        for (path, header, status) in [
            ("/p/til%65s", cookie.as_str(), 200),
            ("/p/tiles", &cookie, 200),
            ("/p/tiles/leaks", &cookie, 200),
            ("/p/nobody", &cookie, 404),
            ("/api/v1/projects/tiles/baseline", &bearer(&token), 200),
            ("/api/v1/projects/tiles/baseline", &bearer(&others), 404),
        ] {
            let answer = answer(path, header).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path} {header}: {answer}");
        }
        assert!(!answer("/p/nobody", &cookie).await.contains("/login"), "who is signed in need not be told");
        for path in ["/", "/api/v1/projects"] {
            assert!(
                !answer(path, "").await.contains("tiles") && answer(path, &cookie).await.contains("tiles")
            );
        }

        let home = answer("/", &cookie).await;
        let sent = home.split("name=form value=\"").nth(1).unwrap().split('"').next().unwrap();
        for (headers, body) in [(OURS, "form=x"), ("", sent), ("Sec-Fetch-Site: cross-site\r\n", sent)] {
            let body = if body == sent { format!("form={sent}") } else { body.to_owned() };
            ask(at, &form("/logout", &format!("{headers}{cookie}\r\n"), &body)).await;
            assert!(answer("/p/tiles", &cookie).await.starts_with("HTTP/1.1 200 "), "nobody else signs out");
        }
        let mut watching = TcpStream::connect(at).await.unwrap();
        let events = with(&get("/api/v1/projects/tiles/live/events", "localhost"), &cookie);
        watching.write_all(events.as_bytes()).await.unwrap();
        let mut told = Vec::new();
        while !String::from_utf8_lossy(&told).contains("Nothing runs.") {
            assert!(watching.read_buf(&mut told).await.unwrap() > 0, "{}", String::from_utf8_lossy(&told));
        }
        ask(at, &form("/logout", &format!("{OURS}{cookie}\r\n"), &format!("form={sent}"))).await;
        assert!(answer("/p/tiles", &cookie).await.starts_with("HTTP/1.1 404 "));
        let summary = r#"{"id":"r1","now":"Map.scroll"}"#;
        let head = "POST /api/v1/projects/tiles/live HTTP/1.1\r\nHost: localhost\r\nConnection: close";
        let post =
            format!("{head}\r\nContent-Length: {}\r\n{}\r\n\r\n{summary}", summary.len(), bearer(&token));
        let answer = ask(at, &post).await;
        assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
        told.clear();
        while watching.read_buf(&mut told).await.unwrap() > 0 {
            let told = String::from_utf8_lossy(&told);
            assert!(!told.contains("Map.scroll"), "who signed out is told no more: {told}");
        }
    });
}

#[test]
fn only_the_right_password_of_a_form_of_ours_signs_in() {
    served(async |at, store, lines| {
        store.add_account("anna", &crate::password::hash("correct-horse").unwrap(), &[]).await.unwrap();
        let right = "name=anna&password=correct-horse";
        for headers in ["", "Sec-Fetch-Site: none\r\n", "Sec-Fetch-Site: same-site\r\n"] {
            let answer = ask(at, &form("/login", headers, right)).await;
            assert!(answer.starts_with("HTTP/1.1 403 ") && !answer.contains("set-cookie"), "{answer}");
        }
        let long = format!("name=anna&password={}", "x".repeat(9000));
        for (body, status) in [
            ("name=anna&password=wrong-horses", 403),
            ("name=otto&password=correct-horse", 403),
            ("name=anna", 403),
            ("", 403),
            ("name=anna&password=%ff", 403),
            (long.as_str(), 413),
        ] {
            let answer = ask(at, &form("/login", OURS, body)).await;
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")) && !answer.contains("set-cookie"),
                "{body}: {answer}"
            );
        }
        for _ in 0..10 {
            ask(at, &form("/login", OURS, "name=anna&password=wrong-horses")).await;
        }
        assert!(ask(at, &form("/login", OURS, right)).await.starts_with("HTTP/1.1 429 "), "too often");
        assert!(lines.lock().unwrap().is_empty(), "what somebody typed is in no log");
    });
}
