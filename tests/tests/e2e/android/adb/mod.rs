//! The device client.

pub(crate) mod client;
mod devices;
mod trouble;
