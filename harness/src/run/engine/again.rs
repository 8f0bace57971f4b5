//! Tests that memgate itself runs again: their output is not shown but kept in the session, and their result is found
//! among the recorded processes.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use memgate_analysis::ProcessRecord;
use memgate_launch::{Launch, Stream};
use memgate_wire::options::{Options, Target};
use memgate_wire::spool::CONTROL_BYTES;

use super::context::Context;
use super::state::Finished;
use super::supervise::Done;
use crate::agent::of_tests;
use crate::exit::ExpectedError;
use crate::reading::stream::os_path;
use crate::session::facts::ConfirmationFacts;
use crate::session::label::Label;

/// Initial size of a stream.
const FIRST_BYTES: u64 = (64 << 10) + CONTROL_BYTES as u64;

/// Maximum kept output of a confirming run.
const OUTPUT_BYTES: usize = 1 << 20;
/// Folder of that output in the session.
const FOLDER: &str = "confirm";

/// The agent's options for one executable that is run again.
pub(in crate::run) fn options_of(context: &Context<'_>, executable: &str, label: &Label) -> Options {
    let mut options = of_tests(&context.frames);
    options.targets = vec![Target::Executable(executable.into())];
    options.label = label.to_text();
    options
}

/// Its output is kept in the session: on the terminal it would only confuse.
pub(in crate::run) fn silent(launch: Launch) -> Launch {
    let capture = Stream::Capture { limit: OUTPUT_BYTES };
    Launch { stdin: Stream::Null, stdout: capture, stderr: capture, ..launch }
}

/// Why a test cannot run again: a command may build its tests in a folder that it removes afterwards.
pub(in crate::run) fn cannot_run_again(why: &ExpectedError) -> String {
    format!("it cannot be started again, its program or the folder it ran in may be gone: {why}")
}

/// Time since the first iteration began.
pub(in crate::run) fn elapsed(record: &ProcessRecord) -> Duration {
    let begin = record.windows.first().map_or(0, |window| window.start_ns);
    let end = record.windows.last().map_or(0, |window| window.end_ns);
    Duration::from_nanos(end.saturating_sub(begin))
}

/// Writes the output of a confirming run, and returns where. On a full disk it is lost, but what was measured counts.
pub(in crate::run) fn keep_output(
    context: &Context<'_>,
    test: &str,
    done: &Done,
) -> Result<String, ExpectedError> {
    let bytes = [done.ended.stdout.as_slice(), &done.ended.stderr].concat();
    unless_full(context.session.keep_output(FOLDER, test, "log", &bytes))
}

fn unless_full(kept: Result<String, ExpectedError>) -> Result<String, ExpectedError> {
    match kept {
        Err(ExpectedError::File { source, .. })
            if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
        {
            Ok(format!("not kept: {source}"))
        }
        kept => kept,
    }
}

pub(in crate::run) fn outcome(
    context: &Context<'_>,
    done: Done,
    test: &str,
    output: &str,
    finished: &mut Vec<Finished>,
) -> ConfirmationFacts {
    let exit = done.ended.exit;
    let ran = |process: &Finished| {
        process.record.windows.iter().any(|w| w.is(test))
            || process.record.open.iter().any(|open| open.id == test)
    };
    let recorded = done.finished.iter().any(Finished::is_main);
    let Some(process) = done.finished.into_iter().find(|process| process.is_main() && ran(process)) else {
        let why = match no_room(&context.frames) {
            Some(why) if !recorded => why,
            _ if recorded && exit.is_success() => {
                "alone, the test did not run, though its program did: it chooses its tests itself, or has \
                 others the second time"
                    .to_owned()
            }
            _ => format!("alone, the test did not run ({exit})"),
        };
        return ConfirmationFacts::Broken(format!("{why}; its output: {output}"));
    };
    let facts = process.facts();
    finished.push(process);
    ConfirmationFacts::Repeated(facts)
}

/// Returns why no stream can begin in the folder `frames`, if so. Called when a process that should be recorded wrote
/// nothing.
pub(in crate::run) fn no_room(frames: &Path) -> Option<String> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    if limit.is_some_and(|limit| limit < FIRST_BYTES) {
        return Some("the limit of file sizes (ulimit -f) leaves no room for what is recorded".to_owned());
    }
    let path = frames.join(format!(".room-{}", std::process::id()));
    let probe = || {
        let file = std::fs::File::create_new(&path)?;
        let room = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, FIRST_BYTES);
        std::fs::remove_file(&path)?;
        match room {
            // Not every file system supports this.
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            room => room.map_err(std::io::Error::from),
        }
    };
    let failed = |why| format!("there is no room for what is recorded in {}: {why}", frames.display());
    probe().err().map(failed)
}

/// Deletes the recording of a test in which nothing grew: a session would hold some MiB for each.
pub(in crate::run) fn forget(stream: &Path) -> Result<(), ExpectedError> {
    for path in [stream.to_owned(), os_path(stream)] {
        match fs::remove_file(&path) {
            Err(why) if why.kind() != ErrorKind::NotFound => {
                return Err(ExpectedError::file("remove", &path)(why));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use memgate_analysis::Window;

    use super::*;

    /// Regression: the run ended without a verdict, also about leaks that were confirmed.
    #[test]
    fn what_was_measured_counts_without_the_output_for_which_a_full_disk_has_no_room() {
        let kept = |why| unless_full(Err(ExpectedError::file("write", Path::new("a.log"))(why)));
        let full = std::io::Error::from(rustix::io::Errno::NOSPC);
        assert_eq!(kept(full).unwrap(), "not kept: No space left on device (os error 28)");
        assert!(kept(std::io::Error::from(ErrorKind::PermissionDenied)).is_err());
    }

    #[test]
    fn time_counts_from_the_first_iteration_on() {
        let window = |start_ns, end_ns| Window { start_ns, end_ns, ..Window::default() };
        let mut record = ProcessRecord::default();
        record.windows = vec![window(100, 200), window(300, 1100)];
        assert_eq!(elapsed(&record), Duration::from_nanos(1000));
        assert_eq!(elapsed(&ProcessRecord::default()), Duration::ZERO);
    }
}
