//! `agent_socket` of `tests/fuzz-targets`.
#![no_main]

memgate_fuzz::fuzz!(agent_socket);
