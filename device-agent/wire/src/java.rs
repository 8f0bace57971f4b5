//! The frames of a Java virtual machine. Sizes are bytes, times nanoseconds.
//!
//! Class names are those of the source: `java.lang.String`, `byte[]`, `com.example.Tile$1`,
//! `com.example.Tile[][]`. Classes that the virtual machine names itself (lambdas, proxies,
//! accessors) keep that name here.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize, Serializer};

/// The blocking listener of memgate's Java part on Android, the argument of `am instrument -e listener`.
pub const ANDROID_LISTENER: &str = "io.memgate.android.MemgateListener";

/// Maximum number of records in a frame: names of classes are written separately, so records are small.
pub const RECORDS_PER_PART: usize = 16_384;

/// Maximum number of names in a frame.
pub const NAMES_PER_FRAME: usize = 2048;

/// The virtual machine, and how it was started. Once per stream, after the hello.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JvmInfo {
    /// `java.vm.name` and `java.vm.version`.
    pub vm: String,
    /// `java.specification.version`: `17`, `25`, `1.8`.
    pub version: String,
    /// `java.home`.
    pub home: String,
    /// Name of the collector: `G1`, `Parallel`, `Serial`, `Z`, `Shenandoah`, `Epsilon`, or empty if it is not known.
    pub collector: String,
    /// `sun.java.command`: main class (or jar) and its arguments.
    pub command: String,
    /// Options of the virtual machine from variables, command line and argument files, in this order.
    pub vm_arguments: Vec<String>,
    /// The class path the tests run with, in order, absolute; for Surefire that of the tests, not of its booter.
    pub class_path: Vec<String>,
    /// The module path, in order.
    pub module_path: Vec<String>,
    /// System properties that were set on the command line or by the build.
    pub properties: Vec<(String, String)>,
    /// The component that reported the tests: `junit-platform`, `junit4`, `launcher`; empty until it is known.
    pub listener: String,
}

/// A class that later frames refer to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassName {
    /// Number in this stream, from 1.
    pub id: u32,
    /// Name.
    pub name: String,
}

/// Classes, each once per stream, before the first frame that refers to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Classes {
    /// The classes.
    pub classes: Vec<ClassName>,
}

/// The classes that a histogram contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HistogramScope {
    /// Every class with a live instance.
    All,
    /// Every class whose figures differ from the previous histogram of this stream, with its current figures (0
    /// instances: none left).
    Changes,
}

/// Live instances of one class name (classes of the same name from several loaders are one).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassCount {
    /// [`ClassName::id`].
    pub class: u32,
    /// Live instances after a collection.
    pub instances: u64,
    /// Their bytes, as the virtual machine lays them out.
    pub bytes: u64,
}

/// One part of a class histogram, taken after a collection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapHistogram {
    /// The [`crate::Boundary::sequence`] it belongs to.
    pub boundary: u32,
    /// Number of this part, from 0.
    pub part: u32,
    /// The classes that it contains.
    pub scope: HistogramScope,
    /// The records; a class does not repeat within one histogram.
    pub records: Vec<ClassCount>,
}

/// The state of the virtual machine at a boundary. Values that are not available are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JavaState {
    /// The [`crate::Boundary::sequence`] it belongs to; 0: taken in between.
    pub boundary: u32,
    /// Used heap; after a collection if the boundary has a histogram.
    pub heap_used: Option<u64>,
    /// Bytes that all threads have allocated since the start, ended threads included.
    pub allocated_bytes: Option<u64>,
    /// Live threads (platform threads of Java).
    pub threads: Option<u32>,
    /// Names of the live threads, sorted.
    pub thread_names: Vec<String>,
    /// Classes loaded at this moment.
    pub classes_loaded: Option<u64>,
    /// Bytes of metaspace used.
    pub metaspace_bytes: Option<u64>,
    /// Bytes of direct buffers.
    pub direct_bytes: Option<u64>,
    /// Number of direct buffers.
    pub direct_buffers: Option<u64>,
    /// JNI global references, weak ones not counted.
    pub jni_globals: Option<u64>,
    /// Collections so far, all kinds.
    pub collections: Option<u64>,
    /// Time this boundary took (collection, histogram), nanoseconds.
    pub boundary_ns: u64,
}

/// A frame of a Java stack, as a node of a tree whose root is id 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JavaStackNode {
    /// Id, never 0.
    pub id: u32,
    /// The caller's node; 0 for the outermost frame.
    pub parent: u32,
    /// [`JavaMethod::id`].
    pub method: u32,
    /// Line; 0: not known.
    pub line: u32,
}

/// A method that stack nodes refer to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JavaMethod {
    /// Number in this stream, from 1.
    pub id: u32,
    /// Name of its class.
    pub class: String,
    /// Its name.
    pub name: String,
    /// Source file, without folders; empty: not known.
    pub file: String,
}

/// Methods and stack nodes, each once per stream, before the first record that needs it, parents
/// first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JavaStacks {
    /// The methods.
    pub methods: Vec<JavaMethod>,
    /// The nodes.
    pub nodes: Vec<JavaStackNode>,
}

