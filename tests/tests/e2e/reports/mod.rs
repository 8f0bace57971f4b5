//! The report in its formats, as its readers see it.

mod formats;
mod junit;
pub(crate) mod mail;
mod origin;
pub(crate) mod page;
