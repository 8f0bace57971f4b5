//! `memgate history`: the leaks of a project over its commits, as text, JSON or CSV.

use std::path::Path;

use memgate_config::nearest;
use memgate_history::Manifest;
use memgate_model::{Metric, RunReport, format_list, format_number_of};
use memgate_server::store::{Choice, Store, StoreError, without_password};
use memgate_server::text;
use memgate_server::view::{LeakFilter, LeakView, Selection, State, StateFilter};
use serde::Serialize;

use super::{report, settings};
use crate::cli::{HistoryCommand, LeakState, LineArgs, StoreArgs};
use crate::exit::{self, ExpectedError};
use crate::history::{self, Repository};
use crate::output::Console;
use crate::plan;
use crate::session::Session;

pub(super) fn history(request: &HistoryCommand, console: &Console) -> Result<u8, ExpectedError> {
    if let HistoryCommand::Add { store, config, sessions } = request {
        let settings = settings::load(config.config.as_deref(), console)?;
        // A session that cannot be added does not stop the others.
        let mut failed = Vec::new();
        for session in sessions {
            if let Err(why) = add(session, store, &settings, console) {
                console.warning(&format!("{}: {why}", session.display()));
                failed.push((session.display().to_string(), why));
            }
        }
        let names: Vec<&str> = failed.iter().map(|(session, _)| session.as_str()).collect();
        let names = names.join(", ");
        return match failed.into_iter().next() {
            None => Ok(exit::PASS),
            Some((_, why)) if sessions.len() == 1 => Err(why),
            Some((_, why)) => Err(ExpectedError::Machinery {
                what: format!("not in the history: {names}"),
                hint: why.hint().unwrap_or_default(),
            }),
        };
    }
    history::block_on(show(request, console))?
}

/// Adds a session as its run would have done.
fn add(
    folder: &Path,
    to: &StoreArgs,
    settings: &plan::Settings,
    console: &Console,
) -> Result<(), ExpectedError> {
    let (manifest, report) = recorded(folder, settings)?;
    let address = history::address(&to.data, to.database.as_deref());
    let added = history::add(&address, &manifest, &report, None)?;
    let what = if added.already { "is in the history already" } else { "added" };
    console.line(&format!("{}: {what}", folder.display()));
    if let Some(changes) = history::told(&added, &to.data, to.database.as_deref()) {
        console.line(&changes);
    }
    Ok(())
}

/// The manifest and report of a session.
pub(super) fn recorded(
    folder: &Path,
    settings: &plan::Settings,
) -> Result<(Manifest, RunReport), ExpectedError> {
    let session = Session::open(folder).map_err(|why| ExpectedError::failed(&why))?;
    let info = session.info().map_err(|why| ExpectedError::failed(&why))?;
    let mut options = info.command.iter().take_while(|argument| *argument != "--");
    if options.any(|option| option == "--bisect" || option.starts_with("--bisect=")) {
        // Its thresholds are not those of the commit.
        return Err(ExpectedError::session(
            folder,
            "it is a step of a bisection, which is no run of the project",
            "",
        ));
    }
    let (report, file) = report::read(session.folder())?;
    super::merge::refuse_a_shard(&report, &file)?;
    // Recorded by an older memgate, or with `history: off`: it is unknown whether all tests were requested.
    let manifest = info.history.unwrap_or_else(|| {
        let origin = report.origin.clone().unwrap_or_default();
        let of = (&origin, Repository::default());
        history::manifest(&report.project, &session.name(), of, true, &settings.config.history)
    });
    Ok((manifest, report))
}

