//! The same figures as protobuf: `dumpsys meminfo --proto PROCESS`, a `MemInfoDumpProto` of Android's
//! `activitymanagerservice.proto`.
//!
//! ```text
//! MemInfoDumpProto { repeated ProcessMemory native_processes = 3; repeated AppData app_processes = 4 }
//! AppData       { ProcessMemory process_memory = 1; ObjectStats objects = 2 }
//! ProcessMemory { pid = 1; process_name = 2; HeapInfo native_heap = 3; HeapInfo dalvik_heap = 4;
//!                 repeated MemoryInfo other_heaps = 5; MemoryInfo unknown_heap = 6; HeapInfo total_heap = 7;
//!                 AppSummary app_summary = 9 }
//! HeapInfo      { MemoryInfo mem_info = 1; size = 2; alloc = 3; free = 4 }
//! ```
//! Figures are KB, and zeros are not written. The result uses the names of the text form.

use super::{MemInfoError, ProcessMemory};
use crate::protobuf::{Fields, Malformed, Value};

/// Columns of the table by the fields of a `MemoryInfo`. Only one of the two swap columns is written, and resident
/// memory only after Android 10. A column exists if it is written.
const COLUMNS: [(u64, &str); 9] = [
    (2, "Pss Total"),
    (3, "Pss Clean"),
    (4, "Shared Dirty"),
    (5, "Private Dirty"),
    (6, "Shared Clean"),
    (7, "Private Clean"),
    (8, "Swap Dirty"),
    (9, "SwapPss Dirty"),
    (10, "Rss Total"),
];
/// Number of columns that every Android writes.
const ALWAYS: usize = 6;
const HEAP_COLUMNS: [(u64, &str); 3] = [(2, "Heap Size"), (3, "Heap Alloc"), (4, "Heap Free")];
const SUMMARY: [(u64, &str); 9] = [
    (1, "Java Heap"),
    (2, "Native Heap"),
    (3, "Code"),
    (4, "Stack"),
    (5, "Graphics"),
    (6, "Private Other"),
    (7, "System"),
    (8, "TOTAL SWAP PSS"),
    (9, "TOTAL SWAP (KB)"),
];
const SUMMARY_RSS: [(u64, &str); 6] =
    [(10, "Java Heap"), (11, "Native Heap"), (12, "Code"), (13, "Stack"), (14, "Graphics"), (15, "Unknown")];
const OBJECTS: [(u64, &str); 13] = [
    (1, "Views"),
    (2, "ViewRootImpl"),
    (3, "AppContexts"),
    (4, "Activities"),
    (5, "Assets"),
    (6, "AssetManagers"),
    (7, "Local Binders"),
    (8, "Proxy Binders"),
    (9, "Parcel memory"),
    (10, "Parcel count"),
    (11, "Death Recipients"),
    (12, "OpenSSL Sockets"),
    (13, "WebViews"),
];

type Read<T> = Result<T, Malformed>;

/// Reads the output for one process or several.
///
/// # Errors
/// [`MemInfoError`]: above all, that nothing was measured.
pub fn read_meminfo_proto(bytes: &[u8]) -> Result<Vec<ProcessMemory>, MemInfoError> {
    let found = dump(bytes).map_err(|Malformed(why)| MemInfoError::Proto(why))?;
    let empty = |process: &&ProcessMemory| process.total_pss().is_none_or(|total| total == 0);
    if let Some(process) = found.iter().find(empty) {
        return Err(MemInfoError::NoFigures { pid: process.pid });
    }
    if found.is_empty() { Err(MemInfoError::NoMemInfo) } else { Ok(found) }
}

fn dump(message: &[u8]) -> Read<Vec<ProcessMemory>> {
    let mut found = Vec::new();
    for field in Fields::of(message) {
        match field? {
            (3, Value::Bytes(process)) => {
                let mut memory = ProcessMemory::default();
                process_memory(process, &mut memory)?;
                found.push(memory);
            }
            (4, Value::Bytes(app)) => found.push(app_data(app)?),
            _ => {}
        }
    }
    Ok(found)
}

