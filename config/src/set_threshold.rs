//! Sets the threshold of one test in memgate.yaml, as text: comments and everything else stay as they are.
//!
//! Data flow: text → tree with positions → one edit → the result is parsed like every configuration, and returned only
//! if nothing else has changed. The edit changes the value of the entry that decides now, if it names this test alone.
//! Otherwise it adds an entry before all others, because the first entry that matches a test wins.

use std::fmt;
use std::rc::Rc;

use memgate_model::{Level, Metric};

use crate::config::Config;
use crate::diagnostic::Diagnostics;
use crate::edit::{dash_indent, get, last_byte, line_end, printable, quote};
use crate::read::Value as _;
use crate::settings::thresholds::Limit;
use crate::source::{Source, Span};
use crate::value::glob::TestGlob;
use crate::yaml::{self, Kind, Node};

/// A threshold to set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewThreshold {
    /// Name of the suite.
    pub suite: String,
    /// The test within it.
    pub test: String,
    /// The limited metric.
    pub metric: Metric,
    /// Whether a larger figure fails or is a warning.
    pub level: Level,
    /// The largest allowed figure, in the metric's unit.
    pub limit: u64,
    /// Why this limit was chosen, for a comment after it.
    pub evidence: String,
}

/// Why a threshold cannot be set.
#[derive(Debug)]
pub enum SetThresholdError {
    /// The file already has mistakes.
    Broken(Diagnostics),
    /// The file is valid, but laid out so that the threshold cannot be set without changing others.
    Layout,
}

impl fmt::Display for SetThresholdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(diagnostics) => diagnostics.fmt(f),
            Self::Layout => f.write_str(
                "the file is laid out so that this threshold cannot be set without changing others\n\
                 hint: set it by hand, as the patch shows it",
            ),
        }
    }
}

impl std::error::Error for SetThresholdError {}

/// The text of memgate.yaml with this threshold.
///
/// # Errors
/// The file has mistakes, or cannot be edited.
pub fn set_threshold(
    existing: &str,
    file_name: &str,
    env: &dyn Fn(&str) -> Option<String>,
    new: &NewThreshold,
) -> Result<String, SetThresholdError> {
    let before = Config::parse(existing, file_name, env, None).map_err(SetThresholdError::Broken)?;
    // A text that parsed without mistakes has a tree.
    let root =
        yaml::parse(&Source::new(file_name, existing)).ok().flatten().ok_or(SetThresholdError::Layout)?;
    let Edit { replaced, text } = edit(existing, &root, new).ok_or(SetThresholdError::Layout)?;
    let newline = if existing.contains("\r\n") { "\r\n" } else { "\n" };
    let (start, end) = (existing.get(..replaced.start), existing.get(replaced.end..));
    let (start, end) = start.zip(end).ok_or(SetThresholdError::Layout)?;
    let result = format!("{start}{}{end}", text.replace('\n', newline));
    match Config::parse(&result, file_name, env, None) {
        Ok(after) if is_set(&after, new) && others_stay(&before, &after, new) => Ok(result),
        _ => Err(SetThresholdError::Layout),
    }
}

struct Edit {
    replaced: Span,
    text: String,
}

fn is_set(config: &Config, new: &NewThreshold) -> bool {
    let wanted = Some(Limit::Absolute(new.limit));
    let (fail, warn) = match new.level {
        Level::Fail => (wanted, None),
        Level::Warn => (None, wanted),
    };
    let found = config.thresholds.for_test(&new.suite, &new.test, new.metric);
    found.is_some_and(|found| (found.fail, found.warn) == (fail, warn))
}

/// Are pattern, metric and limits unchanged in every rule, except the rules of this test alone for this metric?
fn others_stay(before: &Config, after: &Config, new: &NewThreshold) -> bool {
    let own = new.pattern();
    let others = |config: &Config| -> Vec<_> {
        let rules = config.thresholds.rules().filter_map(|rule| {
            let tests = rule.tests.map(TestGlob::text);
            let is_own = tests == Some(own.as_str()) && rule.metric == new.metric;
            let limits = rule.threshold.map(|threshold| (threshold.fail, threshold.warn, threshold.per));
            (!is_own).then(|| (tests.map(str::to_owned), rule.metric, limits))
        });
        rules.collect()
    };
    others(before) == others(after)
}

