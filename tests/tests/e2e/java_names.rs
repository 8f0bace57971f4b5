//! Tests of every kind have one name in all runs, and each can be run again by it.

use std::collections::BTreeSet;

use memgate_e2e::{junit, jvm};
use memgate_model::Verdict;

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

/// Kotlin's names in backticks: a name in a class file is changed for one of the same length.
#[test]
fn classes_with_blanks_in_their_names_are_judged_and_told_by_them() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let map = "import java.util.*;\nimport org.junit.jupiter.api.*;
        class MapTest {
            static final List<Object> KEPT = new ArrayList<>();
            static class Kept_tile {}
            @Nested class When_open {
                @Test void keeps() { KEPT.add(new Kept_tile()); }
                @Test void drops() { Assertions.assertNotNull(new Kept_tile()); }
            }
        }";
    let project = junit::project("names-blanks", &jdk, &[("MapTest", map)]);
    for class in std::fs::read_dir(project.folder().join("classes/com/example")).unwrap() {
        let path = class.unwrap().path();
        // As Latin-1, in which each byte is a character.
        let text: String = std::fs::read(&path).unwrap().into_iter().map(char::from).collect();
        let text = text.replace("When_open", "When open").replace("Kept_tile", "Kept tile");
        let bytes: Vec<u8> = text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(path.to_str().unwrap().replace("_open", " open").replace("_tile", " tile"), bytes)
            .unwrap();
    }
    let run = junit::run(&project, &jdk, &[]);
    run.ends_with(1);
    assert_eq!(run.report().errors, [], "{run}");
    let nested = "com.example.MapTest$When open";
    assert_eq!(run.test(&format!("{nested}.drops")).verdict, Verdict::Pass, "{run}");
    let leaks = run.test(&format!("{nested}.keeps")).leaks;
    let told: Vec<_> =
        leaks.iter().map(|leak| (leak.title.as_str(), leak.frames[0].function.as_deref())).collect();
    let keeps = format!("{nested}.keeps");
    assert_eq!(told, [("1 × com.example.MapTest$Kept tile", Some(keeps.as_str()))], "{run}");
}
