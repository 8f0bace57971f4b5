//! `reports`: reports to write, and messages to send.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use crate::read::{At, Reader, choice, table};
use crate::settings::mail::{Mail, MailFile};
use crate::settings::webhooks::{Webhook, WebhookFile};
use crate::source::{Place, Span};
use crate::value::text::Words;

table! {
    /// Reports to write in addition to `report.json` and `report.html` of the session, and mail and chat messages to
    /// send.
    ReportsFile {
        /// JUnit XML, for CI servers.
        junit: At<JunitFile>,
        /// The report as JSON.
        json: At<PlainFile>,
        /// A page with charts and stacks.
        html: At<PlainFile>,
        /// A summary for step summaries and comments of merge requests.
        markdown: At<MarkdownFile>,
        /// Findings for code scanning (SARIF 2.1.0).
        sarif: At<PlainFile>,
        /// Findings for GitLab's code quality.
        codequality: At<PlainFile>,
        /// Figures as OpenMetrics text.
        metrics: At<PlainFile>,
        /// Leaked bytes as folded stacks, for flame graphs.
        folded: At<PlainFile>,
        /// Leaked bytes as a profile for speedscope.
        speedscope: At<PlainFile>,
        /// Charts as SVG and PNG files, in a folder.
        charts: At<PlainFile>,
        /// Report of an earlier run, to recognise new leaks. Default: the last session.
        previous: Words,
        /// Mail to teams and code owners.
        mail: At<MailFile>,
        /// Messages to chats.
        webhooks: Vec<At<WebhookFile>>,
    }
}

table! {
    /// JUnit XML.
    JunitFile {
        /// File to write.
        #[schemars(required)]
        path: Words,
        /// How much the file contains.
        #[schemars(extend("default" = "extended"))]
        flavour: JunitFlavour,
        /// JUnit files that the test runner writes (`**/target/surefire-reports/TEST-*.xml`). memgate
        /// adds each leak to the test that leaked. `*` stands for a part of a name, `**` for any folders.
        merge: Vec<Words>,
    }
}

table! {
    /// A file or folder to write.
    PlainFile {
        /// Path of the file or folder.
        #[schemars(required)]
        path: Words,
    }
}

table! {
    /// A summary in Markdown.
    MarkdownFile {
        /// File to write.
        #[schemars(required)]
        path: Words,
        /// Where the summary is used; this limits its length.
        #[schemars(extend("default" = "summary"))]
        r#for: MarkdownFor,
    }
}

choice! {
    /// How much a JUnit file contains.
    pub enum JunitFlavour ("a flavour of JUnit XML") {
        /// With properties and totals.
        Extended = "extended",
        /// What Jenkins' xUnit schema allows.
        Strict = "strict",
    }
}

choice! {
    /// Where a Markdown summary is used.
    pub enum MarkdownFor ("a place for Markdown") {
        /// A step summary: 1 MiB.
        Summary = "summary",
        /// A comment: 65,536 characters.
        Comment = "comment",
    }
}

/// Reports to write, and messages to send.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reports {
    /// JUnit XML.
    pub junit: Option<JunitReport>,
    /// Copy of `report.json`.
    pub json: Option<PathBuf>,
    /// HTML page.
    pub html: Option<PathBuf>,
    /// Markdown.
    pub markdown: Option<MarkdownReport>,
    /// SARIF.
    pub sarif: Option<PathBuf>,
    /// GitLab's code quality.
    pub codequality: Option<PathBuf>,
    /// OpenMetrics text.
    pub metrics: Option<PathBuf>,
    /// Folded stacks.
    pub folded: Option<PathBuf>,
    /// A speedscope profile.
    pub speedscope: Option<PathBuf>,
    /// Folder for charts.
    pub charts: Option<PathBuf>,
    /// Report of an earlier run.
    pub previous: Option<PathBuf>,
    /// Mail.
    pub mail: Option<Mail>,
    /// Messages to chats.
    pub webhooks: Vec<Webhook>,
}

/// A JUnit file to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JunitReport {
    /// File to write.
    pub path: PathBuf,
    /// How much the file contains.
    pub flavour: JunitFlavour,
    /// Patterns of the runner's own files.
    pub merge: Vec<PathBuf>,
}

/// A Markdown file to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkdownReport {
    /// File to write.
    pub path: PathBuf,
    /// Where the summary is used.
    pub r#for: MarkdownFor,
}

