//! `memgate upload`: uploads recorded sessions to a server.

use memgate_config::Upload;

use super::{history, settings};
use crate::cli::UploadArgs;
use crate::exit::{self, ExpectedError};
use crate::history::{artefacts, upload};
use crate::output::Console;
use crate::plan::Settings;

/// The variable with the token, if none is configured.
const TOKEN: &str = "MEMGATE_TOKEN";

pub(super) fn upload(request: &UploadArgs, console: &Console) -> Result<u8, ExpectedError> {
    let settings = settings::load(request.config.config.as_deref(), console)?;
    let to = target(request, &settings)?;
    let mut failed = None;
    for folder in &request.sessions {
        let (manifest, report) = history::recorded(folder, &settings)?;
        match upload::upload(&to, &manifest, &report, console) {
            Ok(uploaded) => {
                upload::tell(&uploaded, &manifest, console);
                artefacts::add_artefacts(&to, &uploaded, folder, console);
            }
            // The others may still be accepted.
            Err(why) if request.sessions.len() > 1 => {
                console.error(&ExpectedError::Machinery {
                    what: format!("{}: {why}", folder.display()),
                    hint: why.hint().unwrap_or_default(),
                });
                failed = Some(folder);
            }
            Err(why) => return Err(why),
        }
    }
    Ok(if failed.is_some() { exit::NOT_MEASURED } else { exit::PASS })
}

fn target(request: &UploadArgs, settings: &Settings) -> Result<Upload, ExpectedError> {
    let configured = settings.config.history.upload.clone();
    let mut to = match (&request.server, configured) {
        (None, Some(configured)) => configured,
        (Some(server), configured) => {
            let to = Upload::to(server).map_err(|why| ExpectedError::Usage {
                what: format!("--server {server}: {why}"),
                hint: "write `https://memgate.example.com`; on this machine `http://127.0.0.1:7377`"
                    .to_owned(),
            })?;
            Upload { token: configured.and_then(|configured| configured.token), ..to }
        }
        (None, None) => {
            return Err(ExpectedError::usage(
                "there is no server to upload to",
                "name it: --server https://memgate.example.com, or `history.server` in memgate.yaml",
            ));
        }
    };
    to.wait = request.wait;
    if to.token.is_none() && std::env::var_os(TOKEN).is_some_and(|value| !value.is_empty()) {
        to.token = Some(TOKEN.to_owned());
    }
    Ok(to)
}
