//! The text of a token, which allows a CI job to upload.
//!
//! `mgt_`, 8 characters of an id that may be shown, 43 random ones (256 bits), and a checksum of 6. Secret scanners
//! find the prefix. The checksum distinguishes a badly copied token from an unknown one. Only the digest is stored.

use std::fmt;

use flate2::Crc;
use memgate_history::sha256_hex;
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Prefix of every token.
const PREFIX: &str = "mgt_";
const ID: usize = 8;
const SECRET: usize = 43;
const CHECKSUM: usize = 6;
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A token. Its text is shown once and never again.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.id())
    }
}

impl Token {
    /// Creates a token from random bytes of the system.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn random() -> Result<Self, Errno> {
        let text = random(ID + SECRET)?;
        let checksum = checksum(&text);
        Ok(Self(format!("{PREFIX}{text}{checksum}")))
    }

    /// Parses a token; `None`: the text is not a token, or was not copied in full.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(PREFIX).filter(|rest| rest.len() == ID + SECRET + CHECKSUM)?;
        let (random, sum) = rest.split_at_checked(ID + SECRET)?;
        (rest.bytes().all(|byte| ALPHABET.contains(&byte)) && checksum(random) == sum)
            .then(|| Self(text.to_owned()))
    }

    /// Its id, which may be shown.
    #[must_use]
    pub fn id(&self) -> &str {
        self.0.get(PREFIX.len()..PREFIX.len() + ID).unwrap_or_default()
    }

    /// The whole token: a secret.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// Digest to be stored. A fast hash is enough: 256 random bits cannot be guessed.
    #[must_use]
    pub fn digest(&self) -> String {
        sha256_hex(self.0.as_bytes())
    }
}

/// Random characters, each equally likely.
pub(crate) fn random(length: usize) -> Result<String, Errno> {
    let fair = u8::MAX - u8::MAX % 62;
    let mut text = String::with_capacity(length);
    let mut bytes = [0; 64];
    while text.len() < length {
        let filled = getrandom(&mut bytes, GetRandomFlags::empty())?;
        let usable = bytes.iter().take(filled).filter(|byte| **byte < fair);
        let characters = usable.filter_map(|byte| ALPHABET.get(usize::from(byte % 62)));
        text.extend(characters.take(length - text.len()).map(|byte| char::from(*byte)));
    }
    Ok(text)
}

fn checksum(text: &str) -> String {
    let mut crc = Crc::new();
    crc.update(text.as_bytes());
    let mut left = crc.sum();
    let mut digits = [b'0'; CHECKSUM];
    for digit in digits.iter_mut().rev() {
        if let Some(character) = ALPHABET.get((left % 62) as usize) {
            *digit = *character;
        }
        left /= 62;
    }
    digits.iter().map(|byte| char::from(*byte)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_back_and_its_secret_is_in_no_debug_output() {
        let token = Token::random().unwrap();
        assert_eq!(token.secret().len(), 61);
        assert_eq!(Token::parse(token.secret()), Some(token.clone()));
        assert_eq!(format!("{token:?}"), format!("Token({})", &token.secret()[4..12]));
        assert_ne!(token.digest(), Token::random().unwrap().digest());
    }

    #[test]
    fn every_changed_character_and_every_cut_is_seen() {
        let token = Token::random().unwrap();
        let text = token.secret();
        for at in 0..text.len() {
            assert_eq!(Token::parse(&text[..at]), None);
            let mut changed = text.as_bytes().to_vec();
            changed[at] = if changed[at] == b'x' { b'y' } else { b'x' };
            assert_eq!(Token::parse(&String::from_utf8(changed).unwrap()), None, "character {at}");
        }
        for text in ["", "mgt_", &format!("{text}0"), &text.replace("mgt_", "ghp_"), &"ä".repeat(31)] {
            assert_eq!(Token::parse(text), None, "{text}");
        }
    }
}
