//! Mapping files on disk: the one in use is read completely, candidates only up to their head, to identify their build.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use memgate_formats::mapping::Mapping;

use crate::exit::ExpectedError;

/// R8's name for it.
pub(super) const FILE: &str = "mapping.txt";
/// R8's file for a large app has some 100 MB.
const LARGEST: u64 = 1 << 30;
/// Maximum depth of folders below the given one, as the Android Gradle plugin nests them: `outputs/mapping/VARIANT`.
const DEEPEST: usize = 4;
/// The comments before the first class have some 300 bytes.
const HEAD: u64 = 64 << 10;

const REMEDY: &str = "it is to be the mapping.txt that R8 or ProGuard wrote with this build";

/// A mapping file in use.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) mapping: &'static Mapping<'static>,
}

impl Source {
    pub(super) fn read(path: &Path) -> Result<Self, ExpectedError> {
        let wrong = |why: String, hint: &str| ExpectedError::session(path, why, hint);
        let length = fs::metadata(path).map_err(ExpectedError::file("read", path))?.len();
        if length > LARGEST {
            return Err(wrong(
                "it is larger than 1 GiB".to_owned(),
                "is it a mapping file of R8 or ProGuard?",
            ));
        }
        let bytes = fs::read(path).map_err(ExpectedError::file("read", path))?;
        let text = String::from_utf8(bytes).map_err(|why| {
            let before = &why.as_bytes()[..why.utf8_error().valid_up_to()];
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            wrong(
                format!("line {line}: a byte of it is no UTF-8"),
                "save it as UTF-8: R8 and ProGuard write that",
            )
        })?;
        // Kept as long as the program runs: streams of other threads borrow from it.
        let mapping = Mapping::read(text.leak()).map_err(|why| wrong(why.to_string(), REMEDY))?;
        if mapping.is_empty() {
            return Err(wrong("it names no class".to_owned(), REMEDY));
        }
        Ok(Self { path: path.to_owned(), mapping: Box::leak(Box::new(mapping)) })
    }
}

/// A mapping file that may be the right one: only its head is known.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) path: PathBuf,
    /// The comments at its start, which name its build.
    head: String,
}

impl Candidate {
    fn read(path: PathBuf) -> Result<Self, ExpectedError> {
        let mut bytes = Vec::new();
        // The head is read first, then the whole file. A pipe would lose its head, and a device has no end.
        if !fs::metadata(&path).map_err(ExpectedError::file("read", &path))?.is_file() {
            return Err(ExpectedError::file("read", &path)(io::Error::other("it is no regular file")));
        }
        let file = File::open(&path).map_err(ExpectedError::file("read", &path))?;
        file.take(HEAD).read_to_end(&mut bytes).map_err(ExpectedError::file("read", &path))?;
        let text = String::from_utf8_lossy(&bytes);
        let comments = text
            .trim_start_matches('\u{feff}')
            .split_inclusive('\n')
            .take_while(|line| line.starts_with('#'));
        // The last line may be incomplete.
        let head = comments.filter(|line| line.ends_with('\n')).collect();
        Ok(Self { path, head })
    }

    /// Whether it belongs to the build that calls its mapping `id`.
    pub(super) fn is_of_build(&self, id: &str) -> bool {
        Mapping::read(&self.head).is_ok_and(|head| head.is_of_build(id) == Some(true))
    }

    /// Whether it has the same content. R8 writes a hash of it.
    fn is_copy_of(&self, other: &Self) -> bool {
        self.head.contains("pg_map_hash") && self.head == other.head
    }

    /// `app/mapping.txt (4eb8288)`.
    pub(super) fn shown(&self) -> String {
        let id = self.head.lines().find_map(|line| line.strip_prefix("# pg_map_id: "));
        format!("{} ({})", self.path.display(), id.map_or("it names no build", str::trim))
    }
}

