//! A run: screen, confirm, hunt, judge.
//!
//! Data flow: `Plan` → [`checks`] → [`runners::screen`] (every command once, with the agent inside) →
//! [`runners::confirm`] (suspects alone) → [`hunt`] (tests that are not suspect, if there is time) → [`Facts`] in the
//! session → [`judge`] with symbols from [`resolve`] → [`deliver`](crate::deliver). `memgate gate` enters at `judge`.
//!
//! The code has three layers; each knows only the layers below it:
//!
//! - [`runners`]: one folder for each test framework. Each implements one trait, `Framework`: confirm suspects, name
//!   candidates of a hunt, repeat one. The screening pass decides which framework a suite has, and what it knows about
//!   boundaries (`session::facts::Kind`).
//! - [`engine`]: starts a command, follows its frames, replies at boundaries, ends it in time. It knows no test
//!   framework.
//! - [`session`](crate::session) and [`reading`](crate::reading): the stored data of a run, and the content of its
//!   frames.

pub(crate) mod checks;
mod engine;
mod heap;
mod hunt;
pub mod judge;
pub mod resolve;
mod runners;
pub mod this_shard;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use memgate_analysis::GatePolicy;
use memgate_history::Manifest;
use memgate_history::shards::ShardDescription;
use memgate_model::RunReport;
use tokio::runtime::Runtime;

use crate::exit::{ExpectedError, chain};
use crate::history::{self, base};
use crate::names::Mappings;
use crate::origin;
use crate::output::Console;
use crate::plan::Plan;
use crate::reading::Records;
use crate::session::facts::Facts;
use crate::session::{Session, SessionInfo};
use crate::suite::Program;
use crate::symbol_files::SymbolFiles;
use engine::{Context, Interrupts, KeptFiles, Stopped};
use resolve::Symbols;
use runners::Screened;
use this_shard::ThisShard;

/// How many modules without symbols are named.
const MOST_WITHOUT_SYMBOLS: usize = 10;

/// A run that was judged.
#[derive(Debug)]
pub struct Judged {
    /// Its findings.
    pub report: RunReport,
    /// How the wrapped command ended.
    pub command_status: Option<i32>,
    /// Its folder.
    pub session: Session,
    /// Whether only part of the tests was requested.
    pub partial: bool,
    /// The entry for its history; `None`: `history: off`.
    pub manifest: Option<Manifest>,
    /// Which shard of a run it is; `None`: it is a whole run.
    pub shard: Option<ShardDescription>,
    /// Why its session could not be written: it cannot be judged again.
    pub unsaved: Option<ExpectedError>,
}

/// Everything a run needs, prepared before it writes or starts anything.
struct Prepared {
    programs: Vec<Program>,
    /// The agent's library.
    agent: PathBuf,
    /// Folder with the jars of its Java part, where a suite needs them.
    jars: Option<PathBuf>,
    names: Arc<Mappings>,
    symbol_files: SymbolFiles,
}

impl Prepared {
    fn of(plan: &Plan) -> Result<Self, ExpectedError> {
        checks::enough_files()?;
        let programs = checks::programs(plan)?;
        heap::check_rules(plan)?;
        let agent = crate::agent::embedded::agent()
            .map_err(|why| ExpectedError::failed_with_hint(&why, "`memgate doctor` says more"))?;
        let jars = checks::jars(plan, &programs)?;
        let names = Arc::new(checks::mappings(plan)?);
        let symbol_files = SymbolFiles::open(&plan.symbols)?;
        Ok(Self { programs, agent, jars, names, symbol_files })
    }
}

