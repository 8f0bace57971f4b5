//! The history of projects: the database behind it, and the pages that show it.
//!
//! Data flow: a manifest and a report → [`store`] (one transaction a run: what `memgate_history` makes of it, and the
//! lives of its leaks) → SQLite or PostgreSQL; database → reads of the store → [`view`] → [`pages`] and JSON over
//! [`http`], [`text`] for `memgate history`, [`tune`] for thresholds. What is too large for a database is kept by
//! [`artefacts`].
#![forbid(unsafe_code)]

pub mod artefacts;
pub mod http;
pub mod live;
pub mod pages;
pub mod password;
pub mod store;
pub mod text;
pub mod token;
pub mod tune;
pub mod view;