/// Sampled allocations of one class at one stack that are still alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JavaSite {
    /// [`JavaStackNode::id`] of the innermost frame.
    pub stack: u32,
    /// [`ClassName::id`].
    pub class: u32,
    /// Samples that are alive.
    pub samples: u64,
    /// Bytes that they represent (each sample represents the mean interval, or its own size if that is larger).
    pub bytes: u64,
}

/// Allocation sites of sampled objects that were born in the window and are alive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JavaSites {
    /// The [`crate::Boundary::sequence`] they belong to.
    pub boundary: u32,
    /// The records.
    pub records: Vec<JavaSite>,
}

macro_rules! holder_kinds {
    ($($(#[$doc:meta])* $kind:ident $text:literal,)*) => {
        /// Kind of the reference that holds an object. On the wire it is a text.
        #[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
        #[serde(from = "String")]
        pub enum HolderKind {
            $($(#[$doc])* $kind,)*
            /// A kind that this version has no name for.
            Other(String),
        }

        impl HolderKind {
            /// Its text.
            #[must_use]
            pub fn text(&self) -> &str {
                match self {
                    $(Self::$kind => $text,)*
                    Self::Other(text) => text,
                }
            }
        }

        impl From<String> for HolderKind {
            fn from(text: String) -> Self {
                match text.as_str() {
                    $($text => Self::$kind,)*
                    _ => Self::Other(text),
                }
            }
        }
    };
}

holder_kinds! {
    /// A static field.
    Static "static",
    /// A field of an object.
    Field "field",
    /// An element of an array.
    Array "array",
    /// A thread, as a root.
    Thread "thread",
    /// A local variable in a Java frame.
    Stack "stack",
    /// A local reference of a native method.
    JniLocal "jni local",
    /// A global reference of native code.
    JniGlobal "jni global",
    /// Classes that a class loader loaded.
    ClassLoader "class loader",
    /// The class of an object.
    Class "class",
    /// A monitor that a thread has locked.
    Monitor "monitor",
    /// A class that is never unloaded.
    SystemClass "system class",
    /// The virtual machine itself.
    VirtualMachine "virtual machine",
    /// A constant that a class resolved.
    ConstantPool "constant pool",
    /// The table of literals.
    StringTable "string table",
    /// A root that the virtual machine calls "other".
    OtherRoot "other",
}

impl Serialize for HolderKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text())
    }
}

/// One reference on the path from a root to an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderLink {
    /// Its kind.
    pub kind: HolderKind,
    /// Class that owns the reference, or the name of the thread.
    pub owner: String,
    /// Name of the field, preceded by the class that declares it, if that is another one (`com.example.Base.held`);
    /// `[x]` for an array, method of a stack frame.
    pub name: String,
    /// Class of the object it refers to.
    pub class: String,
}

/// A path from a root to instances of a class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderPath {
    /// Instances that this path holds.
    pub instances: u64,
    /// From the root on; the last link refers to the instance.
    pub links: Vec<HolderLink>,
}

/// Value of [`Holders::cut`] if the search was complete and found no root.
pub const UNHELD: &str = "no root holds them: they wait for a collection";

/// The holders of the instances of a class that grew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holders {
    /// The [`crate::Boundary::sequence`] they belong to.
    pub boundary: u32,
    /// [`ClassName::id`].
    pub class: u32,
    /// Instances whose holders were searched.
    pub instances: u64,
    /// Paths, most instances first.
    pub paths: Vec<HolderPath>,
    /// Why the search was cut, if it was.
    pub cut: Option<String>,
}

/// The virtual machine ran out of something and throws an `OutOfMemoryError`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JavaExhausted {
    /// The message: `Java heap space`, `Metaspace`, `unable to create native thread`.
    pub what: String,
    /// `JVMTI_RESOURCE_EXHAUSTED_*`: 1 an error is thrown, 2 the heap, 4 threads.
    pub flags: u32,
    /// Currently used heap, and its maximum size.
    pub heap_used: Option<u64>,
    /// See [`Self::heap_used`].
    pub heap_max: Option<u64>,
    /// The classes with most bytes in the heap, uncollected garbage included; empty: not counted.
    pub classes: Vec<ClassCount>,
    /// The sites with most bytes of sampled objects in the heap.
    pub sites: Vec<JavaSite>,
    /// The heap dump that the virtual machine was ordered to write.
    pub dump: Option<String>,
}

/// An allocation of a followed class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectBorn {
    /// Number of the object in this stream, from 1, never used again.
    pub object: u64,
    /// [`ClassName::id`].
    pub class: u32,
    /// [`JavaStackNode::id`] of the innermost frame; 0: not known.
    pub stack: u32,
    /// Its bytes.
    pub bytes: u64,
    /// When, after [`JavaObjects::base_ns`].
    pub after_ns: u64,
}

/// An object of a followed class was collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectFreed {
    /// [`ObjectBorn::object`].
    pub object: u64,
    /// When the virtual machine reported it, after [`JavaObjects::base_ns`]: this is some time after the collection.
    pub after_ns: u64,
}

/// Allocations and ends of objects of followed classes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JavaObjects {
    /// Monotonic nanoseconds that the events count from.
    pub base_ns: u64,
    /// Events since the start of the stream that found no room.
    pub lost: u64,
    /// Allocations.
    pub born: Vec<ObjectBorn>,
    /// Collected objects; an object may be in both lists.
    pub freed: Vec<ObjectFreed>,
}
