//! The start of the agent in a process: it is loaded, and it starts when `main` is entered.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};

use memgate_ffi::calm::SignalsHeld;
use memgate_ffi::lock::Lock;
use memgate_ffi::process::{self, ThreadKey};
use memgate_ffi::{heap, stack};
use memgate_session::recording::{self, TRACKER};
use memgate_session::{self as session, Offers, Silent, Work, platform};
use memgate_tracker::StackLayout;
use memgate_tracker::cfi::FindObject;
#[cfg(not(target_os = "android"))]
use memgate_tracker::sys::find_thread_id;
use memgate_tracker::thread::Inside;
use memgate_wire::options::{Carrier, Options, StackMode, Target, fits};
use memgate_wire::{LogLevel, capability};
#[cfg(not(target_os = "android"))]
use memgate_wire::{hotspot, starts::flag};

use crate::entry;
#[cfg(not(target_os = "android"))]
use crate::native::starts;
use crate::native::{gtest, next};

/// Room that the agent's heap must have before the options are read, and before a stream is opened. Without it nothing
/// is recorded, which the harness reports: a failed allocation of the agent would end the guest.
const LOAD_ROOM: usize = 32 << 10;
const OPEN_ROOM: usize = 256 << 10;

/// Options of a target process, and the nanoseconds that loading took. They are kept from load to start.
static PENDING: Lock<Option<(Options, u64)>> = Lock::new(None);
/// The thread key, plus one; 0: none. Read by hooks, so no lock.
static THREAD_KEY: AtomicU32 = AtomicU32::new(0);

/// The constructor: binds the next allocator and the C library's functions, and decides whether this process is a
/// target.
pub(crate) fn load() {
    next::bind();
    #[cfg(not(target_os = "android"))]
    entry::bind();
    let Some(text) = platform::options_at_load(|| heap::HEAP.has_room(LOAD_ROOM)) else { return };
    let (_work, _held) = (Work::new(), SignalsHeld::new());
    let began_ns = process::thread_cpu_ns();
    let mut options = platform::parse(&text);
    platform::complete(&mut options);
    if options.directory.is_empty() && options.carrier == Carrier::Spool {
        return;
    }
    #[cfg(not(target_os = "android"))]
    if !options.starts.is_empty() {
        starts::note_in(&options.starts, &options.directory);
    }
    if !is_target(&options) {
        #[cfg(not(target_os = "android"))]
        note_java_tests();
        return;
    }
    if session::register() {
        // Created early to get a low number: glibc allocates in every thread for keys beyond the 32nd.
        THREAD_KEY
            .store(ThreadKey::new(thread_ends).map_or(0, |key| key.0.wrapping_add(1)), Ordering::Relaxed);
        *PENDING.lock() = Some((options, process::thread_cpu_ns().saturating_sub(began_ns)));
    }
}

fn is_target(options: &Options) -> bool {
    let arguments = session::arguments();
    let is_child = |a: &String| a == "--gtest_list_tests" || a.starts_with("--gtest_internal_run_death_test");
    if arguments.iter().any(is_child) {
        return false;
    }
    let executable = session::executable();
    options.targets.iter().any(|target| match target {
        Target::All => true,
        Target::Executable(path) => *path == executable,
        Target::Glob(glob) => fits(glob.as_bytes(), executable.as_bytes()),
        Target::GoogleTest => gtest::is_present(&executable, has_shared_gtest()),
    })
}

/// Runs in the wrapped `main`, after the guest's constructors: opens the carrier, says hello, starts recording.
pub(crate) fn start() {
    let Some((options, loading_ns)) = PENDING.lock().take() else { return };
    let began_ns = process::thread_cpu_ns();
    let (_work, held) = (Work::new(), SignalsHeld::new());
    if !heap::HEAP.has_room(OPEN_ROOM) {
        note_silent();
        return;
    }
    let found = Found::prepare(&options);
    let offers = found.offers(&options);
    let (repeats, java) = (session::is_repeating(&options), options.java);
    let (sampling, takes_stacks) = (options.native_sampling, options.stacks != StackMode::Never);
    let cost_ns = || loading_ns.saturating_add(process::thread_cpu_ns().saturating_sub(began_ns));
    if let Err(why) = session::open(options, offers, session::early_bypass(), cost_ns) {
        if repeats && matches!(why, Silent::NoCarrier) {
            drop(held);
            Inside::suspended(|| process::exit(0));
        }
        note_silent();
        return;
    }
    found.tell(java);
    if found.blind.is_none() {
        #[cfg(not(target_os = "android"))]
        find_places(java);
        TRACKER.sample(sampling);
        TRACKER.take_stacks(takes_stacks);
        recording::start();
    }
    TRACKER.begin_epoch();
    drop(held);
    session::process_starts();
}

