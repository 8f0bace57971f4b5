//! Exact, blocking boundaries in an unmodified GoogleTest binary.
//!
//! Found by symbol, in the executable's own table or in a shared libgtest: `UnitTest::GetInstance`,
//! `UnitTest::listeners`, `TestEventListeners::Append`, and the vtable of the standard printer with the wanted
//! callbacks. The vtable is copied. The slots of those callbacks (found by content, because slot numbers differ between
//! versions) lead here; all others do nothing. One object is appended before `main`. When the first iteration begins,
//! it appends another one, behind the listeners that `main` has appended. The last listener is the last one called at a
//! start and the first one called at an end. What listeners between the two keep about a test belongs to no test, and
//! to no set-up or tear-down of suites and environments: those lie between callbacks, and `memgate_session` handles
//! them.
#![expect(unsafe_code, reason = "calls C++ functions found by name and stands in for a C++ object")]

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use std::ffi::CString;

use memgate_ffi::elf::find_symbols;
use memgate_ffi::{modules, process};
use memgate_session::recording::TRACKER;
use memgate_session::{self as session, Around};
use memgate_wire::Outcome;

const NAMES: [&str; 27] = [
    "_ZN7testing8UnitTest11GetInstanceEv",
    "_ZN7testing8UnitTest9listenersEv",
    "_ZN7testing18TestEventListeners6AppendEPNS_17TestEventListenerE",
    "_ZTVN7testing8internal27PrettyUnitTestResultPrinterE",
    "_ZN7testing8internal27PrettyUnitTestResultPrinter11OnTestStartERKNS_8TestInfoE",
    "_ZN7testing8internal27PrettyUnitTestResultPrinter9OnTestEndERKNS_8TestInfoE",
    "_ZN7testing8internal27PrettyUnitTestResultPrinter20OnTestIterationStartERKNS_8UnitTestEi",
    "_ZN7testing8internal27PrettyUnitTestResultPrinter16OnTestPartResultERKNS_14TestPartResultE",
    "_ZN7testing8internal27PrettyUnitTestResultPrinter24OnEnvironmentsSetUpStartERKNS_8UnitTestE",
    "_ZN7testing8internal27PrettyUnitTestResultPrinter22OnEnvironmentsSetUpEndERKNS_8UnitTestE",
    "_ZN7testing8internal27PrettyUnitTestResultPrinter27OnEnvironmentsTearDownStartERKNS_8UnitTestE",
    "_ZN7testing8internal27PrettyUnitTestResultPrinter18OnTestIterationEndERKNS_8UnitTestEi",
    // The name in 1.8, in later versions, and in later versions without their legacy names.
    "_ZN7testing8internal27PrettyUnitTestResultPrinter15OnTestCaseStartERKNS_8TestCaseE",
    "_ZN7testing8internal27PrettyUnitTestResultPrinter15OnTestCaseStartERKNS_9TestSuiteE",
    "_ZN7testing8internal27PrettyUnitTestResultPrinter16OnTestSuiteStartERKNS_9TestSuiteE",
    "_ZN7testing8internal27PrettyUnitTestResultPrinter13OnTestCaseEndERKNS_8TestCaseE",
    "_ZN7testing8internal27PrettyUnitTestResultPrinter13OnTestCaseEndERKNS_9TestSuiteE",
    "_ZN7testing8internal27PrettyUnitTestResultPrinter14OnTestSuiteEndERKNS_9TestSuiteE",
    // Functions in which GoogleTest makes an object for itself, once, while it sets up a suite. Compilers may inline
    // the last function into the others, or into parts of them.
    "_ZN7testing9TestSuite3RunEv",
    "_ZN7testing9TestSuite3RunEv.part.0",
    "_ZN7testing8TestCase3RunEv",
    "_ZN7testing8TestCase3RunEv.part.0",
    "_ZN7testing8internal12UnitTestImpl21os_stack_trace_getterEv",
    // The result of the running test. The last one exists since tests can be skipped (1.10).
    "_ZN7testing4Test15HasFatalFailureEv",
    "_ZN7testing4Test18HasNonfatalFailureEv",
    "_ZN7testing4Test9IsSkippedEv",
    // The name in every version, if strings are those of libstdc++ before C++11.
    "_ZN7testing8UnitTest17AddTestPartResultENS_14TestPartResult4TypeEPKciRKSsS6_",
];
const CALLBACKS: core::ops::Range<usize> = 4..OWN.start;
/// Number of callbacks about tests, which come first. Without them nothing is known.
const TESTS: usize = 4;
/// The functions in which GoogleTest makes its own object.
const OWN: core::ops::Range<usize> = 18..RESULT;
/// The first of the three functions that give a test's result.
const RESULT: usize = 23;
/// Shows the layout of strings.
const OLD_STRINGS: usize = 26;
/// One of these two exists in versions in which tests can be skipped.
const OF_TEST_SUITE: [usize; 2] = [13, 14];
/// For a library, it is unknown how long its functions are, and whether a part of a function lies before it. Addresses
/// this near to a function also belong to GoogleTest.
const NEAR: usize = 1280;
/// `operator new` is some fifty bytes long.
const NEW_BYTES: usize = 96;

