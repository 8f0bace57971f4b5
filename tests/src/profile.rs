//! The target folder of this test.

use std::env;
use std::path::{Path, PathBuf};

/// `TARGET/PROFILE`, where this test was built.
pub(crate) fn profile_folder() -> PathBuf {
    let test = env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().to_owned()
}
