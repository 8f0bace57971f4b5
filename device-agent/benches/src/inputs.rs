//! The workloads: their commands and their inputs, which are made here so that every machine measures the same work.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One program to measure.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Program and arguments.
    pub(crate) command: Vec<String>,
    pub(crate) environment: Vec<String>,
    pub(crate) stdin: Option<PathBuf>,
    /// The program prints its own CPU nanoseconds at the end of its work.
    pub(crate) own_clock: bool,
}

/// The bounds for a workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// A standard program. `diverse`: it has so many different stacks that they, and not its blocks, determine the
    /// tracker's memory.
    Real { diverse: bool },
    /// Only allocates and frees, with its own bound for the ratio.
    Churn { bound: f64 },
}

const REAL: Kind = Kind::Real { diverse: false };
const DIVERSE: Kind = Kind::Real { diverse: true };

const CHURN_OPERATIONS: u64 = 1_250_000;

const SQL: &str = "
create table t(a integer primary key, b text, c real);
with recursive r(i) as (select 1 union all select i + 1 from r where i < 80000)
  insert into t select i, 'name' || i, i * 1.5 from r;
create index ix on t(b);
select count(*), sum(c) from t where b like '%9%';
select substr(b, 1, 6), count(*), group_concat(a % 10, '') from t group by 1 order by 2 desc, 1 limit 5;
update t set b = upper(b) || hex(a) where a % 3 = 0;
with recursive r(i) as (select 1 union all select i + 1 from r where i < 150000)
  select sum(length(printf('%d-%s', i, hex(i)) || replace('abc', 'b', i))) from r;
delete from t where a % 5 = 0;
select count(*) from t x join t y on x.a = y.a + 1;
";

const PYTHON: &str = r#"
import json
rows = [{"a": i, "b": [str(i)] * 3, "c": {"x": i * 2, "y": "n%d" % (i * 7)}} for i in range(35000)]
back = json.loads(json.dumps(rows))
back.sort(key=lambda row: -row["a"])
names = {row["c"]["y"]: [row["a"], tuple(row["b"])] for row in back}
print(len(back), len(names), sum(len(json.dumps(row)) for row in back[::8]))
"#;

/// All workloads in the order of the table; their files are written to `folder`.
pub(crate) fn prepare(folder: &Path) -> Result<Vec<Workload>, String> {
    let sql = write(folder, "script.sql", SQL)?;
    let json = write(folder, "rows.json", &rows_as_json(30_000))?;
    let xml = write(folder, "rows.xml", &rows_as_xml(95_000))?;
    let python = write(folder, "work.py", PYTHON)?;
    let unit = folder.join("unit.ii");
    let compiler = preprocess(&unit)?;
    let jq = "map({id, name, first: .tags[0], n: (.tags | length)}) | group_by(.n) | map(length)";

    let mut all = vec![
        real("sqlite3", REAL, vec![find("sqlite3")?, ":memory:".to_owned()]),
        real("jq", REAL, vec![find("jq")?, "-c".to_owned(), jq.to_owned(), json]),
        real("xmllint", REAL, vec![find("xmllint")?, "--noout".to_owned(), xml]),
        real("python3", DIVERSE, vec![find("python3")?, python]),
        real("cc1plus", DIVERSE, vec![compiler, "-fpreprocessed".to_owned(), "-quiet".to_owned()]),
    ];
    for workload in &mut all {
        match workload.name {
            "sqlite3" => workload.stdin = Some(PathBuf::from(&sql)),
            "python3" => workload.environment.push("PYTHONMALLOC=malloc".to_owned()),
            "cc1plus" => workload
                .command
                .extend(["-O0", &unit.to_string_lossy(), "-o", "/dev/null"].map(str::to_owned)),
            _ => {}
        }
    }
    let churn = build(folder, "churn")?;
    for (name, threads, depth, bound) in [
        ("churn T1 D20", 1, 20, 2.3),
        ("churn T1 D60", 1, 60, 3.0),
        ("churn T4 D20", 4, 20, 2.3),
        ("churn T10 D20", 10, 20, 2.3),
    ] {
        let mut command = vec![churn.to_string_lossy().into_owned()];
        command.extend([threads, depth, CHURN_OPERATIONS].map(|n: u64| n.to_string()));
        all.push(Workload {
            name,
            kind: Kind::Churn { bound },
            command,
            environment: Vec::new(),
            stdin: None,
            own_clock: true,
        });
    }
    Ok(all)
}

fn real(name: &'static str, kind: Kind, command: Vec<String>) -> Workload {
    Workload { name, kind, command, environment: Vec::new(), stdin: None, own_clock: false }
}

/// Compiles a C program of this folder, without frame pointers, as distributions do.
pub(crate) fn build(folder: &Path, name: &str) -> Result<PathBuf, String> {
    let source = native(&format!("{name}.c"));
    let program = folder.join(name);
    let status = Command::new("cc")
        .args(["-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-o"])
        .arg(&program)
        .arg(&source)
        .arg(format!("-I{}", Path::new(env!("CARGO_MANIFEST_DIR")).join("../include").display()))
        .args(["-pthread", "-ldl", "-lm"])
        .status()
        .map_err(|e| format!("run cc: {e} (Debian package gcc)"))?;
    if status.success() { Ok(program) } else { Err(format!("compile {}", source.display())) }
}

fn native(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("native").join(file)
}

/// Writes the preprocessed source and returns the compiler proper of `g++`.
fn preprocess(into: &Path) -> Result<String, String> {
    let run = |command: &mut Command| {
        let output = command.output().map_err(|e| format!("run g++: {e} (Debian package g++)"))?;
        if output.status.success() { Ok(output.stdout) } else { Err("preprocess templates.cc".to_owned()) }
    };
    run(Command::new("g++").arg("-E").arg(native("templates.cc")).arg("-o").arg(into))?;
    let path = run(Command::new("g++").arg("-print-prog-name=cc1plus"))?;
    Ok(String::from_utf8_lossy(&path).trim().to_owned())
}

/// The distribution's program, because another one earlier in `PATH` may be a wrapper.
fn find(program: &str) -> Result<String, String> {
    let path = format!("/usr/bin/{program}");
    let package = if program == "xmllint" { "libxml2-utils" } else { program };
    if Path::new(&path).exists() { Ok(path) } else { Err(format!("find {path} (Debian package {package})")) }
}

fn write(folder: &Path, name: &str, text: &str) -> Result<String, String> {
    let path = folder.join(name);
    fs::write(&path, text).map_err(|e| format!("write {}: {e}", path.display()))?;
    Ok(path.to_string_lossy().into_owned())
}

/// About 80 bytes per row.
fn rows_as_json(rows: u64) -> String {
    let mut text = String::from("[");
    for i in 0..rows {
        let comma = if i == 0 { "" } else { ", " };
        let v = i.wrapping_mul(2_654_435_761) % 1_000_000_007;
        write!(text, r#"{comma}{{"id": {i}, "name": "n{i}", "tags": ["a{i}", "b"], "v": 0.{v}}}"#)
            .unwrap_or_default();
    }
    text.push_str("]\n");
    text
}

/// About 65 bytes and five nodes per row.
fn rows_as_xml(rows: u64) -> String {
    let mut text = String::from("<r>");
    for i in 0..rows {
        write!(text, r#"<e id="{i}"><n>name{i}</n><t a="x">text {i}</t></e>{}"#, "\n").unwrap_or_default();
    }
    text.push_str("</r>\n");
    text
}
