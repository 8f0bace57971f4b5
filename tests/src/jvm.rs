//! The JVM samples: Maven projects, the JDKs that run them, and the expected results.
//!
//! `tests/samples/jvm/truth.json` lists the objects that each leaking test leaves per run;
//! [`Truth::differences`] compares them with a report. Every other test is clean.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use memgate_model::{Leak, LeakKind, Metric, SuiteReport, TestReport, Verdict};
use serde_json::Value;

use crate::{Project, has_tool, is_long, repository, skip_without};

/// Java releases that run the samples.
const RELEASES: [u32; 2] = [17, 25];
const MACHINES: &str = "/usr/lib/jvm";

/// A JDK.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jdk {
    /// `17`.
    pub release: u32,
    /// Its home folder.
    pub home: PathBuf,
}

/// Expected results of a sample suite.
#[derive(Debug)]
pub struct Truth {
    leaks: BTreeMap<String, Value>,
    /// Leaking tests, each with the name of its leak.
    leaking: BTreeMap<String, String>,
    junit: String,
    release: u32,
}

/// The JDKs found on this machine, one per release; reports missing ones. Empty if Maven is missing.
#[must_use]
pub fn jdks() -> Vec<Jdk> {
    if !has_tool("mvn") {
        return Vec::new();
    }
    let environment = std::env::var_os("JAVA_HOME").map(PathBuf::from);
    let installed = fs::read_dir(MACHINES).into_iter().flatten().filter_map(Result::ok);
    let mut homes: Vec<PathBuf> = installed.map(|entry| entry.path()).collect();
    homes.sort();
    let kits: Vec<Jdk> = environment.into_iter().chain(homes).filter_map(Jdk::at).collect();
    let of_release = |release: u32| {
        let kit = kits.iter().find(|kit| kit.release == release).cloned();
        if kit.is_none() {
            skip_without(&format!("JDK {release} in JAVA_HOME or {MACHINES}"));
        }
        kit
    };
    RELEASES.into_iter().filter_map(of_release).collect()
}

/// JDKs for a slow test: only the `turn`-th, so that slow tests share the JDKs; all of them in the long form.
#[must_use]
pub fn jdks_in_turn(turn: usize) -> Vec<Jdk> {
    let mut kits = jdks();
    if !kits.is_empty() && !is_long() {
        kits = vec![kits.swap_remove(turn % kits.len())];
    }
    kits
}

impl Jdk {
    fn at(home: PathBuf) -> Option<Self> {
        let told = fs::read_to_string(home.join("release")).ok()?;
        let version = told.lines().find_map(|line| line.strip_prefix("JAVA_VERSION=\""))?;
        let release = version.split(['.', '"', '-']).next()?.parse().ok()?;
        home.join("bin/javac").exists().then_some(Self { release, home })
    }

    /// Its compiler. It runs for a second or two: optimising its own code costs more than it saves.
    #[must_use]
    pub fn javac(&self) -> Command {
        let mut javac = Command::new(self.home.join("bin/javac"));
        javac.args(["-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC"]);
        javac
    }
}

/// A copy of a sample project (`junit4` or `junit5`), together with the sources that it tests.
#[must_use]
pub fn sample(name: &str, junit: &str) -> Project {
    let project = Project::new(&format!("{name}/{junit}"));
    let samples = repository().join("tests/samples/jvm");
    copy(&samples.join(junit), project.folder());
    copy(&samples.join("tiles"), &project.folder().parent().unwrap().join("tiles"));
    project
}

/// A copy of another folder of `tests/samples`.
#[must_use]
pub fn project(name: &str, folder: &str) -> Project {
    let project = Project::new(name);
    copy(&repository().join("tests/samples").join(folder), project.folder());
    project
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let into = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &into);
        } else {
            fs::copy(entry.path(), into).unwrap();
        }
    }
}

impl Truth {
    /// Truth for `junit4` or `junit5` on a JVM of this release.
    #[must_use]
    pub fn of(junit: &str, release: u32) -> Self {
        let path = repository().join("tests/samples/jvm/truth.json");
        let truth: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let entries = |value: &Value| value.as_object().unwrap().clone().into_iter();
        let leaking =
            entries(&truth["suites"][junit]).map(|(id, leak)| (id, leak.as_str().unwrap().to_owned()));
        Self {
            leaks: entries(&truth["leaks"]).collect(),
            leaking: leaking.collect(),
            junit: junit.to_owned(),
            release,
        }
    }

    /// Tests that leak.
    pub fn leaking(&self) -> impl Iterator<Item = &str> {
        self.leaking.keys().map(String::as_str)
    }

    /// The leak of a test, by its name in the file.
    #[must_use]
    pub fn leak_of(&self, test: &str) -> Option<&str> {
        self.leaking.get(test).map(String::as_str)
    }

