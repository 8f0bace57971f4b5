//! Snapshots and their difference, as text and as JSON.

use std::path::Path;

use memgate_formats::malloc_debug::{Change, Oddity, Record, Snapshot, compare};
use serde_json::{Value, json};

/// Records shown to a person who did not ask for all.
const SHOWN: usize = 20;
/// Frames shown of each.
const FRAMES: usize = 12;

pub(super) fn snapshots(read: &[(&Path, &Snapshot)], as_json: bool, verbose: bool) -> String {
    if as_json {
        let files: Vec<_> = read.iter().map(|(path, snapshot)| file(path, snapshot)).collect();
        return pretty(&json!({ "schema_version": 1, "files": files }));
    }
    let mut text = String::new();
    for (path, snapshot) in read {
        head(&mut text, path, snapshot);
        let shown = if verbose { usize::MAX } else { SHOWN };
        for record in snapshot.records.iter().take(shown) {
            let zygote = if record.zygote_child { "" } else { zygote_note(snapshot) };
            line(
                &mut text,
                &format!("{:>12} B  {} × {} B{zygote}", record.bytes(), record.count, record.size),
            );
            stack(&mut text, record, snapshot, verbose);
        }
        if let Some(hidden) = snapshot.records.len().checked_sub(shown).filter(|hidden| *hidden > 0) {
            line(&mut text, &format!("and {hidden} more records: --verbose shows all of them"));
        }
    }
    text
}

pub(super) fn difference(names: &[&Path], before: &Snapshot, after: &Snapshot, as_json: bool) -> String {
    let changes = compare(before, after);
    let grown = i128::from(after.total_bytes).saturating_sub(i128::from(before.total_bytes));
    let more = i128::from(after.total_count).saturating_sub(i128::from(before.total_count));
    if as_json {
        let files: Vec<_> =
            names.iter().zip([before, after]).map(|(path, snapshot)| file(path, snapshot)).collect();
        let changes: Vec<_> = changes.iter().map(|change| changed(change, before, after)).collect();
        let totals = json!({ "bytes": signed(grown), "count": signed(more) });
        return pretty(&json!({ "schema_version": 1, "files": files, "changes": changes, "change": totals }));
    }
    let mut text = String::new();
    for (path, snapshot) in names.iter().zip([before, after]) {
        head(&mut text, path, snapshot);
    }
    line(&mut text, &format!("{grown:+} B, {more:+} allocations, {} sites changed", changes.len()));
    if before.maps.is_empty() || after.maps.is_empty() {
        line(&mut text, "stacks are compared by address: right only within one process");
    }
    for change in &changes {
        let (record, bytes) = (change.record, change.bytes());
        line(&mut text, &format!("{bytes:>+12} B  {} → {} × {} B", change.before, change.after, record.size));
        stack(&mut text, record, if change.gone { before } else { after }, false);
    }
    text
}

fn head(text: &mut String, path: &Path, snapshot: &Snapshot) {
    let Snapshot { format, records, total_bytes, total_count, .. } = snapshot;
    let (path, format, distinct) = (path.display(), format.name(), records.len());
    line(
        text,
        &format!("{path}  {format}  {total_bytes} B in {total_count} allocations, {distinct} records"),
    );
    for odd in &snapshot.oddities {
        line(text, &format!("  note: {odd}"));
    }
}

/// Only where the process is a child of the zygote does it tell something.
fn zygote_note(snapshot: &Snapshot) -> &'static str {
    if snapshot.records.iter().any(|record| record.zygote_child) {
        "  (before the fork from the zygote)"
    } else {
        ""
    }
}

fn stack(text: &mut String, record: &Record, snapshot: &Snapshot, all: bool) {
    let places = places(record, snapshot);
    let shown = if all { places.len() } else { FRAMES };
    for place in places.iter().take(shown) {
        line(text, &format!("{:17}{place}", ""));
    }
    if places.len() > shown {
        line(text, &format!("{:17}… {} frames more", "", places.len() - shown));
    }
}

/// Each frame as well as it is known: function and file, file and offset, or the bare address.
fn places(record: &Record, snapshot: &Snapshot) -> Vec<String> {
    if !record.named.is_empty() {
        let named = record.named.iter().map(|frame| {
            let place = format!("{}+{:#x}", frame.map, frame.relative_pc);
            if frame.function.is_empty() {
                place
            } else {
                format!("{}+{:#x}  {place}", frame.function, frame.offset)
            }
        });
        return named.collect();
    }
    let place = |pc: &u64| match snapshot.maps.place(*pc) {
        Some(place) => format!("{}+{:#x}", place.name, place.offset),
        None => format!("{pc:#x}"),
    };
    record.frames.iter().map(place).collect()
}

fn file(path: &Path, snapshot: &Snapshot) -> Value {
    let records: Vec<_> = snapshot.records.iter().map(|found| record(found, snapshot)).collect();
    let odd: Vec<_> = snapshot.oddities.iter().map(oddity).collect();
    json!({
        "path": path.display().to_string(),
        "format": snapshot.format.name(),
        "build_fingerprint": snapshot.build_fingerprint,
        "backtrace_size": snapshot.backtrace_size,
        "totals": { "bytes": snapshot.total_bytes, "count": snapshot.total_count, "records": records.len() },
        "records": records,
        "odd": odd,
    })
}

fn oddity(odd: &Oddity) -> Value {
    json!({ "kind": odd.kind(), "text": odd.to_string() })
}

/// `frames` are the addresses as they were recorded, `places` the same frames as they can be told.
fn record(record: &Record, snapshot: &Snapshot) -> Value {
    let frames: Vec<_> = record.frames.iter().map(|pc| format!("{pc:#x}")).collect();
    json!({
        "zygote": record.zygote_child,
        "size": record.size,
        "count": record.count,
        "frames": frames,
        "places": places(record, snapshot),
    })
}

fn changed(change: &Change<'_>, before: &Snapshot, after: &Snapshot) -> Value {
    let mut value = record(change.record, if change.gone { before } else { after });
    value["count"] = signed(change.count());
    value["count_before"] = json!(change.before);
    value["count_after"] = json!(change.after);
    value["bytes"] = signed(change.bytes());
    value
}

/// JSON's numbers end at 64 bits.
fn signed(value: i128) -> Value {
    json!(i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX }))
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Names come from outside: what a terminal would obey is shown as what it is.
fn line(text: &mut String, shown: &str) {
    for c in shown.chars() {
        if c.is_control() {
            text.extend(c.escape_unicode());
        } else {
            text.push(c);
        }
    }
    text.push('\n');
}