/// The mapping files of the given paths, without copies: a folder means every `mapping.txt` below it. At least one.
pub(super) fn candidates<'a>(named: impl Iterator<Item = &'a Path>) -> Result<Vec<Candidate>, ExpectedError> {
    let mut found: Vec<Candidate> = Vec::new();
    for path in named {
        for file in if path.is_dir() { below(path)? } else { vec![path.to_owned()] } {
            let candidate = Candidate::read(file)?;
            if !found.iter().any(|known| known.path == candidate.path || known.is_copy_of(&candidate)) {
                found.push(candidate);
            }
        }
    }
    Ok(found)
}

/// The only mapping file at a path: the file itself, or the one in a folder.
///
/// # Errors
/// When it cannot be read, is not a mapping file, or there are several.
pub(super) fn mapping_at(path: &Path) -> Result<&'static Mapping<'static>, ExpectedError> {
    match candidates(std::iter::once(path))?.as_slice() {
        [only] => Ok(Source::read(&only.path)?.mapping),
        several => Err(ExpectedError::Session {
            path: path.to_owned(),
            why: format!("{} mapping files are in it", several.len()),
            hint: several.iter().map(Candidate::shown).collect::<Vec<_>>().join(", "),
        }),
    }
}

/// The mapping files in a folder, at least one.
fn below(folder: &Path) -> Result<Vec<PathBuf>, ExpectedError> {
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
    if found.is_empty() {
        return Err(ExpectedError::Session {
            path: folder.to_owned(),
            why: format!("no {FILE} is in it"),
            hint: "is the build minified? R8 writes it to app/build/outputs/mapping/VARIANT".to_owned(),
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn what_is_no_mapping_is_told_with_file_line_and_remedy() {
        let folder = tempfile::tempdir().unwrap();
        for (text, want) in
            [("    int a -> b\n", "line 1: a member before any class"), ("# nothing\n", "it names no class")]
        {
            let file = written(folder.path(), "wrong.txt", text);
            let error = Source::read(&file).unwrap_err();
            assert!(error.to_string().contains("wrong.txt") && error.to_string().contains(want), "{error}");
            assert!(error.hint().unwrap().contains("mapping.txt"));
        }
    }

    #[test]
    fn a_folder_stands_for_the_mapping_files_in_it_and_copies_are_one() {
        let folder = tempfile::tempdir().unwrap();
        let found = || candidates([folder.path()].into_iter());
        let none = found().unwrap_err();
        assert!(none.to_string().contains("no mapping.txt is in it"), "{none}");
        let head = "# pg_map_id: 4eb8288\n# pg_map_hash: SHA-256 4eb8288859\n";
        let text = format!("{head}com.example.Tile -> a.b:\n");
        let free = written(folder.path(), "mapping/free/mapping.txt", &text);
        written(folder.path(), "mapping/free-copy/mapping.txt", &text);
        written(folder.path(), "mapping/free/usage.txt", "nothing\n");
        let paid = written(folder.path(), "mapping/paid/mapping.txt", &text.replace("4eb8288", "1111111"));
        let found = found().unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().any(|one| one.path == paid && one.is_of_build("1111111")), "{found:?}");
        assert!(
            found.iter().any(|one| one.path.starts_with(free.parent().unwrap().parent().unwrap())
                && one.shown().ends_with("mapping.txt (4eb8288)")),
            "{found:?}"
        );
    }

    #[test]
    fn a_long_head_is_read_up_to_its_last_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("# pg_map_id: 4eb8288\n# {}\n", "x".repeat(1 << 17));
        let file = written(folder.path(), "mapping.txt", &text);
        assert_eq!(Candidate::read(file).unwrap().head, "# pg_map_id: 4eb8288\n");
    }

    /// A pipe lost its head, and so the names of classes.
    #[test]
    fn a_device_or_a_pipe_is_no_mapping_file() {
        for path in ["/dev/zero", "/dev/null"] {
            let why = Candidate::read(PathBuf::from(path)).unwrap_err().to_string();
            assert!(why.contains(path) && why.contains("it is no regular file"), "{why}");
        }
    }
}
