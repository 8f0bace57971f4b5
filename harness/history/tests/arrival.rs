//! A line of commits with a leak. Its runs arrive in any order: tests chain, order and fold together.

use memgate_history::life::{Life, Observation, State, What, fold, key_of_run};
use memgate_history::place::{Chain, Run, order};

/// Data of a run: its commit, whether the tree had uncommitted changes, the leak was seen and its test judged, the
/// number of ancestors in its clone.
#[derive(Clone, Copy)]
struct Told {
    commit: i64,
    dirty: bool,
    seen: bool,
    judged: bool,
    depth: i64,
    started_us: i64,
}

fn sha(commit: i64) -> String {
    format!("c{commit}")
}

fn told(commit: i64, seen: bool) -> Told {
    Told { commit, dirty: false, seen, judged: true, depth: 3, started_us: commit * 100 }
}

/// The life that the store would write after the last of `arrived`. Numbers of runs are those of the list.
fn life(arrived: &[(i64, Told)]) -> Option<Life> {
    let mut chain = Chain::default();
    for (_, told) in arrived {
        let ancestors: Vec<String> = (1..=told.depth).map(|back| sha(told.commit - back)).collect();
        chain.add(&sha(told.commit), ancestors.iter().map(String::as_str));
    }
    let run = |(run, told): &(i64, Told)| Run {
        run: *run,
        sha: sha(told.commit),
        dirty: told.dirty,
        pipeline: None,
        started_us: told.started_us,
    };
    let runs: Vec<Run> = arrived.iter().map(run).collect();
    let placed = order(&chain, &runs);
    let observations: Vec<Observation> = placed
        .iter()
        .map(|placed| {
            let (run, told) = arrived.iter().find(|(run, _)| *run == placed.run).expect("it is one of them");
            Observation {
                key: if told.dirty { key_of_run(*run) } else { sha(told.commit) },
                commit: sha(told.commit),
                run: *run,
                at_us: told.started_us,
                seen: told.seen,
                judged: told.judged,
                gone: false,
                suite_gone: false,
                has_suite: true,
                listed: told.seen || told.judged,
                waived: false,
                bytes: 48.0,
                count: 1.0,
            }
        })
        .collect();
    fold(&observations)
}

/// The numbers from 0 on in an order that depends on `seed`.
fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|n| (*n as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ seed).rotate_left(31));
    order
}

fn numbered(script: &[Told]) -> Vec<(i64, Told)> {
    (0..).zip(script.iter().copied()).collect()
}

#[test]
fn two_hundred_commits_in_any_order_give_one_life() {
    let seen = |commit: i64| match commit {
        20..60 | 90..100 => true,
        130..180 => commit % 2 == 0,
        _ => false,
    };
    let mut script: Vec<Told> = (0..200).map(|commit| told(commit, seen(commit))).collect();
    // A test that failed, an old pipeline again, and runs of one commit that disagree.
    script[70].judged = false;
    script.push(Told { started_us: 90_000, ..told(25, true) });
    script.push(Told { started_us: 90_001, ..told(95, false) });
    let script = numbered(&script);
    let expected = life(&script).expect("it was seen");
    let events: Vec<_> = expected.events.iter().map(|event| (event.what, event.key.as_str())).collect();
    let (first, rest) = events.split_at(6);
    let [new, known, fixed, back] = [State::New, State::Known, State::Fixed, State::Regressed].map(What::To);
    assert_eq!(
        first,
        [(new, "c20"), (known, "c21"), (fixed, "c60"), (back, "c90"), (known, "c91"), (fixed, "c100")]
    );
    assert!(rest.starts_with(&[(back, "c130")]) && rest.ends_with(&[(fixed, "c179")]), "{rest:?}");
    for seed in 0..20 {
        let mixed: Vec<_> = shuffled(script.len(), seed).into_iter().map(|at| script[at]).collect();
        assert_eq!(life(&mixed).as_ref(), Some(&expected), "seed {seed}");
    }
}

#[test]
fn a_commit_without_the_fix_that_is_measured_late_is_no_regression() {
    let mut script = vec![told(1, true), told(2, true), told(3, false), told(5, false)];
    assert_eq!(life(&numbered(&script)).map(|life| life.state), Some(State::Fixed));
    script.push(Told { started_us: 99_999, ..told(2, true) });
    assert_eq!(life(&numbered(&script)).map(|life| life.state), Some(State::Fixed));
    script.push(Told { started_us: 100, ..told(6, true) });
    assert_eq!(life(&numbered(&script)).map(|life| life.state), Some(State::Regressed), "the fix is in it");
}

#[test]
fn a_late_run_of_an_earlier_commit_tells_where_the_leak_came_in() {
    let mut script = vec![told(1, false), told(9, true)];
    let first = |script: &[Told]| life(&numbered(script)).map(|life| (life.clean, life.first));
    script.iter_mut().for_each(|told| told.depth = 8);
    assert_eq!(first(&script), Some(("c1".into(), "c9".into())));
    script.push(told(5, false));
    assert_eq!(first(&script), Some(("c5".into(), "c9".into())));
    script.push(told(7, true));
    assert_eq!(first(&script), Some(("c5".into(), "c7".into())));
}

#[test]
fn changes_to_an_old_commit_fix_nothing_that_came_later() {
    let mut script = vec![told(1, false), told(2, false), told(3, true)];
    let change = |commit, started_us, seen| Told { dirty: true, started_us, ..told(commit, seen) };
    script.extend([change(2, 400, false), change(1, 500, false)]);
    let expected = life(&numbered(&script)).expect("it was seen");
    assert_eq!((expected.state, expected.clean.as_str(), expected.flaky), (State::New, "c2", false));
    // Changes that fixed it, and were taken back.
    script.extend([change(3, 600, false), Told { started_us: 700, ..told(3, true) }]);
    let script = numbered(&script);
    for seed in 0..20 {
        let mixed: Vec<_> = shuffled(script.len(), seed).into_iter().map(|at| script[at]).collect();
        assert_eq!(life(&mixed).map(|life| (life.state, life.events.len())), Some((State::New, 1)), "{seed}");
    }
    let before = life(&script[..script.len() - 1]).map(|life| (life.state, life.fixed));
    assert_eq!(before, Some((State::Fixed, key_of_run(5))));
}
