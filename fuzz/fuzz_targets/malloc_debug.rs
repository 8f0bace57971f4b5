//! `malloc_debug` of `tests/fuzz-targets`.
#![no_main]

memgate_fuzz::fuzz!(malloc_debug);
