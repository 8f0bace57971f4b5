//! What a mapping file says: classes with their members.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// A mapping file, borrowing from its text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// By renamed name.
    pub(super) classes: BTreeMap<&'a str, Class<'a>>,
    /// Source files that cannot be guessed, by original name of the class.
    pub(super) source_files: BTreeMap<&'a str, String>,
    /// `pg_map_id` and `pg_map_hash` of its head.
    pub(super) ids: Vec<&'a str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Class<'a> {
    pub(super) original: &'a str,
    pub(super) fields: Vec<Field<'a>>,
    pub(super) methods: Vec<Method<'a>>,
}

/// A field as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its name after renaming.
    pub(super) renamed: &'a str,
    /// The class that declared it, where it was moved from another.
    pub class: Option<&'a str>,
    /// Its name.
    pub name: &'a str,
    /// Its type, original too.
    pub kind: &'a str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Method<'a> {
    pub(super) renamed: &'a str,
    /// Lines in the renamed file.
    pub(super) range: Option<(u32, u32)>,
    pub(super) class: Option<&'a str>,
    pub(super) name: &'a str,
    /// Lines in the original.
    pub(super) original: Option<(u32, u32)>,
    /// Type, class, name and arguments, as they are written.
    pub(super) signature: &'a str,
    /// Written by the compiler: no part of anybody's source.
    pub(super) synthesized: bool,
    /// Code that stood in several methods, and was moved out of them.
    pub(super) outline: bool,
    /// Calls such code: the line of the outline, and its own line that this stands for.
    pub(super) calls_outline: BTreeMap<u32, u32>,
}

impl<'a> Mapping<'a> {
    /// The original name of a class, as memgate shows classes (`a.b`, `a.b[]`); the same name where
    /// it was not renamed.
    #[must_use]
    pub fn class<'n>(&self, name: &'n str) -> Cow<'n, str>
    where
        'a: 'n,
    {
        let element = name.trim_end_matches("[]");
        let Some(class) = self.classes.get(element) else { return Cow::Borrowed(name) };
        match name.strip_prefix(element) {
            Some(brackets) if !brackets.is_empty() => Cow::Owned(format!("{}{brackets}", class.original)),
            _ => Cow::Borrowed(class.original),
        }
    }

    /// What a field of a renamed class was. More than one only where fields of different types got
    /// one name.
    pub fn fields<'s>(&'s self, class: &str, field: &'s str) -> impl Iterator<Item = &'s Field<'a>> {
        let fields = self.classes.get(class).map(|class| class.fields.as_slice());
        fields.unwrap_or_default().iter().filter(move |found| found.renamed == field)
    }

    /// The original name of a field, where there is exactly one; else the name as it is.
    #[must_use]
    pub fn field<'n>(&self, class: &str, field: &'n str) -> &'n str
    where
        'a: 'n,
    {
        let fields = self.classes.get(class).map_or(&[][..], |class| &class.fields);
        let mut found = fields.iter().filter(|found| found.renamed == field);
        match (found.next(), found.next()) {
            (Some(only), None) => only.name,
            _ => field,
        }
    }

    /// Was the build that calls itself `id` renamed by it? R8 writes `r8-map-id-ID` as the source
    /// file of what it renamed. `None`: the mapping file does not say.
    #[must_use]
    pub fn is_of_build(&self, id: &str) -> Option<bool> {
        (!self.ids.is_empty())
            .then(|| self.ids.iter().any(|own| *own == id || is_short_for(own, id) || is_short_for(id, own)))
    }

    /// Its classes: the new name and the original one.
    pub fn classes(&self) -> impl Iterator<Item = (&'a str, &'a str)> + '_ {
        self.classes.iter().map(|(renamed, class)| (*renamed, class.original))
    }

    /// How many classes it knows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.classes.len()
    }

    /// Does it know none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }
}

/// The short id is the beginning of the hash.
fn is_short_for(short: &str, hash: &str) -> bool {
    const SHORTEST: usize = 7;
    short.len() >= SHORTEST && hash.starts_with(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_knows_the_build_it_belongs_to() {
        let text = "# compiler: R8\n# pg_map_id: 7b2d7d4\n# pg_map_hash: SHA-256 7b2d7d4c0ffee\na.B -> x:\n# pg_map_id: 1111111\n";
        let mapping = Mapping::read(text).unwrap();
        for (id, is) in
            [("7b2d7d4", true), ("7b2d7d4c0ffee", true), ("7b2d7d5", false), ("1111111", false), ("", false)]
        {
            assert_eq!(mapping.is_of_build(id), Some(is), "{id}");
        }
        assert_eq!(Mapping::read("a.B -> x:\n").unwrap().is_of_build("7b2d7d4"), None);
    }

    const TEXT: &str = "com.example.Tile -> a.b:\n    int size -> a\n    java.lang.String com.example.Base.name -> a\n    long count -> c\n";

    #[test]
    fn classes_and_fields_of_a_holder_path_get_their_names_back() {
        let mapping = Mapping::read(TEXT).unwrap();
        for (shown, want) in [
            ("a.b", "com.example.Tile"),
            ("a.b[][]", "com.example.Tile[][]"),
            ("byte[]", "byte[]"),
            ("a", "a"),
            ("", ""),
        ] {
            assert_eq!(mapping.class(shown), want);
        }
        assert_eq!(
            (mapping.field("a.b", "c"), mapping.field("a.b", "x"), mapping.field("x", "c")),
            ("count", "x", "c")
        );
        // Two fields of different types share a name: not guessed.
        assert_eq!(mapping.field("a.b", "a"), "a");
        let both: Vec<_> =
            mapping.fields("a.b", "a").map(|field| (field.kind, field.class, field.name)).collect();
        assert_eq!(both, [("int", None, "size"), ("java.lang.String", Some("com.example.Base"), "name")]);
        assert_eq!((mapping.len(), mapping.is_empty()), (1, false));
    }
}
