//! The public keys of those who sign tokens.
//!
//! Data flow: an issuer and the id of a key → what was fetched in the last hour, else its configuration and its keys,
//! fetched once for all who ask → the key. Only issuers that a rule names come here.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::Uri;
use jsonwebtoken::jwk::{Jwk, JwkSet};
use serde::Deserialize;
use tokio::sync::Mutex;

/// Fetches an address: at most 256 KiB, within 10 s, encrypted or from this machine.
pub type Fetch = Arc<dyn Fn(&str) -> Result<Vec<u8>, String> + Send + Sync>;

const MOST_KEYS: usize = 100;
/// Keys are fetched again after this time.
const KEPT: Duration = Duration::from_secs(3600);
/// A key that is not there may be new; nobody makes this server ask more often.
const AGAIN: Duration = Duration::from_secs(60);

/// Why there is no key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoKey {
    /// The issuer has none with this id.
    Unknown,
    /// The issuer says nothing, or nothing that can be used.
    Away(String),
}

struct Known {
    keys: JwkSet,
    at: Instant,
}

/// Keys that were fetched, by issuer.
#[derive(Default)]
pub(super) struct Issuers(Mutex<HashMap<String, Known>>);

impl Issuers {
    pub(super) async fn key(&self, fetch: &Fetch, issuer: &str, id: &str) -> Result<Jwk, NoKey> {
        // Whoever comes meanwhile waits for the same answer.
        let mut known = self.0.lock().await;
        let found = known.get(issuer);
        if let Some(key) =
            found.filter(|found| found.at.elapsed() < KEPT).and_then(|found| found.keys.find(id))
        {
            return Ok(key.clone());
        }
        if found.is_some_and(|found| found.at.elapsed() < AGAIN) {
            return Err(NoKey::Unknown);
        }
        let (fetch, from) = (Arc::clone(fetch), issuer.to_owned());
        let fetched = tokio::task::spawn_blocking(move || keys_of(&fetch, &from)).await;
        let keys = fetched.map_err(|why| NoKey::Away(why.to_string()))?.map_err(NoKey::Away)?;
        let key = keys.find(id).cloned().ok_or(NoKey::Unknown);
        known.insert(issuer.to_owned(), Known { keys, at: Instant::now() });
        key
    }
}

#[derive(Deserialize)]
struct Configuration {
    issuer: String,
    jwks_uri: String,
}

fn keys_of(fetch: &Fetch, issuer: &str) -> Result<JwkSet, String> {
    let at = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    let configuration: Configuration = read(fetch, &at)?;
    if configuration.issuer != issuer {
        return Err(format!("{at} is of another issuer"));
    }
    if origin(&configuration.jwks_uri).is_none() || origin(&configuration.jwks_uri) != origin(issuer) {
        return Err(format!("{at} names keys of another origin"));
    }
    let keys: JwkSet = read(fetch, &configuration.jwks_uri)?;
    if keys.keys.len() > MOST_KEYS {
        return Err(format!("{} has more than {MOST_KEYS} keys", configuration.jwks_uri));
    }
    Ok(keys)
}

fn read<T: serde::de::DeserializeOwned>(fetch: &Fetch, at: &str) -> Result<T, String> {
    let bytes = fetch(at).map_err(|why| format!("{at}: {why}"))?;
    serde_json::from_slice(&bytes).map_err(|why| format!("{at}: {why}"))
}

fn origin(address: &str) -> Option<(String, String)> {
    let uri: Uri = address.parse().ok()?;
    Some((uri.scheme_str()?.to_owned(), uri.authority()?.to_string()))
}
