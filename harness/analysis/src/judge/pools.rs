//! Pools of libraries, in which a leaked object is no block of its own: a leak shows only when it fills a pool. Python
//! keeps its objects of at most 512 bytes in arenas that it maps. GLib before 2.76 keeps its slices in pages that it
//! allocates.

use super::context::JudgeContext;
use crate::groups::{OsKind, Places};
use crate::input::SuiteInput;
use crate::record::ProcessRecord;
use crate::signature::Place;

/// The smallest size of an arena (1 MiB since Python 3.10). Other mappings of Python (stacks of frames) are smaller.
const ARENA_BYTES: u64 = 256 << 10;

/// Reports that leaked slices of GLib cannot be seen, if a program of the suite keeps them in pages.
pub(super) fn hide_slices(context: &mut JudgeContext<'_>, suite: &SuiteInput) -> Option<String> {
    let has_pages = native(suite).any(|record| {
        let mut places = Places::new(record, context.resolve);
        let left = record.windows.iter().flat_map(|window| &window.survivors);
        let left = left.chain(record.end.iter().flat_map(|end| &end.survivors));
        left.filter(|block| is_page(block.size)).any(|block| holds_slices(&places.of(block.stack)))
    });
    has_pages.then(|| {
        "not measured: leaks of slices of GLib, which it keeps in pages of its own; run it with G_SLICE=always-malloc \
         (`env` of the suite)"
            .to_owned()
    })
}

fn native(suite: &SuiteInput) -> impl Iterator<Item = &ProcessRecord> {
    let is_native = suite.java.is_none();
    suite.screen.iter().map(|process| &process.record).filter(move |record| is_native && record.is_main())
}

/// GLib leaves two words of a page to the allocator.
fn is_page(size: u64) -> bool {
    size >= 256 && (size + 16).is_power_of_two()
}

/// With `G_SLICE=always-malloc`, `g_malloc` is below the function instead. Slices of Qt's event loop are not the
/// program's.
fn holds_slices(place: &Place) -> bool {
    const GLIB: [&str; 3] = ["libglib", "libgobject", "libgio"];
    let mut own = place.names.iter().skip_while(|name| !name.starts_with(GLIB[0]));
    let is_glibs = |name: &&String| GLIB.iter().any(|module| name.starts_with(module));
    let caller = own.clone().find(|name| !is_glibs(name));
    caller.is_none_or(|name| !name.starts_with("libQt"))
        && own.next().is_some_and(|name| !name.contains("!g_malloc"))
        && place.names.iter().any(|name| name.ends_with("!g_slice_alloc"))
}

/// Reports that leaked objects of Python cannot be seen, if a program of the suite keeps them in arenas.
pub(super) fn hide_objects(context: &mut JudgeContext<'_>, suite: &SuiteInput) -> Option<String> {
    let has_arenas = native(suite).any(|record| {
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

    #[test]
    fn a_program_whose_glib_has_slices_does_not_pass() {
        let told = |size: u64, stack: &'static [(&'static str, &'static str)]| {
            let mut p = Process::screen();
            p.alloc(3, size, 1);
            let mut report: RunReport =
                judge(&process_suite(p.end(), &[]), &GatePolicy::default(), &mut From(stack));
            report.suites.remove(0).reason
        };
        let page =
            [("libglib-2.0.so.0", ""), ("libglib-2.0.so.0", "g_slice_alloc"), ("app", "main")].as_slice();
        assert!(told(1008, page).contains("G_SLICE=always-malloc"), "{}", told(1008, page));
        assert_eq!(told(1000, page), "", "no page");
        let qt = [("libglib-2.0.so.0", "g_slice_alloc"), ("libQt6Core.so.6", ""), ("app", "main")].as_slice();
        assert_eq!(told(1008, qt), "", "Qt's event loop");
        let malloc =
            [("libglib-2.0.so.0", "g_malloc"), ("libglib-2.0.so.0", "g_slice_alloc"), ("app", "main")]
                .as_slice();
        assert_eq!(told(1008, malloc), "", "G_SLICE=always-malloc");
        assert_eq!(told(1008, &[("app", "pool::grow()"), ("app", "main")]), "");
    }
}
