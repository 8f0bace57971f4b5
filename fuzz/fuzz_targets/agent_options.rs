//! `agent_options` of `tests/fuzz-targets`.
#![no_main]

memgate_fuzz::fuzz!(agent_options);
