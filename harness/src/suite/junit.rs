//! JUnit in Java virtual machines: which commands start some, which of them are one suite, and how its tests run again.
//!
//! What the screen recorded of a worker (its hello, what it told of itself, its environment) becomes the command line of
//! memgate's launcher: the same `java`, flags, class path, directory, environment and system properties, and a plan of what to run.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use memgate_wire::Hello;
use memgate_wire::java::JvmInfo;

use super::inspect::{Kind, Program};
use crate::device::OPTIONS_VARIABLE;
use crate::device::java::{TOOL_OPTIONS, without_option};
use crate::device::local::{Environment, Launch};

/// Programs that run tests in Java virtual machines.
const TOOLS: [&str; 5] = ["mvn", "mvnw", "gradle", "gradlew", "java"];

const MAIN: &str = "io.memgate.launcher.Main";

/// The launcher's virtual machine differs from the worker's in these: soft references are no leak, and reflection does not become
/// generated classes after some calls.
const ADDED: [&str; 2] = ["-XX:SoftRefLRUPolicyMSPerMB=0", "-Dsun.reflect.inflationThreshold=2147483647"];

/// Options of `java` that name a class path, with the value behind them.
const CLASS_PATH: [&str; 3] = ["-cp", "-classpath", "--class-path"];
/// Other options whose value is the next argument.
const WITH_VALUE: [&str; 11] = [
    "--add-exports",
    "--add-modules",
    "--add-opens",
    "--add-reads",
    "--describe-module",
    "--enable-native-access",
    "--limit-modules",
    "--module-path",
    "--patch-module",
    "--upgrade-module-path",
    "-p",
];

/// Names of system properties that the virtual machine sets by itself begin so.
const STANDARD: [&str; 16] = [
    "awt.",
    "file.",
    "ftp.",
    "http.",
    "java.",
    "jdk.",
    "line.",
    "memgate.",
    "native.",
    "os.",
    "path.",
    "socksNonProxyHosts",
    "stderr.",
    "stdout.",
    "sun.",
    "user.",
];
/// Surefire's notes about the class path, which is long and not the launcher's.
const CLASS_PATH_NOTES: [&str; 2] = ["surefire.real.class.path", "surefire.test.class.path"];
/// The class path of a worker whose own names only a jar that stands for it.
const WORKER_CLASS_PATH: &str = "memgate.worker.class.path";

const LISTENER_JAR: &str = "/memgate-junit-platform.jar";

/// Rounds that screen a suite.
pub const ROUNDS: u32 = 6;

/// A suite: virtual machines with the same directory and class path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JvmSuiteId {
    /// Where they run.
    pub directory: String,
    /// What they run.
    pub class_path: Vec<String>,
}

/// A test class, or one test of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// Name of the class.
    pub class: String,
    /// Name of the test as its listener told it; empty: the whole class.
    pub test: String,
}

/// A virtual machine to be started again.
#[derive(Debug, Clone, Copy)]
pub struct Worker<'a> {
    /// What it was started with.
    pub hello: &'a Hello,
    /// What it told of itself.
    pub jvm: &'a JvmInfo,
    /// Its environment.
    pub environment: &'a [(OsString, OsString)],
    /// The option of ours in that environment.
    pub our_option: &'a OsStr,
}

/// Does this command start virtual machines that may run tests, as far as its name tells?
#[must_use]
pub fn starts_jvms(typed: &str, program: &Program) -> bool {
    let names = [Path::new(typed), program.path.as_path()].map(|path| path.file_name().unwrap_or_default());
    let is_java = matches!(program.kind, Kind::Elf(_) | Kind::Script { .. });
    is_java && names.iter().any(|name| TOOLS.iter().any(|tool| name == tool))
}

impl JvmSuiteId {
    /// The suite a virtual machine belongs to.
    #[must_use]
    pub fn of(hello: &Hello, jvm: &JvmInfo) -> Self {
        Self { directory: hello.working_directory.clone(), class_path: class_path(jvm) }
    }
}

impl Selection {
    /// As the suites of windows and tests are named.
    #[must_use]
    pub fn id(&self) -> String {
        if self.test.is_empty() { self.class.clone() } else { format!("{}.{}", self.class, self.test) }
    }

    /// Can a plan name it?
    #[must_use]
    pub fn is_plain(&self) -> bool {
        let broken = |c: char| c == '\n' || c == '\r';
        !self.class.contains(char::is_whitespace) && !self.class.is_empty() && !self.test.contains(broken)
    }

    fn line(&self) -> String {
        if self.test.is_empty() {
            format!("class {}\n", self.class)
        } else {
            format!("test {} {}\n", self.class, self.test)
        }
    }
}

/// The launcher's plan for six rounds over these classes.
#[must_use]
pub fn rounds<'a>(classes: impl IntoIterator<Item = &'a Selection>) -> String {
    let lines: String = classes.into_iter().map(Selection::line).collect();
    format!("mode rounds {ROUNDS}\n{lines}")
}

