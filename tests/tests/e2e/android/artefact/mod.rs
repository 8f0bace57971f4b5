//! The library that is built for Android.

mod elf;
mod runs;
mod runtime;
