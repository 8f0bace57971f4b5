//! `memgate bisect` and `memgate run --bisect`: find the commit that brought a leak.
//!
//! Data flow: the history knows the last commit without the leak and the first one with it → [`recipe`]: git commands
//! that bisect the commits between them. Each step is a run of the leak's test ([`step`]): its report → [`Seen`] → an
//! exit code for `git bisect run`. A step sends nothing and adds nothing to the history.

use memgate_config::Reports;
use memgate_model::{LeakKind, RunReport, TestReport, Verdict, format_number_of};
use memgate_reports::quoted;
use memgate_server::store::Choice;
use memgate_server::view::{LeakView, Point, State, TestView};

use super::history::Asked;
use super::{run, settings};
use crate::cli::{BisectArgs, RunArgs, Step};
use crate::deliver;
use crate::exit::{self, ExpectedError};
use crate::history;
use crate::output::Console;

/// `git bisect run` skips this commit.
const SKIP: u8 = 125;
/// Accepted probability that the bisection of an intermittent leak goes wrong: one in a hundred.
const RISK: f64 = 0.01;
/// Maximum number of runs per step: a rarer leak is not worth more.
const MOST_RUNS: u32 = 100;
/// Assumed number of commits, if it is unknown.
const MOST_BETWEEN: usize = 1000;

pub(super) fn bisect(request: &BisectArgs, console: &Console) -> Result<u8, ExpectedError> {
    let settings = settings::load(request.config.config.as_deref(), console)?;
    let (view, test) = history::block_on(async {
        let asked = Asked::open(&request.of, console).await?;
        let view = asked.leak(&request.leak).await?;
        let test = asked.test_without_a_clean_commit(&view).await?;
        Ok::<_, ExpectedError>((view, test))
    })??;
    if let Some(born) = test.as_ref().and_then(|test| came_with_its_test(&view, test)) {
        console.text(&born)?;
        return Ok(exit::PASS);
    }
    let suites: Vec<&str> = settings.config.suites.iter().map(|suite| suite.name.as_str()).collect();
    console.text(&recipe(&Came::of(&view)?, &suites)?)?;
    Ok(exit::PASS)
}

impl Asked {
    /// The leak's test over the commits, if no commit was measured without the leak.
    async fn test_without_a_clean_commit(&self, view: &LeakView) -> Result<Option<TestView>, ExpectedError> {
        let without = view.came.as_ref().filter(|came| came.clean_sha.is_empty());
        let test = without.and_then(|_| view.leak.tests.first()).and_then(|test| test.split_once("::"));
        let Some((suite, name)) = test else { return Ok(None) };
        let choice = Choice {
            branch: view.came.as_ref().map(|came| came.branch.clone()).unwrap_or_default(),
            environment: view.selection.environment.clone(),
        };
        let found = self.store.test(&self.project, &choice, suite, name, None).await;
        found.map_err(|why| history::store_error(&why))
    }
}

/// The answer for a leak that came with its test.
fn came_with_its_test(view: &LeakView, test: &TestView) -> Option<String> {
    let first = &view.came.as_ref()?.first_sha;
    let safe = |text: &str| text.replace(char::is_control, " ");
    let (first, before) = (safe(first), safe(before_its_test(first, &test.points)?));
    Some(format!(
        "# {} came with its test, as far as the history knows: {}::{} first ran at {first}, and had it.\n\
         # At {before}, measured before, the test did not run: if it is there, run it there and ask again.\n",
        view.leak.id,
        safe(&test.suite),
        safe(&test.name),
    ))
}

/// The commit that was measured before the one on which a test first ran, if that is `first`. Runs with uncommitted
/// changes are of no commit.
fn before_its_test<'p>(first: &str, points: &'p [Point]) -> Option<&'p str> {
    let of_commits: Vec<&Point> =
        points.iter().filter(|point| !point.dirty && !point.sha.is_empty()).collect();
    let first_run = of_commits.iter().position(|point| point.verdict.is_some())?;
    let (before, since) = of_commits.split_at(first_run);
    let is_first = since.first().is_some_and(|point| point.sha == first);
    let shas = before.iter().rev().map(|point| point.sha.as_str());
    shas.filter(|_| is_first).find(|sha| *sha != first)
}

