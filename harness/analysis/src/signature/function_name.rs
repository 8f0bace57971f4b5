//! Normalises a function's name: removes what a compiler, a standard library or an overload may change.
//!
//! Removed: return type, parameters, template and generic arguments, ABI tags, clone suffixes, numbers of lambdas and
//! closures, Rust's hashes. What remains is the qualified name: `MapCache::insert`, `go::{lambda}::operator()`. Names
//! come from files: any text gives a result, in time linear to its length.

/// Longer names are cut: names that differ only after this need not be distinguished.
const MAX_BYTES: usize = 4096;
/// Maximum depth of nested `<A as B>` in Rust names.
const MAX_NESTING: u32 = 8;
const OPERATORS: [&str; 17] = [
    "()",
    "[]",
    "<=>",
    "<<=",
    ">>=",
    "->*",
    "->",
    "<<",
    ">>",
    "<=",
    ">=",
    "<",
    ">",
    " new[]",
    " new",
    " delete[]",
    " delete",
];

/// The normalised name of a demangled function.
pub(crate) fn normalised(function: &str) -> String {
    let end = (0..=function.len().min(MAX_BYTES)).rev().find(|at| function.is_char_boundary(*at));
    let cut = &function[..end.unwrap_or(0)];
    let name = qualified(cut, 0);
    let name = without_rust_hash(without_clone_suffix(&name));
    if name.is_empty() { cut.to_owned() } else { name.to_owned() }
}

fn qualified(text: &str, nesting: u32) -> String {
    let mut out = String::new();
    let mut rest = text;
    let mut after_parameters = false;
    while let Some(c) = rest.chars().next() {
        let begins = out.is_empty() || out.ends_with("::");
        let (consumed, now_after_parameters) = match c {
            '(' if rest.starts_with("(anonymous namespace)") => {
                out.push_str("(anonymous namespace)");
                ("(anonymous namespace)".len(), false)
            }
            '(' => (closed(rest, '(', ')'), out != "decltype"),
            '<' if begins => (push_bracketed(&mut out, rest, nesting), false),
            '<' => (closed_angle(rest), after_parameters),
            '[' => (closed(rest, '[', ']'), after_parameters),
            '{' => (push_braced(&mut out, rest), false),
            '\'' if rest.starts_with("'lambda") => {
                out.push_str("{lambda}");
                (1 + rest[1..].find('\'').map_or(rest.len() - 1, |at| at + 1), false)
            }
            '$' if rest.starts_with("$_") => {
                out.push_str("{lambda}");
                (2 + rest[2..].bytes().take_while(u8::is_ascii_digit).count(), false)
            }
            ' ' => {
                let next = rest.trim_start();
                if after_parameters {
                    // `const`, `&&`: this is the end, unless something local to the function follows.
                    let Some(local) = rest.find("::").filter(|at| is_qualifier(&rest[..*at])) else { break };
                    (local, false)
                } else if next.starts_with("[clone") || next.starts_with("(.") {
                    break;
                } else {
                    // The text before was a return type, or `non-virtual thunk to`.
                    out.clear();
                    (rest.len() - next.len(), false)
                }
            }
            'o' if is_operator(&out, rest) => (push_operator(&mut out, rest), false),
            _ => {
                out.push(c);
                (c.len_utf8(), false)
            }
        };
        after_parameters = now_after_parameters;
        rest = &rest[consumed..];
    }
    out
}

fn is_qualifier(text: &str) -> bool {
    text.split_whitespace().all(|word| matches!(word, "const" | "volatile" | "&" | "&&" | "noexcept"))
}

/// Number of bytes up to and including the bracket that closes the first one of `text`. The whole length if none does.
fn closed(text: &str, open: char, close: char) -> usize {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        if c == open {
            depth += 1;
        } else if c == close {
            depth -= 1;
            if depth == 0 {
                return at + 1;
            }
        }
    }
    text.len()
}