const MOST_SLOTS: usize = 64;
/// Offset to top, type information, and the two destructors.
const HEAD_SLOTS: usize = 4;

type Pointer = *const c_void;

struct Found {
    address: [usize; NAMES.len()],
    /// 0: not known.
    bytes: [usize; NAMES.len()],
}

impl Found {
    /// Address ranges of the functions in which GoogleTest makes an object for itself.
    fn own_places(&self) -> [(usize, usize); OWN.end - OWN.start] {
        let mut places = [(0, 0); OWN.end - OWN.start];
        let found = self.address.iter().zip(self.bytes).skip(OWN.start);
        for (place, (&at, bytes)) in places.iter_mut().zip(found).filter(|(_, (at, _))| **at != 0) {
            *place = if bytes > 0 {
                (at, at.saturating_add(bytes))
            } else {
                (at.saturating_sub(NEAR), at.saturating_add(NEAR))
            };
        }
        places
    }
}

/// Is GoogleTest in this process? `is_shared`: as a shared library.
pub(crate) fn is_present(executable: &str, is_shared: bool) -> bool {
    find(executable, is_shared).address.iter().take(3).all(|&a| a != 0)
}

fn find(executable: &str, is_shared: bool) -> Found {
    let mut found = Found { address: [0; NAMES.len()], bytes: [0; NAMES.len()] };
    let shared = |name: &str| CString::new(name).map_or(0, |n| process::symbol(&n));
    if is_shared {
        for (address, name) in found.address.iter_mut().zip(NAMES) {
            *address = shared(name);
        }
        return found;
    }
    // System programs have no symbol table, so this ends after a look at their section headers.
    let Ok(symbols) = find_symbols(executable, &NAMES) else { return found };
    if symbols.iter().all(Option::is_none) {
        return found;
    }
    let bias = modules::loaded().0.iter().find(|m| m.path.is_empty()).map_or(0, |m| m.bias);
    for ((address, bytes), symbol) in found.address.iter_mut().zip(&mut found.bytes).zip(symbols) {
        if let Some(symbol) = symbol {
            *address = usize::try_from(bias.wrapping_add(symbol.address)).unwrap_or(0);
            *bytes = usize::try_from(symbol.size).unwrap_or(0);
        }
    }
    found
}

/// Stands in for a C++ object.
#[repr(C)]
struct Object {
    vtable: *const Pointer,
    /// Room for members a later base class may have.
    members: [usize; 8],
    table: [Pointer; MOST_SLOTS],
}

impl Object {
    const EMPTY: Self =
        Self { vtable: core::ptr::null(), members: [0; 8], table: [core::ptr::null(); MOST_SLOTS] };

