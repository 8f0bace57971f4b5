//! Converts groups to leaks of the report.

use std::rc::Rc;

use memgate_model::{Frame, Leak, LeakKind, format_bytes, format_count, format_counted};

use super::context::JudgeContext;
use crate::groups::{Held, OsKind, Places, Sizes};
use crate::java::JavaLeak;
use crate::record::{Names, OsName, ProcessEnd, ProcessRecord, Window, by_name};
use crate::signature::{Place, mapped_id, normalised, os_id, os_id_of_place};
use crate::stats::float;
use std::collections::{BTreeMap, BTreeSet};

/// Most groups that a report lists for one test: the largest.
pub(super) const MAX_LISTED: usize = 50;

/// A group as a leak that grows per iteration.
pub(super) fn growing(place: &Place, bytes: f64, count: f64, sizes: &Sizes) -> Leak {
    native(place, bytes, count, title_per_iteration(count, bytes, sizes))
}

/// Names the other places of a leak that has several, and gives it their id.
pub(super) fn name_others(leak: &mut Leak, others: &[Rc<Place>], id: String) {
    leak.id = id;
    let mut names: Vec<String> = Vec::new();
    for name in others.iter().filter_map(|other| name_beside(&leak.frames, other)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.sort_unstable();
    let more = if names.len() > MAX_NAMES { ", …" } else { "" };
    names.truncate(MAX_NAMES);
    if !names.is_empty() {
        leak.title = format!("{}, also from {}{more}", leak.title, names.join(", "));
    }
}

/// The innermost function of a place that is not on this stack.
fn name_beside(stack: &[Frame], place: &Place) -> Option<String> {
    let functions = |stack: &'_ [Frame]| -> Vec<String> {
        stack.iter().filter_map(|it| it.function.as_deref()).map(normalised).collect()
    };
    let known = functions(stack);
    functions(&place.frames).into_iter().find(|name| !known.contains(name))
}

/// A group as a leak with everything that it holds, or that one execution left.
pub(super) fn in_all(held: &Held) -> Leak {
    native(&held.place, held.bytes, held.count, title_in_all(held.count, held.bytes, &held.sizes))
}

/// Title for everything that a group holds: `12 × 4096 B`, or `12 allocations, 1.2 KiB`.
fn title_in_all(count: f64, total: f64, sizes: &Sizes) -> String {
    match one(sizes) {
        Some(size) => format!("{} × {size} B", format_count(count)),
        None => format!("{}, {}", format_counted(count, "allocation"), format_bytes(total)),
    }
}

/// Title for what one iteration adds to a group.
fn title_per_iteration(count: f64, added: f64, sizes: &Sizes) -> String {
    match one(sizes) {
        _ if count < 1e-9 => format!("growing allocation, {} more per iteration", format_bytes(added)),
        Some(size) if count < 0.95 => {
            format!("1 × {size} B every {} iterations", format_count(round_near(1.0 / count)))
        }
        _ => title_in_all(round_near(count), added, sizes),
    }
}

fn one(sizes: &Sizes) -> Option<u64> {
    sizes.first().copied().filter(|_| sizes.len() == 1)
}

/// A robust slope may differ a little from the exact whole number.
fn round_near(value: f64) -> f64 {
    if (value - value.round()).abs() < 0.05 { value.round() } else { value }
}

fn native(place: &Place, bytes: f64, count: f64, title: String) -> Leak {
    Leak {
        id: place.id.clone(),
        kind: LeakKind::Native,
        title,
        bytes_per_iteration: bytes,
        count_per_iteration: count,
        frames: place.frames.clone(),
        truncated: place.truncated,
        ..Leak::default()
    }
}

/// Descriptors, threads or mapped bytes from one place of the code, or of one name if the place is unknown.
#[derive(Debug, Clone)]
pub(super) struct OsGroup {
    pub(super) kind: OsKind,
    pub(super) place: Option<Rc<Place>>,
    pub(super) names: Vec<String>,
    /// Number, or bytes.
    pub(super) count: f64,
    /// Number of ranges, for mapped bytes.
    pub(super) ranges: f64,
}

/// Most names in the title of a leak.
const MAX_NAMES: usize = 3;

impl OsGroup {
    pub(super) fn id(&self) -> String {
        match &self.place {
            _ if self.kind == OsKind::Mapping => mapped_id(self.place.as_deref(), &self.names),
            Some(place) => os_id_of_place(self.kind.noun(), place),
            None => os_id(self.kind.noun(), self.names.first().map_or("", String::as_str)),
        }
    }

