//! Posts a message to a chat. The address is a secret: it comes from the environment and is in no message. A response
//! may repeat it, in part or in another form, so only codes of a response are shown.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use hmac::{Hmac, Mac as _};
use memgate_config::{Chat, Webhook};
use memgate_model::RunReport;
use memgate_reports::chat;
use serde_json::{Value, json};
use sha2::Sha256;
use ureq::tls::{Certificate, RootCerts};

use super::certificates::certificates;
use super::context::RunContext;
use super::secret::{secret, without};
use crate::https;
use crate::output::Console;

/// Time limit for one message, including a retry.
const LIMIT: Duration = Duration::from_secs(15);
/// A build does not wait longer than this for a busy chat.
const LONGEST_PAUSE_S: u64 = 10;
/// Maximum bytes read of a response.
const MOST_OF_AN_ANSWER: u64 = 16 << 10;

/// Renders and posts. Failures are warnings. Returns whether it was posted.
pub(super) fn post(report: &RunReport, webhook: &Webhook, context: &RunContext, console: &Console) -> bool {
    let to = match webhook.chat {
        Chat::Slack => chat::Chat::Slack,
        Chat::Teams => chat::Chat::Teams,
        Chat::Lark => chat::Chat::Lark,
    };
    let name = webhook.chat.name();
    let mut message = chat::chat(report, &context.changes, &context.surroundings, to);
    let posted = secret(&webhook.url).and_then(|url| {
        let url = url.trim();
        if let Some(variable) = &webhook.secret {
            sign(&mut message, &secret(variable)?, jiff::Timestamp::now().as_second());
        }
        https::check(url)
            .and_then(|()| send(url, &message, webhook.ca.as_deref()))
            .map_err(|why| without(&why, &[url]))
    });
    match &posted {
        Ok(()) => console.line(&format!("told {name}")),
        Err(why) => console.warning(&format!("{name} was not told (${{{}}}): {why}", webhook.url)),
    }
    posted.is_ok()
}

fn send(url: &str, message: &Value, ca: Option<&Path>) -> Result<(), String> {
    let roots = match ca {
        Some(path) => {
            RootCerts::from(certificates(path)?.iter().map(|der| Certificate::from_der(der).to_owned()))
        }
        None => RootCerts::PlatformVerifier,
    };
    let agent = https::agent(url, LIMIT, roots);
    let mut may_wait = true;
    loop {
        let request = agent.post(url).content_type("application/json");
        let mut answer = request.send(message.to_string()).map_err(|why| https::why(url, &why))?;
        let status = answer.status().as_u16();
        let pause = answer.headers().get("retry-after").and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
        let body =
            answer.body_mut().with_config().limit(MOST_OF_AN_ANSWER).read_to_string().unwrap_or_default();
        match (status, pause) {
            (429, Some(pause)) if may_wait && pause <= LONGEST_PAUSE_S => {
                may_wait = false;
                std::thread::sleep(Duration::from_secs(pause));
            }
            (200..=299, _) => return accepted(&body),
            _ => return Err(refused(status, &body, url)),
        }
    }
}

/// The status, and Slack's code for the reason: `invalid_blocks`.
fn refused(status: u16, body: &str, url: &str) -> String {
    let word = body.trim();
    let is_code = word.len() <= 50 && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let code =
        if is_code && !word.is_empty() && !url.contains(word) { format!(": {word}") } else { String::new() };
    format!("it answered {status}{code}")
}

/// Lark replies 200 to everything; the result is in the body.
fn accepted(body: &str) -> Result<(), String> {
    let answer: Value = serde_json::from_str(body).unwrap_or_default();
    match answer.get("code").and_then(Value::as_i64) {
        None | Some(0) => Ok(()),
        Some(code) => Err(format!("it answered code {code}")),
    }
}

/// Lark's form of a signature: time and secret form the key, and the signed text is empty.
fn sign(message: &mut Value, key: &str, now_s: i64) {
    let Ok(mac) = Hmac::<Sha256>::new_from_slice(format!("{now_s}\n{key}").as_bytes()) else { return };
    message["timestamp"] = json!(now_s.to_string());
    message["sign"] = json!(base64::engine::general_purpose::STANDARD.encode(mac.finalize().into_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By `printf '' | openssl dgst -sha256 -hmac "$(printf '1599360473\nkey')" -binary | base64`.
    #[test]
    fn a_message_for_lark_is_signed() {
        let mut message = json!({});
        sign(&mut message, "key", 1_599_360_473);
        assert_eq!(message["timestamp"], "1599360473");
        assert_eq!(message["sign"], "Dj3J6+l2ORqf/uSfLExhM/QcvBgAfrEeQaFEb4fzUc4=");
    }

    #[test]
    fn an_answer_that_says_no_is_an_error() {
        assert!(accepted("ok").is_ok() && accepted(r#"{"code":0}"#).is_ok());
        let answer = r#"{"code":19021,"msg":"sign match fail"}"#;
        assert_eq!(accepted(answer).unwrap_err(), "it answered code 19021");
    }

    #[test]
    fn of_an_answer_nothing_is_shown_that_may_repeat_the_address() {
        let url = "https://hooks.example.com/services/T000/secret_word?sig=a&b=SeCrEt";
        for (body, want) in [
            ("invalid_blocks\n", "it answered 400: invalid_blocks"),
            ("", "it answered 400"),
            ("secret_word", "it answered 400"),
            ("SeCrEt", "it answered 400"),
            ("Cannot POST /services/T000/secret_word?sig=a&amp;b=SeCrEt", "it answered 400"),
            ("{\"path\":\"\\/services\\/T000\"}", "it answered 400"),
        ] {
            assert_eq!(refused(400, body, url), want);
        }
        assert_eq!(
            accepted(r#"{"code":9499,"msg":"no /hook/SeCrEt"}"#).unwrap_err(),
            "it answered code 9499"
        );
    }
}
