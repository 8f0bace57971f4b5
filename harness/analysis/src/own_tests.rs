//! A program that reports its own tests (`memgate.h`) and repeats them. Only the program can repeat them, so all its
//! tests run between two executions of one test.
//!
//! Data flow: the record of the screen shows which test allocated at which stack. A second run of the program shows at
//! which stacks it grows ([`AllOrigins`]). A test is judged by the places at which it allocated, and by places of no
//! test that grow between its end and the start of the next test: otherwise such growth would belong to no test.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use memgate_model::{Metric, Per, format_amount};

use crate::beneath::leaks_apart;
use crate::groups::{self, Doing, OsKind, Part, Places, Series};
use crate::growth::{Allowed, Finding, judge_exact};
use crate::policy::{GatePolicy, smallest_limit};
use crate::record::{Names, OpenTest, OsName, ProcessRecord, Window, sum};
use crate::resolve::ByAddress;
use crate::stats::{as_f64, float};

/// Stacks of the second run, by which one test is judged.
pub(crate) struct Origins {
    /// The test allocated there.
    inside: BTreeSet<u32>,
    /// Those of [`Self::inside`] at whose place other tests allocated, too.
    shared: BTreeSet<u32>,
    /// No test allocated there, and there was growth after ends of this test.
    outside: BTreeSet<u32>,
    /// Stacks at which another test adds blocks in most of its executions, inside or outside.
    of_others: BTreeSet<u32>,
}

/// The same for all tests of the program. It is made once: a program may have thousands of executions, and hundreds of
/// suspects.
#[derive(Default)]
pub(crate) struct AllOrigins {
    inside: HashMap<String, BTreeSet<u32>>,
    /// Stacks at whose place several tests allocated.
    shared: BTreeSet<u32>,
    outside: HashMap<String, BTreeSet<u32>>,
    /// Tests that add blocks at a stack in most of their executions.
    adding: HashMap<u32, BTreeSet<String>>,
}

/// Does only the program itself repeat its tests?
pub(crate) fn repeats_itself(record: &ProcessRecord) -> bool {
    let is_native = record.hello.as_ref().is_some_and(|hello| hello.runtime == memgate_wire::Runtime::Native);
    is_native && record.tells_its_own_tests()
}

/// Did it go on to other tests, or to this one again, and end in order?
pub(crate) fn never_ended(record: &ProcessRecord, open: &OpenTest) -> bool {
    let begun = record.windows.iter().chain(record.open.iter().map(|open| &open.window));
    let went_on = begun.map(|window| window.start_sequence).any(|other| other > open.window.start_sequence);
    went_on && record.goodbye.is_some() && repeats_itself(record)
}

/// Does it repeat this test together with others?
pub(crate) fn is_among_others(record: &ProcessRecord, test: &str) -> bool {
    repeats_itself(record) && record.windows.iter().any(|window| !window.is(test))
}

/// The tests that left blocks at a place.
type Owners = HashMap<String, BTreeSet<String>>;

/// By place. Stacks are compared by their addresses: two lines of a function are different origins.
fn owners(screened: &ProcessRecord) -> Owners {
    let mut here = ByAddress;
    let mut places = Places::new(screened, &mut here);
    let mut owners = Owners::new();
    for window in &screened.windows {
        let test = window.id();
        for survivor in &window.survivors {
            let place = places.of(survivor.stack).id.clone();
            owners.entry(place).or_default().insert(test.clone());
        }
    }
    owners
}

