//! Windows that are no tests: code that GoogleTest runs around the tests of a suite, or around all tests.
//!
//! They are reported like tests, with names that no macro can give to a test, and only if the option `setup` asks for
//! them. Both boundaries come when the suite (or the environments) has been torn down: survivors are blocks that were
//! born in the set-up, or in the tear-down, and are then still alive. If such a window is being confirmed, its end also
//! brings the changes of the whole table since its last end, and tests bring nothing.

/// Code that runs before the first test of a suite; the suite's name comes before it.
pub const OF_SUITE: &str = "SetUpTestSuite()";
/// Code that runs after the last test of a suite.
pub const BEHIND_SUITE: &str = "TearDownTestSuite()";
/// The suite of code that belongs to all tests, `testing::Environment`.
pub const ENVIRONMENT: &str = "Environment";
/// Code that runs before the first of all tests.
pub const OF_ALL: &str = "SetUp()";
/// Code that runs after the last of all tests.
pub const BEHIND_ALL: &str = "TearDown()";
/// Value of the option `setup` that asks for all windows that left something; any other value names the one that is
/// confirmed, `Suite.SetUpTestSuite()`.
pub const EACH: &str = "*";

/// Is this the name of such a window?
#[must_use]
pub fn is_setup(suite: &str, test: &str) -> bool {
    match test {
        OF_SUITE | BEHIND_SUITE => true,
        OF_ALL | BEHIND_ALL => suite == ENVIRONMENT,
        _ => false,
    }
}

/// The suite of such a window by its id, `Suite.SetUpTestSuite()`; `None`: it is a test's id.
#[must_use]
pub fn suite_of(id: &str) -> Option<&str> {
    let (suite, test) = id.rsplit_once('.')?;
    is_setup(suite, test).then_some(suite)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_up_is_told_from_a_test_by_its_name() {
        for (id, suite) in [
            ("Map.SetUpTestSuite()", Some("Map")),
            ("Inst/Map.x/0.TearDownTestSuite()", Some("Inst/Map.x/0")),
            ("Environment.SetUp()", Some("Environment")),
            ("Environment.TearDown()", Some("Environment")),
            ("Environment.SetUpTestSuite()", Some("Environment")),
            ("Map.SetUp()", None),
            ("Map.SetUpTestSuite", None),
            ("SetUpTestSuite()", None),
        ] {
            assert_eq!(suite_of(id), suite, "{id}");
        }
    }
}
