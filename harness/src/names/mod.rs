//! Original names of Java programs that R8 or ProGuard renamed.
//!
//! Data flow: mapping files (of `suites.NAME.mapping`, of `--mapping`, of a session) → each read once, and kept as long as the program
//! runs → a [`Renamer`] for each stream, which takes the mapping of the suite that the stream's hello names → frames with original names,
//! before anything looks at them. So ids, thresholds, waivers, baselines and reports know original names only. The stream itself
//! keeps what the agent saw; beside it the session keeps a copy of the mapping, so that it can be judged again anywhere.
//!
//! Names of tests stay as they are: they are what the runner is asked for.

mod rename;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use memgate_formats::mapping::Mapping;

pub use self::rename::Renamer;
use crate::exit::ExpectedError;

/// Folder of a session with its mapping files: `mapping.txt` for every suite, `SUITE/mapping.txt` for one.
const FOLDER: &str = "mappings";
const FILE: &str = "mapping.txt";
/// R8's file of a large app has some 100 MB.
const LARGEST: u64 = 1 << 30;
/// Folders below the one that was named, as the Android Gradle plugin nests them: `outputs/mapping/VARIANT`.
const DEEPEST: usize = 4;

/// The mapping files of a command.
#[derive(Debug, Default)]
pub struct Mappings {
    /// Of all suites.
    everywhere: Option<Source>,
    /// By the suite's name in the configuration.
    suites: BTreeMap<String, Source>,
    /// Those of sessions, by their path, as they are asked for.
    kept: Mutex<BTreeMap<PathBuf, Result<Option<Source>, String>>>,
}

/// A mapping file.
#[derive(Debug, Clone)]
struct Source {
    path: PathBuf,
    mapping: &'static Mapping<'static>,
}

impl Mappings {
    /// Reads mapping files: one for everything, which then is the only one, or those of suites. Each may be a folder with one in it.
    ///
    /// # Errors
    /// One is missing or makes no sense.
    pub fn read<'a>(
        everywhere: Option<&Path>,
        suites: impl Iterator<Item = (&'a str, &'a Path)>,
    ) -> Result<Self, ExpectedError> {
        if let Some(path) = everywhere {
            return Ok(Self { everywhere: Some(Source::read(path)?), ..Self::default() });
        }
        let mut read = Self::default();
        let mut known: BTreeMap<&Path, Source> = BTreeMap::new();
        for (suite, path) in suites {
            let source = match known.get(path) {
                Some(source) => source.clone(),
                None => known.entry(path).or_insert(Source::read(path)?).clone(),
            };
            read.suites.insert(suite.to_owned(), source);
        }
        Ok(read)
    }

    /// For a stream that is written now.
    #[must_use]
    pub fn renamer(self: &Arc<Self>) -> Renamer {
        Renamer::new(Arc::clone(self), None)
    }

    /// For a stream that was recorded, in a session (`SESSION/frames/NAME.mgf`) or alone.
    #[must_use]
    pub fn renamer_of(self: &Arc<Self>, stream: &Path) -> Renamer {
        let session = stream.parent().and_then(Path::parent);
        Renamer::new(Arc::clone(self), session.map(|session| session.join(FOLDER)))
    }

    /// Copies the files into a session.
    ///
    /// # Errors
    /// The session cannot be written.
    pub fn keep(&self, session: &Path) -> Result<(), ExpectedError> {
        let root = session.join(FOLDER);
        let of_suites = self.suites.iter().map(|(suite, source)| (root.join(suite), source));
        for (folder, source) in self.everywhere.iter().map(|source| (root.clone(), source)).chain(of_suites) {
            fs::create_dir_all(&folder).map_err(ExpectedError::file("create", &folder))?;
            let copy = folder.join(FILE);
            fs::copy(&source.path, &copy).map_err(ExpectedError::file("write", &copy))?;
        }
        Ok(())
    }

    /// The mapping of a suite, as a stream names it; `kept`: the session's folder of mapping files.
    fn of(&self, suite: &str, kept: Option<&Path>) -> Result<Option<Source>, String> {
        if let Some(source) = &self.everywhere {
            return Ok(Some(source.clone()));
        }
        let suite = self.configured(suite, kept);
        for folder in kept.into_iter().flat_map(|root| [root.join(&suite), root.to_owned()]) {
            if let Some(source) = self.kept(&folder.join(FILE))? {
                return Ok(Some(source));
            }
        }
        Ok(self.suites.get(&suite).cloned())
    }

    /// What a suite is called in the configuration: reports add what tells its parts apart (`app/module`, `app (2)`).
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

