//! `memgate serve token` and `serve oidc`: control who may upload runs.

use jiff::Timestamp;
use memgate_server::store::{Provider, SignedRule, Store, StoreError};
use memgate_server::text;

use crate::cli::{OidcCommand, TokenCommand};
use crate::commands::open_history::open_history;
use crate::exit::{self, ExpectedError};
use crate::history;
use crate::https;
use crate::output::Console;

const DAY_US: i64 = 24 * 3600 * 1_000_000;

pub(super) async fn tokens(command: &TokenCommand, console: &Console) -> Result<u8, ExpectedError> {
    // The first token creates the database of a new server.
    let creates = matches!(command, TokenCommand::Create { .. });
    let store = open_history(command.store(), creates, console).await?;
    let now_us = Timestamp::now().as_microsecond();
    let done = match command {
        TokenCommand::Create { project, branch, days, .. } => {
            let expires_us = now_us.saturating_add(i64::from(*days) * DAY_US);
            let token = store.create_token(project, branch, expires_us).await;
            let token = token.map_err(|why| history::store_error(&why))?;
            let may = match branch.as_slice() {
                [] => "adds reviews only: no branch was named".to_owned(),
                branches => format!("may write the lines {}", branches.join(", ")),
            };
            console.line(&format!("token {} for {project}, for {days} days; it {may}", token.id()));
            console.line("It is not shown again: put it into a secret variable of CI, MEMGATE_TOKEN.");
            console.result(format!("{}\n", token.secret()).as_bytes())
        }
        TokenCommand::List { .. } => {
            let rows = store.tokens().await.map_err(|why| history::store_error(&why))?;
            console.text(&text::tokens(&rows, now_us))
        }
        TokenCommand::Revoke { ids, .. } => revoke(&store, ids, console).await,
    };
    store.close().await;
    done.map(|()| exit::PASS)
}

pub(super) async fn rules(command: &OidcCommand, console: &Console) -> Result<u8, ExpectedError> {
    let failed = |why: StoreError| history::store_error(&why);
    let creates = matches!(command, OidcCommand::Add { .. });
    let store = open_history(command.store(), creates, console).await?;
    let done = match command {
        OidcCommand::Add { project, github, gitlab, issuer, audience, branch, .. } => {
            let (provider, id) = match (github, gitlab) {
                (Some(id), _) => (Provider::GitHub, id),
                (None, id) => (Provider::GitLab, id.as_ref().unwrap_or(&0)),
            };
            let issuer = issuer.as_deref().unwrap_or(provider.issuer());
            https::check(issuer)
                .map_err(|why| ExpectedError::usage(format!("the issuer {issuer}: {why}"), ""))?;
            let rule = SignedRule {
                id: String::new(),
                project: project.clone(),
                provider,
                issuer: issuer.to_owned(),
                subject: id.to_string(),
                audience: audience.clone(),
                branches: branch.clone(),
            };
            let rule = store.add_rule(rule).await.map_err(failed)?;
            console.line(&format!("rule {}: {}", rule.id, text::rule(&rule)));
            Ok(())
        }
        OidcCommand::List { .. } => {
            let rules = store.rules().await.map_err(failed)?;
            let lines = rules.iter().map(|rule| format!("{}  {}\n", rule.id, text::rule(rule)));
            console.text(&lines.collect::<String>())
        }
        OidcCommand::Remove { id, .. } => match store.remove_rule(id).await.map_err(failed)? {
            true => {
                console.line(&format!("rule {id} was removed"));
                if !store.has_tokens().await.map_err(failed)? {
                    console.line(
                        "no rule and no token is left: a server that only this machine reaches takes uploads without \
                         a token again. `memgate serve token create` ends that",
                    );
                }
                Ok(())
            }
            false => Err(ExpectedError::missing(
                format!("no rule has the id {id}"),
                "`memgate serve oidc list` shows them",
            )),
        },
    };
    store.close().await;
    done.map(|()| exit::PASS)
}

async fn revoke(store: &Store, ids: &[String], console: &Console) -> Result<(), ExpectedError> {
    let mut missing = Vec::new();
    for typed in ids {
        // The user may have copied the beginning of the token itself.
        let id = typed.strip_prefix("mgt_").unwrap_or(typed);
        let id = id.get(..8).unwrap_or(id);
        if store.revoke_token(id).await.map_err(|why| history::store_error(&why))? {
            console.line(&format!("token {id} was revoked"));
        } else {
            missing.push(id.to_owned());
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(ExpectedError::Missing {
        what: format!("no valid token has the id {}", missing.join(", ")),
        hint: "`memgate serve token list` shows them".to_owned(),
    })
}
