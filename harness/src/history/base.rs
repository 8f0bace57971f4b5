//! The base of a run: for a review, the measured commit with which it was merged; for a commit on a line, the commit
//! before it.
//!
//! Data flow: manifest, commits known to the clone → the server in memgate.yaml, or `history.db` → [`BaseLeaks`],
//! stored as `base.json` in the session and next to it → the policy of the gate. If a server does not reply within
//! [`LIMIT`], the last fetched file is used, provided that it belongs to these commits; otherwise there is no base, and
//! that is reported. `memgate gate` sends no request: it reads the base that was used before.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use memgate_analysis::{GatePolicy, Review, Waiver, WaiverMatch};
use memgate_config::{History, KnownLeaks, StaleWaivers, UploadMode};
use memgate_history::Manifest;
use memgate_model::{BASE_VERSION, Base, BaseLeaks, Known, Level};
use memgate_server::store::{Store, Wanted};

use super::upload;
use crate::exit::ExpectedError;
use crate::session::write_atomically;

/// File name, in a session and next to the sessions.
pub(crate) const FILE: &str = "base.json";
/// Time limit for a server's reply.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);
/// What a run waits for meanwhile.
pub(crate) const SLOW: &str = "waiting for the history: which leaks does the base have? 10 s at most";

/// Whether a base could matter for this run.
#[must_use]
pub(crate) fn is_wanted(history: &History, manifest: &Manifest, waivers: &[Waiver]) -> bool {
    let is_review = manifest.is_review() && history.known != KnownLeaks::Fail;
    is_review || waivers.iter().any(|waiver| matches!(waiver.matches, WaiverMatch::Leak(_)))
}

/// The base to look for: for a review, the commit that was merged in (`merged`); otherwise the commit before.
#[must_use]
pub(crate) fn wanted(manifest: &Manifest, merged: &[String]) -> Wanted {
    let commit = manifest.commit.clone().unwrap_or_default();
    let (branch, commits) = match manifest.is_review() {
        true => (commit.target, merged.to_vec()),
        false => (commit.branch, manifest.ancestors.clone()),
    };
    Wanted { branch, environment: manifest.environment.clone(), commits }
}

/// Finds the base; if there is none, returns why. `sessions`: the folder with `history.db` and the last fetched file.
pub(crate) fn find(history: &History, project: &str, wanted: &Wanted, sessions: &Path) -> BaseLeaks {
    let none = |why: &str| {
        let merged = wanted.commits.first().cloned().unwrap_or_default();
        let base = Base { branch: wanted.branch.clone(), merged, why: why.to_owned(), ..Base::default() };
        BaseLeaks {
            version: BASE_VERSION,
            project: project.to_owned(),
            environment: wanted.environment.0.clone(),
            base,
            ..BaseLeaks::default()
        }
    };
    if wanted.commits.is_empty() {
        return none("the clone does not tell which commit was merged in: fetch the target branch");
    }
    let asked = match history.upload.as_ref().filter(|to| to.mode != UploadMode::Off) {
        Some(to) => {
            let found = upload::base(to, project, wanted, LIMIT).map_err(|why| why.to_string());
            found.map(|found| (found, to.server.clone()))
        }
        None => local(project, wanted, sessions).map(|found| (found, super::FILE.to_owned())),
    };
    match asked {
        Ok((Some(mut found), source)) => {
            found.base.source = source;
            found.fetched_s = now_s();
            // This file does not affect the verdict. Without it, the next run just has no fallback.
            drop(keep(&sessions.join(FILE), &found));
            found
        }
        Ok((None, _)) => none(&format!(
            "no whole run of {} in this environment, at most 50 commits back",
            if wanted.branch.is_empty() { "this branch" } else { &wanted.branch }
        )),
        Err(why) => fetched(&sessions.join(FILE), project, wanted).map_or_else(
            || none(&why),
            |mut found| {
                found.base.why.clone_from(&why);
                found
            },
        ),
    }
}

/// A file that was fetched earlier, if it belongs to one of the wanted commits.
#[must_use]
pub(crate) fn fetched(path: &Path, project: &str, wanted: &Wanted) -> Option<BaseLeaks> {
    let mut found = read(path).ok().flatten().filter(|found| !found.base.is_none())?;
    let is_ours = found.project == project
        && found.base.branch == wanted.branch
        && found.environment == wanted.environment.0;
    let merged = wanted.commits.first()?;
    let before = match wanted.commits.iter().position(|sha| *sha == found.base.sha) {
        Some(before) => u32::try_from(before).ok()?,
        None if found.base.merged == *merged => found.base.before,
        None => return None,
    };
    found.base.merged.clone_from(merged);
    found.base.before = before;
    found.base.age_s = Some(now_s().saturating_sub(found.fetched_s));
    is_ours.then_some(found)
}

