//! A clock that is wrong for a time expires nothing, and hides no news.

use super::*;

/// Microseconds of a day.
const DAY: i64 = 24 * 3600 * 1_000_000;

/// Adds runs of main and of a review, then a run while the clock is years ahead, then a later run of that time.
async fn a_month_is_over_when_a_run_of_a_later_one_is_a_day_old(store: Store) {
    let now = jiff::Timestamp::now().as_microsecond();
    let ahead = now + 3 * 365 * DAY;
    let add = async |session: &str, branch: &str, at_us: i64| {
        let commit = Commit { sha: sha(session.len()), branch: branch.into(), ..Commit::default() };
        let manifest = manifest(session, Some(commit), Vec::new());
        let tests = [("Map.scroll", Some(vec!["n1-a"]))];
        store.add_at(&manifest, &report(session, session.len(), &tests), at_us).await.unwrap().run
    };
    let (of_line, of_review) = (add("s", "main", now).await, add("ss", "fix", now).await);
    let ended = async |run: i64| store.run("tiles", run, Order::Worst, "").await.unwrap().unwrap().expired;
    assert_eq!(store.retain_at(ahead).await.unwrap(), 0, "only the clock says so");
    add("sss", "main", ahead).await;
    assert_eq!(store.retain_at(ahead).await.unwrap(), 0, "a run of the same day says no more");
    assert!(!ended(of_line).await && !ended(of_review).await);
    assert_eq!(store.retain_at(now).await.unwrap(), 0, "it is right again");
    add("ssss", "main", ahead + DAY + 1_000_000).await;
    store.retain_at(ahead + DAY + 1_000_000).await.unwrap();
    assert!(ended(of_line).await && ended(of_review).await, "the clock was right");
    store.close().await;
}

/// Regression: ids of runs contain the time, so every later run seemed to be reported already.
async fn a_higher_level_is_told_after_the_clock_was_ahead(store: Store) {
    let now = jiff::Timestamp::now().as_microsecond();
    let ahead = now + 365 * DAY;
    // Runs are received one after the other.
    let add = async |number: usize, leaks: &[&'static str], at_us: i64| {
        let at_us = at_us + i64::try_from(number).unwrap() * 1_000;
        let commit = on_main(number);
        let ancestors = (0..number).rev().take(50).map(sha).collect();
        let session = format!("s{number}");
        let report = RunReport {
            started: jiff::Timestamp::from_microsecond(now).unwrap().to_string(),
            ..report(&session, number, &[("Map.scroll", Some(leaks.to_vec()))])
        };
        store.add_at(&manifest(&session, Some(commit), ancestors), &report, at_us).await.unwrap();
    };
    let told = async |at_us: i64| {
        let mut shifts = Vec::new();
        for notice in store.claim_notices("mail", at_us).await.unwrap() {
            store.told(&notice, at_us).await.unwrap();
            shifts.extend(notice.shifts.iter().map(|shifted| (shifted.before, shifted.after)));
        }
        shifts
    };
    for number in 0..12 {
        add(number, &["n1-a"], now).await;
    }
    assert_eq!(told(now).await, []);
    add(12, &["n1-a"], ahead).await;
    assert_eq!(told(ahead).await, []);
    let mut shifts = Vec::new();
    for number in 13..24 {
        add(number, &["n1-a", "n1-b"], now).await;
        shifts.extend(told(now).await);
    }
    assert_eq!(shifts, [(7.0, 14.0)]);
    store.close().await;
}

#[test]
fn a_clock_that_is_ahead_ends_nothing_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    block_on(async {
        a_month_is_over_when_a_run_of_a_later_one_is_a_day_old(sqlite(&folder, "h.db").await).await;
    });
}

#[test]
fn a_clock_that_is_ahead_hides_no_news() {
    let folder = tempfile::tempdir().unwrap();
    block_on(async {
        a_higher_level_is_told_after_the_clock_was_ahead(sqlite(&folder, "h.db").await).await;
    });
}

#[test]
fn a_clock_that_is_ahead_ends_nothing_in_postgresql() {
    let Some(postgres) = Postgres::start() else { return };
    block_on(async {
        a_month_is_over_when_a_run_of_a_later_one_is_a_day_old(postgres.database("clock").await).await;
        a_higher_level_is_told_after_the_clock_was_ahead(postgres.database("news").await).await;
    });
}
