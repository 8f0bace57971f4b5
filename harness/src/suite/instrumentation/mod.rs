//! Instrumented tests on a device: finds the runner, and builds the command of `am instrument`.
//!
//! Data flow: `pm list instrumentation` → [`Component`] → [`Call`] → the command line for the device's shell. Pure
//! functions; `memgate_formats::instrumentation` reads the output.

mod filter;

use std::fmt;

use memgate_adb::command;
use memgate_wire::java::ANDROID_LISTENER;

pub use filter::tests_regex;

/// The listener of memgate's Java part that waits for an agent to be attached to the running app.
const AWAITING_LISTENER: &str = "io.memgate.android.AwaitingListener";
/// The runner builders that repeat test classes for screening, and suspects for confirming.
const ROUNDS: &str = "io.memgate.android.Rounds";
const REPEAT: &str = "io.memgate.android.Repeat";
/// A request to adb has at most 65,535 bytes; the difference is left for the user's own arguments.
const LONGEST_CLASS_LIST: usize = 56_000;

/// An installed instrumentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// The package of the tests.
    pub tests: String,
    /// Class of its runner.
    pub runner: String,
    /// The package of the tested app, in whose process the tests run.
    pub app: String,
}

impl Component {
    /// The runner's class. A listing may omit its package.
    #[must_use]
    pub fn runner_class(&self) -> String {
        complete(&self.tests, &self.runner)
    }
}

/// The name of a class with its package.
fn complete(package: &str, class: &str) -> String {
    if class.starts_with('.') { format!("{package}{class}") } else { class.to_owned() }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tests, self.runner)
    }
}

/// Parses the output of `pm list instrumentation`:
/// `instrumentation:io.x.test/androidx.test.runner.AndroidJUnitRunner (target=io.x)`.
#[must_use]
pub fn components(listing: &str) -> Vec<Component> {
    let component = |line: &str| {
        let (name, target) = line.trim().strip_prefix("instrumentation:")?.split_once(" (target=")?;
        let (tests, runner) = name.split_once('/')?;
        let app = target.strip_suffix(')')?;
        Some(Component { tests: tests.to_owned(), runner: runner.to_owned(), app: app.to_owned() })
    };
    listing.lines().filter_map(component).collect()
}

/// The instrumentation of `package`: the one with this runner, or the only one.
///
/// # Errors
/// When there is none, or there are several: a message and a hint for the user.
pub fn find(
    components: &[Component],
    package: &str,
    runner: Option<&str>,
) -> Result<Component, (String, String)> {
    let of_package: Vec<&Component> = components.iter().filter(|c| c.tests == package).collect();
    let named = |c: &&&Component| runner.is_none_or(|runner| c.runner_class() == complete(package, runner));
    let chosen: Vec<&&Component> = of_package.iter().filter(named).collect();
    let list = |all: &[&Component]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match (chosen.as_slice(), of_package.as_slice()) {
        ([one], _) => Ok((**one).clone()),
        ([], []) => {
            let known: Vec<&Component> = components.iter().collect();
            let hint = if known.is_empty() {
                "install the app and its tests first (`apks:` of the suite, or `./gradlew installDebug installDebugAndroidTest`)".to_owned()
            } else {
                format!("these are installed: {}", list(&known))
            };
            Err((format!("the device has no instrumented tests of the package {package}"), hint))
        }
        ([], others) => Err((
            format!("{package} has no runner {}", runner.unwrap_or_default()),
            format!("it has {}", list(others)),
        )),
        (_, all) => Err((
            format!("{package} has {} runners", all.len()),
            format!("name one with `instrumentation`: {}", list(all)),
        )),
    }
}

/// A test class, or one test of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// The class.
    pub class: String,
    /// The test; `None`: all of the class.
    pub test: Option<String>,
}

impl Selection {
    /// Its name in reports.
    #[must_use]
    pub fn id(&self) -> String {
        match &self.test {
            Some(test) => format!("{}.{test}", self.class),
            None => self.class.clone(),
        }
    }

    /// Its form as a runner argument.
    #[must_use]
    pub fn argument(&self) -> String {
        match &self.test {
            Some(test) => format!("{}#{test}", self.class),
            None => self.class.clone(),
        }
    }

