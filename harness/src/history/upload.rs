//! Uploads a run to a server.
//!
//! Data flow: manifest and report, without the curves within the run → JSON, compressed → `POST`, with retries if that
//! may help → [`Uploaded`]. The server adds a run only once, so sending it twice does no harm.

use std::ffi::OsString;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use memgate_config::{Config, Upload};
use memgate_history::Manifest;
use memgate_history::record::lean;
use memgate_model::{BASE_VERSION, BaseLeaks, RunReport};
use memgate_server::live::LiveRun;
use memgate_server::percent::encoded;
use memgate_server::store::Wanted;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use ureq::http::Response;
use ureq::tls::RootCerts;
use ureq::{Body, RequestBuilder};

use crate::deliver::secret::{secret, without};
use crate::exit::ExpectedError;
use crate::https;
use crate::output::{Console, QUIET};

/// The variable with a token that the CI system has signed.
const ID_TOKEN: &str = "MEMGATE_ID_TOKEN";
/// Variables with the address at which GitHub signs a token on request, and the secret that identifies this job.
const GITHUB_SIGNS: [&str; 2] = ["ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"];

/// The variables used for mail, webhooks and uploads, and those with which CI systems sign uploads. A test may itself
/// need GitHub's: they belong to memgate only if it has no token.
pub(crate) fn secret_variables(config: &Config) -> Vec<OsString> {
    let named = config.secrets().into_iter().map(|(_, variable)| variable);
    let signs = config.history.upload.as_ref().is_some_and(|to| to.token.is_none());
    let of_github = GITHUB_SIGNS.into_iter().filter(|_| signs);
    named.chain([ID_TOKEN]).chain(of_github).map(OsString::from).collect()
}
/// Maximum bytes read of a response.
pub(super) const MOST_OF_AN_ANSWER: u64 = 64 << 10;
/// The same for the response to a run: a word for each leak that it changed, on each line whose order it changed.
const MOST_OF_TAKEN: u64 = 4 << 20;
/// The same for the response with a base: 20,000 leaks and their tests.
const MOST_OF_A_BASE: u64 = 64 << 20;
/// The first pause; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// An uploaded run.
#[derive(Debug)]
pub(crate) struct Uploaded {
    /// Address of its page.
    pub page: String,
    /// Whether the server already had the run.
    pub already: bool,
    /// Whether its leaks count for its branch.
    pub on_line: bool,
    /// What it changed: `1 new, 2 fixed`; empty: nothing.
    pub changes: String,
    /// The address below which its artefacts are uploaded, and the ticket for that; `None`: the server stores none.
    pub(super) artefacts: Option<(String, String)>,
}

/// A server's reply about a run that it has.
#[derive(Deserialize)]
struct Taken {
    page: String,
    on_line: bool,
    events: Vec<String>,
    artefacts: Option<String>,
    ticket: Option<String>,
}

/// A server's reply about a run that it refuses.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Refused {
    error: String,
    hint: String,
}

/// Why an attempt failed.
pub(super) struct Failed {
    pub(super) what: String,
    pub(super) hint: String,
    /// Whether the next attempt may succeed.
    pub(super) passes: bool,
    /// When the server wants the next attempt.
    pub(super) after: Option<Duration>,
}

/// How long to retry, with growing pauses.
pub(super) struct Patience {
    wait: Duration,
    began: Instant,
    pause: Duration,
}

impl Patience {
    pub(super) fn new(wait: Duration) -> Self {
        Self { wait, began: Instant::now(), pause: FIRST_PAUSE }
    }

    pub(super) fn left(&self) -> Duration {
        self.wait.saturating_sub(self.began.elapsed())
    }

    /// Waits, as long as the server asks for; false: the time is over.
    pub(super) fn pauses(&mut self, after: Option<Duration>, console: &Console, why: &str) -> bool {
        let left = self.left();
        let Some(next) = next_pause(after, self.pause, left) else { return false };
        if self.pause == FIRST_PAUSE {
            console.line(&format!("{why}; trying for {} s more", left.as_secs()));
        } else if next > QUIET {
            console.line(&format!("{why}; the next attempt is in {} s", next.as_secs()));
        }
        std::thread::sleep(next);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }
}