    /// The object is valid from now on. It must not move.
    fn complete(&mut self) -> Pointer {
        self.vtable = self.table.as_ptr().wrapping_add(2);
        core::ptr::from_ref(self).cast()
    }
}

#[repr(C)]
struct Listener {
    object: Object,
    /// Address ranges: `operator new`, and the functions in which GoogleTest makes its own object.
    new: (usize, usize),
    own: [(usize, usize); OWN.end - OWN.start],
    /// The functions for: did the test fail fatally, did it fail non-fatally, was it skipped? 0: not available.
    result: [usize; OLD_STRINGS - RESULT],
    /// Are strings those of libstdc++ before C++11?
    old_strings: bool,
}

struct Slot(UnsafeCell<Listener>);
// SAFETY: written once, before GoogleTest knows the listener; only read afterwards.
unsafe impl Sync for Slot {}

static LISTENER: Slot = Slot(UnsafeCell::new(Listener {
    object: Object::EMPTY,
    new: (0, 0),
    own: [(0, 0); OWN.end - OWN.start],
    result: [0; OLD_STRINGS - RESULT],
    old_strings: false,
}));

type Append = extern "C" fn(Pointer, Pointer);

/// The object that is appended before `main`.
#[repr(C)]
struct First {
    object: Object,
    /// How to append [`LISTENER`] to which list. `None`: done.
    append: Option<(Append, Pointer)>,
}

struct FirstSlot(UnsafeCell<First>);
// SAFETY: written before GoogleTest knows it, afterwards only by the thread that runs the tests.
unsafe impl Sync for FirstSlot {}

static FIRST: FirstSlot = FirstSlot(UnsafeCell::new(First { object: Object::EMPTY, append: None }));

/// Appends the listener, or what appends it when the tests begin.
///
/// # Errors
/// The reason why that is not possible. The program then runs without test boundaries.
pub(crate) fn install(executable: &str, is_shared: bool) -> Result<(), &'static str> {
    let found = find(executable, is_shared);
    let [instance, listeners, append, vtable, start, end, ..] = found.address;
    if instance == 0 || listeners == 0 || append == 0 {
        return Err("GoogleTest was not found in this process");
    }
    if vtable == 0 || start == 0 || end == 0 {
        return Err("GoogleTest is linked in a way that hides its stock listener");
    }
    let [_, _, _, vtable_bytes, ..] = found.bytes;
    let slots = match vtable_bytes / 8 {
        0 => HEAD_SLOTS + 16,
        n => n.min(MOST_SLOTS),
    };
    // SAFETY: the vtable has `slots` entries: its symbol gives that size, or every version has at least these.
    let theirs = unsafe { core::slice::from_raw_parts(vtable as *const usize, slots) };
    // SAFETY: see `Slot`; this runs once, before `main`.
    let listener = unsafe { &mut *LISTENER.0.get() };
    fill(&mut listener.object.table, theirs, &found)?;
    let new = process::symbol(c"_Znwm");
    listener.new = (new, new.saturating_add(NEW_BYTES));
    listener.own = found.own_places();
    listener.result = result_functions(&found.address);
    listener.old_strings = found.address.get(OLD_STRINGS).is_some_and(|&at| at != 0);
    let mut object = listener.object.complete();
    // SAFETY: `static UnitTest* UnitTest::GetInstance()`, after the static constructors have run.
    let unit = unsafe { core::mem::transmute::<usize, extern "C" fn() -> Pointer>(instance) }();
    // SAFETY: `TestEventListeners& UnitTest::listeners()`.
    let list = unsafe { core::mem::transmute::<usize, extern "C" fn(Pointer) -> Pointer>(listeners) }(unit);
    // SAFETY: `void TestEventListeners::Append(TestEventListener*)`; the object lives as long as
    // the process.
    let append = unsafe { core::mem::transmute::<usize, Append>(append) };
    // SAFETY: see `FirstSlot`; this runs once, before `main`.
    let first = unsafe { &mut *FIRST.0.get() };
    if fill_first(&mut first.object.table, &listener.object.table) {
        first.append = Some((append, list));
        object = first.object.complete();
    }
    append(list, object);
    Ok(())
}

