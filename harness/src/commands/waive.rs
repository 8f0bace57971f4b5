//! `memgate waive`: appends a waiver to the waivers file.

use std::path::Path;

use memgate_config::{NewWaiver, Place, TestGlob, Waiver, WaiverTarget, append_waiver};
use memgate_model::{Leak, LeakKind};

use super::{report, settings};
use crate::cli::WaiveArgs;
use crate::exit::{self, ExpectedError};
use crate::output::Console;
use crate::session::{LATEST, ROOT, write_where_it_leads};

pub(super) fn waive(request: &WaiveArgs, console: &Console) -> Result<u8, ExpectedError> {
    let file = settings::waivers_file(request.config.config.as_deref())?;
    if request.until.over(settings::world()?.today) {
        return Err(ExpectedError::Usage {
            what: format!("cannot waive: {} is past, the waiver would cover nothing", request.until),
            hint: "`--until` takes the last day of the waiver".to_owned(),
        });
    }
    if let Some(place) = waived_at(request, console) {
        return Err(ExpectedError::usage(
            format!("cannot waive: the leak is waived already at {place}"),
            "change the date there",
        ));
    }
    let known = known(&request.leak);
    add(request, &file, known.as_ref().map(|(title, _)| title.clone()))?;
    let tests = request.test.as_ref().map(|test| format!(" in {test}")).unwrap_or_default();
    console.line(&format!("waived {}{tests} until {} in {}", request.leak, request.until, file.display()));
    if known.is_none() {
        console.warning(&format!("no report here knows the leak {}: is the id right?", request.leak));
    }
    let of_its_kind = known.is_some_and(|(_, leak)| leak.kind == LeakKind::Os && leak.frames.is_empty());
    if of_its_kind && request.test.is_none() {
        console.line(
            "nobody saw where it was opened or started: this accepts every one of its kind, in all tests; \
             `--test` limits it",
        );
    }
    Ok(exit::PASS)
}

/// The waiver in memgate.yaml or in the waivers file that covers the leak already. A configuration with mistakes has
/// none: the next run reports them.
fn waived_at(request: &WaiveArgs, console: &Console) -> Option<Place> {
    let settings = settings::load(request.config.config.as_deref(), console).ok()?;
    let wanted = WaiverTarget::Leak(request.leak.clone());
    let covers = |waiver: &Waiver| {
        let test = waiver.test.as_ref().map(TestGlob::text);
        waiver.target == wanted && (test.is_none() || test == request.test.as_deref())
    };
    settings.config.waivers.into_iter().find(covers).map(|waiver| waiver.place)
}

fn add(request: &WaiveArgs, file: &Path, comment: Option<String>) -> Result<(), ExpectedError> {
    let existing = settings::read(file)?.unwrap_or_default();
    let waiver = NewWaiver {
        leak: request.leak.clone(),
        test: request.test.clone(),
        reason: request.reason.clone(),
        owner: request.owner.clone(),
        until: request.until,
        comment,
    };
    let text = append_waiver(&existing, &file.display().to_string(), &waiver).map_err(|why| {
        let why = why.to_string();
        let (what, hint) = why.split_once("\nhint: ").unwrap_or((&why, ""));
        ExpectedError::Usage {
            what: format!("{}: cannot waive: {what}", file.display()),
            hint: hint.to_owned(),
        }
    })?;
    write_where_it_leads(file, text.as_bytes()).map_err(|why| ExpectedError::failed(&why))
}

/// The leak in the last session, with a title; `None`: that session does not have it.
fn known(leak: &str) -> Option<(String, Leak)> {
    let (report, _) = report::read(&Path::new(ROOT).join(LATEST)).ok()?;
    report.suites.iter().find_map(|suite| {
        suite.tests.iter().find_map(|test| {
            let mut leaks = test.leaks.iter().chain(&test.one_time);
            let found = leaks.find(|known| known.id == leak)?;
            Some((format!("{}::{}: {}", suite.name, test.id, found.title), found.clone()))
        })
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use memgate_config::{Config, Until};

    use super::*;
    use crate::cli::ConfigArgs;

    #[test]
    fn a_waiver_is_added_once_and_is_then_in_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memgate-waivers.yaml");
        let request = WaiveArgs {
            config: ConfigArgs::default(),
            leak: "n1-5f1c09a2b47d1e03".into(),
            test: None,
            reason: "upstream: \"1234\"".into(),
            until: Until::Never,
            owner: Some("@maps".into()),
        };
        add(&request, &file, Some("engine::A.b: 1 × 7 B".into())).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let config = Config::parse("version: 1", "memgate.yaml", &|_| None, Some(("w.yaml", &text))).unwrap();
        assert_eq!(config.waivers[0].reason, "upstream: \"1234\"");
        let again = add(&request, &file, None).unwrap_err();
        assert!(again.to_string().contains("waived already"), "{again}");
        assert_eq!(fs::read_to_string(&file).unwrap(), text, "and the file is as it was");
    }
}