fn edit(existing: &str, root: &Node, new: &NewThreshold) -> Option<Edit> {
    let insert = |at: usize, text: String| Some(Edit { replaced: at..at, text });
    let at_end = |text: String| {
        let separator = if existing.ends_with('\n') { "" } else { "\n" };
        insert(existing.len(), format!("{separator}{text}\n"))
    };
    let Kind::Mapping(_) = &root.kind else { return None };
    let Some((key, thresholds)) = get(root, "thresholds") else {
        let entry = new.block_entry("    ");
        return if root.flow { None } else { at_end(format!("\nthresholds:\n  tests:{entry}")) };
    };
    let Kind::Mapping(metrics) = &thresholds.kind else {
        let entry = new.block_entry("    ");
        let at = line_end(existing, key.span.end);
        return if root.flow { None } else { insert(at, format!("\n  tests:{entry}")) };
    };
    let Some((key, tests)) = get(thresholds, "tests") else {
        if thresholds.flow {
            let (_, last) = metrics.last()?;
            return insert(last_byte(last), format!(", tests: [{}]", new.flow_entry()));
        }
        let indent = indent_of(existing, metrics.first()?.0.span.start)?;
        let at = line_end(existing, last_byte(thresholds));
        return insert(at, format!("\n{indent}tests:{}", new.block_entry(&format!("{indent}  "))));
    };
    match &tests.kind {
        Kind::Sequence(items) => match new.decides(items) {
            Some((entry, Some(value))) => new.replace(existing, entry, value),
            Some((entry, None)) => new.extend(existing, entry),
            None if tests.flow => {
                let comma = if items.is_empty() { "" } else { ", " };
                insert(tests.span.start + 1, format!("{}{comma}", new.flow_entry()))
            }
            None => {
                let indent = dash_indent(existing, items.first()?.span.start)?;
                insert(line_end(existing, key.span.end), new.block_entry(indent))
            }
        },
        Kind::Null if !thresholds.flow => {
            let indent = indent_of(existing, key.span.start)?;
            insert(line_end(existing, key.span.end), new.block_entry(&format!("{indent}  ")))
        }
        _ => None,
    }
}

/// The spaces before a key that begins its line.
fn indent_of(text: &str, key: usize) -> Option<&str> {
    let before = text.get(..key)?;
    let indent = before.get(before.rfind('\n').map_or(0, |at| at + 1)..)?;
    indent.bytes().all(|b| b == b' ').then_some(indent)
}

impl NewThreshold {
    /// `suite::test` as a pattern, with wildcards escaped.
    #[must_use]
    pub fn pattern(&self) -> String {
        let special = |c: char| "*?\\".contains(c);
        let name = format!("{}::{}", self.suite, self.test);
        name.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
    }