impl AllOrigins {
    pub(crate) fn of(screened: &ProcessRecord, again: &ProcessRecord) -> Self {
        let owners = owners(screened);
        let none = BTreeSet::new();
        let mut there = ByAddress;
        let mut places = Places::new(again, &mut there);
        let mut all = Self::default();
        let mut owned = BTreeMap::<u32, &BTreeSet<String>>::new();
        let mut executions = HashMap::<String, u64>::new();
        // In how many executions of a test did a stack rise?
        let mut rises = HashMap::<(u32, String), u64>::new();
        let (mut now, mut previous) = (HashMap::<(u32, u64), u64>::new(), String::new());
        for window in &again.windows {
            let current = window.id();
            let mut risen = BTreeSet::new();
            for change in &window.changes {
                let (stack, before) = (change.stack, now.insert((change.stack, change.size), change.count));
                let owners =
                    *owned.entry(stack).or_insert_with(|| owners.get(&places.of(stack).id).unwrap_or(&none));
                let doer = if owners.is_empty() { &previous } else { &current };
                if change.count > before.unwrap_or(0) && (owners.is_empty() || owners.contains(doer)) {
                    risen.insert((stack, doer.clone()));
                }
            }
            for (stack, doer) in risen {
                if owned.get(&stack).is_some_and(|owners| owners.is_empty()) {
                    all.outside.entry(doer.clone()).or_default().insert(stack);
                }
                *rises.entry((stack, doer)).or_default() += 1;
            }
            *executions.entry(current.clone()).or_default() += 1;
            previous = current;
        }
        for (stack, owners) in owned {
            owners.iter().for_each(|test| {
                all.inside.entry(test.clone()).or_default().insert(stack);
            });
            if owners.len() > 1 {
                all.shared.insert(stack);
            }
        }
        // Before the first test nobody added anything.
        let most = |((_, test), rises): &((u32, String), u64)| {
            executions.get(test).is_some_and(|executions| 2 * rises > *executions)
        };
        rises.into_iter().filter(most).for_each(|((stack, test), _)| {
            all.adding.entry(stack).or_default().insert(test);
        });
        all
    }

    pub(crate) fn of_test(&self, test: &str) -> Origins {
        let stacks = |of: &HashMap<String, BTreeSet<u32>>| of.get(test).cloned().unwrap_or_default();
        let (inside, outside) = (stacks(&self.inside), stacks(&self.outside));
        let is_of_others = |stack: &&u32| {
            self.adding.get(stack).is_some_and(|tests| tests.iter().any(|other| other != test))
        };
        let of_others = inside.union(&outside).filter(is_of_others).copied().collect();
        let shared = inside.intersection(&self.shared).copied().collect();
        Origins { inside, shared, outside, of_others }
    }
}

impl Origins {
    /// The groups inside of the test, and those outside. Where several tests allocate, and outside of all tests, only
    /// what this test added counts.
    pub(crate) fn series(
        &self,
        test: &str,
        places: &mut Places<'_>,
        allowed: Allowed,
    ) -> (Vec<Series>, Vec<Series>) {
        let mut of = |stacks: &BTreeSet<u32>, shared: &BTreeSet<u32>, doing: Doing| -> Vec<Series> {
            let groups = groups::series_of(test, places, |stack| stacks.contains(&stack));
            let mut own = HashMap::<u32, Vec<Part>>::new();
            let shares = groups::own_series(test, doing, places, |stack| shared.contains(&stack));
            shares.into_iter().flat_map(|share| share.parts).for_each(|part| {
                own.entry(part.stack).or_default().push(part);
            });
            let groups = leaks_apart(groups, allowed).into_iter();
            groups.map(|group| self.share_of(group, shared, &own, allowed)).collect()
        };
        let inside = of(&self.inside, &self.shared, Doing::Inside);
        (inside, of(&self.outside, &self.outside, Doing::After))
    }

    /// What this test added to a group (`own`), if that is less, and it grows or other tests explain the rest. Growth
    /// that no test explains counts for each that may have added it.
    fn share_of(
        &self,
        group: Series,
        shared: &BTreeSet<u32>,
        own: &HashMap<u32, Vec<Part>>,
        allowed: Allowed,
    ) -> Series {
        let stacks: BTreeSet<u32> = group.parts.iter().map(|part| part.stack).collect();
        if stacks.is_disjoint(shared) {
            return group;
        }
        let of_test = group.parts.iter().filter(|part| !shared.contains(&part.stack));
        let shares = stacks.iter().filter_map(|stack| own.get(stack)).flatten();
        let parts: Vec<Part> = of_test.chain(shares).cloned().collect();
        let share = Series::of(group.place.clone(), group.bytes.len(), parts);
        let growth = |series: &Series| judge_exact(&series.bytes, allowed);
        let of_share = growth(&share);
        let is_explained = of_share.finding == Finding::Grows || !stacks.is_disjoint(&self.of_others);
        if is_explained && of_share.slope.slope < growth(&group).slope.slope { share } else { group }
    }
}

