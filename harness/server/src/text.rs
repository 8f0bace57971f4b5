//! The history as text, for `memgate history`: tables that fit a terminal, worst first.

use memgate_model::{format_value, short_commit};

use crate::pages::words;
use crate::store::{Account, SignedRule, TokenRow};
use crate::view::{EventRow, LeakRow, LeakView, Leaks, Runs, Selection, TestView};

/// Longest culprit, in characters.
const WHO: usize = 60;

/// `memgate history leaks`.
#[must_use]
pub fn leaks(view: &Leaks) -> String {
    let mut text = heading(&view.selection);
    if view.leaks.is_empty() {
        text.push_str("no leaks\n");
        return text;
    }
    let rows = view.leaks.iter().map(|leak| {
        vec![
            state(leak),
            leak.id.clone(),
            cut(&leak.culprit),
            words::amount(leak.bytes, &leak.title),
            since(leak),
            rate(leak),
            leak.owners.join(" "),
        ]
    });
    text.push_str(&table(&["state", "leak", "who", "per run", "since", "seen", "owner"], rows));
    if (view.leaks.len() as u64) < view.of {
        text += &format!("… {} of {}\n", view.leaks.len(), view.of);
    }
    text
}

/// `memgate history leak ID`.
#[must_use]
pub fn leak(view: &LeakView) -> String {
    let LeakView { leak, .. } = view;
    let mut text = format!("{}  {}  {}\n{}", leak.id, leak.title, leak.culprit, heading(&view.selection));
    if !leak.place.is_empty() {
        text += &format!("at {}\n", leak.place);
    }
    let rows = view.lines.iter().map(|line| {
        vec![
            line.branch.clone(),
            line.environment.clone(),
            state(&line.leak),
            since(&line.leak),
            short_commit(&line.leak.last_sha).to_owned(),
            rate(&line.leak),
            strip(&line.leak.window),
        ]
    });
    text.push('\n');
    if view.lines.is_empty() {
        text.push_str(
            "no line has it as a leak: seen as a one-time cost, in reviews, or in uncommitted changes that \
             are gone\n",
        );
    } else {
        text += &table(&["line", "environment", "state", "since", "last", "seen", "last commits"], rows);
    }
    let held_by = memgate_reports::holder(&view.known());
    if !held_by.is_empty() {
        text += &format!("\n{held_by}\n");
    }
    if !view.frames.is_empty() {
        text.push_str("\nallocated at\n");
    }
    for line in memgate_reports::stack(&view.frames) {
        text += &format!("  {line}\n");
    }
    if let Some(came) =
        view.came.as_ref().filter(|came| !came.clean_sha.is_empty() && !came.first_sha.is_empty())
    {
        text += &format!(
            "\nit came between {} and {}: {}\n",
            words::short(&came.clean_sha),
            words::short(&came.first_sha),
            words::unmeasured(came)
        );
    }
    text.push_str(&events(&view.events));
    text
}

/// `memgate history test NAME`.
#[must_use]
pub fn test(view: &TestView) -> String {
    let mut text =
        format!("{}::{}  {}\n{}", view.suite, view.name, view.metric.name(), heading(&view.selection));
    let rows = view.points.iter().rev().map(|point| {
        let value = |value: Option<f64>| value.map(|value| format_value(view.metric, value));
        let interval = match (value(point.low), value(point.high)) {
            (Some(low), Some(high)) => format!("{low} … {high}"),
            _ => String::new(),
        };
        vec![
            words::measured(&point.sha, point.dirty),
            words::when(point.started_us),
            value(point.value).unwrap_or_else(|| {
                if point.verdict.is_none() { "did not run" } else { "not judged" }.to_owned()
            }),
            interval,
            format!("{}", point.run),
        ]
    });
    text.push_str(&table(&["commit", "when (UTC)", "value", "interval", "run"], rows));
    if view.rounded {
        text.push_str("values are kept in steps of 2 %\n");
    }
    text.push_str(&events(&view.events));
    text
}

/// `memgate history runs`.
#[must_use]
pub fn runs(view: &Runs) -> String {
    let mut text = heading(&view.selection);
    let rows = view.runs.iter().map(|run| {
        vec![
            format!("{}", run.run),
            format!("{:?}", run.verdict).to_lowercase(),
            words::measured(&run.sha, run.dirty),
            run.branch.clone(),
            words::when(run.started_us),
            run.tests.to_string(),
            run.failed.to_string(),
            run.leaks.to_string(),
            words::changes(run),
            run.environment.clone(),
        ]
    });
    let names =
        ["run", "verdict", "commit", "branch", "when (UTC)", "tests", "failed", "leaks", "", "environment"];
    text.push_str(&table(&names, rows));
    if let Some(before) = view.before {
        text.push_str(&format!("\nOlder ones: memgate history runs --before {before}\n"));
    }
    for (what, option, all) in [
        ("branches", "branch", &view.selection.branches),
        ("environments", "environment", &view.selection.environments),
    ] {
        if all.len() > 1 {
            text.push_str(&format!("\nOther {what} (--{option}): {}\n", all.join(", ")));
        }
    }
    text
}