async fn show(request: &HistoryCommand, console: &Console) -> Result<u8, ExpectedError> {
    let of = match request {
        HistoryCommand::Leaks { of, .. }
        | HistoryCommand::Leak { of, .. }
        | HistoryCommand::Test { of, .. }
        | HistoryCommand::Runs { of, .. }
        | HistoryCommand::Export { of } => of,
        HistoryCommand::Add { .. } => return Ok(exit::PASS),
    };
    let asked = Asked { json: of.json, ..Asked::open(&of.line, console).await? };
    let shown = match request {
        HistoryCommand::Leaks { state, owner, suite, .. } => {
            let filter = LeakFilter {
                owner: owner.clone().unwrap_or_default(),
                suite: suite.clone().unwrap_or_default(),
                state: filter(*state),
                ..LeakFilter::default()
            };
            let view = asked.store.leaks(&asked.project, &asked.choice, &filter).await;
            if let Ok(Some(view)) = &view {
                not_there("owner", &filter.owner, &view.owners).iter().for_each(|hint| console.hint(hint));
                not_there("suite", &filter.suite, &view.suites).iter().for_each(|hint| console.hint(hint));
            }
            let is_filtered = *state != LeakState::Alive || owner.is_some() || suite.is_some();
            let is_empty = matches!(&view, Ok(Some(view)) if view.leaks.is_empty());
            let not_kept =
                if is_empty && !is_filtered && !asked.json { asked.not_kept().await? } else { None };
            let shown = asked.rendered(view, Wanted::Line, text::leaks);
            shown.map(|shown| shown + not_kept.as_deref().unwrap_or_default())
        }
        HistoryCommand::Leak { leak, .. } => {
            asked.rendered(Ok::<_, StoreError>(Some(asked.leak(leak).await?)), Wanted::Leak, text::leak)
        }
        HistoryCommand::Test { test, metric, .. } => {
            let metric = metric.as_deref().map(str::parse::<Metric>).transpose().map_err(|why| {
                ExpectedError::Usage {
                    what: format!("--metric: {why}"),
                    hint: "`memgate history export` has the metrics that are kept".to_owned(),
                }
            })?;
            let (suite, name) = test.split_once("::").unwrap_or(("", test));
            let view = match suite {
                "" => Ok(None),
                suite => asked.store.test(&asked.project, &asked.choice, suite, name, metric).await,
            };
            if matches!(view, Ok(None)) {
                let tests = asked.store.tests(&asked.project).await;
                return Err(asked.no_test(test, &tests.map_err(|why| history::store_error(&why))?));
            }
            asked.rendered(view, Wanted::Test, text::test)
        }
        HistoryCommand::Runs { before, .. } => {
            let view = asked.store.runs(&asked.project, &asked.choice, *before).await;
            asked.rendered(view, Wanted::Line, text::runs)
        }
        HistoryCommand::Export { .. } | HistoryCommand::Add { .. } => return asked.export(console).await,
    }?;
    console.text(&shown)?;
    Ok(exit::PASS)
}

/// The project of this folder.
fn project_here(console: &Console) -> Result<String, ExpectedError> {
    Ok(settings::load(None, console)?.project(&settings::world()?.directory))
}

/// The kind of entry to look up in a history.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    Line,
    Leak,
    Test,
}

/// A store, and the requested part of it.
pub(super) struct Asked {
    pub(super) store: Store,
    pub(super) project: String,
    pub(super) choice: Choice,
    /// What to do if there is no such line.
    other_lines: String,
    json: bool,
}

impl Asked {
    pub(super) async fn open(of: &LineArgs, console: &Console) -> Result<Self, ExpectedError> {
        let address = history::address(&of.store.data, of.store.database.as_deref());
        let store = Store::open_to_read(&address).await.map_err(|why| history::store_error(&why))?;
        let projects = store.projects().await.map_err(|why| history::store_error(&why))?;
        let named = match &of.project {
            None if projects.len() > 1 => Some(project_here(console)?).filter(|here| projects.contains(here)),
            named => named.clone(),
        };
        let project = match (&named, projects.as_slice()) {
            (Some(named), all) if all.contains(named) => named.clone(),
            (None, [one]) => one.clone(),
            (_, []) => {
                return Err(ExpectedError::Missing {
                    what: format!("there is no run in {}", without_password(&address)),
                    hint: "`memgate run` adds itself".to_owned(),
                });
            }
            (named, all) => {
                let what = match named {
                    Some(named) => format!("there is no project `{named}`"),
                    None => "there are several projects".to_owned(),
                };
                return Err(ExpectedError::usage(what, format!("--project with one of: {}", all.join(", "))));
            }
        };
        let choice = Choice {
            branch: of.branch.clone().unwrap_or_default(),
            environment: of.environment.clone().unwrap_or_default(),
        };
        let mut other_lines = "`memgate history runs` shows the newest line".to_owned();
        if of.branch.is_some() || of.environment.is_some() {
            let newest = store.runs(&project, &Choice::default(), None).await;
            if let Some(newest) = newest.map_err(|why| history::store_error(&why))? {
                other_lines = nearest_line(&choice, &newest.selection);
            }
        }
        Ok(Self { store, project, choice, other_lines, json: false })
    }

