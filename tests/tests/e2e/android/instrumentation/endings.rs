//! Every bad ending of `am instrument` is an error that repeats the device's message, and nothing stays on
//! the device.

use std::sync::{Condvar, Mutex};

use memgate_e2e::stand_in::{
    Adb, Fault, Instrument, Instrumentation, Package, StandIn, Terminal, What, When, adbs,
};

use crate::android::instrumentation::app::{APP, RUNNER, TESTS, project, run_on};

/// An app that always prints this text and has no agent in it.
struct Says(&'static str, u8);

impl Instrument for Says {
    fn instrument(&self, _: &StandIn, _: &Instrumentation, terminal: &mut Terminal) -> u8 {
        let Self(text, status) = self;
        assert!(terminal.out(text.as_bytes()).is_ok(), "the client has left");
        *status
    }
}

const ENDINGS: [(&str, u8, &str); 9] = [
    (
        "INSTRUMENTATION_RESULT: stream=\n\nTime: 0.001\n\nOK (0 tests)\n\n\nINSTRUMENTATION_CODE: -1\n",
        0,
        "no test ran: the filter matches none",
    ),
    (
        "INSTRUMENTATION_RESULT: shortMsg=Process crashed.\nINSTRUMENTATION_CODE: 0\n",
        0,
        "the process crashed: Process crashed.",
    ),
    (
        "INSTRUMENTATION_RESULT: longMsg=Input dispatching timed out\nINSTRUMENTATION_RESULT: shortMsg=keyDispatchingTimedOut\nINSTRUMENTATION_CODE: 0\n",
        0,
        "the process did not respond: Input dispatching timed out",
    ),
    (
        "INSTRUMENTATION_RESULT: stream=\nFatal exception when running tests\njava.lang.ClassNotFoundException: a.B\nINSTRUMENTATION_CODE: -1\n",
        0,
        "the test runner failed: Fatal exception when running tests java.lang.ClassNotFoundException: a.B",
    ),
    (
        "INSTRUMENTATION_STATUS: Error=Unable to find instrumentation info for: ComponentInfo{a.test/R}\nINSTRUMENTATION_STATUS: id=ActivityManagerService\nINSTRUMENTATION_STATUS_CODE: -1\nINSTRUMENTATION_FAILED: a.test/R\n",
        1,
        "it could not be started: Unable to find instrumentation info",
    ),
    ("INSTRUMENTATION_ABORTED: System has crashed.\n", 1, "the system ended it: System has crashed."),
    (
        "INSTRUMENTATION_STATUS: class=A\nINSTRUMENTATION_STATUS: numtests=2\nINSTRUMENTATION_STATUS: test=a\nINSTRUMENTATION_STATUS_CODE: 1\n",
        0,
        "its output stopped before the end",
    ),
    (
        "INSTRUMENTATION_STATUS: class=A\nINSTRUMENTATION_STATUS: numtests=2\nINSTRUMENTATION_STATUS: test=a\nINSTRUMENTATION_STATUS_CODE: 1\n\
         INSTRUMENTATION_STATUS: class=A\nINSTRUMENTATION_STATUS: numtests=2\nINSTRUMENTATION_STATUS: test=a\nINSTRUMENTATION_STATUS_CODE: 0\nINSTRUMENTATION_CODE: -1\n",
        0,
        "only 1 of 2 tests ended",
    ),
    ("Error: Unknown option: -q\n", 0, "it reported nothing: Error: Unknown option: -q"),
];

/// An app that lists its test but does not end by itself when it runs the test.
#[derive(Default)]
struct Endless {
    stopped: Mutex<bool>,
    changed: Condvar,
}

const NAMES: &str = "INSTRUMENTATION_STATUS: class=A\nINSTRUMENTATION_STATUS: test=a\nINSTRUMENTATION_STATUS: numtests=1\nINSTRUMENTATION_STATUS_CODE: 1\n\
                     INSTRUMENTATION_STATUS: class=A\nINSTRUMENTATION_STATUS: test=a\nINSTRUMENTATION_STATUS: numtests=1\nINSTRUMENTATION_STATUS_CODE: 0\nINSTRUMENTATION_CODE: -1\n";

impl Instrument for Endless {
    fn instrument(&self, device: &StandIn, call: &Instrumentation, terminal: &mut Terminal) -> u8 {
        if call.arguments.iter().any(|(key, _)| key == "log") {
            return Says(NAMES, 0).instrument(device, call, terminal);
        }
        // Any process of this machine will do.
        let pid = std::process::id();
        device.process(APP, pid);
        // The client may have left by now.
        drop(terminal.out(b"INSTRUMENTATION_STATUS: class=A\n"));
        let stopped = self.stopped.lock().unwrap();
        drop(self.changed.wait_while(stopped, |stopped| !*stopped).unwrap());
        device.process_ended(pid);
        0
    }

    fn force_stop(&self, _: &StandIn, package: &str) {
        *self.stopped.lock().unwrap() |= package == APP;
        self.changed.notify_all();
    }
}

fn run(adb: &Adb, device: &StandIn, name: &str) -> memgate_e2e::Run {
    run_with(adb, device, name, "    timeout: 120s\n")
}

/// With additional lines of configuration.
fn run_with(adb: &Adb, device: &StandIn, name: &str, more: &str) -> memgate_e2e::Run {
    run_on(adb, device, &project(name, more), &["run", "--suite", "tracks"])
}

fn device(api: u32) -> memgate_e2e::stand_in::Builder {
    let app = StandIn::builder().api(api).package(Package::app(APP));
    app.package(Package::test(TESTS, RUNNER, APP))
}

#[test]
fn every_abnormal_ending_is_an_error_in_the_words_of_the_device() {
    let Some(adb) = adbs().pop() else { return };
    for (n, (stream, status, words)) in ENDINGS.into_iter().enumerate() {
        let device = device(34).instrument(Says(stream, status)).start();
        let run = run(&adb, &device, &format!("instrumentation-ending-{n}"));
        run.ends_with(2);
        assert!(run.problems().contains(words), "{words}:\n{run}");
        device.assert_clean();
    }
}

#[test]
fn an_app_in_which_the_agent_does_not_run_is_an_error_that_names_every_way_that_was_tried() {
    let passes = "INSTRUMENTATION_STATUS: class=A\nINSTRUMENTATION_STATUS: test=a\nINSTRUMENTATION_STATUS: numtests=1\nINSTRUMENTATION_STATUS_CODE: 1\n\
                  INSTRUMENTATION_STATUS: class=A\nINSTRUMENTATION_STATUS: test=a\nINSTRUMENTATION_STATUS: numtests=1\nINSTRUMENTATION_STATUS_CODE: 0\nINSTRUMENTATION_CODE: -1\n";
    let Some(adb) = adbs().pop() else { return };
    let device = device(34).instrument(Says(passes, 0)).start();
    let run = run(&adb, &device, "instrumentation-no-agent");
    run.ends_with(2);
    let told = "the agent did not report from the app (before, startup_agents: it did not answer; am set-agent-app: it did not answer)";
    assert!(run.problems().contains(told), "{run}");
    device.assert_clean();
}

#[test]
fn an_app_whose_run_nobody_hears_of_any_more_is_ended() {
    let Some(adb) = adbs().pop() else { return };
    // The agent is in the test APK, so that the run starts once the tests are listed.
    let device = device(28).instrument(Endless::default()).start();
    let tests = "shell,v2,raw:am instrument -w -r -e listener".to_owned();
    device.inject(Fault {
        when: When::Service { starts_with: tests, after_bytes: 0 },
        what: What::ServiceGarbage,
    });
    let run = run(&adb, &device, "instrumentation-endless");
    run.ends_with(2);
    assert_eq!(device.struck(), 1, "{run}");
    assert!(run.problems().contains("not measured: failed to run `am instrument"), "{run}");
    device.assert_clean();
}

#[test]
fn an_app_that_says_nothing_for_the_time_of_a_test_is_ended() {
    let Some(adb) = adbs().pop() else { return };
    let device = device(34).instrument(Endless::default()).start();
    let run = run_with(&adb, &device, "instrumentation-silent", "    timeout: 5s\n    agent: packaged\n");
    run.ends_with(2);
    assert!(
        run.problems()
            .contains("nothing came from the device for 5 s: does it hang, or is the suite's `timeout`"),
        "{run}"
    );
    assert!(run.problems().contains("is libmemgate_agent.so of the app's ABI in the test APK"), "{run}");
    device.assert_clean();
}

#[test]
fn what_cannot_be_entered_or_found_is_an_error_that_says_what_to_do() {
    let Some(adb) = adbs().pop() else { return };
    let none = StandIn::builder().start();
    let missing = run(&adb, &none, "instrumentation-missing");
    missing.ends_with(2);
    assert!(missing.problems().contains("no instrumented tests of the package"), "{missing}");
    // The current user of a car is not the first user.
    let entering = format!("run-as {APP} --user 10 id");
    let unknown = format!("run-as: unknown package: {APP}\n");
    let car = device(34).answer("am get-current-user", "10\n", 0).answer(&entering, &unknown, 1).start();
    let car = run(&adb, &car, "instrumentation-car");
    car.ends_with(2);
    assert!(car.problems().contains("is the app installed, and for the device's current user"), "{car}");
    let old = device(25).start();
    let old = run(&adb, &old, "instrumentation-old");
    old.ends_with(2);
    assert!(old.problems().contains("Android 8 (API 26) or later"), "{old}");
}
