//! Plain programs: what is alive at their end, and runs of different lengths.

use memgate_model::Reach;
use memgate_wire::native_holders::{HeldBlocks, HeldLink, HeldState, NativeHolders};
use memgate_wire::{BoundaryKind, Frame, GoodbyeReason, Hello, ProcessRole, SnapshotScope};

use super::*;
use crate::dsl::hello;
use crate::input::Repetition;
use crate::resolve::{Resolve, ResolvedStack};

/// The framework Check runs each test in a child, so its program has nothing alive at its end. Regression test: such a
/// program passed without a message.
#[test]
fn what_children_of_a_plain_program_end_with_is_told() {
    let child = |reason, (size, live)| {
        let mut child = Process::screen();
        child.frames[0].0 = Frame::Hello(Hello { role: ProcessRole::ForkChild, ..hello() });
        child.alloc(5, 5000, 1);
        child.boundary(BoundaryKind::ProcessStart, "", 0, Vec::new(), 0, SnapshotScope::Survivors);
        child.alloc(3, size, live);
        ProcessInput::from(child.end_with(reason, Some(0)))
    };
    let program = |children: Vec<ProcessInput>| {
        let mut run = process_suite(process(|_| ()), &[]);
        run.suites[0].screen.extend(children);
        run
    };
    let told = |run: &RunInput, policy: &GatePolicy| {
        let report = report(run, policy);
        assert_eq!((report.suites[0].tests[0].verdict, report.exit_code), (Verdict::Pass, 0));
        (report.verdict, report.suites[0].reason.clone())
    };
    let default = GatePolicy::default();
    let two = || vec![child(GoodbyeReason::Exit, (8, 10)), child(GoodbyeReason::QuickExit, (8, 2))];
    let (verdict, reason) = told(&program(two()), &default);
    assert_eq!(verdict, Verdict::Warn);
    let begin =
        "not judged: 2 children that it forked ended with 96 B in 12 allocations of their own alive; ";
    assert!(reason.starts_with(begin), "{reason}");
    let nothing = (Verdict::Pass, String::new());
    let passes = |child, why: &str| assert_eq!(told(&program(vec![child]), &default), nothing, "{why}");
    passes(child(GoodbyeReason::Exit, (8, 0)), "what it has is its parent's");
    passes(child(GoodbyeReason::Exit, (4096, 1)), "the C library's buffer of a stream");
    passes(child(GoodbyeReason::Exec, (8, 10)), "another program");
    let mut gtest = suite(vec![process(|_| ()).into()]);
    gtest.screen.extend(two());
    assert!(!report(&run_of(gtest), &default).suites[0].reason.contains("children"), "death tests");
}

/// A plain program, repeated with these lengths.
fn of_lengths(
    screen: impl Into<ProcessInput>,
    lengths: impl IntoIterator<Item = u64>,
    body: impl Fn(&mut Process, u64),
) -> RunInput {
    let mut suite = SuiteInput { boundary: BoundaryQuality::Process, ..suite(vec![screen.into()]) };
    let run = |n| Repetition { n, process: process(|p| body(p, n)).into() };
    let runs: Vec<_> = lengths.into_iter().map(run).collect();
    if !runs.is_empty() {
        suite.confirmations.insert("engine".to_owned(), ConfirmationInput::Lengths(runs));
    }
    run_of(suite)
}

/// A plain program, with the lengths of its repetitions and the blocks that each leaves.
pub(in crate::judge) fn process_suite(screen: impl Into<ProcessInput>, lengths: &[(u64, u64)]) -> RunInput {
    let live: BTreeMap<u64, u64> = lengths.iter().copied().collect();
    of_lengths(screen, lengths.iter().map(|(n, _)| *n), |p, n| {
        p.alloc(3, 8, live[&n]);
        p.alloc(5, 4096, 1);
        p.works(n);
    })
}

