//! Renders a run report: human text, JSON, JUnit XML
