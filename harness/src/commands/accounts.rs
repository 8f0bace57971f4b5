//! `memgate serve user` and `serve members-only`: control who may read which project.

use std::io::Read as _;

use memgate_server::password;
use memgate_server::store::StoreError;
use memgate_server::text;

use crate::cli::{MembersOnlyCommand, UserCommand};
use crate::commands::open_history::open_history;
use crate::exit::{self, ExpectedError};
use crate::history;
use crate::output::Console;

/// Limits the input: a password is short.
const MOST_OF_STDIN: u64 = 4096;

pub(super) async fn members_only(
    command: &MembersOnlyCommand,
    console: &Console,
) -> Result<u8, ExpectedError> {
    let failed = |why: StoreError| history::store_error(&why);
    let creates = matches!(command, MembersOnlyCommand::Add { .. });
    let store = open_history(command.store(), creates, console).await?;
    match command {
        MembersOnlyCommand::Add { projects, .. } => {
            for pattern in projects {
                store.add_members_only(pattern).await.map_err(failed)?;
                console.line(&format!("only members read the projects {pattern}"));
            }
        }
        MembersOnlyCommand::List { .. } => {
            let patterns = store.members_only().await.map_err(failed)?;
            console.text(&patterns.iter().map(|pattern| format!("{pattern}\n")).collect::<String>())?;
        }
        MembersOnlyCommand::Remove { projects, .. } => {
            for pattern in projects {
                if !store.remove_members_only(pattern).await.map_err(failed)? {
                    let hint = "`memgate serve members-only list` shows the globs";
                    return Err(ExpectedError::missing(format!("there is no glob {pattern}"), hint));
                }
                console.line(&format!("everyone reads the projects {pattern}"));
            }
        }
    }
    store.close().await;
    Ok(exit::PASS)
}

pub(super) async fn users(command: &UserCommand, console: &Console) -> Result<u8, ExpectedError> {
    let failed = |why: StoreError| history::store_error(&why);
    let creates = matches!(command, UserCommand::Add { .. });
    let store = open_history(command.store(), creates, console).await?;
    let there = |name: &str, done: bool| match done {
        true => Ok(()),
        false => Err(ExpectedError::missing(
            format!("there is no account {name}"),
            "`memgate serve user list` shows them",
        )),
    };
    match command {
        UserCommand::Add { name, project, stdin, .. } => {
            let (password, kept) = password_of(*stdin)?;
            if !store.add_account(name, &kept, project).await.map_err(failed)? {
                let hint = format!("`memgate serve user password {name}` gives it another password");
                return Err(ExpectedError::usage(format!("there is an account {name}"), hint));
            }
            console.line(&format!("account {name}: {}", text::may_read(project)));
            shown(password.as_deref(), console)?;
        }
        UserCommand::List { .. } => {
            console.text(&text::accounts(&store.accounts().await.map_err(failed)?))?;
        }
        UserCommand::Password { name, stdin, .. } => {
            let (password, kept) = password_of(*stdin)?;
            there(name, store.set_password(name, &kept).await.map_err(failed)?)?;
            console.line(&format!("account {name} has a new password, and was signed out everywhere"));
            shown(password.as_deref(), console)?;
        }
        UserCommand::Projects { name, project, .. } => {
            there(name, store.set_projects(name, project).await.map_err(failed)?)?;
            console.line(&format!("account {name}: {}", text::may_read(project)));
        }
        UserCommand::Remove { name, .. } => {
            there(name, store.remove_account(name).await.map_err(failed)?)?;
            console.line(&format!("account {name} was removed, and signed out everywhere"));
        }
    }
    store.close().await;
    Ok(exit::PASS)
}

/// A new password, or `None` if the user chose one; and its stored form.
fn password_of(from_stdin: bool) -> Result<(Option<String>, String), ExpectedError> {
    let failed = |why: password::PasswordError| ExpectedError::usage(format!("the password: {why}"), "");
    if !from_stdin {
        let password = password::random().map_err(failed)?;
        let kept = password::hash(&password).map_err(failed)?;
        return Ok((Some(password), kept));
    }
    let mut typed = String::new();
    let read = std::io::stdin().take(MOST_OF_STDIN).read_to_string(&mut typed);
    read.map_err(ExpectedError::file("read", "stdin".as_ref()))?;
    Ok((None, password::hash(typed.trim_end_matches(['\r', '\n'])).map_err(failed)?))
}

fn shown(password: Option<&str>, console: &Console) -> Result<(), ExpectedError> {
    let Some(password) = password else { return Ok(()) };
    console.line("Its password is not shown again:");
    console.result(format!("{password}\n").as_bytes())
}