/// The launcher's plan that repeats one selection until it is told to stop.
#[must_use]
pub fn repeat(selection: &Selection) -> String {
    format!("mode repeat\n{}", selection.line())
}

/// Why a virtual machine cannot be started again with its tests.
#[must_use]
pub fn obstacle(jvm: &JvmInfo) -> Option<String> {
    if !jvm.module_path.is_empty() {
        return Some(
            "its tests are on the module path, which the launcher does not use in this version".to_owned(),
        );
    }
    jvm.home.is_empty().then(|| "it did not tell where its Java is".to_owned())
}

/// Starts memgate's launcher like `worker`, with the agent as `option` says.
#[must_use]
pub fn launcher(worker: Worker<'_>, option: &OsStr, launcher_jar: &Path, plan: &Path) -> Launch {
    let Worker { hello, jvm, environment, our_option } = worker;
    let mut arguments: Vec<OsString> = flags(&hello.arguments).into_iter().map(OsString::from).collect();
    if jvm.command.contains("surefire") && !arguments.iter().any(|a| a == "-ea" || a == "-da") {
        // Surefire switches assertions on by itself, not by a flag.
        arguments.push("-ea".into());
    }
    arguments.extend(ADDED.map(OsString::from));
    let given = |name: &str| {
        hello
            .arguments
            .iter()
            .any(|a| a.strip_prefix("-D").is_some_and(|d| d.split('=').next() == Some(name)))
    };
    let own = jvm.properties.iter().filter(|(name, _)| is_the_builds(name) && !given(name));
    arguments.extend(own.map(|(name, value)| OsString::from(format!("-D{name}={value}"))));
    arguments.push(option.to_owned());
    let mut paths = vec![launcher_jar.to_string_lossy().into_owned()];
    paths.extend(class_path(jvm));
    arguments.extend(["-cp".into(), paths.join(":").into(), MAIN.into(), plan.into()]);
    let mut launch = Launch::new(Path::new(&jvm.home).join("bin/java"), arguments);
    launch.directory = Some(PathBuf::from(&hello.working_directory)).filter(|d| d.is_absolute());
    launch.environment = Environment::Exactly(without_ours(environment, our_option));
    launch
}

/// The entries of the class path the tests run with, without what the agent put there.
fn class_path(jvm: &JvmInfo) -> Vec<String> {
    let told = jvm.properties.iter().find(|(name, _)| name == WORKER_CLASS_PATH);
    let mut paths: Vec<String> = match told {
        Some((_, paths)) => paths.split(':').filter(|path| !path.is_empty()).map(str::to_owned).collect(),
        None => jvm.class_path.clone(),
    };
    paths.retain(|path| !path.ends_with(LISTENER_JAR));
    paths
}

fn without_ours(environment: &[(OsString, OsString)], our_option: &OsStr) -> Vec<(OsString, OsString)> {
    let kept = environment.iter().filter(|(name, _)| name != OPTIONS_VARIABLE);
    kept.filter_map(|(name, value)| {
        let value = if name == TOOL_OPTIONS { without_option(value, our_option)? } else { value.clone() };
        Some((name.clone(), value))
    })
    .collect()
}

/// Not one that every virtual machine has: the build set it.
fn is_the_builds(name: &str) -> bool {
    !STANDARD.iter().any(|standard| name.starts_with(standard))
        && !CLASS_PATH_NOTES.contains(&name)
        && !name.contains('=')
}

/// The flags of a `java` command line: without class path, main class, agents of tools and what comes behind.
fn flags(arguments: &[String]) -> Vec<String> {
    let mut flags = Vec::new();
    let mut rest = arguments.iter().skip(1);
    while let Some(argument) = rest.next() {
        let name = argument.as_str();
        if CLASS_PATH.contains(&name) {
            rest.next();
        } else if WITH_VALUE.contains(&name) {
            flags.push(argument.clone());
            flags.extend(rest.next().cloned());
        } else if name == "-jar" || name == "-m" || name == "--module" || !name.starts_with(['-', '@']) {
            break;
        } else if !is_left_out(name) {
            flags.push(argument.clone());
        }
    }
    flags
}

/// Debuggers and profilers, and what would write the build's coverage again. A file of arguments holds the class path.
fn is_left_out(flag: &str) -> bool {
    let of_tools = ["-agentlib:", "-agentpath:", "-Xrun", "-Xdebug", "--class-path=", "@"];
    of_tools.iter().any(|start| flag.starts_with(start))
        || flag.starts_with("-javaagent:") && flag.contains("jacoco")
}

#[cfg(test)]
mod tests {
    use memgate_wire::{ProcessRole, Runtime};

    use super::*;

