//! The report as one page: it works offline, loads nothing, and runs only its own script. A content security policy
//! forbids everything else.
//!
//! Data flow: `page` orders the sections, verdict first; `test` writes a row and a body for each test; bodies of passed
//! tests stay unparsed text until they are opened, so that a page with thousands of tests opens at once. `page.js`
//! searches, sorts and filters, opens what the URL names, and draws the icicle. Every string goes through `write`.

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
