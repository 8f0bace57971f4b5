//! Reads CODEOWNERS as GitHub and GitLab do, to find the owners of a file.
//!
//! Both: the last line that matches wins, a line without owners removes them, `*` stays within a folder, `**` does not,
//! a pattern that ends with `/` or names a folder covers its contents. GitHub: a pattern with a slash inside begins at
//! the root. GitLab: only one with a leading slash does; sections (`[Name] @default`) each have their own last match;
//! `!` takes files out of a section.

use globset::{Glob, GlobBuilder};

/// The platform whose rules apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// GitHub's.
    GitHub,
    /// GitLab's.
    GitLab,
}

impl Syntax {
    /// Decides by the folder of the file, otherwise by sections, which only GitLab has.
    #[must_use]
    pub fn of(path: &str, text: &str) -> Self {
        if path.contains(".github/") {
            Self::GitHub
        } else if path.contains(".gitlab/") || text.lines().any(|line| section(line.trim()).is_some()) {
            Self::GitLab
        } else {
            Self::GitHub
        }
    }
}

/// A CODEOWNERS file.
#[derive(Debug, Default)]
pub struct Owners {
    sections: Vec<Section>,
    /// Lines that cannot be read, with the reason.
    pub ignored: Vec<(usize, String)>,
}

#[derive(Debug, Default)]
struct Section {
    name: String,
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    patterns: Vec<Pattern>,
    owners: Vec<String>,
    /// Whether files in this section have no owner, whatever other lines say.
    excludes: bool,
}

/// A pattern. It is compiled only when needed, because a compiled pattern takes kilobytes, and a file may have a
/// hundred thousand patterns.
#[derive(Debug)]
struct Pattern {
    glob: String,
    /// The longest part without a wildcard: every match contains it.
    literal: String,
}

impl Owners {
    /// Reads a file. Lines that cannot be read are in `ignored`: both platforms also skip them.
    #[must_use]
    pub fn parse(text: &str, syntax: Syntax) -> Self {
        let mut owners = Self { sections: vec![Section::default()], ignored: Vec::new() };
        let (mut current, mut defaults) = (0, Vec::new());
        // Windows editors put a byte order mark before the text.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some((name, its_defaults)) = section(line).filter(|_| syntax == Syntax::GitLab) {
                // Sections of one name are merged.
                let known = owners.sections.iter().position(|section| section.name == name);
                current = known.unwrap_or(owners.sections.len());
                if known.is_none() {
                    owners.sections.push(Section { name, rules: Vec::new() });
                }
                defaults = its_defaults;
                continue;
            }
            match rule(line, syntax, &defaults) {
                Ok(rule) => owners.sections[current].rules.push(rule),
                Err(why) => owners.ignored.push((index + 1, why)),
            }
        }
        owners
    }

    /// The owners of a file, relative to the project.
    #[must_use]
    pub fn of(&self, file: &str) -> Vec<&str> {
        let mut found: Vec<&str> = Vec::new();
        for section in &self.sections {
            if section.rules.iter().any(|rule| rule.excludes && rule.matches(file)) {
                continue;
            }
            let last = section.rules.iter().rev().find(|rule| rule.matches(file));
            for owner in last.map(|rule| rule.owners.as_slice()).unwrap_or_default() {
                if !found.contains(&owner.as_str()) {
                    found.push(owner);
                }
            }
        }
        found
    }
}

impl Rule {
    fn matches(&self, file: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(file))
    }
}

impl Pattern {
    fn new(glob: String) -> Result<Self, globset::Error> {
        compiled(&glob)?;
        let literal = glob.split(['*', '?', '\\']).max_by_key(|part| part.len()).unwrap_or_default();
        // A folder's own name is matched without the slash after it.
        Ok(Self { literal: literal.trim_matches('/').to_owned(), glob })
    }

    fn matches(&self, file: &str) -> bool {
        file.contains(&self.literal)
            && compiled(&self.glob).is_ok_and(|glob| glob.compile_matcher().is_match(file))
    }
}

fn compiled(glob: &str) -> Result<Glob, globset::Error> {
    GlobBuilder::new(glob).literal_separator(true).backslash_escape(true).build()
}

/// `[Name] @default`, `^[Name][2]`: name in lower case, default owners.
fn section(line: &str) -> Option<(String, Vec<String>)> {
    let rest = line.strip_prefix('^').unwrap_or(line).strip_prefix('[')?;
    let (name, rest) = rest.split_once(']')?;
    let rest = match rest.strip_prefix('[') {
        Some(approvals) => approvals.split_once(']')?.1,
        None => rest,
    };
    // `[abc].txt @x` is a pattern.
    (rest.is_empty() || rest.starts_with([' ', '\t', '@'])).then(|| (name.trim().to_lowercase(), names(rest)))
}

fn rule(line: &str, syntax: Syntax, defaults: &[String]) -> Result<Rule, String> {
    let (pattern, rest) = pattern_and_rest(line);
    let excluded = pattern.strip_prefix('!');
    if excluded.is_some() && syntax == Syntax::GitHub {
        return Err("GitHub knows no `!`".to_owned());
    }
    let mut owners = names(rest);
    if owners.is_empty() && excluded.is_none() {
        owners = defaults.to_vec();
    }
    let patterns = patterns(excluded.unwrap_or(&pattern), syntax)?;
    Ok(Rule { patterns, owners, excludes: excluded.is_some() })
}

