//! Artefacts as objects of an S3-compatible store.
//!
//! Data flow: a key → a signed URL (`rusty_s3`) → the function that sends requests for this program ([`Exchange`]). A
//! signed URL is a secret while it is valid: no error shows one.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek as _};
use std::sync::Arc;
use std::time::Duration;

use rusty_s3::{Credentials, S3Action, UrlStyle};

use super::Spool;

/// How long a signed URL is valid.
const SIGNED_FOR: Duration = Duration::from_secs(15 * 60);

/// A request to send.
#[derive(Debug)]
pub struct Sent<'a> {
    /// `PUT`, `GET` or `DELETE`.
    pub method: &'static str,
    /// The signed URL; a secret.
    pub url: &'a str,
    /// The body, sent from its first byte on.
    pub body: Option<&'a File>,
}

/// The response.
pub struct Answered {
    /// Status code.
    pub status: u16,
    /// Its body.
    pub body: Box<dyn Read + Send>,
}

impl fmt::Debug for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answered").field("status", &self.status).finish_non_exhaustive()
    }
}

/// Sends a request, over TLS or to this machine.
pub type Exchange = Arc<dyn Fn(&Sent<'_>) -> Result<Answered, String> + Send + Sync>;

pub(super) struct Bucket {
    bucket: rusty_s3::Bucket,
    keys: Credentials,
    /// Prefix of each key, with a slash at its end; empty: none.
    prefix: String,
    exchange: Exchange,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bucket({}/{})", self.bucket.name(), self.prefix)
    }
}

impl Bucket {
    /// Opens `BUCKET/PREFIX` with the environment variables that every S3 client reads.
    pub(super) fn open(
        address: &str,
        variable: impl Fn(&str) -> Option<String>,
        exchange: Exchange,
    ) -> Result<Self, String> {
        let (name, prefix) = address.split_once('/').unwrap_or((address, ""));
        let prefix = prefix.trim_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let needed = |name: &str| variable(name).ok_or_else(|| format!("the variable {name} is not set"));
        let (key, secret) = (needed("AWS_ACCESS_KEY_ID")?, needed("AWS_SECRET_ACCESS_KEY")?);
        let keys = match variable("AWS_SESSION_TOKEN") {
            Some(token) => Credentials::new_with_token(key, secret, token),
            None => Credentials::new(key, secret),
        };
        let region = variable("AWS_REGION").unwrap_or_else(|| "us-east-1".to_owned());
        // Self-hosted stores have no host name per bucket.
        let (endpoint, style) = match variable("AWS_ENDPOINT_URL") {
            Some(endpoint) => (endpoint, UrlStyle::Path),
            None => (format!("https://s3.{region}.amazonaws.com"), UrlStyle::VirtualHost),
        };
        let endpoint = endpoint.parse().map_err(|why| format!("AWS_ENDPOINT_URL is no address: {why}"))?;
        let bucket = rusty_s3::Bucket::new(endpoint, style, name.to_owned(), region)
            .map_err(|why| format!("that is no bucket: {why}"))?;
        Ok(Self { bucket, keys, prefix, exchange })
    }

    pub(super) fn put(&self, key: &str, spool: &Spool) -> io::Result<()> {
        (&spool.file).rewind()?;
        let key = format!("{}{key}", self.prefix);
        let action = self.bucket.put_object(Some(&self.keys), &key);
        let url = action.sign(SIGNED_FOR);
        self.send(&Sent { method: "PUT", url: url.as_str(), body: Some(&spool.file) }).map(drop)
    }

    pub(super) fn get(&self, key: &str) -> io::Result<Box<dyn Read + Send>> {
        let key = format!("{}{key}", self.prefix);
        let url = self.bucket.get_object(Some(&self.keys), &key).sign(SIGNED_FOR);
        Ok(self.send(&Sent { method: "GET", url: url.as_str(), body: None })?.body)
    }

