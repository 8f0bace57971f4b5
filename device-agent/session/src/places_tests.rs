//! Pure parts of the platform. The agent itself is a cdylib that takes over `malloc`, so they are
//! tested from their source.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "a part of another crate, compiled alone")]

#[path = "../src/platform/places.rs"]
mod places;

use places::{in_data, is_options, option_files, package_of};

#[test]
fn the_app_is_found_on_the_command_line() {
    for (command_line, package) in [
        ("com.example.app\0", "com.example.app"),
        // A process of the app's own choice; and the name is padded when it was set over a longer
        // one.
        ("com.example.app:remote\0\0\0\0", "com.example.app"),
        // Started by `wrap.sh`, before it has its name.
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
fn options_are_looked_for_beside_the_library_and_in_the_apps_data() {
    let data = ["/data/user/10/com.example.app", "/data/data/com.example.app"].map(in_data);
    assert_eq!(data[0], "/data/user/10/com.example.app/code_cache/memgate.options");
    let cache = "/data/user/10/com.example.app/code_cache";
    for library in [format!("{cache}/libmemgate_agent.so"), format!("{cache}/startup_agents/x.so")] {
        let files = option_files(&library, "com.example.app", 1_010_123);
        assert_eq!(files, [data[0].clone(), data[0].clone(), data[1].clone()], "{library}");
    }
    // A library of the package lies elsewhere; without a name there is no folder of data.
    let library = "/data/app/~~x==/com.example.app-y==/lib/arm64/libmemgate_agent.so";
    assert_eq!(option_files(library, "com.example.app", 1_010_123), data);
    assert!(option_files("libmemgate_agent.so", "", 0).is_empty());
    assert!(option_files("", "../../x", 0).is_empty(), "a name is no path");
}

#[test]
fn what_an_entry_is_told_is_a_path_or_the_options() {
    assert!(is_options("carrier=app;token=x"));
    // What startup_agents passes, and a path that holds an equals sign.
    assert!(!is_options("/data/user/0/com.example.app"));
    assert!(!is_options("/data/app/~~x==/memgate.options"));
    assert!(!is_options(""));
}
