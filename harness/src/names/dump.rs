//! Original names in heap dumps.

use std::borrow::Cow;
use std::path::Path;

use memgate_formats::mapping::Mapping;
use memgate_hprof::Names;

use super::files::mapping_at;
use super::mappings::Mappings;
use crate::exit::ExpectedError;

/// What a mapping file says of the classes and fields of a dump.
#[derive(Debug, Clone, Copy)]
pub struct OfDump(&'static Mapping<'static>);

impl OfDump {
    /// The only mapping file at a path: the file itself, or the one in a folder.
    ///
    /// # Errors
    /// It cannot be read, is none, or there are several.
    pub fn read(path: &Path) -> Result<Self, ExpectedError> {
        mapping_at(path).map(Self)
    }
}

impl Names for OfDump {
    fn class<'n>(&'n self, name: &'n str) -> Cow<'n, str> {
        self.0.class(name)
    }

    fn field<'n>(&'n self, class: &str, field: &'n str) -> &'n str {
        self.0.field(class, field)
    }
}

impl Mappings {
    /// For the dumps of a suite, as the configuration calls it.
    #[must_use]
    pub fn of_dump(&self, suite: &str) -> Option<OfDump> {
        self.of_configured(suite).map(|source| OfDump(source.mapping))
    }
}
