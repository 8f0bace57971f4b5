//! Groups as the report shows them.

use memgate_model::{Leak, LeakKind};

use crate::groups::{Held, OsKind};
use crate::signature::{Place, os_id};
use crate::text;

/// Groups that a report lists for one test: the largest.
pub(super) const MAX_LISTED: usize = 50;

/// What a group adds per iteration.
pub(super) fn growing(place: &Place, bytes: f64, count: f64, sizes: &text::Sizes) -> Leak {
    native(place, bytes, count, text::title_per_iteration(count, bytes, sizes))
}

/// What a group holds in all, or was left of it by one execution.
pub(super) fn in_all(held: &Held) -> Leak {
    native(&held.place, held.bytes, held.count, text::title_in_all(held.count, held.bytes, &held.sizes))
}

fn native(place: &Place, bytes: f64, count: f64, title: String) -> Leak {
    Leak {
        id: place.id.clone(),
        kind: LeakKind::Native,
        title,
        bytes_per_iteration: bytes,
        count_per_iteration: count,
        class: None,
        frames: place.frames.clone(),
        holder: Vec::new(),
        truncated: place.truncated,
        waiver: None,
    }
}

/// Descriptors or threads of one name.
pub(super) fn of_os(kind: OsKind, name: &str, count: f64) -> Leak {
    Leak {
        id: os_id(kind.noun(), name),
        kind: LeakKind::Os,
        title: format!("{} × {} {name}", text::number(count), kind.noun()),
        bytes_per_iteration: 0.0,
        count_per_iteration: count,
        class: None,
        frames: Vec::new(),
        holder: Vec::new(),
        truncated: false,
        waiver: None,
    }
}

/// Largest first, and no more than a page.
pub(super) fn sorted(mut leaks: Vec<Leak>) -> Vec<Leak> {
    leaks.sort_by(|a, b| {
        b.bytes_per_iteration
            .total_cmp(&a.bytes_per_iteration)
            .then(b.count_per_iteration.total_cmp(&a.count_per_iteration))
            .then_with(|| a.id.cmp(&b.id))
    });
    leaks.truncate(MAX_LISTED);
    leaks
}