/// The history's data about when a leak appeared.
struct Came<'v> {
    leak: &'v str,
    /// The last commit that was measured without it.
    clean: &'v str,
    /// The first one with it.
    first: &'v str,
    /// Number of commits between them; `None`: unknown.
    between: Option<usize>,
    /// A test that has it, as `suite::test`.
    test: &'v str,
    /// Share of judged commits that saw it.
    rate: f64,
    /// Whether runs of one commit disagreed about it.
    disagreed: bool,
    /// Whether it was fixed before, and came back there.
    regressed: bool,
    /// The branch of these commits, if the chosen line does not have the leak.
    elsewhere: Option<&'v str>,
}

impl<'v> Came<'v> {
    fn of(view: &'v LeakView) -> Result<Self, ExpectedError> {
        let leak = &view.leak;
        let missing = |what: String, hint: &str| ExpectedError::Missing { what, hint: hint.to_owned() };
        let came = view.came.as_ref().filter(|came| !came.clean_sha.is_empty()).ok_or_else(|| {
            missing(
                format!(
                    "the history knows no commit before the first with {} that was measured without it",
                    leak.id
                ),
                "measure an older commit: check it out, `memgate run`, and ask again",
            )
        })?;
        if came.first_sha.is_empty() {
            return Err(missing(
                format!("{} was seen only with changes that are in no commit", leak.id),
                "commit them, `memgate run`, and ask again",
            ));
        }
        let test = leak.tests.first();
        Ok(Self {
            leak: &leak.id,
            clean: &came.clean_sha,
            first: &came.first_sha,
            between: came.unmeasured.as_ref().map(Vec::len),
            test: test
                .ok_or_else(|| missing(format!("the history knows no test that has {}", leak.id), ""))?,
            rate: leak.rate,
            disagreed: leak.flaky && leak.rate >= 1.0,
            regressed: view.events.iter().any(|event| {
                event.kind == State::Regressed.name()
                    && event.branch == came.branch
                    && event.first_sha == came.first_sha
            }),
            elsewhere: Some(came.branch.as_str())
                .filter(|branch| !branch.is_empty() && *branch != view.selection.branch),
        })
    }
}

/// The commands to type, with comments about the commits.
fn recipe(came: &Came<'_>, suites: &[&str]) -> Result<String, ExpectedError> {
    let Came { leak, clean, first, between, test, rate, disagreed, regressed, elsewhere } = came;
    // The uploader of a run chooses the commit's text: if it is no git hash, it must not be typed.
    if let Some(odd) =
        [clean, first].into_iter().find(|sha| !sha.bytes().all(|byte| byte.is_ascii_hexdigit()))
    {
        return Err(ExpectedError::Missing {
            what: format!("the history says that {leak} came at `{odd}`, which is no commit of git"),
            hint: String::new(),
        });
    }
    let on = elsewhere.map_or_else(String::new, |branch| {
        format!("# These are commits of the branch {}.\n", branch.replace(char::is_control, " "))
    });
    let times = runs_of_a_step(if *disagreed { rate.min(0.5) } else { *rate }, *between);
    if *between == Some(0) && times == 1 {
        return Ok(format!(
            "{on}# {leak} came with {first}: the commit before it, {clean}, was measured without it\n"
        ));
    }
    let (run, mut comment) = command_of_a_step(leak, test, times, suites);
    let seen = match disagreed {
        true => "Not all runs of a commit saw it".to_owned(),
        false => format!("{:.0} % of the measured commits saw it", 100.0 * rate),
    };
    if *between == Some(0) {
        let came = if *regressed { "came back" } else { "was first seen" };
        return Ok(format!(
            "{on}# {leak} {came} at {first}. The commit before it, {clean}, was measured without it.\n\
             # {seen}, so one run does not prove that {clean} is free of it: look again, in up to {times} runs.\n\
             # BUILD is what builds the tests.\n{comment}\
             git checkout --detach {clean} && {{ sh -c {}; echo \"exit code $?\"; git checkout -; }}\n\
             # Exit code 0: it probably came with {first}. 1: it came with {clean}, or before. {SKIP}: {clean} was not measured.\n",
            quoted(&format!("BUILD || exit {SKIP}; {run}"))
        ));
    }
    if times > 1 {
        let all = between.map_or_else(String::new, |between| {
            let steps = steps(between);
            let runs = format_number_of(times * steps, "run");
            format!("# That is {runs} at most, in {}.\n", format_number_of(steps, "step"))
        });
        comment +=
            &format!("# {seen}: up to {times} runs a step, so that one bisection of 100 goes wrong.\n{all}");
    }
    let between = match between {
        Some(1) => "1 commit was not measured".to_owned(),
        Some(between) => format!("{between} commits were not measured"),
        None => "it is not known which commits are in between".to_owned(),
    };
    Ok(format!(
        "{on}# {leak} came between {clean} and {first}: {between}.\n\
         # BUILD is what builds the tests; a commit that cannot be built is passed over.\n{comment}\
         git bisect start --first-parent {first} {clean}\n\
         git bisect run sh -c {}\n\
         git bisect reset\n",
        quoted(&format!("BUILD || exit {SKIP}; {run}"))
    ))
}

