//! Globs, compiled when they are read. `*` also matches `/`, because names of tests and functions contain it.

use globset::{GlobBuilder, GlobMatcher};

use crate::read::{Fault, Value};
use crate::value::value_schema;

/// A pattern in which only `*` and `?` are special, because names of tests and classes contain brackets (`load[0]`,
/// `byte[]`). A backslash escapes `*`, `?`, a bracket, a brace or another backslash.
#[derive(Debug, Clone)]
pub struct Glob {
    text: String,
    /// `None`: the text has no wildcard, and matches only itself.
    matcher: Option<GlobMatcher>,
}

impl Glob {
    /// As written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Does the whole of `name` match?
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.matcher.as_ref().map_or_else(|| self.text == name, |matcher| matcher.is_match(name))
    }
}

impl PartialEq for Glob {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

value_schema!(Glob, "Glob", { "type": "string", "minLength": 1 });

impl Value for Glob {
    const WHAT: &'static str = "a pattern";
    const HINT: &'static str = "`*` is any text, `?` one character; `\\*` and `\\?` stand for themselves";

    fn parse(text: &str) -> Result<Self, Fault> {
        if text.is_empty() {
            return Err(Fault::new("empty: it would match nothing"));
        }
        if !text.contains(['*', '?', '\\']) {
            return Ok(Self { text: text.to_owned(), matcher: None });
        }
        let glob = GlobBuilder::new(&in_globset(text))
            .backslash_escape(true)
            .build()
            .map_err(|error| Fault::new(error.kind().to_string()))?;
        Ok(Self { text: text.to_owned(), matcher: Some(glob.compile_matcher()) })
    }
}

/// Escapes the characters that are special for globset, except `*` and `?`.
fn in_globset(text: &str) -> String {
    let mut pattern = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let escaped = if c == '\\' { chars.next_if(|next| "*?[]{}\\".contains(*next)) } else { None };
        if escaped.is_some() || "[]{}\\".contains(c) {
            pattern.push('\\');
        }
        pattern.push(escaped.unwrap_or(c));
    }
    pattern
}

/// A pattern for `suite::Test.name`; without `::` it matches the test in every suite.
#[derive(Debug, Clone, PartialEq)]
pub struct TestGlob(Glob);

impl TestGlob {
    /// Parses a pattern that is not from a file.
    ///
    /// # Errors
    /// Why the pattern is not valid, and how to write one.
    pub fn typed(text: &str) -> Result<Self, String> {
        <Self as Value>::parse(text).map_err(|why| format!("{}; {}", why.label, Self::HINT))
    }

    /// As written.
    #[must_use]
    pub fn text(&self) -> &str {
        self.0.text()
    }

    /// Does it name this test of this suite?
    #[must_use]
    pub fn matches(&self, suite: &str, test: &str) -> bool {
        self.0.matches(&format!("{suite}::{test}")) || (!self.text().contains("::") && self.0.matches(test))
    }
}

value_schema!(TestGlob, "TestGlob", { "type": "string", "minLength": 1, "examples": ["engine::MapCache.*"] });

impl Value for TestGlob {
    const WHAT: &'static str = Glob::WHAT;
    const HINT: &'static str = Glob::HINT;

    fn parse(text: &str) -> Result<Self, Fault> {
        Glob::parse(text).map(Self)
    }
}

/// A pattern for one frame: `module!function`, or a function in any module.
#[derive(Debug, Clone, PartialEq)]
pub struct FrameGlob {
    text: String,
    module: Option<Glob>,
    function: Glob,
}

impl FrameGlob {
    /// As written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Is it the name of one function, without a wildcard?
    #[must_use]
    pub const fn is_name(&self) -> bool {
        self.function.matcher.is_none()
    }

    /// Does it name this frame? A frame without a symbol matches only `module!*`.
    #[must_use]
    pub fn matches(&self, module: &str, function: Option<&str>) -> bool {
        self.module.as_ref().is_none_or(|glob| glob.matches(module))
            && match function {
                Some(function) => self.function.matches(function),
                None => self.module.is_some() && self.function.text() == "*",
            }
    }
}

value_schema!(FrameGlob, "FrameGlob", { "type": "string", "minLength": 1, "examples": ["libfontconfig.so*!FcInit*"] });

impl Value for FrameGlob {
    const WHAT: &'static str = "a pattern of a frame";
    const HINT: &'static str =
        "write `module!function`, such as `libfontconfig.so*!FcInit*`; `?` stands for any one character";

    fn parse(text: &str) -> Result<Self, Fault> {
        // `operator!=` contains a `!` too. The text before the first `!` is a module only if it has no space or
        // parenthesis.
        let (module, function) = match text.split_once('!') {
            Some((module, function)) if !module.contains(['(', ' ']) && !module.ends_with("operator") => {
                (Some(Glob::parse(module)?), function)
            }
            _ => (None, text),
        };
        Ok(Self { text: text.to_owned(), module, function: Glob::parse(function)? })
    }
}

