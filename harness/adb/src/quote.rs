//! Command lines for the device's shell (mksh): [`quote`] must be applied to every word.
//!
//! adb joins words with blanks and does not quote them, so `$`, `'` and blanks must be protected from the shell here.

use std::borrow::Cow;

/// Quotes one word, so that the shell reads exactly this word.
#[must_use]
pub fn quote(word: &str) -> Cow<'_, str> {
    let plain = |b: u8| {
        b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'/' | b':' | b'@' | b'%' | b'+' | b',' | b'-')
    };
    if !word.is_empty() && word.bytes().all(plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", word.replace('\'', r"'\''")))
}

/// A command line of these words.
#[must_use]
pub fn command(words: &[&str]) -> String {
    words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")
}

/// A command line that runs as an app (which must be debuggable), in its data folder.
#[must_use]
pub fn run_as(package: &str, user: Option<u32>, words: &[&str]) -> String {
    let user = user.map(|user| user.to_string());
    let mut all = vec!["run-as", package];
    if let Some(user) = &user {
        all.extend(["--user", user]);
    }
    all.extend(words);
    command(&all)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const WORDS: [&str; 19] = [
        "plain",
        "",
        " ",
        "it's",
        "'",
        "''",
        "a\"b",
        "Outer$Inner",
        "$(id)",
        "`id`",
        "a;b",
        "*",
        "~",
        "a\nb",
        "\\",
        "-n",
        "a=b",
        "#x",
        "naïve…",
    ];

    #[test]
    fn a_shell_reads_back_every_word() {
        let line = format!("printf '%s\\0' {}", command(&WORDS));
        for shell in ["sh", "bash"] {
            let output = Command::new(shell).args(["-c", &line]).output().unwrap();
            let read: Vec<_> =
                output.stdout.split(|b| *b == 0).map(|w| std::str::from_utf8(w).unwrap()).collect();
            assert_eq!(&read[..WORDS.len()], WORDS, "{shell}");
        }
    }

    #[test]
    fn plain_words_stay_readable() {
        assert_eq!(
            command(&["cp", "/data/local/tmp/a-1.so", "it's"]),
            r"cp /data/local/tmp/a-1.so 'it'\''s'"
        );
        assert_eq!(run_as("com.x", None, &["ls", "code_cache"]), "run-as com.x ls code_cache");
        assert_eq!(run_as("com.x", Some(10), &["id"]), "run-as com.x --user 10 id");
    }
}
