//! Renders a run report: text for people, JSON, JUnit XML.
//!
//! A reporter is a pure function from a [`RunReport`](memgate_model::RunReport) to bytes. It knows no other reporter,
//! no file, no clock and no terminal: the caller says where the report will stand, how wide the terminal is and whether
//! colours are wanted. [`render`] is the list of all reporters; one that fails does not stop the others.
//! Every name that comes from outside is made harmless for its format before it is written.
#![forbid(unsafe_code)]

mod human;
mod json;
mod junit;
mod registry;
#[cfg(test)]
mod sample;
mod visible;

pub use human::{HumanOptions, human};
pub use json::{ReadError, from_json, json, schema};
pub use junit::{Flavour, junit};
pub use registry::{RenderError, ReportKind, render};