/// A pattern for the path of an executable. The agent matches it inside the tested process, and supports only `*` and
/// `?`.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetGlob(Glob);

impl TargetGlob {
    /// Parses a pattern that is not from a file.
    ///
    /// # Errors
    /// Why the pattern is not valid, and how to write one.
    pub fn typed(text: &str) -> Result<Self, String> {
        <Self as Value>::parse(text).map_err(|why| format!("{}; {}", why.label, Self::HINT))
    }

    /// As written.
    #[must_use]
    pub fn text(&self) -> &str {
        self.0.text()
    }

    /// The pattern for absolute paths. A relative pattern applies below `directory`, and one without `/` applies
    /// anywhere.
    #[must_use]
    pub fn absolute(&self, directory: &str) -> String {
        let text = self.text();
        if text.starts_with('/') || text.starts_with('*') {
            text.to_owned()
        } else if text.contains('/') {
            format!("{}/{}", directory.trim_end_matches('/'), text.trim_start_matches("./"))
        } else {
            format!("*/{text}")
        }
    }
}

value_schema!(TargetGlob, "TargetGlob", { "type": "string", "minLength": 1, "examples": ["build/*_tests"] });

impl Value for TargetGlob {
    const WHAT: &'static str = "a pattern of an executable";
    const HINT: &'static str = "write a path such as `build/*_tests`; `*` is any text, `?` one character";

    fn parse(text: &str) -> Result<Self, Fault> {
        if text.contains(['[', ']', '{', '}', '\\', ';']) {
            return Err(Fault::new("only `*` and `?` are special here"));
        }
        Glob::parse(text).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(text: &str) -> TestGlob {
        TestGlob::parse(text).ok().unwrap()
    }

    fn frame(text: &str) -> FrameGlob {
        FrameGlob::parse(text).ok().unwrap()
    }

    #[test]
    fn tests_are_named_with_or_without_their_suite() {
        assert!(test("engine::MapCache.*").matches("engine", "MapCache.scroll"));
        assert!(!test("engine::MapCache.*").matches("other", "MapCache.scroll"));
        assert!(test("MapCache.*").matches("other", "MapCache.scroll"));
        assert!(test("*/MyTest.works/*").matches("engine", "Instances/MyTest.works/3"), "`*` crosses `/`");
        assert!(test("*").matches("engine", "tests::it_works"));
        assert!(!test("MapCache").matches("engine", "MapCache.scroll"), "the whole name must match");
    }

    #[test]
    fn frames_are_named_by_module_and_function() {
        assert!(frame("libfontconfig.so*!FcInit*").matches("libfontconfig.so.1", Some("FcInitLoadConfig")));
        assert!(!frame("libfontconfig.so*!FcInit*").matches("libother.so", Some("FcInitLoadConfig")));
        assert!(frame("MapCache::insert(*)").matches("engine_tests", Some("MapCache::insert(Tile const&)")));
        assert!(frame("libdriver.so!*").matches("libdriver.so", None));
        assert!(!frame("*").matches("libdriver.so", None));
        assert!(frame("A::operator!=*").matches("m", Some("A::operator!=(A const&)")));
        assert!(
            frame("std::vector?int?::operator\\[\\]*")
                .matches("m", Some("std::vector<int>::operator[](int)"))
        );
    }

    #[test]
    fn targets_become_absolute() {
        for (text, expected) in [
            ("build/*_tests", "/src/tiles/build/*_tests"),
            ("./build/x", "/src/tiles/build/x"),
            ("/opt/x", "/opt/x"),
            ("*_tests", "*_tests"),
            ("engine_tests", "*/engine_tests"),
        ] {
            assert_eq!(TargetGlob::parse(text).ok().unwrap().absolute("/src/tiles"), expected);
        }
    }

    #[test]
    fn brackets_and_braces_mean_themselves() {
        for (pattern, name) in [
            ("Foo.bar[0]", "Foo.bar[0]"),
            ("Foo.*[0]", "Foo.bar[0]"),
            ("byte[]", "byte[]"),
            ("java.lang.?bject[][]", "java.lang.Object[][]"),
            ("a{b,*", "a{b,c}"),
            ("Foo.bar\\[0\\]", "Foo.bar[0]"),
            ("a\\*b", "a*b"),
            ("a\\b?", "a\\bc"),
        ] {
            assert!(test(pattern).matches("engine", name), "{pattern}");
        }
        assert!(!test("Foo.*[01]").matches("engine", "Foo.bar0"));
        assert!(!test("a\\*b").matches("engine", "axb"));
    }

    #[test]
    fn bad_globs_say_why() {
        let label = Glob::parse("").err().map(|f| f.label);
        assert_eq!(label.as_deref(), Some("empty: it would match nothing"));
        assert!(TargetGlob::parse("build/{a,b}").is_err());
    }
}
