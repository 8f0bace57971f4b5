//! What brings a run to a server.
//!
//! Data flow: manifest and report, without the curves within the run → JSON, packed → `POST`, again and again where
//! that may help → [`Uploaded`]. The server adds a run once, so sending it twice does no harm.

use std::ffi::OsStr;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use memgate_config::{Artefact, Upload};
use memgate_history::Manifest;
use memgate_history::record::lean;
use memgate_model::{BASE_VERSION, BaseLeaks, RunReport};
use memgate_server::artefacts::PAGE;
use memgate_server::live::LiveRun;
use memgate_server::store::Wanted;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use ureq::http::Response;
use ureq::tls::RootCerts;
use ureq::typestate::WithBody;
use ureq::{Body, RequestBuilder};

use crate::deliver::secret::{secret, without};
use crate::exit::ExpectedError;
use crate::https;
use crate::output::Console;

/// What is read of an answer.
const MOST_OF_AN_ANSWER: u64 = 64 << 10;
/// The same of a base: 20,000 leaks and their tests.
const MOST_OF_A_BASE: u64 = 64 << 20;
/// The first pause; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// For a report page, and for a heap dump.
const PAGE_LIMIT: Duration = Duration::from_secs(30);
const DUMP_LIMIT: Duration = Duration::from_secs(15 * 60);

/// A run that is on the server.
#[derive(Debug)]
pub struct Uploaded {
    /// Address of its page.
    pub page: String,
    /// It was there before.
    pub already: bool,
    /// Do its leaks count for its branch?
    pub on_line: bool,
    /// Below this its artefacts are put, and what is shown to do so; `None`: the server keeps none.
    artefacts: Option<(String, String)>,
}

/// What a server says of a run that it has.
#[derive(Deserialize)]
struct Taken {
    page: String,
    on_line: bool,
    artefacts: Option<String>,
    ticket: Option<String>,
}

/// What a server says of one that it does not take.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Refused {
    error: String,
    hint: String,
}

/// Why an attempt failed.
struct Failed {
    what: String,
    hint: String,
    /// May the next one succeed?
    passes: bool,
    /// When the server wants to hear of it again.
    after: Option<Duration>,
}

