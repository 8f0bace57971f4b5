//! Watches how full the heap is while tests run: a curve, and an optional limit.
//!
//! Data flow: sampled allocations say how much was allocated since the last look → if the heap may have changed
//! visibly, its used bytes are read ([`HeapWatch::look`]) and written into the stream → above the limit a collection
//! removes the garbage ([`HeapWatch::collected`]). If the heap is still above the limit, an event is written at once,
//! and a short-lived thread makes the virtual machine dump the heap, and finds what fills it. The allocating thread
//! goes on.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use jni::Env;
use jni::objects::{Global, JObject};
use memgate_ffi::process;
use memgate_jvmti::Jvmti;

use super::vm;

/// A point of the curve is due when this fraction (1/n) of the maximum heap was allocated.
const PARTS: u64 = 64;
/// Minimum time between two looks. It becomes longer in a long run, so that the stream stays small.
const SOON_NS: u64 = 1_000_000;
const LATER_NS: u64 = 50_000_000;
const SOON_LOOKS: u64 = 10_000;
/// A look is due after this time even without much allocation.
const SLOWEST_NS: u64 = 1_000_000_000;
/// Collections because of the limit may take this fraction (1/n) of the time.
const SHARE: u64 = 10;

/// The heap as it was last seen.
pub(crate) struct HeapWatch {
    /// Percent of the maximum heap that may be in use; `None`: all.
    limit: Option<u64>,
    /// The `java.lang.Runtime` that gives the figures; set once the virtual machine runs. An allocation may happen at
    /// any point of other code, so only the native methods of this object may be called.
    runtime: OnceLock<Global<JObject<'static>>>,
    /// Bytes allocated since the last look, estimated from samples.
    allocated: AtomicU64,
    max: AtomicU64,
    looks: AtomicU64,
    last_ns: AtomicU64,
    /// No collection is made before this time.
    rests_until_ns: AtomicU64,
    told: AtomicBool,
}

impl HeapWatch {
    pub(crate) fn new(limit: Option<u64>) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            limit,
            runtime: OnceLock::new(),
            allocated: zero(),
            max: zero(),
            looks: zero(),
            last_ns: zero(),
            rests_until_ns: zero(),
            told: AtomicBool::new(false),
        }
    }

    /// The virtual machine runs.
    pub(crate) fn begin(&self, env: &mut Env<'_>) {
        let Some(runtime) = vm::runtime(env) else { return };
        self.max.store(vm::max_of(env, &runtime).unwrap_or(0), Ordering::Relaxed);
        self.runtime.get_or_init(|| runtime);
    }

    /// Used bytes of the heap now.
    pub(crate) fn used(&self, env: &mut Env<'_>) -> Option<u64> {
        vm::used_of(env, self.runtime.get()?)
    }

    /// `bytes` were allocated in this thread. Returns the used bytes of the heap if a look is due.
    pub(crate) fn look(&self, env: &mut Env<'_>, bytes: u64) -> Option<u64> {
        let allocated = self.allocated.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let now_ns = process::monotonic_ns();
        let last_ns = self.last_ns.load(Ordering::Relaxed);
        let since_ns = now_ns.saturating_sub(last_ns);
        let gap_ns = if self.looks.load(Ordering::Relaxed) < SOON_LOOKS { SOON_NS } else { LATER_NS };
        let much = allocated >= self.max.load(Ordering::Relaxed) / PARTS;
        if since_ns < gap_ns || !(much || since_ns >= SLOWEST_NS) {
            return None;
        }
        // Only one of several threads looks.
        self.last_ns.compare_exchange(last_ns, now_ns, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        self.allocated.store(0, Ordering::Relaxed);
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.used(env)
    }

    /// Are these used bytes above the limit?
    pub(crate) fn is_above(&self, used: u64) -> bool {
        let max = self.max.load(Ordering::Relaxed);
        let untold = !self.told.load(Ordering::Relaxed);
        self.limit.is_some_and(|limit| untold && used > (max / 100).saturating_mul(limit))
    }

    /// Collects if that is affordable, so that garbage does not count. Returns the used bytes of the heap afterwards.
    pub(crate) fn collected(&self, env: &mut Env<'_>, jvmti: Jvmti<'_>) -> Option<u64> {
        let began_ns = process::monotonic_ns();
        let until_ns = self.rests_until_ns.load(Ordering::Relaxed);
        let swap =
            |to| self.rests_until_ns.compare_exchange(until_ns, to, Ordering::Relaxed, Ordering::Relaxed);
        if began_ns < until_ns || swap(u64::MAX).is_err() {
            return None;
        }
        // If the virtual machine refuses to collect, garbage counts.
        let _counts_as_it_is = jvmti.collect();
        let used = self.used(env);
        let now_ns = process::monotonic_ns();
        let rest_ns = now_ns.saturating_sub(began_ns).saturating_mul(SHARE);
        self.rests_until_ns.store(now_ns.saturating_add(rest_ns), Ordering::Relaxed);
        used
    }

    /// The text to report; `None`: it was already reported.
    pub(crate) fn tells(&self) -> Option<String> {
        let limit = self.limit.filter(|_| !self.told.swap(true, Ordering::Relaxed))?;
        Some(format!("heap usage above {limit} %"))
    }

    pub(crate) fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }
}
