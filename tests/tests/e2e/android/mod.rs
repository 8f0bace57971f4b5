//! Android: the device, the library that is built for it, and apps.

pub(crate) mod adb;
mod artefact;
pub(crate) mod instrumentation;
mod malloc_debug;
pub(crate) mod native;
