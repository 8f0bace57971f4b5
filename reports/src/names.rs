//! Readable names of functions: `std::string`, and no default arguments of the standard library's templates.

use std::borrow::Cow;

use memgate_model::Frame;

use crate::visible::visible;

/// Template arguments that are nested deeper are not changed.
const DEEPEST: usize = 64;
/// Default arguments of the standard library, left out at the end of a template's arguments.
const DEFAULTS: [&str; 7] = [
    "std::allocator<",
    "std::char_traits<",
    "std::less<",
    "std::hash<",
    "std::equal_to<",
    "std::default_delete<",
    "std::pmr::polymorphic_allocator<",
];

/// The function of a frame; without one, its offset in its module, in the form that `addr2line` takes.
pub(crate) fn of_frame(frame: &Frame) -> String {
    match &frame.function {
        Some(function) => visible(&readable(function)).into_owned(),
        None => in_module(frame),
    }
}

/// `libtiles.so+0x4a20`
pub(crate) fn in_module(frame: &Frame) -> String {
    format!("{}+{:#x}", visible(&frame.module), frame.offset)
}

/// `load(std::string)` for `load(std::__cxx11::basic_string<char, std::char_traits<char>,
/// std::allocator<char> >)`.
#[must_use]
pub fn readable(name: &str) -> Cow<'_, str> {
    if !name.contains("std::") {
        return Cow::Borrowed(name);
    }
    let flat = ["std::__cxx11::", "std::__1::", "std::__ndk1::"]
        .iter()
        .fold(name.to_owned(), |name, inline| name.replace(inline, "std::"))
        .replace("[abi:cxx11]", "");
    let mut rest = flat.as_str();
    match rewritten(&mut rest, 0) {
        Some(short) if rest.is_empty() => Cow::Owned(short),
        _ => Cow::Owned(flat),
    }
}

/// Rewrites up to the `,` or `>` that ends this argument, or the end of the text; `None`: the brackets do not match.
fn rewritten(rest: &mut &str, depth: usize) -> Option<String> {
    let mut text = String::new();
    let mut round = 0_usize;
    while let Some(c) = rest.chars().next() {
        let token = operator(rest).unwrap_or(&rest[..c.len_utf8()]);
        match token {
            "<" => {
                *rest = &rest[1..];
                let arguments = arguments(rest, depth + 1)?;
                with_arguments(&mut text, arguments);
                continue;
            }
            // Commas between parameters do not separate arguments.
            ">" | "," if depth > 0 && round == 0 => break,
            ">" => return None,
            "(" | "{" | "[" => round += 1,
            ")" | "}" | "]" => round = round.checked_sub(1)?,
            _ => {}
        }
        text.push_str(token);
        *rest = &rest[token.len()..];
    }
    Some(text)
}

/// The arguments of a template: its `<` has been read, and at the end its `>` too.
fn arguments(rest: &mut &str, depth: usize) -> Option<Vec<String>> {
    if depth > DEEPEST {
        return None;
    }
    let mut arguments = Vec::new();
    loop {
        arguments.push(rewritten(rest, depth)?.trim().to_owned());
        let ends = rest.starts_with('>');
        *rest = rest.get(1..)?;
        if ends {
            return Some(arguments);
        }
    }
}

fn with_arguments(text: &mut String, mut arguments: Vec<String>) {
    let template =
        text.rfind(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).map_or(0, |at| at + 1);
    if let Some(name) = text[template..].strip_prefix("std::") {
        let of_characters = match arguments.first().map(String::as_str) {
            Some("char") => Some(""),
            Some("wchar_t") => Some("w"),
            Some("char8_t") => Some("u8"),
            Some("char16_t") => Some("u16"),
            Some("char32_t") => Some("u32"),
            _ => None,
        };
        if let (Some(kind), Some(prefix)) = (name.strip_prefix("basic_"), of_characters) {
            let short = format!("std::{prefix}{kind}");
            text.replace_range(template.., &short);
            return;
        }
        let is_default = |argument: &String| DEFAULTS.iter().any(|default| argument.starts_with(default));
        while arguments.len() > 1 && arguments.last().is_some_and(is_default) {
            arguments.pop();
        }
    }
    *text += &format!("<{}>", arguments.join(", "));
}

/// Whether a Java method is part of the JDK, or of the library of a language: it allocates for its caller.
pub(crate) fn is_of_platform(method: &str) -> bool {
    ["java.", "javax.", "jdk.", "sun.", "com.sun."].iter().any(|package| method.starts_with(package))
        || memgate_model::is_of_language(method)
}

/// Only the name of a function: `MapCache::insert` for `void MapCache::insert<int>(Tile const&)`.
#[must_use]
pub fn short(function: &str) -> String {
    // The names of a Java constructor and of a static initialiser look like template arguments.
    if function.ends_with(".<init>") || function.ends_with(".<clinit>") {
        return function.to_owned();
    }
    let readable = readable(function);
    let bare = without_template_arguments(&readable, "").unwrap_or_else(|| readable.clone().into_owned());
    let bare = bare.replace("(anonymous namespace)::", "");
    let bare = without_parameters(bare.split(" [clone").next().unwrap_or_default());
    let called = bare.rfind("operator()").map_or(0, |at| at + "operator()".len());
    let end = bare[called..].find('(').map_or(bare.len(), |at| called + at);
    let name = bare[..end].trim();
    // The full name of a template instance begins with its return type.
    let begin = match name.find("operator") {
        Some(operator) => name[..operator].rfind(' '),
        None => name.rfind(' '),
    };
    let name = begin.map_or(name, |at| &name[at + 1..]).trim_start_matches(['*', '&']);
    if name.is_empty() || name.starts_with("::") { readable.into_owned() } else { name.to_owned() }
}