/// The run of a step, and what its placeholder means.
fn command_of_a_step(leak: &str, test: &str, times: u32, suites: &[&str]) -> (String, String) {
    let (suite, test) = test.split_once("::").unwrap_or(("", test));
    let bisect = if times > 1 { format!("--bisect={times}") } else { "--bisect".to_owned() };
    let run = format!("memgate run {bisect} --leak {} --filter {}", quoted(leak), quoted(&filter(test)));
    // The names of a suite's several executables follow its own name.
    let configured = suite.split('/').next().unwrap_or_default();
    if suites.contains(&configured) {
        return (format!("{run} --suite {}", quoted(configured)), String::new());
    }
    let suite = suite.replace(char::is_control, " ");
    (format!("{run} -- COMMAND"), format!("# COMMAND is what runs the tests of {suite}.\n"))
}

/// The filter for a test; for the fixture of a suite, or a test class, for all its tests. The types of parameters
/// follow a method's name without a blank: other parentheses belong to a name.
fn filter(test: &str) -> String {
    let is_class = || test.rsplit('.').next().is_some_and(|last| last.starts_with(char::is_uppercase));
    match test.strip_suffix("()").and_then(|setup| setup.rsplit_once('.')) {
        Some((of, _)) => format!("{of}.*"),
        None if test.matches('.').count() > 1 && is_class() => format!("{test}.*"),
        None => {
            let method = test.split('[').next().unwrap_or(test);
            // `a.BTest.[2]/loads` of a parameterised class.
            if let Some(class) = method.strip_suffix('.') {
                return format!("{class}.*");
            }
            let types = method.find('(').filter(|at| !method[..*at].ends_with(' '));
            method[..types.unwrap_or(method.len())].to_owned()
        }
    }
}

/// Number of steps of `git bisect` if this many commits are between the good and the bad one.
const fn steps(between: usize) -> u32 {
    usize::BITS - between.leading_zeros()
}

/// Number of runs per step, chosen so that all steps together miss the leak with a probability of at most [`RISK`].
fn runs_of_a_step(rate: f64, between: Option<usize>) -> u32 {
    if !(rate > 0.0 && rate < 1.0) {
        return 1;
    }
    let steps = steps(between.unwrap_or(MOST_BETWEEN)).max(1);
    let runs = ((RISK / f64::from(steps)).ln() / (1.0 - rate).ln()).ceil();
    (1..=MOST_RUNS).find(|most| f64::from(*most) >= runs).unwrap_or(MOST_RUNS)
}

