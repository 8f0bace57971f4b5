//! Original names in heap dumps.

use std::borrow::Cow;
use std::path::Path;

use memgate_formats::mapping::Mapping;
use memgate_hprof::{Call, Names};
use memgate_wire::java::JavaMethod;

use super::files::mapping_at;
use super::mappings::Mappings;
use super::rename::{Original, original_class, originals};
use crate::exit::ExpectedError;

/// Original names of the classes and fields of a dump, from a mapping file.
#[derive(Debug, Clone, Copy)]
pub struct OfDump(&'static Mapping<'static>);

impl OfDump {
    /// The only mapping file at a path: the file itself, or the one in a folder.
    ///
    /// # Errors
    /// When it cannot be read, is not a mapping file, or there are several.
    pub fn read(path: &Path) -> Result<Self, ExpectedError> {
        mapping_at(path).map(Self)
    }
}

impl Names for OfDump {
    fn class<'n>(&'n self, name: &'n str) -> Cow<'n, str> {
        match original_class(self.0, name) {
            original if original == name => Cow::Borrowed(name),
            original => Cow::Owned(original),
        }
    }

    fn field<'n>(&'n self, class: &str, field: &'n str) -> &'n str {
        self.0.field(class, field)
    }

    fn call(&self, Call { class, method, file, line }: Call) -> Call {
        let called = JavaMethod { id: 0, class, name: method, file };
        // The method itself, not a method inlined into it: its local variables are shown with it.
        match originals(self.0, &called, line).pop() {
            Some(Original { class, method, file, line }) => Call { class, method, file, line },
            None => Call { class: called.class, method: called.name, file: called.file, line },
        }
    }
}

impl Mappings {
    /// Names for the dumps of a suite; `suite` is its configured name.
    #[must_use]
    pub fn of_dump(&self, suite: &str) -> Option<OfDump> {
        self.of_configured(suite).map(|source| OfDump(source.mapping))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lambdas_and_frames_of_a_dump_have_their_original_names() {
        const TEXT: &str = "com.acme.FillTest -> a.b:\n    10:12:void fills():40:42 -> f\n";
        let names = OfDump(Box::leak(Box::new(Mapping::read(TEXT).unwrap())));
        for (name, original) in [
            ("a.b", "com.acme.FillTest"),
            ("a.b[]", "com.acme.FillTest[]"),
            ("a.b$$Lambda", "com.acme.FillTest$$Lambda"),
            ("a.c", "a.c"),
        ] {
            assert_eq!(names.class(name), original);
        }
        let called = |class: &str, method: &str, file: &str, line| {
            let text = |text: &str| text.to_owned();
            let Call { class, method, file, line } =
                names.call(Call { class: text(class), method: text(method), file: text(file), line });
            format!("{class}.{method}({file}:{line})")
        };
        assert_eq!(called("a.b", "f", "SourceFile", 11), "com.acme.FillTest.fills(FillTest.java:41)");
        assert_eq!(
            called("java.lang.Thread", "run", "Thread.java", 7),
            "java.lang.Thread.run(Thread.java:7)"
        );
    }
}
