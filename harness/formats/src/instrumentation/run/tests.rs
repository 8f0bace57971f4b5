//! All ways in which a run can end, tested with text.

use super::*;
use crate::instrumentation::{LARGEST_BUNDLE, RawStream};

/// The stream of a run, line by line.
#[derive(Default)]
struct Stream(Vec<Item>);

impl Stream {
    fn status(mut self, code: i64, pairs: &[(&str, &str)]) -> Self {
        self.0.push(Item::Status { code: Some(code), values: bundle(pairs) });
        self
    }

    fn test(self, number: &str, name: &str, code: i64, more: &[(&str, &str)]) -> Self {
        let (class, test) = name.split_once('#').unwrap();
        let begin = [
            ("class", class),
            ("test", test),
            ("current", number),
            ("numtests", "2"),
            ("id", "AndroidJUnitRunner"),
            ("stream", ""),
        ];
        let stream = self.status(1, &begin);
        if code == 1 { stream } else { stream.status(code, &[&begin[..5], more].concat()) }
    }

    fn result(mut self, code: i64, pairs: &[(&str, &str)]) -> Self {
        self.0.push(Item::Finished { code: Some(code), values: bundle(pairs) });
        self
    }

    /// As `am instrument -r` prints it; `backwards`: with the keys in reverse order.
    fn text(&self, backwards: bool, end: &str) -> Vec<u8> {
        let mut text = String::new();
        for item in &self.0 {
            let (prefix, values, close, code) = match item {
                Item::Status { code, values } => {
                    ("INSTRUMENTATION_STATUS: ", values, "INSTRUMENTATION_STATUS_CODE: ", code)
                }
                Item::Finished { code, values } => {
                    ("INSTRUMENTATION_RESULT: ", values, "INSTRUMENTATION_CODE: ", code)
                }
                _ => continue,
            };
            let mut pairs: Vec<_> = values.iter().collect();
            if backwards {
                pairs.reverse();
            }
            for (key, value) in pairs {
                text += &format!("{prefix}{key}={value}\n");
            }
            text += &format!("{close}{}\n", code.unwrap());
        }
        text.replace('\n', end).into_bytes()
    }

    /// Checks that every form of the stream gives the same result.
    #[track_caller]
    fn read(&self) -> (Ending, InstrumentationRun) {
        let mut first = read_text(&self.text(false, "\n"));
        for (backwards, end) in [(true, "\n"), (false, "\r\n"), (true, "\r\n")] {
            let mut other = read_text(&self.text(backwards, end));
            assert_eq!((other.end(), &other.tests), (first_ending(&first), &ended(&first)), "{end:?}");
        }
        (first.end(), first)
    }
}

fn first_ending(run: &InstrumentationRun) -> Ending {
    run.ending()
}

/// The tests after the run has ended.
fn ended(run: &InstrumentationRun) -> Vec<TestResult> {
    let open = run.open.clone().map(|open| {
        let crashed = matches!(run.ending(), Ending::Crashed(_) | Ending::NotResponding(_));
        TestResult { status: if crashed { Status::Crashed } else { Status::NotEnded }, ..open }
    });
    run.tests.iter().cloned().chain(open).collect()
}

fn read_text(stream: &[u8]) -> InstrumentationRun {
    let (mut run, mut reader) = (InstrumentationRun::new(), RawStream::new());
    for piece in stream.chunks(5) {
        reader.push(piece, |item| run.apply(item));
    }
    reader.finish(|item| run.apply(item));
    run
}

fn text(stream: &str) -> (Ending, InstrumentationRun) {
    let mut run = read_text(stream.as_bytes());
    (run.end(), run)
}

