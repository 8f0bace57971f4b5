//! Reads secrets, and removes them from texts.

/// The value of a variable that holds a secret; `Err` names the variable.
pub(crate) fn secret(variable: &str) -> Result<String, String> {
    let value = std::env::var(variable).ok().filter(|value| !value.is_empty());
    value.ok_or_else(|| format!("the environment has no variable `{variable}`, or it is empty"))
}

/// Removes secrets from a text of a peer or a library, which may repeat them.
pub(crate) fn without(text: &str, secrets: &[&str]) -> String {
    use base64::Engine as _;
    let mut text = text.to_owned();
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        let encoded = base64::engine::general_purpose::STANDARD.encode(secret);
        text = text.replace(*secret, "***").replace(&encoded, "***");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_a_server_says_repeats_a_secret() {
        let text = without("535 hunter2 is wrong (aHVudGVyMg==)", &["hunter2", ""]);
        assert_eq!(text, "535 *** is wrong (***)");
        // By `printf '\\0ci\\0hunter2' | base64`.
        assert_eq!(without("bad AGNpAGh1bnRlcjI=", &["\0ci\0hunter2"]), "bad ***");
    }
}
