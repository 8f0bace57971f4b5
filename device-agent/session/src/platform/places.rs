//! Where an app's agent looks for what it is told: paths and names, from what the process knows of
//! itself. Pure.

/// Name of the file with the options, in an app's `code_cache`.
const FILE: &str = "memgate.options";
/// User ids of one user of the device.
const IDS_PER_USER: u32 = 100_000;

/// The app of a process, from its command line. A process of the app's own choice is called
/// `PACKAGE:NAME`; one that a `wrap.sh` has started is still called `app_process64` at first, and
/// its name is among its arguments.
pub(crate) fn package_of(command_line: &[u8]) -> String {
    let text = String::from_utf8_lossy(command_line);
    let mut words = text.split('\0');
    let name = words.next().unwrap_or_default();
    let nice = words.find_map(|word| word.strip_prefix("--nice-name="));
    let starts = name.rsplit('/').next().is_some_and(|file| file.starts_with("app_process"));
    let process = if starts { nice.unwrap_or_default() } else { name };
    process.split(':').next().unwrap_or_default().to_owned()
}

/// Where the file with the options may lie, best first: beside the library if that lies in a
/// `code_cache`, or in a folder of it, and in the app's data folder.
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

/// Is this text of an entry itself the options, and no path?
pub(crate) fn is_options(text: &str) -> bool {
    !text.starts_with('/') && text.contains('=')
}
