//! Objects that were followed from their allocation to their end.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::leak::Frame;

/// Where the buckets of [`FollowedSite::lifetimes`] end, nanoseconds: 1 ms, 10 ms, 100 ms, 1 s, 10
/// s; the last bucket has no end.
pub const LIFETIMES_NS: [u64; 5] = [1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000];

/// Everything that was followed in a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Followed {
    /// Allocation sites, those with most live bytes first, then those with most bytes.
    pub sites: Vec<FollowedSite>,
    /// Classes whose code allocated them, most live bytes first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blame: Vec<Blamed>,
    /// All that was followed, at the sites that are kept and beyond.
    #[serde(default)]
    pub all: FollowedTotal,
    /// Sites beyond those that are kept.
    pub left_out: u64,
    /// Allocations and ends that there was no room for: the figures are short by so many.
    pub lost: u64,
    /// How often following was paused: what was allocated then is missing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pauses: u64,
}

/// The sum over all allocation sites.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FollowedTotal {
    /// How many objects were allocated.
    pub allocations: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many of them were there at the end.
    pub live: u64,
    /// Their bytes.
    pub live_bytes: u64,
}

/// A class whose code allocated followed objects: the first on their stacks that is not to be
/// ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Blamed {
    /// The class; `(elsewhere)`: every class on the stack is ignored, or none is a target.
    pub class: String,
    /// How many objects it allocated.
    pub allocations: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many of them were there at the end.
    pub live: u64,
    /// Bytes of these.
    pub live_bytes: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// Objects of one class that were allocated by one stack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FollowedSite {
    /// Their class.
    pub class: String,
    /// The stack, innermost frame first.
    pub frames: Vec<Frame>,
    /// How many were allocated.
    pub allocations: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many of them were there at the end.
    pub live: u64,
    /// Bytes of these.
    pub live_bytes: u64,
    /// How many of the others were collected within 1 ms, 10 ms, 100 ms, 1 s, 10 s, and later.
    pub lifetimes: Vec<u64>,
}

/// The four figures that these types share.
macro_rules! totals {
    ($($of:ty),*) => {$(
        impl $of {
            /// Its figures alone.
            #[must_use]
            pub const fn totals(&self) -> FollowedTotal {
                let Self { allocations, bytes, live, live_bytes, .. } = *self;
                FollowedTotal { allocations, bytes, live, live_bytes }
            }

            /// Adds figures to its own.
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
