//! `waivers`: known leaks that are accepted, for a reason and for a time.

use crate::read::{At, Reader, table};
use crate::source::{Place, Span};
pub use crate::value::date::Until;
use crate::value::glob::{FrameGlob, Glob, TestGlob};
use crate::value::size::Size;
use crate::value::text::{LeakId, Words};

table! {
    /// A known leak that is accepted until a date. Give exactly one of `leak`, `frame`, `class` and
    /// `holder`; `test` limits the waiver to some tests.
    WaiverFile {
        /// Id of the leak, as printed in the report.
        leak: At<LeakId>,
        /// A frame of the allocating stack, as `module!function`, or a function in any module: as the report shows it,
        /// or with wildcards.
        frame: At<FrameGlob>,
        /// The leaking class (Java).
        class: At<Glob>,
        /// A reference on the path that holds the leak, as the report shows it: `class.field` (Java,
        /// with or without its package), `thread NAME`, or a variable or function (native).
        holder: At<Glob>,
        /// The tests in which the leak is accepted: `suite::Test.name`, or `Test.name` in any suite.
        /// Default: all tests.
        test: At<TestGlob>,
        /// The most that it accepts per iteration: bytes, or a number of descriptors or threads. `memgate waive` writes
        /// twice the bytes of today. If a test was not repeated (`--no-confirm`), any amount is accepted. Default: any
        /// amount.
        up_to: Size,
        /// Reason for accepting it.
        #[schemars(required)]
        reason: Words,
        /// Owner of the leak.
        owner: Words,
        /// Last day of the waiver, or `never`.
        #[schemars(required)]
        until: At<Until>,
    }
}

table! {
    /// The file `memgate waive` appends to.
    WaiversFile {
        /// Version of the file format.
        #[schemars(extend("const" = 1))]
        version: At<crate::value::number::Count>,
        /// Known leaks.
        waivers: Vec<At<WaiverFile>>,
    }
}

/// A known leak.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiver {
    /// The leaks that it names.
    pub target: WaiverTarget,
    /// The tests that it is limited to; `None`: it applies to all tests.
    pub test: Option<TestGlob>,
    /// The most that it accepts, as [`memgate_model::Leak::amount`]; `None`: any amount.
    pub up_to: Option<f64>,
    /// Reason for accepting it.
    pub reason: String,
    /// Owner of the leak.
    pub owner: Option<String>,
    /// How long it applies.
    pub until: Until,
    /// Position in the configuration.
    pub place: Place,
}

/// The leaks that a waiver names.
#[derive(Debug, Clone, PartialEq)]
pub enum WaiverTarget {
    /// One leak by its id.
    Leak(String),
    /// Native leaks with a matching frame.
    Frame(FrameGlob),
    /// Java leaks of a matching class.
    Class(Glob),
    /// Leaks with a matching step in their holder path.
    Holder(Glob),
}

impl std::fmt::Display for WaiverTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Leak(id) => write!(f, "leak {id}"),
            Self::Frame(glob) => write!(f, "frame {}", glob.text()),
            Self::Class(glob) => write!(f, "class {}", glob.text()),
            Self::Holder(glob) => write!(f, "holder {}", glob.text()),
        }
    }
}

impl Waiver {
    pub(crate) fn check(file: At<WaiverFile>, reader: &mut Reader<'_>) -> Option<Self> {
        let At { value: WaiverFile { leak, frame, class, holder, test, up_to, reason, owner, until }, span } =
            file;
        // A value that could not be read is already reported: a key that is missing because of it is not reported
        // again.
        let complete = !reader.has_error_below(&span);
        let targets = [
            leak.map(|At { value: LeakId(id), span }| (WaiverTarget::Leak(id), span)),
            frame.map(|At { value, span }| (WaiverTarget::Frame(value), span)),
            class.map(|At { value, span }| (WaiverTarget::Class(value), span)),
            holder.map(|At { value, span }| (WaiverTarget::Holder(value), span)),
        ];
        let target = one_target(targets.into_iter().flatten().collect(), &span, complete, reader);
        let missing = [
            (reason.is_none(), "`reason`", "say why it is accepted, in a sentence: `reason: …`"),
            (until.is_none(), "`until`", "add the last day it holds, `until: 2027-03-01`, or `until: never`"),
        ];
        for (_, key, hint) in missing.iter().filter(|(missing, ..)| complete && *missing) {
            reader.error(&span, format!("this waiver has no {key}")).label("waived here").hint(Some(*hint));
        }
        Some(Self {
            target: target?,
            test: test.map(|At { value, .. }| value),
            up_to: up_to.map(Size::float),
            reason: reason?.0,
            owner: owner.map(|Words(owner)| owner),
            until: until?.value,
            place: reader.place(&span),
        })
    }
}

fn one_target(
    mut targets: Vec<(WaiverTarget, Span)>,
    span: &Span,
    complete: bool,
    reader: &mut Reader<'_>,
) -> Option<WaiverTarget> {
    if targets.is_empty() && complete {
        reader
            .error(span, "this waiver does not say what it waives")
            .label("waived here")
            .hint(Some("add one of `leak`, `frame`, `class` and `holder`"));
    }
    if let [(_, first), (_, second), ..] = targets.as_slice() {
        reader
            .error(second, "this waiver names two things")
            .label("and this")
            .context(first, "this")
            .hint(Some("keep one, or write two waivers"));
    }
    (!targets.is_empty()).then(|| targets.swap_remove(0).0)
}
