//! The parts of memgate that touch the outside world, as a library for the program.
//!
//! Data flow: [`suite`] inspects the programs to run, [`agent`], [`hotspot`] and [`device`] put the agent into them,
//! [`run`] starts them. [`recorder`] follows the spools that appear and writes them, with the operating system's
//! figures ([`proc_fs`]), into the folder of the [`session`]. [`reading`] makes records of them, live or long after;
//! [`names`] restores the original names of renamed Java programs meanwhile. This library does not judge
//! (`memgate-analysis` does) and does not render (`memgate-reports` does); [`deliver`] writes and sends the reports.
#![forbid(unsafe_code)]

pub mod agent;
mod apk;
mod bounded;
pub mod cli;
pub mod commands;
mod deliver;
pub mod device;
mod documentation;
mod exit;
mod heap_rules;
mod history;
mod hotspot;
mod https;
mod names;
mod origin;
pub mod output;
pub mod plan;
mod proc_fs;
pub mod reading;
pub mod recorder;
pub mod run;
pub mod session;
pub mod suite;
pub mod symbol_files;
