//! Assigns mapping files to suites: each is selected, read once, and kept in the session.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::builds;
use super::files::{Candidate, FILE, Source, candidates};
use crate::exit::ExpectedError;
use crate::reading::stream;
use crate::session::label::Label;

/// Folder of a session with its mapping files: `mapping.txt` for all suites, `SUITE/mapping.txt` for one.
const FOLDER: &str = "mappings";

/// The mapping files of a command.
#[derive(Debug, Default)]
pub struct Mappings {
    /// For all suites.
    everywhere: Option<Named>,
    /// By configured suite name.
    suites: BTreeMap<String, Named>,
    /// Mapping files of sessions, and selected ones, by path; read on demand.
    kept: Mutex<BTreeMap<PathBuf, Result<Option<Source>, String>>>,
    /// Build information from streams: label, and mapping ids.
    told: Mutex<BTreeMap<PathBuf, (String, BTreeSet<String>)>>,
}

/// The mapping files configured for a suite.
#[derive(Debug, Clone)]
enum Named {
    One(Source),
    /// Each stream identifies its own.
    Several(Vec<Candidate>),
}

/// A suite's configuration of mapping files.
#[derive(Debug, Clone, Copy)]
pub struct OfSuite<'a> {
    /// Its configured name.
    pub suite: &'a str,
    /// Mapping files, and folders with mapping files.
    pub mapping: &'a [PathBuf],
    /// The tested APKs.
    pub apks: &'a [PathBuf],
}

