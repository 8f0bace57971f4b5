//! Python's arenas. Python keeps its objects of at most 512 bytes in arenas that it maps: a leaked object is no block
//! of its own there, and a leak shows only when it fills an arena.

use super::context::JudgeContext;
use crate::groups::{OsKind, Places};
use crate::input::SuiteInput;
use crate::signature::Place;

/// The smallest size of an arena (1 MiB since Python 3.10). Other mappings of Python (stacks of frames) are smaller.
const ARENA_BYTES: u64 = 256 << 10;

/// Reports that leaked objects of Python cannot be seen, if a program of the suite keeps them in arenas.
pub(super) fn hide_objects(context: &mut JudgeContext<'_>, suite: &SuiteInput) -> Option<String> {
    let is_native = suite.java.is_none();
    let mut records = suite.screen.iter().map(|process| &process.record).filter(|r| is_native && r.is_main());
    let has_arenas = records.any(|record| {
        let mapped = record.end.as_ref().and_then(|end| OsKind::Mapping.at_exit(end));
        let mut places = Places::new(record, context.resolve);
        let large =
            mapped.into_iter().flat_map(|names| names.iter()).filter(|(_, bytes)| *bytes >= ARENA_BYTES);
        large
            .filter(|(_, bytes)| bytes % ARENA_BYTES == 0)
            .any(|(name, _)| maps_arenas(&places.of(name.stack)))
    });
    has_arenas.then(|| {
        "not measured: leaks of Python's small objects, which it keeps in arenas of its own; run it with \
         PYTHONMALLOC=malloc (`env` of the suite)"
            .to_owned()
    })
}

/// Is the mapping made by Python itself? Its function has no name in a stripped Python, its callers have.
fn maps_arenas(place: &Place) -> bool {
    let modules = place.names.iter().filter_map(|name| name.split_once(['!', '+']));
    let mut own = modules.skip_while(|(module, _)| module.starts_with("libc.so"));
    let Some((python, innermost)) = own.next() else { return false };
    let is_pythons = |function: &str| function.starts_with("Py") || function.starts_with("_Py");
    is_pythons(innermost) || own.any(|(module, function)| module == python && is_pythons(function))
}

#[cfg(test)]
mod tests {
    use memgate_model::{RunReport, Verdict};
    use memgate_wire::MappedKind;

    use crate::dsl::{Process, frame};
    use crate::judge::judge;
    use crate::judge::tests::process_suite;
    use crate::policy::GatePolicy;
    use crate::record::ProcessRecord;
    use crate::resolve::{Resolve, ResolvedStack};

    struct From(&'static [(&'static str, &'static str)]);

    impl Resolve for From {
        fn frames(&mut self, _: &ProcessRecord, _: u32) -> ResolvedStack {
            let frames = self.0.iter().map(|(module, function)| frame(module, function)).collect();
            ResolvedStack { frames, truncated: false }
        }
    }

    fn told(bytes: u64, stack: &'static [(&'static str, &'static str)]) -> (Verdict, String) {
        let mut p = Process::screen();
        p.mapped(3, MappedKind::Anonymous, 1, bytes);
        let mut report: RunReport =
            judge(&process_suite(p.end(), &[]), &GatePolicy::default(), &mut From(stack));
        let suite = report.suites.remove(0);
        (suite.verdict, suite.reason)
    }

    #[test]
    fn a_program_whose_python_has_arenas_does_not_pass() {
        let stripped = [("python3.11", ""), ("python3.11", "PyList_New"), ("python3.11", "main")].as_slice();
        let embedded: &[_] = &[("libpython3.12.so.1.0", "_PyMem_ArenaAlloc"), ("app_tests", "main")];
        for stack in [stripped, embedded] {
            let (verdict, reason) = told(1 << 20, stack);
            assert_eq!(verdict, Verdict::Warn);
            assert!(reason.contains("PYTHONMALLOC=malloc"), "{reason}");
        }
        let others: [&[_]; 3] = [
            &[("app", "pool::grow()"), ("app", "main")],
            // An extension maps memory below Python.
            &[("lk.so", "grow"), ("python3.11", "_PyEval_EvalFrameDefault")],
            &[("libc.so.6", "")],
        ];
        assert!(others.into_iter().all(|stack| told(1 << 20, stack).1.is_empty()));
        assert!(told(16 << 10, stripped).1.is_empty(), "Python's own stack");
    }
}