impl Reports {
    pub(crate) fn check(file: ReportsFile, reader: &mut Reader<'_>) -> Self {
        let ReportsFile {
            junit,
            json,
            html,
            markdown,
            sarif,
            codequality,
            metrics,
            folded,
            speedscope,
            charts,
            previous,
            mail,
            webhooks,
        } = file;
        let mut paths = Paths::default();
        let mut plain = |name: &str, usual: &str, file: Option<At<PlainFile>>| {
            let At { value: PlainFile { path }, span } = file?;
            paths.check((name, usual), path, &span, reader)
        };
        let json = plain("json", "report.json", json);
        let html = plain("html", "report.html", html);
        let sarif = plain("sarif", "memgate.sarif", sarif);
        let codequality = plain("codequality", "codequality.json", codequality);
        let metrics = plain("metrics", "metrics.txt", metrics);
        let folded = plain("folded", "leaks.folded", folded);
        let speedscope = plain("speedscope", "leaks.speedscope.json", speedscope);
        let charts = plain("charts", "charts", charts);
        let junit = junit.and_then(|At { value: JunitFile { path, flavour, merge }, span }| {
            let path = paths.check(("junit", "junit.xml"), path, &span, reader)?;
            let merge = merge.unwrap_or_default().into_iter().map(|Words(path)| path.into()).collect();
            Some(JunitReport { path, flavour: flavour.unwrap_or(JunitFlavour::Extended), merge })
        });
        let markdown = markdown.and_then(|At { value: MarkdownFile { path, r#for }, span }| {
            let path = paths.check(("markdown", "summary.md"), path, &span, reader)?;
            Some(MarkdownReport { path, r#for: r#for.unwrap_or(MarkdownFor::Summary) })
        });
        let webhooks = webhooks.unwrap_or_default();
        Self {
            junit,
            json,
            html,
            markdown,
            sarif,
            codequality,
            metrics,
            folded,
            speedscope,
            charts,
            previous: previous.map(|Words(path)| path.into()),
            mail: mail.and_then(|file| Mail::check(file, reader)),
            webhooks: webhooks.into_iter().filter_map(|file| Webhook::check(file, reader)).collect(),
        }
    }

    /// Every path, to make it absolute or to move it elsewhere.
    pub fn paths_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let Self {
            junit,
            json,
            html,
            markdown,
            sarif,
            codequality,
            metrics,
            folded,
            speedscope,
            charts,
            previous,
            mail,
            webhooks: _,
        } = self;
        let (owners, ca) =
            mail.as_mut().map_or((None, None), |mail| (mail.owners.as_mut(), mail.ca.as_mut()));
        [json, html, sarif, codequality, metrics, folded, speedscope, charts, previous]
            .into_iter()
            .filter_map(Option::as_mut)
            .chain(
                junit.iter_mut().flat_map(|junit| std::iter::once(&mut junit.path).chain(&mut junit.merge)),
            )
            .chain(markdown.as_mut().map(|markdown| &mut markdown.path))
            .chain(owners)
            .chain(ca)
    }
}

/// The files of the reports, by their path: a second report would replace the first.
#[derive(Default)]
struct Paths(BTreeMap<PathBuf, Span>);

/// The path without `.`, and without `..` after a folder. Links are not followed.
fn without_detours(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(plain.components().next_back(), Some(Component::Normal(_))) => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

impl Paths {
    fn check(
        &mut self,
        (report, usual): (&str, &str),
        path: Option<Words>,
        span: &Span,
        reader: &mut Reader<'_>,
    ) -> Option<PathBuf> {
        let Some(Words(path)) = path else {
            if !reader.has_error_below(span) {
                reader
                    .error(span, format!("the report `{report}` has no `path`"))
                    .label("where is it written to?")
                    .hint(Some(format!("add `path: target/memgate/{usual}`")));
            }
            return None;
        };
        let path = PathBuf::from(path);
        let plain = without_detours(&path);
        // The path begins at the folder of the configuration.
        if let Place::File { file, .. } = reader.place(span)
            && let file = Path::new(&*file)
            && without_detours(&file.with_file_name(&path)) == without_detours(file)
        {
            reader
                .error(span, format!("the report `{report}` would replace this file"))
                .label("the configuration itself")
                .hint(Some(format!("write it elsewhere: `path: target/memgate/{usual}`")));
        }
        if let Some(other) = self.0.insert(plain, span.clone()) {
            reader
                .error(span, format!("two reports are written to `{}`", path.display()))
                .label("this one replaces the other")
                .context(&other, "the other")
                .hint(Some("give each its own file"));
        }
        Some(path)
    }
}