    /// Whether the runner can select the test by its name. A comma may end the name. Runners with names like
    /// `adds(1) [0]` (`JUnitParams`) may select the method only, and the name of an object (`Tile@1f2e`) differs
    /// between processes.
    #[must_use]
    pub fn takes(test: &str) -> bool {
        let is_fixed = |(method, parameter): (&str, &str)| !method.contains('(') && !parameter.contains('@');
        !test.contains(',') && test.split_once('[').is_none_or(is_fixed)
    }

    /// Exactly these tests of a class. If the runner cannot select one by its name, or the list is too long, the whole
    /// class is selected.
    #[must_use]
    pub fn each(class: &str, tests: &[String]) -> Vec<Self> {
        let one = |test: Option<&String>| Self { class: class.to_owned(), test: test.cloned() };
        let chosen: Vec<Self> = tests.iter().map(|test| one(Some(test))).collect();
        match tests.iter().all(|test| Self::takes(test)) && Call::has_room_for(&chosen) {
            true => chosen,
            false => vec![one(None)],
        }
    }
}

/// The purpose of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// The runner only lists the tests.
    List,
    /// All tests, as they are.
    Once,
    /// This selection alone, as it is.
    Alone(Selection),
    /// Each of these several times.
    Rounds(Vec<Selection>),
    /// These, all of one class, again and again.
    Repeat(Vec<Selection>),
}

/// A part of the tests; the runner divides them by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// From 0.
    pub index: u32,
    /// Number of parts.
    pub of: u32,
}

/// One `am instrument`.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// The instrumentation to start.
    pub component: &'a Component,
    /// The user of the device, if it is not the first.
    pub user: Option<u32>,
    /// The user's own arguments of the runner.
    pub arguments: &'a [(String, String)],
    /// Glob of the requested tests.
    pub filter: Option<&'a str>,
    /// The part of the tests; `None`: all.
    pub share: Option<Share>,
    /// The classes or tests to run as they are; `None`: all.
    pub own: Option<&'a [Selection]>,
    /// Whether the agent is attached while the app runs: the tests then wait for it.
    pub awaits_agent: bool,
    /// Its purpose.
    pub mode: Mode,
}

