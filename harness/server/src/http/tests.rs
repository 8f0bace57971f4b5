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
    let folder = tempfile::tempdir().unwrap();
    let address = format!("sqlite:{}", folder.path().join("h.db").display());
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(
        async {
            let store = Store::open(&address).await.unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let at = listener.local_addr().unwrap();
            let (stop, stopped) = oneshot::channel::<()>();
            let lines = Arc::new(Mutex::new(Vec::new()));
            let log = Arc::clone(&lines);
            let options = Options {
                public_hosts: vec!["memgate.example.com".into()],
                added: Arc::default(),
                artefacts: None,
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
    });
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

#[test]
fn what_fails_inside_is_told_to_the_log_and_not_to_the_reader() {
    served(async |at, store, lines| {
        store.close().await;
        let answer = ask(at, &get("/p/x", "localhost")).await;
        assert!(
            answer.starts_with("HTTP/1.1 500 ") && !answer.contains("pool") && !answer.contains("closed"),
            "{answer}"
        );
        assert!(ask(at, &get("/readyz", "localhost")).await.starts_with("HTTP/1.1 503 "));
        let lines = lines.lock().unwrap();
        assert!(
            lines.len() == 2 && lines.iter().all(|line| line.starts_with("failed to use the history: ")),
            "{lines:?}"
        );
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