/// Runs a plan. `command_line` is memgate's own, stored in the session.
///
/// # Errors
/// When it could not run at all, or the user ended it; the session is kept then too.
pub fn run(plan: &Plan, console: &Console, command_line: Vec<String>) -> Result<Judged, ExpectedError> {
    let prepared = Prepared::of(plan)?;
    let mut info = SessionInfo::now(command_line, env!("CARGO_PKG_VERSION"));
    info.project.clone_from(&plan.project);
    let project = origin::project_root();
    let origin = origin::of_run(project.as_deref(), info.machine.clone(), &info.command);
    let looking = plan.history.kept.then(|| {
        let commit = origin.commit.clone().unwrap_or_default();
        history::Looking::begin(project.clone(), origin.ci.is_none(), commit)
    });
    let session = create_session(plan, &info)?;
    prepared.names.keep(session.folder())?;
    let runtime = runtime()?;
    let kept = Arc::new(KeptFiles::default());
    let this_shard = plan.shard.as_ref().map(ThisShard::begin).transpose()?;
    let planned = plan.shard.as_ref().zip(this_shard.as_ref());
    let commit = origin.commit.as_ref().map_or("", |commit| commit.sha.as_str()).to_owned();
    let shard = |dirty| planned.map(|(planned, shard)| shard.description(planned, (&commit, dirty)));
    if let Some(shard) = shard(false) {
        this_shard::keep(&session, &shard)?;
    }
    let recorded = record(plan, console, &session, (&prepared, &kept), this_shard.as_ref());
    let (mut facts, records) = runtime.block_on(recorded).map_err(|stopped| match stopped {
        Stopped::Interrupted => ExpectedError::Interrupted(session.folder().to_owned()),
        Stopped::Failed(error) => error,
    })?;
    let mut policy = plan.policy.clone();
    let mut saved = Ok(());
    if let Some(looking) = looking {
        let repository = looking.end();
        let merged = repository.merged.clone();
        let found = (&origin, repository);
        let manifest = history::manifest(&plan.project, &session.name(), found, facts.partial, &plan.history);
        let manifest = Manifest { selection: plan.selection, ..manifest };
        saved = hold_against(&mut policy, plan, &manifest, (&merged, console), &session);
        info.history = Some(manifest);
    }
    facts.origin = Some(origin);
    facts.root = project.map_or_else(String::new, |root| root.to_string_lossy().into_owned());
    saved = saved.and(session.write_info(&info).map_err(|why| ExpectedError::failed(&why)));
    saved = saved.and(facts.save(&session));
    let Prepared { names, symbol_files, .. } = prepared;
    let mut symbols = Symbols::new(symbol_files).with_kept(kept);
    let mut report = judge::judge(&facts, records, &session.frames(), &policy, &mut symbols, &names);
    saved = saved.and(symbols.remember(session.folder()));
    tell_missing_symbols(&symbols, console);
    let shard = shard(info.history.as_ref().is_some_and(|manifest| manifest.dirty));
    if let Some(shard) = &shard {
        report.shards = vec![shard.entry(Some(&report))];
        // A shard has no other result than its session.
        std::mem::replace(&mut saved, Ok(()))?;
        this_shard::keep(&session, shard)?;
    }
    if let Err(why) = session.pack() {
        console.warning(&format!("the session takes more room than it needs: failed to {}", chain(&why)));
    }
    let Facts { command_status, partial, .. } = facts;
    let manifest = info.history;
    Ok(Judged { report, command_status, session, partial, manifest, shard, unsaved: saved.err() })
}

/// The folder of a new run.
fn create_session(plan: &Plan, info: &SessionInfo) -> Result<Session, ExpectedError> {
    let root =
        std::path::absolute(&plan.output_dir).map_err(ExpectedError::file("find", &plan.output_dir))?;
    Session::create_shard(&root, info, plan.shard.as_ref().map(|planned| planned.number))
        .map_err(|why| ExpectedError::failed_with_hint(&why, "name another folder with --output-dir"))
}

fn runtime() -> Result<Runtime, ExpectedError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(ExpectedError::file("start", "the runtime".as_ref()))
}

