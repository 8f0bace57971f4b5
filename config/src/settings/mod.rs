//! One file per table of the configuration: the type that mirrors the file, the checked type, and
//! the conversion.

pub(crate) mod heap;
pub(crate) mod history;
pub(crate) mod instrumented;
pub(crate) mod java;
pub(crate) mod mail;
pub(crate) mod measure;
pub(crate) mod reports;
pub(crate) mod suites;
pub(crate) mod thresholds;
pub(crate) mod upload;
pub(crate) mod waivers;
pub(crate) mod webhooks;
pub(crate) mod when;
