//! The place of a leak in the checked-out project: the first frame whose file belongs to it. Annotations, code scanning
//! and code owners all use it.

use memgate_model::{Frame, Leak, LeakKind, Runner};

use crate::suite_test::SuiteTest;
use crate::visible::visible;

/// The checked-out project, as the caller sees it, because reporters read no folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checkout {
    /// Its absolute folder; empty: not known, so that only relative files count.
    pub root: String,
    /// Java and Kotlin sources below it, as relative paths. (Their debug information has no folders.)
    pub sources: Vec<String>,
}

/// A line of the project.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Relative to the project, with `/`.
    pub file: String,
    /// Line in it.
    pub line: Option<u32>,
}

impl Checkout {
    /// The first frame in the project's own code, where a repair begins. A leak without a stack (of a heap dump) gets
    /// the source of the first class that holds it, or of its own class.
    #[must_use]
    pub fn place(&self, leak: &Leak) -> Option<Place> {
        self.places(leak).next().map(|(place, _)| place).or_else(|| {
            let classes = leak.holder.iter().map(|step| step.owner.as_str()).chain(leak.class.as_deref());
            let mut classes = classes.filter(|_| leak.kind == LeakKind::Heap);
            classes.find_map(|class| Some(Place { file: self.class_source(class)?, line: None }))
        })
    }

    /// Where to show a test, and a leak of it, in formats that accept only files: the leak's own place, otherwise the
    /// source of the test's class, otherwise a path made from the suite's name.
    pub(crate) fn shown(&self, at: SuiteTest<'_>, leak: Option<&Leak>) -> (String, u32) {
        let Place { file, line } = leak.and_then(|leak| self.place(leak)).unwrap_or_else(|| {
            let file = self.test_source(at).unwrap_or_else(|| path_of(&at.suite.name));
            Place { file, line: None }
        });
        (file, line.filter(|line| *line > 0).unwrap_or(1))
    }

    /// The source file of a leaking test: the outermost frame of the project's own, otherwise the source of its class.
    pub(crate) fn test_file(&self, at: SuiteTest<'_>, leak: &Leak) -> Option<String> {
        let outermost = self.places(leak).last().map(|(place, _)| place.file);
        outermost.or_else(|| self.test_source(at))
    }

    fn test_source(&self, SuiteTest { suite, test }: SuiteTest<'_>) -> Option<String> {
        if !matches!(suite.runner, Runner::Junit | Runner::Instrumentation) {
            return None;
        }
        let method = test.id.split(['(', '[']).next()?;
        let class = if test.is_class { method } else { method.rsplit_once('.')?.0 };
        self.class_source(class)
    }

    /// `core/src/main/java/com/example/Tile.java` for `com.example.Tile$Loader`, and `Tiles.kt` for `TilesKt`, the
    /// class that Kotlin makes of what is outside of classes.
    fn class_source(&self, class: &str) -> Option<String> {
        let outer = class.split(['$', '[']).next()?.replace('.', "/");
        let named = ["java", "kt"].iter().find_map(|ending| self.source(&format!("{outer}.{ending}")));
        named.or_else(|| self.source(&format!("{}.kt", outer.strip_suffix("Kt")?)))
    }

    fn source(&self, path: &str) -> Option<String> {
        let is_it = |source: &&String| {
            source.strip_suffix(path).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
        };
        self.sources.iter().find(is_it).cloned()
    }

    /// Every frame of the project's own, innermost first.
    pub(crate) fn places<'a>(&'a self, leak: &'a Leak) -> impl Iterator<Item = (Place, &'a Frame)> {
        leak.frames.iter().filter_map(|frame| {
            let file = frame.file.as_deref()?;
            let file = if leak.kind.is_java() {
                self.java_source(file, frame.function.as_deref()?)?
            } else {
                self.relative(file)?
            };
            Some((Place { file, line: frame.line }, frame))
        })
    }

    /// `src/a.cc` for `/home/ci/project/src/a.cc` and `./src/b/../a.cc`; `None`: outside of the project.
    pub(crate) fn relative(&self, file: &str) -> Option<String> {
        let inside = match file.strip_prefix(&self.root).filter(|_| !self.root.is_empty()) {
            Some(inside) => inside.strip_prefix('/')?,
            None if file.starts_with('/') => return None,
            None => file,
        };
        let mut parts: Vec<&str> = Vec::new();
        for part in inside.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop()?;
                }
                part => parts.push(part),
            }
        }
        (!parts.is_empty()).then(|| parts.join("/"))
    }

    /// `core/src/main/java/com/example/Tile.java` for `Tile.java` and
    /// `com.example.Tile$Loader.load`.
    fn java_source(&self, file: &str, function: &str) -> Option<String> {
        let class = function.split('(').next()?.rsplit_once('.')?.0;
        let path = match class.rsplit_once('.') {
            Some((package, _)) => format!("{}/{file}", package.replace('.', "/")),
            None => file.to_owned(),
        };
        self.source(&path)
    }
}

