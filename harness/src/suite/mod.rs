//! Inspects the programs to run, and builds the commands that repeat their tests.
//!
//! [`inspect`] looks at a program's file without running it. [`gtest`], [`junit`] and [`command`] turn data of the
//! screening pass into the command lines that confirm suspects. Only [`gtest::list_tests`] starts a process here.

pub mod command;
pub mod ctest;
mod elf;
pub mod gtest;
mod inspect;
pub mod instrumentation;
pub mod junit;

pub use elf::{Elf, Evidence, Linkage};
pub use inspect::{InspectError, Kind, Program, inspect};
