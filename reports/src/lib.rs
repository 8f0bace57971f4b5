//! Renders a run report: text for people, a page, charts, JSON, JUnit XML, Markdown, annotations,
//! code scanning, metrics, flame graphs, mail and chat messages.
//!
//! Data flow: one [`RunReport`](memgate_model::RunReport) → a reporter → bytes. A reporter is a pure function: it knows
//! no other reporter, no file, no clock, no network and no terminal. The caller says where the report will be, how wide
//! the terminal is, where the checked-out project is and what the last run found. [`render`] lists all reporters that
//! make one file, [`charts`] makes many, [`mail`] and [`chat`] make messages. A reporter that fails does not stop the
//! others. The harness delivers the results: to files, an SMTP server, webhooks.
//!
//! Every name from outside is made harmless for its format before it is written.
//!
//! Texts that several reporters share have one place:
//!
//! | module | text |
//! |---|---|
//! | `summary` | the run in one line, and its reasons |
//! | `culprit` | the leaking function and the amount |
//! | `words`, `human` | counts, verdicts, stacks |
//! | `figures` | metrics |
//! | `names` | readable names of functions |
//! | `holder` | the holder of a Java object |
//! | `stacks` | the leaked bytes by stack |
//! | `places` | the line of a leak |
//! | `clean` | the tests that take a line each |
//! | `rerun` | the command for one test |
//! | [`Changes`] | the changes since earlier runs |
#![forbid(unsafe_code)]

mod base;
mod changes;
mod chart;
pub mod chat;
mod clean;
mod compare;
#[cfg(test)]
mod consistency;
mod culprit;
mod dates;
mod error;
mod figures;
mod github;
mod gitlab;
mod holder;
mod html;
mod human;
mod json;
mod junit;
#[cfg(test)]
mod large_tests;
pub mod mail;
mod markdown;
mod metrics;
mod names;
pub mod owners;
mod places;
mod registry;
mod rerun;
#[cfg(test)]
mod sample;
mod sarif;
mod stacks;
mod suite_test;
mod summary;
mod visible;
mod words;
mod worst;

pub use base::base;
pub use changes::{Changes, Ended, has_unknown};
pub use chart::{ChartFile, charts};
pub use compare::{Change, Comparison, FigureChange, FigureSide, LeakChange, LeakSide, Side, TestSide};
pub use culprit::{source_line, who};
pub use error::RenderError;
pub use figures::is_within;
pub use github::annotations;
pub use gitlab::code_quality;
pub use holder::holder;
pub use html::html;
/// Parts that the pages of a history and of heap dumps share with the report: writer, style, stacks.
pub mod page {
    pub use crate::html::{
        Block, Html, STYLE, StackChange, blocks, difference, document, escape, holder_and_stack,
    };
    pub use crate::stacks::names as stack_names;
    pub use crate::summary::anchor;
}
pub use human::{HumanOptions, followed, human, name_in_waiver, stack};
pub use json::{ReadError, from_json, json, schema};
pub use junit::{Flavour, JunitOptions, Merged, junit, merge};
pub use markdown::{COMMENT_BYTES, STEP_SUMMARY_BYTES, markdown};
pub use metrics::metrics;
pub use names::{readable, short};
pub use places::{Checkout, Place};
pub use registry::{ReportKind, render};
pub use rerun::quoted;
pub use sarif::sarif;
pub use stacks::{folded, speedscope};
pub use visible::{harmless, harmless_in_colours};
