//! Reads the files a command depends on: memgate.yaml, the waivers file, the baseline. Only this module passes the
//! environment to the configuration.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use memgate_config::{Baseline, Config, FileRef};

use crate::bounded;
use crate::exit::ExpectedError;
use crate::origin;
use crate::output::Console;
use crate::plan::{Settings, World, narrows};

/// Used if no other file is named.
const DEFAULT_FILE: &str = "memgate.yaml";
/// A common wrong name, which is not read.
const OTHER_FILE: &str = "memgate.yml";
/// Limits the read: a device has no end. (A file over 1 MiB is refused with its place after it was read.)
const LONGEST_YAML: u64 = 16 << 20;
/// Maximum size of a baseline: each test has some hundred bytes.
const LONGEST_BASELINE: u64 = 256 << 20;
/// The configuration if there is no file.
pub(super) const EMPTY: &str = "version: 1\n";

/// Reads the file `named`, or memgate.yaml if it exists, or uses the defaults.
pub(super) fn load(named: Option<&Path>, console: &Console) -> Result<Settings, ExpectedError> {
    let (file, source) = match read_config(named)? {
        Some((file, source)) => (Some(file), source),
        // `memgate waive` and `memgate baseline accept` need no configuration, so the files they wrote apply without
        // one too.
        None => (None, EMPTY.to_owned()),
    };
    let shown = file.as_deref().unwrap_or(Path::new(DEFAULT_FILE));
    let root = shown.parent().unwrap_or(Path::new("")).to_owned();
    parsed(&source, shown, root, console).map(|settings| Settings { file, ..settings })
}

fn parsed(source: &str, shown: &Path, root: PathBuf, console: &Console) -> Result<Settings, ExpectedError> {
    let waivers = waivers(&root, &Config::waivers_file_of(source, &variable))?;
    let named_waivers = waivers.as_ref().map(|(name, text)| (name.as_str(), text.as_str()));
    let shown = shown.display().to_string();
    let config = Config::parse(source, &shown, &variable, named_waivers).map_err(|mistakes| {
        ExpectedError::Configuration(mistakes.render(console.stderr_screen(false).colour))
    })?;
    let baseline = baseline(&root, &config.baseline)?;
    Ok(Settings { config, file: None, root, baseline })
}

/// Path of the waivers file that `memgate waive` writes.
pub(super) fn waivers_file(named: Option<&Path>) -> Result<PathBuf, ExpectedError> {
    Ok(match read_config(named)? {
        Some((file, source)) => {
            let root = file.parent().unwrap_or(Path::new("")).to_owned();
            root.join(Config::waivers_file_of(&source, &variable).path)
        }
        None => match unread() {
            Some(above) => {
                return Err(ExpectedError::usage(
                    format!("cannot waive here: the configuration is {}", above.display()),
                    "run memgate in its folder, or name it by --config",
                ));
            }
            None => Config::default().waivers_file.path,
        },
    })
}

/// The current date and folders.
pub(super) fn world() -> Result<World, ExpectedError> {
    let directory =
        std::env::current_dir().map_err(ExpectedError::file("find", "the working directory".as_ref()))?;
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    let variables = std::env::vars_os().filter_map(text);
    let mut narrowing: Vec<(String, String)> =
        variables.filter(|(name, value)| narrows(name, value)).collect();
    narrowing.sort();
    let project = origin::project_root().unwrap_or_else(|| directory.clone());
    Ok(World { today: jiff::Zoned::now().date(), directory, project, narrowing })
}

/// The path of the configuration, whether it exists or not.
pub(super) fn path(named: Option<&Path>) -> &Path {
    named.unwrap_or(Path::new(DEFAULT_FILE))
}

fn read_config(named: Option<&Path>) -> Result<Option<(PathBuf, String)>, ExpectedError> {
    let path = path(named);
    // A named file may be a pipe: `--config <(envsubst < memgate.yaml)`.
    let found = if named.is_some() { read_any(path, LONGEST_YAML) } else { read(path) };
    match found {
        Ok(None) if named.is_some() => {
            Err(ExpectedError::usage(format!("cannot read {}: no such file", path.display()), ""))
        }
        Ok(None) if Path::new(OTHER_FILE).exists() => Err(ExpectedError::usage(
            format!("{OTHER_FILE} is not read: the file is called {DEFAULT_FILE}"),
            format!("rename it, or name it: --config {OTHER_FILE}"),
        )),
        found => Ok(found?.map(|source| (path.to_owned(), source))),
    }
}

/// A warning about a memgate.yaml in a parent folder of the same repository, if this folder has none.
pub(super) fn not_read(settings: &Settings) -> Option<String> {
    if settings.file.is_some() {
        return None;
    }
    let above = unread()?.display().to_string();
    Some(format!("{above} is not read: run memgate in its folder, or name it by --config"))
}

