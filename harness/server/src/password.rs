//! Passwords: how they are stored and checked.
//!
//! Argon2id with 19 MiB, two passes and one lane: the minimum that OWASP recommends. A generated password has 119
//! random bits.

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use argon2::{Algorithm, Argon2, Params, Version};
use rustix::io::Errno;

use crate::token;

/// Fewest characters of a password that a person chooses.
pub const SHORTEST: usize = 12;
/// Most bytes of a password.
pub(crate) const LONGEST: usize = 256;
const MADE: usize = 20;
const SALT: usize = 16;
/// Hash to compare with if there is no account, so that the check takes as long.
const NOBODY: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5bm9ib2R5bm8$Yq7mC0Wd0zFbNnF0J2mE0aVwLJX5vB1m8Y9jSdq0m3I";

/// Why a password cannot be stored.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    /// No random bytes.
    #[error("the system gives no random bytes")]
    Random(#[from] Errno),
    /// Too short or too long.
    #[error("a password has {SHORTEST} characters or more, and {LONGEST} bytes at most")]
    Length,
    /// It cannot be hashed.
    #[error("it cannot be hashed: {0}")]
    Hash(argon2::password_hash::Error),
}

/// A new random password.
///
/// # Errors
/// The system gives no random bytes.
pub fn random() -> Result<String, PasswordError> {
    Ok(token::random(MADE)?)
}

/// Hash of a password, to be stored.
///
/// # Errors
/// It is too short or too long, or the system gives no random bytes.
pub fn hash(password: &str) -> Result<String, PasswordError> {
    if password.chars().count() < SHORTEST || password.len() > LONGEST {
        return Err(PasswordError::Length);
    }
    let salt = token::random(SALT)?;
    let hashed = argon2().hash_password_with_salt(password.as_bytes(), salt.as_bytes());
    Ok(hashed.map_err(PasswordError::Hash)?.to_string())
}

/// Does the password match the stored hash? `None`: there is no such account; the check takes as long.
pub(crate) fn is_right(password: &str, kept: Option<&str>) -> bool {
    let is_right = PasswordHash::new(kept.unwrap_or(NOBODY))
        .is_ok_and(|hash| argon2().verify_password(password.as_bytes(), &hash).is_ok());
    is_right && kept.is_some()
}

fn argon2() -> Argon2<'static> {
    Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_password_itself_is_right() {
        let password = random().unwrap();
        let kept = hash(&password).unwrap();
        assert!(kept.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{kept}");
        assert_ne!(kept, hash(&password).unwrap(), "each has a salt of its own");
        assert!(is_right(&password, Some(&kept)));
        for wrong in ["", "x", &password.to_lowercase(), &format!("{password} ")] {
            assert!(!is_right(wrong, Some(&kept)), "{wrong}");
        }
        assert!(!is_right(&password, None) && !is_right(&password, Some("$argon2id$")));
        assert!(PasswordHash::new(NOBODY).is_ok(), "it is hashed, too");
    }

    #[test]
    fn short_and_long_passwords_are_refused() {
        for password in ["", "elevenchars", &"x".repeat(257)] {
            assert!(matches!(hash(password), Err(PasswordError::Length)), "{password}");
        }
        assert!(hash("ä twelve cha").is_ok());
    }
}
