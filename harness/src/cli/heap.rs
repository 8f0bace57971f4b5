//! What is typed about Java heap dumps.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum, ValueHint};

pub(super) const HEAP_HELP: &str = "\
Reads heap dumps of jcmd GC.heap_dump, HeapDumpOnOutOfMemoryError and `am dumpheap` (hprof 1.0.1 to 1.0.3), plain, gzip or zstd. Finds leaks \
by LeakCanary's rules, with its paths, sizes and fingerprints. `memgate docs heap` explains the sizes.

Examples:
  memgate heap analyze app.hprof                          leaks, and what holds them
  memgate heap paths app.hprof com.example.Session        what holds these objects
  memgate heap classes app.hprof --retained --top 20      classes by retained size
  memgate heap dominators app.hprof --of com.example.Cache
  memgate heap threads oom.hprof                          stacks, and what their locals hold
  memgate heap diff before.hprof after.hprof
  memgate heap growth 1.hprof 2.hprof 3.hprof             containers that hold more and more
  memgate heap trim app.hprof app.hprof.gz                a small copy without texts, the same leaks
  memgate heap check app.hprof.gz                         is the dump complete, and is anything odd?

Exit codes: 0 nothing over a limit · 1 leaks, or growth over the limit · 2 not measured: no heap dump, or an incomplete one";

