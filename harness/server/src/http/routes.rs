//! One route per page, and one per view as JSON.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Path, Query, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE,
};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::get;
use memgate_history::Environment;
use memgate_history::place::FARTHEST_BASE;
use memgate_model::Metric;
use serde::{Deserialize, Serialize};

use super::Options;
use super::counters;
use super::guard::{POLICY_OF_A_STRANGER, guard};
use super::reader::{self, Readers, SignedIn};
use super::refused::chain;
use crate::artefacts::PAGE;
use crate::pages;
use crate::store::{Choice, Reader, Store, StoreError, Wanted};
use crate::view::{KINDS, LeakFilter, Order, RunView, StateFilter};

/// Bytes to read from a file at once.
const PIECE: usize = 64 << 10;

#[derive(Clone)]
struct App {
    store: Store,
    options: Arc<Options>,
}

/// Query parameters of a page; a missing one is empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Asked {
    branch: String,
    environment: String,
    metric: String,
    before: String,
    owner: String,
    suite: String,
    kind: String,
    state: String,
    text: String,
    order: String,
}

impl Asked {
    fn choice(&self) -> Choice {
        Choice { branch: self.branch.clone(), environment: self.environment.clone() }
    }

    /// `None`: the query names an unknown state or kind.
    fn filter(&self) -> Option<LeakFilter> {
        let state = match self.state.as_str() {
            "" => StateFilter::Alive,
            named => StateFilter::of_name(named)?,
        };
        KINDS.contains(&self.kind.as_str()).then(|| LeakFilter {
            owner: self.owner.clone(),
            suite: self.suite.clone(),
            kind: self.kind.clone(),
            state,
            text: self.text.clone(),
        })
    }
}

/// The pages, each of which takes `reading` at most.
pub(super) fn router(store: Store, options: Arc<Options>, readers: Readers, reading: Duration) -> Router {
    Router::new()
        .route("/", get(home))
        .route("/p/{project}", get(overview))
        .route("/p/{project}/runs", get(runs))
        .route("/p/{project}/runs/{run}", get(run))
        .route("/p/{project}/runs/{run}/artefacts/{name}", get(artefact))
        .route("/p/{project}/compare/{pair}", get(compare))
        .route("/p/{project}/leaks", get(leaks))
        .route("/p/{project}/leaks/{leak}", get(leak))
        .route("/p/{project}/tests/{suite}/{test}", get(test))
        .route("/p/{project}/tune", get(tune))
        .route("/api/v1/projects", get(projects_json))
        .route("/api/v1/projects/{project}", get(overview_json))
        .route("/api/v1/projects/{project}/runs", get(runs_json))
        .route("/api/v1/projects/{project}/runs/{run}", get(run_json))
        .route("/api/v1/projects/{project}/compare/{pair}", get(compare_json))
        .route("/api/v1/projects/{project}/leaks", get(leaks_json))
        .route("/api/v1/projects/{project}/leaks/{leak}", get(leak_json))
        .route("/api/v1/projects/{project}/tests/{suite}/{test}", get(test_json))
        .route("/api/v1/projects/{project}/baseline", get(baseline))
        .route("/static/page.css", get(style))
        .route("/static/icon.svg", get(icon))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .fallback(async || (StatusCode::NOT_FOUND, Html(pages::not_found("there is no such page", None))))
        .layer(from_fn(own_environment))
        .layer(from_fn_with_state(readers, reader::read))
        .layer(from_fn_with_state((Arc::clone(&options), reading), reader::in_time))
        .layer(from_fn_with_state(Arc::clone(&options), guard))
        .with_state(App { store, options })
}

/// A branch may have no run in the environment of the previous page. Its page then shows another environment.
async fn own_environment(request: Request, next: Next) -> Response {
    let there = without_environment(request.uri());
    let response = next.run(request).await;
    match there {
        Some(there) if response.status() == StatusCode::NOT_FOUND => Redirect::to(&there).into_response(),
        _ => response,
    }
}