/// Uploads a run, within `to.wait`. The token is looked up now: it is not stored in any setting.
///
/// # Errors
/// When the server refuses it, or cannot be reached in this time.
pub(crate) fn upload(
    to: &Upload,
    manifest: &Manifest,
    report: &RunReport,
    console: &Console,
) -> Result<Uploaded, ExpectedError> {
    let failed = |what: &str, hint: &str| {
        ExpectedError::machinery(format!("not uploaded to {}: {what}", to.server), hint)
    };
    let access = Access::of(to).map_err(|why| failed(&why, ""))?;
    https::check(&to.server).map_err(|why| failed(&why, ""))?;
    let body = body(manifest, report)?;
    let url = format!("{}/api/v1/projects/{}/runs", to.server, encoded(&manifest.project));
    let mut patience = Patience::new(to.wait);
    loop {
        let left = patience.left().max(FIRST_PAUSE);
        // A signed token is valid for one run and a few minutes.
        let token = access.token(&to.server, left);
        let shown = token.as_ref().ok().and_then(Option::as_deref).unwrap_or_default().to_owned();
        let slow = format!("waiting for {}, {} s at most", to.server, left.as_secs());
        let sent = token
            .and_then(|token| console.tell_if_slow(&slow, || attempt(&url, token.as_deref(), &body, left)));
        let why = match sent {
            Ok((already, Taken { page, on_line, events, artefacts, ticket })) => {
                let (page, artefacts) = (format!("{}{page}", to.server), artefacts.zip(ticket));
                let changes = super::changes(events.iter().map(String::as_str));
                return Ok(Uploaded { page, already, on_line, changes, artefacts });
            }
            Err(why) => why,
        };
        let what = without(&why.what, &[&shown]);
        let yet = format!("not uploaded to {} yet: {what}", to.server);
        if !why.passes || !patience.pauses(why.after, console, &yet) {
            return Err(failed(&what, &without(&why.hint, &[&shown])));
        }
    }
}

/// Reports the result to the user.
pub(crate) fn tell(uploaded: &Uploaded, manifest: &Manifest, console: &Console) {
    let what = if uploaded.already { "uploaded before" } else { "uploaded" };
    console.line(&format!("{what}: {}", uploaded.page));
    if !uploaded.changes.is_empty() {
        console.line(&format!("history of the server: {}", uploaded.changes));
    }
    if !uploaded.on_line && manifest.is_on_a_line() {
        let why = match manifest.branch() {
            "" => "its branch is not known".to_owned(),
            branch => format!("the token may not write `{branch}`"),
        };
        console.warning(&format!("it was kept like a review, and changes no state: {why}"));
    }
}

/// The command that uploads a session later.
#[must_use]
pub(crate) fn later(session: &Path) -> String {
    format!("`memgate upload {}` does it later", session.display())
}

/// The credentials with which this job may upload.
enum Access {
    /// No credentials are known.
    None,
    /// A token.
    Token(String),
    /// GitHub signs a token for this job, on request.
    GitHub { url: String, secret: String },
}

/// GitHub's reply to that request.
#[derive(Deserialize)]
struct SignedToken {
    value: String,
}

impl Access {
    /// The configured token, otherwise the one that the CI system signs. `Err`: a token is configured but missing.
    fn of(to: &Upload) -> Result<Self, String> {
        let named = to.token.as_deref().map(secret);
        let [url, token] = GITHUB_SIGNS;
        let github = secret(url).and_then(|url| Ok(Self::GitHub { url, secret: secret(token)? }));
        let signed = || github.or_else(|_none| secret(ID_TOKEN).map(Self::Token));
        match named {
            Some(Ok(token)) => Ok(Self::Token(token)),
            Some(Err(why)) => signed().map_err(|_none| why),
            None => Ok(signed().unwrap_or(Self::None)),
        }
    }

    /// A token for this server.
    fn token(&self, server: &str, limit: Duration) -> Result<Option<String>, Failed> {
        let (url, secret) = match self {
            Self::None => return Ok(None),
            Self::Token(token) => return Ok(Some(token.trim().to_owned())),
            Self::GitHub { url, secret } => (url, secret.trim()),
        };
        let failed = |what: String| Failed {
            what: without(&format!("GitHub signs no token for this job: {what}"), &[secret]),
            hint: "the job needs `permissions: { id-token: write }`".to_owned(),
            passes: true,
            after: None,
        };
        https::check(url).map_err(|what| Failed { passes: false, ..failed(what) })?;
        let url = format!("{url}{}audience={}", if url.contains('?') { '&' } else { '?' }, encoded(server));
        let request = https::agent(&url, limit, RootCerts::PlatformVerifier).get(&url);
        let answer = request.header("Authorization", format!("Bearer {secret}")).call();
        let answer = answered::<SignedToken>(&url, answer, MOST_OF_AN_ANSWER);
        answer.map(|(_, SignedToken { value })| Some(value)).map_err(|why| failed(why.what))
    }
}