/// Reads a file with a base; `None`: the file does not exist.
///
/// # Errors
/// When it cannot be read, or is not a base.
pub(crate) fn read(path: &Path) -> Result<Option<BaseLeaks>, ExpectedError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(ExpectedError::file("read", path)(why)),
    };
    let wrong = |why: String| ExpectedError::session(path, why, "`memgate baseline fetch` writes it anew");
    let base: BaseLeaks = serde_json::from_slice(&bytes).map_err(|why| wrong(why.to_string()))?;
    match base.version {
        BASE_VERSION => Ok(Some(base)),
        other => Err(wrong(format!("its version is {other}, this memgate knows {BASE_VERSION}"))),
    }
}

/// Writes a base.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn keep(path: &Path, base: &BaseLeaks) -> Result<(), ExpectedError> {
    let mut text = serde_json::to_vec_pretty(base).map_err(|why| ExpectedError::failed(&why))?;
    text.push(b'\n');
    write_atomically(path, &text).map_err(|why| ExpectedError::failed(&why))
}

/// Adds the base to the policy.
pub(crate) fn hold_against(policy: &mut GatePolicy, base: BaseLeaks, history: &History, is_review: bool) {
    let level = match history.stale_waivers {
        StaleWaivers::Warn => Level::Warn,
        StaleWaivers::Fail => Level::Fail,
    };
    let fixed = base.leaks.iter().filter(|(_, leak)| !leak.alive && !leak.fixed.is_empty());
    policy.fixed = (fixed.map(|(id, leak)| (id.clone(), leak.fixed.clone())).collect(), level);
    let known = match history.known {
        KnownLeaks::Allow => Known::Allow,
        KnownLeaks::Warn => Known::Warn,
        KnownLeaks::Fail => Known::Fail,
    };
    policy.review = (is_review && known != Known::Fail).then_some(Review { base, known });
}

fn local(project: &str, wanted: &Wanted, sessions: &Path) -> Result<Option<BaseLeaks>, String> {
    if !sessions.join(super::FILE).exists() {
        return Ok(None);
    }
    let address = super::address(sessions, None);
    let found = super::block_on(async {
        let store = Store::open_to_read(&address).await?;
        let found = store.base(project, wanted).await;
        store.close().await;
        found
    });
    found.map_err(|why| why.to_string())?.map_err(|why| super::store_error(&why).to_string())
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use memgate_history::Environment;

    use super::*;

    fn wanted(commits: &[&str]) -> Wanted {
        Wanted {
            branch: "main".into(),
            environment: Environment([("architecture".to_owned(), "x86_64".to_owned())].into()),
            commits: commits.iter().map(|sha| (*sha).to_owned()).collect(),
        }
    }

    fn base() -> BaseLeaks {
        BaseLeaks {
            version: BASE_VERSION,
            project: "tiles".into(),
            environment: wanted(&[]).environment.0,
            base: Base {
                branch: "main".into(),
                merged: "c9".into(),
                sha: "c8".into(),
                before: 1,
                ..Base::default()
            },
            ..BaseLeaks::default()
        }
    }

    #[test]
    fn an_earlier_file_counts_where_it_is_of_these_commits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        assert_eq!(fetched(&path, "tiles", &wanted(&["c9"])), None, "there is none");
        keep(&path, &base()).unwrap();
        let before = |commits: &[&str]| {
            fetched(&path, "tiles", &wanted(commits)).map(|found| (found.base.merged, found.base.before))
        };
        assert_eq!(before(&["c9"]), Some(("c9".into(), 1)), "a clone of depth 1");
        assert_eq!(before(&["d1", "c9", "c8"]), Some(("d1".into(), 2)), "the target has gone on");
        assert_eq!(before(&["d1"]), None, "nobody knows whether it is before");
        assert_eq!(fetched(&path, "other", &wanted(&["c9"])), None);
        for wanted in [
            Wanted { branch: "release/1".into(), ..wanted(&["c9"]) },
            Wanted { environment: Environment::default(), ..wanted(&["c9"]) },
        ] {
            assert_eq!(fetched(&path, "tiles", &wanted), None);
        }
    }

    #[test]
    fn a_file_that_is_no_base_is_told_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        for text in [
            "{",
            r#"{"version": 1}"#,
            r#"{"version": 7, "project": "", "environment": {}, "base": {"branch": ""}, "leaks": {}}"#,
        ] {
            std::fs::write(&path, text).unwrap();
            let why = read(&path).unwrap_err();
            assert!(why.hint().unwrap().contains("baseline fetch"), "{why}");
        }
    }

    #[test]
    fn without_a_history_the_reason_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let found =
            |commits: &[&str]| find(&History::default(), "tiles", &wanted(commits), folder.path()).base;
        assert!(
            found(&[]).why.contains("does not tell") && found(&["c9"]).why.contains("no whole run of main")
        );
        assert!(found(&["c9"]).is_none() && found(&["c9"]).merged == "c9");
    }
}
