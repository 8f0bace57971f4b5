//! Normalised names of descriptors, threads and mappings, without the parts that differ between runs. So two
//! descriptors of the same kind count as one leak, and its id stays the same in the next run.

use std::collections::BTreeMap;

use memgate_wire::MappedKind;

/// Replaces the removed parts.
const GAP: char = '…';
const GAP_TEXT: &str = "…";

/// A descriptor's target: `socket:[…]`, `/tmp/log…`, `/proc/…/stat`.
pub(crate) fn descriptor(target: &str) -> String {
    let target = target.strip_suffix(" (deleted)").unwrap_or(target);
    if !target.starts_with('/') {
        return without_numbers(target);
    }
    let temporary =
        ["/tmp/", "/var/tmp/", "/dev/shm/", "/proc/", "/memfd:"].iter().any(|t| target.starts_with(t));
    let last = target.matches('/').count();
    let part = |(i, part): (usize, &str)| {
        if temporary {
            without_numbers(&without_random_suffix(part))
        } else if i == last {
            without_numbers(part)
        } else {
            part.to_owned()
        }
    };
    target.split('/').enumerate().map(part).collect::<Vec<_>>().join("/")
}

/// A thread's name: `worker-…`, also if it contains an identity of the run (`HttpClient@3f2a1b4c-12`).
pub(crate) fn thread(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let is_part = |c: char| c.is_ascii_alphanumeric();
    let mut rest = name;
    while !rest.is_empty() {
        let word = rest.find(|c| !is_part(c)).map_or(rest, |end| &rest[..end]);
        let identity = uuid_at_start(rest).or(Some(word).filter(|word| is_identity(word)));
        out.push_str(identity.map_or(word, |_| GAP_TEXT));
        let behind = &rest[identity.unwrap_or(word).len()..];
        let next = behind.find(is_part).unwrap_or(behind.len());
        out.push_str(&behind[..next]);
        rest = &behind[next..];
    }
    without_numbers(&out)
}

/// `550e8400-e29b-41d4-a716-446655440000`, at the start of the text.
fn uuid_at_start(text: &str) -> Option<&str> {
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
    let uuid = text.get(..36)?;
    let are_equal = uuid.split('-').map(str::len).eq(GROUPS);
    let is_hexadecimal = |c: char| c.is_ascii_hexdigit() || c == '-';
    let ends = !text[36..].starts_with(|c: char| c.is_ascii_alphanumeric());
    (are_equal && ends && uuid.chars().all(is_hexadecimal)).then_some(uuid)
}

/// A word that a program made of random bytes or of an object's hash code: seven or more hexadecimal digits, or sixteen
/// or more small letters and digits in turn. The names of people's threads are not like this.
fn is_identity(word: &str) -> bool {
    let has_digit = word.contains(|c: char| c.is_ascii_digit());
    let is_hexadecimal = word.len() >= 7 && word.chars().all(|c| c.is_ascii_hexdigit());
    let runs = word.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty()).count();
    let is_token = word.len() >= 16 && runs >= 2 && !word.contains(|c: char| c.is_ascii_uppercase());
    has_digit && (is_hexadecimal || is_token)
}

/// Name of a kind of mapping.
pub(crate) fn mapped(kind: Option<MappedKind>) -> &'static str {
    match kind {
        Some(MappedKind::Anonymous) => "anonymous memory",
        Some(MappedKind::Shared) => "shared memory",
        Some(MappedKind::File) => "a file",
        Some(MappedKind::Break) => "the program break",
        Some(MappedKind::Segment) => "an attached System V segment",
        Some(MappedKind::Unremoved) => "a System V segment that is not removed",
        None => "memory",
    }
}

/// Each name once with its number of occurrences, sorted.
pub(crate) fn count<N: Ord>(names: impl Iterator<Item = N>) -> Vec<(N, u32)> {
    let mut counts = BTreeMap::<N, u32>::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    counts.into_iter().collect()
}

