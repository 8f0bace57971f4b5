//! The shard of a run that this machine executes, and what must be equal in all shards.

use std::ffi::OsString;
use std::path::PathBuf;

use memgate_config::{Config, Suite};
use memgate_history::sha256_hex;
use memgate_model::ShardNumber;

use super::selection::is_sharded;
use super::{PlannedSuite, Settings, World};
use crate::cli::RunArgs;
use crate::exit::ExpectedError;
use crate::origin;

/// A shard of a run that is spread over several machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedShard {
    /// Its number.
    pub number: ShardNumber,
    /// Reports of earlier runs whose times determine how units are divided; empty: units are divided by name.
    pub timings: Vec<PathBuf>,
    /// Whether only part of the tests is requested in all shards together.
    pub narrowed: bool,
    /// Digest of memgate.yaml, which must be the same for all shards.
    pub config: String,
    /// The options that must be the same for all shards.
    pub options: String,
    /// Digest of the accepted baseline; empty: there is none.
    pub baseline: String,
}

/// The requested shard of the run.
pub(super) fn shard(
    settings: &Settings,
    request: &RunArgs,
    world: &World,
    narrowed: bool,
) -> Result<Option<PlannedShard>, ExpectedError> {
    let Some(number) = request.partition else { return Ok(None) };
    let shards = |suite: &Suite| suite.env.iter().any(|(name, value)| is_sharded(name, value));
    let of_world = world.narrowing.iter().any(|(name, value)| is_sharded(name, value));
    if of_world || settings.config.suites.iter().any(shards) {
        return Err(ExpectedError::usage(
            "GTEST_TOTAL_SHARDS divides the tests already",
            "take it away, or --partition: nobody could say that all shards together ran everything",
        ));
    }
    let baseline = settings.baseline.as_ref().map(|baseline| sha256_hex(format!("{baseline:?}").as_bytes()));
    Ok(Some(PlannedShard {
        number,
        timings: request.timings.clone(),
        narrowed,
        config: sha256_hex(as_written(settings, world).as_bytes()),
        options: typed(request, world),
        baseline: baseline.unwrap_or_default(),
    }))
}

/// Whether GTEST_TOTAL_SHARDS divides the tests of one of these suites.
pub(super) fn are_sharded(suites: &[PlannedSuite], world: &World) -> bool {
    let shards = |(name, value): &(OsString, OsString)| {
        name.to_str().zip(value.to_str()).is_some_and(|(name, value)| is_sharded(name, value))
    };
    world.narrowing.iter().any(|(name, value)| is_sharded(name, value))
        || suites.iter().any(|suite| suite.environment.iter().any(shards))
}

/// The settings that affect what is run and how it is judged, independent of their file's path on this machine.
fn as_written(settings: &Settings, world: &World) -> String {
    let Config { suites, instrumented, measure, thresholds, waivers, history, .. } = &settings.config;
    let judged = (suites, instrumented, measure, thresholds, waivers, &history.known, &history.stale_waivers);
    let files = [settings.file.clone(), Some(settings.root.join(&settings.config.waivers_file.path))];
    let text = files.into_iter().flatten().fold(format!("{judged:?}"), |text, file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        text.replace(&*file.to_string_lossy(), &name)
    });
    origin::without_folders(&text, &world.project, &world.directory)
}

/// The options that affect what is run and how it is judged. Folders of the machine are removed.
fn typed(request: &RunArgs, world: &World) -> String {
    let RunArgs { suites, filter, ignore_test_failures, repeat_screen, iterations, warm_up, .. } = request;
    let RunArgs { timeout, hunt, no_confirm, targets, device, devices, program, .. } = request;
    let mut typed = vec![
        format!("{:?}", (suites, filter, ignore_test_failures, repeat_screen, iterations, warm_up)),
        format!("{:?}", (timeout, hunt, no_confirm, targets, device.is_some(), devices)),
        format!("{:?}", world.narrowing),
    ];
    typed.extend(program.iter().skip(1).map(|argument| argument.to_string_lossy().into_owned()));
    origin::without_folders(&typed.join(" "), &world.project, &world.directory)
}
