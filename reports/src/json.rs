//! `report.json`: writes the run report and its schema, and reads the report for `memgate report`.

use std::io;

use memgate_model::{RunReport, SCHEMA_VERSION};
use serde::{Deserialize, Serialize as _};
use serde_json::Serializer;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};

use crate::clean;
use crate::error::RenderError;

/// The report as indented JSON; each clean test and each point of a curve is one line.
///
/// # Errors
/// When serialising fails.
pub fn json(report: &RunReport) -> Result<String, RenderError> {
    let mut lean = report.clone();
    for suite in &mut lean.suites {
        let Some(figures) = clean::figures(suite).cloned() else { continue };
        for test in suite.tests.iter_mut().filter(|test| clean::is_clean(test, Some(&figures))) {
            test.clean = true;
            test.metrics.clear();
        }
        suite.clean_metrics = figures;
    }
    let tests = lean.entries();
    let lines = Lines {
        pretty: PrettyFormatter::new(),
        containers: Vec::new(),
        line: None,
        is_line: tests.map(|test| test.clean),
    };
    let mut text = Vec::new();
    lean.serialize(&mut Serializer::with_formatter(&mut text, lines)).map_err(RenderError::Json)?;
    text.push(b'\n');
    String::from_utf8(text).map_err(|why| RenderError::Json(serde::ser::Error::custom(why)))
}

/// Indents the parts that people read, and writes frequent parts on one line: clean tests, and arrays in arrays, which
/// are points.
struct Lines<I> {
    pretty: PrettyFormatter<'static>,
    /// Open containers: `[` or `{`.
    containers: Vec<u8>,
    /// Number of containers that were open where the current line began; `None`: the output is indented.
    line: Option<usize>,
    /// For each test in turn, whether it is written on one line.
    is_line: I,
}

/// Containers around a test: report, suites, suite, tests.
const OPEN_ABOVE_A_TEST: &[u8] = b"{[{[";

impl<I: Iterator<Item = bool>> Lines<I> {
    fn opens(&mut self, container: u8) {
        let is_test = container == b'{' && self.containers == OPEN_ABOVE_A_TEST;
        let is_point = container == b'[' && self.containers.last() == Some(&b'[');
        if self.line.is_none() && (is_point || (is_test && self.is_line.next() == Some(true))) {
            self.line = Some(self.containers.len());
        }
        self.containers.push(container);
    }

    fn closes(&mut self) {
        self.containers.pop();
        if self.line == Some(self.containers.len()) {
            self.line = None;
        }
    }
}

/// Each of these is written by one of the two formatters; the pretty one has to know its depth.
macro_rules! one_of_both {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        $(fn $name<W: ?Sized + io::Write>(&mut self, writer: &mut W, $($argument: $type),*) -> io::Result<()> {
            match self.line {
                Some(_) => CompactFormatter.$name(writer, $($argument),*),
                None => self.pretty.$name(writer, $($argument),*),
            }
        })*
    };
}

impl<I: Iterator<Item = bool>> Formatter for Lines<I> {
    one_of_both! {
        begin_array_value(first: bool);
        end_array_value();
        begin_object_key(first: bool);
        begin_object_value();
        end_object_value();
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.opens(b'[');
        match self.line {
            Some(_) => CompactFormatter.begin_array(writer),
            None => self.pretty.begin_array(writer),
        }
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        match self.line {
            Some(_) => CompactFormatter.end_array(writer)?,
            None => self.pretty.end_array(writer)?,
        }
        self.closes();
        Ok(())
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.opens(b'{');
        match self.line {
            Some(_) => CompactFormatter.begin_object(writer),
            None => self.pretty.begin_object(writer),
        }
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        match self.line {
            Some(_) => CompactFormatter.end_object(writer)?,
            None => self.pretty.end_object(writer)?,
        }
        self.closes();
        Ok(())
    }
}

/// The JSON Schema of `report.json`, as committed in `reports/report.schema.json`.
#[must_use]
pub fn schema() -> String {
    format!("{:#}\n", schemars::schema_for!(RunReport).as_value())
}

/// Reads a `report.json` again.
///
/// # Errors
/// When it is not a report, or one of another schema version.
pub fn from_json(bytes: &[u8]) -> Result<RunReport, ReadError> {
    /// Reads only the version, so that a report of another shape gets the right error.
    #[derive(Deserialize)]
    struct Version {
        schema_version: Option<u64>,
    }
    let Version { schema_version } = serde_json::from_slice(bytes).map_err(ReadError::Json)?;
    match schema_version {
        None => Err(ReadError::NoReport),
        Some(found) if found != u64::from(SCHEMA_VERSION) => Err(ReadError::OtherVersion { found }),
        Some(_) => serde_json::from_slice(bytes).map(RunReport::completed).map_err(ReadError::Shape),
    }
}

