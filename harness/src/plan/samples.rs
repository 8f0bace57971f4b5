//! Settings and requests for the tests of this folder.

use memgate_config::Config;

use super::{Settings, World};
use crate::cli::{OutputArgs, RunArgs};

pub(super) const YAML: &str = r#"
version: 1
project: tiles
suites:
  engine: { run: [build/engine_tests], targets: ["build/*_tests"], timeout: 5s, env: { MODE: fast } }
  replay: { run: [build/replay, "--count={n}"], cwd: data }
  app: { runner: instrumentation, package: com.example.test, apks: [app.apk] }
measure: { warm_up: 2, iterations: 20, unconfirmed: fail }
thresholds:
  native.live_bytes: 100
  os.rss: { per: suite, warn: +10%, against: baseline }
  os.fds: off
  tests:
    - match: "engine::MapCache.*"
      native.live_bytes: { limit: 64 KiB, per: test }
    - match: "Noisy.*"
      native.live_bytes: off
    - match: "engine::*"
      native.live_bytes: 7
waivers:
  - { frame: "libfontconfig.so*!FcInit*", reason: once, until: never }
  - { leak: n1-5f1c09a2b47d1e03, reason: known, until: 2027-03-01, owner: "@maps" }
reports:
  junit: { path: out/junit.xml }
"#;

pub(super) fn settings(yaml: &str) -> Settings {
    let config = Config::parse(yaml, "memgate.yaml", &|_| None, None).unwrap_or_else(|e| panic!("{e}"));
    Settings { config, file: Some("memgate.yaml".into()), root: "/project".into(), baseline: None }
}

pub(super) fn world() -> World {
    World {
        today: jiff::civil::date(2026, 11, 21),
        directory: "/project".into(),
        project: "/project".into(),
        narrowing: Vec::new(),
    }
}

pub(super) fn request() -> RunArgs {
    RunArgs { output: OutputArgs { output_dir: ".memgate".into() }, ..RunArgs::default() }
}