fn unread() -> Option<PathBuf> {
    above(&std::env::current_dir().ok()?, &origin::project_root()?)
}

fn above(here: &Path, project: &Path) -> Option<PathBuf> {
    let folders = here.ancestors().skip(1).take_while(|folder| folder.starts_with(project));
    folders.map(|folder| folder.join(DEFAULT_FILE)).find(|file| file.is_file())
}

/// The text of a file; `None`: there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<String>, ExpectedError> {
    read_file(path, LONGEST_YAML)
}

fn read_file(path: &Path, longest: u64) -> Result<Option<String>, ExpectedError> {
    if fs::metadata(path).is_ok_and(|there| there.file_type().is_fifo()) {
        // A pipe may never get a writer.
        return Err(ExpectedError::file("read", path)(io::Error::other("it is a pipe, not a file")));
    }
    read_any(path, longest)
}

fn read_any(path: &Path, longest: u64) -> Result<Option<String>, ExpectedError> {
    let bytes = match bounded::read(path, longest) {
        Ok(bytes) => bytes,
        Err(why) if why.kind() == ErrorKind::NotFound && path.is_symlink() => {
            // A link shows that a file is wanted: the defaults would be wrong.
            return Err(ExpectedError::file("read", path)(io::Error::other("its link leads nowhere")));
        }
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(ExpectedError::file("read", path)(why)),
    };
    let text = text(bytes).map_err(|why| {
        ExpectedError::Configuration(format!("{}:{why}\nhint: save it as UTF-8", path.display()))
    })?;
    // A parser's error would not show that it is a merge conflict.
    if let Some(line) = text.lines().position(|line| line.starts_with("<<<<<<< ")) {
        let why = format!("line {} begins a conflict of git", line + 1);
        return Err(ExpectedError::session(path, why, "resolve it, then run memgate again"));
    }
    Ok(Some(text))
}

/// Invalid UTF-8 is reported with its line and column.
fn text(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|why| {
        let (before, rest) = why.as_bytes().split_at(why.utf8_error().valid_up_to());
        let before = String::from_utf8_lossy(before);
        let (line, last) = (before.matches('\n').count() + 1, before.rsplit('\n').next().unwrap_or_default());
        let column = last.chars().count() + 1;
        let byte = rest.first().copied().unwrap_or_default();
        format!("{line}:{column}: the byte 0x{byte:02x} is no text in UTF-8")
    })
}

/// Configured secrets that are missing: messages that need them cannot be sent. (An upload reports this itself, with
/// advice.)
pub(super) fn missing_secrets(config: &Config) -> Vec<String> {
    let missing = |(key, name): &(&str, &str)| {
        *key != "history.token" && variable(name).is_none_or(|value| value.is_empty())
    };
    let told =
        |(key, name): (&str, &str)| format!("the environment has no variable `{name}`, which {key} names");
    config.secrets().into_iter().filter(missing).map(told).collect()
}

pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Name and text of the waivers file. A missing file is no error, even if its name is configured.
fn waivers(root: &Path, file: &FileRef) -> Result<Option<(String, String)>, ExpectedError> {
    let path = root.join(&file.path);
    Ok(read(&path)?.map(|text| (path.display().to_string(), text)))
}