/// `Registry::collect::{lambda#1}::operator()()` for `Registry::collect(int) const::{lambda(int)#1}::operator()()`.
fn without_parameters(name: &str) -> String {
    let mut short = String::new();
    let mut rest = name;
    while let Some(at) = rest.find('(') {
        let mut depth = 0_usize;
        let closes = rest[at..].char_indices().find(|(_, c)| {
            depth = if *c == '(' { depth + 1 } else { depth - usize::from(*c == ')') };
            depth == 0
        });
        let Some((closes, _)) = closes else { break };
        let (parameters, after) = rest[at..].split_at(closes + 1);
        short += &rest[..at];
        let next = after.trim_start();
        let qualifier = ["const", "volatile", "&&", "&"].into_iter().find(|word| next.starts_with(word));
        let local = next.strip_prefix(qualifier.unwrap_or_default()).filter(|next| next.starts_with("::"));
        rest = match local.filter(|_| !short.ends_with("operator")) {
            Some(local) => local,
            None => {
                // The parameters of a lambda come before its number.
                short += if after.starts_with('#') { "" } else { parameters };
                after
            }
        };
    }
    short + rest
}

/// `Loader<…>::load()` for `Loader<std::map<int, Tile>>::load()`, if `instead` is `<…>`; `None`: the brackets do not
/// match.
pub(crate) fn without_template_arguments(name: &str, instead: &str) -> Option<String> {
    let mut short = String::new();
    let mut depth = 0_usize;
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let token = operator(rest).unwrap_or(&rest[..c.len_utf8()]);
        rest = &rest[token.len()..];
        match token {
            "<" => {
                depth += 1;
                if depth == 1 {
                    short.push_str(instead);
                }
            }
            ">" => depth = depth.checked_sub(1)?,
            _ if depth == 0 => short.push_str(token),
            _ => {}
        }
    }
    (depth == 0).then_some(short)
}

/// The operator whose name is at the start of `text`: its angle brackets are not template arguments.
fn operator(text: &str) -> Option<&str> {
    const SYMBOLS: [&str; 11] = ["->*", "<<=", ">>=", "<=>", "->", "<<", ">>", "<=", ">=", "<", ">"];
    if let Some(symbol) = text.strip_prefix("operator") {
        let known = SYMBOLS.into_iter().find(|known| symbol.starts_with(known))?;
        return text.get(.."operator".len() + known.len());
    }
    // This is an arrow in a trailing return type or a Rust signature.
    text.starts_with("->").then(|| &text[..2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_library_is_named_as_people_write_it() {
        for (name, said) in [
            ("parse(char const*)", "parse(char const*)"),
            (
                "load(std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > const&, int)",
                "load(std::string const&, int)",
            ),
            (
                "std::map<int, std::vector<Tile, std::allocator<Tile> >, std::less<int>, std::allocator<std::pair<int const, std::vector<Tile, std::allocator<Tile> > > > >::operator[](int const&)",
                "std::map<int, std::vector<Tile>>::operator[](int const&)",
            ),
            (
                "std::basic_ostream<char, std::char_traits<char> >& std::operator<< <char>(x)",
                "std::ostream& std::operator<< <char>(x)",
            ),
            (
                "std::unique_ptr<Tile, std::default_delete<Tile> >::~unique_ptr()",
                "std::unique_ptr<Tile>::~unique_ptr()",
            ),
            ("std::__1::basic_string_view<wchar_t, std::__1::char_traits<wchar_t>>", "std::wstring_view"),
            (
                "f(std::function<void (int, std::allocator<int>)>)",
                "f(std::function<void (int, std::allocator<int>)>)",
            ),
            ("own::less<int>(std::string)", "own::less<int>(std::string)"),
            ("title[abi:cxx11](std::x)", "title(std::x)"),
            ("broken<std::vector<int", "broken<std::vector<int"),
            ("std::broken>::name", "std::broken>::name"),
        ] {
            assert_eq!(readable(name), said);
        }
        let deep = format!("std::{}{}", "a<".repeat(100_000), ">".repeat(100_000));
        assert_eq!(readable(&deep), deep);
    }

    #[test]
    fn a_culprit_is_the_function_alone() {
        for (name, said) in [
            ("parse_header", "parse_header"),
            ("leaks::lose_array()", "leaks::lose_array"),
            ("MapCache::insert(Tile const&)", "MapCache::insert"),
            ("void Loader<std::map<int, Tile>>::load<int>(int) const", "Loader::load"),
            ("(anonymous namespace)::helper(int)", "helper"),
            ("tiles::(anonymous namespace)::Cache::fill(void (*)(int))", "tiles::Cache::fill"),
            ("Visitor::operator()(int) const", "Visitor::operator()"),
            ("Set<A>::operator<(Set<A> const&) const", "Set::operator<"),
            ("Handle::operator bool() const", "Handle::operator bool"),
            ("grow() [clone .cold]", "grow"),
            ("run()::{lambda(int)#1}::operator()(int) const", "run::{lambda#1}::operator()"),
            (
                "Text::write(std::ostream&, Family const&) const::{lambda()#1}::operator()() const",
                "Text::write::{lambda#1}::operator()",
            ),
            ("main::{lambda(void (*)(int))#2}::operator()", "main::{lambda#2}::operator()"),
            ("<tiles::Cache as core::ops::Drop>::drop", "<tiles::Cache as core::ops::Drop>::drop"),
            ("Tile* make<int>(int)", "make"),
            ("com.example.Pool.<init>", "com.example.Pool.<init>"),
        ] {
            assert_eq!(short(name), said);
        }
    }
}