fn app_data(message: &[u8]) -> Read<ProcessMemory> {
    let mut memory = ProcessMemory::default();
    for field in Fields::of(message) {
        match field? {
            (1, Value::Bytes(process)) => process_memory(process, &mut memory)?,
            (2, Value::Bytes(objects)) => {
                for (name, count) in numbers(objects, &OBJECTS)? {
                    memory.objects.insert(name, count);
                }
            }
            _ => {}
        }
    }
    Ok(memory)
}

fn process_memory(message: &[u8], memory: &mut ProcessMemory) -> Read<()> {
    for field in Fields::of(message) {
        match field? {
            (1, Value::Varint(pid)) => memory.pid = pid,
            (2, Value::Bytes(name)) => memory.name = String::from_utf8_lossy(name).into_owned(),
            (3, Value::Bytes(heap)) => heap_info("Native Heap", heap, memory)?,
            (4, Value::Bytes(heap)) => heap_info("Dalvik Heap", heap, memory)?,
            (5, Value::Bytes(info)) => memory_info(None, info, memory)?,
            (6, Value::Bytes(info)) => memory_info(Some("Unknown"), info, memory)?,
            (7, Value::Bytes(heap)) => heap_info("TOTAL", heap, memory)?,
            (9, Value::Bytes(summary)) => app_summary(summary, memory)?,
            _ => {}
        }
    }
    // Columns that are zero in the total were not written.
    if let Some(total) = memory.rows.get_mut("TOTAL") {
        for (_, column) in COLUMNS.iter().take(ALWAYS).chain(&HEAP_COLUMNS) {
            total.entry((*column).to_owned()).or_insert(0);
        }
        let pss = total.get("Pss Total").copied().unwrap_or(0);
        memory.summary.insert("TOTAL PSS".to_owned(), pss);
    }
    Ok(())
}

fn heap_info(row: &str, message: &[u8], memory: &mut ProcessMemory) -> Read<()> {
    for field in Fields::of(message) {
        if let (1, Value::Bytes(info)) = field? {
            memory_info(Some(row), info, memory)?;
        }
    }
    let sizes = numbers(message, &HEAP_COLUMNS)?;
    memory.rows.entry(row.to_owned()).or_default().extend(sizes);
    Ok(())
}

/// Reads a row; without `row` the message contains its name.
fn memory_info(row: Option<&str>, message: &[u8], memory: &mut ProcessMemory) -> Read<()> {
    let mut name = row.unwrap_or_default().to_owned();
    for field in Fields::of(message) {
        if let (1, Value::Bytes(own)) = field?
            && row.is_none()
        {
            name = String::from_utf8_lossy(own).into_owned();
        }
    }
    let figures = numbers(message, &COLUMNS)?;
    memory.rows.entry(name).or_default().extend(figures);
    Ok(())
}

fn app_summary(message: &[u8], memory: &mut ProcessMemory) -> Read<()> {
    memory.summary.extend(numbers(message, &SUMMARY)?);
    let resident = numbers(message, &SUMMARY_RSS)?;
    // The table's own sum is wrong in Android 11.
    if !resident.is_empty() {
        let total = resident.iter().fold(0_u64, |sum, (_, kilobytes)| sum.saturating_add(*kilobytes));
        memory.summary.insert("TOTAL RSS".to_owned(), total);
    }
    Ok(())
}

