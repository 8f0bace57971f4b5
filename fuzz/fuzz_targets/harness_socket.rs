//! `harness_socket` of `tests/fuzz-targets`.
#![no_main]

memgate_fuzz::fuzz!(harness_socket);
