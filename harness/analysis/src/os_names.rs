//! Normalised names of descriptors, threads and mappings, without the parts that differ between runs. So two
//! descriptors of the same kind count as one leak, and its id stays the same in the next run.

use std::collections::BTreeMap;

use memgate_wire::MappedKind;

/// Replaces the removed parts.
const GAP: char = '…';

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

/// A thread's name: `worker-…`.
pub(crate) fn thread(name: &str) -> String {
    without_numbers(name)
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