impl Mappings {
    /// For a run. `everywhere`: mapping files for all suites, instead of theirs. If there are several, the suite's APKs
    /// select one.
    ///
    /// # Errors
    /// When one is missing or invalid, or none can be selected.
    pub fn for_run<'a>(
        everywhere: &[PathBuf],
        suites: impl Iterator<Item = OfSuite<'a>>,
    ) -> Result<Self, ExpectedError> {
        let mut read = Self::default();
        let everywhere = candidates(everywhere.iter().map(PathBuf::as_path))?;
        if let [only] = everywhere.as_slice() {
            read.everywhere = Some(Named::One(Source::read(&only.path)?));
            return Ok(read);
        }
        let (mut suites, mut known) = (suites.peekable(), BTreeMap::<PathBuf, Source>::new());
        if suites.peek().is_none() && !everywhere.is_empty() {
            builds::choose(&everywhere, &BTreeSet::new(), "the program").map_err(undecided)?;
        }
        for OfSuite { suite, mapping, apks } in suites {
            let own = match everywhere.as_slice() {
                [] => candidates(mapping.iter().map(PathBuf::as_path))?,
                _ => everywhere.clone(),
            };
            let path = match own.as_slice() {
                [] => continue,
                [only] => &only.path,
                several => {
                    let ids = builds::ids_of_apks(apks)?;
                    &builds::choose(several, &ids, &build_of(suite, apks)).map_err(undecided)?.path
                }
            };
            let source = match known.get(path) {
                Some(source) => source.clone(),
                None => known.entry(path.clone()).or_insert(Source::read(path)?).clone(),
            };
            read.suites.insert(suite.to_owned(), Named::One(source));
        }
        Ok(read)
    }

    /// For recorded streams: with several mapping files, each stream identifies its own.
    ///
    /// # Errors
    /// When one is missing or invalid.
    pub fn for_streams<'a>(
        everywhere: &[PathBuf],
        suites: impl Iterator<Item = (&'a str, &'a [PathBuf])>,
    ) -> Result<Self, ExpectedError> {
        let named = |candidates: Vec<Candidate>| -> Result<Option<Named>, ExpectedError> {
            match candidates.as_slice() {
                [] => Ok(None),
                [only] => Ok(Some(Named::One(Source::read(&only.path)?))),
                _ => Ok(Some(Named::Several(candidates))),
            }
        };
        let everywhere = named(candidates(everywhere.iter().map(PathBuf::as_path))?)?;
        let mut read = Self { everywhere, ..Self::default() };
        if read.everywhere.is_none() {
            for (suite, paths) in suites {
                let named = named(candidates(paths.iter().map(PathBuf::as_path))?)?;
                read.suites.extend(named.map(|named| (suite.to_owned(), named)));
            }
        }
        Ok(read)
    }

    /// A stack trace with original names; `suite` is the configured name.
    #[must_use]
    pub fn retraced(&self, suite: &str, trace: &str) -> String {
        self.of_configured(suite).map_or_else(|| trace.to_owned(), |source| source.mapping.trace(trace))
    }

    /// Converts class patterns with original names into the names of a suite's program.
    #[must_use]
    pub fn renamed(&self, suite: &str, patterns: Vec<String>) -> Vec<String> {
        match self.of_configured(suite) {
            Some(source) => super::patterns::renamed(source.mapping, patterns),
            None => patterns,
        }
    }

    /// The mapping of a suite by its configured name; the wrapped command has no name.
    pub(super) fn of_configured(&self, suite: &str) -> Option<&Source> {
        match self.everywhere.as_ref().or_else(|| self.suites.get(suite))? {
            Named::One(source) => Some(source),
            Named::Several(_) => None,
        }
    }

    /// Copies the files into a session.
    ///
    /// # Errors
    /// When the session cannot be written.
    pub fn keep(&self, session: &Path) -> Result<(), ExpectedError> {
        let root = session.join(FOLDER);
        let of_suites = self.suites.iter().map(|(suite, named)| (root.join(suite), named));
        for (folder, named) in self.everywhere.iter().map(|named| (root.clone(), named)).chain(of_suites) {
            let Named::One(source) = named else { continue };
            fs::create_dir_all(&folder).map_err(ExpectedError::file("create", &folder))?;
            let copy = folder.join(FILE);
            fs::copy(&source.path, &copy).map_err(ExpectedError::file("write", &copy))?;
        }
        Ok(())
    }

    /// The mapping of a suite by its name in a stream; `stream`: that stream, if it is a file.
    pub(super) fn of(&self, suite: &str, stream: Option<&Path>) -> Result<Option<Source>, String> {
        let named = match &self.everywhere {
            Some(named) => Some(named),
            None => {
                let session = stream.and_then(Path::parent).and_then(Path::parent);
                let kept = session.map(|session| session.join(FOLDER));
                let suite = self.configured(suite, kept.as_deref());
                for folder in kept.iter().flat_map(|root| [root.join(&suite), root.to_owned()]) {
                    if let Some(source) = self.kept(&folder.join(FILE))? {
                        return Ok(Some(source));
                    }
                }
                self.suites.get(&suite)
            }
        };
        match named {
            None => Ok(None),
            Some(Named::One(source)) => Ok(Some(source.clone())),
            Some(Named::Several(candidates)) => {
                let ids = stream.map(|stream| self.told(stream)).unwrap_or_default();
                let chosen = builds::choose(candidates, &ids, "the recorded program")?;
                self.kept(&chosen.path)
            }
        }
    }

    /// The mapping ids that a stream's build names. If it names none, another stream of the same suite in the same
    /// folder may.
    fn told(&self, stream: &Path) -> BTreeSet<String> {
        let (label, own) = self.told_by(stream);
        if !own.is_empty() {
            return own;
        }
        let suite = Label::from_text(&label).into_suite();
        let beside = stream.parent().map(stream::streams_in).into_iter().flatten().flatten();
        let told = beside.map(|other| self.told_by(&other));
        let same = told.filter(|(label, _)| is_same(&suite, &Label::from_text(label).into_suite()));
        same.flat_map(|(_, ids)| ids).collect()
    }

    fn told_by(&self, stream: &Path) -> (String, BTreeSet<String>) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.entry(stream.to_owned()).or_insert_with(|| builds::ids_of_stream(stream)).clone()
    }

    /// The configured name of a suite: reports add a suffix to separate its parts (`app/module`, `app (2)`).
    fn configured(&self, suite: &str, kept: Option<&Path>) -> String {
        let is_known = |name: &str| {
            self.suites.contains_key(name) || kept.is_some_and(|root| root.join(name).join(FILE).is_file())
        };
        let ends = suite.char_indices().filter(|(_, c)| matches!(c, '/' | ' ')).map(|(at, _)| at);
        let names = ends.chain([suite.len()]).filter_map(|end| suite.get(..end));
        let is_name =
            |name: &&str| !name.is_empty() && !name.contains(['/', '\0']) && *name != "." && *name != "..";
        names.filter(is_name).find(|name| is_known(name)).unwrap_or_default().to_owned()
    }

    fn kept(&self, file: &Path) -> Result<Option<Source>, String> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let read = || match file.is_file() {
            true => Source::read(file).map(Some).map_err(|why| why.to_string()),
            false => Ok(None),
        };
        kept.entry(file.to_owned()).or_insert_with(read).clone()
    }
}