    /// The entry for this test alone that decides now, or would decide if it named the metric, with its value for the
    /// metric. `None`: there is no such entry, or another one decides before it.
    fn decides<'n>(&self, items: &'n [Rc<Node>]) -> Option<(&'n Node, Option<&'n Node>)> {
        let own = self.pattern();
        for item in items {
            let Some((_, Node { kind: Kind::Scalar(text), .. })) = get(item, "match") else { continue };
            // As the parser reads it: `$$` is a dollar sign.
            let text = text.replace("$$", "$");
            let value = get(item, self.metric.name()).map(|(_, value)| value);
            if text == own {
                return Some((item, value));
            }
            let matches = TestGlob::parse(&text).is_ok_and(|glob| glob.matches(&self.suite, &self.test));
            if matches && value.is_some() {
                return None;
            }
        }
        None
    }

    /// The limit as written in memgate.yaml: `96`, `{ warn: 96 }`.
    #[must_use]
    pub fn value(&self) -> String {
        match self.level {
            Level::Fail => self.limit.to_string(),
            Level::Warn => format!("{{ warn: {} }}", self.limit),
        }
    }

    fn comment(&self) -> String {
        format!("   # {}", printable(&self.evidence).replace('\n', " "))
    }

    /// Begins with a line break and ends without one.
    fn block_entry(&self, indent: &str) -> String {
        let (pattern, metric) = (quote(&self.pattern()), self.metric.name());
        format!("\n{indent}- match: {pattern}\n{indent}  {metric}: {}{}", self.value(), self.comment())
    }

    fn flow_entry(&self) -> String {
        format!("{{ match: {}, {}: {} }}", quote(&self.pattern()), self.metric.name(), self.value())
    }

    /// Replaces the value of the metric in `entry`. `None`: that is a table with more than limits, or without braces.
    fn replace(&self, existing: &str, entry: &Node, value: &Node) -> Option<Edit> {
        let is_limit = |name: &str| matches!(name, "fail" | "limit" | "warn");
        let only_limits = match &value.kind {
            Kind::Scalar(_) => true,
            Kind::Mapping(pairs) => {
                pairs.iter().all(|(key, _)| matches!(&key.kind, Kind::Scalar(name) if is_limit(name)))
                    && value.flow
            }
            Kind::Null | Kind::Sequence(_) => false,
        };
        let end = line_end(existing, value.span.end);
        let rest = existing.get(value.span.end..end)?;
        let comment = if !entry.flow && rest.trim().is_empty() { self.comment() } else { String::new() };
        only_limits.then(|| Edit { replaced: value.span.clone(), text: format!("{}{comment}", self.value()) })
    }

    /// Adds the metric to `entry`.
    fn extend(&self, existing: &str, entry: &Node) -> Option<Edit> {
        let Kind::Mapping(pairs) = &entry.kind else { return None };
        let (metric, value) = (self.metric.name(), self.value());
        let end = last_byte(entry);
        if entry.flow {
            let at = last_byte(&pairs.last()?.1);
            return Some(Edit { replaced: at..at, text: format!(", {metric}: {value}") });
        }
        let key = &pairs.first()?.0;
        let before = existing.get(..key.span.start)?;
        let column = before.len() - before.rfind('\n').map_or(0, |at| at + 1);
        let at = line_end(existing, end);
        Some(Edit { replaced: at..at, text: format!("\n{:column$}{metric}: {value}{}", "", self.comment()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(test: &str, metric: Metric, limit: u64) -> NewThreshold {
        NewThreshold {
            suite: "engine".to_owned(),
            test: test.to_owned(),
            metric,
            level: Level::Fail,
            limit,
            evidence: "the largest of 70 commits".to_owned(),
        }
    }

    fn set(existing: &str, new: &NewThreshold) -> String {
        set_threshold(existing, "memgate.yaml", &|_| None, new)
            .unwrap_or_else(|why| panic!("{why}\n{existing}"))
    }

    fn bytes(limit: u64) -> NewThreshold {
        new("Cache.warm[x]", Metric::NativeLiveBytes, limit)
    }

    #[test]
    fn the_first_threshold_of_a_test_stands_at_the_end_of_the_file() {
        insta::assert_snapshot!(set("version: 1\n# what we run\nproject: tiles   # ours\n", &bytes(96)), @r#"
        version: 1
        # what we run
        project: tiles   # ours

        thresholds:
          tests:
            - match: "engine::Cache.warm[x]"
              native.live_bytes: 96   # the largest of 70 commits
        "#);
    }

    #[test]
    fn it_goes_before_what_would_decide_first_and_every_comment_stays() {
        let existing = "\
version: 1
thresholds:
  # nothing may stay
  native.live_bytes: 0
  tests:   # exceptions
    # the font library
    - match: \"engine::*\"
      native.live_bytes: 4 KiB   # upstream 12
reports: {}
";
        insta::assert_snapshot!(set(existing, &bytes(96)), @r#"
        version: 1
        thresholds:
          # nothing may stay
          native.live_bytes: 0
          tests:   # exceptions
            - match: "engine::Cache.warm[x]"
              native.live_bytes: 96   # the largest of 70 commits
            # the font library
            - match: "engine::*"
              native.live_bytes: 4 KiB   # upstream 12
        reports: {}
        "#);
    }

    #[test]
    fn its_own_entry_is_changed_and_extended() {
        let once = set("version: 1\nthresholds:\n  os.fds: 1\n", &bytes(96));
        let again = set(&once, &NewThreshold { level: Level::Warn, ..bytes(48) });
        let more = set(&again, &new("Cache.warm[x]", Metric::OsFds, 2));
        insta::assert_snapshot!(more, @r#"
        version: 1
        thresholds:
          os.fds: 1
          tests:
            - match: "engine::Cache.warm[x]"
              native.live_bytes: { warn: 48 }   # the largest of 70 commits
              os.fds: 2   # the largest of 70 commits
        "#);
    }

    #[test]
    fn lists_and_tables_in_one_line_and_empty_ones_are_edited() {
        for existing in [
            "version: 1\nthresholds:\n",
            "version: 1\nthresholds:\n  tests:\nproject: x\n",
            "version: 1\nthresholds: { tests: [] }",
            "version: 1\nthresholds: { os.fds: 3 }\n",
            "version: 1\nthresholds: { tests: [{ match: \"engine::*\", os.fds: 4, native.live_bytes: 7 }] }\n",
            "version: 1\r\nthresholds:\r\n  tests:\r\n    - { match: \"a*\", os.fds: 4 }\r\n",
            "version: 1\nthresholds:\n  tests:\n  - match: \"engine::Cache.warm[x]\"\n    native.live_bytes: { fail: 8, warn: 4 } # why\n",
        ] {
            let text = set(existing, &bytes(96));
            assert_eq!(text.contains("\r\n"), existing.contains("\r\n"));
            let once_more = set(&text, &bytes(97));
            assert_eq!(once_more, text.replace("96", "97"), "its own entry decides from now on");
        }
    }

    #[test]
    fn what_would_change_other_tests_is_left_alone() {
        for existing in [
            // A value that two entries share.
            "version: 1\nthresholds:\n  tests:\n    - &e { match: \"engine::Cache.warm[x]\", native.live_bytes: &n 5 }\n    - { match: b, native.live_bytes: *n }\n",
            // A limit per execution: the new limit would be per iteration.
            "version: 1\nthresholds: { tests: [{ match: \"engine::Cache.warm[x]\", native.live_bytes: { fail: 8, per: test } }] }\n",
            "{ version: 1 }",
        ] {
            let refused = set_threshold(existing, "memgate.yaml", &|_| None, &bytes(96));
            assert!(matches!(refused, Err(SetThresholdError::Layout)), "{existing}: {refused:?}");
        }
        let broken = set_threshold("version: 1\nthreshold: 7\n", "memgate.yaml", &|_| None, &bytes(96));
        assert!(matches!(broken, Err(SetThresholdError::Broken(_))), "{broken:?}");
    }
}
