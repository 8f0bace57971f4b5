//! The tables of `thresholds` as read from the file. Metrics are keys, so `Read` and the schema are written by hand.

use std::borrow::Cow;

use memgate_model::{Metric, Unit};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::read::{At, Read, Reader, choice, table};
use crate::source::{Place, Span};
use crate::value::amount::{Amount, LimitOrOff};
use crate::value::glob::TestGlob;
use crate::yaml::{Kind, Node};

/// A metric, found by its name in the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MetricName(pub(crate) Metric);

impl MetricName {
    fn find(name: &str) -> Option<Self> {
        name.parse().ok().map(Self)
    }

    fn names() -> Vec<&'static str> {
        Metric::ALL.iter().map(|metric| metric.name()).collect()
    }

    pub(crate) fn name(self) -> &'static str {
        self.0.name()
    }

    pub(crate) fn unit(self) -> Unit {
        self.0.unit()
    }
}

table! {
    /// A threshold with all its parts.
    LimitFile {
        /// More than this fails. The same as `limit`.
        fail: At<Amount>,
        /// More than this fails.
        limit: At<Amount>,
        /// More than this is a warning. Without `fail` the metric never fails: the default limit does not apply.
        warn: At<Amount>,
        /// Scope of the figure. A limit per suite applies in addition to the limit of the tests. To switch off the
        /// limit of the tests, write `off` for `match: "*"` in `tests`.
        #[schemars(extend("default" = "iteration"))]
        per: At<PerFile>,
        /// The figure to which `+10%` or `+2 MiB` is added.
        against: At<Against>,
    }
}

choice! {
    /// Scope of a figure.
    pub(crate) enum PerFile ("a scope") {
        /// One more iteration of the test: the slope.
        Iteration = "iteration",
        /// One execution of the test.
        Test = "test",
        /// The whole process or suite.
        Suite = "suite",
    }
}

choice! {
    /// What a threshold is relative to.
    pub(crate) enum Against ("something to compare with") {
        /// Accepted figures of an earlier run.
        Baseline = "baseline",
    }
}

/// A metric's value in the file: a limit, `off`, or a table.
#[derive(Debug)]
pub(crate) enum EntryFile {
    Short(LimitOrOff),
    Table(LimitFile),
}

impl Read for EntryFile {
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        match node.kind {
            Kind::Mapping(_) => LimitFile::read(node, reader).map(Self::Table),
            _ => LimitOrOff::read(node, reader).map(Self::Short),
        }
    }
}

/// `thresholds`: metrics and `tests`.
#[derive(Debug, Default)]
pub(crate) struct ThresholdsFile {
    pub(crate) entries: Vec<EntryAt>,
    pub(crate) tests: Vec<OverrideFile>,
}

/// One item of `tests`: `match` and metrics.
#[derive(Debug)]
pub(crate) struct OverrideFile {
    pub(crate) tests: TestGlob,
    pub(crate) entries: Vec<EntryAt>,
    pub(crate) place: Place,
}

#[derive(Debug)]
pub(crate) struct EntryAt {
    pub(crate) metric: MetricName,
    pub(crate) name_span: Span,
    pub(crate) value: EntryFile,
    pub(crate) value_span: Span,
}

impl Read for ThresholdsFile {
    const NOTHING_IS_ABSENT: bool = true;

    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        let mut file = Self::default();
        for (key, value) in reader.pairs(node)? {
            if key.value == "tests" {
                let tests = reader.inside("tests", |reader| Vec::read(value, reader));
                file.tests = tests.unwrap_or_default();
            } else {
                file.entries.extend(entry(key, value, "tests", reader));
            }
        }
        Some(file)
    }
}

impl Read for OverrideFile {
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        let mut tests = None;
        let mut named = false;
        let mut entries = Vec::new();
        for (key, value) in reader.pairs(node)? {
            if key.value == "match" {
                named = true;
                tests = reader.inside("match", |reader| TestGlob::read(value, reader));
            } else {
                entries.extend(entry(key, value, "match", reader));
            }
        }
        if !named {
            reader
                .error(&node.span, "this entry does not say which tests it is for")
                .label("in this entry")
                .hint(Some("add `match: \"suite::Test.*\"`"));
        }
        if entries.is_empty() && !reader.has_error_below(&node.span) {
            reader
                .error(&node.span, "this entry limits nothing")
                .label("in this entry")
                .hint(Some("add `native.live_bytes: 64 KiB` or another metric"));
        }
        let place = reader.place(&node.span);
        Some(Self { tests: tests?, entries, place })
    }
}

fn entry(key: At<String>, node: &Node, other_key: &str, reader: &mut Reader<'_>) -> Option<EntryAt> {
    let Some(metric) = MetricName::find(&key.value) else {
        let known = MetricName::names().into_iter().chain([other_key]).collect::<Vec<_>>();
        reader.unknown(&key.span, format!("unknown metric `{}`", key.value), &key.value, &known);
        return None;
    };
    let value = reader.inside(&key.value, |reader| EntryFile::read(node, reader))?;
    Some(EntryAt { metric, name_span: key.span, value, value_span: node.span.clone() })
}

impl JsonSchema for ThresholdsFile {
    fn schema_name() -> Cow<'static, str> {
        "ThresholdsFile".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = metrics_schema(
            generator,
            "Largest allowed figures, by metric. `off` switches a default off.",
            true,
        );
        let mut item = metrics_schema(generator, "Other limits for some tests.", false);
        add_property(
            &mut item,
            "match",
            json_schema!({
                "type": "string", "minLength": 1, "examples": ["engine::MapCache.*"],
                "description": "The tests, as `suite::Test.name`; without `::` the test in every suite. A suite has its name in `suites`. \
                    If its command runs several test programs (ctest, make), each is a suite `NAME/PROGRAM` (`all/engine_tests`). \
                    The report shows these names."
            }),
        );
        item.insert("required".to_owned(), serde_json::json!(["match"]));
        item.insert("minProperties".to_owned(), 2.into());
        add_property(
            &mut schema,
            "tests",
            json_schema!({
                "type": "array", "items": item,
                "description": "Other limits for some tests. For each metric the first entry wins that matches the test and names the metric."
            }),
        );
        schema
    }
}

fn metrics_schema(generator: &mut SchemaGenerator, description: &str, with_defaults: bool) -> Schema {
    let limit = generator.subschema_for::<LimitFile>();
    let short = <Amount as JsonSchema>::json_schema(generator);
    let mut schema = json_schema!({
        "type": "object", "description": description, "properties": {}, "additionalProperties": false
    });
    for metric in Metric::ALL {
        let mut property = json_schema!({
            "description": metric.about(),
            "anyOf": [short, { "const": "off" }, limit],
        });
        if with_defaults && Metric::zero_by_default().any(|zero| zero == metric) {
            property.insert("default".to_owned(), 0.into());
        }
        add_property(&mut schema, metric.name(), property);
    }
    schema
}

fn add_property(schema: &mut Schema, name: &str, property: Schema) {
    if let Some(serde_json::Value::Object(properties)) = schema.get_mut("properties") {
        properties.insert(name.to_owned(), property.to_value());
    }
}
