//! Everything of memgate that touches the outside world, as a library below the program.
//!
//! Data flow: [`suite`] looks at what is to be run, [`device`] starts it with the agent
//! ([`embedded`]) inside, [`recorder`] follows the spools that appear and puts them, with the
//! operating system's figures ([`proc_fs`]), into the session folder ([`store`]), and [`stream`]
//! reads them again, live or long after. [`names`] gives renamed Java programs their original names
//! before anything looks at the frames, [`listed`] makes snapshots of what Android's malloc
//! debugging lists. Judging is not done here (`memgate-analysis`), nor is anything rendered
//! (`memgate-reports`); [`deliver`] brings it to files and people.
#![forbid(unsafe_code)]

mod apk;
pub mod cli;
pub mod commands;
pub mod deliver;
pub mod device;
pub mod embedded;
pub mod exit;
pub mod hotspot;
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
