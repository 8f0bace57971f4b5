//! Builds the agent and puts it where `src/agent/embedded.rs` takes it in.
//!
//! A second cargo builds the agent, for two reasons: the agent has a profile of its own (no
//! unwinding, one code unit), and a `cdylib` that exports `malloc` must not be linked into anything
//! else. Its target folder is `memgate-agent` below ours: there the agent stays cached for all
//! profiles. `MEMGATE_AGENT_SO` names a finished agent instead. The Java part is compiled if a
//! `javac` is found; without one this memgate refuses JUnit suites.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this is how a build script speaks to cargo")]

mod jars;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const FINISHED: &str = "MEMGATE_AGENT_SO";
const LIBRARY: &str = "libmemgate_agent.so";
const PROFILE: &str = "agent";

/// What the outer cargo, or clippy, tells its compiler must not reach the agent.
const LEAKING: [&str; 5] = [
    "RUSTFLAGS",
    "RUSTDOCFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "RUSTC_WORKSPACE_WRAPPER",
    "CARGO_PRIMARY_PACKAGE",
];
const LEAKING_PREFIXES: [&str; 7] = [
    "CARGO_BUILD_",
    "CARGO_CFG_",
    "CARGO_FEATURE_",
    "CARGO_MANIFEST_",
    "CARGO_PKG_",
    "CARGO_PROFILE_",
    "CARGO_TARGET_",
];

fn main() -> ExitCode {
    match embed() {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("failed to {text}");
            eprintln!("hint: {FINISHED}=/path/to/{LIBRARY} embeds a finished agent instead");
            ExitCode::FAILURE
        }
    }
}

fn embed() -> Result<(), String> {
    println!("cargo::rerun-if-env-changed={FINISHED}");
    let agent = match env::var_os(FINISHED).filter(|path| !path.is_empty()) {
        Some(path) => {
            let path = PathBuf::from(path);
            println!("cargo::rerun-if-changed={}", path.display());
            path
        }
        // Not watched: what this script writes is newer than its start, so that the next build
        // would do all of it again.
        None => build()?,
    };
    let out = variable("OUT_DIR")?;
    fs::copy(&agent, out.join(LIBRARY)).map_err(|e| format!("embed the agent {}: {e}", agent.display()))?;
    let java = variable("CARGO_MANIFEST_DIR")?.join("../device-agent/java");
    if let Some(missing) = jars::build(&java, &out)? {
        println!("cargo::warning={missing}");
    }
    Ok(())
}

fn build() -> Result<PathBuf, String> {
    let workspace = variable("CARGO_MANIFEST_DIR")?.join("..");
    for input in ["device-agent", "Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", workspace.join(input).display());
    }
    let folder = target_folder()?;
    let target = env::var("TARGET").map_err(|e| format!("read TARGET: {e}"))?;
    let is_cross = env::var("HOST").is_ok_and(|host| host != target);

    let mut cargo = Command::new(variable("CARGO")?);
    cargo.args(["build", "--locked", "--package", "memgate-agent", "--profile", PROFILE, "--target-dir"]);
    cargo.arg(&folder).arg("--manifest-path").arg(workspace.join("Cargo.toml"));
    let mut built = folder;
    if is_cross {
        cargo.args(["--target", &target]);
        built.push(&target);
    }
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let leaks =
            LEAKING.contains(&&*text) || LEAKING_PREFIXES.iter().any(|prefix| text.starts_with(prefix));
        if leaks && text != "CARGO_BUILD_JOBS" {
            cargo.env_remove(&name);
        }
    }
    let output = cargo.output().map_err(|e| format!("build the agent: start cargo: {e}"))?;
    if !output.status.success() {
        return Err(format!("build the agent:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(built.join(PROFILE).join(LIBRARY))
}

/// `memgate-agent` beside the folder of the outer profile: `OUT_DIR` is
/// `TARGET/PROFILE/build/memgate-HASH/out`.
fn target_folder() -> Result<PathBuf, String> {
    let out = variable("OUT_DIR")?;
    let target = out.ancestors().nth(4).map(Path::to_path_buf);
    target
        .map(|target| target.join("memgate-agent"))
        .ok_or_else(|| format!("find the target folder of {}", out.display()))
}

fn variable(name: &str) -> Result<PathBuf, String> {
    env::var_os(name).map(PathBuf::from).ok_or_else(|| format!("read {name}: cargo did not set it"))
}
