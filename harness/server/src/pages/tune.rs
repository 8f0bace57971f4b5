//! Thresholds that the history of a line supports, to be copied into memgate.yaml.

use memgate_config::Thresholds;

use super::frame::of_project;
use crate::store::Series;
use crate::tune::{patch, rows};
use crate::view::Selection;

/// The patch that `memgate tune` prints if memgate.yaml has no thresholds: the server does not know that file.
#[must_use]
pub fn tune((selection, series): &(Selection, Vec<Series>)) -> String {
    let patch = patch(selection, &rows(series, &Thresholds::default()));
    of_project(selection, "Thresholds", &["tune"], |html| {
        html.markup("<p>What the newest 300 runs of this line support, each with its evidence. A figure that grows on ");
        html.markup("every commit is a leak: it gets no threshold, and is to be fixed or waived. The server does not know ");
        html.markup("your memgate.yaml; <code class=command>memgate tune --write</code> compares with it, and sets these ");
        html.markup("thresholds there.</p>\n<h2>For memgate.yaml</h2>\n<pre tabindex=0 class=patch>");
        for line in patch.lines() {
            html.text(line).markup("\n");
        }
        html.markup("</pre>\n");
    })
}