impl Call<'_> {
    /// The command line.
    #[must_use]
    pub fn command(&self) -> String {
        let mut words = vec!["am".to_owned(), "instrument".to_owned(), "-w".to_owned(), "-r".to_owned()];
        if let Some(user) = self.user {
            words.extend(["--user".to_owned(), user.to_string()]);
        }
        for (key, value) in self.pairs() {
            words.extend(["-e".to_owned(), key, value]);
        }
        words.push(self.component.to_string());
        command(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Whether the command line has room for these.
    #[must_use]
    pub fn has_room_for(chosen: &[Selection]) -> bool {
        list(chosen).len() < LONGEST_CLASS_LIST
    }

    /// The user's arguments and ours; for a key that both have, the user's value comes first.
    fn pairs(&self) -> Vec<(String, String)> {
        let mut pairs = self.arguments.to_vec();
        // With this argument, our listeners would run before the runner's own, and a test would not be over when the
        // agent looks at it.
        pairs.retain(|(key, _)| key != "newRunListenerMode");
        let mut add = |key: &str, ours: &str| match pairs.iter_mut().find(|(known, _)| known == key) {
            Some((_, value)) => *value = format!("{value},{ours}"),
            None => pairs.push((key.to_owned(), ours.to_owned())),
        };
        match &self.mode {
            Mode::List => {}
            Mode::Once | Mode::Alone(_) | Mode::Rounds(_) | Mode::Repeat(_) => {
                add("listener", if self.awaits_agent { AWAITING_LISTENER } else { ANDROID_LISTENER });
            }
        }
        match &self.mode {
            Mode::Rounds(_) => add("runnerBuilder", ROUNDS),
            Mode::Repeat(_) => add("runnerBuilder", REPEAT),
            Mode::List | Mode::Once | Mode::Alone(_) => {}
        }
        let mut set = |key: &str, value: String| {
            // The runner would add the tests of a file to those that we select.
            pairs.retain(|(known, _)| known != key && (key != "class" || known != "testFile"));
            pairs.push((key.to_owned(), value));
        };
        if let Some(Share { index, of }) = self.share {
            set("numShards", of.to_string());
            set("shardIndex", index.to_string());
        }
        match &self.mode {
            Mode::List => set("log", "true".to_owned()),
            Mode::Once => {
                if let Some(own) = self.own {
                    set("class", list(own));
                }
            }
            Mode::Rounds(chosen) => {
                if Self::has_room_for(chosen) {
                    set("class", list(chosen));
                }
            }
            Mode::Alone(chosen) => set("class", chosen.argument()),
            Mode::Repeat(chosen) => set("class", list(chosen)),
        }
        if let Some(filter) = self.filter {
            let own = self.arguments.iter().find(|(key, _)| key == "tests_regex");
            set("tests_regex", tests_regex(filter, own.map(|(_, regex)| regex.as_str())));
        }
        pairs
    }
}

fn list(chosen: &[Selection]) -> String {
    chosen.iter().map(Selection::argument).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(tests: &str, runner: &str) -> Component {
        Component { tests: tests.into(), runner: runner.into(), app: "io.x".into() }
    }

    #[test]
    fn runners_are_read_and_found() {
        let listing = "instrumentation:io.x.test/androidx.test.runner.AndroidJUnitRunner (target=io.x)\r\n\
                       instrumentation:io.y/.R (target=io.y)\nInstrumentation list ends\n";
        let all = components(listing);
        assert_eq!(all.len(), 2);
        assert_eq!(
            find(&all, "io.x.test", None).unwrap(),
            component("io.x.test", "androidx.test.runner.AndroidJUnitRunner")
        );
        let two = [component("io.x.test", "A"), component("io.x.test", "B")];
        for (all, runner, what, hint) in [
            (&all[..], None, "no instrumented tests of the package io.z", "io.x.test/androidx"),
            (&[], None, "no instrumented tests of the package io.z", "installDebugAndroidTest"),
            (&two[..], None, "io.x.test has 2 runners", "io.x.test/A, io.x.test/B"),
            (&two[..], Some("C"), "io.x.test has no runner C", "io.x.test/A"),
        ] {
            let package = if what.contains("io.z") { "io.z" } else { "io.x.test" };
            let (told, advice) = find(all, package, runner).unwrap_err();
            assert!(told.contains(what) && advice.contains(hint), "{told}: {advice}");
        }
        assert_eq!(find(&two, "io.x.test", Some("B")).unwrap().runner, "B");
        for (listed, named) in [(".R", "io.x.test.R"), ("io.x.test.R", ".R"), (".R", ".R")] {
            let all = [component("io.x.test", "A"), component("io.x.test", listed)];
            assert_eq!(find(&all, "io.x.test", Some(named)).unwrap().runner, listed, "{named}");
        }
    }

    #[test]
    fn the_users_own_arguments_stay() {
        let component = component("io.x.test", "R");
        let arguments = [("listener", "a.B"), ("newRunListenerMode", "true"), ("size", "small tests")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let call = |mode, awaits_agent| {
            Call {
                component: &component,
                user: None,
                arguments: &arguments,
                filter: None,
                share: None,
                own: None,
                awaits_agent,
                mode,
            }
            .command()
        };
        assert_eq!(
            call(Mode::Once, false),
            "am instrument -w -r -e listener a.B,io.memgate.android.MemgateListener -e size 'small tests' io.x.test/R"
        );
        assert_eq!(
            call(Mode::List, false),
            "am instrument -w -r -e listener a.B -e size 'small tests' -e log true io.x.test/R"
        );
        let class = |class: &str| Selection { class: class.into(), test: None };
        let rounds = call(Mode::Rounds(vec![class("a.ATest"), class("a.B$C")]), true);
        assert!(rounds.contains("a.B,io.memgate.android.AwaitingListener"), "{rounds}");
        assert!(
            rounds.contains("-e runnerBuilder io.memgate.android.Rounds -e class 'a.ATest,a.B$C'"),
            "{rounds}"
        );
        let one = Selection { class: "a.ATest".into(), test: Some("x".into()) };
        assert_eq!(one.id(), "a.ATest.x");
        assert_eq!(
            call(Mode::Alone(one.clone()), false),
            "am instrument -w -r -e listener a.B,io.memgate.android.MemgateListener -e size 'small tests' -e class 'a.ATest#x' io.x.test/R"
        );
        let repeat = call(Mode::Repeat(vec![one]), false);
        assert!(
            repeat.contains("-e runnerBuilder io.memgate.android.Repeat -e class 'a.ATest#x'")
                || repeat.contains("-e class a.ATest#x"),
            "{repeat}"
        );
    }

    #[test]
    fn some_tests_of_a_class_are_chosen_by_their_methods() {
        let chosen = |tests: &[&str]| {
            let tests: Vec<String> = tests.iter().map(|test| (*test).to_owned()).collect();
            list(&Selection::each("a.ATest", &tests))
        };
        assert_eq!(chosen(&["x", "y[0]", "y[size=2]"]), "a.ATest#x,a.ATest#y[0],a.ATest#y[size=2]");
        for other in ["y[Tile@1f2e]", "adds 1, then 2", "y[a=1,b=2]", "adds(1) [0]"] {
            assert_eq!(chosen(&["x", other]), "a.ATest", "{other}");
        }
        assert_eq!(chosen(&["x".repeat(30_000).as_str(), "y".repeat(30_000).as_str()]), "a.ATest");
    }

    #[test]
    fn a_selection_replaces_the_users_file_of_tests() {
        let component = component("io.x.test", "R");
        let arguments =
            [("testFile", "/data/local/tmp/smoke.txt"), ("notTestFile", "/data/local/tmp/slow.txt")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let one = Selection { class: "a.ATest".into(), test: Some("x".into()) };
        let told = |mode| {
            let (user, filter, share, own, awaits_agent) = Default::default();
            let arguments = &arguments;
            Call { component: &component, user, arguments, filter, share, own, awaits_agent, mode }.command()
        };
        for mode in [Mode::List, Mode::Once] {
            assert!(told(mode.clone()).contains("-e testFile /data/local/tmp/smoke.txt"), "{mode:?}");
        }
        for mode in
            [Mode::Alone(one.clone()), Mode::Rounds(vec![one.clone()]), Mode::Repeat(vec![one.clone()])]
        {
            let told = told(mode);
            assert!(!told.contains("-e testFile") && told.contains("-e notTestFile"), "{told}");
        }
    }

    #[test]
    fn as_many_classes_as_there_is_room_for_are_one_request_to_adb() {
        let component = component("io.x.test", "androidx.test.runner.AndroidJUnitRunner");
        let arguments = [("notAnnotation".to_owned(), "io.x.Slow".repeat(900))];
        let class = |n: usize| Selection { class: format!("io.x.tiles.map{n}.Test$Inner{n}"), test: None };
        let chosen: Vec<Selection> = (0..3_000).map(class).collect();
        let length = |classes: usize| {
            let mode = Mode::Rounds(chosen.iter().take(classes).cloned().collect());
            let (user, filter, share, own, awaits_agent) = (Some(10), Some("io.x.*"), None, None, true);
            let (component, arguments) = (&component, &arguments[..]);
            let call = Call { component, user, arguments, filter, share, own, awaits_agent, mode };
            call.command().len() + "shell,v2,raw:".len()
        };
        let most = (0..chosen.len()).rev().find(|most| Call::has_room_for(&chosen[..*most])).unwrap();
        assert!(length(most) > 60_000 && length(most) <= 0xffff, "{most}: {}", length(most));
        assert!(length(most + 1) < 20_000, "the runner selects them itself: {}", length(most + 1));
    }

    #[test]
    fn a_filter_and_a_user_are_told() {
        let component = component("io.x.test", "R");
        let call = Call {
            component: &component,
            user: Some(10),
            arguments: &[],
            filter: Some("a.ATest"),
            share: Some(Share { index: 1, of: 3 }),
            own: None,
            awaits_agent: false,
            mode: Mode::Once,
        };
        let told = call.command();
        assert!(told.starts_with("am instrument -w -r --user 10 -e "), "{told}");
        assert!(told.contains("-e tests_regex"), "{told}");
        assert!(told.contains("-e numShards 3 -e shardIndex 1"), "{told}");
        let own = ["a.ATest", "a.BTest"].map(|class| Selection { class: class.into(), test: None });
        let told = Call { own: Some(&own), mode: Mode::Once, ..call.clone() }.command();
        assert!(told.contains("-e class a.ATest,a.BTest"), "{told}");
        // A repeated class may contain tests that the filter leaves out.
        let told = Call { mode: Mode::Repeat(own.to_vec()), ..call }.command();
        assert!(told.contains("-e tests_regex"), "{told}");
    }
}
