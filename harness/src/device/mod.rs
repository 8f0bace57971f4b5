//! Apps on an Android device: the agent is delivered over adb ([`delivery`]), and its frames come from a [`socket`].
//!
//! They are written to the same frames folder as the spools of this machine's processes: later steps do not know which
//! of the two it was. Android adds its own figures for the app's memory ([`app_memory`]) and heap dumps
//! ([`heap_dump`]).

pub mod app_memory;
pub mod delivery;
pub mod heap_dump;
pub mod socket;
