//! The report as one page: opens offline, loads nothing, runs only its own script, under a policy
//! that forbids the rest.
//!
//! Data flow: `page` orders the sections, verdict first; `test` writes a row and a body for each
//! test; bodies of tests that passed stay unparsed text until somebody opens them, so that
//! thousands of tests open at once. `page.js` finds, sorts and filters, opens what the address
//! names, and draws the icicle. Every string goes through `write`.

mod blocks;
mod difference;
mod figure;
mod icicle;
mod leak;
mod page;
mod sections;
mod test;
mod write;

pub use blocks::{Block, blocks};
pub use difference::{StackChange, difference};
pub use leak::holder_and_stack;
pub use page::{STYLE, document, html};
pub use write::{Html, escape};

#[cfg(test)]
mod tests;
