//! Oddities that a reader should know before trusting a figure.

/// Something unexpected in the input. The text is a sentence fragment for a report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Oddity {
    /// The same allocation site came in several records.
    #[error(
        "{records} records are {distinct} distinct ones: the same size and stack came several times, they are added up"
    )]
    Duplicates {
        /// As written.
        records: u64,
        /// After adding up.
        distinct: u64,
    },
    /// `num` is not a count in this input.
    #[error(
        "`num` is no count here (Android 7 writes the depth of the stack there): every record is read as one allocation"
    )]
    NumIsNoCount,
    /// The stated total differs from the sum of the records.
    #[error("the total is stated as {stated} B, the records add up to {summed} B")]
    TotalDiffers {
        /// As stated.
        stated: u64,
        /// As added up.
        summed: u64,
    },
    /// Allocations whose stack is unknown.
    #[error("{count} allocations of {bytes} B have no stack: capture was off, or the unwinder got none")]
    NoStack {
        /// How many.
        count: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// Stacks as deep as the recording limit.
    #[error(
        "{records} stacks fill all {backtrace_size} frames: they may be cut, and deeper ones that differ may be merged"
    )]
    FullStacks {
        /// How many records.
        records: u64,
        /// The limit.
        backtrace_size: u64,
    },
    /// Stacks of one frame, which contain little information.
    #[error(
        "stacks have one frame: on 32-bit x86 that is the C library's own malloc, whoever called it (use backtrace=8 or more)"
    )]
    OneFrame,
    /// Frames in no mapped file.
    #[error("{frames} frames lie in no mapped file (generated code)")]
    AnonymousFrames {
        /// How many, each address counted once per record.
        frames: u64,
    },
    /// The process could not read its own mappings.
    #[error("the process could not read its mappings: addresses cannot be told by library")]
    NoMaps,
    /// The old writer reports that its header and its records disagree.
    #[error("the writer warns of mismatched backtrace sizes")]
    MismatchedBacktraceSizes,
}

impl Oddity {
    /// A stable name for machines.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Duplicates { .. } => "duplicates",
            Self::NumIsNoCount => "num_is_no_count",
            Self::TotalDiffers { .. } => "total_differs",
            Self::NoStack { .. } => "no_stack",
            Self::FullStacks { .. } => "full_stacks",
            Self::OneFrame => "one_frame",
            Self::AnonymousFrames { .. } => "anonymous_frames",
            Self::NoMaps => "no_maps",
            Self::MismatchedBacktraceSizes => "mismatched_backtrace_sizes",
        }
    }
}
