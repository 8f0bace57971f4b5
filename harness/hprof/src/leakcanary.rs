//! Prints an analysis like LeakCanary's `shark-cli analyze`, for scripts that read that output.
//!
//! Leaves out values that only a run of `shark-cli` has: duration, cache statistics, sizes of bitmaps.

use std::fmt::Write as _;

use crate::analysis::{Analysis, Leak};
use crate::tree::{lonely, tree};

const RULE: &str = "====================================\n";

/// The text for an analysis of `file`.
#[must_use]
pub fn leakcanary(analysis: &Analysis, file: &str) -> String {
    let mut text = format!("{RULE}HEAP ANALYSIS RESULT\n{RULE}");
    // Writing to a `String` cannot fail.
    write(&mut text, analysis, file).unwrap_or_default();
    text
}

fn write(text: &mut String, analysis: &Analysis, file: &str) -> std::fmt::Result {
    let Analysis { about, leaks, library_leaks, unreachable, .. } = analysis;
    writeln!(text, "{} APPLICATION LEAKS\n", leaks.len())?;
    text.push_str(
        "References underlined with \"~~~\" are likely causes.\nLearn more at https://squ.re/leaks.\n",
    );
    leaks.iter().try_for_each(|of| leak(text, of))?;
    writeln!(text, "{RULE}{} LIBRARY LEAKS\n", library_leaks.len())?;
    text.push_str(
        "A Library Leak is a leak caused by a known bug in 3rd party code that you do not have control over.\n\
         See https://square.github.io/leakcanary/fundamentals-how-leakcanary-works/#4-categorizing-leaks\n",
    );
    library_leaks.iter().try_for_each(|of| leak(text, of))?;
    let gone = unreachable.len() as u64 + analysis.unreachable_more;
    writeln!(text, "{RULE}{gone} UNREACHABLE OBJECTS\n")?;
    text.push_str(
        "An unreachable object is still in memory but LeakCanary could not find a strong reference path\nfrom GC roots.\n",
    );
    for node in unreachable {
        write!(text, "\n{}", lonely(node))?;
    }
    writeln!(text, "{RULE}METADATA\n\nPlease include this in bug reports and Stack Overflow questions.\n")?;
    let unknown = || "Unknown".to_owned();
    if let Some(sdk) = about.sdk {
        writeln!(text, "Build.VERSION.SDK_INT: {sdk}")?;
        writeln!(text, "Build.MANUFACTURER: {}", about.manufacturer.clone().unwrap_or_else(unknown))?;
        writeln!(text, "LeakCanary version: Unknown")?;
        writeln!(text, "App process name: {}", about.process.clone().unwrap_or_else(unknown))?;
    }
    for (name, count) in [
        ("Class count", about.classes),
        ("Instance count", about.instances),
        ("Primitive array count", about.primitive_arrays),
        ("Object array count", about.object_arrays),
        ("Thread count", about.threads),
        ("Heap total bytes", about.heap_bytes),
        ("Bitmap count", about.bitmaps),
    ] {
        writeln!(text, "{name}: {count}")?;
    }
    if about.cleared > 0 {
        writeln!(text, "Count of retained yet cleared: {} KeyedWeakReference instances", about.cleared)?;
    }
    writeln!(text, "Heap dump file path: {file}\nHeap dump timestamp: {}", about.milliseconds)?;
    text.push_str(RULE);
    Ok(())
}

fn leak(text: &mut String, leak: &Leak) -> std::fmt::Result {
    if let Some(pattern) = &leak.library {
        let name = leak.library_name.as_deref().unwrap_or_default();
        write!(text, "\nLeak pattern: {pattern}\nDescription: {name}")?;
    }
    writeln!(text, "\n{} bytes retained by leaking objects", leak.attributed)?;
    if leak.instances > 1 {
        let all = leak.instances;
        writeln!(text, "Displaying only 1 leak trace out of {all} with the same fingerprint")?;
    }
    write!(text, "Leak fingerprint: {}\n{}", leak.fingerprint, tree(leak))
}
