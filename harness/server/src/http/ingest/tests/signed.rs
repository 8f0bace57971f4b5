//! Tokens that a CI system signs, with keys made here.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};

use super::*;
use crate::store::{Provider, SignedRule};

const GITHUB: &str = "https://token.actions.githubusercontent.com";
const SERVER: &str = "https://memgate.example.com";

/// A token issuer.
struct Issuer {
    key: EncodingKey,
    public: Vec<u8>,
}

impl Issuer {
    fn new() -> Self {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_ref(), &random).unwrap();
        Self { key: EncodingKey::from_ec_der(key.as_ref()), public: pair.public_key().as_ref().to_vec() }
    }

    fn jwk(&self, id: &str) -> Value {
        let part = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(&self.public[range]);
        json!({ "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": id, "x": part(1..33), "y": part(33..65) })
    }

    fn sign(&self, id: &str, claims: &Value) -> String {
        let header = Header { kid: Some(id.to_owned()), ..Header::new(Algorithm::ES256) };
        encode(&header, claims, &self.key).unwrap()
    }
}

fn publish(server: &Served, keys: &[Value]) {
    let mut others = server.others.lock().unwrap();
    let uri = format!("{GITHUB}/.well-known/jwks");
    others.insert(
        format!("{GITHUB}/.well-known/openid-configuration"),
        json!({ "issuer": GITHUB, "jwks_uri": uri }),
    );
    others.insert(uri, json!({ "keys": keys }));
}

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// A push to main of commit `number`.
fn claims(jti: &str, number: usize) -> Value {
    json!({
        "iss": GITHUB, "aud": SERVER, "exp": now() + 300, "nbf": now() - 300, "jti": jti, "repository_id": "74",
        "event_name": "push", "ref": "refs/heads/main", "sha": sha(number),
    })
}

fn with(mut claims: Value, name: &str, value: Value) -> Value {
    claims[name] = value;
    claims
}

async fn rule(server: &Served, provider: Provider, subject: &str) {
    rule_for(server, provider, subject, &["main"]).await;
}

async fn rule_for(server: &Served, provider: Provider, subject: &str, branches: &[&str]) {
    let rule = SignedRule {
        id: String::new(),
        project: "tiles".into(),
        provider,
        issuer: GITHUB.into(),
        subject: subject.into(),
        audience: SERVER.into(),
        branches: branches.iter().map(|&branch| branch.to_owned()).collect(),
    };
    server.store.add_rule(rule).await.unwrap();
}

#[test]
fn where_the_issuer_is_away_the_job_tries_again() {
    served(Limits::default(), true, async |server| {
        rule(&server, Provider::GitHub, "74").await;
        let away = server.with(&Issuer::new().sign("k1", &claims("a", 1)), &run("s1", 1, &["n1-a"])).await;
        away.is(503, "the key that signed the token cannot be found now");
        assert!(away.head.contains("retry-after"), "{away:?}");
    });
}

#[test]
fn a_key_that_its_issuer_does_not_have_is_refused_for_good() {
    served(Limits::default(), true, async |server| {
        let issuer = Issuer::new();
        rule(&server, Provider::GitHub, "74").await;
        publish(&server, &[issuer.jwk("k1")]);
        let unknown = issuer.sign("k9", &claims("a", 1));
        server.with(&unknown, &run("s1", 1, &[])).await.is(401, "not one of its issuer's");
    });
}