fn body(manifest: &Manifest, report: &RunReport) -> Result<Vec<u8>, ExpectedError> {
    let wrong = |why: &dyn std::error::Error| ExpectedError::failed(why);
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    let manifest = serde_json::to_string(manifest).map_err(|why| wrong(&why))?;
    let report = memgate_reports::json(&lean(report)).map_err(|why| wrong(&why))?;
    let written = write!(packed, "{{\"manifest\":{manifest},\"report\":{report}}}");
    written.and_then(|()| packed.finish()).map_err(|why| wrong(&why))
}

/// One attempt: returns whether the run was there before, and the server's reply.
fn attempt(url: &str, token: Option<&str>, body: &[u8], limit: Duration) -> Result<(bool, Taken), Failed> {
    let request = https::agent(url, limit, RootCerts::PlatformVerifier)
        .post(url)
        .content_type("application/json")
        .header("Content-Encoding", "gzip")
        // A server that refuses the token replies before the body is sent.
        .header("Expect", "100-continue");
    answered(url, shows(request, token).send(body), MOST_OF_TAKEN)
        .map(|(status, taken)| (status == 200, taken))
}

/// The token for a series of requests: one that CI signs is valid for some minutes.
pub(super) struct Tokens {
    server: String,
    access: Access,
    kept: Option<(Option<String>, Instant)>,
}

/// A new signed token is requested after this time.
const SIGNED_FOR: Duration = Duration::from_secs(120);

impl Tokens {
    /// # Errors
    /// When a token is configured but missing.
    pub(super) fn of(to: &Upload) -> Result<Self, String> {
        Ok(Self { server: to.server.clone(), access: Access::of(to)?, kept: None })
    }

    /// A token, within `limit`.
    pub(super) fn token(&mut self, limit: Duration) -> Result<Option<String>, Failed> {
        match &self.kept {
            Some((token, at)) if at.elapsed() < SIGNED_FOR => Ok(token.clone()),
            _ => {
                let token = self.access.token(&self.server, limit)?;
                self.kept = Some((token.clone(), Instant::now()));
                Ok(token)
            }
        }
    }
}

/// Posts the progress of a run to a server.
pub(crate) struct Summaries {
    url: String,
    tokens: Tokens,
}

impl Summaries {
    /// # Errors
    /// When the token is missing, or the address is invalid.
    pub(crate) fn to(to: &Upload, project: &str) -> Result<Self, String> {
        https::check(&to.server)?;
        let url = format!("{}/api/v1/projects/{}/live", to.server, encoded(project));
        Ok(Self { url, tokens: Tokens::of(to)? })
    }

    /// Posts one, within `limit`.
    ///
    /// # Errors
    /// When the server did not accept it.
    pub(crate) fn post(&mut self, run: &LiveRun, limit: Duration) -> Result<(), String> {
        let token = self.tokens.token(limit).map_err(|why| why.what)?;
        let body = serde_json::to_string(run).map_err(|why| why.to_string())?;
        let request = https::agent(&self.url, limit, RootCerts::PlatformVerifier).post(&self.url);
        let answer = shows(request, token.as_deref()).content_type("application/json").send(body);
        let server = &self.tokens.server;
        match answer.map(|answer| answer.status().as_u16()) {
            Ok(204) => Ok(()),
            Ok(status) => Err(format!("{server} answered {status}")),
            Err(why) => {
                let why = https::why(&self.url, &why);
                Err(without(&format!("{server}: {why}"), token.as_deref().as_slice()))
            }
        }
    }
}

/// Adds the token to a request.
pub(super) fn shows<B>(request: RequestBuilder<B>, token: Option<&str>) -> RequestBuilder<B> {
    match token {
        Some(token) => request.header("Authorization", format!("Bearer {token}")),
        None => request,
    }
}

/// The rights of the configured token.
#[derive(Debug, Deserialize)]
pub(crate) struct Right {
    /// Globs of the branches it may write as lines; `None`: no token is needed.
    pub branches: Option<Vec<String>>,
    /// When the token expires, RFC 3339.
    pub expires: Option<String>,
}