    /// Prints lines as they come: there may be millions.
    async fn export(&self, console: &Console) -> Result<u8, ExpectedError> {
        let mut written = Ok(());
        let mut line = |line: &str| {
            if written.is_ok() {
                written = console.result(line.as_bytes());
            }
        };
        let found = self.store.export(&self.project, &self.choice, &mut line).await;
        let found = found.map_err(|why| history::store_error(&why))?;
        written?;
        self.rendered(Ok::<_, StoreError>(found.then_some(())), Wanted::Line, |()| String::new())?;
        Ok(exit::PASS)
    }

    /// A leak by its id.
    pub(super) async fn leak(&self, id: &str) -> Result<LeakView, ExpectedError> {
        let found = self.store.leak(&self.project, &self.choice, id).await;
        if let Some(view) = found.map_err(|why| history::store_error(&why))? {
            return Ok(view);
        }
        let any = LeakFilter { state: StateFilter::Any, ..LeakFilter::default() };
        let known = self.store.leaks(&self.project, &self.choice, &any).await;
        let known = known.map_err(|why| history::store_error(&why))?.map_or_else(Vec::new, |view| view.leaks);
        let missing = self.missing(Wanted::Leak);
        Err(match nearest(id, known.iter().map(|leak| leak.id.as_str())) {
            Some(near) => ExpectedError::missing(missing.to_string(), format!("did you mean {near}?")),
            None => missing,
        })
    }

    /// A line about a branch without leaks of its own whose newest run has some; `None`: that has none either.
    async fn not_kept(&self) -> Result<Option<String>, ExpectedError> {
        let runs = self.store.runs(&self.project, &self.choice, None).await;
        let runs = runs.map_err(|why| history::store_error(&why))?;
        let newest = runs.as_ref().and_then(|view| view.runs.first()).filter(|run| run.leaks > 0);
        Ok(newest.map(|run| {
            let leaks = format_number_of(run.leaks, "leak");
            format!("its newest run, {}, has {leaks}: only lines keep leaks, reviews do not\n", run.run)
        }))
    }

    /// The error for an entry that is not in the history.
    pub(super) fn missing(&self, wanted: Wanted) -> ExpectedError {
        let (what, hint) = match wanted {
            Wanted::Line => ("line", self.other_lines.clone()),
            Wanted::Leak => ("leak", "`memgate history leaks --state any` lists those of a line".to_owned()),
            Wanted::Test => ("test", "`memgate history export` lists the tests of a line".to_owned()),
        };
        ExpectedError::missing(format!("no such {what} in the history of {}", self.project), hint)
    }

    /// The error for a test that is not in the shown line; `tests`: those of the project.
    fn no_test(&self, test: &str, tests: &[String]) -> ExpectedError {
        let missing = self.missing(Wanted::Test);
        ExpectedError::missing(
            missing.to_string(),
            match nearest_test(test, tests) {
                Some(near) if near == test => "it is on another line: --branch, --environment".to_owned(),
                Some(near) => format!("did you mean `{near}`?"),
                None => missing.hint().unwrap_or_default(),
            },
        )
    }

    fn rendered<T: Serialize, E: std::error::Error>(
        &self,
        view: Result<Option<T>, E>,
        wanted: Wanted,
        text: fn(&T) -> String,
    ) -> Result<String, ExpectedError> {
        let Some(view) = view.map_err(|why| history::store_error(&why))? else {
            return Err(self.missing(wanted));
        };
        if self.json {
            let json = serde_json::to_string_pretty(&view).map_err(|why| ExpectedError::failed(&why))?;
            return Ok(format!("{json}\n"));
        }
        Ok(text(&view))
    }
}

/// The test that somebody probably meant who left out the suite, or mistyped the name.
fn nearest_test<'t>(test: &str, tests: &'t [String]) -> Option<&'t String> {
    let name = |full: &'t String| full.split_once("::").map_or(full.as_str(), |(_, name)| name);
    let wanted = test.split_once("::").map_or(test, |(_, name)| name);
    let so_called = |wanted: &str| tests.iter().filter(|full| name(full) == wanted).collect::<Vec<_>>();
    let mut full = so_called(wanted);
    if full.is_empty() {
        full = so_called(nearest(wanted, tests.iter().map(name))?);
    }
    let near = nearest(test, full.iter().map(|full| full.as_str()));
    full.iter().copied().find(|full| Some(full.as_str()) == near).or_else(|| full.first().copied())
}