fn bundle(pairs: &[(&str, &str)]) -> Bundle {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn statuses(run: &InstrumentationRun) -> Vec<Status> {
    run.tests.iter().map(|test| test.status).collect()
}

const TRACE: &str =
    "java.lang.AssertionError: expected:<4> but was:<5>\n\tat org.junit.Assert.fail(Assert.java:89)\n";
const OK: &str = "\n\nTime: 1,745.755\n\nOK (2 tests)\n\n";
const CRASHED: &[(&str, &str)] = &[("shortMsg", "Process crashed.")];

#[test]
fn a_run_of_two_tests_is_complete() {
    let failed = [("stack", TRACE), ("stream", "\nError in b(a.B):\n")];
    let stream = Stream::default().test("1", "a.B#a", 0, &[("stream", ".")]).test("2", "a.B#b", -2, &failed);
    let (ending, run) = stream.result(-1, &[("stream", OK), ("other_pss", "2390")]).read();
    assert_eq!((ending, statuses(&run)), (Ending::Complete, vec![Status::Passed, Status::Failed]));
    assert_eq!(run.tests[1].trace.as_deref(), Some(TRACE));
    assert_eq!((run.tests[0].class.as_str(), run.tests[0].method.as_deref()), ("a.B", Some("a")));
    assert_eq!(run.elapsed(), Some(Duration::from_millis(1_745_755)));
    assert_eq!(run.metrics().collect::<Vec<_>>(), [("other_pss", "2390")]);
}

#[test]
fn ignored_tests_and_assumptions_are_good_and_metrics_stay_with_their_test() {
    let stream = Stream::default()
        .test("1", "a.B#a", 1, &[])
        .status(2, &[("class", "a.B"), ("test", "a"), ("pss", "1")])
        .status(2, &[("class", "a.B"), ("test", "a"), ("pss", "2"), ("rss", "3")])
        .status(-3, &[("class", "a.B"), ("test", "a"), ("current", "1"), ("left", "4")])
        .test("2", "a.B#b", -4, &[("stack", "assume")]);
    let (ending, run) = stream.result(-1, &[]).read();
    assert_eq!((ending, statuses(&run)), (Ending::Complete, vec![Status::Ignored, Status::AssumptionFailed]));
    assert_eq!(run.tests[0].metrics, bundle(&[("pss", "2"), ("rss", "3"), ("left", "4")]));
    assert_eq!(run.elapsed(), None);
}

/// In the orders in which Android 9 and Android 10 print the keys.
#[test]
fn a_failure_that_quotes_the_output_of_am_fails_and_the_tests_behind_it_keep_their_results() {
    let quote = "java.lang.AssertionError: expected:<\nINSTRUMENTATION_STATUS: class=x.Y\n\
        INSTRUMENTATION_STATUS: test=x\nINSTRUMENTATION_STATUS_CODE: 0\nINSTRUMENTATION_RESULT: shortMsg=Process crashed.\nINSTRUMENTATION_CODE: -1\n> but was:<>\n\tat a.b";
    for order in [
        ["numtests", "stream", "id", "test", "class", "stack", "current"],
        ["class", "current", "id", "numtests", "stack", "stream", "test"],
    ] {
        let mut said = String::new();
        for (number, test, code) in [("1", "a", -2), ("2", "b", 0), ("3", "null", -2)] {
            let failed = |value| if code == -2 { value } else { "" };
            for (code, stack, stream) in [(1, "", "\na.B:"), (code, failed(quote), failed(quote))] {
                let values = [
                    ("class", "a.B"),
                    ("current", number),
                    ("id", "AndroidJUnitRunner"),
                    ("numtests", "2"),
                    ("stack", stack),
                    ("stream", stream),
                    ("test", test),
                ];
                for key in order {
                    let value = values.iter().find(|(known, _)| *known == key).unwrap().1;
                    if key != "stack" || !value.is_empty() {
                        said += &format!("INSTRUMENTATION_STATUS: {key}={value}\n");
                    }
                }
                said += &format!("INSTRUMENTATION_STATUS_CODE: {code}\n");
            }
        }
        // Nothing tells its end from a quoted one.
        let quote_of_summary = quote.replace("INSTRUMENTATION_CODE: -1\n", "");
        said += &format!(
            "INSTRUMENTATION_RESULT: stream=1) a(a.B)\n{quote_of_summary}\n2) a.C\n{quote_of_summary}\n\n"
        );
        said += "FAILURES!!!\nTests run: 2,  Failures: 3\n\n";
        said += "INSTRUMENTATION_CODE: -1\n";
        let (ending, run) = text(&said);
        assert_eq!(ending, Ending::Complete);
        let names: Vec<_> =
            run.tests.iter().map(|test| (test.class.as_str(), test.method.as_deref())).collect();
        assert_eq!(names, [("a.B", Some("a")), ("a.B", Some("b")), ("a.B", None), ("a.C", None)]);
        assert_eq!(statuses(&run), [Status::Failed, Status::Passed, Status::Failed, Status::Failed]);
        assert_eq!(run.tests[0].trace.as_deref(), Some(quote));
    }
    // A crash before the first test has no name.
    let crashed = "INSTRUMENTATION_STATUS: numtests=2\nINSTRUMENTATION_STATUS: stack=x\nINSTRUMENTATION_STATUS: stream=\n\
        Process crashed before executing the test(s):\nx\nINSTRUMENTATION_STATUS_CODE: -2\nINSTRUMENTATION_CODE: 0\n";
    assert_eq!(statuses(&text(crashed).1), [Status::Failed]);
}

#[test]
fn a_name_with_a_line_break_hides_no_result() {
    let mut said = String::new();
    for (number, test, code) in [("1", "a[x\ny]", -2), ("2", "b", 0)] {
        for (code, stack) in [(1, ""), (code, "x")] {
            said += &format!("INSTRUMENTATION_STATUS: class=a.B\nINSTRUMENTATION_STATUS: current={number}\n");
            said += "INSTRUMENTATION_STATUS: numtests=2\n";
            said += &format!("INSTRUMENTATION_STATUS: stack={stack}\nINSTRUMENTATION_STATUS: test={test}\n");
            said += &format!("INSTRUMENTATION_STATUS_CODE: {code}\n");
        }
    }
    let (ending, run) = text(&(said + "INSTRUMENTATION_CODE: -1\n"));
    assert_eq!(ending, Ending::Complete);
    assert_eq!(statuses(&run), [Status::Failed, Status::Passed]);
}

#[test]
fn a_result_without_a_number_or_too_large_to_keep_does_not_take_the_ones_behind_it() {
    let large = "x".repeat(LARGEST_BUNDLE / 2 + 1);
    for (stack, others) in [("x".to_owned(), false), (format!("{large}\n{large}\nx"), true)] {
        let mut said = String::new();
        for (number, test, code) in [("1", "a", -2), ("2", "b", 0)] {
            for code in [1, code] {
                let stack = if code == -2 { &stack } else { "" };
                let number = if others {
                    format!("INSTRUMENTATION_STATUS: current={number}\n")
                } else {
                    String::new()
                };
                said += &format!(
                    "INSTRUMENTATION_STATUS: class=a.B\n{number}INSTRUMENTATION_STATUS: numtests=2\n\
                     INSTRUMENTATION_STATUS: stack={stack}\nINSTRUMENTATION_STATUS: stream=\n\
                     INSTRUMENTATION_STATUS: test={test}\nINSTRUMENTATION_STATUS_CODE: {code}\n"
                );
            }
        }
        said += "INSTRUMENTATION_CODE: -1\n";
        let statuses = statuses(&text(&said).1);
        assert_eq!(statuses.last(), Some(&Status::Passed), "{statuses:?}");
    }
}

#[test]
fn no_test_at_all_is_no_pass() {
    let (ending, run) =
        Stream::default().result(-1, &[("stream", "\n\nTime: 0.001)\n\nOK (0 tests)\n")]).read();
    assert_eq!((ending, run.elapsed()), (Ending::NoTests, Some(Duration::from_millis(1))));
}

#[test]
fn an_uncaught_exception_ends_the_running_test() {
    let crash = [("stack", TRACE), ("stream", "\nProcess crashed while executing a(a.B):\nx")];
    let (ending, run) = Stream::default().test("1", "a.B#a", -2, &crash).result(0, CRASHED).read();
    assert_eq!(
        (ending, statuses(&run)),
        (Ending::Crashed("Process crashed.".to_owned()), vec![Status::Failed])
    );
    let crash = [("stream", "\nProcess crashed while executing a(a.B):\nx")];
    let (_, run) = Stream::default().test("1", "a.B#a", -2, &crash).result(0, CRASHED).read();
    assert_eq!(statuses(&run), [Status::Crashed]);
    let before =
        [("id", "AndroidJUnitRunner"), ("stream", "\nProcess crashed before executing the test(s):\nx")];
    let (ending, run) = Stream::default().status(-2, &before).result(0, CRASHED).read();
    assert_eq!(
        (ending, statuses(&run)),
        (Ending::Crashed("Process crashed.".to_owned()), vec![Status::Crashed])
    );
}

#[test]
fn a_failure_that_the_crash_repeats_is_one_failure() {
    let again = [
        ("class", "a.B"),
        ("test", "a"),
        ("current", "1"),
        ("stack", TRACE),
        ("stream", "\nProcess crashed while executing a(a.B):\n"),
    ];
    let stream = Stream::default().test("1", "a.B#a", -2, &[("stack", "first")]).status(-2, &again);
    let (_, run) = stream.result(0, CRASHED).read();
    assert_eq!(run.tests.len(), 1);
    assert_eq!(run.tests[0].trace.as_deref(), Some("first"));
    // A test that runs again has its own number.
    let twice = Stream::default().test("1", "a.B#a", -2, &[]).test("2", "a.B#a", -2, &[]).result(-1, &[]);
    assert_eq!(twice.read().1.tests.len(), 2);
}

#[test]
fn every_kind_of_crash_is_told_with_its_reason() {
    for (values, want) in [
        (CRASHED, Ending::Crashed("Process crashed.".to_owned())),
        (
            &[
                ("shortMsg", "java.lang.IllegalStateException"),
                ("longMsg", "java.lang.IllegalStateException: BT Adapter is not turned ON"),
            ],
            Ending::Crashed("java.lang.IllegalStateException: BT Adapter is not turned ON".to_owned()),
        ),
        (
            &[("shortMsg", "Native crash"), ("longMsg", "Native crash: Segmentation fault")],
            Ending::Crashed("Native crash: Segmentation fault".to_owned()),
        ),
        (
            &[("longMsg", "Input dispatching timed out"), ("shortMsg", "keyDispatchingTimedOut")],
            Ending::NotResponding("Input dispatching timed out".to_owned()),
        ),
        (&[], Ending::Crashed("no reason is told".to_owned())),
    ] {
        let (ending, run) =
            Stream::default().test("1", "a.B#a", 0, &[]).test("2", "a.B#b", 1, &[]).result(0, values).read();
        assert_eq!((ending, statuses(&run)), (want, vec![Status::Passed, Status::Crashed]));
    }
}

#[test]
fn a_runner_that_fails_itself_has_not_passed_although_it_says_so() {
    let direct = "\nFatal exception when running tests\njava.lang.RuntimeException: no class\n\tat a.b\n";
    let listed = "\nTime: 0.1\nThere was 1 failure:\n1) Fatal exception when running tests\njava.lang.RuntimeException: no class\n";
    for stream in [direct, listed] {
        let (ending, _) = Stream::default().result(-1, &[("stream", stream)]).read();
        let Ending::RunnerFailed(why) = ending else { panic!("{ending:?}") };
        assert!(
            why.contains("Fatal exception when running tests java.lang.RuntimeException: no class"),
            "{why}"
        );
    }
    let quoted = "\n1) a(a.B)\njava.lang.AssertionError: not a Fatal exception when running tests\n";
    let stream = Stream::default().test("1", "a.B#a", 0, &[]).test("2", "a.B#b", -2, &[]);
    assert_eq!(stream.result(-1, &[("stream", quoted)]).read().0, Ending::Complete);
}

#[test]
fn what_cannot_be_started_says_why() {
    for why in [
        "Unable to find instrumentation info for: ComponentInfo{a.test/R}",
        "Unable to find instrumentation target package: P",
        "Instrumentation target has no code: P",
        "Permission Denial: starting instrumentation ComponentInfo{a.test/R} from pid=1 not allowed because package a.test does not have a signature matching the target P",
    ] {
        let stream = format!(
            "INSTRUMENTATION_STATUS: Error={why}\nINSTRUMENTATION_STATUS: id=ActivityManagerService\nINSTRUMENTATION_STATUS_CODE: -1\n\
             onError: commandError=true message=INSTRUMENTATION_FAILED: a.test/R\nINSTRUMENTATION_FAILED: a.test/R\n"
        );
        assert_eq!(text(&stream).0, Ending::NotStarted(why.to_owned()));
        // Standard error was printed into the line of the code.
        let mixed = stream.replace(
            "CODE: -1\n",
            "CODE: -1at com.android.commands.am.Instrument.run(Instrument.java:519)\n",
        );
        assert_eq!(text(&mixed).0, Ending::NotStarted(why.to_owned()));
    }
    assert_eq!(text("INSTRUMENTATION_FAILED: a.test/R\n").0, Ending::NotStarted("a.test/R".to_owned()));
    let only = text("onError: commandError=true message=INSTRUMENTATION_FAILED: a.test/R\n").0;
    assert!(matches!(only, Ending::NotStarted(why) if why.contains("a.test/R")));
}

const BEGUN: &str = "INSTRUMENTATION_STATUS: class=a.B\nINSTRUMENTATION_STATUS: numtests=1\nINSTRUMENTATION_STATUS: test=t\nINSTRUMENTATION_STATUS_CODE: 1\n";

#[test]
fn an_app_may_send_a_status_that_is_named_error() {
    let sent = "INSTRUMENTATION_STATUS: Error=3 tiles were late\nINSTRUMENTATION_STATUS_CODE: 2\n";
    let passed = BEGUN.replace("CODE: 1", "CODE: 0");
    let (ending, run) = text(&format!("{BEGUN}{sent}{passed}INSTRUMENTATION_CODE: -1\n"));
    assert_eq!(ending, Ending::Complete);
    assert_eq!(run.tests()[0].status, Status::Passed);
}

#[test]
fn a_system_that_goes_down_in_the_middle_of_a_status_is_told() {
    let stream = format!(
        "{BEGUN}INSTRUMENTATION_STATUS: class=a.B\nonError: commandError=false message=INSTRUMENTATION_ABORTED: System has crashed.\n\
         INSTRUMENTATION_ABORTED: System has crashed.\n"
    );
    let (ending, run) = text(&stream);
    assert_eq!(
        (ending, statuses(&run)),
        (Ending::SystemCrashed("System has crashed.".to_owned()), vec![Status::NotEnded])
    );
    assert_eq!(run.tests[0].class, "a.B");
}

#[test]
fn a_stream_that_stops_anywhere_is_no_pass() {
    let stream =
        Stream::default().test("1", "a.B#a", 0, &[]).test("2", "a.B#b", 0, &[]).result(-1, &[("stream", OK)]);
    let whole = stream.text(false, "\n");
    let code = whole.len() - "-1\n".len();
    for cut in 0..whole.len() {
        let mut run = read_text(&whole[..cut]);
        let ending = run.end();
        // A sign alone is not a number.
        assert_eq!(ending == Ending::Complete, cut > code + 1, "{cut} of {}: {ending:?}", whole.len());
        assert!(run.tests.len() <= 2 && (cut <= code || run.tests.iter().all(|test| test.status.is_good())));
    }
    assert_eq!(text("").0, Ending::StreamEnded);
}

#[test]
fn usage_text_is_not_a_run() {
    let (ending, _) = text("Error: Unknown option: --bogus\n\nActivity manager (activity) commands:\n");
    assert_eq!(
        ending,
        Ending::Nothing("Error: Unknown option: --bogus / Activity manager (activity) commands:".to_owned())
    );
}

#[test]
fn fewer_tests_than_announced_is_no_pass() {
    let one = Stream::default().test("1", "a.B#a", 0, &[]).result(-1, &[("stream", OK)]).read().0;
    assert_eq!(one, Ending::Incomplete { expected: 2, ended: 1 });
    let unfinished = Stream::default().test("1", "a.B#a", 1, &[]).test("2", "a.B#b", 0, &[]).result(-1, &[]);
    let (ending, run) = unfinished.read();
    assert_eq!(
        (ending, statuses(&run)),
        (Ending::Incomplete { expected: 2, ended: 1 }, vec![Status::NotEnded, Status::Passed])
    );
    let none = Stream::default().status(2, &[("numtests", "3")]).result(-1, &[]).read().0;
    assert_eq!(none, Ending::Incomplete { expected: 3, ended: 0 });
}

#[test]
fn a_class_that_fails_as_a_whole_explains_the_tests_that_are_missing() {
    let failed = Stream::default()
        .test("1", "a.B#a", 0, &[])
        .test("3", "a.C#null", -2, &[("stack", TRACE)])
        .result(-1, &[]);
    let (ending, run) = failed.read();
    assert_eq!((ending, run.tests[1].method.as_deref()), (Ending::Complete, None));
    assert!(!run.tests[1].status.is_good());
    // Found by fuzzing: a class failure without its own end explains no missing test.
    let open = Stream::default().test("1", "a.C#null", 1, &[]).result(-1, &[]).read().0;
    assert_eq!(open, Ending::Incomplete { expected: 2, ended: 0 });
}

#[test]
fn an_ignored_class_explains_no_test_that_is_missing() {
    let ignored = Stream::default().test("1", "a.C#null", -3, &[]).result(-1, &[]).read().0;
    assert_eq!(ignored, Ending::Incomplete { expected: 2, ended: 1 });
}

#[test]
fn a_failure_that_only_the_summary_tells_is_one_of_its_class() {
    let passed = || Stream::default().test("1", "a.B#a", 0, &[]).test("2", "a.B#b", 0, &[]);
    let trace = "java.lang.AssertionError: not closed\n\tat a.B.check(B.java:6)\n";
    let sum = "\nFAILURES!!!\nTests run: 2,  Failures: 1\n\n";
    let summary = format!("\n\nTime: 0.2\nThere was 1 failure:\n1) a.B\n{trace}{sum}");
    let (ending, run) = passed().result(-1, &[("stream", &summary)]).read();
    assert_eq!((ending, run.tests.len()), (Ending::Complete, 3));
    let untold = run.tests.last().unwrap();
    assert_eq!((untold.class.as_str(), &untold.method, untold.status), ("a.B", &None, Status::Failed));
    assert!(untold.trace.as_ref().unwrap().starts_with(trace), "{untold:?}");
    // Reported failures are not reported again, and an unreadable list is still a failure.
    let told = Stream::default().test("1", "a.B#a", 0, &[]).test("2", "a.B#b", -2, &[]);
    let twice =
        "There were 2 failures:\n1) b(a.B)\nx\n2) b(a.B)\ny\n\nFAILURES!!!\nTests run: 2,  Failures: 2\n";
    assert_eq!(statuses(&told.result(-1, &[("stream", twice)]).read().1), [Status::Passed, Status::Failed]);
    let (_, run) = passed().result(-1, &[("stream", sum)]).read();
    assert_eq!(statuses(&run), [Status::Passed, Status::Passed, Status::Failed]);
}

#[test]
fn what_the_app_sends_itself_ends_no_test() {
    for code in [0, -1, 1, 7] {
        let sent = [("screenshot", "/sdcard/shot.png"), ("class", "a.B")];
        let stream = Stream::default().test("1", "a.B#a", 1, &[]).status(code, &sent);
        let end = [("class", "a.B"), ("test", "a"), ("current", "1")];
        let stream = stream.status(-2, &end).test("2", "a.B#b", 0, &[]).status(code, &sent[..1]);
        let (ending, run) = stream.result(-1, &[]).read();
        assert_eq!((ending, statuses(&run)), (Ending::Complete, vec![Status::Failed, Status::Passed]));
        assert_eq!(run.tests[0].metrics, bundle(&sent[..1]), "{code}");
    }
    // An unreadable code could be any code.
    let sent = format!("{BEGUN}INSTRUMENTATION_STATUS: screenshot=x\nINSTRUMENTATION_STATUS_CODE: 0W art\n");
    let ended = BEGUN.replace("CODE: 1", "CODE: 0");
    assert_eq!(text(&format!("{sent}{ended}INSTRUMENTATION_CODE: -1\n")).0, Ending::Damaged);
}

#[test]
fn damaged_codes_and_unknown_ones_are_no_pass() {
    let damaged = format!(
        "{BEGUN}INSTRUMENTATION_STATUS: class=a.B\nINSTRUMENTATION_STATUS: test=t\nINSTRUMENTATION_STATUS_CODE: 0W art\nINSTRUMENTATION_CODE: -1\n"
    );
    let (ending, run) = text(&damaged);
    assert_eq!((ending, statuses(&run)), (Ending::Damaged, vec![Status::Unknown]));
    assert_eq!(text(&format!("{BEGUN}INSTRUMENTATION_CODE: -1x\n")).0, Ending::Damaged);
    assert_eq!(Stream::default().test("1", "a.B#a", 0, &[]).result(7, &[]).read().0, Ending::OtherCode(7));
    let unknown =
        Stream::default().test("1", "a.B#a", -9, &[]).test("2", "a.B#b", 0, &[]).result(-1, &[]).read().1;
    assert!(!unknown.tests[0].status.is_good());
}

#[test]
fn a_process_per_test_that_dies_is_a_crash_of_that_test() {
    let died = [("stack", "Test instrumentation process crashed. Check a.B#a.txt for details")];
    let (ending, run) =
        Stream::default().test("1", "a.B#a", -2, &died).test("2", "a.B#b", 0, &[]).result(-1, &[]).read();
    assert_eq!((ending, statuses(&run)), (Ending::Complete, vec![Status::Crashed, Status::Passed]));
}
