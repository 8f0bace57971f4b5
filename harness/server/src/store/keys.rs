//! Lint of keys and statements: each keeps to one project, so that a database sharded by project needs no other schema
//! and no other statement (docs/server.md, "Past one machine").

use std::collections::BTreeMap;

/// Tables outside of projects.
const BESIDE: [&str; 9] = [
    "project",
    "token",
    "oidc_rule",
    "oidc_use",
    "account",
    "web_session",
    "members_only",
    "secret",
    "memgate_schema",
];
/// Features that one of several nodes cannot provide for all.
const FORBIDDEN: [&str; 9] =
    ["NEXTVAL", "SERIAL", "SEQUENCE", "LISTEN", "NOTIFY", "LOCK", "TEMP", "TEMPORARY", "LAST_INSERT_ROWID"];

/// All string literals of a piece of Rust, one after the other.
fn literals(code: &str) -> String {
    let code =
        code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let text = code.split('"').skip(1).step_by(2).collect::<String>().replace("\\\n", " ");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Every statement by its name, with the text that macros add.
fn statements(source: &str) -> BTreeMap<String, String> {
    let mut macros = BTreeMap::<&str, (String, String)>::new();
    for code in source.split("macro_rules! ").skip(1) {
        let (name, code) = code.split_once(" {").unwrap();
        let (body, _) = code.split_once("\n}").unwrap();
        let (before, after) = body.split_once("concat!(").unwrap().1.split_once("$rest").unwrap();
        macros.insert(name, (literals(before), literals(after)));
    }
    let mut found = BTreeMap::new();
    for code in source.split("pub(super) const ").skip(1) {
        let (name, code) = code.split_once(": &str =").unwrap();
        let (code, _) = code.split_once(";\n").unwrap();
        let around = macros.iter().find(|(name, _)| code.trim_start().starts_with(&format!("{name}!(")));
        let text = literals(code);
        let text =
            around.map_or_else(|| text.clone(), |(_, (before, after))| format!("{before} {text} {after}"));
        found.insert(name.to_owned(), text);
    }
    found
}

fn words(text: &str) -> Vec<&str> {
    let is_word = |letter: char| letter.is_alphanumeric() || "_.$".contains(letter);
    text.split(|letter: char| !is_word(letter)).filter(|word| !word.is_empty()).collect()
}

/// The fault of a statement; `None`: it has none.
fn fault(text: &str) -> Option<String> {
    let upper = text.to_uppercase();
    if let Some(word) = words(&upper).into_iter().find(|word| FORBIDDEN.contains(word)) {
        return Some(format!("it has {word}"));
    }
    if text.contains("ON CONFLICT") && !text.contains("ON CONFLICT (project_id, ") {
        return Some("its ON CONFLICT does not begin with project_id".to_owned());
    }
    let words = words(text);
    let defined: Vec<&str> =
        text.match_indices(" AS ( ").map(|(at, _)| &text[..at]).map(name_before).collect();
    for (at, word) in words.iter().enumerate() {
        if !["FROM", "JOIN", "UPDATE", "INTO"].contains(word) {
            continue;
        }
        let table = *words.get(at + 1).unwrap_or(&"");
        // `DO UPDATE SET`
        if table == "SET" || BESIDE.contains(&table) || defined.contains(&table) {
            continue;
        }
        if *word == "INTO" {
            if !text.contains(&format!("INTO {table} (project_id, ")) {
                return Some(format!("it inserts into {table} without a project"));
            }
            continue;
        }
        let alias = words.get(at + 2).filter(|alias| alias.len() == 1);
        let is_kept = match alias {
            Some(alias) => {
                let key = format!("{alias}.project_id");
                text.contains(&format!("{key} = ")) || text.contains(&format!("= {key}"))
            }
            None => {
                text.contains(&format!("FROM {table} WHERE project_id = $1"))
                    || text.contains(&format!("UPDATE {table} SET")) && text.contains("WHERE project_id = $1")
            }
        };
        if !is_kept {
            return Some(format!("{table} is not kept to one project"));
        }
    }
    (!text.contains("project_id = $1") && !text.contains("INSERT INTO"))
        .then(|| "it names no project".to_owned())
}

/// The name in `WITH RECURSIVE name (columns)`.
fn name_before(text: &str) -> &str {
    text.rsplit("RECURSIVE ").next().and_then(|text| text.split(' ').next()).unwrap_or_default()
}

#[test]
fn every_statement_keeps_to_one_project() {
    let all = statements(include_str!("statements.rs"));
    assert!(all.len() > 60, "{}", all.len());
    for (name, text) in all {
        assert!(text.len() > 20, "{name}: {text}");
        let is_beside = BESIDE.iter().any(|table| {
            ["FROM", "INTO", "UPDATE"].iter().any(|word| text.contains(&format!("{word} {table} ")))
        });
        if !is_beside {
            assert_eq!(fault(&text), None, "{name}: {text}");
        }
    }
}

#[test]
fn a_statement_over_all_projects_is_found() {
    for (text, why) in [
        ("SELECT a FROM run WHERE run_id = $1", "run is not kept"),
        (
            "SELECT a FROM run r JOIN test t ON t.test_id = r.test_id WHERE r.project_id = $1",
            "test is not kept",
        ),
        (
            "SELECT a FROM run WHERE project_id = $1 AND b IN (SELECT s.b FROM sighting s)",
            "sighting is not kept",
        ),
        ("INSERT INTO run (run_id) VALUES ($1)", "without a project"),
        ("INSERT INTO run (project_id, a) VALUES ($1, $2) ON CONFLICT (a) DO NOTHING", "ON CONFLICT"),
        ("UPDATE run SET a = $1 WHERE run_id = $2", "run is not kept"),
        ("DELETE FROM run WHERE run_id = $1", "run is not kept"),
        ("SELECT nextval('s') FROM run WHERE project_id = $1", "NEXTVAL"),
        ("SELECT a FROM run WHERE project_id = $1 FOR UPDATE SKIP LOCKED; LOCK run", "LOCK"),
    ] {
        assert!(fault(text).is_some_and(|found| found.contains(why)), "{text}: {:?}", fault(text));
    }
}

#[test]
fn every_key_begins_with_the_project() {
    let tables = super::schema::VERSIONS.concat();
    let mut keys = 0;
    for table in tables.split("CREATE TABLE ").skip(1) {
        let (name, columns) = table.split_once(" (").unwrap();
        if BESIDE.contains(&name) {
            continue;
        }
        assert!(columns.trim_start().starts_with("project_id BIGINT NOT NULL"), "{name}");
        assert!(!columns.contains("REFERENCES"), "{name}: parts of a table cannot refer to one another");
        for key in ["PRIMARY KEY ", "UNIQUE "] {
            for of in columns.split(key).skip(1) {
                keys += 1;
                assert!(of.starts_with("(project_id, "), "{name}: {key}{}", of.lines().next().unwrap());
            }
        }
    }
    assert!(keys > 15, "{keys}");
    for index in tables.split("CREATE INDEX ").skip(1) {
        assert!(index.contains("(project_id, "), "{index}");
    }
}
