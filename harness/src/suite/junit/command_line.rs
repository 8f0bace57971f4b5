//! The command line of `java`: options, class path, main class or jar.

use std::fs;
use std::path::Path;

/// Options whose value is the next argument.
const WITH_VALUE: [&str; 14] = [
    "-cp",
    "-classpath",
    "--class-path",
    "-p",
    "--module-path",
    "--upgrade-module-path",
    "--add-modules",
    "--enable-native-access",
    "--add-reads",
    "--add-exports",
    "--add-opens",
    "--limit-modules",
    "--patch-module",
    "--describe-module",
];
const CLASS_PATH: [&str; 3] = ["-cp", "-classpath", "--class-path"];

/// A command line, taken apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JavaCommand {
    /// Options of the virtual machine, without the class path.
    pub options: Vec<String>,
    /// The class path.
    pub class_path: Vec<String>,
    /// Main class or jar.
    pub main: String,
    /// `main` with its arguments, like `sun.java.command`.
    pub command: String,
}

impl JavaCommand {
    /// Parses the arguments of a process, without `argv[0]`. Argument files are read, relative to `directory`. `None`:
    /// it names nothing to run.
    #[must_use]
    pub fn of(arguments: &[String], directory: &Path) -> Option<Self> {
        let mut told = Self::default();
        let mut left: Vec<String> = Vec::new();
        for argument in arguments {
            match argument.strip_prefix('@').filter(|_| left.len() < 100_000) {
                Some(file) => left.extend(words(&fs::read_to_string(directory.join(file)).ok()?)),
                None => left.push(argument.clone()),
            }
        }
        let mut left = left.into_iter();
        while let Some(word) = left.next() {
            if word == "-jar" {
                let jar = left.next()?;
                told.class_path = vec![jar.clone()];
                told.main.clone_from(&jar);
                told.command = joined(jar, left);
                return Some(told);
            }
            if !word.starts_with('-') {
                told.main.clone_from(&word);
                told.command = joined(word, left);
                return Some(told);
            }
            if let Some(path) = word.strip_prefix("--class-path=") {
                told.class_path = paths(path);
            } else if CLASS_PATH.contains(&word.as_str()) {
                told.class_path = paths(&left.next()?);
            } else if WITH_VALUE.contains(&word.as_str()) {
                // In the form that the virtual machine reports.
                let value = left.next()?;
                let name = if word == "-p" { "--module-path" } else { &word };
                told.options.push(format!("{name}={value}"));
            } else {
                told.options.push(word);
            }
        }
        None
    }
}

fn joined(first: String, rest: impl Iterator<Item = String>) -> String {
    std::iter::once(first).chain(rest).collect::<Vec<_>>().join(" ")
}

fn paths(text: &str) -> Vec<String> {
    text.split(':').filter(|path| !path.is_empty()).map(str::to_owned).collect()
}

/// The words of an argument file, separated by white space; words that contain some are quoted.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if open == c => quote = None,
            (Some(_), '\\') => word.get_or_insert_default().extend(chars.next().map(unescaped)),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => drop(chars.by_ref().find(|c| *c == '\n')),
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

const fn unescaped(c: char) -> char {
    match c {
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'f' => '\u{c}',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(arguments: &[&str]) -> Option<JavaCommand> {
        JavaCommand::of(&arguments.iter().map(|&a| a.to_owned()).collect::<Vec<_>>(), Path::new("/nowhere"))
    }

    #[test]
    fn options_class_path_and_what_runs_are_told_apart() {
        let command = of(&["-Xmx1g", "-cp", "/a.jar:/b", "--add-opens", "m/p=ALL", "com.example.Main", "-x"]);
        assert_eq!(
            command,
            Some(JavaCommand {
                options: vec!["-Xmx1g".into(), "--add-opens=m/p=ALL".into()],
                class_path: vec!["/a.jar".into(), "/b".into()],
                main: "com.example.Main".into(),
                command: "com.example.Main -x".into(),
            })
        );
        let jar = of(&["-ea", "-jar", "/p/surefirebooter-1.jar", "/p", "run"]).unwrap();
        assert_eq!((jar.command.as_str(), jar.options.len()), ("/p/surefirebooter-1.jar /p run", 1));
        assert_eq!(of(&["-version"]), None);
        assert_eq!(of(&["@/not/there"]), None);
    }

    #[test]
    fn an_argument_file_stands_for_its_words() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("args");
        fs::write(&file, "# note\n-Da=\"b c\"\n\"-Dd=e\\\\f\\n\" '-cp' /x:/y\n").unwrap();
        let command = JavaCommand::of(&["@args".into(), "Main".into()], folder.path()).unwrap();
        assert_eq!(command.options, ["-Da=b c", "-Dd=e\\f\n"]);
        assert_eq!((command.class_path.len(), command.command.as_str()), (2, "Main"));
    }
}
