//! `gtest_list` of `tests/fuzz-targets`.
#![no_main]

memgate_fuzz::fuzz!(gtest_list);
