//! Finds leaks that another test's code allocated. A thread may continue after the test that started it has ended. What
//! it then allocates counts for the test that runs at that time.

use super::judgement::Judgement;
use crate::input::SuiteInput;

/// Suffix of the class name that GoogleTest makes for a test.
const OF_TEST: &str = "_Test";

/// Reports the other test of the suite whose code is on the stack of a leak of `test`.
pub(super) fn remark(judgement: &mut Judgement, suite: &SuiteInput, test: &str) {
    let own = class_of(test);
    let other = judgement.leaks.iter().filter(|leak| leak.waiver.is_none()).find_map(|leak| {
        let functions = leak.frames.iter().filter_map(|frame| frame.function.as_deref());
        let classes: Vec<&str> = functions.filter_map(class_in).collect();
        let is_own = classes.iter().any(|class| own.as_deref() == Some(class));
        classes.first().filter(|_| !is_own).map(|class| Some((*class).to_owned()))
    });
    let Some(other) = other else { return };
    let mut ids = suite.screen.iter().flat_map(|process| &process.record.windows).map(|window| window.id());
    if let Some(id) = ids.find(|id| class_of(id) == other) {
        judgement
            .remark(format!("code of {id} allocates it, in a thread or task that goes on after that test"));
    }
}

/// The class `Map_scroll_Test` for the tests `Map.scroll`, `All/Map.scroll/3` and `Map/0.scroll`.
fn class_of(test: &str) -> Option<String> {
    let (suite, name) = test.split_once('.')?;
    let is_number = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
    let suite = suite.rsplit('/').find(|part| !is_number(part))?;
    let name = name.split('/').next()?;
    Some(format!("{suite}_{name}{OF_TEST}"))
}

/// The test class that this function belongs to.
fn class_in(function: &str) -> Option<&str> {
    let (before, _) = function.split_once("::TestBody(")?;
    let class = match before.split_once('<') {
        Some((class, _)) => class,
        None => before,
    };
    class.rsplit("::").next().filter(|class| class.ends_with(OF_TEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_tests_are_known_by_their_names() {
        for test in ["Map.scroll", "All/Map.scroll/3", "Map/0.scroll", "My/Map/1.scroll"] {
            assert_eq!(class_of(test).as_deref(), Some("Map_scroll_Test"), "{test}");
        }
        assert_eq!((class_of("main"), class_of("7.scroll")), (None, None));
        for (function, class) in [
            ("Map_scroll_Test::TestBody()", Some("Map_scroll_Test")),
            (
                "(anonymous namespace)::Map_scroll_Test::TestBody()::{lambda()#1}::operator()",
                Some("Map_scroll_Test"),
            ),
            ("a::Map_scroll_Test<int>::TestBody()", Some("Map_scroll_Test")),
            ("Other::TestBody()", None),
            ("tiles()", None),
        ] {
            assert_eq!(class_in(function), class, "{function}");
        }
    }
}
