//! Writes all text of the page: markup is `'static`, and all other text is escaped.

use crate::visible::{is_unsafe, visible};

/// Text for an element or an attribute: harmless for the page and for the reader.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut html = Html::default();
    html.text(text);
    html.0
}

/// A page that is being written.
#[derive(Debug, Default)]
pub struct Html(pub(super) String);

impl Html {
    /// The text written so far.
    #[must_use]
    pub fn written(&self) -> &str {
        &self.0
    }

    /// Our own markup.
    pub fn markup(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Text from anywhere, escaped.
    pub fn text(&mut self, text: &str) -> &mut Self {
        for c in visible(text).chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                c => self.0.push(c),
            }
        }
        self
    }

    /// ` name="value"`, after the name of an open tag.
    pub fn attribute(&mut self, name: &'static str, value: &str) -> &mut Self {
        self.markup(" ").markup(name).markup("=\"").text(value).markup("\"")
    }

    /// ` value="value"`: a form sends back exactly this text. Invisible characters are written by their numbers.
    pub fn value(&mut self, value: &str) -> &mut Self {
        self.markup(" value=\"");
        for part in value.split_inclusive(is_unsafe) {
            let shown = part.trim_end_matches(is_unsafe);
            self.text(shown);
            for c in part[shown.len()..].chars() {
                self.0.extend(["&#", &u32::from(c).to_string(), ";"]);
            }
        }
        self.markup("\"")
    }

    /// An element with text in it: `element("p class=x", …)`.
    pub fn element(&mut self, tag: &'static str, text: &str) -> &mut Self {
        let name = tag.split(' ').next().unwrap_or(tag);
        self.markup("<").markup(tag).markup(">").text(text).markup("</").markup(name).markup(">")
    }

    /// Appends a part that this crate has already made harmless.
    pub fn part(&mut self, part: &Self) -> &mut Self {
        self.0.push_str(&part.0);
        self
    }

    /// Appends a part on a line of its own.
    pub(super) fn line(&mut self, part: &Self) -> &mut Self {
        self.0.push_str(&part.0.replace('\n', " "));
        self.0.push('\n');
        self
    }

    /// A chart: numbers, and text that was escaped.
    pub fn svg(&mut self, svg: &str) -> &mut Self {
        self.0.push_str(svg);
        self
    }

    /// JSON for the script of the page: a `<` in it could end its element.
    pub(super) fn json(&mut self, json: &str) -> &mut Self {
        self.0.push_str(&json.replace('<', "\\u003c"));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_sends_back_what_was_given_to_it() {
        let mut html = Html::default();
        html.value("می\u{200c}خواهم \"\u{202e}\u{200d}");
        assert_eq!(html.0, " value=\"می&#8204;خواهم &quot;&#8238;&#8205;\"");
    }

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(
            escape("<a href=\"x\" title='y'>&\u{202e}\0"),
            "&lt;a href=&quot;x&quot; title=&#39;y&#39;&gt;&amp;\\u{202e}\\u{0}"
        );
        let mut html = Html::default();
        html.markup("<p")
            .attribute("title", "\" onclick=\"x")
            .markup(">")
            .element("b class=c", "</b>")
            .json("</script>");
        assert_eq!(html.0, "<p title=\"&quot; onclick=&quot;x\"><b class=c>&lt;/b&gt;</b>\\u003c/script>");
    }
}
