//! The label with which a process is started. It makes the stream itself contain the purpose of the recording, so that
//! a session whose run was interrupted, or a file copied out of a session, can still be judged.

/// The purpose of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Label {
    /// The screening pass of a configured suite (empty: of the wrapped command).
    Screen {
        /// The suite's name in the configuration, or empty.
        suite: String,
    },
    /// memgate's rounds over the tests of a JVM suite.
    Rounds {
        /// The suite's name in the report.
        suite: String,
    },
    /// Running one test again, alone.
    Confirm {
        /// The suite's name in the report.
        suite: String,
        /// The test's id in it.
        test: String,
    },
    /// Running some tests of a class again, to learn whether one of them grows.
    Narrow {
        /// The suite's name in the report.
        suite: String,
        /// The test class.
        class: String,
    },
    /// Running suspects again, together, for the stacks that the screening pass did not take.
    Stacks {
        /// The suite's name in the report.
        suite: String,
    },
    /// Running tests again together, for suspects that behave differently alone.
    Company {
        /// The suite's name in the report.
        suite: String,
    },
    /// One of several runs of a process that repeats its work `n` times.
    Length {
        /// The suite's name in the report.
        suite: String,
        /// The test's id in it.
        test: String,
        /// How many times.
        n: u64,
    },
}

/// Never part of a name: names are printable.
const SEPARATOR: char = '\t';

impl Label {
    /// The form in the agent's options.
    #[must_use]
    pub fn to_text(&self) -> String {
        match self {
            Self::Screen { suite } => format!("screen{SEPARATOR}{suite}"),
            Self::Rounds { suite } => format!("rounds{SEPARATOR}{suite}"),
            Self::Stacks { suite } => format!("stacks{SEPARATOR}{suite}"),
            Self::Company { suite } => format!("company{SEPARATOR}{suite}"),
            Self::Confirm { suite, test } => format!("confirm{SEPARATOR}{suite}{SEPARATOR}{test}"),
            Self::Narrow { suite, class } => format!("narrow{SEPARATOR}{suite}{SEPARATOR}{class}"),
            Self::Length { suite, test, n } => {
                format!("length{SEPARATOR}{suite}{SEPARATOR}{test}{SEPARATOR}{n}")
            }
        }
    }

    /// Parses the label of a hello. Any other label counts as a screening pass.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        let parts: Vec<&str> = text.split(SEPARATOR).collect();
        match parts.as_slice() {
            ["screen", suite] => Self::Screen { suite: (*suite).to_owned() },
            ["rounds", suite] => Self::Rounds { suite: (*suite).to_owned() },
            ["stacks", suite] => Self::Stacks { suite: (*suite).to_owned() },
            ["company", suite] => Self::Company { suite: (*suite).to_owned() },
            ["confirm", suite, test @ ..] if !test.is_empty() => {
                Self::Confirm { suite: (*suite).to_owned(), test: test.join("\t") }
            }
            ["narrow", suite, class] => {
                Self::Narrow { suite: (*suite).to_owned(), class: (*class).to_owned() }
            }
            ["length", suite, test @ .., n] if !test.is_empty() => match n.parse() {
                Ok(n) => Self::Length { suite: (*suite).to_owned(), test: test.join("\t"), n },
                Err(_) => Self::Screen { suite: String::new() },
            },
            _ => Self::Screen { suite: String::new() },
        }
    }

    /// The suite's name.
    #[must_use]
    pub fn into_suite(self) -> String {
        match self {
            Self::Screen { suite }
            | Self::Rounds { suite }
            | Self::Stacks { suite }
            | Self::Company { suite } => suite,
            Self::Confirm { suite, .. } | Self::Narrow { suite, .. } | Self::Length { suite, .. } => suite,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_survive_the_way_through_the_agent() {
        for label in [
            Label::Screen { suite: String::new() },
            Label::Screen { suite: "engine".into() },
            Label::Rounds { suite: "loaders".into() },
            Label::Stacks { suite: "engine".into() },
            Label::Company { suite: "engine".into() },
            Label::Confirm { suite: "engine".into(), test: "A/B.c/0".into() },
            Label::Confirm { suite: "engine".into(), test: "A.with\ttab".into() },
            Label::Narrow { suite: "loaders".into(), class: "com.example.ATest".into() },
            Label::Length { suite: "replay".into(), test: "replay".into(), n: 12 },
        ] {
            assert_eq!(Label::from_text(&label.to_text()), label);
        }
    }

    #[test]
    fn a_foreign_label_is_a_screen() {
        for text in ["", "anything", "confirm", "length\ta\tb\tmany"] {
            assert_eq!(Label::from_text(text), Label::Screen { suite: String::new() }, "{text:?}");
        }
    }
}
