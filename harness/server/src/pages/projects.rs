//! The start page: the projects that the reader may see.

use super::account::{self, Own};
use super::frame::page;
use super::{link, parts};

/// The list of projects.
#[must_use]
pub fn projects(names: &[String], own: &Own) -> String {
    page("Projects", |html| {
        html.markup("<header><h1>Projects</h1>\n");
        account::own(html, own);
        html.markup("</header>\n<main id=main>\n");
        if names.is_empty() {
            html.markup("<p>No run is in this history yet. <code>memgate run</code> adds itself.</p>");
        }
        html.markup("<ul>");
        for name in names {
            html.markup("<li>");
            parts::anchor(html, &link::path(name, &[]), name);
        }
        html.markup("</ul></main>\n");
    })
}