/// Copies the vtable `theirs`: the wanted callbacks lead here, all others do nothing.
///
/// # Errors
/// Too few of the test callbacks are in it.
fn fill(table: &mut [Pointer; MOST_SLOTS], theirs: &[usize], found: &Found) -> Result<(), &'static str> {
    let ours: [Pointer; CALLBACKS.end - CALLBACKS.start] = [
        on_test_start as Pointer,
        on_test_end as Pointer,
        on_iteration as Pointer,
        on_part_result as Pointer,
        on_environments_set_up as Pointer,
        on_environments_are_set_up as Pointer,
        on_environments_tear_down as Pointer,
        on_iteration_end as Pointer,
        on_suite_start as Pointer,
        on_suite_start as Pointer,
        on_suite_start as Pointer,
        on_suite_end as Pointer,
        on_suite_end as Pointer,
        on_suite_end as Pointer,
    ];
    let mut hits = 0_usize;
    for (i, (slot, &original)) in table.iter_mut().zip(theirs).enumerate() {
        *slot = if i < 2 { original as Pointer } else { nothing as Pointer };
        let is_it = |theirs: &usize| *theirs == original && original != 0;
        let known = found.address.get(CALLBACKS).and_then(|theirs| theirs.iter().position(is_it));
        // A linker may fold callbacks that do nothing into one: such a slot cannot be identified.
        let is_alone = || theirs.iter().filter(|&&other| other == original).count() == 1;
        let known = known.filter(|_| is_alone()).and_then(|i| Some((i, ours.get(i)?)));
        if let Some((i, ours)) = known {
            *slot = *ours;
            hits = hits.saturating_add(usize::from(i < TESTS));
        }
    }
    for slot in table.iter_mut().skip(theirs.len()) {
        *slot = nothing as Pointer;
    }
    // Two slots have no unique symbol: the functions do nothing, and a linker may fold them. In every version that has
    // them, the end of a suite lies between the end of a test and the end of a suite under its older name, and the end
    // of the tear-down between its start and the iteration's end.
    let between = [
        (on_test_end as Pointer, on_suite_end as Pointer, on_suite_end as Pointer),
        (
            on_environments_tear_down as Pointer,
            on_environments_are_torn_down as Pointer,
            on_iteration_end as Pointer,
        ),
    ];
    for (before, ours, after) in between {
        let is_it =
            |slots: &[Pointer]| matches!(slots, [first, _, last] if (*first, *last) == (before, after));
        let first = table.windows(3).position(is_it);
        if let Some(slot) = first.and_then(|at| table.get_mut(at.saturating_add(1))) {
            *slot = ours;
        }
    }
    if hits < 3 {
        return Err("GoogleTest's stock listener looks different from every known version");
    }
    Ok(())
}

/// Fills the vtable of the first object after that of the last one. Does it receive the start of an iteration?
fn fill_first(table: &mut [Pointer; MOST_SLOTS], last: &[Pointer; MOST_SLOTS]) -> bool {
    for (i, (slot, &of_last)) in table.iter_mut().zip(last).enumerate() {
        *slot = match of_last {
            head if i < 2 => head,
            of_last if of_last == on_iteration as Pointer => append_last as Pointer,
            of_last if of_last == on_test_start as Pointer => on_announced_test as Pointer,
            of_last if of_last == on_test_end as Pointer => on_reported_test as Pointer,
            _ => nothing as Pointer,
        };
    }
    table.contains(&(append_last as Pointer))
}

/// All result functions of the version, or none: a linker drops functions that the program does not call.
fn result_functions(address: &[usize; NAMES.len()]) -> [usize; 3] {
    let [.., fatal, nonfatal, skipped, _] = *address;
    let can_skip = OF_TEST_SUITE.iter().any(|&i| address.get(i).is_some_and(|&at| at != 0));
    if fatal == 0 || nonfatal == 0 || skipped == 0 && can_skip { [0; 3] } else { [fatal, nonfatal, skipped] }
}

