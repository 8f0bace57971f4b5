//! Snapshots and their difference, as text and as JSON.

use std::path::Path;

use memgate_formats::malloc_debug::{Change, Record, Snapshot, compare};
use memgate_symbols::Symbol;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::symbols::Names;

/// Number of records shown without `--verbose`.
const SHOWN: usize = 20;
/// Number of frames shown for each.
const FRAMES: usize = 12;

/// A file that was read.
pub(super) struct Read<'a> {
    pub(super) path: &'a Path,
    pub(super) snapshot: &'a Snapshot,
    /// Names of its frames.
    pub(super) names: Names,
}

/// The output of `--json`.
#[derive(Serialize)]
struct Shown<'a> {
    schema_version: u32,
    files: Vec<FileJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Vec<RecordJson<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<Value>,
}

pub(super) fn snapshots(read: &[Read<'_>], as_json: bool, verbose: bool) -> serde_json::Result<String> {
    if as_json {
        let files: Vec<_> = read.iter().map(FileJson).collect();
        return pretty(&Shown { schema_version: 1, files, changes: None, change: None });
    }
    let mut text = String::new();
    for file in read {
        let snapshot = file.snapshot;
        head(&mut text, file);
        let shown = if verbose { usize::MAX } else { SHOWN };
        for record in snapshot.records.iter().take(shown) {
            let zygote = if record.zygote_child { "" } else { zygote_note(snapshot) };
            line(
                &mut text,
                &format!("{:>12} B  {} × {} B{zygote}", record.bytes(), record.count, record.size),
            );
            stack(&mut text, record, file, verbose);
        }
        if let Some(hidden) = snapshot.records.len().checked_sub(shown).filter(|hidden| *hidden > 0) {
            line(&mut text, &format!("and {hidden} more records: --verbose shows all of them"));
        }
    }
    Ok(text)
}

pub(super) fn difference(before: &Read<'_>, after: &Read<'_>, as_json: bool) -> serde_json::Result<String> {
    let (was, is) = (before.snapshot, after.snapshot);
    let changes = compare(was, is);
    let grown = i128::from(is.total_bytes).saturating_sub(i128::from(was.total_bytes));
    let more = i128::from(is.total_count).saturating_sub(i128::from(was.total_count));
    if as_json {
        let files = vec![FileJson(before), FileJson(after)];
        let each = changes.iter().map(|change| RecordJson {
            record: change.record,
            file: if change.gone { before } else { after },
            change: Some(change),
        });
        let totals = json!({ "bytes": signed(grown), "count": signed(more) });
        return pretty(&Shown {
            schema_version: 1,
            files,
            changes: Some(each.collect()),
            change: Some(totals),
        });
    }
    let mut text = String::new();
    head(&mut text, before);
    head(&mut text, after);
    line(&mut text, &format!("{grown:+} B, {more:+} allocations, {} sites changed", changes.len()));
    if was.maps.is_empty() || is.maps.is_empty() {
        line(&mut text, "stacks are compared by address: right only within one process");
    }
    for change in &changes {
        let (record, bytes) = (change.record, change.bytes());
        line(&mut text, &format!("{bytes:>+12} B  {} → {} × {} B", change.before, change.after, record.size));
        stack(&mut text, record, if change.gone { before } else { after }, false);
    }
    Ok(text)
}

fn head(text: &mut String, Read { path, snapshot, .. }: &Read<'_>) {
    let Snapshot { format, records, total_bytes, total_count, .. } = *snapshot;
    let (path, format, distinct) = (path.display(), format.name(), records.len());
    line(
        text,
        &format!("{path}  {format}  {total_bytes} B in {total_count} allocations, {distinct} records"),
    );
    for odd in &snapshot.oddities {
        line(text, &format!("  note: {odd}"));
    }
}

/// Empty unless the process is a child of the zygote: otherwise the flag means nothing.
fn zygote_note(snapshot: &Snapshot) -> &'static str {
    if snapshot.records.iter().any(|record| record.zygote_child) {
        "  (before the fork from the zygote)"
    } else {
        ""
    }
}

fn stack(text: &mut String, record: &Record, file: &Read<'_>, all: bool) {
    let places: Vec<String> = places(record, file).into_iter().flatten().collect();
    let shown = if all { places.len() } else { FRAMES };
    for place in places.iter().take(shown) {
        line(text, &format!("{:17}{place}", ""));
    }
    if places.len() > shown {
        line(text, &format!("{:17}… {} frames more", "", places.len() - shown));
    }
}