/// What `heap` is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum HeapCommand {
    /// Find leaks, and show what holds them
    Analyze {
        /// Also look for objects of this class, or with this id (`0x…`); repeatable.
        #[arg(long, value_name = "CLASS|0xID")]
        leaks: Vec<String>,
        /// More rules, in TOML (`memgate docs heap`); repeatable.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        rules: Vec<PathBuf>,
        /// Mapping file of R8 or ProGuard, or a folder with one: restores original names, before
        /// rules are applied.
        #[arg(long, value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
        mapping: Option<PathBuf>,
        /// What an earlier `analyze --json` printed: leaks that it has do not fail.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        baseline: Option<PathBuf>,
        /// Number of leaks to show.
        #[arg(long, value_name = "N", default_value_t = 20)]
        top: usize,
        /// Also compute the exact retained size of the first object of each leak, and the largest
        /// objects.
        #[arg(long)]
        exact: bool,
        /// Also write a page (leaks, largest objects, classes, threads, strings) that opens offline.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        html: Option<PathBuf>,
        /// Print what LeakCanary's `shark-cli analyze` prints, for scripts that read that.
        #[arg(long, conflicts_with_all = ["json", "exact", "top"])]
        leakcanary: bool,
        /// The dump, and how it is read.
        #[command(flatten)]
        common: HeapArgs,
    },
    /// Show what holds objects of a class
    Paths {
        /// The dump.
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// The class, or an object's id (`0x…`).
        #[arg(value_name = "CLASS|0xID")]
        of: String,
        /// Mapping file of R8 or ProGuard, or a folder with one: restores original names, before
        /// rules are applied.
        #[arg(long, value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
        mapping: Option<PathBuf>,
        /// Number of different paths to show.
        #[arg(long, value_name = "N", default_value_t = 5)]
        top: usize,
        /// Show N ways by which the first of the objects is held, each without a reference of every way
        /// before: what else has to let go of it.
        #[arg(long, value_name = "N", conflicts_with = "top", value_parser = clap::value_parser!(u8).range(1..=100))]
        all: Option<u8>,
        /// Also follow weak, soft and phantom references: what could reach an object that nothing holds.
        #[arg(long)]
        through_weak: bool,
        /// How they are read.
        #[command(flatten)]
        common: HeapCommon,
    },
    /// List classes with the number and size of their objects
    Classes {
        /// Also compute the retained size of all objects of a class.
        #[arg(long)]
        retained: bool,
        /// Mapping file of R8 or ProGuard, or a folder with one: restores original names, before
        /// rules are applied.
        #[arg(long, value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
        mapping: Option<PathBuf>,
        /// Sort order [default: retained if computed, else shallow].
        #[arg(long, value_enum, value_name = "ORDER")]
        sort: Option<HeapOrder>,
        /// Number of classes to show.
        #[arg(long, value_name = "N", default_value_t = 40)]
        top: usize,
        /// The dump, and how it is read.
        #[command(flatten)]
        common: HeapArgs,
    },
    /// Show the largest objects by retained size, and what they consist of
    Dominators {
        /// Start at objects of this class, or at this id (`0x…`), instead of the roots.
        #[arg(long, value_name = "CLASS|0xID")]
        of: Option<String>,
        /// Mapping file of R8 or ProGuard, or a folder with one: restores original names, before
        /// rules are applied.
        #[arg(long, value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
        mapping: Option<PathBuf>,
        /// Add up what all objects of a class, a package or a class loader retain together.
        #[arg(long, value_enum, value_name = "WHAT", conflicts_with_all = ["of", "depth"])]
        group: Option<HeapGroup>,
        /// Number of levels to show.
        #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
        depth: u32,
        /// Number of objects to show for each level.
        #[arg(long, value_name = "N", default_value_t = 10)]
        top: usize,
        /// The dump, and how it is read.
        #[command(flatten)]
        common: HeapArgs,
    },
    /// List threads with their stacks, and the objects that their locals hold
    Threads {
        /// Mapping file of R8 or ProGuard, or a folder with one: restores original names.
        #[arg(long, value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
        mapping: Option<PathBuf>,
        /// The dump, and how it is read.
        #[command(flatten)]
        common: HeapArgs,
    },
    /// List strings that exist more than once
    Strings {
        /// Number of strings to show.
        #[arg(long, value_name = "N", default_value_t = 25)]
        top: usize,
        /// The dump, and how it is read.
        #[command(flatten)]
        common: HeapArgs,
    },
    /// List pictures (Android) with the size of their pixels
    Bitmaps {
        /// Also write those whose pixels are in the dump (until Android 7.1) to this folder, as PNG.
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        extract: Option<PathBuf>,
        /// Number of pictures to show.
        #[arg(long, value_name = "N", default_value_t = 25)]
        top: usize,
        /// The dump, and how it is read.
        #[command(flatten)]
        common: HeapArgs,
    },
    /// Show what changed between two dumps
    Diff {
        /// What is compared.
        #[arg(long, value_enum, value_name = "WHAT", default_value_t = HeapBy::Class)]
        by: HeapBy,
        /// The older dump.
        #[arg(value_name = "OLD", value_hint = ValueHint::FilePath)]
        old: PathBuf,
        /// The newer dump.
        #[arg(value_name = "NEW", value_hint = ValueHint::FilePath)]
        new: PathBuf,
        /// Mapping file of R8 or ProGuard, or a folder with one: restores original names in both dumps,
        /// before rules are applied.
        #[arg(long, value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
        mapping: Option<PathBuf>,
        /// Mapping file of the older dump, if it is of another build.
        #[arg(long, value_name = "FILE|DIR", requires = "mapping", value_hint = ValueHint::AnyPath)]
        old_mapping: Option<PathBuf>,
        /// Exit with 1 if a class (at one place, with --by) has grown by more than this: bytes, or
        /// `1 MiB`.
        #[arg(long, value_name = "SIZE", value_parser = memgate_config::parse_size)]
        fail_over: Option<u64>,
        /// Exit with 1 if it has grown by more objects than this.
        #[arg(long, value_name = "N")]
        fail_over_count: Option<u64>,
        /// Number of classes or places to show.
        #[arg(long, value_name = "N", default_value_t = 40)]
        top: usize,
        /// How they are read.
        #[command(flatten)]
        common: HeapCommon,
    },
    /// Show containers that hold more and more objects, from at least three dumps
    Growth {
        /// The dumps, or their ledgers, the oldest first.
        #[arg(value_name = "FILE", required = true, num_args = 1.., value_hint = ValueHint::FilePath)]
        files: Vec<PathBuf>,
        /// Mapping file of R8 or ProGuard, or a folder with one: restores original names in all
        /// dumps, before rules are applied. For ledgers, `heap ledger` does it.
        #[arg(long, value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
        mapping: Option<PathBuf>,
        /// Least number of objects by which a container grows from dump to dump, such as the number
        /// of times that a test ran in between.
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
        loops: u64,
        /// Number of classes to show.
        #[arg(long, value_name = "N", default_value_t = 20)]
        top: usize,
        /// How they are read.
        #[command(flatten)]
        common: HeapCommon,
    },
    /// Write what the containers of a dump hold: all that `growth` needs of it
    Ledger {
        /// The dump.
        #[arg(value_name = "IN", value_hint = ValueHint::FilePath)]
        from: PathBuf,
        /// Output file (JSON).
        #[arg(value_name = "OUT", value_hint = ValueHint::FilePath)]
        to: PathBuf,
        /// Mapping file of R8 or ProGuard, or a folder with one: restores original names, before
        /// rules are applied.
        #[arg(long, value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
        mapping: Option<PathBuf>,
        /// Accept an incomplete dump: the exit code is not 2 because of it.
        #[arg(long)]
        allow_truncated: bool,
    },
    /// Copy a dump without the contents of its strings and arrays: small and private
    Trim {
        /// The dump; `-`: standard input, with --zero.
        #[arg(value_name = "IN", value_hint = ValueHint::FilePath)]
        from: PathBuf,
        /// Output file; `-`: standard output. A name that ends with .gz or .zst is compressed.
        #[arg(value_name = "OUT", value_hint = ValueHint::FilePath)]
        to: PathBuf,
        /// Keep no strings at all, not even those that rules read: device, process, threads. From
        /// standard input, literals of the program stay among HotSpot's symbols.
        #[arg(long)]
        zero: bool,
        /// Also cut out the values of single fields (numbers, characters, booleans), but for those that
        /// rules read.
        #[arg(long, conflicts_with = "zero")]
        private: bool,
        /// Keep equal strings equal, so that `heap strings` still counts duplicates: each begins with
        /// eight letters of a hash that nobody can repeat.
        #[arg(long, conflicts_with = "zero")]
        keep_duplicates: bool,
        /// More rules whose fields stay (`memgate docs heap`); repeatable.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "zero")]
        rules: Vec<PathBuf>,
        /// Analyse both dumps, and fail if the results differ.
        #[arg(long, conflicts_with = "zero")]
        prove: bool,
    },
    /// Write a plain dump from one that Tailor or KOOM trimmed, or from gzip or zstd
    Restore {
        /// The trimmed or compressed dump.
        #[arg(value_name = "IN", value_hint = ValueHint::FilePath)]
        from: PathBuf,
        /// Output file; `-`: standard output.
        #[arg(value_name = "OUT", value_hint = ValueHint::FilePath)]
        to: PathBuf,
    },
    /// Show whether a dump is complete, what is in it, and what is odd about it
    Check {
        /// The dump, and how it is read.
        #[command(flatten)]
        common: HeapArgs,
    },
}

