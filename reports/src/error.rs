//! Why a report could not be rendered.

/// Why a report could not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// JSON could not be written.
    #[error("render json")]
    Json(#[source] serde_json::Error),
    /// JUnit XML could not be written.
    #[error("render junit")]
    Junit(#[source] junit_report::Error),
    /// JUnit XML could not be completed.
    #[error("complete junit")]
    Xml(#[source] quick_xml::Error),
    /// A chart could not be drawn.
    #[error("draw a chart: {0}")]
    Chart(String),
}