fn path_of(suite: &str) -> String {
    visible(suite).trim_start_matches(['.', '/']).to_owned()
}

#[cfg(test)]
mod tests {
    use memgate_model::HolderStep;

    use memgate_model::{SuiteReport, TestReport};

    use super::*;
    use crate::sample;

    #[test]
    fn files_of_the_project_are_relative_and_others_are_none() {
        let checkout = Checkout { root: "/home/ci/tiles".to_owned(), sources: Vec::new() };
        for (file, relative) in [
            ("/home/ci/tiles/src/a.cc", Some("src/a.cc")),
            ("./src/b/../a.cc", Some("src/a.cc")),
            ("src//a.cc", Some("src/a.cc")),
            ("/home/ci/tiles2/src/a.cc", None),
            ("/usr/include/c++/12/vector", None),
            ("../outside.cc", None),
            ("a/../../outside.cc", None),
            ("", None),
        ] {
            assert_eq!(checkout.relative(file).as_deref(), relative, "{file}");
        }
        assert_eq!(Checkout::default().relative("/a.cc"), None);
    }

    #[test]
    fn a_java_frame_is_found_by_its_package() {
        let sources = ["app/src/other/TileLoader.java", "core/src/main/java/com/example/TileLoader.java"];
        let checkout = Checkout { root: String::new(), sources: sources.map(str::to_owned).to_vec() };
        let leak = &sample::held().suites[0].tests[0].leaks[0];
        let place = Place { file: sources[1].to_owned(), line: Some(31) };
        assert_eq!(checkout.place(leak), Some(place));
        assert_eq!(Checkout::default().place(leak), None);
    }

    #[test]
    fn a_test_without_a_place_is_shown_at_its_class_and_else_at_its_suite() {
        let source = "app/src/test/java/com/example/TileCacheTest.java";
        let checkout = Checkout { root: String::new(), sources: vec![source.to_owned()] };
        let native = sample::suite("./engine_tests", memgate_model::Verdict::Error, Vec::new());
        let java = SuiteReport { runner: Runner::Junit, ..native.clone() };
        for (suite, test, is_class, want) in [
            (&java, "com.example.TileCacheTest.evicts()", false, source),
            (&java, "com.example.TileCacheTest$Inner.evicts(int)[1.5]", false, source),
            (&java, "com.example.TileCacheTest", true, source),
            (&java, "com.example.Other.evicts()", false, "engine_tests"),
            (&native, "TileCacheTest.evicts", false, "engine_tests"),
        ] {
            let test = TestReport { is_class, ..sample::test(test) };
            assert_eq!(
                checkout.shown(SuiteTest { suite, test: &test }, None),
                (want.to_owned(), 1),
                "{}",
                test.id
            );
        }
    }

    #[test]
    fn a_leak_of_a_dump_is_where_its_first_holder_of_the_project_is_written() {
        let sources =
            ["core/src/main/java/com/example/Registry.java", "app/src/main/kotlin/com/example/Tile.kt"];
        let checkout = Checkout { root: String::new(), sources: sources.map(str::to_owned).to_vec() };
        let java = &sample::held().suites[0].tests[0].leaks[0];
        let of = |owners: &[&str], class: &str| {
            let step = |owner: &&str| HolderStep {
                kind: "field".to_owned(),
                owner: (*owner).to_owned(),
                name: "held".to_owned(),
                class: "java.lang.Object".to_owned(),
            };
            let holder = owners.iter().map(step).collect();
            let (class, frames) = (Some(class.to_owned()), Vec::new());
            let leak = Leak { kind: LeakKind::Heap, holder, class, frames, ..java.clone() };
            checkout.place(&leak).map(|place| place.file)
        };
        let tile = "com.example.Tile$Loader[]";
        assert_eq!(of(&["java.util.HashMap", "com.example.Registry$1"], tile).as_deref(), Some(sources[0]));
        assert_eq!(of(&["java.util.HashMap"], tile).as_deref(), Some(sources[1]));
        assert_eq!(of(&["com.example.TileKt"], tile).as_deref(), Some(sources[1]), "outside of a class");
        assert_eq!(of(&[], "java.lang.String"), None);
    }
}