/// The branch or environment that somebody probably meant, or those that there are.
fn nearest_line(choice: &Choice, known: &Selection) -> String {
    const MOST: usize = 20;
    let (what, named, known) = match choice.branch.as_str() {
        branch if branch.is_empty() || known.branches.iter().any(|known| known == branch) => {
            ("environments", choice.environment.as_str(), &known.environments)
        }
        branch => ("branches", branch, &known.branches),
    };
    match nearest(named, known.iter().map(String::as_str)) {
        Some(near) if near != named && !near.is_empty() => format!("did you mean `{near}`?"),
        _ if what == "branches" && known.iter().all(String::is_empty) => {
            "its runs have no branch: leave out `--branch`".to_owned()
        }
        _ => format!("the {what} are: {}", format_list(known, MOST)),
    }
}

/// A hint if nothing has this value of a filter: an empty list would look like a good one.
fn not_there(what: &str, value: &str, known: &[String]) -> Option<String> {
    if value.is_empty() || known.iter().any(|known| known == value) {
        return None;
    }
    let near = nearest(value, known.iter().map(String::as_str));
    let near = near.map_or_else(
        || if known.is_empty() { "none has one".to_owned() } else { known.join(", ") },
        |near| format!("did you mean `{near}`?"),
    );
    Some(format!("no leak of this line has the {what} `{value}`: {near}"))
}

const fn filter(state: LeakState) -> StateFilter {
    match state {
        LeakState::Alive => StateFilter::Alive,
        LeakState::New => StateFilter::In(State::New),
        LeakState::Known => StateFilter::In(State::Known),
        LeakState::Regressed => StateFilter::In(State::Regressed),
        LeakState::Fixed => StateFilter::In(State::Fixed),
        LeakState::Gone => StateFilter::In(State::Gone),
        LeakState::Any => StateFilter::Any,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_found_without_its_suite_and_with_a_typing_error() {
        let tests =
            ["engine::MapCache.scroll", "tiles::MapCache.scroll", "engine::Other.test"].map(String::from);
        for (test, near) in [
            ("MapCache.scroll", Some("engine::MapCache.scroll")),
            ("tile::MapCache.scroll", Some("tiles::MapCache.scroll")),
            ("engine::MapCash.scrol", Some("engine::MapCache.scroll")),
            ("engine::Other.test", Some("engine::Other.test")),
            ("engine::Zzz", None),
        ] {
            assert_eq!(nearest_test(test, &tests).map(String::as_str), near, "{test}");
        }
    }

    #[test]
    fn a_line_that_is_not_there_is_told_with_those_that_are() {
        let known = Selection {
            project: "tiles".to_owned(),
            branch: "main".to_owned(),
            environment: "x86_64".to_owned(),
            branches: vec!["main".to_owned(), "release/1".to_owned()],
            environments: vec!["x86_64".to_owned()],
        };
        let told = |branch: &str, environment: &str| {
            let choice = Choice { branch: branch.to_owned(), environment: environment.to_owned() };
            nearest_line(&choice, &known)
        };
        assert_eq!(told("mian", ""), "did you mean `main`?");
        assert_eq!(told("zebra", ""), "the branches are: main, release/1");
        assert_eq!(told("main", "x86"), "did you mean `x86_64`?");
        assert_eq!(told("", "zebra"), "the environments are: x86_64");
        let without_branch = Selection { branches: vec![String::new()], ..known.clone() };
        let choice = Choice { branch: "main".to_owned(), ..Choice::default() };
        assert!(nearest_line(&choice, &without_branch).starts_with("its runs have no branch"));
    }

    #[test]
    fn the_beginning_of_an_id_names_its_leak() {
        let known = ["n1-e519c2a07ad38b40", "n1-ec682c96f0d0d7d0", "j1-067741f2039419e0"];
        for (typed, near) in [("n1-ec", Some(known[1])), ("j1-06", Some(known[2])), ("x1-99", None)] {
            assert_eq!(nearest(typed, known.into_iter()), near, "{typed}");
        }
    }

    #[test]
    fn an_owner_that_no_leak_has_is_told() {
        let known = ["@maps".to_owned(), "@tiles".to_owned()];
        assert_eq!(not_there("owner", "", &known), None);
        assert_eq!(not_there("owner", "@maps", &known), None);
        let told = |owner: &str, known: &[String]| not_there("owner", owner, known).unwrap();
        assert!(told("@map", &known).ends_with("the owner `@map`: did you mean `@maps`?"));
        assert!(told("zebra", &known).ends_with(": @maps, @tiles"));
        assert!(told("zebra", &[]).ends_with(": none has one"));
    }
}