/// The address of a page with its branch, but without its environment.
fn without_environment(address: &Uri) -> Option<String> {
    let parts: Vec<&str> = address.query()?.split('&').collect();
    let names = |what: &str| parts.iter().any(|part| part.len() > what.len() && part.starts_with(what));
    let names_both = names("branch=") && names("environment=");
    let rest: Vec<&str> = parts.iter().copied().filter(|part| !part.starts_with("environment=")).collect();
    (names_both && address.path().starts_with("/p/"))
        .then(|| format!("{}?{}", address.path(), rest.join("&")))
}

/// Result of a route: a view, or none.
type Found<T> = Result<Option<T>, StoreError>;

impl App {
    fn page<T>(&self, found: Found<T>, render: impl FnOnce(&T) -> String) -> Response {
        match found {
            Ok(Some(view)) => Html(render(&view)).into_response(),
            Ok(None) => StatusCode::NOT_FOUND.into_response(),
            Err(why) => self.options.unreadable(&why, true),
        }
    }

    fn json<T: Serialize>(&self, found: Found<T>) -> Response {
        let (status, body) = match found.map(|view| view.map(|view| serde_json::to_string(&view))) {
            Ok(Some(Ok(json))) => (StatusCode::OK, json),
            // The layer of readers says what does not exist.
            Ok(None) => return StatusCode::NOT_FOUND.into_response(),
            Ok(Some(Err(why))) => {
                (self.options.log)(&format!("failed to write an answer as JSON: {why}"));
                (StatusCode::INTERNAL_SERVER_ERROR, r#"{"error":"it cannot be written as JSON"}"#.to_owned())
            }
            Err(why) => return self.options.unreadable(&why, false),
        };
        (status, [(CONTENT_TYPE, "application/json")], body + "\n").into_response()
    }

    /// Response if a known file of a run cannot be read.
    fn unread(&self, (run, name): (i64, &str), why: &dyn std::error::Error) -> Response {
        (self.options.log)(&format!("failed to read {name} of run {run}: {}", chain(why)));
        let text = "The file cannot be read now; the server's log says why.";
        (StatusCode::BAD_GATEWAY, Html(pages::problem("Something failed", text))).into_response()
    }
}

async fn home(State(app): State<App>, Extension(who): Extension<SignedIn>) -> Response {
    match seen_projects(&app, &who.reader).await {
        // Most histories have one project.
        Ok(names) if names.len() == 1 && !who.reader.has_members_only => {
            Redirect::to(&pages::address(names.first().map_or("", String::as_str))).into_response()
        }
        found => {
            let own = who.own();
            app.page(found.map(Some), |names| pages::projects(names, &own))
        }
    }
}

async fn projects_json(State(app): State<App>, Extension(who): Extension<SignedIn>) -> Response {
    app.json(seen_projects(&app, &who.reader).await.map(Some))
}

async fn seen_projects(app: &App, reader: &Reader) -> Result<Vec<String>, StoreError> {
    let names = app.store.projects().await?;
    Ok(names.into_iter().filter(|name| reader.may_read(name)).collect())
}

async fn overview(
    State(app): State<App>,
    Path(project): Path<String>,
    Query(asked): Query<Asked>,
) -> Response {
    app.page(app.store.overview(&project, &asked.choice()).await, pages::overview)
}

async fn overview_json(
    State(app): State<App>,
    Path(project): Path<String>,
    Query(asked): Query<Asked>,
) -> Response {
    app.json(app.store.overview(&project, &asked.choice()).await)
}

async fn find_runs(app: &App, project: &str, asked: &Asked) -> Found<crate::view::Runs> {
    let before = match asked.before.as_str() {
        "" => None,
        number => match number.parse() {
            Ok(run) => Some(run),
            Err(_no_number) => return Ok(None),
        },
    };
    app.store.runs(project, &asked.choice(), before).await
}

async fn runs(State(app): State<App>, Path(project): Path<String>, Query(asked): Query<Asked>) -> Response {
    app.page(find_runs(&app, &project, &asked).await, pages::runs)
}

async fn runs_json(
    State(app): State<App>,
    Path(project): Path<String>,
    Query(asked): Query<Asked>,
) -> Response {
    app.json(find_runs(&app, &project, &asked).await)
}

async fn find_run(app: &App, project: &str, run: &str, asked: &Asked) -> Found<crate::view::RunView> {
    let Ok(run) = run.parse() else { return Ok(None) };
    let order = match asked.order.as_str() {
        "" | "worst" => Order::Worst,
        "slowest" => Order::Slowest,
        _ => return Ok(None),
    };
    let found = app.store.run(project, run, order, &asked.text).await?;
    // Artefacts that another server kept elsewhere cannot be served from here.
    let is_kept = |artefacts| if app.options.artefacts.is_some() { artefacts } else { Vec::new() };
    Ok(found.map(|view| RunView { artefacts: is_kept(view.artefacts), ..view }))
}

async fn run(
    State(app): State<App>,
    Path((project, run)): Path<(String, String)>,
    Query(asked): Query<Asked>,
) -> Response {
    app.page(find_run(&app, &project, &run, &asked).await, pages::run)
}

/// A file of a run. The report page is shown as the run's memgate made it: it is untrusted and gets no rights here. Any
/// other file is a download.
async fn artefact(
    State(app): State<App>,
    Path((project, run, name)): Path<(String, i64, String)>,
) -> Response {
    let known = match app.store.artefacts(&project, run).await {
        Ok(known) => known,
        Err(why) => return app.options.unreadable(&why, true),
    };
    let row = known.into_iter().find(|row| row.name == name);
    let Some((kept, row)) = app.options.artefacts.clone().zip(row) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let wanted = name.clone();
    match tokio::task::spawn_blocking(move || kept.get(run, &wanted)).await {
        Ok(Ok(bytes)) => {
            let page = name == PAGE;
            let kind = if page { "text/html; charset=utf-8" } else { "application/octet-stream" };
            let head = [(CONTENT_TYPE, kind), (CONTENT_SECURITY_POLICY, POLICY_OF_A_STRANGER)];
            let more = match page {
                true => (CONTENT_ENCODING, HeaderValue::from_static("gzip")),
                false => (CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
            };
            (head, [more, (CONTENT_LENGTH, HeaderValue::from(row.bytes))], streamed(bytes)).into_response()
        }
        Ok(Err(why)) if why.kind() == ErrorKind::NotFound => StatusCode::NOT_FOUND.into_response(),
        Ok(Err(why)) => app.unread((run, &name), &why),
        Err(why) => app.unread((run, &name), &why),
    }
}

/// Streams as fast as the client reads.
fn streamed(mut bytes: Box<dyn std::io::Read + Send>) -> Body {
    let (sender, receiver) = tokio::sync::mpsc::channel::<std::io::Result<Vec<u8>>>(2);
    tokio::task::spawn_blocking(move || {
        loop {
            let mut piece = vec![0; PIECE];
            let read = match bytes.read(&mut piece) {
                Ok(0) => return,
                Ok(length) => {
                    piece.truncate(length);
                    Ok(piece)
                }
                Err(why) if why.kind() == ErrorKind::Interrupted => continue,
                Err(why) => Err(why),
            };
            let failed = read.is_err();
            if sender.blocking_send(read).is_err() || failed {
                return;
            }
        }
    });
    let next = async |mut receiver: tokio::sync::mpsc::Receiver<_>| Some((receiver.recv().await?, receiver));
    Body::from_stream(futures_util::stream::unfold(receiver, next))
}

async fn run_json(
    State(app): State<App>,
    Path((project, run)): Path<(String, String)>,
    Query(asked): Query<Asked>,
) -> Response {
    app.json(find_run(&app, &project, &run, &asked).await)
}

/// `BEFORE...AFTER`, the numbers of two runs.
async fn find_pair(app: &App, project: &str, pair: &str) -> Found<crate::view::CompareView> {
    let numbers =
        pair.split_once("...").and_then(|(before, after)| before.parse().ok().zip(after.parse().ok()));
    match numbers {
        Some((before, after)) => app.store.compare(project, before, after).await,
        None => Ok(None),
    }
}

async fn compare(State(app): State<App>, Path((project, pair)): Path<(String, String)>) -> Response {
    app.page(find_pair(&app, &project, &pair).await, pages::compare)
}

async fn compare_json(State(app): State<App>, Path((project, pair)): Path<(String, String)>) -> Response {
    app.json(find_pair(&app, &project, &pair).await)
}

async fn tune(State(app): State<App>, Path(project): Path<String>, Query(asked): Query<Asked>) -> Response {
    app.page(app.store.series(&project, &asked.choice()).await, pages::tune)
}

async fn leaks(State(app): State<App>, Path(project): Path<String>, Query(asked): Query<Asked>) -> Response {
    let Some(filter) = asked.filter() else { return StatusCode::NOT_FOUND.into_response() };
    let found = app.store.leaks(&project, &asked.choice(), &filter).await;
    app.page(found, |view| pages::leaks(view, &filter))
}

async fn leaks_json(
    State(app): State<App>,
    Path(project): Path<String>,
    Query(asked): Query<Asked>,
) -> Response {
    let found = match asked.filter() {
        Some(filter) => app.store.leaks(&project, &asked.choice(), &filter).await,
        None => Ok(None),
    };
    app.json(found)
}

async fn leak(
    State(app): State<App>,
    Path((project, leak)): Path<(String, String)>,
    Query(asked): Query<Asked>,
) -> Response {
    app.page(app.store.leak(&project, &asked.choice(), &leak).await, pages::leak)
}

async fn leak_json(
    State(app): State<App>,
    Path((project, leak)): Path<(String, String)>,
    Query(asked): Query<Asked>,
) -> Response {
    app.json(app.store.leak(&project, &asked.choice(), &leak).await)
}

async fn find_test(
    app: &App,
    (project, suite, test): (String, String, String),
    asked: &Asked,
) -> Found<crate::view::TestView> {
    let metric = match asked.metric.as_str() {
        "" => None,
        name => match name.parse::<Metric>() {
            Ok(metric) => Some(metric),
            Err(_unknown) => return Ok(None),
        },
    };
    let mut found = app.store.test(&project, &asked.choice(), &suite, &test, metric).await?;
    if app.options.artefacts.is_none() {
        found.iter_mut().flat_map(|view| &mut view.points).for_each(|point| point.page = false);
    }
    Ok(found)
}

async fn test(
    State(app): State<App>,
    Path(name): Path<(String, String, String)>,
    Query(asked): Query<Asked>,
) -> Response {
    app.page(find_test(&app, name, &asked).await, pages::test)
}

async fn test_json(
    State(app): State<App>,
    Path(name): Path<(String, String, String)>,
    Query(asked): Query<Asked>,
) -> Response {
    app.json(find_test(&app, name, &asked).await)
}

/// Query parameters of a review.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AskedBase {
    branch: String,
    /// The commit that was merged in and its ancestors, separated by commas.
    sha: String,
    /// As JSON: `{"architecture":"x86_64"}`.
    environment: String,
}

async fn baseline(
    State(app): State<App>,
    Path(project): Path<String>,
    Query(asked): Query<AskedBase>,
) -> Response {
    let environment = match asked.environment.as_str() {
        "" => Ok(Environment::default()),
        json => serde_json::from_str(json),
    };
    let Ok(environment) = environment else {
        let body = r#"{"error":"`environment` is no JSON","hint":"{\"architecture\":\"x86_64\"}"}"#;
        return (StatusCode::BAD_REQUEST, [(CONTENT_TYPE, "application/json")], body).into_response();
    };
    let commits = asked.sha.split(',').take(FARTHEST_BASE + 1).map(str::to_owned).collect();
    let wanted = Wanted { branch: asked.branch, environment, commits };
    let found = app.store.base(&project, &wanted).await;
    app.json(found.map(|base| Some(serde_json::json!({ "base": base }))))
}

async fn style() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/css; charset=utf-8"), (CACHE_CONTROL, "max-age=300")], pages::STYLE)
}

async fn icon() -> impl IntoResponse {
    ([(CONTENT_TYPE, "image/svg+xml"), (CACHE_CONTROL, "max-age=86400")], pages::ICON)
}

async fn ready(State(app): State<App>) -> Response {
    match counters::answers(&app.store, counters::PATIENCE).await {
        Ok(()) => "ok\n".into_response(),
        Err(why) => {
            (app.options.log)(&format!("failed to {why}"));
            (StatusCode::SERVICE_UNAVAILABLE, "the history cannot be read\n").into_response()
        }
    }
}
