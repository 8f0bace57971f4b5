//! `history.server` and the keys about uploads: where runs are uploaded.

use std::net::IpAddr;
use std::time::Duration;

use crate::read::{At, Reader, choice};
use crate::value::duration::Time;
use crate::value::text::Words;
use crate::value::variable::Variable;

const WAIT: Duration = Duration::from_secs(30);
/// Upper limit of `wait`: nobody waits longer for the upload at the end of a run.
const LONGEST_WAIT: Duration = Duration::from_secs(15 * 60);

choice! {
    /// Effect of a failed upload.
    pub enum UploadMode ("a way to upload") {
        /// A warning.
        BestEffort = "best_effort",
        /// A warning, and exit code 2 instead of 0. The verdict stays.
        Required = "required",
        /// Runs are not uploaded at their end; `memgate upload` uploads them.
        Off = "off",
    }
}

choice! {
    /// A kind of file to upload in addition to a run's figures.
    pub enum Artefact ("`page` or `heap_dumps`") {
        /// Its report page.
        Page = "page",
        /// The Java heap dumps in its session. They contain all texts of the tested program.
        HeapDumps = "heap_dumps",
    }
}

/// The keys of `history` about uploads.
#[derive(Debug)]
pub(crate) struct UploadKeys {
    pub(crate) server: Option<At<Words>>,
    pub(crate) token: Option<At<Variable>>,
    pub(crate) upload: Option<At<UploadMode>>,
    pub(crate) wait: Option<At<Time>>,
    pub(crate) artefacts: Option<Vec<At<Artefact>>>,
}

/// Where runs are uploaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// Address of the server, without a slash at its end.
    pub server: String,
    /// Environment variable with the token.
    pub token: Option<String>,
    /// Effect of a failed upload.
    pub mode: UploadMode,
    /// Longest time for which a run tries to upload.
    pub wait: Duration,
    /// Files to upload in addition to the figures, if the server keeps artefacts.
    pub artefacts: Vec<Artefact>,
}

impl Upload {
    /// Uploads to a server that the file does not name. `Err`: what is wrong with its address.
    ///
    /// # Errors
    /// The text is not an address, or is one without encryption.
    pub fn to(server: &str) -> Result<Self, &'static str> {
        let server = address(server)?;
        Ok(Self {
            server,
            token: None,
            mode: UploadMode::BestEffort,
            wait: WAIT,
            artefacts: vec![Artefact::Page],
        })
    }

    pub(crate) fn check(keys: UploadKeys, reader: &mut Reader<'_>) -> Option<Self> {
        let UploadKeys { server, token, upload, wait, artefacts } = keys;
        let Some(At { value: Words(server), span }) = server else {
            let others = [
                ("token", token.map(|key| key.span)),
                ("upload", upload.map(|key| key.span)),
                ("wait", wait.map(|key| key.span)),
                ("artefacts", artefacts.and_then(|keys| Some(keys.into_iter().next()?.span))),
            ];
            for (key, span) in others.into_iter().filter_map(|(key, span)| Some((key, span?))) {
                reader
                    .error(&span, format!("`history.{key}` without a server"))
                    .label("there is nothing to upload to")
                    .hint(Some("add `server: https://memgate.example.com`"));
            }
            return None;
        };
        let wait = wait.map_or(WAIT, |At { value: Time(value), span }| {
            if value.is_zero() || value > LONGEST_WAIT {
                reader
                    .error(&span, "no time to wait for an upload")
                    .label("expected more than 0, and 15m at most")
                    .hint(Some("`memgate upload` tries for 15 minutes"));
            }
            value
        });
        match Self::to(&server) {
            Ok(to) => Some(Self {
                server: to.server,
                token: token.map(|At { value: Variable(name), .. }| name),
                mode: upload.map_or(UploadMode::BestEffort, |At { value, .. }| value),
                wait,
                artefacts: match artefacts {
                    Some(artefacts) => artefacts.into_iter().map(|artefact| artefact.value).collect(),
                    None => to.artefacts,
                },
            }),
            Err(label) => {
                reader.error(&span, "this is no server").label(label).hint(Some(
                    "write `https://memgate.example.com`; on this machine `http://127.0.0.1:7377`",
                ));
                None
            }
        }
    }
}

/// Checks and normalises an address. `Err`: what is wrong with it. Without encryption, others could read the token.
fn address(text: &str) -> Result<String, &'static str> {
    let text = text.trim().trim_end_matches('/');
    let (scheme, rest) = text.split_once("://").ok_or("expected `https://` first")?;
    let authority = rest.split('/').next().unwrap_or_default();
    if authority.contains('@') {
        return Err("a user does not belong into the address: who uploads shows a token");
    }
    if rest.contains(['?', '#', '\\']) || rest.contains(char::is_whitespace) {
        return Err("expected the address of the server alone");
    }
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => {
            port.parse::<u16>().map_err(|_no_port| "its port is no number from 1 to 65535")?;
            host
        }
        _ => authority,
    };
    if host.is_empty() {
        return Err("no name of a host");
    }
    let bare = host.trim_matches(['[', ']']);
    let is_here =
        bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    match scheme {
        "https" => Ok(text.to_owned()),
        "http" if is_here => Ok(text.to_owned()),
        "http" => Err("without encryption others read the token: expected `https://`"),
        _ => Err("expected `https://` first"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_encrypted_or_on_this_machine() {
        for (given, used) in [
            ("https://memgate.example.com/", "https://memgate.example.com"),
            ("https://example.com:8443/memgate", "https://example.com:8443/memgate"),
            ("http://127.0.0.1:7377", "http://127.0.0.1:7377"),
            ("http://[::1]:7377/", "http://[::1]:7377"),
            ("http://localhost", "http://localhost"),
        ] {
            assert_eq!(address(given), Ok(used.to_owned()), "{given}");
        }
        for given in [
            "memgate.example.com",
            "http://memgate.example.com",
            "http://127.0.0.1.example.com",
            "http://127.0.0.1:1@example.com",
            "http://localhost\\@example.com",
            "https://u:p@example.com",
            "https://",
            "https://:443",
            "https://example.com:99999",
            "https://example.com/?a=b",
            "https://example.com/a b",
            "ftp://example.com",
        ] {
            assert!(address(given).is_err(), "{given}");
        }
    }
}
