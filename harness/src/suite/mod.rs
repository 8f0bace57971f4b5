//! What is to be run: which kind of program it is, and how its tests are repeated.
//!
//! [`inspect`] looks at a program's file without running it. [`gtest`], [`junit`] and [`command`]
//! turn what the screen saw into the command lines that confirm it. Nothing here starts a process
//! but [`gtest::list_tests`].

pub mod command;
pub mod ctest;
mod elf;
pub mod gtest;
mod inspect;
pub mod instrumentation;
pub mod junit;

pub use elf::{Elf, Evidence, Linkage};
pub use inspect::{InspectError, Kind, Program, inspect};
