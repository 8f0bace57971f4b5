//! The documentation that this program was built with, for those who have only the program: `memgate docs`.

macro_rules! pages {
    ($($name:literal),*) => {
        [("config", include_str!("../../config/REFERENCE.md")), $(($name, include_str!(concat!("../../docs/", $name, ".md")))),*]
    };
}

/// The pages: name and Markdown text. `config` is the reference of `memgate.yaml`, the others are the files in `docs`.
pub(crate) const PAGES: [(&str, &str); 17] = pages![
    "agent",
    "agent-java",
    "android",
    "android-agent",
    "design",
    "heap",
    "history",
    "junit",
    "junit-rounds",
    "limits",
    "reports",
    "server",
    "sessions",
    "shadow-stack",
    "shards",
    "verdicts"
];

/// The names of all pages, for the command line.
pub(crate) fn names() -> [&'static str; PAGES.len()] {
    PAGES.map(|(name, _)| name)
}

/// The heading of a page.
pub(crate) fn title(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim_start_matches(['#', ' '])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_documentation_is_a_page() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs");
        let files =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut expected: Vec<_> =
            files.filter_map(|name| name.strip_suffix(".md").map(str::to_owned)).collect();
        expected.push("config".to_owned());
        expected.sort_unstable();
        let mut known = names();
        known.sort_unstable();
        assert_eq!(known.as_slice(), expected);
    }

    #[test]
    fn a_title_is_the_heading() {
        assert_eq!(title("# Limits\n\nmemgate"), "Limits");
    }
}
