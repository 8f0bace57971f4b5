//! `/metrics`: counters of this process, in the Prometheus text format.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use tokio::time::timeout;

use super::Options;
use super::guard::guard;
use super::refused::chain;
use crate::store::Store;

/// How long a health check waits for the database.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// Counters since the start of the process.
#[derive(Debug, Default)]
pub(super) struct Counters {
    by_status: Mutex<BTreeMap<u16, u64>>,
    runs_added: AtomicU64,
}

impl Counters {
    /// Counts an uploaded run that is new.
    pub(super) fn added(&self) {
        self.runs_added.fetch_add(1, Ordering::Relaxed);
    }

    fn text(&self, database: bool) -> String {
        let mut text = String::new();
        let mut family = |name: &str, kind: &str, help: &str, values: &[(String, u64)]| {
            // Writing to a string does not fail.
            let _always = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, value) in values {
                let _always = writeln!(text, "{name}{labels} {value}");
            }
        };
        let added = self.runs_added.load(Ordering::Relaxed);
        let help = "Runs that were uploaded and added.";
        family("memgate_runs_added_total", "counter", help, &[(String::new(), added)]);
        let by_status = self.by_status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let by_status: Vec<_> = by_status
            .into_iter()
            .map(|(status, count)| (format!("{{status=\"{status}\"}}"), count))
            .collect();
        let help = "Requests that were answered, by status.";
        family("memgate_http_requests_total", "counter", help, &by_status);
        let help = "Whether the database answers.";
        family("memgate_database_up", "gauge", help, &[(String::new(), u64::from(database))]);
        text
    }
}

/// Counts a response by its status.
pub(super) async fn count(State(counters): State<Arc<Counters>>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let mut by_status = counters.by_status.lock().unwrap_or_else(PoisonError::into_inner);
    *by_status.entry(response.status().as_u16()).or_default() += 1;
    drop(by_status);
    response
}

pub(super) fn router(store: Store, options: Arc<Options>, counters: Arc<Counters>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .layer(from_fn_with_state(options, guard))
        .with_state((store, counters))
}

/// Does the database answer? The timeout is shorter than that of a page: Prometheus gives up after ten seconds.
pub(super) async fn answers(store: &Store, patience: Duration) -> Result<(), String> {
    match timeout(patience, store.projects()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(why)) => Err(chain(&why)),
        Err(_slow) => Err(format!("read the history within {} s", patience.as_secs())),
    }
}

async fn metrics(State((store, counters)): State<(Store, Arc<Counters>)>) -> Response {
    let database = answers(&store, PATIENCE).await.is_ok();
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], counters.text(database)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::{block_on, busy};

    #[test]
    fn a_database_that_does_not_answer_is_told_before_whoever_asks_gives_up() {
        block_on(async {
            let (store, _folder, connections) = busy().await;
            let why = answers(&store, Duration::from_millis(20)).await.unwrap_err();
            assert!(why.starts_with("read the history within"), "{why}");
            drop(connections);
            assert_eq!(answers(&store, PATIENCE).await, Ok(()));
        });
    }
}
