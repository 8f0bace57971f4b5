//! Objects of tracked classes: where they were allocated, how long they lived, and what is left.
//!
//! Data flow: `JavaObjects` frames → [`Followed::objects`] matches each freed object with its allocation and counts per
//! class and stack; events report commands that were executed meanwhile ([`Followed::obeyed`]) → `tracked_report`
//! reports the result. The agent reports a freed object when the virtual machine does, some time after the collection.
//! So lifetimes are upper bounds.

use std::collections::{BTreeMap, HashMap};

use memgate_model::LIFETIMES_NS;
use memgate_wire::java::JavaObjects;
use memgate_wire::spool::follow::{BEGINS, PAUSES, RESET};

/// Limits on sites and live objects; everything beyond counts as lost.
const MAX_SITES: usize = 100_000;
const MAX_ALIVE: usize = 2_000_000;

/// Objects of tracked classes in one process.
#[derive(Debug, Clone, Default)]
pub struct Followed {
    pub(super) sites: BTreeMap<(u32, u32), Counts>,
    alive: HashMap<u64, Born>,
    /// Events that the agent dropped for lack of room.
    pub(super) lost: u64,
    /// Objects dropped here for lack of room.
    pub(super) left_out: u64,
    /// Tracking has begun in this process, even if no object was seen yet.
    begun: bool,
    pub(super) pauses: u64,
}

/// Data of a live object.
#[derive(Debug, Clone, Copy)]
struct Born {
    site: (u32, u32),
    bytes: u64,
    at_ns: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    pub(super) allocations: u64,
    pub(super) bytes: u64,
    pub(super) freed: u64,
    pub(super) freed_bytes: u64,
    pub(super) lifetimes: [u64; LIFETIMES_NS.len() + 1],
}

impl Followed {
    pub(super) fn is_used(&self) -> bool {
        !self.sites.is_empty() || self.lost > 0
    }

    /// Does this process track objects?
    #[must_use]
    pub const fn is_following(&self) -> bool {
        self.begun
    }

    /// A command was executed: tracking begins, pauses, or forgets everything tracked before.
    pub(crate) fn obeyed(&mut self, what: &str) {
        match what {
            BEGINS => self.begun = true,
            RESET => (self.sites, self.alive) = Default::default(),
            PAUSES => self.pauses = self.pauses.saturating_add(1),
            _ => {}
        }
    }

    /// Reads the objects in a frame.
    pub(crate) fn objects(&mut self, frame: &JavaObjects) {
        self.lost = self.lost.max(frame.lost);
        for born in &frame.born {
            let site = (born.class, born.stack);
            let known = self.sites.len() < MAX_SITES || self.sites.contains_key(&site);
            if !known || self.alive.len() >= MAX_ALIVE {
                self.left_out = self.left_out.saturating_add(1);
                continue;
            }
            let counts = self.sites.entry(site).or_default();
            counts.allocations = counts.allocations.saturating_add(1);
            counts.bytes = counts.bytes.saturating_add(born.bytes);
            let at_ns = frame.base_ns.saturating_add(born.after_ns);
            self.alive.insert(born.object, Born { site, bytes: born.bytes, at_ns });
        }
        for freed in &frame.freed {
            let Some(born) = self.alive.remove(&freed.object) else { continue };
            let Some(counts) = self.sites.get_mut(&born.site) else { continue };
            let lived = frame.base_ns.saturating_add(freed.after_ns).saturating_sub(born.at_ns);
            counts.freed = counts.freed.saturating_add(1);
            counts.freed_bytes = counts.freed_bytes.saturating_add(born.bytes);
            let bucket = LIFETIMES_NS.iter().position(|limit| lived < *limit);
            if let Some(count) = counts.lifetimes.get_mut(bucket.unwrap_or(LIFETIMES_NS.len())) {
                *count = count.saturating_add(1);
            }
        }
    }
}