    /// Names that a waiver's `frame` must match.
    pub(super) fn frame_names(&self) -> &[String] {
        self.place.as_ref().map_or(&[], |place| &place.names)
    }

    pub(super) fn leak(&self) -> Leak {
        let more = if self.names.len() > MAX_NAMES { ", …" } else { "" };
        let names = self.names.iter().take(MAX_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
        let (kind, title, bytes, count) = match self.kind {
            OsKind::Mapping => (LeakKind::Mapped, self.title_of_mappings(&names), self.count, self.ranges),
            OsKind::Descriptor | OsKind::Thread => {
                let title = format!("{} × {} {names}{more}", format_count(self.count), self.kind.noun());
                (LeakKind::Os, title, 0.0, self.count)
            }
        };
        Leak {
            id: self.id(),
            kind,
            title,
            bytes_per_iteration: bytes,
            count_per_iteration: count,
            frames: self.place.as_ref().map(|place| place.frames.clone()).unwrap_or_default(),
            truncated: self.place.as_ref().is_some_and(|place| place.truncated),
            ..Leak::default()
        }
    }

    /// `2 mappings of anonymous memory, 128.0 KiB`. For an enlarged mapping: the added bytes.
    fn title_of_mappings(&self, of: &str) -> String {
        let (ranges, bytes) = (round_near(self.ranges), format_bytes(self.count));
        match ranges < 0.05 {
            true => format!("growing mapping of {of}, {bytes} more per iteration"),
            false => format!("{} of {of}, {bytes}", format_counted(ranges, self.kind.noun())),
        }
    }
}

/// Descriptors, threads or mappings of one name, from any place.
pub(super) fn of_os(kind: OsKind, name: &str, count: f64) -> Leak {
    OsGroup { kind, place: None, names: vec![name.to_owned()], count, ranges: 0.0 }.leak()
}

/// Largest first, then those `behind` the others, limited to a page.
pub(super) fn sorted(mut leaks: Vec<Leak>, behind: &BTreeSet<String>) -> Vec<Leak> {
    leaks.sort_by(|a, b| {
        let [is_behind, other] = [a, b].map(|leak| behind.contains(&leak.id));
        is_behind
            .cmp(&other)
            .then(b.bytes_per_iteration.total_cmp(&a.bytes_per_iteration))
            .then(b.count_per_iteration.total_cmp(&a.count_per_iteration))
            .then_with(|| a.id.cmp(&b.id))
    });
    leaks.truncate(MAX_LISTED);
    leaks
}

/// Descriptors, threads and mappings that one execution left, by their place.
pub(super) fn os_left(
    record: &ProcessRecord,
    window: &Window,
    context: &mut JudgeContext<'_>,
) -> Vec<OsGroup> {
    let mut places = Places::new(record, context.resolve);
    let mut left: Vec<OsGroup> = Vec::new();
    for kind in OsKind::ALL {
        let Some((before, after)) = kind.at_start(window).zip(kind.at_end(window)) else { continue };
        let names = by_name(before);
        let of_name = |name: &str| names.get(name).copied().unwrap_or(0);
        let of_stack: BTreeMap<&OsName, u64> = before.iter().map(|(name, count)| (name, *count)).collect();
        for (name, count) in by_name(after) {
            let more = count.saturating_sub(of_name(name));
            let of_place = |(known, count): &(OsName, u64)| {
                let more = count.saturating_sub(of_stack.get(known).copied().unwrap_or(0));
                (known.name == name && more > 0).then_some((known.stack, more))
            };
            let mut by_stack: Vec<(u32, u64)> = after.iter().filter_map(of_place).collect();
            // If one was closed and another opened instead, it is unknown which of the new ones is left.
            if by_stack.iter().map(|(_, more)| more).sum::<u64>() != more {
                by_stack = vec![(0, more)];
            }
            for (stack, more) in by_stack.into_iter().filter(|(_, more)| *more > 0) {
                let place = places.of_handle(stack);
                let (names, count) = (vec![name.to_owned()], float(more));
                let ranges = if kind == OsKind::Mapping { more_ranges(window, name, stack) } else { 0.0 };
                add(&mut left, OsGroup { kind, place, names, count, ranges });
            }
        }
    }
    left
}

/// Handles of a kind at the end of the last execution, by their place.
pub(super) fn at_last(
    record: &ProcessRecord,
    test: &str,
    kind: OsKind,
    context: &mut JudgeContext<'_>,
) -> Vec<OsGroup> {
    let mut places = Places::new(record, context.resolve);
    let names = record.windows_of(test).last().and_then(|window| kind.at_end(window));
    let group = |(name, count): &(OsName, u64)| OsGroup {
        kind,
        place: places.of_handle(name.stack),
        names: vec![name.name.clone()],
        count: float(*count),
        ranges: 0.0,
    };
    names.into_iter().flat_map(|names| names.iter()).map(group).collect()
}

/// Handles of a kind that exist at the end of a process, by their place. The process itself made them, because their
/// stack is known. Handles of the C library and of Rust's runtime are left out.
pub(super) fn made_until(
    record: &ProcessRecord,
    end: &ProcessEnd,
    kind: OsKind,
    context: &mut JudgeContext<'_>,
) -> Vec<OsGroup> {
    let mut places = Places::new(record, context.resolve);
    let mut made: Vec<OsGroup> = Vec::new();
    for (OsName { name, stack }, count) in kind.at_exit(end).into_iter().flat_map(|names| names.iter()) {
        let Some(place) = places.of_handle(*stack) else { continue };
        if place.is_rusts_own() || place.is_glibcs_own() {
            continue;
        }
        let of = |names: &Names| {
            names
                .iter()
                .find(|(of, _)| of.name == *name && of.stack == *stack)
                .map(|(_, ranges)| float(*ranges))
        };
        let mapped = end.mapped.as_ref().filter(|_| kind == OsKind::Mapping);
        let ranges = mapped.and_then(|mapped| of(&mapped.counts)).unwrap_or_default();
        let names = vec![name.clone()];
        add(&mut made, OsGroup { kind, place: Some(place), names, count: float(*count), ranges });
    }
    made
}

/// Adds a group to the one of the same place, if that is known.
fn add(groups: &mut Vec<OsGroup>, group: OsGroup) {
    match groups.iter_mut().find(|known| known.place.is_some() && known.id() == group.id()) {
        Some(known) => {
            known.count += group.count;
            known.ranges += group.ranges;
            if !known.names.contains(&group.names[0]) {
                known.names.extend(group.names);
            }
        }
        None => groups.push(group),
    }
}

/// Ranges of this kind that one execution left from a stack, or from all stacks if `stack` is 0.
fn more_ranges(window: &Window, kind: &str, stack: u32) -> f64 {
    let of = |names: &Names| -> f64 {
        let is_it = |name: &OsName| name.name == kind && (stack == 0 || name.stack == stack);
        names.iter().filter(|(name, _)| is_it(name)).map(|(_, count)| float(*count)).sum()
    };
    let ends = window.mapped_start.as_ref().zip(window.mapped_end.as_ref());
    ends.map_or(0.0, |(start, end)| (of(&end.counts) - of(&start.counts)).max(0.0))
}

pub(super) fn shown(leak: &JavaLeak) -> Leak {
    let JavaLeak { id, class, count, bytes, holder, frames, .. } = leak;
    Leak {
        id: id.clone(),
        kind: LeakKind::Java,
        title: of_objects(class, *count),
        bytes_per_iteration: *bytes,
        count_per_iteration: *count,
        class: Some(class.clone()),
        frames: frames.clone(),
        holder: holder.clone(),
        ..Leak::default()
    }
}

/// `12 × com.example.Tile`.
pub(super) fn of_objects(class: &str, count: f64) -> String {
    match count > 0.0 {
        true => format!("{} × {class}", format_count(count)),
        false => format!("growing {class}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_name_equal_sizes_and_sum_up_others() {
        let equal = Sizes::from([4096]);
        let different = Sizes::from([16, 24]);
        assert_eq!(title_in_all(12.0, 49152.0, &equal), "12 × 4096 B");
        assert_eq!(title_in_all(12.0, 1229.0, &different), "12 allocations, 1.2 KiB");
        assert_eq!(title_in_all(1.0, 16.0, &Sizes::new()), "1 allocation, 16 B");
        assert_eq!(title_per_iteration(12.0, 49152.0, &equal), "12 × 4096 B");
        assert_eq!(title_per_iteration(0.3333, 1365.0, &equal), "1 × 4096 B every 3 iterations");
        assert_eq!(title_per_iteration(0.0, 64.0, &different), "growing allocation, 64 B more per iteration");
        assert_eq!(title_per_iteration(2.5, 40.0, &different), "2.5 allocations, 40 B");
    }
}
