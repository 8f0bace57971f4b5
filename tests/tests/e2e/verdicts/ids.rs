//! The id of a leak identifies the leak, not the build or the address where it was seen.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use memgate_e2e::{Project, Run, samples};

use crate::leaks_session;

const FILTER: &str = "Leaks.Strdup:Leaks.SharedPointerCycle";

fn ids(run: &Run) -> BTreeMap<String, Vec<String>> {
    let tests = run.report().suites.into_iter().flat_map(|suite| suite.tests);
    let ids = |leaks: Vec<memgate_model::Leak>| {
        let mut ids: Vec<String> = leaks.into_iter().map(|leak| leak.id).collect();
        ids.sort();
        ids
    };
    tests.filter(|test| FILTER.contains(&test.id)).map(|test| (test.id, ids(test.leaks))).collect()
}

#[test]
fn ids_survive_a_rebuild_elsewhere_with_other_code_before_them_and_another_run() {
    let source = fs::read_to_string(samples::sources().join("leaks.cc")).unwrap();
    // Other addresses, other lines, another folder.
    let (head, tail) = source.split_once("namespace leaks {\n").unwrap();
    let unrelated = "// A function\n// that was not there before.\nNOINLINE int unrelated(int tiles) {\n    \
                     return tiles > 7 ? tiles / 3 : tiles * 5;\n}\nint (*volatile keep_unrelated)(int) = unrelated;\n";
    let changed = format!("{head}{unrelated}\nnamespace leaks {{\n{tail}");
    let include = format!("-I{}", samples::sources().display());
    let flags = ["-std=c++17", "-O1", "-g", &include, "-lgtest", "-lgtest_main", "-lpthread"];
    let rebuilt = samples::own("leaks", "cc", &changed, "c++", &flags);
    let run = Project::new("ids").run_filtered(FILTER, &rebuilt);

    let want = ids(&leaks_session().1);
    assert_eq!(want.len(), 2);
    let distinct: BTreeSet<&String> = want.values().flatten().collect();
    assert_eq!(distinct.len(), 2, "another id for another site: {want:#?}");
    assert_eq!(ids(&run), want);
}
