//! Connections: how many there are at a time, how long the head of a request may take, and how long a client may read
//! nothing of its response. The time limit of a body is up to the code that reads it.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Pause after a failed accept, mostly because file descriptors ran out.
const PAUSE: Duration = Duration::from_millis(200);

/// Limits of connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Connections at a time; more wait before they are accepted.
    pub(super) connections: usize,
    /// How long the head of a request may take to arrive, and how long a connection may wait for the next one.
    pub(super) head: Duration,
    /// How long a client may read nothing of a response.
    pub(super) stalled: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 512, head: Duration::from_secs(30), stalled: Duration::from_secs(120) }
    }
}

/// Serves connections until `stop` resolves, then finishes the requests that have begun.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let room = Arc::new(Semaphore::new(limits.connections));
    let open = GracefulShutdown::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.head);
    let stalled = u32::try_from(limits.stalled.as_millis()).unwrap_or(u32::MAX);
    let mut stop = pin!(stop);
    loop {
        let next = async {
            let held = Arc::clone(&room).acquire_owned().await.map_err(io::Error::other)?;
            Ok::<_, io::Error>((held, listener.accept().await))
        };
        let (held, accepted) = tokio::select! {
            next = next => next?,
            () = &mut stop => break,
        };
        let Ok((stream, _)) = accepted else {
            // The next accept may succeed: this error does not end the server.
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        if set_tcp_user_timeout(&stream, stalled).is_err() {
            // The connection is already closed.
            continue;
        }
        let served = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
        let served = open.watch(served);
        tokio::spawn(async move {
            // How a connection ends concerns only its client.
            drop(served.await);
            drop(held);
        });
    }
    drop(listener);
    open.shutdown().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;
    use crate::store::tests::block_on;

    const HELLO: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

    /// Sends these bytes; returns the response until the connection ends.
    async fn answer(stream: &mut TcpStream, bytes: &[u8]) -> String {
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap()
    }

    #[test]
    fn half_a_request_ends_and_makes_room_for_the_next_one() {
        block_on(half_a_request());
    }

    async fn half_a_request() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", axum::routing::get(|| async { "hello" }));
        let limits = Limits { connections: 1, head: Duration::from_millis(200), ..Limits::default() };
        let server = tokio::spawn(serve(listener, router, limits, std::future::pending()));
        let mut slow = TcpStream::connect(address).await.unwrap();
        slow.write_all(&HELLO[..20]).await.unwrap();
        let mut next = TcpStream::connect(address).await.unwrap();
        let waited = tokio::time::timeout(Duration::from_millis(50), answer(&mut next, HELLO)).await;
        assert!(waited.is_err(), "there is room for one connection");
        let told = answer(&mut slow, b"").await;
        assert!(!told.contains("hello"), "{told}");
        let mut rest = String::new();
        next.read_to_string(&mut rest).await.unwrap();
        assert!(rest.ends_with("hello"), "{rest}");
        server.abort();
    }

    #[test]
    fn a_client_that_does_not_read_makes_room_for_the_next_one() {
        block_on(unread_answer());
    }

    async fn unread_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // More than the socket buffers hold.
        let large = || async { vec![b'x'; 64 << 20] };
        let router = Router::new()
            .route("/", axum::routing::get(|| async { "hello" }))
            .route("/large", axum::routing::get(large));
        let limits = Limits { connections: 1, stalled: Duration::from_millis(200), ..Limits::default() };
        let server = tokio::spawn(serve(listener, router, limits, std::future::pending()));
        let mut unread = TcpStream::connect(address).await.unwrap();
        unread.write_all(b"GET /large HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut next = TcpStream::connect(address).await.unwrap();
        let told = answer(&mut next, HELLO).await;
        assert!(told.ends_with("hello"), "{told}");
        server.abort();
    }
}