/// GoogleTest's result of the test that ends. `None`: not available, so the reported results of its parts count. The
/// test may have withdrawn some of those.
fn result() -> Option<Outcome> {
    // SAFETY: written before `main`, only read afterwards.
    let [fatal, nonfatal, skipped] = unsafe { (*LISTENER.0.get()).result };
    // SAFETY: `static bool Test::…()`, about the running test: a test counts as running until its listeners have
    // received its end.
    let ask = |function| unsafe { core::mem::transmute::<usize, extern "C" fn() -> bool>(function) }();
    match () {
        () if fatal == 0 => None,
        () if ask(fatal) || ask(nonfatal) => Some(Outcome::Failed),
        () if skipped != 0 && ask(skipped) => Some(Outcome::Skipped),
        () => Some(Outcome::Passed),
    }
}

/// Is this the stack of an object that GoogleTest made for itself?
pub(crate) fn is_its_own(stack: u32) -> bool {
    // SAFETY: written before `main`, only read afterwards.
    let Listener { new, own, .. } = unsafe { &*LISTENER.0.get() };
    let is_in = |pc: u64, (from, to): &(usize, usize)| (*from as u64..*to as u64).contains(&pc);
    let Some(called) = TRACKER.stack_node(stack).filter(|node| is_in(node.pc, new)) else { return false };
    TRACKER.stack_node(called.parent).is_some_and(|node| own.iter().any(|place| is_in(node.pc, place)))
}

/// Does the agent listen to GoogleTest in this process?
pub(crate) fn is_installed() -> bool {
    // SAFETY: written before `main`, only read afterwards.
    !unsafe { (*LISTENER.0.get()).object.vtable }.is_null()
}

/// Does the agent receive the end of each iteration?
pub(crate) fn hears_of_ends() -> bool {
    // SAFETY: written before `main`, only read afterwards.
    is_installed() && unsafe { (*LISTENER.0.get()).object.table }.contains(&(on_iteration_end as Pointer))
}

extern "C" fn nothing() {}

extern "C" fn on_test_start(_: Pointer, info: Pointer) {
    session::test_begins(|| names(info));
}

extern "C" fn on_test_end(_: Pointer, info: Pointer) {
    session::test_ends(|| names(info), result());
}

extern "C" fn on_suite_start() {
    session::set_up_begins(Around::Suite);
}

extern "C" fn on_suite_end() {
    session::tear_down_ends(Around::Suite);
}

extern "C" fn on_environments_set_up() {
    session::set_up_begins(Around::Environments);
}

extern "C" fn on_environments_are_set_up() {
    session::set_up_ends(Around::Environments);
}

extern "C" fn on_environments_tear_down() {
    session::iteration_is_over();
    session::tear_down_begins(Around::Environments);
}

/// Called before the iteration's end, at which GoogleTest writes its XML file and reads the time zone.
extern "C" fn on_environments_are_torn_down() {
    session::tear_down_ends(Around::Environments);
}

extern "C" fn on_iteration_end() {
    session::iteration_is_over();
    session::tear_down_ends(Around::Environments);
}

extern "C" fn on_iteration(_: Pointer, _: Pointer, iteration: c_int) {
    session::iteration_begins(u32::try_from(iteration).unwrap_or(0));
}

/// GoogleTest calls its listeners by index, so the appended one receives this start, too.
extern "C" fn append_last() {
    // SAFETY: see `FirstSlot`.
    if let Some((append, list)) = unsafe { (*FIRST.0.get()).append.take() } {
        append(list, LISTENER.0.get().cast());
    }
}

/// Called before all listeners that `main` appended.
extern "C" fn on_announced_test() {
    session::set_up_is_over();
}

/// Called after all listeners that `main` appended.
extern "C" fn on_reported_test() {
    session::test_is_reported(result() == Some(Outcome::Failed));
}