/// Compares with the leaks that the history knows from before this run; the result is kept in the session.
fn hold_against(
    policy: &mut GatePolicy,
    plan: &Plan,
    manifest: &Manifest,
    (merged, console): (&[String], &Console),
    session: &Session,
) -> Result<(), ExpectedError> {
    if !base::is_wanted(&plan.history, manifest, &policy.waivers) {
        return Ok(());
    }
    let wanted = base::wanted(manifest, merged);
    let found = console
        .tell_if_slow(base::SLOW, || base::find(&plan.history, &plan.project, &wanted, &plan.output_dir));
    let kept = base::keep(&session.folder().join(base::FILE), &found);
    base::hold_against(policy, found, &plan.history, manifest.is_review());
    kept
}

async fn record(
    plan: &Plan,
    console: &Console,
    session: &Session,
    (prepared, kept): (&Prepared, &Arc<KeptFiles>),
    this_shard: Option<&ThisShard>,
) -> Result<(Facts, Records), Stopped> {
    let began = Instant::now();
    let mut context = Context {
        plan,
        session,
        frames: session.frames(),
        console,
        agent: &prepared.agent,
        jars: prepared.jars.as_deref(),
        interrupts: &mut Interrupts::listen()?,
        interval: plan.interval,
        names: Arc::clone(&prepared.names),
        kept: Arc::clone(kept),
        this_shard,
    };
    let started = jiff::Zoned::now().strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
    let mut facts = Facts::new(&plan.project, &session.name(), started);
    facts.partial = plan.partial;
    let mut suites: Vec<Screened> = Vec::new();
    for (planned, program) in plan.suites.iter().zip(&prepared.programs) {
        suites.extend(runners::screen(&mut context, planned, program, &mut facts).await?);
    }
    // A configured suite always runs as its command says: none of its tests is left out.
    let wrapped = plan.suites.iter().find(|suite| suite.name.is_none());
    facts.partial |= wrapped.is_some_and(|wrapped| suites.iter().any(|suite| suite.is_filtered(wrapped)));
    let mut finished = runners::confirm(&mut context, &mut suites).await?;
    finished.extend(hunt::hunt(&mut context, &mut suites).await?);
    let mut instrumented = Vec::new();
    for planned in &plan.instrumented {
        instrumented.extend(runners::instrument(&mut context, planned, &mut facts).await?);
    }
    finished.extend(hunt::hunt(&mut context, &mut instrumented).await?);
    for Screened { suite, .. } in suites.into_iter().chain(instrumented) {
        finished.extend(suite.processes);
        facts.suites.push(suite.facts);
    }
    facts.may_be_empty = plan.may_be_empty || this_shard.is_some_and(ThisShard::may_be_empty);
    facts.duration_s = began.elapsed().as_secs_f64();
    let records = finished.into_iter().map(|process| (process.stream(), process.record)).collect();
    Ok((facts, records))
}

/// Warns about modules without symbols: memgate finds leaks without symbols too, but the user can supply them to get
/// lines.
pub(crate) fn tell_missing_symbols(symbols: &Symbols, console: &Console) {
    missing_symbols(symbols.failures()).iter().for_each(|warning| console.warning(warning));
}

/// A plugin that a test copies to a new name each time has hundreds of names.
fn missing_symbols<'a>(mut failures: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let first = failures.by_ref().take(MOST_WITHOUT_SYMBOLS);
    let mut warnings: Vec<_> = first.map(|(module, why)| format!("no symbols for {module}: {why}")).collect();
    let more = failures.count();
    if more > 0 {
        warnings.push(format!("more files without symbols: {more}"));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_with_hundreds_of_names_does_not_fill_the_terminal() {
        let names: Vec<String> = (0..250).map(|i| format!("/tmp/plugin-{i}")).collect();
        let told =
            |names: &[String]| missing_symbols(names.iter().map(|name| (name.as_str(), "no such file")));
        let warnings = told(&names);
        assert_eq!(
            (warnings.len(), warnings[0].as_str()),
            (11, "no symbols for /tmp/plugin-0: no such file")
        );
        assert_eq!(warnings[10], "more files without symbols: 240");
        assert_eq!(told(&names[..10]).len(), 10);
    }
}
