//! The whole configuration: the root table, and the conversion of its parts to checked settings.

use std::path::PathBuf;
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::read::{At, Env, Named, Read, Reader, table};
use crate::settings::history::{History, HistoryFile};
use crate::settings::instrumented::Instrumented;
use crate::settings::measure::{Measure, MeasureFile};
use crate::settings::reports::{Reports, ReportsFile};
use crate::settings::suites::{Suite, SuiteFile};
use crate::settings::thresholds::{Thresholds, ThresholdsFile};
use crate::settings::waivers::{Waiver, WaiverFile, WaiversFile};
use crate::source::{Place, Source, Span};
use crate::value::number::Count;
use crate::value::text::Words;
use crate::yaml::{self, Node};

/// Default path of the file with the accepted figures.
pub const DEFAULT_BASELINE: &str = "memgate-baseline.json";
/// Default path of the file that `memgate waive` writes.
pub const DEFAULT_WAIVERS_FILE: &str = "memgate-waivers.yaml";
const VERSION: u32 = 1;

table! {
    /// Settings of memgate: `memgate.yaml`.
    ConfigFile {
        /// Version of the file format.
        #[schemars(required, extend("const" = VERSION))]
        version: At<Count>,
        /// Name of the project, for reports. Default: the name of the directory.
        project: Words,
        /// The suites, by name.
        suites: Named<At<SuiteFile>>,
        /// How tests are measured.
        measure: MeasureFile,
        /// Largest allowed figures, by metric.
        thresholds: ThresholdsFile,
        /// File with the accepted figures of an earlier run, written by `memgate baseline accept`.
        #[schemars(extend("default" = DEFAULT_BASELINE))]
        baseline: At<Words>,
        /// File to which `memgate waive` appends.
        #[schemars(extend("default" = DEFAULT_WAIVERS_FILE))]
        waivers_file: At<Words>,
        /// Known leaks that are accepted until a date.
        waivers: Vec<At<WaiverFile>>,
        /// Reports to write in addition to `report.json` and `report.html` of the session, and mail and chat messages
        /// to send.
        reports: ReportsFile,
        /// The history of runs, to track leaks over commits: a table, or `off`.
        history: HistoryFile,
    }
}

/// Checked settings. [`Config::default`] applies without a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Name of the project, if the file gives one.
    pub project: Option<String>,
    /// Suites that run on this machine, in the order of the file.
    pub suites: Vec<Suite>,
    /// Suites that run on devices, in the order of the file.
    pub instrumented: Vec<Instrumented>,
    /// How tests are measured.
    pub measure: Measure,
    /// Largest allowed figures, by metric.
    pub thresholds: Thresholds,
    /// File with the accepted figures.
    pub baseline: FileRef,
    /// The file `memgate waive` appends to.
    pub waivers_file: FileRef,
    /// Known leaks: the file's own, then those of the waivers file.
    pub waivers: Vec<Waiver>,
    /// Reports to write, and messages to send.
    pub reports: Reports,
    /// The history of runs.
    pub history: History,
}

/// A file the configuration names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRef {
    /// Path as written, relative to the directory of the configuration.
    pub path: PathBuf,
    /// Where the configuration names it. [`Place::Default`]: nowhere, so the file may be missing.
    pub place: Place,
}

impl Default for Config {
    fn default() -> Self {
        let file = |path: &str| FileRef { path: path.into(), place: Place::Default };
        Self {
            project: None,
            suites: Vec::new(),
            instrumented: Vec::new(),
            measure: Measure::default(),
            thresholds: Thresholds::default(),
            baseline: file(DEFAULT_BASELINE),
            waivers_file: file(DEFAULT_WAIVERS_FILE),
            waivers: Vec::new(),
            reports: Reports::default(),
            history: History::default(),
        }
    }
}

impl Config {
    /// Checks `memgate.yaml`, and the waivers file if there is one (name and text).
    ///
    /// # Errors
    /// Every mistake of both files.
    pub fn parse(
        source: &str,
        file_name: &str,
        env: &dyn Fn(&str) -> Option<String>,
        waivers_source: Option<(&str, &str)>,
    ) -> Result<Self, Diagnostics> {
        let mut found = Vec::new();
        let mut config = read_main(Source::new(file_name, source), env, &mut found).unwrap_or_default();
        if let Some((name, text)) = waivers_source {
            config.waivers.extend(read_waivers(Source::new(name, text), env, &mut found));
        }
        if found.is_empty() { Ok(config) } else { Err(Diagnostics::new(found)) }
    }

    /// The waivers file of a configuration, for callers that need it before the whole is checked. It is the default if
    /// the configuration does not name one or cannot be read.
    #[must_use]
    pub fn waivers_file_of(source: &str, env: &dyn Fn(&str) -> Option<String>) -> FileRef {
        read_main(Source::new("", source), env, &mut Vec::new()).unwrap_or_default().waivers_file
    }