    fn hello(arguments: &[&str]) -> Hello {
        Hello {
            wire_version: 1,
            agent_version: String::new(),
            pid: 7,
            parent_pid: 1,
            abi: String::new(),
            pointer_bytes: 8,
            runtime: Runtime::HotSpot,
            role: ProcessRole::Main,
            executable: "/jdk/bin/java".into(),
            arguments: arguments.iter().map(|&a| a.to_owned()).collect(),
            working_directory: "/p/tiles".into(),
            realtime_offset_ns: 0,
            capabilities: Vec::new(),
            blind: None,
            label: String::new(),
        }
    }

    fn jvm(properties: &[(&str, &str)]) -> JvmInfo {
        JvmInfo {
            vm: String::new(),
            version: "17".into(),
            home: "/jdk".into(),
            collector: "G1".into(),
            command: "/p/target/surefire/surefirebooter.jar x".into(),
            vm_arguments: Vec::new(),
            class_path: vec!["/p/classes".into(), "/m/junit.jar".into()],
            module_path: Vec::new(),
            properties: properties.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect(),
            listener: "junit4".into(),
        }
    }

    #[test]
    fn the_worker_is_started_again_as_it_was() {
        let hello = hello(&[
            "/jdk/bin/java",
            "-Xmx1g",
            "-cp",
            "/x.jar",
            "--add-opens",
            "java.base/java.lang=ALL-UNNAMED",
            "-Da=1",
            "-agentlib:jdwp=server=y",
            "-javaagent:/m/org.jacoco.agent.jar=x",
            "-javaagent:/m/mockito.jar",
            "-jar",
            "/p/surefirebooter.jar",
            "-Xother",
        ]);
        let jvm = jvm(&[
            ("a", "1"),
            ("basedir", "/p"),
            ("java.home", "/jdk"),
            ("surefire.test.class.path", "long"),
        ]);
        let environment: [(OsString, OsString); 2] =
            [("JAVA_TOOL_OPTIONS".into(), "-Du=1 -agentpath:/a.so=/o".into()), ("HOME".into(), "/h".into())];
        let worker = Worker {
            hello: &hello,
            jvm: &jvm,
            environment: &environment,
            our_option: "-agentpath:/a.so=/o".as_ref(),
        };
        let launch =
            launcher(worker, "-agentpath:/a.so=/o2".as_ref(), Path::new("/c/l.jar"), Path::new("/s/plan"));
        let want = [
            "-Xmx1g",
            "--add-opens",
            "java.base/java.lang=ALL-UNNAMED",
            "-Da=1",
            "-javaagent:/m/mockito.jar",
            "-ea",
            "-XX:SoftRefLRUPolicyMSPerMB=0",
            "-Dsun.reflect.inflationThreshold=2147483647",
            "-Dbasedir=/p",
            "-agentpath:/a.so=/o2",
            "-cp",
            "/c/l.jar:/p/classes:/m/junit.jar",
            "io.memgate.launcher.Main",
            "/s/plan",
        ];
        assert_eq!(launch.arguments, want);
        assert_eq!((launch.program, launch.directory), ("/jdk/bin/java".into(), Some("/p/tiles".into())));
        let want = [("JAVA_TOOL_OPTIONS".into(), "-Du=1".into()), ("HOME".into(), "/h".into())];
        assert_eq!(launch.environment, Environment::Exactly(want.to_vec()));
    }

    #[test]
    fn a_worker_whose_class_path_is_a_jar_tells_what_is_behind_it() {
        let jvm = jvm(&[(WORKER_CLASS_PATH, "/p/classes:/m/launcher.jar:/c/memgate-junit-platform.jar")]);
        let id = JvmSuiteId::of(&hello(&[]), &jvm);
        assert_eq!(id.class_path, ["/p/classes", "/m/launcher.jar"]);
    }

    #[test]
    fn plans_are_lines() {
        let class = Selection { class: "a.ATest".into(), test: String::new() };
        let test = Selection { class: "a.ATest".into(), test: "scroll(int)[2]".into() };
        assert_eq!(rounds([&class]), "mode rounds 6\nclass a.ATest\n");
        assert_eq!(repeat(&test), "mode repeat\ntest a.ATest scroll(int)[2]\n");
        assert_eq!((class.id(), test.id()), ("a.ATest".into(), "a.ATest.scroll(int)[2]".into()));
        assert!(test.is_plain() && !Selection { test: "a\nb".into(), ..class }.is_plain());
    }

    #[test]
    fn tools_of_java_are_known_by_name() {
        let script = |path: &str| Program {
            path: path.into(),
            kind: Kind::Script { interpreter: "/bin/sh".into() },
            privileged: false,
        };
        for (typed, path, is) in [
            ("mvn", "/usr/share/maven/bin/mvn", true),
            ("./gradlew", "/p/gradlew", true),
            ("/opt/jdk/bin/java", "/opt/jdk/bin/java", true),
            ("ctest", "/usr/bin/ctest", false),
            ("./mvn.sh", "/p/mvn.sh", false),
        ] {
            assert_eq!(starts_jvms(typed, &script(path)), is, "{typed}");
        }
    }
}
