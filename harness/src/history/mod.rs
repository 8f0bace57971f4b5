//! Adds a run to the history of its project.
//!
//! Data flow: the origin of the run, `git`'s data about its commit, and `history` of memgate.yaml → [`manifest`],
//! stored in session.json → [`add`] passes it with the report to the [`Store`] → `.memgate/history.db`, and [`upload`]
//! to the server in memgate.yaml. The verdict is decided before; nothing here changes it, and failures are warnings.

pub(crate) mod artefacts;
pub(crate) mod base;
mod git;
pub(crate) mod live;
pub(crate) mod upload;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use memgate_config::History;
use memgate_history::{Environment, Lines, Manifest};
use memgate_model::{Commit, Origin, RunReport};
use memgate_reports::quoted;
use memgate_server::store::{Added, Store, StoreError, without_password};

pub(crate) use self::git::Repository;
use crate::exit::{ExpectedError, chain};

/// Name of the database in the folder of the sessions.
const FILE: &str = "history.db";

/// A query of the repository, in parallel with the run: it may be large.
#[derive(Debug)]
pub(crate) struct Looking(Option<JoinHandle<Repository>>);

impl Looking {
    /// Begins the query. `root`: the checked-out project, at `commit`; `is_own`: somebody's own clone, not that of CI.
    #[must_use]
    pub(crate) fn begin(root: Option<PathBuf>, is_own: bool, commit: Commit) -> Self {
        Self(root.map(|root| std::thread::spawn(move || git::look(&root, is_own, &commit))))
    }

