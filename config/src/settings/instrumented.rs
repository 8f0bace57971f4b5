//! Suites of instrumented tests, which run on a device.

use std::path::PathBuf;
use std::time::Duration;

use crate::read::{At, Named, Reader, choice};
use crate::settings::heap::SuiteHeap;
use crate::source::Place;
use crate::value::text::{Argument, Words};

/// The keys that only suites of instrumented tests have, as read from the file.
pub(crate) struct OnDevice {
    pub(crate) package: Option<At<Words>>,
    pub(crate) instrumentation: Option<At<Words>>,
    pub(crate) devices: Option<At<Words>>,
    pub(crate) apks: Option<At<Vec<At<Words>>>>,
    pub(crate) arguments: Option<At<Named<Argument>>>,
    pub(crate) agent: Option<At<AgentFrom>>,
    pub(crate) heap_dump: Option<At<DumpOf>>,
    pub(crate) execution: Option<At<Execution>>,
}

choice! {
    /// Which tests get a heap dump.
    pub(crate) enum DumpOf ("a test of which a heap dump is kept") {
        /// None.
        Never = "never",
        /// Each test that leaked when it was repeated.
        Leak = "leak",
        /// The same tests; their dumps lack the contents of arrays of primitives.
        Trimmed = "trimmed",
    }
}

choice! {
    /// Which tests share a process.
    pub(crate) enum Execution ("a way to execute tests") {
        /// All of them.
        Host = "host",
        /// None: each test has its own process, as with Android's Test Orchestrator.
        Orchestrator = "orchestrator",
    }
}

choice! {
    /// How the agent gets into the app.
    pub(crate) enum AgentFrom ("a way of the agent into the app") {
        /// memgate delivers it.
        Delivered = "delivered",
        /// The test APK contains it.
        Packaged = "packaged",
    }
}

/// The devices of a suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Devices {
    /// The only device, or the one in `ANDROID_SERIAL`.
    Only,
    /// The device with this serial.
    Serial(String),
    /// Every device that is ready.
    All,
}

/// A suite that runs on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instrumented {
    /// Its name.
    pub name: String,
    /// The package of the tests.
    pub package: String,
    /// Class of the runner, if the package has several.
    pub instrumentation: Option<String>,
    /// Where it runs.
    pub devices: Devices,
    /// APKs to install first.
    pub apks: Vec<PathBuf>,
    /// Arguments of the runner, in the order of the file.
    pub arguments: Vec<(String, String)>,
    /// Does the test APK contain the agent?
    pub packaged: bool,
    /// Does the session keep a heap dump of each test that leaks?
    pub heap_dumps: bool,
    /// Do these dumps lack the contents of arrays of primitives?
    pub trimmed_dumps: bool,
    /// Heap dump of the suite.
    pub heap: Option<SuiteHeap>,
    /// Does each test have its own process?
    pub process_per_test: bool,
    /// Longest time of one test, if it differs from `measure.timeout`.
    pub timeout: Option<Duration>,
    /// Mapping files of R8 or ProGuard, and folders with such files.
    pub mapping: Vec<PathBuf>,
    /// Folders and APKs with symbols of native libraries.
    pub symbols: Vec<PathBuf>,
    /// Position in the configuration.
    pub place: Place,
}

impl Instrumented {
    /// Checks the suite. `None`: it has mistakes.
    pub(crate) fn check(
        name: &At<String>,
        file: OnDevice,
        (timeout, heap): (Option<Duration>, Option<SuiteHeap>),
        (mapping, symbols): (Vec<PathBuf>, Vec<PathBuf>),
        reader: &mut Reader<'_>,
    ) -> Option<Self> {
        let OnDevice { package, instrumentation, devices, apks, arguments, agent, heap_dump, execution } =
            file;
        let execution = execution.map_or(Execution::Host, |how| how.value);
        if let Some(heap) = &heap {
            heap.fits_device(execution == Execution::Orchestrator, reader);
        }
        let arguments = check_arguments(arguments, reader);
        let Some(At { value: Words(package), .. }) = package else {
            reader
                .error(&name.span, format!("the suite `{}` has no `package`", name.value))
                .label("which tests?")
                .hint(Some("add the package of the test APK: `package: com.example.test`; `adb shell pm list instrumentation` names it"));
            return None;
        };
        let devices = match devices.map(|devices| devices.value.0) {
            None => Devices::Only,
            Some(all) if all == "all" => Devices::All,
            Some(serial) => Devices::Serial(serial),
        };
        Some(Self {
            name: name.value.clone(),
            package,
            instrumentation: instrumentation.map(|class| class.value.0),
            devices,
            apks: apks
                .map(|apks| apks.value)
                .unwrap_or_default()
                .into_iter()
                .map(|apk| PathBuf::from(apk.value.0))
                .collect(),
            arguments,
            trimmed_dumps: heap_dump.as_ref().is_some_and(|when| when.value == DumpOf::Trimmed),
            heap_dumps: heap_dump.is_some_and(|when| when.value != DumpOf::Never),
            process_per_test: execution == Execution::Orchestrator,
            heap,
            packaged: agent.is_some_and(|agent| agent.value == AgentFrom::Packaged),
            timeout,
            mapping,
            symbols,
            place: reader.place(&name.span),
        })
    }

    /// Refuses these keys for suites with another runner.
    pub(crate) fn refuse(file: OnDevice, reader: &mut Reader<'_>) {
        let OnDevice { package, instrumentation, devices, apks, arguments, agent, heap_dump, execution } =
            file;
        let given = [
            ("package", package.map(|given| given.span)),
            ("instrumentation", instrumentation.map(|given| given.span)),
            ("devices", devices.map(|given| given.span)),
            ("apks", apks.map(|given| given.span)),
            ("arguments", arguments.map(|given| given.span)),
            ("agent", agent.map(|given| given.span)),
            ("heap_dump", heap_dump.map(|given| given.span)),
            ("execution", execution.map(|given| given.span)),
        ];
        for (key, span) in given {
            if let Some(span) = span {
                reader
                    .error(&span, format!("`{key}` is for the runner `instrumentation`"))
                    .label("has no meaning here")
                    .hint(Some("remove it, or add `runner: instrumentation`"));
            }
        }
    }
}

/// Refuses arguments that memgate sets itself, and names that are not valid.
fn check_arguments(arguments: Option<At<Named<Argument>>>, reader: &mut Reader<'_>) -> Vec<(String, String)> {
    const OURS: [&str; 2] = ["log", "debug"];
    let mut checked = Vec::new();
    for (name, Argument(value)) in arguments.map(|given| given.value.0).unwrap_or_default() {
        let odd = name.value.is_empty() || name.value.contains(|c: char| c.is_whitespace() || c.is_control());
        if odd || OURS.contains(&name.value.as_str()) {
            let why = if odd { "not a name" } else { "memgate lists the tests itself" };
            reader
                .error(
                    &name.span,
                    format!("`{}` cannot be an argument of the runner", name.value.escape_debug()),
                )
                .label(why);
        }
        checked.push((name.value, value));
    }
    checked
}
