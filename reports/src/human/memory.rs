//! The memory of an app as Android reports it, in one line.

use memgate_model::{AppMemory, format_bytes};

use crate::visible::visible;

/// `com.example.ATest.opens (dumpsys meminfo): total pss 21.4 MiB, java heap 3.1 MiB; 2 activities`. Zeros are left
/// out.
pub(crate) fn app_memory(memory: &AppMemory) -> String {
    let name = |name: &str| visible(&name.replace('_', " ")).into_owned();
    #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
    let bytes: Vec<String> = memory
        .bytes
        .iter()
        .filter(|(_, bytes)| **bytes > 0)
        .map(|(what, bytes)| format!("{} {}", name(what), format_bytes(*bytes as f64)))
        .collect();
    let counts = memory.objects.iter().filter(|(_, count)| **count > 0);
    let counts: Vec<String> = counts.map(|(what, count)| format!("{count} {}", name(what))).collect();
    let objects = if counts.is_empty() { String::new() } else { format!("; {}", counts.join(", ")) };
    format!("{} ({}): {}{objects}", visible(&memory.test), visible(&memory.source), bytes.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_are_not_zero_are_named() {
        let named = |pairs: &[(&str, u64)]| pairs.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        let mut memory = AppMemory {
            test: "A.b".into(),
            source: "dumpsys meminfo".into(),
            bytes: named(&[("total_pss", 3 << 20), ("graphics", 0), ("java_heap", 2048)]),
            objects: named(&[("activities", 2), ("views", 0)]),
        };
        let line = "A.b (dumpsys meminfo): java heap 2.0 KiB, total pss 3.0 MiB";
        assert_eq!(app_memory(&memory), format!("{line}; 2 activities"));
        memory.objects.clear();
        assert_eq!(app_memory(&memory), line);
    }
}
