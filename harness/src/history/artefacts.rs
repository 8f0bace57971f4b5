//! Uploads the files of a session to its uploaded run.
//!
//! Data flow: the report page, compressed → a `PUT`, repeated if the server is busy. A heap dump → its digest → an
//! empty piece, to which the server replies where to continue → pieces, each in a `PATCH`. After each failure it asks
//! the server again, in this upload or in a later one of the same session.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use memgate_config::{Artefact, Upload};
use memgate_history::hex;
use memgate_model::format_bytes;
use memgate_server::artefacts::{LENGTH, OFFSET, PAGE};
use memgate_server::percent::encoded;
use sha2::{Digest as _, Sha256};
use ureq::http::Response;
use ureq::tls::RootCerts;
use ureq::typestate::WithBody;
use ureq::{Body, RequestBuilder};

use super::upload::{Failed, MOST_OF_AN_ANSWER, Patience, Tokens, Uploaded, refusal, shows, transport};
use crate::deliver::secret::without;
use crate::https;
use crate::output::{Console, Progress};

/// Time limits for a report page or a request, for a piece of a heap dump, and for its last piece: the server may use a
/// bucket.
const PAGE_LIMIT: Duration = Duration::from_secs(30);
const PIECE_LIMIT: Duration = Duration::from_secs(60);
const DUMP_LIMIT: Duration = Duration::from_secs(15 * 60);
/// How long uploading a page is retried: many runs may end at the same time, but none should wait long for its page
/// alone.
const PAGE_WAIT: Duration = Duration::from_secs(20);
/// Bytes of a piece: some proxies buffer a whole piece before they forward it.
const PIECE: u64 = 4 << 20;
/// How often the server may ask for earlier bytes again: with a load balancer, several servers may each have a part.
const MOST_RETURNS: u32 = 3;

/// Uploads the configured files of a session, if the server stores any. Failures are warnings: the run itself is
/// uploaded.
pub(crate) fn add_artefacts(to: &Upload, uploaded: &Uploaded, session: &Path, console: &Console) {
    let Some((address, ticket)) = &uploaded.artefacts else { return };
    let mut tokens = match Tokens::of(to) {
        Ok(tokens) => tokens,
        Err(why) => return console.warning(&format!("nothing was added to the run: {why}")),
    };
    for artefact in &to.artefacts {
        match artefact {
            Artefact::Page => {
                let address = format!("{}{address}/{PAGE}?ticket={ticket}", to.server);
                let wait = to.wait.min(PAGE_WAIT);
                let packed = packed(&session.join(PAGE));
                let added = packed.and_then(|packed| page(&mut tokens, &address, &packed, wait, console));
                if let Err(why) = added {
                    console.warning(&format!("the report page was not added to the run: {why}"));
                }
            }
            Artefact::HeapDumps => {
                for dump in dumps(session) {
                    let Some(name) = dump.file_name().and_then(OsStr::to_str) else { continue };
                    let address = format!("{}{address}/{}?ticket={ticket}", to.server, encoded(name));
                    let added = File::open(&dump)
                        .map_err(|why| why.to_string())
                        .and_then(|file| Dump { name, address, file }.send(&mut tokens, to.wait, console));
                    if let Err(why) = added {
                        console.warning(&format!("{name} was not added to the run: {why}"));
                    }
                }
            }
        }
    }
}

fn packed(file: &Path) -> Result<Vec<u8>, String> {
    let page = fs::read(file).map_err(|why| format!("{}: {why}", file.display()))?;
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(&page).and_then(|()| packed.finish()).map_err(|why| why.to_string())
}

/// The heap dumps of a session, by name.
fn dumps(session: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(session).into_iter().flatten().flatten().map(|file| file.path());
    let is_dump = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.ends_with(".hprof") || name.ends_with(".hprof.gz")
    };
    let mut dumps: Vec<PathBuf> = files.filter(is_dump).collect();
    dumps.sort();
    dumps
}

/// Sends a page, and retries within `wait` if that may help.
fn page(
    tokens: &mut Tokens,
    address: &str,
    packed: &[u8],
    wait: Duration,
    console: &Console,
) -> Result<(), String> {
    let mut patience = Patience::new(wait);
    loop {
        let sent = console.tell_if_slow("waiting for the server to take the report page", || {
            whole(tokens, (address, PAGE_LIMIT), |request| {
                request.content_type("text/html").header("Content-Encoding", "gzip").send(packed)
            })
        });
        let Err(why) = sent else { return Ok(()) };
        let yet = format!("the report page was not added to the run yet: {}", why.what);
        if !why.passes || !patience.pauses(why.after, console, &yet) {
            return Err(why.what);
        }
    }
}

/// Sends a file once.
fn whole(
    tokens: &mut Tokens,
    (address, limit): (&str, Duration),
    send: impl FnOnce(RequestBuilder<WithBody>) -> Result<Response<Body>, ureq::Error>,
) -> Result<(), Failed> {
    let token = tokens.token(PAGE_LIMIT)?;
    // A server that already has the file replies without reading it.
    let request = https::agent(address, limit, RootCerts::PlatformVerifier)
        .put(address)
        .header("Expect", "100-continue");
    let hidden = |why: Failed| Failed { what: without(&why.what, token.as_deref().as_slice()), ..why };
    let answer = send(shows(request, token.as_deref())).map_err(|why| hidden(transport(address, &why)))?;
    match answer.status().as_u16() {
        204 => Ok(()),
        _ => Err(hidden(refused(address, answer)?)),
    }
}

