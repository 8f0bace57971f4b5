//! `memgate heap analyze --html`: writes one page with the results of all other commands for a dump, in the style of
//! report.html.
//!
//! Data flow: analysis, threads, texts, dominators → sections → a page that opens offline and has no script. Texts of
//! the dump go through `Html`, which escapes them. No list grows with the number of objects.

use memgate_hprof::{Analysis, Dominators, Index, Leak, Texts, Thread, Together, lonely, tree};
use memgate_model::format_bytes;
use memgate_reports::page::{Block, Html, blocks, document};

use super::show::{ClassRow, Tree, classes_of, drawn, exact_bytes, number, plural, trees};

/// Maximum number of listed leaks, classes and threads.
const MOST: usize = 50;
/// Maximum number of listed texts.
pub(super) const STRINGS: usize = 50;
/// Number of the listed largest objects, and of levels below them.
const LARGEST: (usize, u32) = (40, 6);
/// Maximum number of frames of a thread.
const FRAMES: usize = 60;

/// The input of a page.
pub(super) struct Page<'a> {
    pub(super) head: &'a [String],
    pub(super) analysis: &'a Analysis,
    pub(super) threads: &'a [Thread],
    pub(super) texts: &'a Texts,
}

impl Page<'_> {
    pub(super) fn html(&self, dump: &Index, dominators: &Dominators) -> String {
        let mut page = Html::default();
        let leaks = self.analysis.leaks.len();
        let (class, word) = match leaks {
            0 => ("badge pass", "no leak".to_owned()),
            count => ("badge fail", plural(count, "leak", "leaks")),
        };
        page.markup("<a class=skip href=#main>Skip to the leaks</a>\n<header>\n<p class=crumb>heap dump</p>\n<h1><span");
        page.attribute("class", class).markup(">").text(&word).markup("</span> ");
        let (title, facts) = self.head.split_first().map_or(("", &[][..]), |(title, facts)| (title, facts));
        page.text(title).markup("</h1>\n");
        for fact in facts {
            page.element("p class=facts", fact);
        }
        page.markup("</header>\n");
        let sections = [
            ("leaks", "Leaks", leak_list(&self.analysis.leaks)),
            ("library", "Known leaks of libraries", leak_list(&self.analysis.library_leaks)),
            ("gone", "Over, and held by nothing that is alive", self.gone()),
            ("largest", "What would go with each object", largest(dump, dominators)),
            ("classes", "Classes", classes(dominators.by_class(dump))),
            ("threads", "Threads", threads(self.threads)),
            ("strings", "Strings that exist more than once", strings(self.texts)),
            ("odd", "What is odd about the dump", odd(&self.analysis.about.odd)),
        ];
        page.markup("<nav aria-label=Contents>");
        for (id, title, section) in &sections {
            if !section.written().is_empty() {
                page.markup("<a href=#").markup(id).markup(">").markup(title).markup("</a> ");
            }
        }
        page.markup("</nav>\n<main id=main>\n");
        for (id, title, section) in &sections {
            if !section.written().is_empty() {
                page.markup("<section id=").markup(id).markup("><h2>").markup(title).markup("</h2>");
                page.part(section).markup("</section>\n");
            }
        }
        page.markup("</main>\n");
        document(title, &page)
    }

    fn gone(&self) -> Html {
        let mut html = Html::default();
        for node in self.analysis.unreachable.iter().take(MOST) {
            picture(&mut html, &lonely(node));
        }
        let more =
            self.analysis.unreachable.len().saturating_sub(MOST) as u64 + self.analysis.unreachable_more;
        left_out(&mut html, more, "objects");
        html
    }
}

fn leak_list(leaks: &[Leak]) -> Html {
    let mut html = Html::default();
    for leak in leaks.iter().take(MOST) {
        html.markup("<article class=leak><h3>");
        let title = match leak.classes.as_slice() {
            [only] => only.class.clone(),
            _ => classes_of(leak),
        };
        html.text(&title).markup("</h3><p class=facts>");
        let mut facts = vec![
            plural(count(leak.instances), "leaking object", "leaking objects"),
            format!(
                "{} in {}",
                exact_bytes(leak.attributed),
                plural(count(leak.objects), "object", "objects")
            ),
        ];
        facts.extend(leak.retained.map(|retained| format!("retains {}", exact_bytes(retained))));
        facts.push(format!("fingerprint {}", leak.fingerprint));
        facts.extend(leak.library.as_ref().map(|pattern| format!("known: {pattern}")));
        html.text(&facts.join(" · ")).markup("</p>");
        picture(&mut html, &tree(leak));
        html.markup("</article>");
    }
    left_out(&mut html, leaks.len().saturating_sub(MOST) as u64, "leaks");
    html
}

/// A text drawing whose lines do not wrap.
fn picture(html: &mut Html, text: &str) {
    html.markup("<pre class=patch tabindex=0 role=group aria-label=\"What holds it\">");
    for line in drawn(text) {
        html.text(line.trim_end()).markup("\n");
    }
    html.markup("</pre>");
}