/// The pattern, in which a space or `#` may be escaped, and the text after it.
fn pattern_and_rest(line: &str) -> (String, &str) {
    let mut pattern = String::new();
    let mut chars = line.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => pattern.extend(chars.next().map(|(_, escaped)| escaped)),
            c if c.is_whitespace() => return (pattern, &line[at..]),
            c => pattern.push(c),
        }
    }
    (pattern, "")
}

/// Names and addresses up to a comment.
fn names(text: &str) -> Vec<String> {
    let words = text.split_whitespace().take_while(|word| !word.starts_with('#'));
    words.filter(|word| word.contains('@')).map(str::to_owned).collect()
}

fn patterns(pattern: &str, syntax: Syntax) -> Result<Vec<Pattern>, String> {
    let folder = pattern.ends_with('/');
    let inner = pattern.trim_matches('/');
    let anchored = match syntax {
        Syntax::GitHub => pattern.starts_with('/') || inner.contains('/'),
        Syntax::GitLab => pattern.starts_with('/'),
    };
    let escaped: String = inner
        .chars()
        .flat_map(|c| {
            let literal = matches!(c, '[' | ']' | '{' | '}');
            literal.then_some('\\').into_iter().chain([c])
        })
        .collect();
    let base = if anchored || escaped.starts_with("**") { escaped } else { format!("**/{escaped}") };
    let mut globs = Vec::new();
    if !folder {
        globs.push(base.clone());
    }
    // `docs/*` covers the files of the folder, `docs` everything below it.
    if folder || !inner.ends_with('*') || inner == "*" {
        globs.push(format!("{base}/**"));
    }
    globs.into_iter().map(|glob| Pattern::new(glob).map_err(|why| why.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn owners_are(text: &str, syntax: Syntax, cases: &[(&str, &[&str])]) {
        let owners = Owners::parse(text, syntax);
        for (file, expected) in cases {
            assert_eq!(owners.of(file), *expected, "{file}");
        }
    }

    /// The examples of GitHub's documentation.
    #[test]
    fn github_reads_patterns_like_gitignore_and_the_last_match_wins() {
        let text = "\
# comment
*       @global-owner1 @global-owner2
*.js    @js-owner #inline comment
*.go docs@example.com
/build/logs/ @doctocat
docs/*  docs@example.com
apps/ @octocat
/scripts/ @doctocat @octocat
**/logs @logger
/apps/github
";
        owners_are(
            text,
            Syntax::GitHub,
            &[
                ("README", &["@global-owner1", "@global-owner2"]),
                ("src/a.js", &["@js-owner"]),
                ("cmd/main.go", &["docs@example.com"]),
                ("build/logs/today/x.txt", &["@logger"]),
                ("docs/getting-started.md", &["docs@example.com"]),
                ("docs/build-app/troubleshooting.md", &["@global-owner1", "@global-owner2"]),
                ("x/apps/deep/main.c", &["@octocat"]),
                ("scripts/run", &["@doctocat", "@octocat"]),
                ("x/scripts/run", &["@global-owner1", "@global-owner2"]),
                ("apps/github/main.c", &[]),
                ("apps/githubs/main.c", &["@octocat"]),
            ],
        );
        assert_eq!(
            Owners::parse("!src @a\n", Syntax::GitHub).ignored,
            [(1, "GitHub knows no `!`".to_owned())]
        );
    }

    #[test]
    fn gitlab_has_sections_with_defaults_and_patterns_that_match_anywhere() {
        let text = "\
* @everyone
path\\ with\\ spaces/ @space-owner
internal/README.md @readme
[Database] @db-team
model/db/
config/db/database-setup.md @docs-team
[DATABASE]
model/other/ @other
^[Optional docs][2] @writers
*.md
!CHANGELOG.md
";
        owners_are(
            text,
            Syntax::GitLab,
            &[
                ("a.cc", &["@everyone"]),
                ("path with spaces/x", &["@space-owner"]),
                ("deep/internal/README.md", &["@readme", "@writers"]),
                ("model/db/x.rb", &["@everyone", "@db-team"]),
                ("config/db/database-setup.md", &["@everyone", "@docs-team", "@writers"]),
                ("model/other/x.rb", &["@everyone", "@other"]),
                ("CHANGELOG.md", &["@everyone"]),
            ],
        );
    }

    #[test]
    fn the_syntax_is_told_by_the_place_and_by_sections() {
        for (path, text, syntax) in [
            (".github/CODEOWNERS", "[a] @b", Syntax::GitHub),
            (".gitlab/CODEOWNERS", "* @b", Syntax::GitLab),
            ("CODEOWNERS", "[Docs] @b\n*.md", Syntax::GitLab),
            ("docs/CODEOWNERS", "*.md @b", Syntax::GitHub),
        ] {
            assert_eq!(Syntax::of(path, text), syntax, "{path}");
        }
    }

    #[test]
    fn odd_lines_do_no_harm() {
        for text in ["[", "[a", "\\", "a\\", "* ", "\u{0}", "a{b,c} @x", &"*/".repeat(5000)] {
            for syntax in [Syntax::GitHub, Syntax::GitLab] {
                let owners = Owners::parse(text, syntax);
                assert!(owners.of("a/b").is_empty(), "{text:?}");
            }
        }
        owners_are("\u{feff}* @x\r\n", Syntax::GitHub, &[("a", &["@x"])]);
        owners_are(
            "a{b,c} @x\n[d].txt @y\n",
            Syntax::GitHub,
            &[("a{b,c}", &["@x"]), ("ab", &[]), ("[d].txt", &["@y"])],
        );
    }
}
