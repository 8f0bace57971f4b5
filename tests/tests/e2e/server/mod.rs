//! `memgate serve`: uploads, accounts, notifications, runs that go on.

mod accounts;
mod live;
mod notify;
mod oidc;
pub(crate) mod upload;
