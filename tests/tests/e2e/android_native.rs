//! Native leaks of an app on a device: the agent is loaded before everything else, as `wrap.sh` does it, and the app's own library is named, across a
//! real adb. The stand-in's app is a Java virtual machine of this machine with this machine's agent.

use memgate_e2e::stand_in::{AdbServer, adbs};
use memgate_model::{LeakKind, Metric, Verdict};

use crate::instrumentation_app::{TESTS, device_with_wrap, project};

const KEEPS: &str = "com.example.tracks.DecoderTest.keepsWhatItDecoded";
const FREES: &str = "com.example.tracks.DecoderTest.freesWhatItDecoded";

#[test]
fn a_native_leak_of_an_app_is_named_by_its_own_library_and_clean_tests_pass() {
    let Some((adb, (device, _app))) = adbs().pop().zip(device_with_wrap(34)) else { return };
    let server = AdbServer::start(&adb);
    server.connect(&device);
    let suite = format!(
        "version: 1\nsuites:\n  native:\n    runner: instrumentation\n    package: {TESTS}\n    timeout: 60s\n    arguments: {{ class: com.example.tracks.DecoderTest }}\n"
    );
    let (project, agents) = project("android-native", "");
    project.write("memgate.yaml", suite);
    let mut command = project.command(&["run"]);
    command.envs(server.environment()).env("MEMGATE_ANDROID_AGENT", &agents);
    let run = project.finish(&mut command);
    run.ends_with(1);
    let leaking = run.test(KEEPS);
    assert_eq!(leaking.verdict, Verdict::Fail, "{run}");
    let [leak] = leaking.leaks.as_slice() else { panic!("{:#?}\n{run}", leaking.leaks) };
    assert_eq!(
        (leak.kind, leak.count_per_iteration, leak.bytes_per_iteration),
        (LeakKind::Native, 2.0, 2018.0)
    );
    let names: Vec<&str> = leak.frames.iter().filter_map(|frame| frame.function.as_deref()).collect();
    assert_eq!(names[..3], ["decoded", "kept", "Java_com_example_tracks_Decoder_keep"], "{leak:#?}");
    assert!(leak.frames[0].file.as_deref().is_some_and(|file| file.ends_with("decoder.c")), "{leak:#?}");
    assert_eq!(leaking.metrics[&Metric::NativeLiveBytes].value, 2018.0);
    let clean = run.test(FREES);
    assert_eq!(clean.verdict, Verdict::Pass, "{clean:#?}\n{run}");
    device.assert_clean();
}