/// Why a `report.json` could not be read. The text fits after the file's name.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Broken, or cut off.
    #[error("is not JSON of a report")]
    Json(#[source] serde_json::Error),
    /// JSON of another kind.
    #[error("has no `schema_version`: not a report of memgate")]
    NoReport,
    /// Written by another memgate.
    #[error("has schema version {found}, this memgate reads version {SCHEMA_VERSION}")]
    OtherVersion {
        /// Its version.
        found: u64,
    },
    /// The version is right, but the content is not.
    #[error("does not have the shape of schema version {SCHEMA_VERSION}")]
    Shape(#[source] serde_json::Error),
}

impl ReadError {
    /// Advice for the `hint:` line; empty if there is none.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Json(_) | Self::Shape(_) => "judge the session again: memgate gate SESSION",
            Self::NoReport => "",
            Self::OtherVersion { found } if *found > SCHEMA_VERSION as u64 => {
                "it comes from a newer memgate: update this one"
            }
            Self::OtherVersion { .. } => {
                "it comes from an older memgate: judge its session again: memgate gate SESSION"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;
    use crate::sample;

    #[test]
    fn a_report_reads_back_as_it_was_written() {
        for (name, report) in sample::all() {
            let text = json(&report).unwrap();
            assert_eq!(from_json(text.as_bytes()).unwrap(), report, "{name}");
        }
    }

    #[test]
    fn a_clean_test_is_a_line_and_every_other_is_indented() {
        let mut report = sample::mixed();
        let figures = report.suites[0].tests[1].metrics.clone();
        report.suites[0].tests[0].metrics = figures;
        let text = json(&report).unwrap();
        let lines: Vec<_> = text.lines().filter(|line| line.contains("\"clean\":true")).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(
            lines[0].starts_with(
                r#"        {"id":"MapCache.opens","clean":true,"outcome":"passed","verdict":"pass","#
            ),
            "{}",
            lines[0]
        );
        assert!(text.contains("\n          \"id\": \"MapCache.scroll\""), "{text}");
        assert!(text.contains("\n        [100000000,\"native.live_bytes\",8192.0]"), "{text}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&text).unwrap()["suites"][0]["clean_metrics"]
                .as_object()
                .unwrap()
                .len(),
            3
        );
        assert_eq!(from_json(text.as_bytes()).unwrap(), report);
    }

    /// Found by the fuzz target `session`: if a figure is read back slightly larger, it exceeds a baseline made from
    /// the same figure.
    #[test]
    fn a_figure_reads_back_to_its_last_digit() {
        let mut report = sample::leak();
        report.agent_cost.cpu_ratio = Some(1.038_421_599_169_263);
        let again = from_json(json(&report).unwrap().as_bytes()).unwrap();
        assert_eq!(again.agent_cost.cpu_ratio, report.agent_cost.cpu_ratio);
    }

    #[test]
    fn the_json_people_script_against() {
        insta::assert_snapshot!(json(&sample::leak()).unwrap());
    }

    #[test]
    fn what_is_no_report_of_this_version_is_refused_with_the_reason() {
        for (text, error, hint) in [
            (
                r#"{"schema_version": 2, "suites": "elsewhere"}"#,
                "has schema version 2, this memgate reads version 1",
                "it comes from a newer memgate: update this one",
            ),
            (
                r#"{"schema_version": 0}"#,
                "has schema version 0, this memgate reads version 1",
                "it comes from an older memgate: judge its session again: memgate gate SESSION",
            ),
            ("{}", "has no `schema_version`: not a report of memgate", ""),
            (r#"["a"]"#, "is not JSON of a report", "judge the session again: memgate gate SESSION"),
            ("", "is not JSON of a report", "judge the session again: memgate gate SESSION"),
            (
                r#"{"schema_version": -1}"#,
                "is not JSON of a report",
                "judge the session again: memgate gate SESSION",
            ),
            (
                r#"{"schema_version": 1}"#,
                "does not have the shape of schema version 1",
                "judge the session again: memgate gate SESSION",
            ),
        ] {
            let read = from_json(text.as_bytes()).unwrap_err();
            assert_eq!((read.to_string().as_str(), read.hint()), (error, hint), "{text}");
        }
        let cut = from_json(br#"{"schema_version": 1, "verdict": "pa"#).unwrap_err();
        assert!(cut.source().unwrap().to_string().contains("line 1 column 36"), "{:?}", cut.source());
        assert!(
            from_json(&"[".repeat(100_000).into_bytes()).is_err(),
            "deep nesting is refused, not a stack overflow"
        );
    }

    #[test]
    fn the_committed_schema_is_the_one_of_the_code() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/report.schema.json");
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            std::fs::write(path, schema()).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap();
        assert!(
            committed == schema(),
            "{path} is out of date: UPDATE_SCHEMA=1 cargo test -p memgate-reports schema"
        );
    }
}
