//! `memgate docs`: prints a page of the documentation, or the names of all pages.

use crate::documentation::{PAGES, title};
use crate::exit::{self, ExpectedError};
use crate::output::Console;

pub(super) fn docs(page: Option<&str>, console: &Console) -> Result<u8, ExpectedError> {
    match page.and_then(|wanted| PAGES.iter().find(|(name, _)| *name == wanted)) {
        Some((_, text)) => console.result(text.as_bytes())?,
        None => console.result(list().as_bytes())?,
    }
    Ok(exit::PASS)
}

fn list() -> String {
    let width = PAGES.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    PAGES.iter().map(|(name, text)| format!("{name:width$}  {}\n", title(text))).collect()
}
