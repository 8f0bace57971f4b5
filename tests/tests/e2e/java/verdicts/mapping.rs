//! Java programs that R8 or ProGuard renamed are judged by their original names: verdicts, ids, holders and
//! stacks equal those of the same program without renaming.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use memgate::reading::stream::{read, streams_in};
use memgate_e2e::{Project, Run};
use memgate_wire::java::{HolderKind, HolderLink, JavaMethod};
use memgate_wire::{Frame, encode};

use crate::java::verdicts::suites::{Session, sessions};

const PROJECT: &str = "com.example.";
const LEAK: &str = "com.example.TileCacheTest.evicts";

/// Simulates a renaming compiler: each class, field and method of the project gets a new name when it is
/// first met.
struct Obfuscator {
    prefix: &'static str,
    classes: BTreeMap<String, Members>,
}

#[derive(Default)]
struct Members {
    renamed: String,
    file: String,
    fields: BTreeMap<(String, String), String>,
    methods: BTreeMap<String, String>,
}

impl Obfuscator {
    fn new(prefix: &'static str) -> Self {
        Self { prefix, classes: BTreeMap::new() }
    }

    fn members(&mut self, class: &str) -> &mut Members {
        let next = format!("{}.c{}", self.prefix, self.classes.len());
        self.classes
            .entry(class.to_owned())
            .or_insert_with(|| Members { renamed: next, ..Members::default() })
    }

    /// The new name of a class of the project; other classes keep theirs.
    fn class(&mut self, name: &str) -> String {
        let end = name.find("$$Lambda").or_else(|| name.find(['[', '/'])).unwrap_or(name.len());
        let (class, rest) = name.split_at(end);
        if !class.starts_with(PROJECT) {
            return name.to_owned();
        }
        format!("{}{rest}", self.members(class).renamed)
    }

    fn field(&mut self, link: &HolderLink) -> String {
        // An inherited field is recorded with the class that declares it.
        let (declared_by, name) = link.name.rsplit_once('.').unwrap_or((&link.owner, &link.name));
        if !declared_by.starts_with(PROJECT) {
            return link.name.clone();
        }
        let members = self.members(declared_by);
        let next = format!("f{}", members.fields.len());
        let field = members.fields.entry((name.to_owned(), link.class.clone())).or_insert(next).clone();
        if declared_by == link.owner { field } else { format!("{}.{field}", members.renamed) }
    }

    fn method(&mut self, class: &str, name: &str, file: &str) -> String {
        // Classes that the JVM generates keep their methods.
        if !class.starts_with(PROJECT) || class.contains("$$Lambda") {
            return name.to_owned();
        }
        let members = self.members(class);
        file.clone_into(&mut members.file);
        let next = format!("m{}", members.methods.len());
        members.methods.entry(name.to_owned()).or_insert(next).clone()
    }

    fn frame(&mut self, frame: Frame) -> Frame {
        match frame {
            Frame::Classes(mut told) => {
                told.classes.iter_mut().for_each(|class| class.name = self.class(&class.name));
                Frame::Classes(told)
            }
            Frame::JavaStacks(mut stacks) => {
                for JavaMethod { class, name, file, .. } in &mut stacks.methods {
                    *name = self.method(class, name, file);
                    if class.starts_with(PROJECT) && !file.is_empty() {
                        "SourceFile".clone_into(file);
                    }
                    *class = self.class(class);
                }
                Frame::JavaStacks(stacks)
            }
            Frame::Holders(mut holders) => {
                use HolderKind::{Array, ClassLoader, Field, Static};
                for link in holders.paths.iter_mut().flat_map(|path| &mut path.links) {
                    if matches!(link.kind, Static | Field) {
                        link.name = self.field(link);
                    }
                    if matches!(link.kind, Static | Field | Array | ClassLoader) {
                        link.owner = self.class(&link.owner);
                    }
                    link.class = self.class(&link.class);
                }
                Frame::Holders(holders)
            }
            other => other,
        }
    }

    /// The mapping file that such a compiler writes.
    fn mapping(&self) -> String {
        let mut text = "# compiler: a test\n".to_owned();
        for (class, Members { renamed, file, fields, methods }) in &self.classes {
            writeln!(text, "{class} -> {renamed}:").unwrap();
            if !file.is_empty() {
                writeln!(text, "# {{\"id\":\"sourceFile\",\"fileName\":\"{file}\"}}").unwrap();
            }
            for ((name, kind), renamed) in fields {
                writeln!(text, "    {kind} {name} -> {renamed}").unwrap();
            }
            for (name, renamed) in methods {
                writeln!(text, "    void {name}() -> {renamed}").unwrap();
            }
        }
        text
    }
}