/// Facts about this process, found before the session begins.
struct Found {
    /// The time-stamp counter may be read.
    counts: bool,
    find_object: Option<FindObject>,
    /// Whether stacks can be compared with those of libgcc's unwinder, if a crosscheck is requested.
    crosschecks: bool,
    /// The reason why native allocations are not seen.
    blind: Option<String>,
    /// The reason why GoogleTest tests are not seen.
    gtest: Result<(), &'static str>,
}

impl Found {
    /// Prepares the tracker for the process, and finds the test framework.
    fn prepare(options: &Options) -> Self {
        // Android apps do not disable the counter.
        let counts = cfg!(target_os = "android") || process::may_read_counter();
        if !counts {
            session::gives_up_counter();
        }
        let layout = StackLayout {
            main_thread: memgate_tracker::sys::thread_pointer(),
            main_top: entry::stack_end(),
            thread_bytes: process::default_thread_stack_bytes(),
        };
        stack::set_main(layout.main_top, layout.thread_bytes);
        let find_object = entry::find_object();
        TRACKER.prepare(layout, find_object, next::is_glibc(), thread_starts);
        Self {
            counts,
            find_object,
            crosschecks: starts_crosscheck(options, find_object),
            blind: self_test(),
            gtest: gtest::install(&session::executable(), has_shared_gtest()),
        }
    }

    fn offers(&self, options: &Options) -> Offers {
        // A Java runtime starts later in this process, and uses the session that begins here.
        let java = options.java;
        let stacks = cfg!(target_os = "android") || self.find_object.is_some();
        Offers {
            native: self.blind.is_none() || !java,
            stacks,
            stacks_later: stacks
                && options.stacks == StackMode::Later
                && self.gtest.is_ok()
                && !java
                && options.native_sampling == 0,
            java,
            framework: self.gtest.is_ok().then_some(capability::GTEST),
            rounds: gtest::hears_of_ends(),
            is_its_own: gtest::is_its_own,
            // If only native allocations cannot be seen, Java's can still be measured.
            blind: self.blind.clone().filter(|_| !java),
        }
    }

    /// Logs what is missing, after the session has begun.
    fn tell(&self, java: bool) {
        if !self.crosschecks {
            session::log(LogLevel::Warn, "libgcc's unwinder was not found: nothing is compared");
        }
        if !self.counts {
            let what = "what recording costs is not known: the time-stamp counter may not be read";
            session::log(LogLevel::Warn, what);
        }
        if let Some(why) = self.blind.as_ref().filter(|_| java) {
            session::log(LogLevel::Warn, &format!("native allocations are not seen: {why}"));
        }
        if let Err(why) = self.gtest {
            session::log(LogLevel::Debug, &format!("no GoogleTest boundaries: {why}"));
        }
    }
}

#[cfg(feature = "crosscheck")]
fn starts_crosscheck(options: &Options, find_object: Option<FindObject>) -> bool {
    options.crosscheck == 0
        || memgate_tracker::crosscheck::start(options.crosscheck, &options.directory, find_object)
}

#[cfg(not(feature = "crosscheck"))]
const fn starts_crosscheck(_: &Options, _: Option<FindObject>) -> bool {
    true
}

/// Finds internal data of the C library, and starts to record the program's mappings.
#[cfg(not(target_os = "android"))]
fn find_places(java: bool) {
    if let Some(at) = process::thread_id_place() {
        find_thread_id(at, process::thread_id_by_futex());
    }
    entry::find_table_place();
    // A virtual machine uses the same calls all the time for mappings of its own.
    if !java {
        session::mappings::starts(start as fn() as usize, next::allocator());
    }
}

/// Records that this is a virtual machine that runs JUnit tests under a command for native tests: its tests are not
/// measured.
#[cfg(not(target_os = "android"))]
fn note_java_tests() {
    let executable = session::executable();
    if let Some(worker) = hotspot::worker(&executable, &session::arguments()) {
        starts::note_itself(flag::JUNIT, &executable, Some(worker));
    }
}

/// Records that the process should be recorded and is not. It has no stream that could report this to the harness.
fn note_silent() {
    #[cfg(not(target_os = "android"))]
    starts::note_itself(flag::SILENT, &session::executable(), None);
}

/// Allocates once with recording on, like the guest would.
fn self_test() -> Option<String> {
    recording::start();
    let blind = Inside::suspended(entry::blind);
    recording::stop();
    blind
}

fn thread_key() -> Option<ThreadKey> {
    THREAD_KEY.load(Ordering::Relaxed).checked_sub(1).map(ThreadKey)
}

fn thread_starts() {
    if let Some(key) = thread_key() {
        key.set(1);
    }
}

/// Destructor of the thread key: the first round only requests a second one, because other destructors may still
/// allocate.
extern "C" fn thread_ends(round: *mut c_void) {
    let round = round.addr();
    match thread_key() {
        Some(key) if round < 2 => key.set(round.wrapping_add(1)),
        _ => {
            #[cfg(not(target_os = "android"))]
            memgate_session::handles::thread_ends();
            TRACKER.thread_ends();
        }
    }
}

fn has_shared_gtest() -> bool {
    let [.., instance] = entry::weak();
    instance != 0
}