/// The same for `<…>`. It ignores `->` and everything in parentheses.
fn closed_angle(text: &str) -> usize {
    let (mut depth, mut parentheses, mut previous) = (0_usize, 0_usize, ' ');
    for (at, c) in text.char_indices() {
        match c {
            '(' => parentheses += 1,
            ')' => parentheses = parentheses.saturating_sub(1),
            '<' if parentheses == 0 => depth += 1,
            '>' if parentheses == 0 && previous != '-' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
        previous = c;
    }
    text.len()
}

/// Handles `<lambda(int)>` of GCC's debug information, and `<T>` and `<T as Trait>` of Rust.
fn push_bracketed(out: &mut String, rest: &str, nesting: u32) -> usize {
    let end = closed_angle(rest);
    if rest.starts_with("<lambda") {
        out.push_str("{lambda}");
    } else if nesting < MAX_NESTING {
        let inner = rest[1..end].strip_suffix('>').unwrap_or(&rest[1..end]);
        out.push_str(&qualified(before_as(inner), nesting + 1));
    }
    end
}

/// Returns `T` of `T as Trait`. `T` may contain brackets.
fn before_as(text: &str) -> &str {
    let mut depth = 0_i32;
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            ' ' if depth == 0 && text[at..].starts_with(" as ") => return &text[..at],
            _ => {}
        }
    }
    text
}

/// Handles `{lambda(int)#2}`, `{unnamed type#1}`, `{{closure}}`, `{closure#0}`: keeps the kind without its number.
fn push_braced(out: &mut String, rest: &str) -> usize {
    let end = closed(rest, '{', '}');
    let inner = rest[..end].trim_matches(['{', '}']);
    let head = inner.split(['#', '(']).next().unwrap_or(inner);
    out.push('{');
    out.push_str(head);
    out.push('}');
    end
}

fn is_operator(out: &str, rest: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    !out.ends_with(is_word) && rest.strip_prefix("operator").is_some_and(|next| !next.starts_with(is_word))
}

fn push_operator(out: &mut String, rest: &str) -> usize {
    let word = "operator".len();
    let symbol = &rest[word..];
    let symbol = OPERATORS
        .into_iter()
        .find(|o| symbol.starts_with(o))
        .unwrap_or_else(|| symbol.find(['(', '<']).map_or(symbol, |at| &symbol[..at]));
    out.push_str("operator");
    out.push_str(symbol);
    let consumed = word + symbol.len();
    // `operator<< <char>`: the space belongs to the template arguments.
    consumed + usize::from(rest[consumed..].starts_with(" <"))
}

/// `.isra.0`, `.part.0`, `.constprop.0`, `.cold`, `.llvm.123`, also several of them.
fn without_clone_suffix(name: &str) -> &str {
    const SUFFIXES: [&str; 8] =
        ["isra", "part", "constprop", "cold", "llvm", "lto_priv", "localalias", "cfi"];
    let mut name = name;
    while let Some((head, tail)) = name.rsplit_once('.') {
        let number = !tail.is_empty() && tail.bytes().all(|b| b.is_ascii_digit());
        if head.is_empty() || !(number || SUFFIXES.contains(&tail)) {
            break;
        }
        name = head;
    }
    name
}

