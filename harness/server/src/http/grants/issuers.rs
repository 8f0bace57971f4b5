//! Public keys of token issuers.
//!
//! Data flow: an issuer and a key id → the keys of the last hour, otherwise its configuration and its keys, fetched
//! once for all who wait → the key. Only issuers that a rule names come here. An issuer that does not answer is asked
//! again after a while.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::Uri;
use jsonwebtoken::jwk::{Jwk, JwkSet};
use serde::Deserialize;
use tokio::sync::Mutex as Turn;

/// Fetches a URL: at most 256 KiB, within 10 s, over TLS or from this machine.
pub type Fetch = Arc<dyn Fn(&str) -> Result<Vec<u8>, String> + Send + Sync>;

const MOST_KEYS: usize = 100;
/// Keys are fetched again after this time.
const KEPT: Duration = Duration::from_secs(3600);
/// The same for keys that could not be renewed.
const AGAIN: Duration = Duration::from_secs(60);
/// An issuer that failed may be back after this time, and an unknown key may be new: jobs try to upload for a minute.
/// No client can make this server fetch more often.
const SOON: Duration = Duration::from_secs(15);

/// Why no key was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoKey {
    /// The issuer has no key with this id.
    Unknown,
    /// The keys were fetched before the request came, this many seconds ago, and the key was not among them: it may be
    /// new.
    Older(u64),
    /// The issuer does not answer, or its answer cannot be used.
    Away(String),
}

/// Cached state of one issuer.
#[derive(Default)]
struct Known {
    keys: Option<JwkSet>,
    /// When its keys were last fetched, or a fetch last failed.
    asked: Option<Instant>,
    /// Why that fetch failed.
    failed: Option<String>,
}

impl Known {
    /// Answer from the cache to a request that came at `came`; `None`: the issuer has to be asked.
    fn answer(&self, id: &str, came: Instant, now: Instant) -> Option<Result<Jwk, NoKey>> {
        let asked = self.asked?;
        let age = now.saturating_duration_since(asked);
        let key = self.keys.as_ref().and_then(|keys| keys.find(id).cloned());
        let holds = match (&key, &self.failed) {
            (Some(_), None) => KEPT,
            (None, _) => SOON,
            (Some(_), Some(_)) => AGAIN,
        };
        (age < holds).then(|| match (key, &self.failed) {
            // Old keys stay valid while they cannot be renewed.
            (Some(key), _) => Ok(key),
            // The key may be newer than that fetch.
            (None, None) if asked < came => Err(NoKey::Older(age.as_secs())),
            (None, None) => Err(NoKey::Unknown),
            (None, Some(why)) => Err(NoKey::Away(why.clone())),
        })
    }

    fn note(&mut self, fetched: Result<JwkSet, String>, now: Instant) {
        self.asked = Some(now);
        self.failed = fetched.map(|keys| self.keys = Some(keys)).err();
    }
}

#[derive(Default)]
struct Issuer {
    known: Mutex<Known>,
    /// Held during a fetch, so that one fetch serves all who wait.
    asking: Arc<Turn<()>>,
}

impl Issuer {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, id: &str, came: Instant) -> Option<Result<Jwk, NoKey>> {
        self.known().answer(id, came, Instant::now())
    }
}

/// Fetched keys, by issuer. A request waits only for the issuer that it needs.
#[derive(Default)]
pub(super) struct Issuers(Mutex<HashMap<String, Arc<Issuer>>>);