/// `TestPartResult` begins with its type: success, non-fatal failure, fatal failure, skip.
extern "C" fn on_part_result(_: Pointer, result: Pointer) {
    // SAFETY: the reference GoogleTest passes; the type is its first member in every version.
    match unsafe { result.cast::<c_int>().read() } {
        1 | 2 => session::note_outcome(Outcome::Failed),
        3 => session::note_outcome(Outcome::Skipped),
        _ => {}
    }
}

/// `TestInfo` begins with two `const std::string`: suite name and test name.
fn names(info: Pointer) -> Option<(String, String)> {
    // SAFETY: written before `main`, only read afterwards.
    if unsafe { (*LISTENER.0.get()).old_strings } {
        // SAFETY: the reference GoogleTest passes.
        let suite = unsafe { old_libstdcxx_string(info) }?;
        // SAFETY: as above; the second string follows the first, which is one pointer.
        return Some((suite, unsafe { old_libstdcxx_string(info.wrapping_byte_add(8)) }?));
    }
    // SAFETY: the reference GoogleTest passes.
    if let Some(suite) = unsafe { libstdcxx_string(info) } {
        // SAFETY: the second string follows the first, which takes 32 bytes.
        return Some((suite, unsafe { libstdcxx_string(info.wrapping_byte_add(32)) }?));
    }
    // SAFETY: as above.
    let suite = unsafe { libcxx_string(info) }?;
    // SAFETY: as above, with libc++'s 24 bytes.
    Some((suite, unsafe { libcxx_string(info.wrapping_byte_add(24)) }?))
}

/// libstdc++: {char* data; size_t length; union {char local[16]; size_t capacity}}.
unsafe fn libstdcxx_string(at: Pointer) -> Option<String> {
    // SAFETY: the caller passes the address of a string object, which has at least three words in
    // either library.
    let [data, length, _] = unsafe { at.cast::<[usize; 3]>().read() };
    let local = data == (at as usize).saturating_add(16);
    // A libc++ string has no pointer here: a short one begins with its length and text, a long one
    // with its capacity | 1.
    if !local && (data & 1 != 0 || data < 1 << 16 || data >> 47 != 0 || length < 16)
        || local && length > 15
        || length > 1 << 16
    {
        return None;
    }
    // SAFETY: `data` points at `length` bytes.
    Some(
        String::from_utf8_lossy(unsafe { core::slice::from_raw_parts(data as *const u8, length) })
            .into_owned(),
    )
}

/// libstdc++ before C++11: {char* data}, after {size_t length; size_t capacity; int references}.
unsafe fn old_libstdcxx_string(at: Pointer) -> Option<String> {
    // SAFETY: the caller passes the address of a string object.
    let data = unsafe { at.cast::<usize>().read() };
    // SAFETY: the text of such a string has its length three words before it.
    let length = unsafe { (data.wrapping_sub(24) as *const usize).read() };
    if length > 1 << 16 {
        return None;
    }
    // SAFETY: `data` points at `length` bytes.
    Some(
        String::from_utf8_lossy(unsafe { core::slice::from_raw_parts(data as *const u8, length) })
            .into_owned(),
    )
}

/// libc++: short {length << 1; char text[23]} or long {capacity | 1; size_t length; char* data}.
unsafe fn libcxx_string(at: Pointer) -> Option<String> {
    // SAFETY: the caller passes the address of a string object.
    let first = unsafe { at.cast::<u8>().read() };
    let (data, length) = if first & 1 == 0 {
        ((at as usize).saturating_add(1), usize::from(first >> 1))
    } else {
        // SAFETY: a long string has three words.
        let [_, length, data] = unsafe { at.cast::<[usize; 3]>().read() };
        (data, length)
    };
    if length > 1 << 16 || data < 1 << 16 {
        return None;
    }
    // SAFETY: `data` points at `length` bytes.
    Some(
        String::from_utf8_lossy(unsafe { core::slice::from_raw_parts(data as *const u8, length) })
            .into_owned(),
    )
}