/// Asks a server for the rights of the token.
///
/// # Errors
/// When it cannot be reached within `limit`, or requires another token.
pub(crate) fn right(to: &Upload, project: &str, limit: Duration) -> Result<Right, ExpectedError> {
    let failed = |what: &str, hint: &str| ExpectedError::machinery(format!("{}: {what}", to.server), hint);
    let access = Access::of(to).map_err(|why| failed(&why, ""))?;
    let token = access.token(&to.server, limit).map_err(|why| failed(&why.what, &why.hint))?;
    get((to, token), &format!("/api/v1/projects/{}/token", encoded(project)), limit, MOST_OF_AN_ANSWER)
}

/// A server's reply about a base.
#[derive(Deserialize)]
struct Found {
    base: Option<BaseLeaks>,
}

/// Asks a server for a base; `None`: it has none near enough.
///
/// # Errors
/// When it cannot be reached within `limit`, or its reply is invalid.
pub(crate) fn base(
    to: &Upload,
    project: &str,
    wanted: &Wanted,
    limit: Duration,
) -> Result<Option<BaseLeaks>, ExpectedError> {
    let environment =
        serde_json::to_string(&wanted.environment).map_err(|why| ExpectedError::failed(&why))?;
    let path = format!(
        "/api/v1/projects/{}/baseline?branch={}&sha={}&environment={}",
        encoded(project),
        encoded(&wanted.branch),
        wanted.commits.iter().map(|sha| encoded(sha)).collect::<Vec<_>>().join(","),
        encoded(&environment)
    );
    // Jobs of forks have no secrets; most projects can be read without a token.
    let token = Access::of(to).ok().and_then(|access| access.token(&to.server, limit).ok()).flatten();
    let Found { base } = get((to, token), &path, limit, MOST_OF_A_BASE)?;
    match base {
        Some(base) if base.version != BASE_VERSION => Err(ExpectedError::Machinery {
            what: format!(
                "{}: its base has version {}, this memgate knows {BASE_VERSION}",
                to.server, base.version
            ),
            hint: String::new(),
        }),
        base => Ok(base),
    }
}

/// Sends a GET request to a server, within `limit`.
fn get<T: DeserializeOwned>(
    (to, token): (&Upload, Option<String>),
    path: &str,
    limit: Duration,
    most: u64,
) -> Result<T, ExpectedError> {
    let failed = |what: &str, hint: &str| ExpectedError::machinery(format!("{}: {what}", to.server), hint);
    let token = token.as_deref();
    https::check(&to.server).map_err(|why| failed(&why, ""))?;
    let url = format!("{}{path}", to.server);
    let request = https::agent(&url, limit, RootCerts::PlatformVerifier).get(&url);
    let answer = answered(&url, shows(request, token).call(), most).map(|(_, value)| value);
    answer.map_err(|why| failed(&without(&why.what, token.as_slice()), &without(&why.hint, token.as_slice())))
}

/// The status and the value of a response that is not a refusal.
fn answered<T: DeserializeOwned>(
    url: &str,
    answer: Result<Response<Body>, ureq::Error>,
    most: u64,
) -> Result<(u16, T), Failed> {
    let mut answer = answer.map_err(|why| transport(url, &why))?;
    let status = answer.status().as_u16();
    let text = answer.body_mut().with_config().limit(most).read_to_string();
    let text = text.map_err(|why| transport(url, &why))?;
    match serde_json::from_str(&text) {
        Ok(value) if matches!(status, 200 | 201) => Ok((status, value)),
        _ => Err(refusal(&answer, &text)),
    }
}

/// The refusal in a response with this `text`.
pub(super) fn refusal(answer: &Response<Body>, text: &str) -> Failed {
    let status = answer.status().as_u16();
    let after = answer.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
    let Refused { error, hint } = serde_json::from_str(text).unwrap_or_default();
    let hint = match status {
        200..=299 | 404 | 405 if hint.is_empty() => "is it the address of a `memgate serve`?".to_owned(),
        300..=399 => "name the address that it redirects to: a token is not sent elsewhere".to_owned(),
        401 if error.starts_with("a token is needed")
            && std::env::var_os("MEMGATE_TOKEN").is_some_and(|value| !value.is_empty()) =>
        {
            "MEMGATE_TOKEN is set, but memgate.yaml does not use it: add `token: ${MEMGATE_TOKEN}` below `history:`"
                .to_owned()
        }
        421 => "the server does not know this name of its own: `memgate serve --public-host NAME`".to_owned(),
        _ => hint,
    };
    let what = match error.as_str() {
        // A page, from the server or a proxy, is meant for browsers.
        "" if text.trim_start().starts_with('<') => format!("it answered {status}"),
        "" => format!("it answered {status}{}", https::said(text)),
        error => format!("it answered {status}: {error}"),
    };
    let passes = matches!(status, 408 | 429 | 500..=599);
    Failed { what, hint, passes, after: after.map(Duration::from_secs) }
}

