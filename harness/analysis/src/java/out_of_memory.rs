//! Out-of-memory errors, and heaps above their limit: the window in which they happened, and what filled the heap.

use memgate_model::format_bytes;
use memgate_wire::Outcome;
use memgate_wire::java::JavaExhausted;

use super::names::is_own;
use super::record::{Exhaustion, JavaRecord};
use crate::record::{ProcessRecord, Window};
use crate::stats::float;

/// Most errors to keep per process.
const MAX_ERRORS: usize = 64;
/// Most classes to name.
const SHOWN: usize = 3;

impl Exhaustion {
    /// Description for the report.
    pub(crate) fn described(&self) -> String {
        let bytes = |bytes: u64| format_bytes(float(bytes));
        let kind = if self.limit { "" } else { "OutOfMemoryError: " };
        let mut text = format!("{kind}{}", self.what);
        if let (Some(used), Some(max)) = (self.heap_used, self.heap_max) {
            text += &format!(", {} of {} used", bytes(used), bytes(max));
        }
        let classes: Vec<String> = self
            .classes
            .iter()
            .map(|(class, count, size)| format!("{count} × {class} ({})", bytes(*size)))
            .collect();
        if !classes.is_empty() {
            text += &format!(", most by {}", classes.join(", "));
        }
        let own = self.frames.iter().find(|f| f.function.as_deref().is_some_and(is_own));
        if let Some(frame) = own.or(self.frames.first()) {
            let place = match (&frame.file, frame.line) {
                (Some(file), Some(line)) => format!("({file}:{line})"),
                _ => String::new(),
            };
            text += &format!(", most allocated at {}{place}", frame.function.as_deref().unwrap_or("?"));
        }
        if !self.held.is_empty() {
            text += &format!("; {}", self.held);
        }
        if let Some(dump) = &self.dump {
            text += &format!("; heap dump: {dump}");
        }
        text
    }
}

impl JavaRecord {
    /// Stores the report of an error.
    pub(crate) fn ran_out(&mut self, told: &JavaExhausted, t_ns: u64) {
        if self.exhausted.len() >= MAX_ERRORS {
            return;
        }
        let name = |class: u32| self.class(class).unwrap_or("?").to_owned();
        let most = told.sites.iter().max_by_key(|site| site.bytes);
        let exhaustion = Exhaustion {
            t_ns,
            what: told.what.clone(),
            limit: told.flags == 0,
            heap_used: told.heap_used,
            heap_max: told.heap_max,
            classes: told.classes.iter().take(SHOWN).map(|c| (name(c.class), c.instances, c.bytes)).collect(),
            frames: most.map(|site| self.stack(site.stack)).unwrap_or_default(),
            held: String::new(),
            dump: told.dump.clone(),
        };
        // Above the limit, a separate thread of the agent inspects the heap and reports its results later.
        match self.exhausted.iter_mut().find(|first| first.limit && exhaustion.limit) {
            Some(first) => {
                let (t_ns, heap_used, heap_max) = (first.t_ns, first.heap_used, first.heap_max);
                *first = Exhaustion { t_ns, heap_used, heap_max, ..exhaustion };
            }
            None => self.exhausted.push(exhaustion),
        }
    }
}

/// The most informative error of a test in whose window memory ran out. `end_ns` 0: the test never ended.
pub(crate) fn ran_out(record: &ProcessRecord, start_ns: u64, end_ns: u64) -> Option<&Exhaustion> {
    let java = record.java.as_ref()?;
    let inside = |e: &&Exhaustion| e.t_ns >= start_ns && (end_ns == 0 || e.t_ns <= end_ns);
    // The first error is the most informative: it was inspected closely, and later errors are often its consequences.
    let error = java.exhausted.iter().filter(inside).find(|e| !e.limit);
    error.or_else(|| java.exhausted.iter().find(inside))
}

/// The error that ended a test: the test failed, or its process broke off, after memory ran out.
pub(crate) fn ended_by_error<'a>(record: &'a ProcessRecord, test: &str) -> Option<&'a Exhaustion> {
    let failed = |window: &&Window| window.outcome == Some(Outcome::Failed);
    let failed = record.windows_of(test).filter(failed).map(|window| (window.start_ns, window.end_ns));
    let open = record.open.iter().filter(|open| open.id == test).map(|open| (open.window.start_ns, u64::MAX));
    failed.chain(open).find_map(|(start_ns, end_ns)| error(record, start_ns, end_ns))
}

/// Did memory run out while `test` was repeated?
#[must_use]
pub fn ran_out_of_memory(record: &ProcessRecord, test: &str) -> bool {
    ended_by_error(record, test).is_some()
}

/// The first error in this interval.
pub(super) fn error(record: &ProcessRecord, start_ns: u64, end_ns: u64) -> Option<&Exhaustion> {
    let errors = record.java.as_ref()?.exhausted.iter().filter(|e| !e.limit);
    errors.into_iter().find(|e| (start_ns..=end_ns).contains(&e.t_ns))
}

#[cfg(test)]
mod tests {
    use memgate_wire::java::ClassCount;

    use super::*;
    use crate::java::dsl::Jvm;
    use crate::observer::Observer;

    /// For each window: the description if memory ran out in it.
    fn said(mut jvm: Jvm) -> Vec<Option<String>> {
        let mut observer = Observer::new();
        jvm.pass_to(&mut observer);
        let record = observer.into_record();
        let of = |w: &Window| ran_out(&record, w.start_ns, w.end_ns).map(Exhaustion::described);
        record.windows.iter().map(of).collect()
    }

    #[test]
    fn an_error_belongs_to_the_test_in_whose_window_it_came() {
        let mut jvm = Jvm::new();
        jvm.window("A", "a", 0, |jvm| jvm.tiles(1));
        jvm.window("A", "b", 0, |jvm| {
            jvm.frame(memgate_wire::Frame::JavaExhausted(JavaExhausted {
                what: "Java heap space".into(),
                flags: 3,
                heap_used: Some(60 << 20),
                heap_max: Some(64 << 20),
                classes: vec![ClassCount { class: 2, instances: 9, bytes: 216 }],
                sites: Vec::new(),
                dump: None,
            }));
        });
        let want = "OutOfMemoryError: Java heap space, 60.0 MiB of 64.0 MiB used, most by 9 × com.example.Tile (216 B)";
        assert_eq!(said(jvm), [None, Some(want.to_owned())]);
    }

    #[test]
    fn what_is_seen_later_of_a_full_heap_belongs_to_the_test_that_filled_it() {
        let limit = |classes, dump: Option<&str>| {
            memgate_wire::Frame::JavaExhausted(JavaExhausted {
                what: "heap usage above 80 %".into(),
                flags: 0,
                heap_used: Some(52 << 20),
                heap_max: Some(64 << 20),
                classes,
                sites: Vec::new(),
                dump: dump.map(str::to_owned),
            })
        };
        let mut jvm = Jvm::new();
        jvm.window("A", "fills", 0, |jvm| {
            jvm.tiles(1);
            jvm.frame(limit(Vec::new(), None));
        });
        jvm.window("A", "next", 0, |jvm| {
            let classes = vec![ClassCount { class: 2, instances: 9, bytes: 216 }];
            jvm.frame(limit(classes, Some("/s/a.hprof")));
        });
        let want = "heap usage above 80 %, 52.0 MiB of 64.0 MiB used, most by 9 × com.example.Tile (216 B); heap dump: /s/a.hprof";
        assert_eq!(said(jvm), [Some(want.to_owned()), None]);
    }
}