fn largest(dump: &Index, dominators: &Dominators) -> Html {
    let mut html = Html::default();
    let (top, depth) = LARGEST;
    let trees = trees(dump, dominators, None, depth, top);
    let (objects, bytes) = (dominators.reachable() as u64, dominators.bytes());
    html.element(
        "p",
        &format!(
            "{} objects are reachable, {}. Below each object stand the largest of those that would be free without it.",
            number(objects),
            exact_bytes(bytes)
        ),
    );
    html.part(&blocks("Retained sizes", bytes as f64, &trees.iter().map(block).collect::<Vec<_>>()));
    table(
        &mut html,
        "Largest objects",
        &["object", "retains", "itself", "holds alone"],
        trees.iter().map(|tree| {
            let numbers = [exact_bytes(tree.retained), exact_bytes(tree.shallow), number(tree.dominates)];
            (format!("{} {}", tree.class, tree.id), numbers.to_vec())
        }),
    );
    html
}

fn block(tree: &Tree) -> Block {
    Block {
        name: tree.class.clone(),
        title: format!("{} {}: retains {}", tree.class, tree.id, exact_bytes(tree.retained)),
        size: tree.retained as f64,
        inside: tree.below.iter().map(block).collect(),
    }
}

fn classes(mut all: Vec<Together>) -> Html {
    let mut html = Html::default();
    all.sort_by_key(|class| std::cmp::Reverse(class.retained));
    let more = all.len().saturating_sub(MOST) as u64;
    let rows = all.into_iter().take(MOST).map(ClassRow::from).map(|row| {
        let retained = row.retained.map_or_else(String::new, exact_bytes);
        (row.class, vec![retained, number(row.count), exact_bytes(row.bytes)])
    });
    table(
        &mut html,
        "By what would go with all objects of a class",
        &["class", "retains", "objects", "themselves"],
        rows,
    );
    left_out(&mut html, more, "classes");
    html
}

fn threads(threads: &[Thread]) -> Html {
    let mut html = Html::default();
    for thread in threads.iter().take(MOST) {
        html.markup("<details class=test><summary>").text(thread.name.as_deref().unwrap_or("?"));
        let state = thread.state.map_or_else(String::new, |state| format!(" {state}"));
        let frames = plural(thread.frames.len(), "frame", "frames");
        html.element("span class=short", &format!("{state} {} · {frames}", thread.class));
        html.markup("</summary><div class=body><ol class=stack>");
        for frame in thread.frames.iter().take(FRAMES) {
            html.markup("<li><span class=code>").text(&frame.method).markup("</span> <span class=faint>");
            html.text(&frame.place).markup("</span>");
            for local in &frame.locals {
                html.markup("<br>").text(&format!("local {} 0x{:x}", local.class, local.id));
            }
        }
        html.markup("</ol>");
        left_out(&mut html, thread.frames.len().saturating_sub(FRAMES) as u64, "frames");
        for local in &thread.locals {
            html.element("p", &format!("local {} 0x{:x}", local.class, local.id));
        }
        html.markup("</div></details>");
    }
    left_out(&mut html, threads.len().saturating_sub(MOST) as u64, "threads");
    html
}

fn strings(texts: &Texts) -> Html {
    let mut html = Html::default();
    if texts.duplicates.is_empty() {
        return html;
    }
    html.element(
        "p",
        &format!(
            "{} texts of {}; {} of them are copies.",
            number(texts.texts),
            format_bytes(texts.bytes as f64),
            format_bytes(texts.wasted as f64)
        ),
    );
    let rows = texts.duplicates.iter().map(|text| {
        (
            format!("\"{}\"", text.text),
            vec![exact_bytes(text.wasted), number(text.copies), exact_bytes(text.bytes)],
        )
    });
    table(&mut html, "What copies waste most", &["text", "wasted", "copies", "each"], rows);
    left_out(&mut html, texts.more, "texts");
    html
}

fn odd(odd: &[String]) -> Html {
    let mut html = Html::default();
    if !odd.is_empty() {
        html.markup("<ul>");
        for odd in odd {
            html.element("li", odd);
        }
        html.markup("</ul>");
    }
    html
}

fn table(
    html: &mut Html,
    caption: &'static str,
    columns: &[&'static str],
    rows: impl Iterator<Item = (String, Vec<String>)>,
) {
    html.markup("<div class=scroll tabindex=0 role=group").attribute("aria-label", caption);
    html.markup("><table><caption>").markup(caption).markup("</caption><thead><tr>");
    for (at, column) in columns.iter().enumerate() {
        html.markup(if at == 0 { "<th scope=col>" } else { "<th scope=col class=n>" }).markup(column);
    }
    html.markup("</thead><tbody>");
    for (name, numbers) in rows {
        html.markup("<tr><th scope=row class=code>").text(&name);
        for number in numbers {
            html.markup("<td class=n>").text(&number);
        }
    }
    html.markup("</tbody></table></div>");
}

fn left_out(html: &mut Html, more: u64, what: &str) {
    if more > 0 {
        html.element("p class=faint", &format!("and {} more {what}", number(more)));
    }
}

fn count(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
