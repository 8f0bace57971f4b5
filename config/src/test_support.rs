//! Test support for committed files that are generated from code.

/// Compares a committed file of this package with the generated text; `UPDATE_SCHEMA=1` writes the file.
pub(crate) fn assert_committed(name: &str, expected: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(&path, expected).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == expected,
        "{name} is not up to date: run UPDATE_SCHEMA=1 cargo test -p memgate-config"
    );
}
