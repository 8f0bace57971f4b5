//! Models of the structures that threads share. A model checker runs the shipped source and tries every order of the
//! threads' steps and every value that a relaxed load may return (`--cfg loom`, see `memgate_tracker::sync`).
//! `tests/proofs/models` runs them.
//!
//! A thread that ends is joined: its work happens before the steps after the join, as with a guest's own
//! synchronization.
#![cfg(loom)]
#![expect(unsafe_code, reason = "a tracker is told where to publish by a pointer")]

mod boundary;
mod epochs;
// Included by its path, because memgate-ffi as a whole does not build under loom: no `static` can hold loom's atomics.
#[path = "../../../ffi/src/lock.rs"]
#[expect(dead_code, unreachable_pub, reason = "a file of another crate; the rest of it wraps the bare lock")]
mod lock;
mod locks;
mod mappings;
mod shared;
mod stacks;
mod table;
mod threads;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Tries every execution with at most `bounds.0` preemptions, or `bounds.1` if `MODELS=long`.
fn check(name: &'static str, bounds: (usize, usize), model: impl Fn() + Send + Sync + 'static) {
    static EXECUTIONS: AtomicU64 = AtomicU64::new(0);
    std::thread_local! {
        static COUNT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }
    let long = std::env::var("MODELS").is_ok_and(|form| form == "long");
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound =
        Some(if long { bounds.1 } else { bounds.0 }).filter(|_| std::env::var("NB").is_err());
    builder.max_branches = 100_000;
    let limit = Duration::from_secs(if long { 180 } else { 60 });
    builder.max_duration = Some(limit);
    let began = Instant::now();
    COUNT.set(0);
    builder.check(move || {
        COUNT.set(COUNT.get() + 1);
        memgate_tracker::sync::new_execution();
        model();
    });
    let (took, count) = (began.elapsed(), COUNT.get());
    EXECUTIONS.fetch_add(count, Ordering::Relaxed);
    let whole = if took < limit { "" } else { ", not all of them: out of time" };
    let bound = builder.preemption_bound.unwrap_or(0);
    println!(
        "model {name}: {count} executions, at most {bound} preemptions, {:.1} s{whole}",
        took.as_secs_f64()
    );
}