/// `::h0123456789abcdef`, the hash of Rust's legacy mangling.
fn without_rust_hash(name: &str) -> &str {
    let Some((head, tail)) = name.rsplit_once("::h") else { return name };
    let is_hash = tail.len() == 16 && tail.bytes().all(|b| b.is_ascii_hexdigit());
    if is_hash { head } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_qualified_name_alone() {
        let cases = [
            ("leak", "leak"),
            ("MapCache::insert(Tile const&)", "MapCache::insert"),
            ("MapCache::size() const", "MapCache::size"),
            ("Foo::~Foo()", "Foo::~Foo"),
            ("std::vector<int, std::allocator<int> >::push_back(int const&)", "std::vector::push_back"),
            ("void foo<int>(int)", "foo"),
            ("std::vector<int, std::allocator<int> > make<int>(int)", "make"),
            ("unsigned long const& pick(unsigned long const&)", "pick"),
            ("decltype(auto) visit<int>(int)", "visit"),
            ("non-virtual thunk to Foo::bar()", "Foo::bar"),
            ("(anonymous namespace)::leak(int)", "(anonymous namespace)::leak"),
            ("void (anonymous namespace)::leak<int>(int)", "(anonymous namespace)::leak"),
            (
                "testing::internal::FunctionMocker<void (int)>::Invoke(int)",
                "testing::internal::FunctionMocker::Invoke",
            ),
            ("Grid<(1>2)>::at(int)", "Grid::at"),
            ("name[abi:cxx11](int)", "name"),
        ];
        for (function, expected) in cases {
            assert_eq!(normalised(function), expected, "{function}");
        }
    }

    #[test]
    fn operators_keep_their_symbol() {
        let cases = [
            ("operator new(unsigned long)", "operator new"),
            ("operator new[](unsigned long, std::nothrow_t const&)", "operator new[]"),
            ("Foo::operator()(int) const", "Foo::operator()"),
            ("Foo::operator[](unsigned long)", "Foo::operator[]"),
            ("std::ostream& operator<< <char>(std::ostream&, char)", "operator<<"),
            ("bool operator< <int>(A<int> const&, A<int> const&)", "operator<"),
            ("Ptr<int>::operator->() const", "Ptr::operator->"),
            ("Foo::operator bool() const", "Foo::operator bool"),
            ("Foo::operator==(Foo const&) const", "Foo::operator=="),
            ("my_operator(int)", "my_operator"),
            ("operators::run()", "operators::run"),
        ];
        for (function, expected) in cases {
            assert_eq!(normalised(function), expected, "{function}");
        }
    }

    #[test]
    fn lambdas_and_closures_lose_their_number_and_the_compilers_dialect() {
        let cases = [
            "go()::{lambda(int)#2}::operator()(int) const",
            "go()::{lambda(int)#11}::operator()(int) const",
            "go()::'lambda'(int)::operator()(int) const",
            "go()::'lambda0'(int)::operator()(int) const",
            "go()::$_0::operator()(int) const",
            "go()::<lambda(int)>::operator()(int) const",
            "go::<lambda(int)>::operator()",
            "go() const::{lambda(int)#1}::operator()(int) const",
            "auto go()::{lambda(auto:1)#1}::operator()<int>(int) const",
        ];
        for function in cases {
            assert_eq!(normalised(function), "go::{lambda}::operator()", "{function}");
        }
        assert_eq!(normalised("go(int)::Local::run()"), "go::Local::run");
        assert_eq!(normalised("app::load::{{closure}}"), "app::load::{closure}");
        assert_eq!(normalised("app::load::{closure#3}"), "app::load::{closure}");
    }

    #[test]
    fn clone_suffixes_and_hashes_go() {
        let cases = [
            "leak.isra.0",
            "leak.part.0.constprop.12",
            "leak.cold",
            "leak(int) [clone .isra.0]",
            "leak [clone .cold]",
            "leak(int) (.cold)",
            "leak.llvm.1234567890",
        ];
        for function in cases {
            assert_eq!(normalised(function), "leak", "{function}");
        }
        assert_eq!(normalised("app::leak::h0123456789abcdef"), "app::leak");
        assert_eq!(normalised("app::leak::hash"), "app::leak::hash");
        let from_iter = "<alloc::vec::Vec<T> as alloc::vec::spec::SpecFromIter<T, I>>::from_iter";
        assert_eq!(normalised(from_iter), "alloc::vec::Vec::from_iter");
        assert_eq!(normalised("<app::Cache<K, V>>::get"), "app::Cache::get");
    }

    #[test]
    fn hostile_names_have_a_result() {
        for function in [
            "",
            " ",
            "(",
            "<",
            "<<<<",
            ")>",
            "operator",
            "operator<",
            "'lambda",
            "$_",
            "{",
            "[",
            "::",
            "a b ",
        ] {
            let _any = normalised(function);
        }
        let nested = "<".repeat(100_000);
        assert!(normalised(&nested).len() <= MAX_BYTES);
    }

    proptest::proptest! {
        #[test]
        fn any_text_has_a_result(function in "[a-z<>(){}\\[\\]' $_:#.é]{0,60}") {
            let _any = normalised(&function);
        }
    }
}
