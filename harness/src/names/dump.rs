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

/// Java's primitive types in the order of their numbers in a dump, from 4 on.
const PRIMITIVE: [&str; 8] = ["boolean", "char", "float", "double", "byte", "short", "int", "long"];

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

    fn field<'n>(&'n self, class: &str, field: &'n str, kind: u8) -> Cow<'n, str> {
        let primitive = usize::from(kind).checked_sub(4).and_then(|at| PRIMITIVE.get(at));
        self.0.field(class, field, |declared| match primitive {
            Some(primitive) => declared == *primitive,
            None => !PRIMITIVE.contains(&declared),
        })
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

    /// As ProGuard names fields with -overloadaggressively.
    #[test]
    fn fields_with_one_new_name_are_told_apart_by_their_type() {
        const TEXT: &str = "com.acme.Session -> a.b:\n    int id -> a\n    java.lang.String user -> a\n    \
                            byte[] data -> a\n    boolean closed -> a\n    com.acme.State state -> c\n";
        let names = OfDump(Box::leak(Box::new(Mapping::read(TEXT).unwrap())));
        // R8 may make an `int` of an enum: the only field of that name is meant.
        for (field, kind, original) in
            [("a", 4, "closed"), ("a", 10, "id"), ("a", 2, "user|data"), ("a", 11, "a"), ("c", 10, "state")]
        {
            assert_eq!(names.field("a.b", field, kind), original, "{field} {kind}");
        }
    }

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
