//! Translates the text of a Java stack trace to original names. Lines without renamed names stay as they are.

use std::borrow::Cow;

use super::classes::Mapping;
use super::frames::OriginalFrame;

/// A line `at CLASS.METHOD(FILE:LINE)`, in its parts.
struct Frame<'a> {
    /// The text before the class: blanks and `at `, perhaps a module.
    before: &'a str,
    class: &'a str,
    method: &'a str,
    file: Option<&'a str>,
    line: Option<u32>,
    /// The text after the closing bracket.
    behind: &'a str,
}

impl Mapping<'_> {
    /// Retraces a stack trace. If a frame has several originals, the others follow on lines that begin with `<OR>`.
    #[must_use]
    pub fn trace(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        // Line of the outline that the next frame calls.
        let mut inside = None;
        for line in text.split_inclusive('\n') {
            let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
            match frame(line) {
                Some(mut frame) => {
                    let at = self.line_of_outline(frame.class, frame.method, frame.line, inside.take());
                    let is_outline = self.is_outline(frame.class, frame.method, frame.line);
                    frame.line = at.or(frame.line);
                    if is_outline {
                        inside = frame.line;
                        continue;
                    }
                    self.frame(&frame, line, end, &mut out);
                }
                None => {
                    inside = None;
                    out.push_str(&self.heading(line));
                    out.push_str(end);
                }
            }
        }
        out
    }

    fn frame(&self, frame: &Frame<'_>, line: &str, end: &str, out: &mut String) {
        let alternatives = self.frames(frame.class, frame.method, frame.file, frame.line);
        if alternatives.is_empty() {
            let known = self.classes.get(frame.class);
            let shown = known
                .map_or(Cow::Borrowed(line), |class| Cow::Owned(self.unknown_method(frame, class.original)));
            out.push_str(&shown);
            out.push_str(end);
            return;
        }
        let mut first_way = true;
        for frames in &alternatives {
            let mut first = true;
            for original in frames {
                if !out.is_empty() && !out.ends_with('\n') {
                    out.push('\n');
                }
                let or = if first && !first_way {
                    frame.before.replacen("at ", "<OR> at ", 1)
                } else {
                    frame.before.to_owned()
                };
                out.push_str(&show(&or, original, frame.behind));
                first = false;
            }
            first_way = false;
        }
        out.push_str(end);
    }

    fn unknown_method(&self, frame: &Frame<'_>, class: &str) -> String {
        let file = self.source_file(class, frame.file);
        let original = OriginalFrame { class, method: frame.method, file, line: frame.line };
        show(frame.before, &original, frame.behind)
    }

    /// `a.b: message`, `Caused by: a.b`, `Exception in thread "main" a.b: message`.
    fn heading<'l>(&self, line: &'l str) -> Cow<'l, str> {
        let mut words = line.split_inclusive([' ', '\t']);
        let mut at = 0_usize;
        // The name of an exception is the first word that can be one; the message after it belongs to the user.
        let class = words.find_map(|word| {
            let (start, name) = (at, word.trim_end_matches([' ', '\t', '\r']).trim_end_matches(':'));
            at = at.saturating_add(word.len());
            self.classes
                .contains_key(name)
                .then_some((start, name))
                .filter(|_| start == 0 || introduces(line.get(..start).unwrap_or_default()))
        });
        match class {
            Some((start, name)) => {
                let (before, rest) = line.split_at_checked(start).unwrap_or(("", line));
                Cow::Owned(format!(
                    "{before}{}{}",
                    self.class(name),
                    rest.strip_prefix(name).unwrap_or_default()
                ))
            }
            None => Cow::Borrowed(line),
        }
    }
}

/// Can the name of an exception come after this text?
fn introduces(before: &str) -> bool {
    let before = before.trim();
    before.is_empty()
        || before == "Caused by:"
        || before == "Suppressed:"
        || before.starts_with("Exception in thread \"")
}

fn show(before: &str, frame: &OriginalFrame<'_>, behind: &str) -> String {
    let OriginalFrame { class, method, file, line } = frame;
    let line = line.map_or_else(String::new, |line| format!(":{line}"));
    format!("{before}{class}.{method}({file}{line}){behind}")
}

