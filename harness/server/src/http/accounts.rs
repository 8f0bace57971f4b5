//! Signing in and out.
//!
//! Data flow: name and password from our own form → `tries` (rate limit) → argon2 on its own thread, two at a time → a
//! session in the database, its secret in a cookie → the requested page.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Form, Query, Request, State};
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse as _, Redirect, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::Options;
use super::guard::guard;
use super::reader::{SESSION, form_of, secret_of};
use super::refused::Refused;
use crate::pages;
use crate::password::{self, LONGEST};
use crate::store::{SESSION_US, Store, StoreError};
use crate::token;

/// Size limit of a form in bytes, and how long it may take to arrive: anybody may send one.
const MOST_OF_A_FORM: usize = 8 << 10;
const ARRIVAL: Duration = Duration::from_secs(30);
/// Passwords checked at the same time: each takes 19 MiB.
const AT_ONCE: usize = 2;
const QUEUE: Duration = Duration::from_secs(5);
const SECRET: usize = 43;

struct Accounts {
    store: Store,
    options: Arc<Options>,
    trying: Semaphore,
    tries: Tries,
}

pub(super) fn router(store: Store, options: Arc<Options>) -> Router {
    let accounts = Accounts {
        store,
        options: Arc::clone(&options),
        trying: Semaphore::new(AT_ONCE),
        tries: Tries::default(),
    };
    Router::new()
        .route("/login", get(form).post(login))
        .route("/logout", post(logout))
        .layer(from_fn_with_state(ARRIVAL, whole))
        .layer(from_fn_with_state(options, guard))
        .with_state(Arc::new(accounts))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Wanted {
    next: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Login {
    name: String,
    password: String,
    next: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Logout {
    form: String,
}

/// Waits for the whole form, then continues.
async fn whole(State(arrival): State<Duration>, request: Request, next: Next) -> Response {
    let problem = |status: StatusCode, title: &str, text: &str| {
        (status, Html(pages::problem(title, text))).into_response()
    };
    let (head, body) = request.into_parts();
    match timeout(arrival, to_bytes(body, MOST_OF_A_FORM)).await {
        Ok(Ok(form)) => next.run(Request::from_parts(head, Body::from(form))).await,
        Ok(Err(_long)) => problem(StatusCode::PAYLOAD_TOO_LARGE, "Too long", "The form is too long."),
        Err(_slow) => problem(StatusCode::REQUEST_TIMEOUT, "Too slow", "The form did not arrive in time."),
    }
}

async fn form(Query(wanted): Query<Wanted>) -> Html<String> {
    Html(pages::login(own(&wanted.next), None))
}

async fn login(
    State(accounts): State<Arc<Accounts>>,
    headers: HeaderMap,
    Form(typed): Form<Login>,
) -> Response {
    if let Some(refused) = of_another_page(&headers) {
        return refused;
    }
    let next = own(&typed.next).to_owned();
    let again =
        |status: StatusCode, why: &str| (status, Html(pages::login(&next, Some(why)))).into_response();
    match accounts.begin(typed).await {
        Ok(secret) => {
            let seconds = SESSION_US / 1_000_000;
            (cookie(&format!("{secret}; Max-Age={seconds}")), Redirect::to(&next)).into_response()
        }
        Err(No::Wrong) => again(StatusCode::FORBIDDEN, "Name or password is wrong."),
        Err(No::Often) => {
            again(StatusCode::TOO_MANY_REQUESTS, "Too many wrong passwords: try again in some seconds.")
        }
        Err(No::Busy) => again(StatusCode::SERVICE_UNAVAILABLE, "Too many sign in now: try again."),
        Err(No::Store(why)) => {
            drop(accounts.options.refused(Refused::of_store(&why)));
            again(StatusCode::SERVICE_UNAVAILABLE, "The history cannot be read now: try again.")
        }
    }
}

async fn logout(
    State(accounts): State<Arc<Accounts>>,
    headers: HeaderMap,
    Form(typed): Form<Logout>,
) -> Response {
    if let Some(refused) = of_another_page(&headers) {
        return refused;
    }
    if let Some(secret) = secret_of(&headers).filter(|secret| form_of(secret) == typed.form)
        && let Err(why) = accounts.store.end_session(secret).await
    {
        return accounts.options.refused(Refused::of_store(&why));
    }
    (cookie("; Max-Age=0"), Redirect::to("/")).into_response()
}

/// Refuses a form from a page of another site. Every browser sends the origin in `Sec-Fetch-Site`.
fn of_another_page(headers: &HeaderMap) -> Option<Response> {
    let is_ours = headers.get("sec-fetch-site").is_some_and(|site| site == "same-origin");
    (!is_ours).then(|| {
        let text = "The form did not come from a page of this server. Signing in needs https, and a browser of 2023 or newer.";
        (StatusCode::FORBIDDEN, Html(pages::problem("Not from here", text))).into_response()
    })
}

/// Returns `next` if it is a page of this server, otherwise `/`, so that no redirect leads to another site.
fn own(next: &str) -> &str {
    let is_own = next.starts_with("/p/") && next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if is_own { next } else { "/" }
}

fn cookie(value: &str) -> [(axum::http::HeaderName, HeaderValue); 1] {
    let text = format!("{SESSION}={value}; Path=/; Secure; HttpOnly; SameSite=Lax");
    [(SET_COOKIE, HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("")))]
}

/// Why a sign-in failed.
enum No {
    Wrong,
    Often,
    Busy,
    Store(StoreError),
}

impl From<StoreError> for No {
    fn from(why: StoreError) -> Self {
        Self::Store(why)
    }
}

impl Accounts {
    /// Begins a session; returns its secret.
    async fn begin(&self, typed: Login) -> Result<String, No> {
        let name = typed.name.trim().to_lowercase();
        if typed.password.len() > LONGEST || name.len() > LONGEST {
            return Err(No::Wrong);
        }
        if !self.tries.begin(&name, Instant::now()) {
            return Err(No::Often);
        }
        let turn = timeout(QUEUE, self.trying.acquire()).await.ok().and_then(Result::ok).ok_or(No::Busy)?;
        let kept = self.store.password(&name).await?;
        let (typed, shown) = (typed.password, kept.clone());
        let checking = move || password::is_right(&typed, shown.as_deref());
        let is_right = tokio::task::spawn_blocking(checking).await.unwrap_or(false);
        drop(turn);
        let Some(kept) = kept.filter(|_| is_right) else { return Err(No::Wrong) };
        let secret = token::random(SECRET).map_err(StoreError::Random)?;
        let now_us = jiff::Timestamp::now().as_microsecond();
        if !self.store.begin_session(&name, &kept, &secret, now_us).await? {
            return Err(No::Wrong);
        }
        self.tries.right(&name);
        Ok(secret)
    }
}

/// How often passwords of a name were tried recently.
#[derive(Default)]
struct Tries(Mutex<HashMap<String, (u32, Instant)>>);

impl Tries {
    /// Number of free tries; after them, one try per [`PACE`](Self::PACE).
    const FREE: u32 = 10;
    const PACE: Duration = Duration::from_secs(5);
    /// A name that nobody tries for this long is forgotten.
    const KEPT: Duration = Duration::from_secs(15 * 60);
    const MOST_NAMES: usize = 10_000;

    /// May a password of this name be tried now? If so, counts the try.
    fn begin(&self, name: &str, now: Instant) -> bool {
        let mut tries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tries.len() >= Self::MOST_NAMES {
            tries.retain(|_, (_, last)| now.duration_since(*last) < Self::KEPT);
            if tries.len() >= Self::MOST_NAMES {
                tries.clear();
            }
        }
        let (count, last) = tries.entry(name.to_owned()).or_insert((0, now));
        if now.duration_since(*last) >= Self::KEPT {
            *count = 0;
        }
        if *count >= Self::FREE && now.duration_since(*last) < Self::PACE {
            return false;
        }
        *count = count.saturating_add(1);
        *last = now;
        true
    }

    fn right(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::super::listen;
    use super::*;

    #[test]
    fn nobody_is_led_to_another_site() {
        for next in ["/p/tiles", "/p/tiles/runs/7?branch=main", "/p/a%20b/leaks"] {
            assert_eq!(own(next), next);
        }
        for next in [
            "",
            "//evil",
            "/p",
            "https://evil/p/",
            "/\\evil",
            "/p/\\evil",
            "/p/a\r\nSet-Cookie: x",
            "/api/v1",
        ] {
            assert_eq!(own(next), "/", "{next}");
        }
    }

    #[test]
    fn half_a_form_is_not_waited_for() {
        crate::store::tests::block_on(half_a_form());
    }

    async fn half_a_form() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let router = Router::new()
            .route("/", post(async |form: String| form))
            .layer(from_fn_with_state(Duration::from_millis(200), whole));
        let server =
            tokio::spawn(listen::serve(listener, router, listen::Limits::default(), std::future::pending()));
        let status = async |length: usize, form: &str| {
            let mut stream = TcpStream::connect(at).await.unwrap();
            let head = "POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length:";
            stream.write_all(format!("{head} {length}\r\n\r\n{form}").as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer.split(' ').nth(1).unwrap().to_owned()
        };
        assert_eq!(status(100, "name=").await, "408");
        assert_eq!(status(9, "name=anna").await, "200");
        server.abort();
    }

    #[test]
    fn wrong_passwords_become_slow_by_name() {
        let (tries, now) = (Tries::default(), Instant::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        assert!((0..Tries::FREE).all(|_| tries.begin("anna", now)));
        assert!(!tries.begin("anna", after(4)) && tries.begin("otto", after(4)));
        assert!(tries.begin("anna", after(5)) && !tries.begin("anna", after(9)));
        tries.right("anna");
        assert!(tries.begin("anna", after(9)) && tries.begin("anna", after(9)));
        for name in 0..2 * Tries::MOST_NAMES {
            assert!(tries.begin(&name.to_string(), now));
        }
        assert!(tries.0.lock().unwrap().len() <= Tries::MOST_NAMES);
    }
}
