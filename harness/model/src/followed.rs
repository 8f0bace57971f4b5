//! Java objects that were tracked from allocation to release.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::leak::Frame;

/// Upper limits of the buckets of [`FollowedSite::lifetimes`] in nanoseconds: 1 ms, 10 ms, 100 ms, 1 s, 10 s. The last
/// bucket has no limit.
pub const LIFETIMES_NS: [u64; 5] = [1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000];

/// All objects that were tracked in a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Followed {
    /// Allocation sites, sorted by `live_bytes`, then by `bytes`, largest first.
    pub sites: Vec<FollowedSite>,
    /// Classes whose code allocated the objects, sorted by `live_bytes`, largest first. Absent if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blame: Vec<Blamed>,
    /// Totals of all tracked objects, including sites that are left out of `sites`.
    #[serde(default)]
    pub all: FollowedTotal,
    /// Number of allocation sites that are left out of `sites`.
    pub left_out: u64,
    /// Number of allocations and releases that were dropped for lack of room. They are missing in all figures.
    pub lost: u64,
    /// How often tracking was paused. Objects that were allocated during a pause are missing. Absent if 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pauses: u64,
}

/// Totals over all allocation sites.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FollowedTotal {
    /// Number of allocated objects.
    pub allocations: u64,
    /// Bytes of these objects.
    pub bytes: u64,
    /// Number of these objects that were still alive at the end.
    pub live: u64,
    /// Bytes of the objects that were still alive at the end.
    pub live_bytes: u64,
}

/// A class whose code allocated tracked objects: the innermost class on the stack that the configuration does not
/// exclude.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Blamed {
    /// Name of the class; `(elsewhere)` if every class on the stack is ignored or none is a target.
    pub class: String,
    /// Number of objects that the class allocated.
    pub allocations: u64,
    /// Bytes of these objects.
    pub bytes: u64,
    /// Number of these objects that were still alive at the end.
    pub live: u64,
    /// Bytes of the objects that were still alive at the end.
    pub live_bytes: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// Objects of one class that were allocated by the same stack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FollowedSite {
    /// Class of the objects.
    pub class: String,
    /// Stack of the allocation, innermost frame first.
    pub frames: Vec<Frame>,
    /// Number of allocated objects.
    pub allocations: u64,
    /// Bytes of these objects.
    pub bytes: u64,
    /// Number of these objects that were still alive at the end.
    pub live: u64,
    /// Bytes of the objects that were still alive at the end.
    pub live_bytes: u64,
    /// Number of released objects by lifetime: below 1 ms, 10 ms, 100 ms, 1 s, 10 s, and longer. Lifetimes are upper
    /// bounds, because the virtual machine reports a release some time after the collection.
    pub lifetimes: Vec<u64>,
}

/// Access to the four figures that these types share.
macro_rules! totals {
    ($($of:ty),*) => {$(
        impl $of {
            /// The four figures.
            #[must_use]
            pub const fn totals(&self) -> FollowedTotal {
                let Self { allocations, bytes, live, live_bytes, .. } = *self;
                FollowedTotal { allocations, bytes, live, live_bytes }
            }

            /// Adds other figures to these.
            pub const fn add_totals(&mut self, more: FollowedTotal) {
                self.allocations = self.allocations.saturating_add(more.allocations);
                self.bytes = self.bytes.saturating_add(more.bytes);
                self.live = self.live.saturating_add(more.live);
                self.live_bytes = self.live_bytes.saturating_add(more.live_bytes);
            }
        }
    )*};
}

totals!(FollowedSite, Blamed, FollowedTotal);
