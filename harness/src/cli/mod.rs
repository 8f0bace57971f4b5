//! The command line.
//!
//! Data flow: `std::env::args_os` → [`parse`] → [`Cli`] → `commands::execute`. Nothing here opens a
//! file.

mod args;
mod heap;
mod history;
mod judging;
mod server;
mod shared;
mod values;

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser as _};

pub use args::{
    AcceptArgs, BaselineCommand, Cli, ColorChoice, Command, CompareArgs, DemoArgs, FetchArgs, FollowAction,
    FollowArgs, InitArgs, MailArgs, MallocDebugArgs, ReportArgs, SchemaName, WaiveArgs,
};
pub use heap::{HeapBy, HeapCommand, HeapCommon, HeapGroup, HeapOrder};
pub use history::{BisectArgs, HistoryCommand, LeakState, LineArgs, TuneArgs};
pub use judging::{Format, GateArgs, MergeArgs, RunArgs, Step};
pub use server::{
    MembersOnlyCommand, OidcCommand, ServeArgs, ServeCommand, TokenCommand, UploadArgs, UserCommand,
};
pub use shared::{ConfigArgs, OutputArgs, StoreArgs};

/// Reads the command line.
///
/// # Errors
/// What clap says of a wrong command line; `--help` and `--version` are reported the same way.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(arguments).map_err(explained)
}

/// `git bisect run` ends at this code; it would take clap's 2 for a commit with the leak.
pub const ENDS_BISECTION: u8 = 128;

/// Is this a step of `git bisect run`, however wrong the rest of the line is?
#[must_use]
pub fn is_bisection(arguments: impl IntoIterator<Item = OsString>) -> bool {
    let own = arguments.into_iter().take_while(|argument| argument != "--");
    own.into_iter()
        .any(|argument| argument == "--bisect" || argument.to_string_lossy().starts_with("--bisect="))
}

/// A program that stands where an option or a command is expected is the commonest mistake.
fn explained(mistake: clap::Error) -> clap::Error {
    if let Some(ContextValue::String(word)) = mistake.get(ContextKind::InvalidSubcommand) {
        let usage = mistake.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
        let is_similar = mistake.get(ContextKind::SuggestedSubcommand).is_some();
        // `Usage: memgate [OPTIONS] <COMMAND>`: one of `memgate` itself, not of `memgate heap`.
        if is_similar || usage.split_whitespace().nth(2) != Some("[OPTIONS]") {
            return mistake;
        }
        let what = format!("there is no command `{word}`: if it is a program, memgate run -- {word}");
        return command().error(ErrorKind::InvalidSubcommand, what);
    }
    let word = match (mistake.kind(), mistake.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(word))) if !word.starts_with('-') => word,
        _ => return mistake,
    };
    let usage = mistake.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    if !usage.contains("[PROGRAM]") && !usage.contains("<PROGRAM>") {
        return mistake;
    }
    let what = format!("the program to run goes after `--`: memgate run -- {word}");
    command().error(ErrorKind::UnknownArgument, what)
}