/// A missing baseline file is no error either.
fn baseline(root: &Path, file: &FileRef) -> Result<Option<Baseline>, ExpectedError> {
    let path = root.join(&file.path);
    let Some(text) = read_file(&path, LONGEST_BASELINE)? else { return Ok(None) };
    Baseline::from_json(&text).map(Some).map_err(|why| {
        let why = why.to_string();
        let (why, hint) = why.split_once("\nhint: ").unwrap_or((&why, ""));
        ExpectedError::Session { path, why: why.to_owned(), hint: hint.to_owned() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ColorChoice;

    #[test]
    fn a_file_in_another_encoding_is_told_with_its_place() {
        assert_eq!(text(b"version: 1\n".to_vec()).as_deref(), Ok("version: 1\n"));
        let told = text(b"version: 1\n# \xc3\xa9\xe9t\xe9\n".to_vec());
        assert_eq!(told, Err("2:4: the byte 0xe9 is no text in UTF-8".to_owned()));
    }

    fn loaded(files: &[(&str, &str)]) -> Result<Settings, ExpectedError> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        load(Some(&folder.path().join("memgate.yaml")), &Console::new(ColorChoice::Never))
    }

    #[test]
    fn waivers_and_baseline_are_read_beside_the_configuration() {
        let waivers = "waivers: [{ leak: n1-5f1c09a2b47d1e03, reason: known, until: never }]";
        let settings = loaded(&[
            ("memgate.yaml", "version: 1\nproject: tiles"),
            ("memgate-waivers.yaml", waivers),
            ("memgate-baseline.json", r#"{"schema_version": 1, "suites": {}}"#),
        ])
        .unwrap();
        assert_eq!(settings.config.project.as_deref(), Some("tiles"));
        assert_eq!(settings.config.waivers.len(), 1);
        assert!(settings.baseline.is_some());
    }

    #[test]
    fn what_was_waived_holds_without_a_configuration_too() {
        let folder = tempfile::tempdir().unwrap();
        let waivers = "waivers: [{ leak: n1-5f1c09a2b47d1e03, reason: known, until: never }]";
        fs::write(folder.path().join("memgate-waivers.yaml"), waivers).unwrap();
        let console = Console::new(ColorChoice::Never);
        let settings = parsed(EMPTY, Path::new(DEFAULT_FILE), folder.path().to_owned(), &console).unwrap();
        assert_eq!(settings.config.waivers.len(), 1);
    }

    #[test]
    fn a_mistake_is_shown_with_its_line_and_ends_with_two() {
        let error = loaded(&[("memgate.yaml", "version: 1\nsuits: {}")]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let text = error.to_string();
        assert!(text.contains("suits") && text.contains("memgate.yaml:2"), "{text}");
    }

    #[test]
    fn a_conflict_of_git_is_told_as_one() {
        let conflict = "version: 1\n<<<<<<< HEAD\n=======\n>>>>>>> other\n";
        for name in ["memgate.yaml", "memgate-waivers.yaml", "memgate-baseline.json"] {
            let error = loaded(&[("memgate.yaml", "version: 1"), (name, conflict)]).unwrap_err().to_string();
            assert!(error.ends_with(&format!("{name}: line 2 begins a conflict of git")), "{error}");
        }
    }

    #[test]
    fn a_configuration_that_was_named_must_be_there() {
        let error = loaded(&[]).unwrap_err().to_string();
        assert!(error.starts_with("cannot read") && error.ends_with("memgate.yaml: no such file"), "{error}");
    }

    #[test]
    fn a_pipe_that_nobody_named_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memgate-waivers.yaml");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        fs::write(folder.path().join("memgate.yaml"), "version: 1").unwrap();
        let console = Console::new(ColorChoice::Never);
        let error = load(Some(&folder.path().join("memgate.yaml")), &console).unwrap_err().to_string();
        assert!(error.ends_with("memgate-waivers.yaml: it is a pipe, not a file"), "{error}");
    }

    #[test]
    fn a_link_that_leads_nowhere_is_an_error_and_not_the_defaults() {
        for name in ["memgate.yaml", "memgate-waivers.yaml", "memgate-baseline.json"] {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("memgate.yaml"), "version: 1").unwrap();
            let path = folder.path().join(name);
            drop(fs::remove_file(&path));
            std::os::unix::fs::symlink("gone", &path).unwrap();
            let console = Console::new(ColorChoice::Never);
            let error = load(Some(&folder.path().join("memgate.yaml")), &console).unwrap_err().to_string();
            assert!(error.ends_with(&format!("{name}: its link leads nowhere")), "{error}");
            assert!(read(&path).is_err(), "{name}, where nobody names it");
        }
    }

    #[test]
    fn what_has_no_end_is_not_read_to_its_end() {
        let error =
            load(Some(Path::new("/dev/zero")), &Console::new(ColorChoice::Never)).unwrap_err().to_string();
        assert!(error.ends_with("/dev/zero: it is longer than 16.0 MiB"), "{error}");
    }

    #[test]
    fn a_configuration_above_is_told_of_as_far_as_the_project_goes() {
        let folder = tempfile::tempdir().unwrap();
        let (project, here) = (folder.path().join("tiles"), folder.path().join("tiles/build/debug"));
        fs::create_dir_all(&here).unwrap();
        fs::write(folder.path().join("memgate.yaml"), "").unwrap();
        assert_eq!(above(&here, &project), None, "another project's");
        fs::write(project.join("memgate.yaml"), "").unwrap();
        assert_eq!(above(&here, &project), Some(project.join("memgate.yaml")));
        assert_eq!(above(&project, &project), None);
    }

    #[test]
    fn a_broken_baseline_is_an_error_with_advice() {
        let files = [("memgate.yaml", "version: 1"), ("memgate-baseline.json", r#"{"schema_version": 7}"#)];
        let error = loaded(&files).unwrap_err();
        assert!(error.hint().unwrap().contains("memgate baseline accept"));
    }
}
