//! Where a leak stands in the checked-out project: the first frame whose file belongs to it.
//! Annotations, code scanning and the owners of code all ask here.

use memgate_model::{Frame, Leak};

/// The checked-out project, as the caller sees it: reporters read no folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checkout {
    /// Its folder, absolute; empty: not known, then only relative files count.
    pub root: String,
    /// Java and Kotlin sources below it, relative: their debug information has no folders.
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
    /// The first frame of the project's own: where to begin with repairing it.
    #[must_use]
    pub fn place(&self, leak: &Leak) -> Option<Place> {
        self.places(leak).next().map(|(place, _)| place)
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

    /// `src/a.cc` for `/home/ci/project/src/a.cc` and `./src/b/../a.cc`; `None` outside of the
    /// project.
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
        let is_it = |source: &&String| {
            source.strip_suffix(&path).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
        };
        self.sources.iter().find(is_it).cloned()
    }
}

#[cfg(test)]
mod tests {
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
}
