//! Instrumented tests on a device.

pub(crate) mod app;
mod art;
mod devices;
mod endings;
mod faults;
pub(crate) mod leaks;
mod listener;
mod mapping;
mod orchestrator;
mod packaged;