#[test]
fn a_whole_process_is_judged_by_runs_of_different_length() {
    let screen = || process(|p| p.alloc(3, 8, 10));
    let default = GatePolicy::default();
    let reason = "not judged: 80 B in 10 allocations alive at exit; to have it judged, write {n} for the number in \
                  the argument that repeats its work: `memgate run -- PROGRAM --count={n}`, or a suite in memgate.yaml; \
                  if its test framework has no such argument: memgate docs agent";
    assert_verdict(&process_suite(screen(), &[]), &default, Verdict::Warn, reason);
    let told = report(&process_suite(screen(), &[]), &default);
    assert_eq!(only(&told).leaks.len(), 1, "with its stack");
    assert_verdict(&process_suite(process(|_| ()), &[]), &default, Verdict::Pass, "");
    let leaks = [(10, 10), (20, 20), (30, 30), (40, 40), (50, 50)];
    assert_verdict(
        &process_suite(screen(), &leaks),
        &default,
        Verdict::Fail,
        "8 B per repetition (allowed 0 B)",
    );
    let report = report(&process_suite(screen(), &leaks), &default);
    let titles: Vec<_> = only(&report).leaks.iter().map(|l| l.title.as_str()).collect();
    assert_eq!(titles, ["1 × 8 B"]);
    let still = [(10, 7), (20, 7), (30, 7), (40, 7), (50, 7)];
    assert_verdict(&process_suite(screen(), &still), &default, Verdict::Pass, "");
    let fills_up = [(10, 10), (20, 20), (30, 20), (40, 20), (50, 20)];
    assert_verdict(&process_suite(screen(), &fills_up), &default, Verdict::Pass, "");
    let two = [(10, 10), (20, 20)];
    let reason = "unconfirmed: left 80 B in 10 allocations in one execution; it ran with 2 different lengths, 3 are needed";
    assert_verdict(&process_suite(screen(), &two), &default, Verdict::Warn, reason);
}

/// What a search at the end of `main` found: the stack, the number of its blocks, and their state.
fn searched(mut record: ProcessRecord, found: &[(u32, u64, HeldState)]) -> ProcessRecord {
    let held = found.iter().map(|(stack, blocks, state)| HeldBlocks {
        stack: *stack,
        blocks: *blocks,
        state: *state,
        of_state: *blocks,
        path: Vec::new(),
    });
    record.native_holders = Some(NativeHolders { held: held.collect(), ..NativeHolders::default() });
    record
}

/// The program has no test framework: `main` calls `leak_N`.
struct ByMain;

impl Resolve for ByMain {
    fn frames(&mut self, record: &ProcessRecord, stack: u32) -> ResolvedStack {
        let mut stack = ByNumber.frames(record, stack);
        stack.frames.drain(2..4);
        stack
    }
}