/// A failure without a response. All may be temporary, except an untrusted certificate.
pub(super) fn transport(url: &str, why: &ureq::Error) -> Failed {
    let what = https::why(url, why);
    let inner = if let ureq::Error::Io(why) = why { why.get_ref() } else { None };
    let is_tls = inner.is_some_and(|why| why.is::<rustls::Error>());
    let hint = if is_tls { "SSL_CERT_FILE names a file of certificates to trust" } else { "" };
    Failed { what, hint: hint.to_owned(), passes: !is_tls, after: None }
}

/// The pause before the next attempt; `None`: the time is over. The last attempt is made when the time ends, unless the
/// server wants it later.
fn next_pause(after: Option<Duration>, pause: Duration, left: Duration) -> Option<Duration> {
    let next =
        after.map_or_else(|| (pause + jitter(pause)).min(left), |after| after.saturating_add(jitter(pause)));
    (!left.is_zero() && next <= left).then_some(next)
}

/// Up to a quarter of a pause: jobs that were refused together do not retry together.
fn jitter(pause: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish();
    pause.mul_f64(0.25 * f64::from((random >> 32) as u32) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn tests_get_no_variable_that_holds_a_secret_of_memgate() {
        let secrets = |history: &str| {
            let config =
                Config::parse(&format!("version: 1\n{history}"), "memgate.yaml", &|_| None, None).unwrap();
            secret_variables(&config).into_iter().map(|name| name.into_string().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(secrets(""), ["MEMGATE_ID_TOKEN"]);
        let server = "history: { server: \"https://memgate.example.com\"";
        assert_eq!(secrets(&format!("{server}, token: \"${{TOKEN}}\" }}")), ["TOKEN", "MEMGATE_ID_TOKEN"]);
        assert_eq!(
            secrets(&format!("{server} }}")),
            ["MEMGATE_ID_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"]
        );
    }

    #[test]
    fn only_a_certificate_that_is_not_trusted_is_final() {
        let untrusted = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let untrusted = io::Error::new(io::ErrorKind::InvalidData, untrusted);
        let failed = transport("http://127.0.0.1", &ureq::Error::Io(untrusted));
        assert!(!failed.passes && failed.hint.contains("SSL_CERT_FILE"), "{}", failed.what);
        assert!(
            transport("http://127.0.0.1", &ureq::Error::Io(io::ErrorKind::ConnectionRefused.into())).passes
        );
        assert!(transport("http://127.0.0.1", &ureq::Error::HostNotFound).passes);
    }

    #[test]
    fn an_upload_is_tried_until_its_time_ends_and_not_before_the_server_wants_it() {
        let seconds = Duration::from_secs;
        assert_eq!(next_pause(None, seconds(16), seconds(9)), Some(seconds(9)), "one last attempt");
        assert_eq!(next_pause(None, seconds(16), Duration::ZERO), None);
        assert_eq!(next_pause(Some(seconds(20)), seconds(1), seconds(9)), None, "the server wants it later");
        let never = (0..100).map(|_| next_pause(Some(Duration::MAX), seconds(30), seconds(9)));
        assert_eq!(never.flatten().count(), 0, "a time that no clock has");
        let pause = next_pause(Some(seconds(2)), seconds(1), seconds(9)).unwrap();
        assert!((2.0..=2.25).contains(&pause.as_secs_f64()), "{pause:?}");
    }

    #[test]
    fn pauses_differ_and_stay_within_a_quarter() {
        let pauses: std::collections::BTreeSet<Duration> =
            (0..100).map(|_| jitter(Duration::from_secs(4))).collect();
        assert!(pauses.len() > 90 && pauses.iter().all(|pause| *pause <= Duration::from_secs(1)));
    }
}
