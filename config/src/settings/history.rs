//! `history`: how runs are recorded, to track leaks over commits.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::read::{At, Named, Read, Reader, choice, table};
use crate::settings::upload::{Artefact, Upload, UploadKeys, UploadMode};
use crate::value::duration::Time;
use crate::value::glob::Glob;
use crate::value::text::Words;
use crate::value::variable::Variable;
use crate::yaml::{Kind, Node};

/// Default of `lines`.
const LINES: [&str; 3] = ["main", "master", "release/*"];

table! {
    /// Every run is recorded in `.memgate/history.db`, which `memgate history` and `memgate serve` show. `off`: runs
    /// are not recorded.
    HistoryTable {
        /// Branches whose leaks are tracked over commits. Runs of other branches, and of pull or merge requests, are
        /// recorded, but do not change what is tracked.
        #[schemars(extend("default" = LINES))]
        lines: Vec<At<Glob>>,
        /// Labels of the environment by name, for example `runner: ci-x86`. Figures are compared only if the
        /// architecture and all labels are equal.
        labels: Named<At<Words>>,
        /// Address of a `memgate serve` to which every run is uploaded: `https://memgate.example.com`. An address
        /// without encryption is allowed only for this machine.
        server: At<Words>,
        /// Environment variable with the token.
        #[schemars(extend("examples" = ["${MEMGATE_TOKEN}"]))]
        token: At<Variable>,
        /// Effect of a failed upload. It never changes the verdict. `off`: runs are not uploaded at their end.
        #[schemars(extend("default" = "best_effort"))]
        upload: At<UploadMode>,
        /// Longest time for which a run tries to upload, `15m` at most.
        #[schemars(extend("default" = "30s"))]
        wait: At<Time>,
        /// Files to upload in addition to the figures, if the server keeps artefacts. Heap dumps contain all texts of
        /// the tested program.
        #[schemars(extend("default" = ["page"]))]
        artefacts: Vec<At<Artefact>>,
        /// Effect on a pull or merge request of a leak that the target branch has too. A leak that is new, was fixed
        /// there, or has grown still fails. A leak that comes and goes there is a warning. Default: `warn` with
        /// `server`, else `fail`.
        known: At<KnownLeaks>,
        /// Effect of a waiver whose leak is fixed, according to the history.
        #[schemars(extend("default" = "warn"))]
        stale_waivers: At<StaleWaivers>,
    }
}

choice! {
    /// Effect of a known leak on a pull or merge request.
    pub enum KnownLeaks ("`allow`, `warn` or `fail`") {
        /// Nothing.
        Allow = "allow",
        /// A warning.
        Warn = "warn",
        /// A failure, like a new one.
        Fail = "fail",
    }
}

choice! {
    /// Effect of a waiver whose leak is fixed.
    pub enum StaleWaivers ("`warn` or `fail`") {
        /// A warning.
        Warn = "warn",
        /// A failure.
        Fail = "fail",
    }
}

choice! {
    /// The word that replaces the table.
    enum Never ("`off`, or a table") {
        /// Runs are not recorded.
        Off = "off",
    }
}

/// `history` in the file: `off` or a table.
#[derive(Debug)]
pub(crate) enum HistoryFile {
    Off,
    Table(Box<HistoryTable>),
}

impl Read for HistoryFile {
    const NOTHING_IS_ABSENT: bool = true;

    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        match node.kind {
            Kind::Mapping(_) => HistoryTable::read(node, reader).map(|table| Self::Table(Box::new(table))),
            _ => Never::read(node, reader).map(|Never::Off| Self::Off),
        }
    }
}

impl JsonSchema for HistoryFile {
    fn schema_name() -> Cow<'static, str> {
        "HistoryFile".into()
    }

    /// The schema of the table, which also allows the word.
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = HistoryTable::json_schema(generator);
        schema.insert("type".to_owned(), ["object", "string"].into_iter().collect());
        schema.insert("pattern".to_owned(), "^off$".into());
        schema
    }
}

/// How runs are recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// Are runs recorded?
    pub kept: bool,
    /// Patterns of the branches whose leaks are tracked over commits.
    pub lines: Vec<String>,
    /// Labels of the environment.
    pub labels: BTreeMap<String, String>,
    /// Where runs are uploaded; `None`: nowhere.
    pub upload: Option<Upload>,
    /// Effect on a pull or merge request of a leak that the target branch has too.
    pub known: KnownLeaks,
    /// Effect of a waiver whose leak is fixed.
    pub stale_waivers: StaleWaivers,
}

impl Default for History {
    fn default() -> Self {
        Self {
            kept: true,
            lines: LINES.map(str::to_owned).to_vec(),
            labels: BTreeMap::new(),
            upload: None,
            known: KnownLeaks::Fail,
            stale_waivers: StaleWaivers::Warn,
        }
    }
}

impl History {
    pub(crate) fn check(file: HistoryFile, reader: &mut Reader<'_>) -> Self {
        let default = Self::default();
        match file {
            HistoryFile::Off => Self { kept: false, ..default },
            HistoryFile::Table(table) => {
                let HistoryTable {
                    lines,
                    labels,
                    server,
                    token,
                    upload,
                    wait,
                    artefacts,
                    known,
                    stale_waivers,
                } = *table;
                Self {
                    kept: true,
                    lines: lines.map_or(default.lines, |lines| {
                        lines.into_iter().map(|line| line.value.text().to_owned()).collect()
                    }),
                    labels: labels.map_or_else(BTreeMap::new, |Named(labels)| {
                        labels
                            .into_iter()
                            .map(|(name, At { value: Words(value), .. })| (name.value, value))
                            .collect()
                    }),
                    // Without a server, a CI job has no history to compare a pull or merge request with.
                    known: known.map_or(
                        if server.is_some() { KnownLeaks::Warn } else { KnownLeaks::Fail },
                        |known| known.value,
                    ),
                    stale_waivers: stale_waivers.map_or(default.stale_waivers, |stale| stale.value),
                    upload: Upload::check(UploadKeys { server, token, upload, wait, artefacts }, reader),
                }
            }
        }
    }
}