#[test]
fn only_a_signed_token_of_the_repository_for_this_server_and_time_adds_runs() {
    served(Limits::default(), true, async |server| {
        let (issuer, stranger) = (Issuer::new(), Issuer::new());
        let first = issuer.sign("k1", &claims("a", 1));
        server.with(&first, &run("s1", 1, &["n1-a"])).await.is(401, "no rule names its issuer");
        rule(&server, Provider::GitHub, "74").await;
        let plain = run("s0", 0, &[]).to_string();
        server.upload(JSON, plain.as_bytes()).await.is(401, "a token is needed");
        publish(&server, &[issuer.jwk("k1")]);
        let added = server.with(&first, &run("s1", 1, &["n1-a"])).await;
        assert_eq!((added.status, &added.json()["on_line"]), (201, &json!(true)), "{added:?}");
        // The client may have missed the response and repeats the run; the token adds no other run.
        assert_eq!(server.with(&first, &run("s1", 1, &["n1-a"])).await.status, 200);
        server.with(&first, &run("s2", 1, &[])).await.is(401, "was used for another run");

        // Within the tolerance for clocks.
        let late = with(claims("late", 1), "exp", json!(now() - 20));
        let late = issuer.sign("k1", &with(late, "aud", json!(format!("{SERVER}/"))));
        assert_eq!(server.with(&late, &run("s3", 1, &["n1-a"])).await.status, 201, "a slash does not matter");
        server.with(&late, &run("s4", 1, &[])).await.is(401, "was used for another run");

        let of = |claims: Value| issuer.sign("k1", &claims);
        let mut without_audience = claims("b", 2);
        without_audience.as_object_mut().unwrap().remove("aud");
        let hs256 = {
            let header = Header { kid: Some("k1".into()), ..Header::new(Algorithm::HS256) };
            encode(&header, &claims("b", 2), &EncodingKey::from_secret(&issuer.public)).unwrap()
        };
        let none = {
            let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
            format!("{}.{}.", part(json!({ "alg": "none", "kid": "k1" })), part(claims("b", 2)))
        };
        let signature = first.rsplit_once('.').unwrap().1;
        let other = of(claims("c", 2));
        let exchanged = format!("{}.{signature}", other.rsplit_once('.').unwrap().0);
        for (token, status, error) in [
            (stranger.sign("k1", &claims("b", 2)), 401, "its signature is wrong"),
            (exchanged, 401, "its signature is wrong"),
            (hs256, 401, "not signed with RS256 or ES256"),
            (none, 401, "its header cannot be read"),
            ("a.b.c".to_owned(), 401, "its header cannot be read"),
            (of(with(claims("b", 2), "exp", json!(now() - 120))), 401, "its time is over"),
            (of(with(claims("b", 2), "nbf", json!(now() + 120))), 401, "its time has not begun"),
            (
                of(with(claims("b", 2), "aud", json!("https://other.example.com"))),
                401,
                "made for another server",
            ),
            (of(without_audience), 401, "is missing"),
            (
                of(with(claims("b", 2), "iss", json!("https://evil.example.com"))),
                401,
                "no rule names its issuer",
            ),
            (of(with(claims("b", 2), "jti", json!(""))), 401, "it has no `jti`"),
            (of(with(claims("b", 2), "repository_id", json!("75"))), 403, "no rule lets this repository"),
            (of(with(claims("b", 2), "event_name", json!("pull_request_target"))), 403, "not its code's"),
            // The keys were fetched before: this one may be newer.
            (issuer.sign("k9", &claims("b", 2)), 503, "the key that signed the token cannot be found now"),
        ] {
            let answer = server.with(&token, &run("s9", 2, &[])).await;
            answer.is(status, error);
            assert!(token.len() < 20 || !format!("{answer:?}").contains(&token), "{answer:?}");
        }
        let runs = server.store.runs("tiles", &Choice::default(), None).await.unwrap().unwrap().runs;
        assert_eq!(runs.len(), 2);
    });
}

#[test]
fn a_line_is_what_the_ci_system_says_and_not_what_the_job_does() {
    served(Limits::default(), false, async |server| {
        let issuer = Issuer::new();
        publish(&server, &[issuer.jwk("k1")]);
        rule(&server, Provider::GitHub, "74").await;
        rule(&server, Provider::GitLab, "20").await;
        let gitlab = |jti: &str| {
            json!({
                "iss": GITHUB, "aud": [SERVER], "exp": now() + 300, "jti": jti, "project_id": "20", "ref": "main",
                "ref_type": "branch", "ref_protected": "true", "pipeline_source": "push", "sha": sha(2),
            })
        };
        for (number, (claims, on_line)) in [
            (claims("a", 2), true),
            (with(claims("b", 2), "event_name", json!("schedule")), true),
            (with(claims("c", 2), "event_name", json!("pull_request")), false),
            (with(claims("d", 2), "ref", json!("refs/pull/7/merge")), false),
            (with(claims("e", 2), "ref", json!("refs/heads/feature")), false),
            (with(claims("f", 2), "ref", json!("refs/tags/main")), false),
            (claims("g", 3), false),
            (gitlab("h"), true),
            (with(gitlab("i"), "pipeline_source", json!("merge_request_event")), false),
            (with(gitlab("j"), "ref_protected", json!("false")), false),
            (with(gitlab("k"), "ref_type", json!("tag")), false),
        ]
        .into_iter()
        .enumerate()
        {
            let body = run(&format!("s{number}"), 2, &["n1-a"]);
            let added = server.with(&issuer.sign("k1", &claims), &body).await;
            assert_eq!((added.status, &added.json()["on_line"]), (201, &json!(on_line)), "{claims}");
        }
    });
}

#[test]
fn a_repository_may_what_any_of_its_rules_allows() {
    served(Limits::default(), false, async |server| {
        let issuer = Issuer::new();
        publish(&server, &[issuer.jwk("k1")]);
        for branches in [&[][..], &["release/*"], &["main"]] {
            rule_for(&server, Provider::GitHub, "74", branches).await;
        }
        let added = server.with(&issuer.sign("k1", &claims("a", 1)), &run("s1", 1, &[])).await;
        assert_eq!((added.status, &added.json()["on_line"]), (201, &json!(true)), "{added:?}");
    });
}

#[test]
fn keys_of_another_origin_are_no_keys() {
    served(Limits::default(), false, async |server| {
        let issuer = Issuer::new();
        rule(&server, Provider::GitHub, "74").await;
        let evil = "https://evil.example.com/jwks";
        {
            let mut others = server.others.lock().unwrap();
            let at = format!("{GITHUB}/.well-known/openid-configuration");
            others.insert(at, json!({ "issuer": GITHUB, "jwks_uri": evil }));
            others.insert(evil.to_owned(), json!({ "keys": [issuer.jwk("k1")] }));
        }
        let token = issuer.sign("k1", &claims("a", 1));
        server.with(&token, &run("s1", 1, &[])).await.is(503, "cannot be found now");
        let log = server.log.lock().unwrap().join("\n");
        assert!(log.contains("names keys of another origin") && !log.contains(&token), "{log}");
    });
}
