//! The recipes that users copy into their CI run all the tests that they name. The scripts are cut out of the
//! files of `ci/` and run with the shells that CI systems use.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use memgate_e2e::samples::successful;
use memgate_e2e::{Project, memgate, repository, samples};
use memgate_model::Verdict;

/// A script of `ci/`: its shell, the variable with the command line, the script, and the shell for several
/// commands.
struct Recipe {
    shell: &'static [&'static str],
    variable: &'static str,
    script: String,
    inner: &'static [&'static str],
}

/// The lines between the line that ends with `begin` and the one that starts with `end`.
fn cut(file: &str, begin: &str, end: &str) -> String {
    let text = fs::read_to_string(repository().join("ci").join(file)).unwrap();
    let mut lines = text.lines().skip_while(|line| !line.ends_with(begin)).skip(1).peekable();
    let indent = lines.peek().unwrap().len() - lines.peek().unwrap().trim_start().len();
    let inside = lines.take_while(|line| !line.trim_start().starts_with(end));
    inside.map(|line| format!("{}\n", line.get(indent..).unwrap_or_default())).collect()
}

fn recipes() -> Vec<Recipe> {
    let mut recipes = vec![Recipe {
        shell: &["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"],
        variable: "COMMAND",
        script: cut("github/action.yml", "run: |", "- if:"),
        inner: &["bash", "-eo", "pipefail", "-c"],
    }];
    for shell in [&["bash", "-eo", "pipefail", "-c"][..], &["sh", "-ec"]] {
        let script = cut("gitlab/memgate.yml", "- |", "after_script:");
        recipes.push(Recipe { shell, variable: "MEMGATE_COMMAND", script, inner: &["sh", "-ec"] });
    }
    recipes.push(Recipe {
        shell: &["bash", "--noprofile", "--norc", "-c"],
        variable: "MEMGATE_COMMAND",
        script: cut("azure/memgate.yml", "- bash: |", "displayName:"),
        inner: &["bash", "-eo", "pipefail", "-c"],
    });
    // Groovy reads a backslash and the character after it as one.
    let script = cut("jenkins/memgate.groovy", "+ '''", "'''").replace("\\\\", "\\");
    recipes.push(Recipe { shell: &["sh", "-xec"], variable: "COMMAND", script, inner: &["sh", "-ec"] });
    recipes
}

impl Recipe {
    /// Prepares to run the script with this command line and the `memgate` in this folder.
    fn with(&self, command: &str, project: &Project, memgate: &str) -> Command {
        let mut shell = project.command::<&str>(&[]);
        let path = format!("{memgate}:{}", std::env::var("PATH").unwrap());
        let mut started = Command::new(self.shell[0]);
        started.args(&self.shell[1..]).arg(&self.script).current_dir(project.folder()).stdin(Stdio::null());
        for (name, value) in shell.env("PATH", path).env(self.variable, command).get_envs() {
            match value {
                Some(value) => started.env(name, value),
                None => started.env_remove(name),
            };
        }
        started
    }
}

#[test]
fn a_single_command_is_started_as_it_is_and_several_are_started_by_a_shell() {
    let project = Project::new("ci-recipes");
    let said = project.write("bin/memgate", "#!/bin/sh\nprintf '%s\\n' \"$@\"\n");
    fs::set_permissions(said, fs::Permissions::from_mode(0o755)).unwrap();
    let folder = project.folder().join("bin").display().to_string();
    for recipe in recipes() {
        let arguments = |command: &str| -> Vec<String> {
            successful(&mut recipe.with(command, &project, &folder)).lines().map(str::to_owned).collect()
        };
        assert_eq!(arguments(""), ["run"]);
        for (command, want) in [
            ("mvn -q test\n", &["mvn", "-q", "test"][..]),
            ("mvn -q \\\n  -Dtest='A b' \\\n  test\n", &["mvn", "-q", "-Dtest=A b", "test"]),
            ("ctest -j$(echo 4)", &["ctest", "-j4"]),
        ] {
            assert_eq!(arguments(command), [&["run", "--"], want].concat(), "{command}");
        }
        for command in ["./a && ./b", "./a; ./b", "./a | tee log", "./a & wait", "./a > log", "./a\t< in"] {
            let want = [&["run", "--"], recipe.inner, &[command]].concat();
            assert_eq!(arguments(command), want, "{command}");
        }
        let want = [&["run", "--"], recipe.inner, &["./a", "", "./b c"]].concat();
        assert_eq!(arguments("./a\n\n./b c\n"), want);
    }
}

