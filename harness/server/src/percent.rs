//! Percent-encoding: names of projects, tests, branches and files may contain any character.

/// Encodes a text as one segment of a path, or one value of a query.
#[must_use]
pub fn encoded(text: &str) -> String {
    let dots = text.bytes().all(|byte| byte == b'.');
    all_but(text, if dots { b"" } else { b"-._~" })
}

/// Encodes a path for a URL.
pub(crate) fn encoded_path(path: &str) -> String {
    all_but(path, b"/._-")
}

fn all_but(text: &str, plain: &[u8]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || plain.contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_slashes_stays_one_part_of_the_path() {
        assert_eq!(encoded("maps/tiles ä?#%"), "maps%2Ftiles%20%C3%A4%3F%23%25");
        assert_eq!(
            (encoded("..").as_str(), encoded("a.b").as_str()),
            ("%2E%2E", "a.b"),
            "a folder above is none"
        );
    }

    #[test]
    fn odd_paths_are_no_parameters() {
        assert_eq!(encoded_path("/home/o'n ?mode=ro%#/ä.db"), "/home/o%27n%20%3Fmode%3Dro%25%23/%C3%A4.db");
    }
}
