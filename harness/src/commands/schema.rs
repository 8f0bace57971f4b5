//! `memgate schema`: prints the committed JSON Schemas, for editors and for readers of report.json.

use crate::cli::SchemaName;
use crate::exit::{self, ExpectedError};
use crate::output::Console;

pub(super) fn schema(name: SchemaName, console: &Console) -> Result<u8, ExpectedError> {
    let text = match name {
        SchemaName::Config => memgate_config::schema(),
        SchemaName::Report => memgate_reports::schema(),
        SchemaName::Heap => super::heap::schema(),
    };
    console.result(text.as_bytes())?;
    Ok(exit::PASS)
}