impl Issuers {
    pub(super) async fn key(&self, fetch: &Fetch, issuer: &str, id: &str) -> Result<Jwk, NoKey> {
        let (known, came) = (self.of(issuer), Instant::now());
        if let Some(answer) = known.answer(id, came) {
            return answer;
        }
        let turn = Arc::clone(&known.asking).lock_owned().await;
        if let Some(answer) = known.answer(id, came) {
            return answer;
        }
        let (fetch, from, of) = (Arc::clone(fetch), issuer.to_owned(), Arc::clone(&known));
        // The turn ends with the fetch, even if the client is gone by then.
        let asked = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let asked = Instant::now();
            let fetched = keys_of(&fetch, &from);
            of.known().note(fetched, asked);
        });
        asked.await.map_err(|why| NoKey::Away(why.to_string()))?;
        known.answer(id, came).unwrap_or(Err(NoKey::Unknown))
    }

    fn of(&self, issuer: &str) -> Arc<Issuer> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(issuer.to_owned()).or_default())
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    const GOOD: &str = "https://good.example.com";
    const SILENT: &str = "https://silent.example.com";

    fn keys(id: &str) -> JwkSet {
        let key = serde_json::json!({"kty": "RSA", "kid": id, "n": "AQAB", "e": "AQAB"});
        serde_json::from_value(serde_json::json!({ "keys": [key] })).unwrap()
    }

    /// Response of an issuer with one key, `a`.
    fn answer(url: &str) -> Vec<u8> {
        let configuration = serde_json::json!({"issuer": GOOD, "jwks_uri": format!("{GOOD}/keys")});
        let keys = serde_json::to_value(keys("a")).unwrap();
        if url.ends_with("/keys") { keys } else { configuration }.to_string().into_bytes()
    }

    #[test]
    fn an_issuer_that_says_nothing_delays_nobody_who_names_another_one() {
        let (asked, is_asked) = mpsc::channel();
        let (says, silent) = mpsc::channel::<()>();
        let silent = Mutex::new(silent);
        let fetch: Fetch = Arc::new(move |url| {
            if url.starts_with(GOOD) {
                return Ok(answer(url));
            }
            asked.send(()).unwrap();
            // The fetch fails only after the test has made its checks.
            assert!(silent.lock().unwrap().recv().is_err());
            Err("it is away".to_owned())
        });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let issuers = Arc::new(Issuers::default());
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let (issuers, fetch) = (Arc::clone(&issuers), Arc::clone(&fetch));
                runtime.spawn(async move { issuers.key(&fetch, SILENT, "a").await.unwrap_err() })
            })
            .collect();
        is_asked.recv().unwrap();
        let key = runtime.block_on(issuers.key(&fetch, GOOD, "a")).unwrap();
        assert_eq!(key.common.key_id.as_deref(), Some("a"));
        let unknown = runtime.block_on(issuers.key(&fetch, GOOD, "b")).unwrap_err();
        assert!(matches!(unknown, NoKey::Older(_)), "its keys were fetched before: {unknown:?}");
        assert!(waiting.iter().all(|waits| !waits.is_finished()));
        drop(says);
        for waits in waiting {
            let NoKey::Away(why) = runtime.block_on(waits).unwrap() else { panic!("it has a key") };
            assert!(why.ends_with("it is away"), "{why}");
        }
        assert!(is_asked.try_recv().is_err(), "it was asked once for all");
    }

    #[test]
    fn a_client_that_goes_away_makes_nobody_ask_again() {
        let (count, (goes_on, waits)) = (Arc::new(AtomicUsize::new(0)), mpsc::channel::<()>());
        let (counted, waits) = (Arc::clone(&count), Mutex::new(waits));
        let fetch: Fetch = Arc::new(move |url| {
            if counted.fetch_add(1, Ordering::SeqCst) == 0 {
                assert!(waits.lock().unwrap().recv().is_err());
            }
            Ok(answer(url))
        });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let issuers = Arc::new(Issuers::default());
        let (of, by) = (Arc::clone(&issuers), Arc::clone(&fetch));
        let first = runtime.spawn(async move { of.key(&by, GOOD, "a").await });
        while count.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        first.abort();
        assert!(runtime.block_on(first).unwrap_err().is_cancelled());
        let second = runtime.spawn(async move { issuers.key(&fetch, GOOD, "a").await });
        drop(goes_on);
        assert!(runtime.block_on(second).unwrap().is_ok());
        assert_eq!(count.load(Ordering::SeqCst), 2, "the configuration and the keys, once each");
    }

    #[test]
    fn a_failure_is_remembered_and_old_keys_are_good_while_they_cannot_be_renewed() {
        let begin = Instant::now();
        let away = || Err("it is away".to_owned());
        let mut known = Known::default();
        assert_eq!(known.answer("a", begin, begin), None);
        known.note(away(), begin);
        assert_eq!(known.answer("a", begin, begin), Some(Err(NoKey::Away("it is away".to_owned()))));
        assert_eq!(known.answer("a", begin, begin + SOON), None);
        known.note(Ok(keys("a")), begin);
        assert!(known.answer("a", begin, begin + AGAIN).unwrap().is_ok());
        let later = begin + KEPT;
        assert_eq!(known.answer("a", later, later), None);
        known.note(away(), later);
        assert!(known.answer("a", later, later).unwrap().is_ok());
        assert_eq!(known.answer("a", later, later + AGAIN), None, "it is asked again");
    }

    #[test]
    fn a_key_that_may_be_newer_than_the_last_answer_is_no_final_refusal() {
        let begin = Instant::now();
        let mut known = Known::default();
        known.note(Ok(keys("a")), begin);
        assert_eq!(known.answer("b", begin, begin), Some(Err(NoKey::Unknown)), "asked for this request");
        let came = begin + Duration::from_secs(3);
        assert_eq!(known.answer("b", came, came), Some(Err(NoKey::Older(3))));
        assert_eq!(known.answer("b", came, begin + SOON), None, "it is asked again");
    }
}