/// A rule for signed tokens, in one line.
#[must_use]
pub fn rule(rule: &SignedRule) -> String {
    let may = match rule.branches.as_slice() {
        [] => "adds reviews only".to_owned(),
        branches => format!("may write the lines {}", branches.join(", ")),
    };
    format!(
        "{} {} of {}, for {}: adds runs to {}, {may}",
        rule.provider.name(),
        rule.subject,
        rule.issuer,
        rule.audience,
        rule.project
    )
}

/// `memgate serve token list`, at the given time.
#[must_use]
pub fn tokens(tokens: &[TokenRow], now_us: i64) -> String {
    let rows = tokens.iter().map(|token| {
        let state = match token.revoked_us {
            Some(revoked_us) => format!("revoked {}", words::when(revoked_us)),
            None if token.expires_us <= now_us => "expired".to_owned(),
            None => "valid".to_owned(),
        };
        let branches =
            if token.branches.is_empty() { "reviews only".to_owned() } else { token.branches.join(", ") };
        let used = token.used_us.map_or_else(|| "never".to_owned(), words::when);
        vec![token.id.clone(), token.project.clone(), branches, words::when(token.expires_us), used, state]
    });
    table(&["token", "project", "branches", "ends", "last use", "state"], rows)
}

/// The projects that an account may read.
#[must_use]
pub fn may_read(projects: &[String]) -> String {
    match projects {
        [] => "may read no members-only project: no project was named".to_owned(),
        projects => format!("may read {}", projects.join(", ")),
    }
}

/// `memgate serve user list`.
#[must_use]
pub fn accounts(accounts: &[Account]) -> String {
    let rows = accounts.iter().map(|account| {
        let used = account.used_us.map_or_else(|| "never".to_owned(), words::when);
        vec![account.name.clone(), account.projects.join(", "), words::when(account.created_us), used]
    });
    table(&["account", "projects", "made", "signed in"], rows)
}

/// `tiles · main · x86_64`. Empty parts are left out, such as the branch outside of git.
pub(crate) fn heading(selection: &Selection) -> String {
    let parts = [&selection.project, &selection.branch, &selection.environment];
    let parts: Vec<&str> = parts.into_iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    format!("{}\n", parts.join(" · "))
}

fn events(events: &[EventRow]) -> String {
    let rows = events.iter().map(|event| {
        vec![
            words::when(event.at_us),
            event.kind.clone(),
            event.branch.clone(),
            event.text.clone(),
            words::short(&event.first_sha).to_owned(),
        ]
    });
    if events.is_empty() {
        String::new()
    } else {
        format!("\n{}", table(&["when (UTC)", "event", "line", "", "commit"], rows))
    }
}

fn state(leak: &LeakRow) -> String {
    let state = leak.state.name();
    let marks = [(leak.waived, "waived"), (leak.flaky, "flaky")];
    let marks: Vec<&str> = marks.into_iter().filter_map(|(is, mark)| is.then_some(mark)).collect();
    if marks.is_empty() { state.to_owned() } else { format!("{state} ({})", marks.join(", ")) }
}

fn since(leak: &LeakRow) -> String {
    if leak.first_sha.is_empty() {
        words::when(leak.since_us)
    } else {
        words::short(&leak.first_sha).to_owned()
    }
}

fn rate(leak: &LeakRow) -> String {
    format!("{} of {}", leak.window.iter().filter(|seen| **seen).count(), leak.window.len())
}

/// The last commits: `#` saw the leak, `.` did not.
fn strip(window: &[bool]) -> String {
    let last = window.len().saturating_sub(20);
    window.iter().skip(last).map(|seen| if *seen { '#' } else { '.' }).collect()
}

fn cut(text: &str) -> String {
    if text.chars().count() <= WHO {
        return text.to_owned();
    }
    text.chars().take(WHO - 1).chain(['…']).collect()
}