/// The whole command, for completions and the man page.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// What is read by everybody who types `--help`: a change of it shall be seen.
    fn help(of: &[&str]) -> String {
        let line = [&["memgate"], of, &["--help"]].concat();
        let told = command().term_width(100).try_get_matches_from(line).err();
        told.map(|told| told.render().to_string()).unwrap_or_default()
    }

    #[test]
    fn a_program_without_the_two_dashes_is_told_where_it_belongs() {
        let told = |line: &str| parse(line.split(' ').map(OsString::from)).unwrap_err().to_string();
        let hint = "the program to run goes after `--`: memgate run -- build/tests";
        assert!(told("memgate run build/tests").contains(hint), "{}", told("memgate run build/tests"));
        assert!(!told("memgate run --no-such-option").contains("goes after"));
        assert!(told("memgate build/tests").contains("if it is a program, memgate run -- build/tests"));
        assert!(
            !told("memgate histry").contains("program,") && !told("memgate heap zz").contains("program,")
        );
        assert!(!told("memgate report a b c").contains("goes after"));
    }

    #[test]
    fn a_filter_may_begin_with_what_it_leaves_out() {
        let line = ["memgate", "run", "--filter", "-Slow.*", "--", "./t"].map(OsString::from);
        let Command::Run(run) = parse(line).unwrap().command else { panic!("another command") };
        assert_eq!(run.filter.as_deref(), Some("-Slow.*"));
        assert!(parse(["memgate", "run", "--filter", "--", "./t"].map(OsString::from)).is_err());
    }

    #[test]
    fn gate_judges_the_last_session_unless_others_are_named() {
        let inputs = |line: &[&str]| match parse(line.iter().map(OsString::from)).unwrap().command {
            Command::Gate(gate) => gate.inputs,
            _ => panic!("another command"),
        };
        assert_eq!(inputs(&["memgate", "gate"]), [PathBuf::from(".memgate/latest")]);
        assert_eq!(inputs(&["memgate", "gate", "a", "b"]), [PathBuf::from("a"), PathBuf::from("b")]);
    }

    #[test]
    fn a_public_host_is_a_name_and_no_address_of_a_page() {
        let serve = |host: &str| parse(["memgate", "serve", "--public-host", host].map(OsString::from));
        assert!(serve("memgate.example.com").is_ok() && serve("memgate.example.com:8443").is_ok());
        for host in ["https://memgate.example.com", "memgate.example.com/leaks", "me@example.com", ""] {
            let told = serve(host).unwrap_err().to_string();
            assert!(told.contains("without scheme and path"), "{host}: {told}");
        }
    }

    #[test]
    fn what_could_never_match_is_refused() {
        let told =
            |line: &[&str]| parse(line.iter().map(OsString::from)).map(drop).map_err(|why| why.to_string());
        let bisect = |leak| told(&["memgate", "run", "--bisect", "--leak", leak, "--", "./t"]);
        assert_eq!(bisect("n1-5f1c09a2b47d1e03"), Ok(()));
        assert!(bisect("n1-5f1c09a2b47d1e0").unwrap_err().contains("ids of leaks look like"));
        let token =
            |branch| told(&["memgate", "serve", "token", "create", "--project", "p", "--branch", branch]);
        assert_eq!(token("release/*"), Ok(()));
        for (branch, why) in [
            ("main,release/*", "repeat the option"),
            ("", "repeat the option"),
            ("refs/heads/main", "`main`"),
            ("origin/main", "`main`"),
        ] {
            assert!(token(branch).unwrap_err().contains(why), "{branch}");
        }
        let rule = |audience| {
            told(&[
                "memgate",
                "serve",
                "oidc",
                "add",
                "--project",
                "p",
                "--github",
                "1",
                "--audience",
                audience,
            ])
        };
        assert_eq!(rule("https://memgate.example.com/"), Ok(()));
        assert!(rule("memgate.example.com").unwrap_err().contains("expected the address of the server"));
    }

    #[test]
    fn the_help_of_the_program() {
        insta::assert_snapshot!(help(&[]));
    }

    #[test]
    fn the_help_of_run() {
        insta::assert_snapshot!(help(&["run"]));
    }

    #[test]
    fn the_help_of_heap() {
        insta::assert_snapshot!(help(&["heap"]));
    }

    #[test]
    fn the_help_of_malloc_debug() {
        insta::assert_snapshot!(help(&["malloc-debug"]));
    }

    /// The terminal breaks lines where they are too long for it: a break of ours stands in the midst of its lines.
    #[test]
    fn no_sentence_of_a_help_text_is_broken_by_hand() {
        fn check(command: &clap::Command) {
            let told = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            let prose = told.split("\n\n").filter(|part| !part.contains("\n  "));
            let broken: Vec<&str> = prose.filter(|part| part.contains('\n')).collect();
            assert!(broken.is_empty(), "{}: {broken:?}", command.get_name());
            command.get_subcommands().for_each(check);
        }
        check(&command());
    }

    /// A terminal of 100 columns would break it in the midst of a comment.
    #[test]
    fn every_example_fits_in_its_line() {
        fn check(command: &clap::Command) {
            let told = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            let long: Vec<&str> =
                told.lines().filter(|l| l.starts_with("  ") && l.chars().count() > 100).collect();
            assert!(long.is_empty(), "{}: {long:#?}", command.get_name());
            command.get_subcommands().for_each(check);
        }
        check(&command());
    }

    #[test]
    fn every_command_has_examples_or_needs_none() {
        for sub in command().get_subcommands().filter(|sub| !["doctor", "help"].contains(&sub.get_name())) {
            let name = sub.get_name();
            let path = if name == "baseline" { vec![name, "accept"] } else { vec![name] };
            assert!(help(&path).contains("Example"), "{name}");
        }
    }
}