#[test]
fn what_the_tests_of_a_plain_program_lost_fails_it() {
    use HeldState::{IndirectlyLost, Lost, LostCycle, Reachable};
    let left = || {
        process(|p| {
            p.alloc(3, 8, 10);
            p.alloc(4, 100, 2);
        })
    };
    let told = |report: &RunReport| {
        let test = only(report);
        (test.verdict, test.reason.split(';').next().unwrap().to_owned(), test.leaks.len())
    };
    type Found = (u32, u64, HeldState);
    let judged = |found: &[Found], policy: &GatePolicy| {
        told(&report(&process_suite(searched(left(), found), &[]), policy))
    };
    let not_judged = |what: &str| (Verdict::Warn, format!("not judged: {what} alive at exit"), 2);
    let all = || not_judged("280 B in 12 allocations");
    let reason =
        |what: &str| format!("{what} lost (allowed 0 B): no pointer to them is left at the end of main");
    let lost_of = |leaks: usize| (Verdict::Fail, reason("80 B in 10 allocations"), leaks);
    let lost = || lost_of(1);
    let default = GatePolicy::default();
    assert_eq!(judged(&[(3, 10, Lost), (4, 2, Reachable)], &default), lost());
    assert_eq!(judged(&[(3, 10, LostCycle)], &default), lost());
    assert_eq!(
        judged(&[(3, 10, Reachable), (4, 2, IndirectlyLost)], &default),
        all(),
        "held by what main lost"
    );
    assert_eq!(judged(&[(3, 1, Lost)], &default).1, reason("8 B in 1 allocation"));
    assert_eq!(
        judged(&[(4, 7, Lost)], &default).1,
        reason("200 B in 2 allocations"),
        "others were freed at exit"
    );

    let mut by_list = searched(left(), &[(3, 10, IndirectlyLost)]);
    by_list.native_holders.as_mut().unwrap().held[0].path =
        vec![HeldLink::Blocks { stack: 4, size: 8, count: 1 }];
    assert_eq!(told(&report(&process_suite(by_list, &[]), &default)), lost(), "held by what a test lost");

    let mut few = searched(left(), &[(3, 10, Reachable), (3, 2, Lost), (3, 1, LostCycle)]);
    let held = &mut few.native_holders.as_mut().unwrap().held;
    held[0].of_state = 7;
    held[1..].iter_mut().for_each(|lost| lost.blocks = 0);
    let few = report(&process_suite(few, &[]), &default);
    assert_eq!(told(&few), (Verdict::Fail, reason("24 B in 3 allocations"), 1), "most of a site are held");
    assert!(only(&few).reason.ends_with("; not judged: 256 B in 9 allocations more alive at exit"));
    let value = |report: &RunReport, metric| only(report).metrics[&metric].value;
    assert!((value(&few, Metric::NativeLiveBytes) - 24.0).abs() < 0.5, "{few:?}");
    let hold = only(&few).leaks[0].hold.clone().unwrap();
    assert_eq!((hold.reach, hold.of_reach, hold.blocks), (Reach::Reachable, 7, 10));
    assert_eq!(hold.others.iter().map(|it| (it.reach, it.blocks)).collect::<Vec<_>>(), [(Reach::Lost, 3)]);

    let by_main = judge(&process_suite(searched(left(), &[(3, 10, Lost)]), &[]), &default, &mut ByMain);
    assert_eq!(told(&by_main), all(), "variables of main may have held them");
    let mut other_threads = searched(left(), &[(3, 10, Lost)]);
    other_threads.native_holders.as_mut().unwrap().unseen_registers = 1;
    let with_threads = report(&process_suite(other_threads, &[]), &default);
    assert_eq!(told(&with_threads), all(), "registers of other threads may hold them");

    let leaks = &only(&with_threads).leaks;
    let waived = |leaks: &[Leak]| judged(&[(3, 10, Lost)], &waiving_ids(leaks));
    assert_eq!(waived(&leaks[1..]), not_judged("200 B in 2 allocations"));
    assert_eq!(waived(&leaks[..1]), lost_of(2), "one is waived");
    let many = process(|p| {
        p.alloc(3, 8, 1);
        (10..70).for_each(|stack| p.alloc(stack, 1000, 1));
    });
    let many = report(&process_suite(searched(many, &[(3, 1, Lost)]), &[]), &default);
    let leaks = &only(&many).leaks;
    assert_eq!(leaks[0].frames[0].function.as_deref(), Some("leak_3(int)"));
    assert_eq!(leaks.len(), 1, "larger blocks that are held are no leaks");

    let mut allowed = GatePolicy::default();
    for limit in allowed.defaults.iter_mut().filter(|limit| limit.metric == Metric::NativeLiveBytes) {
        limit.bound = Bound::Absolute(80.0);
    }
    assert_eq!(judged(&[(3, 10, Lost)], &allowed), all());
}

#[test]
fn a_vector_of_a_plain_program_that_grows_from_several_places_is_one_leak() {
    let grows = |p: &mut Process, stack, n| {
        p.alloc(stack, 8 * n, 1);
        p.works(n);
    };
    let stack = |n: u64| 1 + u32::try_from(n / 10 - 1).unwrap() % 3;
    let run = of_lengths(process(|p| grows(p, 1, 1)), [10, 20, 30, 40, 50], |p, n| grows(p, stack(n), n));
    let report = report_of(&run);
    let test = only(&report);
    let titles: Vec<_> = test.leaks.iter().map(|leak| leak.title.as_str()).collect();
    assert_eq!(test.verdict, Verdict::Fail);
    assert_eq!(titles, ["growing allocation, 8 B more per iteration, also from leak_1, leak_3"]);
}

/// Regression: the reason was the growth of the total, which may be negative.
#[test]
fn a_leak_beside_memory_that_comes_and_goes_is_told_with_its_own_figure() {
    let noise = [4, 9, 1, 5, 2, 3];
    let run = of_lengths(process(|_| ()), 5..11, |p, n| {
        p.alloc(3, 77, n);
        p.alloc(5, 100, noise[usize::try_from(n).unwrap() - 5]);
        p.works(n);
    });
    assert_judged(&run, Verdict::Fail, "77 B per repetition in one place (allowed 0 B)");
}