    /// The result of the query.
    #[must_use]
    pub(crate) fn end(self) -> Repository {
        self.0.and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

/// The data of a run that history needs.
#[must_use]
pub(crate) fn manifest(
    project: &str,
    session: &str,
    (origin, repository): (&Origin, Repository),
    partial: bool,
    history: &History,
) -> Manifest {
    let mut environment = history.labels.clone();
    if let Some(machine) = &origin.machine {
        environment.entry("architecture".to_owned()).or_insert_with(|| machine.architecture.clone());
    }
    // CI may name another commit than the checked-out one: then these ancestors are not the run's.
    let is_head = origin.commit.as_ref().is_some_and(|commit| commit.sha == repository.head);
    let mut commit = origin.commit.clone();
    if let Some(commit) = commit.as_mut().filter(|commit| is_head && commit.branch.is_empty()) {
        // Somebody measures an old commit. The branches of `history.lines` come first.
        let lines = Lines::of(&history.lines);
        let of = &repository.branches;
        let branch = of.iter().find(|branch| lines.has(branch)).or_else(|| of.first());
        commit.branch = branch.cloned().unwrap_or_default();
    }
    Manifest {
        project: project.to_owned(),
        session: session.to_owned(),
        commit,
        ancestors: if is_head { repository.ancestors } else { Vec::new() },
        dirty: repository.dirty,
        ci: origin.ci.clone(),
        environment: Environment(environment),
        partial,
        selection: 0,
        lines: history.lines.clone(),
        unproven: false,
    }
}

/// The address of the database in a folder of sessions; `database`: another one that was configured.
pub(crate) fn address(folder: &Path, database: Option<&str>) -> String {
    database.map_or_else(|| format!("sqlite:{}", folder.join(FILE).display()), str::to_owned)
}

/// A line that names a database: a command may use another one than the server does.
#[must_use]
pub(crate) fn named(address: &str) -> String {
    format!("database: {}", without_password(address))
}

/// Adds a run, within `limit` if given.
///
/// # Errors
/// When the store cannot be opened or written, or not in time. Nothing of the run is then stored.
pub(crate) fn add(
    address: &str,
    manifest: &Manifest,
    report: &RunReport,
    limit: Option<Duration>,
) -> Result<Added, ExpectedError> {
    let adding = async {
        let store = Store::open(address).await?;
        let added = store.add(manifest, report).await;
        store.close().await;
        added
    };
    let added = block_on(async {
        match limit {
            Some(limit) => tokio::time::timeout(limit, adding).await,
            None => Ok(adding.await),
        }
    })?;
    added.unwrap_or_else(|_too_long| Err(StoreError::TooLong)).map_err(|why| store_error(&why))
}

/// Runs a store operation to its end.
///
/// # Errors
/// When there is no runtime.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> Result<T, ExpectedError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(ExpectedError::file("start", "the runtime".as_ref()))?;
    Ok(runtime.block_on(work))
}

/// An error of the store, for the user.
pub(crate) fn store_error(why: &dyn std::error::Error) -> ExpectedError {
    let text = chain(why);
    let (what, hint) = text.split_once("\nhint: ").unwrap_or((&text, ""));
    ExpectedError::Machinery { what: format!("failed to {what}"), hint: hint.to_owned() }
}

/// One line about what a run changed, with commands that read the same history; `None`: nothing. `folder`, `database`:
/// as for [`address`].
#[must_use]
pub(crate) fn told(added: &Added, folder: &Path, database: Option<&str>) -> Option<String> {
    let changes = changes(added.events.iter().map(|event| event.kind.as_str()));
    let of = match database {
        // A password belongs on no screen, and without it the commands would read another history.
        Some(database) if without_password(database) != database => None,
        Some(database) => Some(format!(" --database {}", quoted(database))),
        None if folder == Path::new(crate::session::ROOT) => Some(String::new()),
        None => Some(format!(" --data {}", quoted(&folder.to_string_lossy()))),
    };
    let commands =
        of.map_or_else(String::new, |of| format!(" · memgate history leaks{of} · memgate serve{of}"));
    (!changes.is_empty()).then(|| format!("history: {changes}{commands}"))
}

/// Events of leaks in words: `1 new, 2 fixed`; empty: nothing to tell.
fn changes<'e>(events: impl Iterator<Item = &'e str>) -> String {
    let mut kinds = BTreeMap::<&str, u64>::new();
    for kind in events {
        *kinds.entry(kind).or_default() += 1;
    }
    let told = ["new", "regressed", "larger", "fixed", "gone"].into_iter();
    let told = told.filter_map(|kind| kinds.get(kind).map(|count| format!("{count} {kind}")));
    told.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use memgate_model::Verdict;

    use super::*;

    #[test]
    fn an_old_commit_that_is_checked_out_belongs_to_the_branch_that_has_it() {
        let branch = |checked_out: &str, branches: &[&str]| {
            let commit = Commit { sha: "a".into(), branch: checked_out.into(), ..Commit::default() };
            let origin = Origin { commit: Some(commit), ..Origin::default() };
            let branches = branches.iter().map(|branch| (*branch).to_owned()).collect();
            let repository = Repository { head: "a".into(), branches, ..Repository::default() };
            let history = History { lines: vec!["main".into()], ..History::default() };
            manifest("tiles", "s", (&origin, repository), false, &history).branch().to_owned()
        };
        assert_eq!(branch("", &["fix", "main"]), "main");
        assert_eq!(branch("", &["fix", "next"]), "fix");
        assert_eq!((branch("", &[]).as_str(), branch("x", &["main"]).as_str()), ("", "x"));
    }

    #[test]
    fn what_a_run_changed_is_told_with_commands_that_read_its_history() {
        let folder = tempfile::tempdir().unwrap();
        let leak = memgate_model::Leak { id: "n1-a".into(), ..memgate_model::Leak::default() };
        let test = memgate_model::TestReport {
            leaks: vec![leak],
            ..memgate_model::TestReport::new("A.a", Verdict::Fail)
        };
        let suite =
            memgate_model::SuiteReport::new("t", memgate_model::Runner::Gtest, Verdict::Fail, vec![test]);
        let report = RunReport {
            started: "2026-11-21T10:00:00Z".to_owned(),
            ..RunReport::new("tiles", "s", Verdict::Fail, vec![suite])
        };
        let manifest = Manifest { project: "tiles".into(), session: "s".into(), ..Manifest::default() };
        let added = add(&address(folder.path(), None), &manifest, &report, None).unwrap();
        let line = |folder: &str, database| told(&added, Path::new(folder), database).unwrap();
        assert_eq!(line(".memgate", None), "history: 1 new · memgate history leaks · memgate serve");
        let of = |of: &str| format!("history: 1 new · memgate history leaks {of} · memgate serve {of}");
        assert_eq!(line("a b", None), of("--data 'a b'"));
        assert_eq!(line(".memgate", Some("sqlite:x.db")), of("--database sqlite:x.db"));
        let secret = line(".memgate", Some("postgres://u:secret@h/d"));
        assert_eq!(secret, "history: 1 new", "commands without the password read another history");
    }

    #[test]
    fn a_run_that_is_not_added_in_time_is_not_there_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let address = address(folder.path(), None);
        let report = RunReport {
            started: "2026-11-21T10:00:00Z".to_owned(),
            duration_s: 1.5,
            ..RunReport::new("tiles", "s", Verdict::Pass, Vec::new())
        };
        let manifest = Manifest { project: "tiles".into(), session: "s".into(), ..Manifest::default() };
        let late = add(&address, &manifest, &report, Some(Duration::ZERO)).unwrap_err();
        assert!(late.to_string().contains("failed to add the run in time"), "{late}");
        assert!(late.hint().is_some_and(|hint| hint.contains("memgate history add")));
        assert!(!add(&address, &manifest, &report, None).unwrap().already);
        assert!(add(&address, &manifest, &report, None).unwrap().already);
    }
}
