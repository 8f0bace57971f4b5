//! Parses the command lines that memgate and adb send, as mksh would; nothing reaches a shell of this
//! machine.
//!
//! Supported: words with quotes and `\`, `$?`, `;`, `&&`, `||`, line ends, `2>&1`, `2>/dev/null`,
//! `>/dev/null`, `</dev/null`. All other shell syntax is refused, so that no test passes because the parser
//! ignored it.

/// One command of a line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Step {
    /// Condition for running it.
    pub(super) when: When,
    /// Its words; `$?` is [`STATUS`].
    pub(super) words: Vec<String>,
    /// Where standard output goes.
    pub(super) out: Sink,
    /// Where standard error goes.
    pub(super) err: Sink,
}

/// Condition on the status of the previous command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum When {
    #[default]
    Always,
    /// `&&`
    Succeeded,
    /// `||`
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Sink {
    #[default]
    Own,
    Nowhere,
    /// Where standard output goes.
    Out,
}

/// Stands for `$?` in a word: no command line contains this character.
pub(super) const STATUS: char = '\u{f8ff}';

/// Parses a line; the error names the unsupported syntax.
pub(super) fn read(line: &str) -> Result<Vec<Step>, String> {
    Reader { rest: line.chars().peekable(), steps: Vec::new(), step: Step::default(), word: None }.read()
}

struct Reader<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    steps: Vec<Step>,
    step: Step,
    word: Option<String>,
}

impl Reader<'_> {
    fn read(mut self) -> Result<Vec<Step>, String> {
        while let Some(c) = self.rest.next() {
            match c {
                ' ' | '\t' => self.end_word(),
                ';' | '\n' => self.end_step(When::Always),
                '&' if self.rest.next_if_eq(&'&').is_some() => self.end_step(When::Succeeded),
                '|' if self.rest.next_if_eq(&'|').is_some() => self.end_step(When::Failed),
                '\'' => self.single()?,
                '"' => self.double()?,
                '\\' => {
                    let next = self.rest.next().ok_or("a line that ends with \\")?;
                    self.word().push(next);
                }
                '$' => self.dollar()?,
                '>' | '<' => self.redirect(c)?,
                '&' | '|' | '`' | '(' | ')' | '{' | '}' | '*' | '?' => return Err(format!("`{c}`")),
                '[' if self.word.is_some() => return Err("`[`".to_owned()),
                '#' | '~' if self.word.is_none() => return Err(format!("`{c}`")),
                _ => self.word().push(c),
            }
        }
        self.end_step(When::Always);
        Ok(self.steps)
    }

    fn word(&mut self) -> &mut String {
        self.word.get_or_insert_default()
    }

    fn end_word(&mut self) {
        self.step.words.extend(self.word.take());
    }

    fn end_step(&mut self, next: When) {
        self.end_word();
        let step = std::mem::replace(&mut self.step, Step { when: next, ..Step::default() });
        if !step.words.is_empty() {
            self.steps.push(step);
        }
    }

    fn single(&mut self) -> Result<(), String> {
        self.word();
        loop {
            match self.rest.next().ok_or("an open '")? {
                '\'' => return Ok(()),
                c => self.word().push(c),
            }
        }
    }

    fn double(&mut self) -> Result<(), String> {
        self.word();
        loop {
            match self.rest.next().ok_or("an open \"")? {
                '"' => return Ok(()),
                '$' => self.dollar()?,
                '\\' if self.rest.peek().is_some_and(|c| "\\\"$`".contains(*c)) => {
                    let next = self.rest.next().unwrap_or('\\');
                    self.word().push(next);
                }
                '`' => return Err("``".to_owned()),
                c => self.word().push(c),
            }
        }
    }

    fn dollar(&mut self) -> Result<(), String> {
        self.rest.next_if_eq(&'?').ok_or("a variable")?;
        self.word().push(STATUS);
        Ok(())
    }

    fn redirect(&mut self, sign: char) -> Result<(), String> {
        let descriptor = self.word.take().unwrap_or_default();
        let target: String = std::iter::from_fn(|| self.rest.next_if(|c| !" ;\n".contains(*c))).collect();
        match (descriptor.as_str(), sign, target.as_str()) {
            ("", '<', "/dev/null") => {}
            ("" | "1", '>', "/dev/null") => self.step.out = Sink::Nowhere,
            ("2", '>', "/dev/null") => self.step.err = Sink::Nowhere,
            ("2", '>', "&1") => {
                self.step.err = if self.step.out == Sink::Nowhere { Sink::Nowhere } else { Sink::Out }
            }
            _ => return Err(format!("`{descriptor}{sign}{target}`")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<Vec<String>> {
        read(line).unwrap().into_iter().map(|step| step.words).collect()
    }

    #[test]
    fn words_are_those_of_a_shell() {
        assert_eq!(
            words(r#"cp  '/a b' it\'s "x\"y" Outer'$Inner' '' [ a=b c#d"#),
            [["cp", "/a b", "it's", "x\"y", "Outer$Inner", "", "[", "a=b", "c#d"]]
        );
        assert_eq!(words("a; b\nc\n"), [["a"], ["b"], ["c"]]);
        assert_eq!(words("echo m:$? \"$?\"")[0], ["echo", "m:\u{f8ff}", "\u{f8ff}"]);
    }

    #[test]
    fn steps_know_when_they_run_and_where_they_print() {
        let steps = read("a 2>/dev/null && b >/dev/null 2>&1 || c 2>&1 </dev/null").unwrap();
        let seen: Vec<_> = steps.iter().map(|step| (step.when, step.out, step.err)).collect();
        assert_eq!(
            seen,
            [
                (When::Always, Sink::Own, Sink::Nowhere),
                (When::Succeeded, Sink::Nowhere, Sink::Nowhere),
                (When::Failed, Sink::Own, Sink::Out),
            ]
        );
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for line in [
            "ls *.so",
            "a | b",
            "a &",
            "echo $HOME",
            "$(id)",
            "`id`",
            "a > f",
            "~/x",
            "# x",
            "'open",
            "(a)",
            "a\\",
        ] {
            assert!(read(line).is_err(), "{line}");
        }
    }
}
