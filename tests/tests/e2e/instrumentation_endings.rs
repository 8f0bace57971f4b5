//! Every way in which `am instrument` ends badly is an error that repeats what the device said, and nothing stays on the device.

use memgate_e2e::stand_in::{Adb, AdbServer, Instrument, Instrumentation, Package, StandIn, Terminal, adbs};

use crate::instrumentation_app::{APP, RUNNER, TESTS, project};

/// An app that says this, whatever it is asked, and has no agent in it.
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

fn run(adb: &Adb, device: &StandIn, name: &str) -> memgate_e2e::Run {
    let server = AdbServer::start(adb);
    server.connect(device);
    let (project, agents) = project(name, "    timeout: 120s\n");
    let mut command = project.command(&["run", "--suite", "tracks"]);
    command.envs(server.environment()).env("MEMGATE_ANDROID_AGENT", &agents);
    project.finish(&mut command)
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
    assert!(run.problems().contains("the agent did not report from the app"), "{run}");
    device.assert_clean();
}

#[test]
fn what_cannot_be_entered_or_found_is_an_error_that_says_what_to_do() {
    let Some(adb) = adbs().pop() else { return };
    let none = StandIn::builder().start();
    let missing = run(&adb, &none, "instrumentation-missing");
    missing.ends_with(2);
    assert!(missing.problems().contains("no instrumented tests of the package"), "{missing}");
    let old = device(25).start();
    let old = run(&adb, &old, "instrumentation-old");
    old.ends_with(2);
    assert!(old.problems().contains("Android 8 (API 26) or later"), "{old}");
}
