//! `memgate tune`: proposes thresholds from the history of a line, as a patch of memgate.yaml with its evidence.
//!
//! Data flow: series of the store, with today's thresholds → `memgate_server::tune` → text, and with `--write` edits of
//! memgate.yaml, one after the other. If a proposed threshold lets through commits that fail today, the patch, the file
//! and the console say so.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use memgate_config::{NewThreshold, set_threshold};
use memgate_history::tune::Tuned;
use memgate_model::format_number_of;
use memgate_server::tune::{patch, rows};

use super::history::{Asked, Wanted};
use super::settings;
use crate::cli::TuneArgs;
use crate::exit::{self, ExpectedError};
use crate::history;
use crate::output::Console;
use crate::session::write_where_it_leads;

pub(super) fn tune(request: &TuneArgs, console: &Console) -> Result<u8, ExpectedError> {
    let settings = settings::load(request.config.config.as_deref(), console)?;
    let found = history::block_on(async {
        let asked = Asked::open(&request.of, console).await?;
        let found = asked
            .store
            .series(&asked.project, &asked.choice)
            .await
            .map_err(|why| history::store_error(&why))?;
        found.ok_or_else(|| asked.missing(Wanted::Line))
    })?;
    let (selection, series) = found?;
    let rows = rows(&series, &settings.config.thresholds);
    console.text(&patch(&selection, &rows))?;
    if request.write {
        let proposed: Vec<_> = rows.iter().filter_map(|row| Some((row.threshold()?, row.tuned))).collect();
        write(&proposed, settings::path(request.config.config.as_deref()), console)?;
    }
    Ok(exit::PASS)
}

/// Sets the proposed thresholds in memgate.yaml, one after the other.
fn write(proposed: &[(NewThreshold, Tuned)], file: &Path, console: &Console) -> Result<(), ExpectedError> {
    let mut text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(why) if why.kind() == ErrorKind::NotFound => settings::EMPTY.to_owned(),
        Err(why) => return Err(ExpectedError::file("read", file)(why)),
    };
    let shown = file.display().to_string();
    let mut set = 0;
    for (new, tuned) in proposed {
        let name = format!("{}::{}: {}", new.suite, new.test, new.metric.name());
        match set_threshold(&text, &shown, &settings::variable, new) {
            Ok(edited) => {
                text = edited;
                set += 1;
                if tuned.lets_through > 0 {
                    let (through, of) = (tuned.lets_through, tuned.commits);
                    let value = new.value();
                    console.warning(&format!(
                        "{name}: {value} lets through {through} of {of} commits that fail today"
                    ));
                }
            }
            Err(why) => {
                let why = why.to_string().replace("\nhint: ", "; ");
                console.warning(&format!("{name}: {why}"));
            }
        }
    }
    if set == 0 {
        console.line(&format!("{shown} stays as it is: there is no threshold to write"));
        return Ok(());
    }
    write_where_it_leads(file, text.as_bytes()).map_err(|why| ExpectedError::failed(&why))?;
    console.line(&format!("wrote {} to {shown}", format_number_of(set, "threshold")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use memgate_config::{Config, Limit as Configured};
    use memgate_history::tune::{BackTest, Proposal};
    use memgate_model::{Level, Metric};

    use super::*;
    use crate::cli::ColorChoice;

    #[test]
    fn thresholds_are_written_into_the_file_beside_what_stands_there() {
        let proposed = |test: &str, metric, limit, lets_through| {
            let (today, proposed) = (BackTest::default(), BackTest::default());
            let proposal = Proposal::Noisy;
            let tuned = Tuned { proposal, commits: 70, growing: 1, today, proposed, lets_through };
            let (suite, test, level) = ("engine".to_owned(), test.to_owned(), Level::Fail);
            let evidence = if lets_through > 0 { "LETS THROUGH 1" } else { "never needed" }.to_owned();
            (NewThreshold { suite, test, metric, level, limit, evidence }, tuned)
        };
        let proposed = [
            proposed("Cache.warm[x]", Metric::NativeLiveBytes, 96, 1),
            proposed("Files.open", Metric::OsFds, 0, 0),
        ];
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memgate.yaml");
        let text = "version: 1   # ours\nthresholds:\n  tests:\n    # two logs\n    - match: engine::Files.*\n      os.fds: 4\n";
        fs::write(&file, text.replace("engine::Files.*", "\"engine::Files.*\"")).unwrap();
        write(&proposed, &file, &Console::new(ColorChoice::Never)).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let config = Config::parse(&text, "m.yaml", &|_| None, None).unwrap();
        let limit = |test: &str, metric| config.thresholds.for_test("engine", test, metric).unwrap().fail;
        assert_eq!(limit("Cache.warm[x]", Metric::NativeLiveBytes), Some(Configured::Absolute(96)));
        assert_eq!(limit("Map.leaks", Metric::NativeLiveBytes), Some(Configured::Absolute(0)));
        assert_eq!(limit("Files.open", Metric::OsFds), Some(Configured::Absolute(0)));
        assert_eq!(limit("Files.close", Metric::OsFds), Some(Configured::Absolute(4)), "{text}");
        assert!(
            text.contains("# ours\n") && text.contains("# two logs\n") && text.contains("LETS THROUGH 1"),
            "{text}"
        );
    }
}