    /// Reduced to the test classes that the suite contains.
    #[must_use]
    pub fn within(mut self, suite: &SuiteReport) -> Self {
        let class = |id: &str| id.rsplit_once('.').map(|(class, _)| class.to_owned());
        let classes: Vec<_> = suite.tests.iter().map(|test| class(&test.id)).collect();
        self.leaking.retain(|id, _| classes.contains(&class(id)));
        self
    }

    /// Differences between truth and report, as readable lines; empty if there are none.
    #[must_use]
    pub fn differences(&self, suite: &SuiteReport) -> Vec<String> {
        let mut wrong: Vec<String> = Vec::new();
        for test in &suite.tests {
            let differs = match self.leaking.get(&test.id) {
                Some(leak) => self.leak(leak, test),
                None if test.verdict != Verdict::Pass => {
                    vec![format!("{}: clean, but {}", test.id, crate::truth::name(test.verdict))]
                }
                None => continue,
            };
            if !differs.is_empty() {
                wrong.extend(differs);
                wrong.push(format!("  {}", told(test)));
            }
        }
        let missing = self.leaking().filter(|id| !suite.tests.iter().any(|test| test.id == *id));
        wrong.extend(missing.map(|id| format!("{id}: not in the report")));
        wrong
    }

    /// Differences of one leaking test.
    #[must_use]
    pub fn leak(&self, name: &str, test: &TestReport) -> Vec<String> {
        let truth = &self.leaks[name];
        let mut wrong = Vec::new();
        let mut equal = |what: &str, is: String, right: String| {
            if is != right {
                wrong.push(format!("{}: {what}: {is}, {right} is right", test.id));
            }
        };
        equal("verdict", crate::truth::name(test.verdict), "fail".to_owned());
        let java: Vec<&Leak> = test.leaks.iter().filter(|leak| leak.kind == LeakKind::Java).collect();
        let titles: Vec<&str> = java.iter().map(|leak| leak.title.as_str()).collect();
        let class = truth["class"].as_str().unwrap();
        let objects = self.objects(truth);
        let count = objects[class].0;
        equal("leaks", titles.join(" + "), format!("{count} × {class}"));
        let sum = |of: fn(&(f64, f64)) -> f64| objects.values().map(of).sum::<f64>();
        let (all, bytes) = (sum(|(count, _)| *count), sum(|(count, bytes)| count * bytes));
        if let [leak] = java.as_slice() {
            equal("class", leak.class.clone().unwrap_or_default(), class.to_owned());
            equal("count", leak.count_per_iteration.to_string(), count.to_string());
            equal("bytes", leak.bytes_per_iteration.to_string(), bytes.to_string());
            let steps = leak.holder.iter().map(|s| format!("{} {}.{}", s.kind, s.owner, s.name));
            let right: Vec<&str> =
                truth["holder"].as_array().unwrap().iter().map(|step| step.as_str().unwrap()).collect();
            equal("holder", steps.collect::<Vec<_>>().join(" → "), right.join(" → "));
        }
        let metric = |metric: Metric| test.metrics.get(&metric).map_or(0.0, |value| value.value).to_string();
        equal("java.live_bytes", metric(Metric::JavaLiveBytes), bytes.to_string());
        equal("java.live_objects", metric(Metric::JavaLiveObjects), all.to_string());
        let told = |key: &str| truth[key].as_f64().unwrap_or(0.0).to_string();
        equal("java.direct_bytes", metric(Metric::JavaDirectBytes), told("direct_bytes"));
        equal("java.threads", metric(Metric::JavaThreads), told("threads"));
        wrong
    }

    /// Instances per iteration and bytes per instance, by class: those that apply to all runs, to this
    /// release, and to this release with this JUnit.
    fn objects(&self, truth: &Value) -> BTreeMap<String, (f64, f64)> {
        let of = |key: &str| truth[key].as_object().cloned().unwrap_or_default();
        let Self { junit, release, .. } = self;
        let keys = ["objects".to_owned(), format!("objects_{release}"), format!("objects_{junit}_{release}")];
        let all = keys.iter().flat_map(|key| of(key));
        all.map(|(class, pair)| (class, (pair[0].as_f64().unwrap(), pair[1].as_f64().unwrap()))).collect()
    }
}

/// One line with what the report says about a test.
fn told(test: &TestReport) -> String {
    let leak = |leak: &Leak| {
        let steps: Vec<String> =
            leak.holder.iter().map(|step| format!("{} {}.{}", step.kind, step.owner, step.name)).collect();
        format!("; {} {} held by {}", leak.id, leak.title, steps.join(" → "))
    };
    format!("it says: {}{}", test.reason, test.leaks.iter().map(leak).collect::<String>())
}
