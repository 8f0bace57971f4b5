//! Java heap dumps: of files, of a suite, of an app on a device.

mod android;
mod command;
mod gate;