/// Copies a session as a renamed program would have left it; returns its mapping file.
fn renamed(session: &Path, to: &Path, prefix: &'static str) -> PathBuf {
    let mut obfuscator = Obfuscator::new(prefix);
    fs::create_dir_all(to.join("frames")).unwrap();
    fs::copy(session.join("session.json"), to.join("session.json")).unwrap();
    let mut paths: Vec<PathBuf> =
        fs::read_dir(session.join("frames")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let streams = streams_in(&session.join("frames")).unwrap();
    for path in paths {
        let copy = to.join("frames").join(path.file_name().unwrap());
        if !streams.contains(&path) {
            fs::copy(&path, &copy).unwrap();
            continue;
        }
        let mut bytes = Vec::new();
        read(&path, |frame, t_ns| assert_ne!(encode(&obfuscator.frame(frame), t_ns, &mut bytes), 0)).unwrap();
        fs::write(copy, bytes).unwrap();
    }
    let mapping = to.parent().unwrap().join(format!("{prefix}.txt"));
    fs::write(&mapping, obfuscator.mapping()).unwrap();
    mapping
}

fn gate(project: &Project, arguments: &[&str]) -> Run {
    project.memgate(&[&["gate", "--format", "json"], arguments].concat())
}

#[test]
fn a_renamed_program_is_judged_as_if_it_had_its_own_names() {
    let Some(Session { project: ran, run, .. }) = sessions().next() else { return };
    let project = Project::new("mapping");
    for prefix in ["a.b", "z"] {
        let folder = project.folder().join(format!("session-{prefix}"));
        let mapping = renamed(&ran.session(), &folder, prefix);
        let (folder, mapping) = (folder.to_str().unwrap(), mapping.to_str().unwrap());
        let bare = gate(&project, &[folder]);
        let shown = format!("{:?}", bare.test(LEAK).leaks);
        assert!(shown.contains(&format!("{prefix}.c")) && !shown.contains("com.example.Registry"), "{shown}");
        let named = gate(&project, &["--mapping", mapping, folder]);
        assert_eq!(named.code, run.code, "{named}");
        for test in run.suite().tests {
            let again = named.test(&test.id);
            assert_eq!(
                (again.verdict, &again.reason, &again.leaks),
                (test.verdict, &test.reason, &test.leaks),
                "{prefix}"
            );
            assert!(again == test, "{prefix}: figures of {} differ", test.id);
        }
        // The session's own copy of the mapping works as well.
        fs::create_dir_all(format!("{folder}/mappings")).unwrap();
        fs::copy(mapping, format!("{folder}/mappings/mapping.txt")).unwrap();
        assert_eq!(gate(&project, &[folder]).suite().tests, named.suite().tests);
    }
}

#[test]
fn a_mapping_that_is_missing_or_none_is_told_before_anything_runs() {
    let project = Project::new("mapping-wrong");
    project.write("mapping.txt", "com.example.A -> a:\n    what is this\n");
    project.write(
        "memgate.yaml",
        "version: 1\nsuites:\n  unit: { run: [sh, -c, touch ran], runner: junit, mapping: mapping.txt }\n",
    );
    project
        .memgate(&["run"])
        .ends_with(2)
        .says("mapping.txt")
        .says("line 2: no field or method")
        .says("R8 or ProGuard");
    project.memgate(&["run", "--mapping", "absent.txt"]).ends_with(2).says("absent.txt");
    // Several mapping files: one that is missing, and two of which nothing identifies the right one.
    let suite = |mapping: &str| {
        format!(
            "version: 1\nsuites:\n  unit: {{ run: [sh, -c, touch ran], runner: junit, mapping: {mapping} }}\n"
        )
    };
    project.write("good.txt", "com.example.A -> a:\n");
    project.write("memgate.yaml", suite("[good.txt, gone.txt]"));
    project.memgate(&["run"]).ends_with(2).says("gone.txt");
    project.write("other.txt", "com.example.B -> a:\n");
    project.write("memgate.yaml", suite("[good.txt, other.txt]"));
    project
        .memgate(&["run"])
        .ends_with(2)
        .says("which of 2 mapping files is the one cannot be told")
        .says("good.txt")
        .says("other.txt");
    assert!(!project.folder().join("ran").exists());
    project.write(
        "memgate.yaml",
        "version: 1\nsuites:\n  unit: { run: [sh], runner: gtest, mapping: mapping.txt }\n",
    );
    project.memgate(&["run"]).ends_with(2).says("`mapping` is for suites of Java").says("memgate.yaml:3");
}
