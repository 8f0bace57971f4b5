//! Everything of memgate that touches the outside world, as a library below the program.
//!
//! Data flow: [`suite`] looks at what is to be run, [`device`] and [`hotspot`] say how the agent
//! ([`embedded`]) gets inside, [`run`] starts it. [`recorder`] follows the spools that appear and
//! puts them, with the operating system's figures ([`proc_fs`]), into the folder of the [`session`].
//! [`reading`] makes records of them, live or long after; [`names`] gives renamed Java programs
//! their original names on the way. Judging is not done here (`memgate-analysis`), nor is anything
//! rendered (`memgate-reports`); [`deliver`] brings it to files and people.
#![forbid(unsafe_code)]

mod apk;
pub mod cli;
pub mod commands;
pub mod deliver;
pub mod device;
pub mod embedded;
pub mod exit;
mod heap_rules;
pub mod history;
pub mod hotspot;
mod https;
pub mod names;
pub mod origin;
pub mod output;
pub mod plan;
pub mod proc_fs;
pub mod reading;
pub mod recorder;
pub mod run;
pub mod session;
pub mod suite;
pub mod symbol_files;
