//! Inspects the programs to run, and builds the commands that repeat their tests.
//!
//! Data flow: a program's file → [`inspect`] tells its kind without running it → the run screens it → [`gtest`],
//! [`junit`], [`instrumentation`] and [`command`] turn data of the screening pass into the command lines that confirm
//! suspects. [`ctest`] reads the lists of ctest. Only [`gtest::list_tests`] starts a process here.

pub mod command;
pub mod ctest;
mod elf;
pub mod gtest;
mod inspect;
pub mod instrumentation;
pub mod junit;

pub use elf::{Elf, Evidence, Linkage};
pub use inspect::{InspectError, Kind, Program, inspect};