/// Regression test: only memory was compared, so the program passed with all of these.
#[test]
fn descriptors_threads_and_mappings_alive_at_exit_are_not_judged_either() {
    let mut p = Process::screen();
    // The program found it open, or the place that opened it is unknown.
    p.fds.push("/inherited");
    p.open("/log", 4);
    p.open("/log", 4);
    p.spawn("worker-1", 5);
    p.mapped(6, MappedKind::Anonymous, 1, 65536);
    let input = process_suite(p.end(), &[]);
    let why = "not judged: 64.0 KiB of mapped memory, 2 descriptors, 1 thread alive at exit; to have it judged, write {n} \
               for the number in the argument that repeats its work: `memgate run -- PROGRAM --count={n}`, or a suite in memgate.yaml; \
               if its test framework has no such argument: memgate docs agent";
    assert_judged(&input, Verdict::Warn, why);
    let judged = report_of(&input);
    let leaks = &only(&judged).leaks;
    let titles: Vec<_> = leaks.iter().map(|leak| leak.title.as_str()).collect();
    let want = ["1 mapping of anonymous memory, 64.0 KiB", "2 × descriptor /log", "1 × thread worker-…"];
    assert_eq!(titles, want);
    let waived = report(&input, &waiving_ids(leaks));
    assert_eq!((only(&waived).verdict, only(&waived).reason.as_str()), (Verdict::Pass, "3 leaks waived"));
    let mut off = GatePolicy::default();
    off.defaults.retain(|limit| limit.metric == Metric::NativeLiveBytes);
    let passed = report(&input, &off);
    assert_eq!((only(&passed).verdict, only(&passed).reason.as_str()), (Verdict::Pass, ""));
    assert!(only(&passed).leaks.is_empty(), "within its limits");
}

#[test]
fn what_only_exit_handlers_free_grows_at_the_end_of_main() {
    let judged = |kept: &dyn Fn(u64) -> u64, freed: &dyn Fn(u64) -> u64| {
        let run = of_lengths(process(|_| ()), [10, 20, 30, 40, 50], |p, n| {
            p.alloc(3, 8, kept(n));
            p.alloc(5, 16, freed(n));
            p.works(n);
            p.main_ends();
            p.free(5, 16, freed(n));
        });
        report_of(&run)
    };
    let at_main = judged(&|_| 3, &|n| n);
    let reason = "16 B per repetition at the end of main, freed only by exit handlers (allowed 0 B)";
    assert_eq!((only(&at_main).verdict, only(&at_main).reason.as_str()), (Verdict::Fail, reason));
    assert_eq!(only(&at_main).leaks.len(), 1);
    let at_both = judged(&|n| n, &|n| n);
    assert_eq!(only(&at_both).reason, "24 B per repetition (allowed 0 B)");
    let at_none = judged(&|_| 3, &|_| 7);
    assert_eq!(only(&at_none).verdict, Verdict::Pass);
    let bouncing = judged(&|_| 3, &|n| n % 20);
    assert_eq!(only(&bouncing).verdict, Verdict::Pass, "what other threads are about to free");
}

/// The number selects a test, or a size: allocations do not depend on repetitions. Regression test: such a program
/// passed as clean.
#[test]
fn a_program_whose_allocations_do_not_follow_the_repetitions_is_not_judged() {
    let judged = |counts: &[u64], made: &dyn Fn(u64) -> u64| {
        let run = of_lengths(process(|p| p.alloc(3, 8, 1)), counts.iter().copied(), |p, n| {
            p.alloc(3, 8, 1 + made(n));
            p.free(3, 8, made(n));
        });
        let report = report_of(&run);
        let test = only(&report);
        (test.verdict, test.reason.clone())
    };
    let (three, six) = ([4, 8, 12], [4, 8, 12, 16, 20, 24]);
    let (verdict, reason) = judged(&three, &|n| if n == 8 { 60 } else { 20 + n });
    assert_eq!(verdict, Verdict::Warn);
    assert!(
        reason.starts_with("not judged: with 4 repetitions it made 25 allocations, with 12 33, so it"),
        "{reason}"
    );
    assert_eq!(judged(&six, &|n| 100 - n).0, Verdict::Warn);
    assert_eq!(judged(&six, &|n| n * 7 % 40).0, Verdict::Warn);
    let longer_text = |n| if n < 12 { 103 } else { 105 };
    assert_eq!(judged(&six, &longer_text).0, Verdict::Warn, "the argument itself takes another block");
    assert_eq!(
        judged(&six, &|n| 1000 + n / 8).0,
        Verdict::Pass,
        "a pool takes a chunk for eight repetitions"
    );
    assert_eq!(judged(&three, &|n| 1000 + n).0, Verdict::Pass);
    assert_eq!(
        judged(&three, &|n| 1000 + n / 4).0,
        Verdict::Pass,
        "a pool takes a chunk for four repetitions"
    );
    let threads = |n| 1000 + 10 * n + if n == 8 { 60 } else { 0 };
    assert_eq!(judged(&six, &threads).0, Verdict::Pass, "threads make some more or fewer");
}