/// Each column is as wide as its widest value. Columns without values are left out.
fn table(names: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let rows: Vec<Vec<String>> = rows.collect();
    let cell = |row: &Vec<String>, at: usize| row.get(at).cloned().unwrap_or_default();
    let widths: Vec<usize> = (0..names.len())
        .map(|at| rows.iter().map(|row| cell(row, at).chars().count()).max().unwrap_or_default())
        .collect();
    let mut text = String::new();
    let head = names.iter().map(|name| (*name).to_owned()).collect();
    for row in std::iter::once(&head).chain(&rows) {
        let mut line = String::new();
        for (at, (width, name)) in widths.iter().zip(names).enumerate().filter(|(_, (width, _))| **width > 0)
        {
            let width = (*width).max(name.chars().count());
            line += &format!("{:width$}  ", cell(row, at));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use memgate_model::{Frame, HolderStep, LeakKind, Metric, Verdict};

    use super::*;
    use crate::view::{Came, LeakOnLine, Point, State};

    const SHA: &str = "3f0c1b2a9d8e7f60514233241506978877665544";

    fn row(state: State) -> LeakRow {
        LeakRow {
            id: "n1-5f1c09a2b47d1e03".into(),
            kind: LeakKind::Native,
            title: "12 × 4096 B".into(),
            culprit: "MapCache::insert(Tile const&)".into(),
            place: "src/map_cache.cpp:88".into(),
            owners: vec!["@maps".into()],
            state,
            waived: false,
            flaky: true,
            bytes: 49_152.0,
            count: 12.0,
            rate: 0.5,
            window: vec![false, true],
            first_sha: SHA.into(),
            last_sha: SHA.into(),
            since_us: 1_700_000_000_000_000,
            tests: vec!["engine::MapCache.scroll".into()],
        }
    }

    fn selection() -> Selection {
        Selection {
            project: "tiles".into(),
            branch: "main".into(),
            environment: "x86_64".into(),
            ..Selection::default()
        }
    }

    #[test]
    fn leaks_are_a_table_without_empty_columns() {
        let nameless = LeakRow { owners: Vec::new(), flaky: false, ..row(State::New) };
        let view = Leaks { selection: selection(), leaks: vec![nameless], of: 3, ..Leaks::default() };
        insta::assert_snapshot!(leaks(&view));
        assert!(leaks(&Leaks { selection: selection(), ..Leaks::default() }).ends_with("no leaks\n"));
    }

    #[test]
    fn a_leak_has_its_lines_holder_stack_and_what_happened() {
        let frame = Frame {
            function: Some("MapCache::insert(Tile const&)".into()),
            file: Some("src/map_cache.cpp".into()),
            line: Some(88),
            module: "engine_tests".into(),
            offset: 0x4711,
            inlined: false,
        };
        let nameless = Frame { function: None, file: None, line: None, ..frame.clone() };
        let java = Frame {
            function: Some("NativeMethodAccessorImpl.invoke0".into()),
            file: Some("NativeMethodAccessorImpl.java".into()),
            ..Frame::default()
        };
        let holder = HolderStep {
            kind: "static".into(),
            owner: "Registry".into(),
            name: "cache".into(),
            class: "HashMap".into(),
        };
        let event = EventRow {
            at_us: 1_700_000_000_000_000,
            kind: "new".into(),
            branch: "main".into(),
            leak: "n1-5f1c09a2b47d1e03".into(),
            text: "MapCache::insert".into(),
            first_sha: SHA.into(),
            ..EventRow::default()
        };
        let view = LeakView {
            selection: selection(),
            leak: LeakRow { kind: LeakKind::Java, ..row(State::Known) },
            lines: vec![LeakOnLine {
                branch: "main".into(),
                environment: "x86_64".into(),
                leak: row(State::Known),
            }],
            frames: vec![frame, nameless, java],
            holder: vec![holder],
            hold: None,
            sightings: Vec::new(),
            events: vec![event],
            came: Some(Came {
                branch: "main".into(),
                clean_sha: "cccccccccc".into(),
                first_sha: SHA.into(),
                unmeasured: Some(vec!["aaaaaaaaaa".into(), "bbbbbbbbbb".into()]),
            }),
        };
        insta::assert_snapshot!(leak(&view));
    }

    #[test]
    fn a_test_that_was_not_judged_is_not_zero() {
        let point = |value: Option<f64>, verdict| Point {
            run: 7,
            sha: SHA.into(),
            dirty: value.is_none(),
            started_us: 1_700_000_000_000_000,
            value,
            low: value,
            high: value,
            verdict,
            ..Point::default()
        };
        let view = TestView {
            selection: selection(),
            suite: "engine".into(),
            name: "MapCache.scroll".into(),
            metric: Metric::NativeLiveBytes,
            metrics: vec![Metric::NativeLiveBytes],
            rounded: false,
            points: vec![
                point(Some(48.0), Some(Verdict::Fail)),
                point(None, Some(Verdict::NotJudged)),
                point(None, None),
            ],
            leaks: Vec::new(),
            more_leaks: false,
            events: Vec::new(),
        };
        insta::assert_snapshot!(test(&view));
    }
}