fn frame(line: &str) -> Option<Frame<'_>> {
    let trimmed = line.trim_start();
    let rest = trimmed.strip_prefix("at ")?;
    // `java.base/java.lang.Thread.run`: a loader or module is not part of the class.
    let (named, rest) = rest.split_once('(')?;
    let named = named.rsplit_once('/').map_or(named, |(_, named)| named);
    let (place, behind) = rest.rsplit_once(')')?;
    let (class, method) = named.rsplit_once('.')?;
    let (file, number) = match place.rsplit_once(':') {
        Some((file, number)) => (file, number.parse().ok()),
        None => (place, None),
    };
    let before = line.get(..line.len().checked_sub(named.len().checked_add(rest.len())?.checked_add(1)?)?)?;
    Some(Frame {
        before,
        class,
        method,
        file: Some(file).filter(|file| !file.is_empty()),
        line: number,
        behind,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPPING: &str = "\
com.example.LoadException -> a.a:
com.example.Tile -> a.b:
    1:3:void com.example.Cache.put(int):40:42 -> c
    1:3:void load(int):12 -> c
    void one() -> d
    void two(int) -> d
";

    #[test]
    fn a_trace_gets_its_names_back() {
        let trace = "\
a.a: a.b is a word of the message
\tat a.b.c(SourceFile:2)
\tat a.b.d(Unknown Source:9) [app]
\tat a.b.kept(SourceFile)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: a.a
\tat app//a.b.c(SourceFile:3)
\t... 12 more
\tSuppressed: a.a: x
no a.a here";
        let want = "\
com.example.LoadException: a.b is a word of the message
\tat com.example.Cache.put(Cache.java:41)
\tat com.example.Tile.load(Tile.java:12)
\tat com.example.Tile.one(Tile.java:9) [app]
\t<OR> at com.example.Tile.two(Tile.java:9) [app]
\tat com.example.Tile.kept(Tile.java)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: com.example.LoadException
\tat app//com.example.Cache.put(Cache.java:42)
\tat app//com.example.Tile.load(Tile.java:12)
\t... 12 more
\tSuppressed: com.example.LoadException: x
no a.a here";
        assert_eq!(Mapping::read(MAPPING).unwrap().trace(trace), want);
    }

    const OUTLINES: &str = r#"
com.example.Outline0 -> a:
    4:4:int outline():0:0 -> a
    # {"id":"com.android.tools.r8.outline"}
com.example.Outline1 -> b:
    6:6:int outline():0:0 -> a
    # {"id":"com.android.tools.r8.outlineCallsite","positions":{"4":43},"outline":"La;a()I"}
    42:43:int outline():0:0 -> a
    # {"id":"com.android.tools.r8.outline"}
com.example.Tile -> c:
    1:1:void com.example.Pool.take():42:42 -> s
    10:10:void com.example.Pool.take():77:77 -> s
    10:10:int load(int):98 -> s
    11:11:int load(int):99:99 -> s
    27:27:int load(int):0:0 -> s
    # {"id":"com.android.tools.r8.outlineCallsite","positions":{"4":10},"outline":"La;a()I"}
    28:28:int load(int):0:0 -> s
    # {"id":"com.android.tools.r8.outlineCallsite","positions":{"42":10,"43":11},"outline":"Lb;a()I"}
"#;

    #[test]
    fn code_that_was_moved_out_of_a_method_is_told_at_its_line_there() {
        let mapping = Mapping::read(OUTLINES).unwrap();
        for (trace, want) in [
            (
                "x: y\n\tat a.a(:4)\n\tat c.s(SourceFile:27)\n\tat c.s(SourceFile:1)\n",
                "x: y\n\tat com.example.Pool.take(Pool.java:77)\n\tat com.example.Tile.load(Tile.java:98)\n\tat com.example.Pool.take(Pool.java:42)\n",
            ),
            // An outline of outlines.
            ("\tat a.a(:4)\n\tat b.a(:6)\n\tat c.s(:28)", "\tat com.example.Tile.load(Tile.java:99)"),
            // Lines that are not in the mapping.
            ("\tat a.a(:4)\n\tat c.s(:28)", "\tat com.example.Tile.load(Tile.java)"),
            (
                "\tat a.a(:4)\nCaused by: x\n\tat c.s(:27)",
                "Caused by: x\n\tat com.example.Tile.load(Tile.java)",
            ),
        ] {
            assert_eq!(mapping.trace(trace), want, "{trace}");
        }
    }
}
