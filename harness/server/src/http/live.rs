//! Runs in progress: their page, and a stream of events for watchers.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse as _, Response};
use axum::routing::get;
use futures_util::{Stream, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::Options;
use super::guard::{POLICY_WITH_SCRIPT, guard};
use super::reader::{self, Readers};
use crate::live::Board;
use crate::pages;

/// Each watcher holds a connection.
const MOST_WATCHERS: usize = 200;
/// Shortest time between two events for a watcher.
const PACE: Duration = Duration::from_secs(1);
/// Without this header, proxies buffer the stream until it ends.
const UNBUFFERED: HeaderName = HeaderName::from_static("x-accel-buffering");

struct Live {
    board: Arc<Board>,
    readers: Readers,
    watchers: Arc<Semaphore>,
}

pub(super) fn router(board: Arc<Board>, options: Arc<Options>, readers: Readers) -> Router {
    let live = Live { board, readers: readers.clone(), watchers: Arc::new(Semaphore::new(MOST_WATCHERS)) };
    Router::new()
        .route("/p/{project}/live", get(page))
        .route("/api/v1/projects/{project}/live/events", get(events))
        .route("/static/live.js", get(script))
        .layer(from_fn_with_state(readers, reader::read))
        .layer(from_fn_with_state((Arc::clone(&options), reader::READING), reader::in_time))
        .layer(from_fn_with_state(options, guard))
        .with_state(Arc::new(live))
}

async fn page(State(live): State<Arc<Live>>, Path(project): Path<String>) -> Response {
    let page = Html(pages::live(&project, &live.board.of(&project)));
    ([(CONTENT_SECURITY_POLICY, POLICY_WITH_SCRIPT)], page).into_response()
}

async fn script() -> impl axum::response::IntoResponse {
    ([(CONTENT_TYPE, "text/javascript; charset=utf-8")], pages::LIVE_SCRIPT)
}

async fn events(State(live): State<Arc<Live>>, Path(project): Path<String>, headers: HeaderMap) -> Response {
    let Ok(permit) = Arc::clone(&live.watchers).try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many watch already\n").into_response();
    };
    let changed = live.board.watch();
    let watch = Watch { live, project, headers, changed, shown: None, _permit: permit };
    let sse = Sse::new(changes(watch)).keep_alive(KeepAlive::default());
    ([(UNBUFFERED, HeaderValue::from_static("no"))], sse).into_response()
}

/// A watcher of a project.
struct Watch {
    live: Arc<Live>,
    project: String,
    /// Headers of the watcher's request.
    headers: HeaderMap,
    changed: watch::Receiver<u64>,
    shown: Option<String>,
    /// The watcher's share of [`MOST_WATCHERS`].
    _permit: OwnedSemaphorePermit,
}

/// The table now, and after every change.
fn changes(watch: Watch) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(watch, async |mut watch| {
        loop {
            let version = *watch.changed.borrow_and_update();
            let now = pages::live_table(&watch.live.board.of(&watch.project));
            if watch.shown.as_ref() != Some(&now) {
                match watch.live.readers.may(&watch.project, &watch.headers).await {
                    Ok(true) => {
                        let event = Event::default().id(version.to_string()).data(&now);
                        watch.shown = Some(now);
                        return Some((Ok(event), watch));
                    }
                    // The watcher signed out or lost the right: the stream ends.
                    Ok(false) => return None,
                    // The right cannot be checked now: a later round sends this state or a newer one.
                    Err(_away) => {}
                }
            }
            // Only the newest state is sent. The timeout notices a run that went silent.
            let _either = tokio::time::timeout(Duration::from_secs(30), watch.changed.changed()).await;
            tokio::time::sleep(PACE).await;
        }
    })
}
