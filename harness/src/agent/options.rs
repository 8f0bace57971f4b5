//! Creates the agent's options in the environment. [`memgate_wire::options`] defines the format and the possible
//! options.

use std::path::Path;

use memgate_config::MeasureJava;
use memgate_wire::options::{FollowOptions, Options, Sampling, Target};

/// The variable with the agent's options.
pub const OPTIONS_VARIABLE: &str = "MEMGATE_AGENT_OPTIONS";

/// Options for screening GoogleTest executables with a recorder.
#[must_use]
pub fn of_tests(frames: &Path) -> Options {
    let targets = vec![Target::GoogleTest];
    Options { directory: text(frames), targets, harness: true, ..Options::default() }
}

/// Options for the Java virtual machines that run tests.
#[must_use]
pub fn of_java(frames: &Path, jars: &Path) -> Options {
    Options { targets: Vec::new(), java: true, jars: text(jars), ..of_tests(frames) }
}

/// Sets what is measured besides the heap's classes; `follow` are the classes whose objects are followed.
pub fn look(options: &mut Options, java: &MeasureJava, follow: Vec<String>) {
    options.sampling = java.sampling.map_or(Sampling::Off, Sampling::Every);
    if !follow.is_empty() {
        options.follow = FollowOptions {
            classes: follow,
            at_least: java.follow_at_least,
            every: java.follow_every.into(),
            at_most: java.follow_at_most.into(),
        };
    }
}

/// A path in the form for the agent: it cannot use one that is not UTF-8.
#[must_use]
pub fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_a_screen() {
        let value = of_tests(Path::new("/tmp/frames")).to_string();
        assert_eq!(value, "dir=/tmp/frames;target=gtest;detail=survivors;wait_ms=2000;harness=1");
    }

    #[test]
    fn java_is_looked_at_as_the_user_wrote() {
        let java =
            MeasureJava { sampling: None, follow_at_least: 64, follow_every: 3, ..MeasureJava::default() };
        let mut options = of_java(Path::new("/f"), Path::new("/c/jars"));
        look(&mut options, &java, Vec::new());
        let begins = "dir=/f;detail=survivors;wait_ms=2000;harness=1;java=1;jars=/c/jars;sampling=off";
        assert_eq!(options.to_string(), begins);
        look(&mut options, &java, vec!["a.*".into(), "!a.B".into()]);
        let follow =
            format!("{begins};follow=a.*,!a.B;follow_at_least=64;follow_every=3;follow_at_most=10000000");
        assert_eq!(options.to_string(), follow);
    }
}