impl HeapCommand {
    /// The dump (of several the newest), and how it is read.
    pub(crate) fn dump(&self) -> (&Path, HeapCommon) {
        match self {
            Self::Analyze { common, .. }
            | Self::Classes { common, .. }
            | Self::Dominators { common, .. }
            | Self::Threads { common, .. }
            | Self::Strings { common, .. }
            | Self::Bitmaps { common, .. }
            | Self::Check { common } => (&common.file, common.common),
            Self::Paths { file, common, .. } | Self::Diff { new: file, common, .. } => (file, *common),
            Self::Growth { files, common, .. } => (files.last().map_or(Path::new(""), |file| file), *common),
            Self::Ledger { from, .. } | Self::Trim { from, .. } | Self::Restore { from, .. } => {
                (from, HeapCommon::default())
            }
        }
    }
}

/// One dump.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct HeapArgs {
    /// The dump.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) common: HeapCommon,
}

/// Options of all commands about dumps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub struct HeapCommon {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Accept an incomplete dump: the exit code is not 2 because of it.
    #[arg(long)]
    pub(crate) allow_truncated: bool,
}

/// What objects are added up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HeapGroup {
    /// Their class
    Class,
    /// The package of their class (a class, with its static fields: its own)
    Package,
    /// The loader of their class (a class, with its static fields: its own)
    Loader,
}

/// What two dumps are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HeapBy {
    /// Objects of each class
    Class,
    /// Objects of each class by what holds them, from the root on
    Path,
    /// What containers hold; ledgers may stand in for dumps
    Container,
}

/// Sort order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HeapOrder {
    /// Retained size of all objects of a class
    Retained,
    /// Bytes of the objects themselves
    Shallow,
    /// Number of objects
    Count,
}