    pub(super) fn remove(&self, key: &str) -> io::Result<()> {
        let key = format!("{}{key}", self.prefix);
        let url = self.bucket.delete_object(Some(&self.keys), &key).sign(SIGNED_FOR);
        match self.send(&Sent { method: "DELETE", url: url.as_str(), body: None }) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
            sent => sent.map(drop),
        }
    }

    fn send(&self, sent: &Sent<'_>) -> io::Result<Answered> {
        let failed = |why: String| {
            let why = why.replace(sent.url, "the bucket");
            io::Error::other(format!("{self:?}: {why}"))
        };
        let mut answered = (self.exchange)(sent).map_err(failed)?;
        match answered.status {
            200 | 204 => Ok(answered),
            status => {
                // The body is `<Code>SignatureDoesNotMatch</Code>` and a sentence.
                let mut said = String::new();
                let read = answered.body.by_ref().take(4096).read_to_string(&mut said);
                let inside = |tag: &str| {
                    let (_, rest) = said.split_once(&format!("<{tag}>"))?;
                    Some(rest.split('<').next()?.to_owned())
                };
                let said = read.ok().and_then(|_| inside("Code")).unwrap_or_default();
                // A missing bucket is an error, not a missing object.
                if status == 404 && sent.method != "PUT" && said != "NoSuchBucket" {
                    return Err(io::ErrorKind::NotFound.into());
                }
                Err(failed(format!("it answered {status} {said}").trim_end().to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn keys(name: &str) -> Option<String> {
        let value = match name {
            "AWS_ACCESS_KEY_ID" => "AKIAEXAMPLE",
            "AWS_SECRET_ACCESS_KEY" => "example-secret",
            "AWS_ENDPOINT_URL" => "http://127.0.0.1:9000",
            _ => return None,
        };
        Some(value.to_owned())
    }

    #[test]
    fn objects_are_asked_for_by_signed_addresses_and_no_error_shows_one() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let urls = Arc::clone(&asked);
        let exchange: Exchange = Arc::new(move |sent: &Sent<'_>| {
            urls.lock().unwrap().push(format!("{} {}", sent.method, sent.url));
            match sent.method {
                "GET" => Err(format!("{} cannot be reached", sent.url)),
                _ => {
                    let body: &[u8] = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>";
                    Ok(Answered { status: 403, body: Box::new(body) })
                }
            }
        });
        let bucket = Bucket::open("leaks/team/a/", keys, exchange).unwrap();
        let away = bucket.get("07/7/report.html").err().unwrap().to_string();
        assert_eq!(away, "Bucket(leaks/team/a/): the bucket cannot be reached");
        let refused = bucket.remove("07/7/report.html").unwrap_err().to_string();
        assert_eq!(refused, "Bucket(leaks/team/a/): it answered 403 AccessDenied");
        let asked = asked.lock().unwrap();
        let begin = "GET http://127.0.0.1:9000/leaks/team/a/07/7/report.html?";
        assert!(asked[0].starts_with(begin) && asked[0].contains("X-Amz-Signature="), "{asked:?}");
        assert!(asked.iter().all(|url| !url.contains("example-secret")));
    }

    #[test]
    fn an_object_that_is_gone_is_removed_and_a_bucket_that_is_gone_is_an_error() {
        let open = |body: &'static str| {
            let exchange: Exchange =
                Arc::new(move |_| Ok(Answered { status: 404, body: Box::new(body.as_bytes()) }));
            Bucket::open("leaks", keys, exchange).unwrap()
        };
        let (object, bucket) =
            (open("<Error><Code>NoSuchKey</Code></Error>"), open("<Error><Code>NoSuchBucket</Code></Error>"));
        object.remove("07/7/report.html").unwrap();
        assert_eq!(object.get("07/7/report.html").err().unwrap().kind(), io::ErrorKind::NotFound);
        let gone = "Bucket(leaks/): it answered 404 NoSuchBucket";
        assert_eq!(bucket.remove("07/7/report.html").unwrap_err().to_string(), gone);
        let got = bucket.get("07/7/report.html").err().unwrap();
        assert_eq!((got.kind(), got.to_string().as_str()), (io::ErrorKind::Other, gone));
        let put = open("").send(&Sent { method: "PUT", url: "https://example.com", body: None });
        assert_eq!(put.unwrap_err().to_string(), "Bucket(leaks/): it answered 404");
    }

    #[test]
    fn what_is_missing_is_named() {
        let open = |address: &str, without: &str| {
            let exchange: Exchange = Arc::new(|_| Err(String::new()));
            Bucket::open(address, |name| keys(name).filter(|_| name != without), exchange).unwrap_err()
        };
        assert_eq!(open("leaks", "AWS_ACCESS_KEY_ID"), "the variable AWS_ACCESS_KEY_ID is not set");
        assert_eq!(open("leaks", "AWS_SECRET_ACCESS_KEY"), "the variable AWS_SECRET_ACCESS_KEY is not set");
    }
}