/// The result of one run for a leak.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Yes,
    No,
    /// Unknown, and why.
    Unknown(String),
}

/// One step of `git bisect run`: 0 without the leak, 1 with it, 125 if unknown. A code above 127 (after Ctrl-C) ends
/// the bisection.
pub(super) fn step(request: &RunArgs, step: Step<'_>, console: &Console) -> Result<u8, ExpectedError> {
    let mut seen = Seen::No;
    for _ in 0..step.times {
        match once(request, step.leak, console) {
            Ok(Seen::No) => {}
            Ok(Seen::Yes) => {
                seen = Seen::Yes;
                break;
            }
            Ok(unknown) => seen = unknown,
            Err(ended @ ExpectedError::Interrupted(_)) => return Err(ended),
            // A commit that cannot be run is not a bad commit.
            Err(why) => {
                console.error(&why);
                seen = Seen::Unknown("it could not be run".to_owned());
            }
        }
    }
    let leak = step.leak;
    let (text, code) = match seen {
        Seen::Yes => (format!("{leak} is here"), exit::FAIL),
        Seen::No => (format!("{leak} is not here"), exit::PASS),
        Seen::Unknown(why) => (format!("nobody can tell whether {leak} is here: {why}"), SKIP),
    };
    console.line(&format!("bisect: {text} (exit code {code})"));
    Ok(code)
}

fn once(request: &RunArgs, leak: &str, console: &Console) -> Result<Seen, ExpectedError> {
    let mut settings = settings::load(request.config.config.as_deref(), console)?;
    // The question is whether the leak is there, not whether this commit allows it.
    if let Some(kind) = LeakKind::of_id(leak) {
        settings.config.thresholds.forbid(kind);
    }
    settings.baseline.iter_mut().flat_map(|it| it.suites.values_mut()).for_each(|it| it.windows.clear());
    let judged = run::measured(&settings, request, console)?.judged;
    judged.unsaved.map_or(Ok(()), Err)?;
    // Sends no mails: one for each step would be too many.
    deliver::files::write_all(&judged.report, Some(judged.session.folder()), &Reports::default(), console)?;
    Ok(seen(&judged.report, leak))
}

