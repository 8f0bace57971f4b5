//! `memgate completions` and `memgate man`: generated from the command line's own definition.

use crate::cli;
use crate::exit::{self, ExpectedError};
use crate::output::Console;

pub(super) fn completions(shell: clap_complete::Shell, console: &Console) -> Result<u8, ExpectedError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli::command(), "memgate", &mut script);
    console.result(&script)?;
    Ok(exit::PASS)
}

/// All sub-commands in one page, so that `memgate man | man -l -` shows everything.
pub(super) fn man(console: &Console) -> Result<u8, ExpectedError> {
    console.result(&page().map_err(ExpectedError::file("write", "the manual page".as_ref()))?)?;
    Ok(exit::PASS)
}

fn page() -> std::io::Result<Vec<u8>> {
    let mut command = cli::command();
    command.build();
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    sections("MEMGATE", &command, &mut page)?;
    Ok(page)
}

/// A section for each sub-command, and for theirs.
fn sections(name: &str, command: &clap::Command, page: &mut Vec<u8>) -> std::io::Result<()> {
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        let man = clap_mangen::Man::new(sub.clone());
        let name = format!("{name} {}", sub.get_name().to_uppercase());
        page.extend_from_slice(format!(".SH {name}\n").as_bytes());
        man.render_synopsis_section(page)?;
        man.render_description_section(page)?;
        man.render_options_section(page)?;
        man.render_extra_section(page)?;
        sections(&name, sub, page)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_page_knows_every_command() {
        let page = String::from_utf8(page().unwrap()).unwrap();
        let names = ["run", "gate", "baseline accept", "heap analyze", "heap paths", "serve token create"];
        for name in names {
            assert!(page.contains(&format!(".SH MEMGATE {}", name.to_uppercase())), "{name}");
        }
        assert!(page.contains("ignore\\-test\\-failures"));
    }
}