/// Uploads a run, within `to.wait`. The token is looked up now: it is in no setting.
///
/// # Errors
/// The server does not take it, or cannot be reached in this time.
pub fn upload(
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
    let (began, mut pause, mut told) = (Instant::now(), FIRST_PAUSE, false);
    loop {
        let left = to.wait.saturating_sub(began.elapsed());
        // A signed token is of one run, and of a few minutes.
        let token = access.token(&to.server, left.max(FIRST_PAUSE));
        let shown = token.as_ref().ok().and_then(Option::as_deref).unwrap_or_default().to_owned();
        let why = match token.and_then(|token| attempt(&url, token.as_deref(), &body, left.max(FIRST_PAUSE)))
        {
            Ok((already, Taken { page, on_line, artefacts, ticket })) => {
                let (page, artefacts) = (format!("{}{page}", to.server), artefacts.zip(ticket));
                return Ok(Uploaded { page, already, on_line, artefacts });
            }
            Err(why) => why,
        };
        let what = without(&why.what, &[&shown]);
        let hint = without(&why.hint, &[&shown]);
        let next = why.after.unwrap_or(pause) + jitter(pause);
        if !why.passes || began.elapsed() + next >= to.wait {
            return Err(failed(&what, &hint));
        }
        if !told {
            let left = to.wait.saturating_sub(began.elapsed()).as_secs();
            console.line(&format!("not uploaded to {} yet: {what}; trying for {left} s more", to.server));
            told = true;
        }
        std::thread::sleep(next);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Gives the server the files of a session that the configuration names, where it keeps any. What goes wrong is a
/// warning: the run is there.
pub fn add_artefacts(to: &Upload, uploaded: &Uploaded, session: &Path, console: &Console) {
    let Some((address, ticket)) = &uploaded.artefacts else { return };
    for artefact in &to.artefacts {
        match artefact {
            Artefact::Page => {
                let added = packed(&session.join(PAGE)).and_then(|packed| {
                    let address = format!("{}{address}/{PAGE}?ticket={ticket}", to.server);
                    put(to, (&address, PAGE_LIMIT), |request| {
                        request.content_type("text/html").header("Content-Encoding", "gzip").send(&packed)
                    })
                });
                if let Err(why) = added {
                    console.warning(&format!("the report page was not added to the run: {why}"));
                }
            }
            Artefact::HeapDumps => {
                for dump in dumps(session) {
                    let Some(name) = dump.file_name().and_then(OsStr::to_str) else { continue };
                    if let Err(why) = put_dump(to, (address, ticket), (name, &dump), console) {
                        console.warning(&format!("{name} was not added to the run: {why}"));
                    }
                }
            }
        }
    }
}

fn packed(file: &Path) -> Result<Vec<u8>, String> {
    let page = std::fs::read(file).map_err(|why| format!("{}: {why}", file.display()))?;
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(&page).and_then(|()| packed.finish()).map_err(|why| why.to_string())
}

/// The heap dumps of a session, by name.
fn dumps(session: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(session).into_iter().flatten().flatten().map(|file| file.path());
    let is_dump = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.ends_with(".hprof") || name.ends_with(".hprof.gz")
    };
    let mut dumps: Vec<PathBuf> = files.filter(is_dump).collect();
    dumps.sort();
    dumps
}

fn put_dump(
    to: &Upload,
    (address, ticket): (&str, &str),
    (name, dump): (&str, &Path),
    console: &Console,
) -> Result<(), String> {
    let file = std::fs::File::open(dump).map_err(|why| why.to_string())?;
    let bytes = file.metadata().map_err(|why| why.to_string())?.len();
    console.line(&format!("uploading {name} ({})", memgate_model::format_bytes(bytes as f64)));
    let address = format!("{}{address}/{}?ticket={ticket}", to.server, encoded(name));
    put(to, (&address, DUMP_LIMIT), |request| request.content_type("application/octet-stream").send(&file))
}

/// Sends a file, once.
fn put(
    to: &Upload,
    (address, limit): (&str, Duration),
    send: impl FnOnce(RequestBuilder<WithBody>) -> Result<Response<Body>, ureq::Error>,
) -> Result<(), String> {
    let token = Access::of(to)?.token(&to.server, PAGE_LIMIT).map_err(|why| why.what)?;
    let request = https::agent(limit, RootCerts::PlatformVerifier).put(address);
    let request = match &token {
        Some(token) => request.header("Authorization", format!("Bearer {token}")),
        None => request,
    };
    match send(request).map(|answer| answer.status().as_u16()) {
        Ok(204) => Ok(()),
        Ok(status) => Err(format!("it answered {status}")),
        Err(why) => Err(without(&why.to_string(), &[token.as_deref().unwrap_or_default()])),
    }
}

/// The same for a person: what a run or a session became.
pub fn tell(uploaded: &Uploaded, manifest: &Manifest, console: &Console) {
    let what = if uploaded.already { "uploaded before" } else { "uploaded" };
    console.line(&format!("{what}: {}", uploaded.page));
    if !uploaded.on_line && manifest.is_on_a_line() {
        let why = match manifest.branch() {
            "" => "its branch is not known".to_owned(),
            branch => format!("the token may not write `{branch}`"),
        };
        console.warning(&format!("it was kept like a review, and changes no state: {why}"));
    }
}

/// What uploads a session later.
#[must_use]
pub fn later(session: &Path) -> String {
    format!("`memgate upload {}` does it later", session.display())
}

/// What shows that this job may upload.
enum Access {
    /// Nothing is known that would.
    None,
    /// A token.
    Token(String),
    /// GitHub signs one for this job, on request.
    GitHub { url: String, secret: String },
}

/// What GitHub answers to that request.
#[derive(Deserialize)]
struct SignedToken {
    value: String,
}

impl Access {
    /// The token of the configuration, else what the CI system signs. `Err`: it is named, and is not there.
    fn of(to: &Upload) -> Result<Self, String> {
        let named = to.token.as_deref().map(secret);
        let github = secret("ACTIONS_ID_TOKEN_REQUEST_URL")
            .and_then(|url| Ok(Self::GitHub { url, secret: secret("ACTIONS_ID_TOKEN_REQUEST_TOKEN")? }));
        let signed = || github.or_else(|_none| secret("MEMGATE_ID_TOKEN").map(Self::Token));
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
        let request = https::agent(limit, RootCerts::PlatformVerifier).get(url);
        let answer = request.header("Authorization", format!("Bearer {secret}")).call();
        let answer = answered::<SignedToken>(answer, MOST_OF_AN_ANSWER);
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

/// One attempt: was the run there before, and what does the server say of it?
fn attempt(url: &str, token: Option<&str>, body: &[u8], limit: Duration) -> Result<(bool, Taken), Failed> {
    let request = https::agent(limit, RootCerts::PlatformVerifier)
        .post(url)
        .content_type("application/json")
        .header("Content-Encoding", "gzip")
        // Whoever refuses the token does so before the body is sent.
        .header("Expect", "100-continue");
    let request = match token {
        Some(token) => request.header("Authorization", format!("Bearer {token}")),
        None => request,
    };
    answered(request.send(body), MOST_OF_AN_ANSWER).map(|(status, taken)| (status == 200, taken))
}

/// Tells a server how far a run is, again and again.
pub struct Summaries {
    server: String,
    url: String,
    access: Access,
    /// One that CI signs holds for some minutes.
    token: Option<(Option<String>, Instant)>,
}

/// A signed token is asked for again after this time.
const SIGNED_FOR: Duration = Duration::from_secs(120);

impl Summaries {
    /// # Errors
    /// The token is not there, or the address is none.
    pub fn to(to: &Upload, project: &str) -> Result<Self, String> {
        https::check(&to.server)?;
        let url = format!("{}/api/v1/projects/{}/live", to.server, encoded(project));
        Ok(Self { server: to.server.clone(), url, access: Access::of(to)?, token: None })
    }

    /// Posts one, within `limit`.
    ///
    /// # Errors
    /// It was not taken.
    pub fn post(&mut self, run: &LiveRun, limit: Duration) -> Result<(), String> {
        let kept = self.token.take().filter(|(_, at)| at.elapsed() < SIGNED_FOR);
        let (token, at) = match kept {
            Some(kept) => kept,
            None => (self.access.token(&self.server, limit).map_err(|why| why.what)?, Instant::now()),
        };
        let body = serde_json::to_string(run).map_err(|why| why.to_string())?;
        let request = https::agent(limit, RootCerts::PlatformVerifier).post(&self.url);
        let request = match &token {
            Some(token) => request.header("Authorization", format!("Bearer {token}")),
            None => request,
        };
        let answer = request.content_type("application/json").send(body);
        let hidden = token.clone().unwrap_or_default();
        self.token = Some((token, at));
        match answer.map(|answer| answer.status().as_u16()) {
            Ok(204) => Ok(()),
            Ok(status) => Err(format!("{} answered {status}", self.server)),
            Err(why) => Err(without(&format!("{}: {why}", self.server), &[&hidden])),
        }
    }
}

/// What the token of a configuration may.
#[derive(Debug, Deserialize)]
pub struct Right {
    /// Globs of the branches it may write as lines; `None`: no token is needed.
    pub branches: Option<Vec<String>>,
    /// When it ends, RFC 3339.
    pub expires: Option<String>,
}

/// Asks a server what may be uploaded to it.
///
/// # Errors
/// It cannot be reached within `limit`, or wants another token.
pub fn right(to: &Upload, project: &str, limit: Duration) -> Result<Right, ExpectedError> {
    let failed = |what: &str, hint: &str| ExpectedError::machinery(format!("{}: {what}", to.server), hint);
    let access = Access::of(to).map_err(|why| failed(&why, ""))?;
    let token = access.token(&to.server, limit).map_err(|why| failed(&why.what, &why.hint))?;
    get((to, token), &format!("/api/v1/projects/{}/token", encoded(project)), limit, MOST_OF_AN_ANSWER)
}

/// What a server says of a base.
#[derive(Deserialize)]
struct Found {
    base: Option<BaseLeaks>,
}

/// Asks a server for a base; `None`: it has none that is near enough.
///
/// # Errors
/// It cannot be reached within `limit`, or says something else.
pub fn base(
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
    // Jobs of forks have no secret; most projects are read without one.
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

/// Asks a server, within `limit`.
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
    let request = https::agent(limit, RootCerts::PlatformVerifier).get(url);
    let request = match token {
        Some(token) => request.header("Authorization", format!("Bearer {token}")),
        None => request,
    };
    let answer = answered(request.call(), most).map(|(_, value)| value);
    answer.map_err(|why| failed(&without(&why.what, token.as_slice()), &without(&why.hint, token.as_slice())))
}

/// The status and the value of an answer that is no refusal.
fn answered<T: DeserializeOwned>(
    answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    most: u64,
) -> Result<(u16, T), Failed> {
    let mut answer = answer.map_err(|why| transport(&why))?;
    let status = answer.status().as_u16();
    let after = answer.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
    let text = answer.body_mut().with_config().limit(most).read_to_string();
    let text = text.map_err(|why| transport(&why))?;
    if matches!(status, 200 | 201)
        && let Ok(value) = serde_json::from_str(&text)
    {
        return Ok((status, value));
    }
    let Refused { error, hint } = serde_json::from_str(&text).unwrap_or_default();
    let hint = match status {
        200..=299 | 404 | 405 if hint.is_empty() => "is it the address of a `memgate serve`?".to_owned(),
        300..=399 => "name the address that it redirects to: a token is not sent elsewhere".to_owned(),
        421 => "the server does not know this name of its own: `memgate serve --public-host NAME`".to_owned(),
        _ => hint,
    };
    let what = match error.as_str() {
        // A page, of the server or of a proxy, is for browsers.
        "" if text.trim_start().starts_with('<') => format!("it answered {status}"),
        "" => format!("it answered {status}{}", https::said(&text)),
        error => format!("it answered {status}: {error}"),
    };
    let passes = matches!(status, 408 | 429 | 500..=599);
    Err(Failed { what, hint, passes, after: after.map(Duration::from_secs) })
}

/// No answer. All of that may pass, but for a certificate that is not trusted.
fn transport(why: &ureq::Error) -> Failed {
    let inner = if let ureq::Error::Io(why) = why { why.get_ref() } else { None };
    let is_tls = inner.is_some_and(|why| why.is::<rustls::Error>());
    let hint = if is_tls { "SSL_CERT_FILE names a file of certificates to trust" } else { "" };
    Failed { what: why.to_string(), hint: hint.to_owned(), passes: !is_tls, after: None }
}

/// Up to a quarter of a pause: whoever was refused together does not come again together.
fn jitter(pause: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish();
    pause.mul_f64(0.25 * f64::from((random >> 32) as u32) / f64::from(u32::MAX))
}

/// A name as a part of a path.
fn encoded(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    name.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_name_with_slashes_stays_one_part_of_the_path() {
        assert_eq!(encoded("maps/tiles ä?#%"), "maps%2Ftiles%20%C3%A4%3F%23%25");
    }

    #[test]
    fn only_a_certificate_that_is_not_trusted_is_final() {
        let untrusted = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let untrusted = io::Error::new(io::ErrorKind::InvalidData, untrusted);
        let failed = transport(&ureq::Error::Io(untrusted));
        assert!(!failed.passes && failed.hint.contains("SSL_CERT_FILE"), "{}", failed.what);
        assert!(transport(&ureq::Error::Io(io::ErrorKind::ConnectionRefused.into())).passes);
        assert!(transport(&ureq::Error::HostNotFound).passes);
    }

    #[test]
    fn pauses_differ_and_stay_within_a_quarter() {
        let pauses: std::collections::BTreeSet<Duration> =
            (0..100).map(|_| jitter(Duration::from_secs(4))).collect();
        assert!(pauses.len() > 90 && pauses.iter().all(|pause| *pause <= Duration::from_secs(1)));
    }
}