/// The refusal in a response. `Err`: the response cannot be read.
fn refused(address: &str, mut answer: Response<Body>) -> Result<Failed, Failed> {
    let text = answer.body_mut().with_config().limit(MOST_OF_AN_ANSWER).read_to_string();
    text.map(|text| refusal(&answer, &text)).map_err(|why| transport(address, &why))
}

struct Dump<'a> {
    name: &'a str,
    address: String,
    file: File,
}

/// The result of sending a piece.
enum Sent {
    /// The server has this many bytes, including this piece.
    To(u64),
    /// The server wants the bytes from this offset on.
    Elsewhere(u64),
    /// The complete file arrived with another digest, and was removed.
    Damaged(String),
    /// The server, or a proxy before it, does not support `PATCH`.
    NoPieces,
}

impl Dump<'_> {
    /// Sends the dump; gives up when nothing has arrived for `wait`.
    fn send(mut self, tokens: &mut Tokens, wait: Duration, console: &Console) -> Result<(), String> {
        let length = self.file.metadata().map_err(|why| why.to_string())?.len();
        console.line(&format!("uploading {} ({})", self.name, format_bytes(length as f64)));
        let sha256 = self.digest().map_err(|why| why.to_string())?;
        let title = format!("uploading {}, MiB", self.name);
        let mut progress = Progress::of_silent_tests(console, &title, length >> 20);
        // A server that already has the file replies without reading a body, so it first gets an empty piece.
        let (mut at, mut asks, mut reached, mut returns) = (0, true, 0, 0);
        let mut patience = None;
        let mut damaged = false;
        loop {
            let piece = if asks { Vec::new() } else { self.piece(at, length)? };
            let sent = self.patch(tokens, &sha256, (at, length), &piece);
            let (next, was_asked) = (at + piece.len() as u64, asks);
            match sent {
                Ok(Sent::To(end)) if end == length => return Ok(()),
                Ok(Sent::To(end)) if end == next => (at, asks) = (end, false),
                Ok(Sent::Elsewhere(offset)) if offset <= length && offset != at => {
                    returns += u32::from(offset < reached);
                    if was_asked && offset > 0 {
                        console.line(&format!("{} goes on at {}", self.name, format_bytes(offset as f64)));
                    }
                    (at, asks) = (offset, false);
                }
                Ok(Sent::To(there) | Sent::Elsewhere(there)) => {
                    return Err(format!("the server has {there} bytes, and wants others than those at {at}"));
                }
                Ok(Sent::Damaged(why)) if damaged => return Err(why),
                Ok(Sent::Damaged(_)) => (at, asks, reached, damaged) = (0, false, 0, true),
                Ok(Sent::NoPieces) => return self.whole(tokens),
                Err(why) => {
                    let yet = format!("{} is not uploaded yet: {}", self.name, why.what);
                    let patience = patience.get_or_insert_with(|| Patience::new(wait));
                    if !why.passes || !patience.pauses(why.after, console, &yet) {
                        return Err(why.what);
                    }
                    asks = true;
                }
            }
            if at > reached {
                (reached, patience) = (at, None);
                progress.update(at >> 20, "");
            }
            if returns > MOST_RETURNS {
                return self.whole(tokens);
            }
        }
    }

    fn whole(mut self, tokens: &mut Tokens) -> Result<(), String> {
        self.file.rewind().map_err(|why| why.to_string())?;
        let sent = whole(tokens, (&self.address, DUMP_LIMIT), |request| {
            request.content_type("application/octet-stream").send(&self.file)
        });
        sent.map_err(|why| why.what)
    }

    fn digest(&mut self) -> io::Result<String> {
        let mut digest = Sha256::new();
        io::copy(&mut self.file, &mut digest)?;
        Ok(hex(&digest.finalize()))
    }

    fn piece(&mut self, at: u64, length: u64) -> Result<Vec<u8>, String> {
        let mut piece = Vec::new();
        let read = self.file.seek(SeekFrom::Start(at));
        read.and_then(|_| (&self.file).take(PIECE.min(length - at)).read_to_end(&mut piece))
            .map_err(|why| why.to_string())?;
        if piece.is_empty() && at < length { Err("it became shorter".to_owned()) } else { Ok(piece) }
    }

    fn patch(
        &self,
        tokens: &mut Tokens,
        sha256: &str,
        (at, length): (u64, u64),
        piece: &[u8],
    ) -> Result<Sent, Failed> {
        // The last piece is checked and stored before the reply.
        let is_last = at + piece.len() as u64 == length;
        let limit = if is_last { DUMP_LIMIT } else { PIECE_LIMIT };
        let token = tokens.token(PAGE_LIMIT)?;
        let address = format!("{}&sha256={sha256}", self.address);
        let request = https::agent(&address, limit, RootCerts::PlatformVerifier)
            .patch(&address)
            .content_type("application/octet-stream")
            .header(OFFSET, at.to_string())
            .header(LENGTH, length.to_string());
        let hidden = |why: Failed| Failed { what: without(&why.what, token.as_deref().as_slice()), ..why };
        let answer = shows(request, token.as_deref()).send(piece);
        let answer = answer.map_err(|why| hidden(transport(&address, &why)))?;
        let offset = answer.headers().get(OFFSET).and_then(|value| value.to_str().ok()?.parse().ok());
        match (answer.status().as_u16(), offset) {
            (204, Some(offset)) => return Ok(Sent::To(offset)),
            (409, Some(offset)) => return Ok(Sent::Elsewhere(offset)),
            (405 | 501, None) => return Ok(Sent::NoPieces),
            _ => {}
        }
        let refused = hidden(refused(&address, answer).map_err(hidden)?);
        if offset == Some(0) { Ok(Sent::Damaged(refused.what)) } else { Err(refused) }
    }
}
