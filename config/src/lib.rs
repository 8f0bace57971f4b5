//! Reads and checks `memgate.yaml`, and reports all mistakes at once.
//!
//! Data flow: text → [`yaml`](self) tree with positions → *file* types that mirror each table
//! (declared once, by the `table!` macro: keys, JSON Schema and reference page come from the same
//! lines) → *checked* types that cannot be wrong ([`Config`]). Each step collects mistakes as
//! [`Diagnostics`], which render like rustc's.
//!
//! The crate is pure: it reads no file, no environment and no clock. The caller passes the text and a function that
//! looks up variables.
#![forbid(unsafe_code)]

mod baseline;
mod config;
mod diagnostic;
mod edit;
mod read;
mod reference;
mod schema;
mod set_threshold;
mod settings;
mod source;
mod template;
#[cfg(test)]
mod test_support;
mod value;
mod waive;
mod yaml;

pub use baseline::{
    BASELINE_VERSION, Baseline, BaselineError, Figure, SuiteBaseline, TestBaseline, WindowBaseline,
};
pub use config::{Config, DEFAULT_BASELINE, DEFAULT_WAIVERS_FILE, FileRef};
pub use diagnostic::{Diagnostic, Diagnostics, Severity};
pub use read::nearest;
pub use reference::reference;
pub use schema::schema;
pub use set_threshold::{NewThreshold, SetThresholdError, set_threshold};
pub use settings::heap::{HeapKeep, HeapTime, SuiteHeap};
pub use settings::history::{History, KnownLeaks, StaleWaivers};
pub use settings::instrumented::{Devices, Instrumented};
pub use settings::java::{HeapDump, JavaAgent, JavaNative, MeasureJava};
pub use settings::mail::{Encryption, Mail, MailServer};
pub use settings::measure::{Measure, MeasureNative, Screen};
pub use settings::reports::{JunitFlavour, JunitReport, MarkdownFor, MarkdownReport, Reports};
pub use settings::suites::{REPETITIONS, Runner, Suite, mistyped_repetitions};
pub use settings::thresholds::{Limit, Override, Rule, Threshold, Thresholds};
pub use settings::upload::{Artefact, Upload, UploadMode};
pub use settings::waivers::{Until, Waiver, WaiverTarget};
pub use settings::webhooks::{ChatFile as Chat, Webhook};
pub use settings::when::When;
pub use source::Place;
pub use template::{AndroidFact, Facts, ProjectKind, SuiteFact, init_template};
pub use value::glob::{FrameGlob, Glob, TargetGlob, TestGlob};
pub use value::size::{format_size, parse_size};
pub use waive::{NewWaiver, WaiveError, append_waiver, extend_waiver};