/// The fields of a message that have names here. A negative value (`int32`) is not a figure.
fn numbers(message: &[u8], names: &[(u64, &str)]) -> Read<Vec<(String, u64)>> {
    let mut found = Vec::new();
    for field in Fields::of(message) {
        if let (number, Value::Varint(value)) = field?
            && let Some((_, name)) = names.iter().find(|(known, _)| *known == number)
            && i64::try_from(value).is_ok()
        {
            found.push(((*name).to_owned(), value));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varint(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            let byte = (value & 0x7f) as u8;
            value >>= 7;
            if value == 0 {
                bytes.push(byte);
                return bytes;
            }
            bytes.push(byte | 0x80);
        }
    }

    fn number(field: u64, value: u64) -> Vec<u8> {
        [varint(field << 3), varint(value)].concat()
    }

    fn message(field: u64, parts: &[Vec<u8>]) -> Vec<u8> {
        let body = parts.concat();
        [varint(field << 3 | 2), varint(body.len() as u64), body].concat()
    }

    fn text(field: u64, value: &str) -> Vec<u8> {
        message(field, &[value.as_bytes().to_vec()])
    }

    /// Figures of the capture in `meminfo`'s own tests, as its writer would encode them.
    fn capture() -> Vec<u8> {
        let process = message(
            1,
            &[
                number(1, 31966),
                text(2, "com.example"),
                message(
                    3,
                    &[
                        message(
                            1,
                            &[
                                text(1, "Native Heap"),
                                number(2, 1221),
                                number(5, 1176),
                                number(9, 3280),
                                number(10, 4732),
                            ],
                        ),
                        number(2, 13400),
                        number(3, 5592),
                        number(4, 2877),
                    ],
                ),
                message(5, &[text(1, "Stack"), number(2, 364), number(5, 364)]),
                message(6, &[text(1, "Unknown"), number(2, 103)]),
                message(
                    7,
                    &[
                        message(
                            1,
                            &[
                                text(1, "TOTAL"),
                                number(2, 21887),
                                number(5, 5604),
                                number(7, 7404),
                                number(10, 125_344),
                            ],
                        ),
                        number(3, 8644),
                    ],
                ),
                message(
                    9,
                    &[
                        number(1, 3204),
                        number(2, 1176),
                        number(8, 6580),
                        number(10, 30732),
                        number(15, 94612),
                    ],
                ),
            ],
        );
        let objects = message(2, &[number(3, 4), number(4, 2), number(99, 7)]);
        [number(1, 1_137_766_417), message(4, &[process, objects])].concat()
    }

    #[test]
    fn figures_have_the_names_of_the_text() {
        let [memory] = <[ProcessMemory; 1]>::try_from(read_meminfo_proto(&capture()).unwrap()).unwrap();
        assert_eq!((memory.pid, memory.name.as_str()), (31966, "com.example"));
        for (row, column, kilobytes) in [
            ("Native Heap", "Pss Total", 1221),
            ("Native Heap", "Heap Alloc", 5592),
            ("Stack", "Private Dirty", 364),
            ("Unknown", "Pss Total", 103),
            ("TOTAL", "Private Clean", 7404),
            // Not written: zero.
            ("TOTAL", "Heap Size", 0),
            ("Cursor", "Pss Total", 0),
        ] {
            assert_eq!(memory.kilobytes(row, column), Some(kilobytes), "{row} {column}");
        }
        assert_eq!(memory.kilobytes("TOTAL", "Swap Dirty"), None, "this kernel has SwapPss");
        assert_eq!((memory.total_pss(), memory.summary["TOTAL RSS"]), (Some(21887), 125_344));
        assert_eq!(memory.summary["Java Heap"], 3204);
        assert_eq!(memory.objects.get("Activities"), Some(&2));
        assert_eq!(memory.objects.len(), 2, "a field that is not known has no name");
    }

    #[test]
    fn what_measured_nothing_is_an_error() {
        let dead = message(4, &[message(1, &[number(1, 7), text(2, "x")])]);
        assert_eq!(read_meminfo_proto(&dead).unwrap_err(), MemInfoError::NoFigures { pid: 7 });
        for (bytes, error) in [
            (&b""[..], MemInfoError::NoMemInfo),
            // A text is not valid: `No process found for: x`.
            (b"No process found for: x\n", MemInfoError::Proto("no field has this type")),
        ] {
            assert_eq!(read_meminfo_proto(bytes).unwrap_err(), error);
        }
        let whole = capture();
        for length in 1..whole.len() {
            // If it is cut off between two fields of the outermost message, it has no process yet.
            assert!(read_meminfo_proto(&whole[..length]).is_err(), "{length}");
        }
    }
}
