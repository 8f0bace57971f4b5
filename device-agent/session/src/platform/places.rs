//! Computes where an app's agent looks for its options: paths and names, derived from what the process knows about
//! itself, and whether a file still counts. Pure functions.

use std::time::Duration;

use memgate_wire::options::Options;

/// Name of the file with the options, in an app's `code_cache`.
const FILE: &str = "memgate.options";
/// The harness writes its file just before it starts the app. It waits less than a minute for the device and the app.
const COUNTS_FOR: Duration = Duration::from_secs(600);
/// Number of user ids per user of the device.
const IDS_PER_USER: u32 = 100_000;

/// The app of a process, from its command line. A process that the app named itself is called `PACKAGE:NAME`.
pub(crate) fn package_of(command_line: &[u8]) -> String {
    process_of(command_line).split(':').next().unwrap_or_default().to_owned()
}

/// Is this a process of the app that the harness does not look for, because it is not named by its package?
pub(crate) fn is_other(command_line: &[u8], package: &str) -> bool {
    let process = process_of(command_line);
    // A process that is not yet the app's has a name without a dot. The system cuts a very long name.
    process.contains('.') && !package.starts_with(&process)
}

/// The name of a process. One that a `wrap.sh` has started is still called `app_process64` at first; its name is among
/// its arguments.
fn process_of(command_line: &[u8]) -> String {
    let text = String::from_utf8_lossy(command_line);
    let mut words = text.split('\0');
    let name = words.next().unwrap_or_default();
    let nice = words.find_map(|word| word.strip_prefix("--nice-name="));
    let starts = name.rsplit('/').next().is_some_and(|file| file.starts_with("app_process"));
    if starts { nice.unwrap_or_default() } else { name }.to_owned()
}

/// Where the options file may be, best first: next to the library if that is in a `code_cache` or in a folder of it,
/// and in the app's data folder.
pub(crate) fn option_files(library: &str, package: &str, user_id: u32) -> Vec<String> {
    let mut files = Vec::new();
    if let Some((folder, _)) = library.rsplit_once('/') {
        let cache = folder.strip_suffix("/startup_agents").unwrap_or(folder);
        if cache.ends_with("/code_cache") {
            files.push(format!("{cache}/{FILE}"));
        }
    }
    if !package.is_empty() && !package.contains('/') {
        let user = user_id / IDS_PER_USER;
        files.push(in_data(&format!("/data/user/{user}/{package}")));
        files.push(in_data(&format!("/data/data/{package}")));
    }
    files
}

/// The file in this data folder.
pub(crate) fn in_data(folder: &str) -> String {
    format!("{}/code_cache/{FILE}", folder.trim_end_matches('/'))
}

/// Were these options of a file written by a harness that no longer waits for the app? The app would wait for it at
/// each start. Users write files without a harness, which count for ever.
pub(crate) fn is_left_behind(options: &Options, age: Option<Duration>) -> bool {
    options.harness && age.is_some_and(|age| age > COUNTS_FOR)
}

/// Is this text of an entry itself the options, and not a path?
pub(crate) fn is_options(text: &str) -> bool {
    !text.starts_with('/') && text.contains('=')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_app_is_found_on_the_command_line() {
        for (command_line, package) in [
            ("com.example.app\0", "com.example.app"),
            // The app itself named this process. The name is padded if it replaced a longer one.
            ("com.example.app:remote\0\0\0\0", "com.example.app"),
            // `wrap.sh` started this process, which has no name yet.
            (
                "/system/bin/app_process64\0/system/bin\0--application\0--nice-name=com.example.app\0com.android.internal.os.WrapperInit\0",
                "com.example.app",
            ),
            ("app_process64\0/system/bin\0", ""),
            ("", ""),
        ] {
            assert_eq!(package_of(command_line.as_bytes()), package, "{command_line:?}");
        }
    }

    #[test]
    fn a_process_that_the_harness_does_not_look_for_is_known_by_its_name() {
        for (command_line, other) in [
            ("com.example.app\0\0", false),
            ("com.example.app:remote\0", true),
            ("com.example.sync\0", true),
            ("com.exam", false),
            ("<pre-initialized>\0", false),
            ("/system/bin/app_process64\0--nice-name=com.example.app:remote\0", true),
        ] {
            assert_eq!(is_other(command_line.as_bytes(), "com.example.app"), other, "{command_line:?}");
        }
    }

    #[test]
    fn options_are_looked_for_beside_the_library_and_in_the_apps_data() {
        let data = ["/data/user/10/com.example.app", "/data/data/com.example.app"].map(in_data);
        assert_eq!(data[0], "/data/user/10/com.example.app/code_cache/memgate.options");
        let cache = "/data/user/10/com.example.app/code_cache";
        for library in [format!("{cache}/libmemgate_agent.so"), format!("{cache}/startup_agents/x.so")] {
            let files = option_files(&library, "com.example.app", 1_010_123);
            assert_eq!(files, [data[0].clone(), data[0].clone(), data[1].clone()], "{library}");
        }
        // A library of the package is in another folder. Without a name there is no data folder.
        let library = "/data/app/~~x==/com.example.app-y==/lib/arm64/libmemgate_agent.so";
        assert_eq!(option_files(library, "com.example.app", 1_010_123), data);
        assert!(option_files("libmemgate_agent.so", "", 0).is_empty());
        assert!(option_files("", "../../x", 0).is_empty(), "a name is no path");
    }

    #[test]
    fn a_file_of_a_harness_that_was_killed_counts_for_ten_minutes_only() {
        for (text, seconds, left_behind) in [
            ("harness=1;carrier=app", Some(599), false),
            ("harness=1;carrier=app", Some(601), true),
            // The clock was set back.
            ("harness=1;carrier=app", None, false),
            // Without adb, somebody wrote the file once.
            ("dir=/sdcard/x", Some(86_400), false),
        ] {
            let (options, age) = (super::super::parse(text), seconds.map(Duration::from_secs));
            assert_eq!(is_left_behind(&options, age), left_behind, "{text} {seconds:?}");
        }
    }

    #[test]
    fn what_an_entry_is_told_is_a_path_or_the_options() {
        assert!(is_options("carrier=app;token=x"));
        // The argument of startup_agents, and a path that contains an equals sign.
        assert!(!is_options("/data/user/0/com.example.app"));
        assert!(!is_options("/data/app/~~x==/memgate.options"));
        assert!(!is_options(""));
    }
}