fn without_numbers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if !c.is_ascii_digit() {
            out.push(c);
        } else if !out.ends_with(GAP) {
            out.push(GAP);
        }
    }
    out
}

/// The six letters and digits that `mkstemp` and `mkdtemp` put at the end of a name.
fn without_random_suffix(part: &str) -> String {
    let bytes = part.as_bytes();
    let Some(at) = bytes.len().checked_sub(6) else { return part.to_owned() };
    let suffix = &bytes[at..];
    let any = |test: fn(&u8) -> bool| suffix.iter().any(test);
    let random = suffix.iter().all(u8::is_ascii_alphanumeric)
        && (any(u8::is_ascii_digit) || any(u8::is_ascii_uppercase) && any(u8::is_ascii_lowercase));
    if random { format!("{}{GAP}", &part[..at]) } else { part.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::OsName;

    /// Names as libraries give them, in two runs.
    #[test]
    fn identities_in_the_name_of_a_thread_make_no_other_thread() {
        for (one, other, name) in [
            ("HttpClient@3f2a1b4c-21", "HttpClient@5e9f23b-7", "HttpClient@…-…"),
            (
                "consumer-550e8400-e29b-41d4-a716-446655440000-worker",
                "consumer-face0000-cafe-4bad-beef-dececafebabe-worker",
                "consumer-…-worker",
            ),
            (
                "cluster-ClusterId{value='65f0c3b1a2d4e5f601234567', description='null'}",
                "cluster-ClusterId{value='65f0c3fffade00f6aabbccdd', description='null'}",
                "cluster-ClusterId{value='…', description='null'}",
            ),
            (
                "Pool[identityToken->z8kfltbmbj6ipn1lzbxqv|4ae8fb2a]-HelperThread-#0",
                "Pool[identityToken->2zrsvub51o6gdkmq0xqh7|7ac7a4e4]-HelperThread-#2",
                "Pool[identityToken->…|…]-HelperThread-#…",
            ),
            ("qtp1234567-12", "qtp7654321-9", "qtp…-…"),
        ] {
            assert_eq!([thread(one), thread(other)], [name, name]);
        }
        for (given, name) in [
            ("pool-1-thread-2", "pool-…-thread-…"),
            ("C3P0PooledConnectionPoolManager", "C…P…PooledConnectionPoolManager"),
            ("vert.x-eventloop-thread-0", "vert.x-eventloop-thread-…"),
            ("h2-feed12 facade", "h…-feed… facade"),
            ("überwachung-7é", "überwachung-…é"),
            ("", ""),
        ] {
            assert_eq!(thread(given), name);
        }
    }

    #[test]
    fn takes_out_what_differs_from_run_to_run() {
        let cases = [
            ("socket:[12345]", "socket:[…]"),
            ("anon_inode:[eventfd]", "anon_inode:[eventfd]"),
            ("/tmp/x123", "/tmp/x…"),
            ("/tmp/cacheQw3rTy/part", "/tmp/cache…/part"),
            ("/tmp/session", "/tmp/session"),
            ("/var/log/app.7.log (deleted)", "/var/log/app.….log"),
            (
                "/usr/lib/x86_64-linux-gnu/gconv/gconv-modules.cache",
                "/usr/lib/x86_64-linux-gnu/gconv/gconv-modules.cache",
            ),
            ("/proc/4711/stat", "/proc/…/stat"),
            ("/dev/null", "/dev/null"),
            ("/tmp/naïveté", "/tmp/naïveté"),
            ("", ""),
        ];
        for (target, expected) in cases {
            assert_eq!(descriptor(target), expected, "{target}");
        }
        assert_eq!(thread("worker-12"), "worker-…");
    }

    #[test]
    fn counts_each_name_and_origin() {
        let named = |(name, stack): (&str, u32)| OsName { name: name.to_owned(), stack };
        let names = [("b", 1), ("a", 1), ("b", 1), ("b", 2)].map(named).into_iter();
        assert_eq!(count(names), [(named(("a", 1)), 1), (named(("b", 1)), 2), (named(("b", 2)), 1)]);
    }
}
