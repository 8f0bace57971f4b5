//! Nested blocks whose widths show their sizes: the contents of a heap, or the bytes that stacks allocate.
//!
//! Data flow: a forest with sizes → SVG, which needs no script; a tooltip shows the name and size of each block. Blocks
//! that are too small to see, or too many for a page, are left out; the tables contain them.

use super::write::{Html, escape};

/// Most blocks that are drawn.
const MOST: usize = 2000;
/// Smaller blocks cannot be seen.
const SMALLEST_SHARE: f64 = 0.001;
const WIDTH: f64 = 1000.0;
pub(super) const ROW: usize = 20;
/// Width of a letter, in units of the drawing.
const LETTER: f64 = 6.6;

/// A block and its parts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Block {
    /// Text on the block, as far as it fits.
    pub name: String,
    /// Tooltip: name and size.
    pub title: String,
    /// Its size. The sizes of its parts together are not larger.
    pub size: f64,
    /// Its parts, the largest first.
    pub inside: Vec<Block>,
}

/// Draws these blocks side by side; `all`: the size of the whole width.
#[must_use]
pub fn blocks(label: &str, all: f64, blocks: &[Block]) -> Html {
    let mut html = Html::default();
    let mut drawing = Drawing { svg: String::new(), rows: 0, left: MOST, all };
    if all > 0.0 {
        drawing.beside(blocks, 0.0, 0);
    }
    if drawing.rows == 0 {
        return html;
    }
    html.markup("<div class=scroll tabindex=0 role=group").attribute("aria-label", label).markup(">");
    html.svg(&format!(
        "<svg class=diff viewBox=\"0 0 {WIDTH} {}\" role=img aria-label=\"{}; the table has the same figures\">{}</svg>",
        drawing.rows * ROW,
        escape(label),
        drawing.svg
    ));
    html.markup("</div>");
    html
}

struct Drawing {
    svg: String,
    rows: usize,
    left: usize,
    all: f64,
}

impl Drawing {
    fn beside(&mut self, blocks: &[Block], from: f64, row: usize) {
        let mut x = from;
        for block in blocks {
            let share = block.size / self.all;
            if share < SMALLEST_SHARE || self.left == 0 {
                break;
            }
            self.left -= 1;
            self.block(block, share * WIDTH, (x, row));
            self.beside(&block.inside, x, row + 1);
            x += share * WIDTH;
        }
    }

    fn block(&mut self, block: &Block, width: f64, (x, row): (f64, usize)) {
        self.rows = self.rows.max(row + 1);
        let (y, class) = (row * ROW, if row.is_multiple_of(2) { "less" } else { "same" });
        self.svg.push_str(&format!(
            "<g><title>{}</title><rect class={class} x={x:.2} y={y} width={width:.2} height={ROW}></rect>",
            escape(&block.title)
        ));
        self.svg.push_str(&written(&block.name, width, (x, y)));
        self.svg.push_str("</g>");
    }
}

/// A name on a block of this width; empty if no letters fit.
pub(super) fn written(name: &str, width: f64, (x, y): (f64, usize)) -> String {
    if width <= 4.0 * LETTER {
        return String::new();
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and below 200")]
    let letters = ((width - 6.0) / LETTER) as usize;
    format!("<text x={:.2} y={}>{}</text>", x + 3.0, y + 14, escape(&fitting(name, letters)))
}

/// The part of a text that fits: its end, which distinguishes functions of one namespace.
fn fitting(text: &str, letters: usize) -> String {
    let length = text.chars().count();
    if length <= letters {
        return text.to_owned();
    }
    let end: String = text.chars().skip(length + 1 - letters.max(1)).collect();
    format!("…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(name: &str, size: f64, inside: Vec<Block>) -> Block {
        Block { name: name.to_owned(), title: format!("{name}: {size} B"), size, inside }
    }

    #[test]
    fn blocks_are_as_wide_as_they_are_large_and_lie_in_what_holds_them() {
        let inside = vec![block("<b>", 100.0, vec![]), block("small", 0.1, vec![])];
        let html = blocks("what holds", 400.0, &[block("a", 200.0, inside), block("c", 100.0, vec![])]);
        let text = html.written();
        for drawn in [
            "<title>a: 200 B</title><rect class=less x=0.00 y=0 width=500.00",
            "<title>&lt;b&gt;: 100 B</title><rect class=same x=0.00 y=20 width=250.00",
            "<title>c: 100 B</title><rect class=less x=500.00 y=0 width=250.00",
            "viewBox=\"0 0 1000 40\"",
        ] {
            assert!(text.contains(drawn), "{drawn}: {text}");
        }
        assert!(!text.contains("small"), "{text}");
        assert_eq!(blocks("nothing", 0.0, &[block("a", 1.0, vec![])]).written(), "");
    }
}
