//! The history of projects: the database behind it, and the pages that show it.
//!
//! Data flow: a manifest and a report → `store` (one transaction a run: what `memgate_history` makes of it, and the lives of its
//! leaks) → SQLite or PostgreSQL; database → `store::read` → [`view`] → `pages` (HTML), `/api/v1` (JSON), `memgate history` (text).
#![forbid(unsafe_code)]

pub mod store;
pub mod text;
pub mod view;
