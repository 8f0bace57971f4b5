//! Tokens that a CI system signs for a job: no secret is stored anywhere.
//!
//! Data flow: a JWT → its key (`issuers`) → signature, times, issuer, audience → the rule of its repository's numeric
//! id → what it allows. Only the CI system's own claims about branch and commit let a run write a line, never what the
//! job says.

use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde::Deserialize;

use super::Grants;
use super::issuers::NoKey;
use crate::http::refused::Refused;
use crate::store::{Grant, Provider, Signed, SignedRule};

/// Tolerance for clocks that differ.
const LEEWAY_S: u64 = 60;
const LONGEST: usize = 16 << 10;

/// Read before the signature is checked, to find the key.
#[derive(Deserialize)]
struct Unverified {
    iss: String,
}

/// Claims of GitHub and GitLab about a job. Numbers come as text.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Claims {
    exp: u64,
    jti: String,
    sha: String,
    r#ref: String,
    aud: Audience,
    // GitHub
    repository_id: String,
    event_name: String,
    // GitLab
    project_id: String,
    ref_type: String,
    ref_protected: String,
    pipeline_source: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Default for Audience {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl Audience {
    /// A slash at the end does not matter: GitLab takes what the job asks for.
    fn has(&self, name: &str) -> bool {
        let is_name = |it: &str| it.trim_end_matches('/') == name.trim_end_matches('/');
        match self {
            Self::One(one) => is_name(one),
            Self::Many(many) => many.iter().any(|one| is_name(one)),
        }
    }
}

/// Does the text look like a signed token?
pub(super) fn is_signed(text: &str) -> bool {
    text.split('.').count() == 3
}

impl Grants {
    /// Rights of a signed token in a project.
    pub(super) async fn signed(&self, project: &str, text: &str) -> Result<Grant, Refused> {
        self.verified(text).await?.grant(project)
    }

    /// Checks who signed a token, and for whom and when. What it allows is not checked.
    async fn verified(&self, text: &str) -> Result<Verified, Refused> {
        if text.len() > LONGEST {
            return Err(refused("it is too long"));
        }
        let header = decode_header(text).map_err(|_broken| refused("its header cannot be read"))?;
        // No algorithm with a shared secret: the public key would serve as that secret.
        if !matches!(header.alg, Algorithm::RS256 | Algorithm::ES256) {
            return Err(refused("it is not signed with RS256 or ES256"));
        }
        let id = header.kid.ok_or_else(|| refused("it names no key"))?;
        let Unverified { iss } = unverified(text).ok_or_else(|| refused("its claims cannot be read"))?;
        let rules = self.store.rules().await.map_err(|why| Refused::of_store(&why))?;
        let rules: Vec<SignedRule> = rules.into_iter().filter(|rule| rule.issuer == iss).collect();
        if rules.is_empty() {
            return Err(refused("no rule names its issuer"));
        }
        let key = self.issuers.key(&self.options.fetch, &iss, &id).await.map_err(|why| match why {
            NoKey::Unknown => refused("its key is not one of its issuer's"),
            NoKey::Older(seconds) => Refused::newer(seconds),
            NoKey::Away(why) => Refused::away(format!("read the keys of {iss}: {why}")),
        })?;
        let key = DecodingKey::from_jwk(&key).map_err(|_odd| refused("its key cannot be used"))?;
        let mut validation = Validation::new(header.alg);
        validation.leeway = LEEWAY_S;
        validation.validate_nbf = true;
        validation.set_issuer(&[&iss]);
        // Both spellings: `Audience::has`.
        let bare = rules.iter().map(|rule| rule.audience.trim_end_matches('/').to_owned());
        let audiences: Vec<String> = bare.flat_map(|name| [format!("{name}/"), name]).collect();
        validation.set_audience(&audiences);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        let claims =
            decode::<Claims>(text, &key, &validation).map_err(|why| refused(words(why.kind())))?.claims;
        if claims.jti.is_empty() {
            return Err(refused("it has no `jti`"));
        }
        Ok(Verified { issuer: iss, rules, claims })
    }
}

/// Claims whose signature, times, issuer and audience are checked.
struct Verified {
    issuer: String,
    /// The rules that name this issuer.
    rules: Vec<SignedRule>,
    claims: Claims,
}

impl Verified {
    /// What the rules of its repository allow in a project.
    fn grant(self, project: &str) -> Result<Grant, Refused> {
        let Self { issuer, rules, claims } = self;
        let fits = |rule: &&SignedRule| {
            rule.project == project
                && claims.aud.has(&rule.audience)
                && rule.subject == claims.subject(rule.provider)
        };
        let fitting: Vec<&SignedRule> = rules.iter().filter(fits).collect();
        let Some(first) = fitting.first() else {
            let error = format!("no rule lets this repository add runs to `{project}`");
            return Err(Refused::new(
                StatusCode::FORBIDDEN,
                error,
                "`memgate serve oidc list` shows the rules",
            ));
        };
        if matches!(claims.event_name.as_str(), "pull_request_target" | "workflow_run") {
            let error =
                format!("a job of the event {} runs with rights that are not its code's", claims.event_name);
            return Err(Refused::new(StatusCode::FORBIDDEN, error, "upload from `push` and `pull_request`"));
        }
        Ok(Grant::Signed(Signed {
            project: project.to_owned(),
            line: claims.line(first.provider).map(|branch| (branch.to_owned(), claims.sha.clone())),
            // Branches that any of the rules allows.
            branches: fitting.iter().flat_map(|rule| rule.branches.clone()).collect(),
            issuer,
            expires_us: i64::try_from(claims.exp).unwrap_or(i64::MAX / 1_000_000).saturating_mul(1_000_000),
            jti: claims.jti,
        }))
    }
}

impl Claims {
    fn subject(&self, provider: Provider) -> &str {
        match provider {
            Provider::GitHub => &self.repository_id,
            Provider::GitLab => &self.project_id,
        }
    }

    /// The branch that this job builds, if only its project decides what runs in it.
    fn line(&self, provider: Provider) -> Option<&str> {
        match provider {
            Provider::GitHub => {
                let is_own = matches!(self.event_name.as_str(), "push" | "schedule" | "workflow_dispatch");
                self.r#ref.strip_prefix("refs/heads/").filter(|_| is_own)
            }
            Provider::GitLab => {
                let sources = ["push", "schedule", "web", "api", "trigger", "pipeline"];
                let is_own = self.ref_type == "branch"
                    && self.ref_protected == "true"
                    && sources.contains(&self.pipeline_source.as_str());
                Some(self.r#ref.as_str()).filter(|_| is_own)
            }
        }
    }
}

fn unverified(text: &str) -> Option<Unverified> {
    let bytes = URL_SAFE_NO_PAD.decode(text.split('.').nth(1)?).ok()?;
    serde_json::from_slice(&bytes).ok()
}

const fn words(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::ExpiredSignature => "its time is over",
        ErrorKind::ImmatureSignature => "its time has not begun",
        ErrorKind::InvalidAudience => "it is made for another server (`aud`)",
        ErrorKind::InvalidIssuer => "its issuer is another one",
        ErrorKind::InvalidSignature => "its signature is wrong",
        ErrorKind::MissingRequiredClaim(_) => "`exp`, `iss` or `aud` is missing",
        _ => "it cannot be read",
    }
}

fn refused(what: &str) -> Refused {
    let error = format!("the signed token is not accepted: {what}");
    let hint = "`memgate serve oidc list`, on the server's machine, shows whose tokens are accepted";
    Refused::new(StatusCode::UNAUTHORIZED, error, hint)
}