fn undecided(why: String) -> ExpectedError {
    ExpectedError::usage(
        why,
        "name the mapping.txt of the tested build, or the APKs that are tested (`suites.NAME.apks`)",
    )
}

/// A description of the build that the APKs of a suite belong to.
fn build_of(suite: &str, apks: &[PathBuf]) -> String {
    let names = apks.iter().filter_map(|apk| apk.file_name()).map(|name| name.to_string_lossy());
    match apks {
        [] => format!("the suite `{suite}`, which has no `apks`,"),
        _ => format!("the code of the suite `{suite}` ({})", names.collect::<Vec<_>>().join(", ")),
    }
}

/// Whether two labels mean the same configured suite. Reports add a suffix to separate its parts (`app/module`, `app
/// (2)`).
fn is_same(one: &str, other: &str) -> bool {
    let is_part = |part: &str, whole: &str| {
        part.strip_prefix(whole).is_some_and(|more| more.is_empty() || more.starts_with(['/', ' ']))
    };
    is_part(one, other) || is_part(other, one)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "com.example.Tile -> a.b:\n";

    fn written(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn of<'a>(suite: &'a str, mapping: &'a PathBuf) -> OfSuite<'a> {
        OfSuite { suite, mapping: std::slice::from_ref(mapping), apks: &[] }
    }

    fn suites(suites: &[(&str, &PathBuf)]) -> Mappings {
        Mappings::for_run(&[], suites.iter().map(|(suite, path)| of(suite, path))).unwrap()
    }

    /// The mapping file selected for a stream of a session.
    fn path(mappings: &Mappings, suite: &str, session: Option<&Path>) -> Option<PathBuf> {
        let stream = session.map(|session| session.join("frames/1-1.mgf"));
        mappings.of(suite, stream.as_deref()).unwrap().map(|source| source.path)
    }

    #[test]
    fn a_suite_has_its_own_mapping_whatever_reports_call_its_parts() {
        let folder = tempfile::tempdir().unwrap();
        let (app, other) = (written(folder.path(), "a.txt", TEXT), written(folder.path(), "b.txt", TEXT));
        let mappings = suites(&[("app", &app), ("app.two", &other)]);
        for (suite, want) in [
            ("app", Some(&app)),
            ("app/core", Some(&app)),
            ("app (2)", Some(&app)),
            ("app.two", Some(&other)),
            ("apple", None),
            ("", None),
            ("../app", None),
        ] {
            assert_eq!(path(&mappings, suite, None).as_ref(), want, "{suite}");
        }
        assert!(is_same("app", "app/core") && is_same("app (2)", "app") && !is_same("apple", "app"));
    }

    #[test]
    fn a_session_keeps_its_mapping_and_the_command_line_comes_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let app = written(folder.path(), "a.txt", TEXT);
        let session = folder.path().join("session");
        suites(&[("app", &app)]).keep(&session).unwrap();
        let kept = session.join(FOLDER);
        let nothing = Mappings::default();
        assert_eq!(path(&nothing, "app/core", Some(&session)), Some(kept.join("app/mapping.txt")));
        assert_eq!(path(&nothing, "other", Some(&session)), None);
        let typed = Mappings::for_run(std::slice::from_ref(&app), std::iter::empty()).unwrap();
        assert_eq!(path(&typed, "app", Some(&session)), Some(app.clone()));
        typed.keep(&session).unwrap();
        let everyones = path(&Mappings::default(), "other", Some(&session));
        assert_eq!(everyones, Some(kept.join(FILE)), "for every suite");
        fs::write(kept.join("app/mapping.txt"), "<html>").unwrap();
        let why = Mappings::default().of("app", Some(&session.join("frames/1-1.mgf"))).unwrap_err();
        assert!(why.contains("app/mapping.txt") && why.contains("line 1: no class"), "{why}");
    }

    /// An APK whose code names its mapping file.
    fn apk(folder: &Path, name: &str, id: &str) -> PathBuf {
        let code = format!("dex\n~~R8{{\"backend\":\"dex\",\"pg-map-id\":\"{id}\"}}");
        let length = u32::try_from(code.len()).unwrap().to_le_bytes();
        let (head, entry) = (&b"classes2.dex"[..], [&[0; 4], &length[..], &length, &[12, 0, 0, 0]].concat());
        let mut zip = [&b"PK\x03\x04"[..], &[0; 10], &entry, head, code.as_bytes()].concat();
        let directory = u32::try_from(zip.len()).unwrap().to_le_bytes();
        zip.extend([&b"PK\x01\x02"[..], &[0; 12], &entry, &[0; 14], head].concat());
        zip.extend([&b"PK\x05\x06"[..], &[0; 4], &[1, 0, 1, 0], &[0; 4], &directory, &[0; 2]].concat());
        let path = folder.join(name);
        fs::write(&path, zip).unwrap();
        path
    }

    #[test]
    fn of_several_mapping_files_a_run_takes_the_one_that_the_apk_was_made_with() {
        let folder = tempfile::tempdir().unwrap();
        let mapped = |variant: &str, id: &str| {
            written(
                folder.path(),
                &format!("mapping/{variant}/mapping.txt"),
                &format!("# pg_map_id: {id}\n{TEXT}"),
            )
        };
        let (free, paid) = (mapped("free", "1111111"), mapped("paid", "4eb8288"));
        let all = folder.path().join("mapping");
        let (folders, listed) = ([all.clone()], [free, paid.clone(), all.clone()]);
        let run = |apks: &[PathBuf]| {
            let run = |everywhere: &[PathBuf], mapping: &[PathBuf]| {
                let read =
                    Mappings::for_run(everywhere, std::iter::once(OfSuite { suite: "app", mapping, apks }));
                read.map(|read| path(&read, "app", None))
            };
            let configured = run(&[], &folders);
            for same in [run(&folders, &[]), run(&[], &listed), run(&listed, &folders)] {
                assert_eq!(configured.as_ref().ok(), same.as_ref().ok());
            }
            configured.map_err(|why| format!("{why} ({})", why.hint().unwrap_or_default()))
        };
        let tests = apk(folder.path(), "tests.apk", "");
        assert_eq!(run(&[apk(folder.path(), "app.apk", "4eb8288"), tests]), Ok(Some(paid)));
        let why = run(&[apk(folder.path(), "old.apk", "0000000")]).unwrap_err();
        assert!(
            why.contains("the code of the suite `app` (old.apk) was renamed by the mapping 0000000"),
            "{why}"
        );
        let why = run(&[]).unwrap_err();
        assert!(
            why.contains("free/mapping.txt (1111111)") && why.contains("paid/mapping.txt (4eb8288)"),
            "{why}"
        );
        assert!(
            why.contains("the suite `app`, which has no `apks`, names none")
                && why.contains("suites.NAME.apks"),
            "{why}"
        );
        let why = Mappings::for_run(&[all], std::iter::empty()).unwrap_err().to_string();
        assert!(why.contains("the program names none"), "{why}");
    }
}
