//! How full the heap is while tests run: a curve, and a limit that may be asked for.
//!
//! Data flow: sampled allocations say how much was allocated since the last look → where the heap
//! may have changed by a part that can be seen, its used bytes are asked for ([`HeapWatch::look`])
//! and written into the stream → above the limit a collection tells garbage from what is alive
//! ([`HeapWatch::collected`]); above it still, an event is written at once, and a thread of its
//! own, which ends again, has the heap dumped and looks what fills it: the thread that allocates
//! goes on.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use jni::Env;
use jni::objects::{Global, JObject};
use memgate_ffi::process;
use memgate_jvmti::Jvmti;

use super::vm;

/// Parts of the largest heap that make a point of the curve.
const PARTS: u64 = 64;
/// A look at least this long after the one before; later ones of a long run further apart, so that
/// its stream stays small.
const SOON_NS: u64 = 1_000_000;
const LATER_NS: u64 = 50_000_000;
const SOON_LOOKS: u64 = 10_000;
/// Also without much allocation.
const SLOWEST_NS: u64 = 1_000_000_000;
/// Collections because of the limit may take this part of the time.
const SHARE: u64 = 10;

/// The heap as it was last seen.
pub(crate) struct HeapWatch {
    /// Percent of the largest heap that may be in use; `None`: all.
    limit: Option<u64>,
    /// Who is asked; known once the virtual machine runs. An allocation may come in the middle of
    /// anything, so that nothing but its native methods may be called there.
    runtime: OnceLock<Global<JObject<'static>>>,
    /// Bytes allocated since the last look, as samples tell.
    allocated: AtomicU64,
    max: AtomicU64,
    looks: AtomicU64,
    last_ns: AtomicU64,
    /// No collection before.
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

    /// So many bytes were allocated, in this thread. Used bytes of the heap, where it is time to
    /// look.
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
        // Of several threads one looks.
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

    /// Collects, so that garbage does not count, where that is affordable. Used bytes of the heap
    /// then.
    pub(crate) fn collected(&self, env: &mut Env<'_>, jvmti: Jvmti<'_>) -> Option<u64> {
        let began_ns = process::monotonic_ns();
        let until_ns = self.rests_until_ns.load(Ordering::Relaxed);
        let swap =
            |to| self.rests_until_ns.compare_exchange(until_ns, to, Ordering::Relaxed, Ordering::Relaxed);
        if began_ns < until_ns || swap(u64::MAX).is_err() {
            return None;
        }
        // Where it will not collect, garbage counts.
        let _counts_as_it_is = jvmti.collect();
        let used = self.used(env);
        let now_ns = process::monotonic_ns();
        let rest_ns = now_ns.saturating_sub(began_ns).saturating_mul(SHARE);
        self.rests_until_ns.store(now_ns.saturating_add(rest_ns), Ordering::Relaxed);
        used
    }

    /// What is reported once; `None`: it was reported.
    pub(crate) fn tells(&self) -> Option<String> {
        let limit = self.limit.filter(|_| !self.told.swap(true, Ordering::Relaxed))?;
        Some(format!("heap usage above {limit} %"))
    }

    pub(crate) fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }
}