/// Regression: if a run ended before it had a session (an error in memgate.yaml), the figures of the previous
/// run were published.
#[test]
fn reports_of_an_earlier_run_are_not_published() {
    for recipe in recipes() {
        let project = Project::new("ci-recipes-kept");
        let failing = project.write("bin/memgate", "#!/bin/sh\nexit 2\n");
        fs::set_permissions(failing, fs::Permissions::from_mode(0o755)).unwrap();
        let earlier = project.write(".memgate/20261121-100000-000/report.json", "{}");
        let latest = project.folder().join(".memgate/latest");
        drop(fs::remove_file(&latest));
        std::os::unix::fs::symlink("20261121-100000-000", &latest).unwrap();
        let published = project.write("memgate-reports/junit.xml", "<testsuites/>");
        let bin = project.folder().join("bin").display().to_string();
        let status = recipe.with("./tests", &project, &bin).status().unwrap();
        assert_eq!(status.code(), Some(2));
        assert!(!published.exists() && !latest.is_symlink(), "{:?}", recipe.shell);
        assert!(earlier.exists(), "the history of the workspace");
    }
}

#[test]
fn azure_publishes_the_reports_of_a_run_and_nothing_without_one() {
    let project = Project::new("ci-recipes-azure");
    let bin = memgate().parent().unwrap().display().to_string();
    let mut recipe = recipes().remove(3);
    let text = fs::read_to_string(repository().join("ci/azure/memgate.yml")).unwrap();
    let (_, second) = text.split_once("displayName: memgate\n").unwrap();
    let lines = second.lines().skip_while(|line| !line.ends_with("- bash: |")).skip(1);
    let lines = lines.take_while(|line| !line.trim_start().starts_with("displayName:"));
    let reports: String = lines.map(|line| format!("{}\n", line.trim_start())).collect();
    let run = std::mem::replace(&mut recipe.script, reports);
    assert_eq!(successful(&mut recipe.with("", &project, &bin)), "", "no run");
    let program = samples::own_suite("ci_clean", "#include <gtest/gtest.h>\nTEST(Clean, Passes) {}\n");
    let reports = std::mem::replace(&mut recipe.script, run);
    assert!(recipe.with(&program.display().to_string(), &project, &bin).status().unwrap().success());
    recipe.script = reports;
    let folder = fs::canonicalize(project.folder()).unwrap().join("memgate-reports");
    let said = successful(&mut recipe.with("", &project, &bin));
    let folder_text = folder.display();
    assert!(said.contains(&format!("##vso[task.uploadsummary]{folder_text}/summary.md\n")), "{said}");
    assert!(
        said.contains(&format!("##vso[task.setvariable variable=memgate_reports]{folder_text}\n")),
        "{said}"
    );
    for file in ["summary.md", "junit.xml", "session/report.html", "session/session.json"] {
        assert!(folder.join(file).is_file(), "{file}");
    }
}

/// Regression: GitLab kept all sessions of a persistent workspace, so merging them as shards failed.
#[test]
fn gitlab_keeps_the_session_of_its_job_alone() {
    let project = Project::new("ci-recipes-session");
    project.write(".memgate/20261121-100000-000/session.json", "{}");
    project.write("memgate-session/20261121-100000-000/session.json", "{}");
    let bin = memgate().parent().unwrap().display().to_string();
    let mut recipe = recipes().remove(2);
    let program = samples::own_suite("ci_clean", "#include <gtest/gtest.h>\nTEST(Clean, Passes) {}\n");
    let run = |recipe: &Recipe| recipe.with(&program.display().to_string(), &project, &bin).status().unwrap();
    assert!(run(&recipe).success());
    recipe.script = cut("gitlab/memgate.yml", "without its target.", "artifacts:").replacen("- |\n", "", 1);
    assert!(run(&recipe).success());
    let sessions = fs::read_dir(project.folder().join("memgate-session")).unwrap();
    let sessions: Vec<_> = sessions.map(|session| session.unwrap().path()).collect();
    assert!(sessions.len() == 1 && sessions[0].join("report.json").exists(), "{sessions:?}");
    assert!(project.folder().join("memgate-reports/junit.xml").exists());
}

#[test]
fn every_line_of_a_command_is_measured() {
    let clean = samples::own_suite("ci_clean", "#include <gtest/gtest.h>\nTEST(Clean, Passes) {}\n");
    let leaks =
        "#include <gtest/gtest.h>\nchar* volatile kept;\nTEST(Map, Leaks) { kept = new char[4096](); }\n";
    let leaking = samples::own_suite("ci_leaking", leaks);
    let lines = format!("{}\n{}\n", clean.display(), leaking.display());
    let folder = memgate().parent().unwrap().display().to_string();
    for recipe in recipes() {
        let project = Project::new("ci-recipes-lines");
        let run = project.finish(&mut recipe.with(&lines, &project, &folder));
        run.ends_with(1);
        let mut verdicts: Vec<_> =
            run.report().suites.iter().map(|suite| (suite.name.clone(), suite.verdict)).collect();
        verdicts.sort();
        assert_eq!(verdicts, [("ci_clean".into(), Verdict::Pass), ("ci_leaking".into(), Verdict::Fail)]);
    }
}