impl Source {
    fn read(named: &Path) -> Result<Self, ExpectedError> {
        let path = if named.is_dir() { only_one_below(named)? } else { named.to_owned() };
        let wrong = |why: String, hint: &str| ExpectedError::Session {
            path: path.clone(),
            why,
            hint: hint.to_owned(),
        };
        let length = fs::metadata(&path).map_err(ExpectedError::file("read", &path))?.len();
        if length > LARGEST {
            return Err(wrong(
                "it is larger than 1 GiB".to_owned(),
                "is it a mapping file of R8 or ProGuard?",
            ));
        }
        let text = fs::read_to_string(&path).map_err(ExpectedError::file("read", &path))?;
        // Streams of other threads borrow from it, as long as the program runs.
        let mapping = Mapping::read(text.leak()).map_err(|why| {
            wrong(why.to_string(), "it is to be the mapping.txt that R8 or ProGuard wrote with this build")
        })?;
        if mapping.is_empty() {
            return Err(wrong(
                "it names no class".to_owned(),
                "it is to be the mapping.txt that R8 or ProGuard wrote with this build",
            ));
        }
        Ok(Self { path, mapping: Box::leak(Box::new(mapping)) })
    }
}

/// The mapping file in a folder, if there is one and no second.
fn only_one_below(folder: &Path) -> Result<PathBuf, ExpectedError> {
    let mut found = Vec::new();
    let mut open = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = open.pop() {
        for entry in fs::read_dir(&folder).map_err(ExpectedError::file("list", &folder))? {
            let entry = entry.map_err(ExpectedError::file("list", &folder))?;
            let kind = entry.file_type().map_err(ExpectedError::file("list", &folder))?;
            if kind.is_dir() && depth < DEEPEST {
                open.push((entry.path(), depth + 1));
            } else if kind.is_file() && entry.file_name() == FILE {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    let (why, hint) = match found.as_slice() {
        [only] => return Ok(only.clone()),
        [] => (
            format!("no {FILE} is in it"),
            "is the build minified? R8 writes it to app/build/outputs/mapping/VARIANT".to_owned(),
        ),
        [..] => {
            let names = found.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
            (
                format!("{} files {FILE} are in it", found.len()),
                format!("name the one of the build that is tested: {names}"),
            )
        }
    };
    Err(ExpectedError::Session { path: folder.to_owned(), why, hint })
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

    fn suites(suites: &[(&str, &Path)]) -> Mappings {
        Mappings::read(None, suites.iter().copied()).unwrap()
    }

    fn path(mappings: &Mappings, suite: &str, kept: Option<&Path>) -> Option<PathBuf> {
        mappings.of(suite, kept).unwrap().map(|source| source.path)
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
    }

    #[test]
    fn a_session_keeps_its_mapping_and_the_command_line_comes_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let app = written(folder.path(), "a.txt", TEXT);
        let session = folder.path().join("session");
        suites(&[("app", &app)]).keep(&session).unwrap();
        let kept = session.join(FOLDER);
        let nothing = Mappings::default();
        assert_eq!(path(&nothing, "app/core", Some(&kept)), Some(kept.join("app/mapping.txt")));
        assert_eq!(path(&nothing, "other", Some(&kept)), None);
        let typed = Mappings::read(Some(&app), std::iter::empty()).unwrap();
        assert_eq!(path(&typed, "app", Some(&kept)), Some(app.clone()));
        typed.keep(&session).unwrap();
        assert_eq!(
            path(&Mappings::default(), "other", Some(&kept)),
            Some(kept.join(FILE)),
            "for every suite"
        );
        fs::write(kept.join("app/mapping.txt"), "<html>").unwrap();
        let why = Mappings::default().of("app", Some(&kept)).unwrap_err();
        assert!(why.contains("app/mapping.txt") && why.contains("line 1: no class"), "{why}");
    }

    #[test]
    fn a_folder_stands_for_the_one_mapping_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let read = |folder: &Path| Mappings::read(Some(folder), std::iter::empty());
        let none = read(folder.path()).unwrap_err();
        assert!(none.to_string().contains("no mapping.txt is in it"), "{none}");
        written(folder.path(), "mapping/release/mapping.txt", TEXT);
        assert!(read(folder.path()).is_ok());
        written(folder.path(), "mapping/demo/mapping.txt", TEXT);
        let two = read(folder.path()).unwrap_err();
        assert!(two.hint().unwrap().contains("mapping/demo/mapping.txt, "), "{two}");
    }

    #[test]
    fn what_is_no_mapping_is_told_with_file_line_and_remedy() {
        let folder = tempfile::tempdir().unwrap();
        for (text, want) in
            [("    int a -> b\n", "line 1: a member before any class"), ("# nothing\n", "it names no class")]
        {
            let file = written(folder.path(), "wrong.txt", text);
            let error = Mappings::read(Some(&file), std::iter::empty()).unwrap_err();
            assert!(error.to_string().contains("wrong.txt") && error.to_string().contains(want), "{error}");
            assert!(error.hint().unwrap().contains("mapping.txt"));
        }
    }
}
