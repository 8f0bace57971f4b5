//! What happens before anything runs: settings, folders, missing tools.

mod config;
mod first_use;
