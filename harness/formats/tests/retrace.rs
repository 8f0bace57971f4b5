//! Stack traces must equal the output of R8's own Retrace. A file next to the fixtures says how they were made.
#![expect(clippy::unwrap_used, reason = "a fixture that is not as described fails the test")]

use std::fs;
use std::path::Path;

use memgate_formats::mapping::{Mapping, map_ids};

fn fixture(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/retrace").join(name))
        .unwrap()
}

#[track_caller]
fn equals_r8(mapping: &str, trace: &str) {
    let text = fixture(&format!("{mapping}.mapping"));
    let retraced = Mapping::read(&text).unwrap().trace(&fixture(&format!("{trace}.trace")));
    assert_eq!(retraced, fixture(&format!("{trace}.retraced")));
}

#[test]
fn exceptions_of_a_program_that_r8_made() {
    equals_r8("r8", "thrown");
}

#[test]
fn frames_without_lines_with_wrong_ones_and_of_unknown_methods() {
    equals_r8("r8", "odd");
}

#[test]
fn ranges_as_different_compilers_write_them() {
    equals_r8("ranges", "ranges");
}

#[test]
fn fields_of_the_program_that_r8_made() {
    let text = fixture("r8.mapping");
    let mapping = Mapping::read(&text).unwrap();
    assert_eq!(mapping.class("com.example.app.b"), "com.example.app.Main$Cache");
    assert_eq!(mapping.field("com.example.app.b", "a", |_| false), "held");
}

#[test]
fn the_code_that_r8_made_names_the_mapping_file_that_r8_wrote_with_it() {
    let dex = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/retrace/r8.dex");
    let ids: Vec<String> = map_ids(&fs::read(dex).unwrap()).into_iter().collect();
    assert_eq!(ids, ["2da9002"]);
    let is_of_build = |name: &str| Mapping::read(&fixture(name)).unwrap().is_of_build(&ids[0]);
    assert_eq!(is_of_build("r8-dex.mapping"), Some(true));
    assert_eq!(is_of_build("r8.mapping"), Some(false), "of the same sources, for a Java virtual machine");
    assert_eq!(is_of_build("ranges.mapping"), None, "it does not say");
}