/// Descriptors, threads or mapped bytes that were added from each start of the test to the start of the next test: the
/// running sum of those that are `counted`.
pub(crate) fn os_added(
    record: &ProcessRecord,
    test: &str,
    kind: OsKind,
    counted: &mut dyn FnMut(&OsName) -> bool,
) -> Vec<f64> {
    let mut added = 0.0;
    let mut sum = |names: &Names| -> f64 {
        names.iter().filter(|(name, _)| counted(name)).map(|(_, count)| float(*count)).sum()
    };
    let nexts = record.windows.iter().skip(1).map(Some).chain([None]);
    let own = record.windows.iter().zip(nexts).filter(|(window, _)| window.is(test));
    let values = own.filter_map(|(window, next)| {
        let until = next.map_or_else(|| kind.at_end(window), |next| kind.at_start(next));
        added += sum(until?) - sum(kind.at_start(window)?);
        Some(added)
    });
    values.collect()
}

/// What grew between the ends of this test and the starts of the next tests, above its limit. The first execution does
/// not count.
pub(crate) fn grown_outside(
    record: &ProcessRecord,
    suite: &str,
    test: &str,
    policy: &GatePolicy,
) -> Option<String> {
    let pairs = record.windows.windows(2).filter_map(|pair| match pair {
        [own, next] if own.is(test) => Some((own, next)),
        _ => None,
    });
    let pairs: Vec<(&Window, &Window)> = pairs.skip(1).collect();
    let memory =
        |(own, next): &(&Window, &Window)| Some(float(next.start.live_bytes()) - float(own.end.live_bytes()));
    let of_system = |kind: OsKind| {
        move |(own, next): &(&Window, &Window)| {
            Some(float(sum(kind.at_start(next)?)) - float(sum(kind.at_end(own)?)))
        }
    };
    let mean = |metric: Metric, grown: f64| {
        let limit = smallest_limit(policy, suite, test, metric, Per::Iteration)?;
        let mean = grown / as_f64(pairs.len().max(1));
        (mean > limit).then(|| format_amount(metric, mean))
    };
    let handles = OsKind::ALL
        .into_iter()
        .find_map(|kind| mean(kind.metric(), pairs.iter().filter_map(of_system(kind)).sum()));
    mean(Metric::NativeLiveBytes, pairs.iter().filter_map(memory).sum()).or(handles)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use memgate_model::{TestReport, Verdict};
    use memgate_wire::capability;

    use super::*;
    use crate::dsl::{ByNumber, Process};
    use crate::input::{ConfirmationInput, RunInput, SuiteInput};
    use crate::resolve::{Resolve, ResolvedStack};
    use crate::screen::screen;

    /// Stacks 30 and 130 are two lines of one function.
    struct Lines;

    impl Resolve for Lines {
        fn frames(&mut self, record: &ProcessRecord, stack: u32) -> ResolvedStack {
            ByNumber.frames(record, if stack == 130 { 30 } else { stack })
        }
    }

    /// Tests of one execution of the program, in their order. Names are numbers.
    type Body = fn(&mut Process, u32, u32);

    /// A program with tests 0 to 2 that repeats them 40 times. `between` runs after each of them.
    fn judged(body: Body, between: Body) -> Vec<TestReport> {
        judged_by(&GatePolicy::default(), body, between)
    }

    fn judged_by(policy: &GatePolicy, body: Body, between: Body) -> Vec<TestReport> {
        let run = |mut process: Process| {
            // What the program allocates before its first test is in the changes of the first window.
            process.alloc(40, 1000, 1);
            for i in 0..40 {
                for test in 0..3 {
                    process.run(&format!("A.{test}"), i, |p| body(p, i, test));
                    between(&mut process, i, test);
                }
            }
            let mut record = process.end();
            record.hello.as_mut().unwrap().capabilities.push(capability::C_API.to_owned());
            record
        };
        let (screened, again) = (run(Process::screen()), run(Process::confirm()));
        let suspects = screen(&[&screened], "api", policy);
        assert!(suspects.iter().all(|suspect| suspect.repeated));
        let repeated = |_: &_| ConfirmationInput::Repeated(Arc::new(again.clone().into()));
        let confirmations =
            suspects.iter().map(|suspect| (suspect.test.clone(), repeated(suspect))).collect();
        let suite = SuiteInput { confirmations, ..crate::judge::tests::suite(vec![screened.into()]) };
        let input = RunInput { suites: vec![suite], ..RunInput::default() };
        crate::judge::judge(&input, policy, &mut Lines).suites.remove(0).tests
    }

    fn verdicts(tests: &[TestReport]) -> Vec<(Verdict, &str)> {
        tests.iter().map(|test| (test.verdict, test.reason.split(';').next().unwrap_or_default())).collect()
    }

    const NOTHING: Body = |_, _, _| ();

    /// Regression: all three tests failed, because the program as a whole grew and each test left something.
    #[test]
    fn a_block_that_a_later_test_frees_is_no_leak_of_a_program_that_repeats_its_own_tests() {
        let tests = judged(
            |p, i, test| {
                if i + test > 0 {
                    p.free(20 + (test + 2) % 3, 100, 1);
                }
                p.alloc(20 + test, 100, 1);
                if test == 1 {
                    p.alloc(3, 77, 1);
                }
            },
            NOTHING,
        );
        let leaks = "77 B per iteration (allowed 0 B)";
        assert_eq!(
            verdicts(&tests).iter().map(|(v, _)| *v).collect::<Vec<_>>(),
            [Verdict::Pass, Verdict::Fail, Verdict::Pass]
        );
        assert_eq!((tests[1].reason.as_str(), tests[1].leaks.len()), (leaks, 1));
    }

    /// Regression: such a test "ended its process with exit", and counted as failed.
    #[test]
    fn a_test_whose_end_is_never_reported_is_not_measured() {
        let verdict = |goes_on: bool| {
            let mut process = Process::screen();
            process.run("A.0", 0, |_| ());
            process.start("A.1", 0);
            if goes_on {
                process.run("A.2", 0, |_| ());
            }
            let mut record = process.end();
            record.hello.as_mut().unwrap().capabilities.push(capability::C_API.to_owned());
            let input = crate::judge::tests::run_of(crate::judge::tests::suite(vec![record.into()]));
            let tests =
                crate::judge::judge(&input, &GatePolicy::default(), &mut Lines).suites.remove(0).tests;
            let test = tests.into_iter().find(|test| test.id == "A.1").unwrap();
            (test.verdict, test.outcome, test.reason)
        };
        let not_measured = "not measured: its program reported its start and went on without its end; \
                            report the end also if the test fails or throws (MemgateTestEnd)";
        let (not_measured, ended) =
            (not_measured.to_owned(), "the test ended its process with exit".to_owned());
        assert_eq!(verdict(true), (Verdict::Error, memgate_model::Outcome::Passed, not_measured));
        assert_eq!(verdict(false), (Verdict::Error, memgate_model::Outcome::Crashed, ended));
    }

    /// Regression: each test that left something "ended its process with exit".
    #[test]
    fn tests_that_run_while_another_one_never_ends_say_so() {
        let tests = judged(
            |p, i, test| match (i, test) {
                (3, 0) => p.start("A.1", i),
                (_, 2) => p.alloc(3, 77, 1),
                _ => (),
            },
            NOTHING,
        );
        let why = "when it was repeated: A.1 was open meanwhile, and its program never reported its end (MemgateTestEnd)";
        assert_eq!(verdicts(&tests)[2], (Verdict::Error, why));
    }

    /// Its own arguments choose its tests, so a command with our filter would show nothing.
    #[test]
    fn the_only_test_of_such_a_program_cannot_be_selected_either() {
        let run = |mut process: Process| {
            (0..40).for_each(|i| process.run("A.0", i, |p| p.alloc(3, 77, 1)));
            let mut record = process.end();
            record.hello.as_mut().unwrap().capabilities.push(capability::C_API.to_owned());
            record
        };
        let again = ConfirmationInput::Repeated(Arc::new(run(Process::confirm()).into()));
        let mut suite = crate::judge::tests::suite(vec![run(Process::screen()).into()]);
        suite.confirmations.insert("A.0".to_owned(), again);
        let input = crate::judge::tests::run_of(suite);
        let tests = crate::judge::judge(&input, &GatePolicy::default(), &mut Lines).suites.remove(0).tests;
        assert_eq!((tests[0].verdict, tests[0].only_among_others), (Verdict::Fail, true));
    }

    /// Regression: such a leak belonged to no test and passed, unless the program had only one test.
    #[test]
    fn growth_between_two_tests_of_a_program_that_repeats_its_own_tests_fails_the_test_before() {
        let tests = judged(NOTHING, |p, _, test| {
            if test == 1 {
                p.alloc(4, 157, 1);
            }
        });
        let why = "157 B per iteration outside of the windows that the program gives the test (allowed 0 B)";
        assert_eq!(verdicts(&tests), [(Verdict::Pass, ""), (Verdict::Fail, why), (Verdict::Pass, "")]);
        assert_eq!(tests[1].leaks.len(), 1);
    }

    /// Regression: the block of the test, which a later test frees, hid the growth at another line of its function.
    #[test]
    fn growth_between_two_tests_is_told_beside_a_block_that_the_test_hands_over() {
        let tests = judged(
            |p, i, test| match test {
                0 => p.alloc(3, 31, 1),
                1 => p.free(3, 31, 1),
                _ => assert!(i < 40),
            },
            |p, _, test| p.alloc(4, 157, u64::from(test == 0)),
        );
        let why = "157 B per iteration outside of the windows that the program gives the test (allowed 0 B)";
        assert_eq!((tests[0].verdict, tests[0].reason.as_str()), (Verdict::Fail, why));
    }

    /// Regression: each test failed for the growth after all of them.
    #[test]
    fn growth_after_each_test_counts_once_for_each() {
        let tests = judged(NOTHING, |p, _, test| p.alloc(4, 50, if test < 2 { 1 } else { 0 }));
        let why = "50 B per iteration outside of the windows that the program gives the test (allowed 0 B)";
        assert_eq!(verdicts(&tests), [(Verdict::Fail, why), (Verdict::Fail, why), (Verdict::Pass, "")]);
    }

    /// What a runner keeps after each test and frees at the end of the iteration is no growth.
    #[test]
    fn what_is_freed_between_later_tests_is_no_growth() {
        let tests = judged(NOTHING, |p, _, test| match test {
            2 => p.free(4, 50, 2),
            _ => p.alloc(4, 50, 1),
        });
        let failed: Vec<_> = tests.iter().filter(|test| test.verdict == Verdict::Fail).collect();
        assert!(failed.is_empty(), "{failed:#?}");
    }

    /// Regression: what a thread of the test allocates after its end did not count, although no other test allocates
    /// there.
    #[test]
    fn a_place_of_one_test_counts_as_a_whole() {
        let tests = judged(
            |p, i, test| {
                if test == 0 {
                    p.alloc(3, 10, u64::from(i < 4));
                }
            },
            |p, i, test| {
                if test == 0 {
                    p.alloc(3, 10, u64::from(i >= 4));
                }
            },
        );
        assert_eq!(tests[0].verdict, Verdict::Fail, "{}", tests[0].reason);
    }

    /// Regression: growth at a place that belonged to two tests, but came from neither window, belonged to nobody.
    #[test]
    fn growth_that_no_test_explains_fails_those_that_may_have_added_it() {
        let tests = judged(
            |p, i, test| match test {
                0 => p.alloc(3, 10, u64::from(i < 4)),
                2 => p.alloc(3, 10, u64::from(i == 0)),
                _ => (),
            },
            |p, i, test| p.alloc(3, 10, u64::from(test == 0 && i >= 4)),
        );
        assert_eq!(tests[0].verdict, Verdict::Fail, "{:?}", verdicts(&tests));
        let moving = judged(NOTHING, |p, i, test| p.alloc(4, 50, u64::from(i % 3 == test)));
        assert!(moving.iter().any(|test| test.verdict == Verdict::Fail), "{:?}", verdicts(&moving));
    }

    /// Regression: two lines of a function are one group, and the line that only this test has did not count.
    #[test]
    fn a_line_of_one_test_counts_beside_a_line_that_another_test_shares() {
        let tests = judged(
            |p, i, test| {
                if test == 0 {
                    if i > 0 {
                        p.free(30, 10, 1);
                    }
                    p.alloc(30, 10, 1);
                    p.alloc(130, 77, 1);
                }
                if test == 1 {
                    p.alloc(30, 10, 1);
                }
            },
            NOTHING,
        );
        assert_eq!(tests[0].verdict, Verdict::Fail, "{:?}", verdicts(&tests));
        assert!(tests[0].reason.starts_with("77 B per iteration"), "{}", tests[0].reason);
    }

    /// Regression: the waived descriptors of a test counted again in what the test itself added.
    #[test]
    fn waived_descriptors_of_a_test_stay_waived_beside_those_of_another() {
        let body: Body = |p, _, test| match test {
            0 => p.open("/dev/null", 6),
            2 => p.open("socket:[…]", 7),
            _ => (),
        };
        let tests = judged(body, NOTHING);
        assert_eq!([tests[0].verdict, tests[2].verdict], [Verdict::Fail; 2]);
        let [leak] = &tests[0].leaks[..] else { panic!("{:#?}", tests[0].leaks) };
        let waiver = crate::judge::tests::waiver(crate::policy::WaiverMatch::Leak(leak.id.clone()), None);
        let policy = GatePolicy { waivers: vec![waiver], ..GatePolicy::default() };
        let tests = judged_by(&policy, body, NOTHING);
        assert_eq!(
            [tests[0].verdict, tests[2].verdict],
            [Verdict::Pass, Verdict::Fail],
            "{:?}",
            verdicts(&tests)
        );
    }

    #[test]
    fn tests_that_leak_at_one_place_each_have_their_own_share() {
        let tests = judged(|p, _, test| p.alloc(5, 10, u64::from(test)), NOTHING);
        let why = ["", "10 B per iteration (allowed 0 B)", "20 B per iteration (allowed 0 B)"];
        assert_eq!(
            verdicts(&tests),
            [(Verdict::Pass, why[0]), (Verdict::Fail, why[1]), (Verdict::Fail, why[2])]
        );
    }

    /// Regression: the test that keeps a block once failed by the descriptors of the other one.
    #[test]
    fn descriptors_belong_to_the_test_that_opens_them_and_to_the_test_before() {
        let tests = judged(
            |p, i, test| {
                if (i, test) == (0, 0) {
                    p.alloc(3, 31, 1);
                }
                if test == 2 {
                    p.open("/dev/null", 6);
                }
            },
            NOTHING,
        );
        assert_eq!(tests[0].verdict, Verdict::Pass, "{}", tests[0].reason);
        assert_eq!(tests[2].reason, "1 descriptor per iteration (allowed 0)");
        let tests = judged(NOTHING, |p, _, test| {
            if test == 0 {
                p.open("/dev/null", 6);
            }
        });
        let verdicts: Vec<_> = tests.iter().map(|test| test.verdict).collect();
        assert_eq!(verdicts, [Verdict::Fail, Verdict::Pass, Verdict::Pass]);
    }
}
