//! The history of projects: its database, and the pages that show it.
//!
//! Data flow: a manifest and a report → [`store`] (one transaction per run: the results of `memgate_history`, and the
//! lives of its leaks) → SQLite or PostgreSQL; database → reads of the store → [`view`] → [`pages`] and JSON over
//! [`http`], [`text`] for `memgate history`, [`tune`] for thresholds. [`artefacts`] keeps files that are too large for
//! a database.
#![forbid(unsafe_code)]

pub mod artefacts;
pub mod http;
pub mod live;
pub mod pages;
pub mod password;
pub mod percent;
pub mod store;
pub mod text;
pub mod token;
pub mod tune;
pub mod view;
