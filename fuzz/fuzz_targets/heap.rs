//! `heap` of `tests/fuzz-targets`.
#![no_main]

memgate_fuzz::fuzz!(heap);