/// Regression test: such a program passed as clean.
#[test]
fn a_program_that_allocates_nothing_more_with_more_repetitions_is_not_judged() {
    let ignores = |opens: &dyn Fn(u64) -> u64| {
        of_lengths(process(|p| p.alloc(3, 8, 1)), [4, 8, 12], |p, n| {
            p.alloc(3, 8, 1);
            (0..opens(n)).for_each(|_| p.open("/log", 6));
        })
    };
    let why = "not judged: with 4 repetitions it made 1 allocation, with 12 as many, so it seems not to repeat its work; if \
               the work allocates nothing, switch native.live_bytes off for it";
    assert_judged(&ignores(&|_| 0), Verdict::Warn, why);
    assert!(!only(&report_of(&ignores(&|_| 0))).confirmed);
    assert_judged(&ignores(&|n| n), Verdict::Fail, "1 descriptor per repetition (allowed 0)");
    assert_verdict(&ignores(&|_| 0), &without_limit(Metric::NativeLiveBytes), Verdict::Pass, "");
}

#[test]
fn a_process_that_fails_is_not_judged() {
    let record = Process::screen().end_with(GoodbyeReason::Exit, Some(2));
    let reason = "the test itself failed: not judged for leaks";
    assert_ends(&process_suite(record, &[]), &GatePolicy::default(), Verdict::NotJudged, reason, 1);
}

/// Found by the fuzz target `session`: a stream that ends after its last boundary passed if it was unknown how the
/// process ended.
#[test]
fn a_process_that_never_said_goodbye_is_no_pass() {
    let killed = |mut record: ProcessRecord| {
        record.goodbye = None;
        ProcessInput { record, ending: Ending::Signalled(9) }
    };
    let how = "its process was ended by signal 9 (SIGKILL); last seen: main in futex_wait";
    let whole = process_suite(killed(process(|_| ())), &[]);
    let reason = format!("{how}; who killed it? the kernel does if memory runs out (`dmesg` shows that)");
    assert_ends(&whole, &GatePolicy::default(), Verdict::Error, &reason, 1);

    let left = |p: &mut Process| p.alloc(3, 8, 7);
    let mut lengths = process_suite(process(left), &[(10, 7), (20, 7), (30, 7)]);
    let run = Repetition { n: 40, process: killed(process(left)) };
    if let Some(ConfirmationInput::Lengths(runs)) = lengths.suites[0].confirmations.get_mut("engine") {
        runs.push(run);
    }
    let reason = format!("with 40 repetitions: {how}");
    assert_judged(&lengths, Verdict::Error, &reason);

    let mut repeated = screened_and_repeated(12, |p, _| p.alloc(3, 8, 1));
    if let Some(ConfirmationInput::Repeated(again)) = repeated.suites[0].confirmations.get_mut(TEST) {
        *again = Arc::new(killed(again.record.clone()));
    }
    let reason = format!("when it was repeated: after 12 iterations {how}");
    assert_judged(&repeated, Verdict::Error, &reason);
}

#[test]
fn a_process_that_became_another_program_is_not_measured_and_has_not_failed() {
    let mut record = process(|_| ());
    (record.end, record.goodbye) = (None, None);
    let run = process_suite(ProcessInput { record, ending: Ending::Exited(0) }, &[]);
    let reason = "not measured: its process became another program (exec), or ended past the C library; \
                  measure the other program, or let it end by exit";
    assert_judged(&run, Verdict::Error, reason);
}
