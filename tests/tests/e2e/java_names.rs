//! Tests of every kind have one name in all runs, and each can be run again by it.

use std::collections::BTreeSet;

use crate::java::{Session, sessions};

/// Those of a kind of their own, without what stands before them all.
const JUNIT_4: &[&str] = &[
    "LevelsTest.loads[0]",
    "LevelsTest.loads[1]",
    "LevelsTest.loads[2]",
    "LevelsTest.loads[3]",
    "AtlasTest$WhenOpen.keepsSheets",
    "AtlasTest$WhenOpen.reads",
];
const JUNIT_5: &[&str] = &[
    "LevelsTest.loads(int)[1]",
    "LevelsTest.loads(int)[2]",
    "LevelsTest.loads(int)[3]",
    "LevelsTest.loads(int)[4]",
    "AtlasTest.opens",
    "AtlasTest$WhenOpen.keepsSheets",
    "AtlasTest$WhenOpen.reads",
    "AtlasTest$WhenOpen$AndRead.closes",
    "SheetsTest.sheets()[1]",
    "SheetsTest.sheets()[2]",
    "SheetsTest.sheets()[3][1]",
    "StampsTest.keepsStamps()[1]",
    "StampsTest.keepsStamps()[2]",
];

#[test]
fn parameterised_nested_dynamic_and_repeated_tests_have_stable_ids() {
    for Session { junit, run, .. } in sessions() {
        let wanted = if *junit == "junit4" { JUNIT_4 } else { JUNIT_5 };
        let kinds = ["LevelsTest", "AtlasTest", "SheetsTest", "StampsTest"];
        let own = |id: &String| kinds.iter().any(|kind| id.starts_with(kind));
        let tests = run.suite().tests;
        let ids = tests.iter().filter_map(|test| Some(test.id.strip_prefix("com.example.")?.to_owned()));
        let seen: BTreeSet<String> = ids.filter(own).collect();
        assert_eq!(seen, wanted.iter().map(|&id| id.to_owned()).collect::<BTreeSet<_>>(), "{junit}");
    }
}