/// The places of each frame, functions inlined into it first: function, file and line, or file and offset, or only the
/// address.
fn places(record: &Record, Read { snapshot, names, .. }: &Read<'_>) -> Vec<Vec<String>> {
    if !record.named.is_empty() {
        let named = record.named.iter().map(|frame| {
            let place = format!("{}+{:#x}", frame.map, frame.relative_pc);
            vec![if frame.function.is_empty() {
                place
            } else {
                format!("{}+{:#x}  {place}", frame.function, frame.offset)
            }]
        });
        return named.collect();
    }
    let place = |pc: &u64| {
        let place = match snapshot.maps.place(*pc) {
            Some(place) => format!("{}+{:#x}", place.name, place.offset),
            None => format!("{pc:#x}"),
        };
        let known = names.get(pc).map(Vec::as_slice).unwrap_or_default();
        if known.is_empty() {
            return vec![place];
        }
        known
            .iter()
            .map(|symbol| format!("{}  {}", symbol.function, source(symbol).unwrap_or_else(|| place.clone())))
            .collect()
    };
    record.frames.iter().map(place).collect()
}

fn source(symbol: &Symbol) -> Option<String> {
    let file = symbol.file.as_ref()?;
    Some(symbol.line.map_or_else(|| file.clone(), |line| format!("{file}:{line}")))
}

/// A file as JSON, serialized piece by piece: a dump of 100 000 records would fill a gigabyte as a tree of values.
struct FileJson<'a>(&'a Read<'a>);

impl Serialize for FileJson<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let Self(file) = *self;
        let Read { path, snapshot, .. } = file;
        let records = snapshot.records.iter().map(|record| RecordJson { record, file, change: None });
        let odd = snapshot.oddities.iter().map(|odd| json!({ "kind": odd.kind(), "text": odd.to_string() }));
        let (bytes, count) = (snapshot.total_bytes, snapshot.total_count);
        let mut map = out.serialize_map(None)?;
        map.serialize_entry("path", &path.display().to_string())?;
        map.serialize_entry("format", snapshot.format.name())?;
        map.serialize_entry("build_fingerprint", &snapshot.build_fingerprint)?;
        map.serialize_entry("backtrace_size", &snapshot.backtrace_size)?;
        map.serialize_entry("totals", &json!({ "bytes": bytes, "count": count, "records": records.len() }))?;
        map.serialize_entry("records", &Each(records))?;
        map.serialize_entry("odd", &Each(odd))?;
        map.end()
    }
}

/// `frames` are the recorded addresses, `places` the same frames as text, `symbols` (with `--symbols`) the functions at
/// each, innermost first.
struct RecordJson<'a> {
    record: &'a Record,
    file: &'a Read<'a>,
    change: Option<&'a Change<'a>>,
}

impl Serialize for RecordJson<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let Self { record, file, change } = self;
        let frames = record.frames.iter().map(|pc| format!("{pc:#x}"));
        let mut map = out.serialize_map(None)?;
        map.serialize_entry("zygote", &record.zygote_child)?;
        map.serialize_entry("size", &record.size)?;
        match change {
            None => map.serialize_entry("count", &record.count)?,
            Some(change) => {
                map.serialize_entry("count", &signed(change.count()))?;
                map.serialize_entry("count_before", &change.before)?;
                map.serialize_entry("count_after", &change.after)?;
                map.serialize_entry("bytes", &signed(change.bytes()))?;
            }
        }
        map.serialize_entry("frames", &Each(frames))?;
        // One place for each frame: `symbols` contains the inlined functions.
        let places: Vec<String> =
            places(record, file).into_iter().filter_map(|mut place| place.pop()).collect();
        map.serialize_entry("places", &places)?;
        if !file.names.is_empty() {
            let known = |pc: &u64| file.names.get(pc).map(Vec::as_slice).unwrap_or_default();
            let symbols = record.frames.iter().map(|pc| Each(known(pc).iter().map(symbol)));
            map.serialize_entry("symbols", &Each(symbols))?;
        }
        map.end()
    }
}

fn symbol(Symbol { function, file, line, inlined }: &Symbol) -> Value {
    json!({ "function": function, "file": file, "line": line, "inlined": inlined })
}

/// The items of an iterator, one after the other.
struct Each<I>(I);

impl<I: Iterator<Item: Serialize> + Clone> Serialize for Each<I> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(self.0.clone())
    }
}

/// JSON numbers are limited to 64 bits.
fn signed(value: i128) -> Value {
    json!(i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX }))
}

fn pretty(shown: &Shown<'_>) -> serde_json::Result<String> {
    let mut text = serde_json::to_string_pretty(shown)?;
    text.push('\n');
    Ok(text)
}

/// Names come from outside: control characters are shown escaped.
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
