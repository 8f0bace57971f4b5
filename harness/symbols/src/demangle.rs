//! Turns linker names into readable and stable names.
//!
//! Suffixes that a compiler adds when it clones a function (`.constprop.0`, `.cold`) are dropped, and so is Rust's
//! hash: they change from build to build. A name that would grow beyond [`MAX_NAME`] is cut: a hostile name of a
//! hundred bytes can expand to gigabytes.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, Symbol};

/// Longest name returned, in bytes, without the ellipsis. Template names of a few kilobytes are real.
const MAX_NAME: usize = 8192;

/// Suffixes that GCC and LLVM append to the name of a function they cloned, split or moved.
const CLONE_SUFFIXES: [&str; 8] =
    [".constprop.", ".isra.", ".part.", ".cold", ".lto_priv.", ".llvm.", ".localalias", ".clone."];

/// The readable form of `name`, which may be from C, C++ or Rust.
pub(crate) fn readable(name: &str) -> String {
    let name = without_clone_suffix(name);
    let mut out = Bounded(String::new());
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        out.keep(format_args!("{rust:#}"));
    } else if name.starts_with("_Z")
        && let Ok(cpp) = Symbol::new(name)
    {
        // Done only with this prefix, because the demangler reads the C variable `s` as the type `short`. The only
        // error here is our own limit: the text up to it is the result.
        let _at_the_limit = cpp.structured_demangle(&mut out, &DemangleOptions::new());
    }
    if out.0.is_empty() {
        out.keep(format_args!("{name}"));
    }
    out.0
}

fn without_clone_suffix(name: &str) -> &str {
    let ends = CLONE_SUFFIXES.iter().filter_map(|suffix| name.find(suffix));
    match ends.min() {
        Some(end) if end > 0 => name.get(..end).unwrap_or(name),
        _ => name,
    }
}

/// Accepts text up to the limit and then returns an error, which stops the writer.
struct Bounded(String);

impl Bounded {
    fn keep(&mut self, text: fmt::Arguments<'_>) {
        // As above: the only error is the limit.
        let _at_the_limit = self.write_fmt(text);
    }
}

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MAX_NAME.saturating_sub(self.0.len());
        if text.len() <= room {
            self.0.push_str(text);
            return Ok(());
        }
        let fits = text.char_indices().map(|(at, _)| at).take_while(|at| *at <= room).last();
        self.0.push_str(fits.and_then(|end| text.get(..end)).unwrap_or_default());
        self.0.push('…');
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_three_languages_become_readable() {
        let cases = [
            ("main", "main"),
            ("_ZN5leaks10lose_arrayEv", "leaks::lose_array()"),
            ("_ZN5leaks9Guestbook8rememberEPKc", "leaks::Guestbook::remember(char const*)"),
            ("_ZN12_GLOBAL__N_14loadEi", "(anonymous namespace)::load(int)"),
            ("_ZN5tiles4load17h0123456789abcdefE", "tiles::load"),
            ("_RNvCs1234_5tiles4load", "tiles::load"),
            ("_Znot a mangled name", "_Znot a mangled name"),
            ("s", "s"),
            ("i", "i"),
            ("", ""),
        ];
        for (raw, expected) in cases {
            assert_eq!(readable(raw), expected, "{raw}");
        }
    }

    #[test]
    fn clones_are_called_like_their_function() {
        let cases = [
            ("_ZN5leaks10lose_arrayEv.constprop.0", "leaks::lose_array()"),
            ("_ZN5leaks10lose_arrayEv.part.0.cold", "leaks::lose_array()"),
            ("parse.isra.0", "parse"),
            ("_ZN5tiles4load17h0123456789abcdefE.llvm.4711", "tiles::load"),
            (".cold", ".cold"),
        ];
        for (raw, expected) in cases {
            assert_eq!(readable(raw), expected, "{raw}");
        }
    }

    /// `f(T<A>, T<T<A>, T<A>>, …)`: each parameter contains the one before it twice, so the last of 60 contains 2^60
    /// names.
    #[test]
    fn a_name_that_explodes_is_cut() {
        let digits = "123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ".chars().map(String::from);
        let numbers = digits.chain(
            (10..35).map(|n| format!("1{}", char::from(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[n - 10]))),
        );
        let raw = numbers.fold("_Z1f1TI1AE".to_owned(), |raw, n| raw + &format!("S_IS{n}_S{n}_E"));
        let name = readable(&raw);
        assert!(name.starts_with("f(T<A>, T<T<A>, T<A> >, "), "{name}");
        assert_eq!(name.len(), MAX_NAME + '…'.len_utf8());
    }

    #[test]
    fn a_long_plain_name_is_cut_between_characters() {
        let name = readable(&"ü".repeat(MAX_NAME));
        assert_eq!(name.len(), MAX_NAME + '…'.len_utf8());
        assert!(name.ends_with("ü…"));
    }
}