    /// Environment variables with secrets of mail, webhooks and uploads, each with the key that names it.
    #[must_use]
    pub fn secrets(&self) -> Vec<(&'static str, &str)> {
        let mail = self.reports.mail.iter().filter_map(|mail| mail.password.as_deref());
        let urls = self.reports.webhooks.iter().map(|webhook| webhook.url.as_str());
        let keys = self.reports.webhooks.iter().filter_map(|webhook| webhook.secret.as_deref());
        let mail = mail.map(|name| ("reports.mail.password", name));
        let webhooks = urls.map(|name| ("reports.webhooks.url", name));
        let token = self.history.upload.iter().filter_map(|upload| upload.token.as_deref());
        let keys = keys.map(|name| ("reports.webhooks.secret", name));
        mail.chain(webhooks).chain(keys).chain(token.map(|name| ("history.token", name))).collect()
    }
}

/// Reads the settings of a file. Settings with mistakes get their defaults, and the mistakes go to `found`.
fn read_main(source: Source, env: &Env<'_>, found: &mut Vec<Diagnostic>) -> Option<Config> {
    let mut reader = Reader::new(Arc::new(source), env);
    let config = root(&mut reader, "run `memgate init` to write one, or begin with `version: 1`")
        .and_then(|root| ConfigFile::read(&root, &mut reader))
        .map(|file| check(file, &mut reader));
    found.append(&mut reader.finish());
    config
}

fn read_waivers(source: Source, env: &Env<'_>, found: &mut Vec<Diagnostic>) -> Vec<Waiver> {
    if source.text.trim().is_empty() {
        return Vec::new();
    }
    let mut reader = Reader::new(Arc::new(source), env);
    let file = root(&mut reader, "add `waivers:`, or remove the file")
        .and_then(|root| WaiversFile::read(&root, &mut reader))
        .unwrap_or_default();
    let WaiversFile { version, waivers } = file;
    if let Some(version) = version {
        check_version(&version, &mut reader);
    }
    let waivers = check_waivers(waivers.unwrap_or_default(), &mut reader);
    found.append(&mut reader.finish());
    waivers
}

fn root(reader: &mut Reader<'_>, when_empty: &str) -> Option<std::rc::Rc<Node>> {
    let source = reader.source.clone();
    match yaml::parse(&source) {
        Ok(Some(root)) => Some(root),
        Ok(None) => {
            reader.error(&(0..0), "the file is empty").label("no settings here").hint(Some(when_empty));
            None
        }
        Err(error) => {
            reader.error(&error.span, error.title).label(error.label).hint(error.hint);
            None
        }
    }
}

fn check(file: ConfigFile, reader: &mut Reader<'_>) -> Config {
    let ConfigFile {
        version,
        project,
        suites,
        measure,
        thresholds,
        baseline,
        waivers_file,
        waivers,
        reports,
        history,
    } = file;
    match &version {
        Some(version) => check_version(version, reader),
        None if reader.found.is_empty() => {
            reader.error(&(0..0), "the file does not say its version").hint(Some("begin with `version: 1`"));
        }
        None => {}
    }
    let default = Config::default();
    let mut instrumented = Vec::new();
    let suites = suites.unwrap_or_default().0;
    let suites: Vec<Suite> = suites
        .into_iter()
        .filter_map(|(name, file)| Suite::check(&name, file, &mut instrumented, reader))
        .collect();
    let measure = Measure::check(measure.unwrap_or_default(), reader);
    suites.iter().filter_map(|suite| suite.heap.as_ref()).for_each(|heap| heap.fits(&measure.java, reader));
    Config {
        project: project.map(|Words(project)| project),
        suites,
        instrumented,
        measure,
        thresholds: Thresholds::check(thresholds.unwrap_or_default(), reader),
        baseline: file_ref(baseline, default.baseline, reader),
        waivers_file: file_ref(waivers_file, default.waivers_file, reader),
        waivers: check_waivers(waivers.unwrap_or_default(), reader),
        reports: Reports::check(reports.unwrap_or_default(), reader),
        history: history.map_or_else(History::default, |history| History::check(history, reader)),
    }
}

fn check_version(version: &At<Count>, reader: &mut Reader<'_>) {
    let At { value: Count(value), span } = version;
    if *value != VERSION {
        let title = format!("version {value} of the file is not known");
        let hint = format!("this memgate reads version {VERSION}; a newer one may be needed");
        reader.error(span, title).label(format!("expected {VERSION}")).hint(Some(hint));
    }
}

fn file_ref(given: Option<At<Words>>, default: FileRef, reader: &Reader<'_>) -> FileRef {
    given.map_or(default, |At { value: Words(path), span }| FileRef {
        path: path.into(),
        place: reader.place(&span),
    })
}

/// Refuses a leak that is waived twice: it would be unclear which date applies.
fn check_waivers(files: Vec<At<WaiverFile>>, reader: &mut Reader<'_>) -> Vec<Waiver> {
    let mut seen = std::collections::BTreeMap::<String, Span>::new();
    let mut waivers = Vec::new();
    for file in files {
        let span = file.span.clone();
        let Some(waiver) = Waiver::check(file, reader) else { continue };
        let name = match &waiver.test {
            Some(test) => format!("{} in {}", waiver.target, test.text()),
            None => waiver.target.to_string(),
        };
        match seen.get(&name) {
            Some(first) => {
                reader
                    .error(&span, format!("{name} is waived twice"))
                    .label("again here")
                    .context(first, "first here")
                    .hint(Some("keep the one that holds"));
            }
            None => {
                seen.insert(name, span);
                waivers.push(waiver);
            }
        }
    }
    waivers
}
