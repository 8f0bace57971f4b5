//! The pure parts of the Java side, from their source: see `options.rs`.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "parts of another crate, compiled alone")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "../src/jvm/graph.rs"]
mod graph;
#[path = "../src/jvm/limit.rs"]
mod limit;
#[path = "../src/jvm/pace.rs"]
mod pace;
#[path = "../src/jvm/target.rs"]
mod target;
#[path = "../src/jvm/weight.rs"]
mod weight;