fn seen(report: &RunReport, leak: &str) -> Seen {
    let tests: Vec<_> = report.suites.iter().flat_map(|suite| &suite.tests).collect();
    if tests.iter().any(|test| test.leaks.iter().any(|found| found.id == leak)) {
        return Seen::Yes;
    }
    let unknown = |what: &str, why: &str| Seen::Unknown(format!("{what}: {why}"));
    if let Some(problem) = report.errors.first() {
        return unknown(&problem.r#where, &problem.what);
    }
    let is_clean = |verdict| matches!(verdict, Verdict::Pass | Verdict::Warn | Verdict::Fail);
    for suite in &report.suites {
        let open = |test: &&TestReport| !is_clean(test.verdict) || test.may_have_other_leaks();
        if let Some(test) = suite.tests.iter().find(open) {
            return unknown(&test.id, &test.reason);
        }
        if !is_clean(suite.verdict) {
            return unknown(&suite.name, &suite.reason);
        }
    }
    if tests.is_empty() { Seen::Unknown("no test ran".to_owned()) } else { Seen::No }
}

#[cfg(test)]
mod tests {
    use memgate_model::{Leak, Runner, SuiteReport};

    use super::*;

    const CAME: Came<'_> = Came {
        leak: "n1-5f1c09a2b47d1e03",
        clean: "1111",
        first: "9999",
        between: Some(7),
        test: "engine/tiles::MapCache.scroll",
        rate: 1.0,
        disagreed: false,
        regressed: false,
        elsewhere: None,
    };

    #[test]
    fn the_recipe_names_the_commits_and_the_run_of_a_step() {
        let text = recipe(&CAME, &["engine"]).unwrap();
        let run = "memgate run --bisect --leak n1-5f1c09a2b47d1e03 --filter MapCache.scroll --suite engine";
        assert!(text.contains(&format!("git bisect run sh -c 'BUILD || exit 125; {run}'\n")), "{text}");
        assert!(text.contains("git bisect start --first-parent 9999 1111\n"), "{text}");
        assert!(text.contains("between 1111 and 9999: 7 commits were not measured"), "{text}");
        let wrapped = recipe(&CAME, &[]).unwrap();
        assert!(wrapped.contains("--filter MapCache.scroll -- COMMAND'"), "{wrapped}");
        let next = recipe(&Came { elsewhere: Some("a\nrm -r ."), ..CAME }, &[]).unwrap();
        assert!(next.starts_with("# These are commits of the branch a rm -r ..\n# n1-"), "{next}");
        let unknown = recipe(&Came { between: None, ..CAME }, &["engine"]).unwrap();
        assert!(unknown.contains("9999: it is not known which commits are in between.\n"), "{unknown}");
        assert!(unknown.contains("git bisect start --first-parent 9999 1111\n"), "{unknown}");
        let next = recipe(&Came { between: Some(0), ..CAME }, &[]).unwrap();
        assert!(next.starts_with("# n1-5f1c09a2b47d1e03 came with 9999:") && !next.contains("git"), "{next}");
    }

    #[test]
    fn a_leak_that_comes_and_goes_is_looked_for_several_times() {
        assert_eq!(runs_of_a_step(1.0, Some(100)), 1);
        // Three steps for seven commits: 0.5 ^ 9 < 0.01 / 3 < 0.5 ^ 8.
        assert_eq!(runs_of_a_step(0.5, Some(7)), 9);
        assert_eq!(runs_of_a_step(0.0001, Some(7)), MOST_RUNS);
        let text = recipe(&Came { rate: 0.5, ..CAME }, &["engine"]).unwrap();
        assert!(text.contains("run --bisect=9 --leak") && text.contains("# 50 % of the measured"), "{text}");
        assert!(text.contains("\n# That is 27 runs at most, in 3 steps.\n"), "{text}");
        let text = recipe(&Came { disagreed: true, between: None, ..CAME }, &["engine"]).unwrap();
        assert!(!text.contains("at most"), "{text}");
        let text = recipe(&Came { disagreed: true, ..CAME }, &["engine"]).unwrap();
        assert!(
            text.contains("run --bisect=9 --leak") && text.contains("# Not all runs of a commit"),
            "{text}"
        );
    }

    /// Regression: a leak that comes and goes was blamed on the commit at which it was first seen.
    #[test]
    fn one_run_without_a_leak_that_comes_and_goes_blames_no_commit() {
        for came in [Came { rate: 0.5, ..CAME }, Came { disagreed: true, ..CAME }] {
            let text = recipe(&Came { between: Some(0), ..came }, &["engine"]).unwrap();
            assert!(text.contains("one run does not prove that 1111 is free of it"), "{text}");
            assert!(text.starts_with("# n1-5f1c09a2b47d1e03 was first seen at 9999. "), "{text}");
            let back = recipe(&Came { between: Some(0), regressed: true, ..came }, &["engine"]).unwrap();
            assert!(back.starts_with("# n1-5f1c09a2b47d1e03 came back at 9999. "), "{back}");
            // 0.5 ^ 7 < 0.01 < 0.5 ^ 6.
            let run =
                "memgate run --bisect=7 --leak n1-5f1c09a2b47d1e03 --filter MapCache.scroll --suite engine";
            let command = format!(
                "git checkout --detach 1111 && {{ sh -c 'BUILD || exit 125; {run}'; echo \"exit code $?\"; git checkout -; }}\n"
            );
            assert!(text.contains(&command), "{text}");
            assert!(!text.contains("came with 9999: the commit before"), "{text}");
        }
    }

    /// Before, one was told to measure older commits, which could not help.
    #[test]
    fn a_leak_that_came_with_its_test_was_not_there_before_the_test() {
        let point = |sha: &str, verdict| Point { sha: sha.to_owned(), verdict, ..Point::default() };
        let old = point("aa", None);
        // The test was written and run before it was committed.
        let dirty = Point { dirty: true, ..point("aa", Some(Verdict::Fail)) };
        let born = [old.clone(), dirty, point("bb", Some(Verdict::Fail)), point("cc", Some(Verdict::Fail))];
        assert_eq!(before_its_test("bb", &born), Some("aa"));
        assert_eq!(before_its_test("cc", &born), None, "the test ran without it");
        assert_eq!(before_its_test("bb", &born[2..]), None, "nothing was measured before");
        assert_eq!(before_its_test("bb", &[old, point("aa", Some(Verdict::Pass)), born[2].clone()]), None);
    }

    #[test]
    fn nothing_that_somebody_uploaded_is_a_command() {
        let text = recipe(&Came { test: "e\nrm -r .\n::A.$(b)", leak: "n1-$(c)", ..CAME }, &[]).unwrap();
        assert!(
            text.lines().all(|line| line.starts_with(['#']) || line.starts_with("git bisect ")),
            "{text}"
        );
        for sha in ["$(rm -r .)", "1111\nrm -r .", "-x"] {
            for came in [Came { clean: sha, ..CAME }, Came { first: sha, between: Some(0), ..CAME }] {
                assert!(recipe(&came, &[]).unwrap_err().to_string().contains("is no commit of git"));
            }
        }
    }

    #[test]
    fn the_filter_selects_the_test_or_the_tests_of_its_fixture_or_class() {
        for (test, expected) in [
            ("MapCache.scroll", "MapCache.scroll"),
            ("MapCache.SetUpTestSuite()", "MapCache.*"),
            ("com.example.CacheTest.fills[2]", "com.example.CacheTest.fills"),
            ("com.example.CacheTest", "com.example.CacheTest.*"),
            ("Sizes/Map.grows/3", "Sizes/Map.grows/3"),
            ("a.BTest.loads (twice)[1]", "a.BTest.loads (twice)"),
            ("a.BTest.[2]/loads", "a.BTest.*"),
        ] {
            assert_eq!(filter(test), expected);
        }
    }

    fn report(verdict: Verdict, leaks: &[&str]) -> RunReport {
        let leak = |id: &&str| Leak { id: (*id).to_owned(), ..Leak::default() };
        let test = TestReport {
            confirmed: true,
            leaks: leaks.iter().map(leak).collect(),
            ..TestReport::new("A.b", verdict)
        };
        let suite = SuiteReport::new("engine", Runner::Gtest, verdict, vec![test]);
        RunReport::new("tiles", "s", verdict, vec![suite])
    }

    #[test]
    fn a_run_that_tells_nothing_of_the_leak_is_no_clean_one() {
        let seen_in = |verdict: Verdict, leaks: &[&str]| seen(&report(verdict, leaks), "n1-1");
        assert_eq!(seen_in(Verdict::Fail, &["n1-2", "n1-1"]), Seen::Yes);
        assert_eq!(seen_in(Verdict::Warn, &["n1-1"]), Seen::Yes);
        assert_eq!(seen_in(Verdict::Fail, &["n1-2"]), Seen::No);
        assert_eq!(seen_in(Verdict::Pass, &[]), Seen::No);
        for verdict in [Verdict::Warn, Verdict::NotJudged, Verdict::Error] {
            assert!(matches!(seen_in(verdict, &[]), Seen::Unknown(_)), "{verdict:?}");
        }
        // Regression: one execution that shows another leak may have missed this one.
        let mut once = report(Verdict::Warn, &["n1-2"]);
        once.suites[0].tests[0].confirmed = false;
        assert!(matches!(seen(&once, "n1-1"), Seen::Unknown(_)));
        let nothing = RunReport { suites: Vec::new(), ..report(Verdict::Pass, &[]) };
        assert_eq!(seen(&nothing, "n1-1"), Seen::Unknown("no test ran".to_owned()));
    }
}
