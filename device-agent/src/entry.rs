//! Everything this library exports. One guarded call each; what they do stands elsewhere.
//!
//! The allocation functions are naked trampolines: in a process that is not tracked they are one comparison and one jump to the next
//! allocator; in a tracked one they pass the caller's stack and frame pointer on to the hook of the same name.
#![expect(unsafe_code, reason = "exports and trampolines: the border to C")]
#![expect(unreachable_pub, reason = "exported to C, not to Rust")]

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use memgate_ffi::process;
use memgate_tracker::cfi::FindObject;
use memgate_tracker::thread::Inside;
use memgate_wire::{GoodbyeReason, Outcome};

use crate::native::{hooks, leak_info, next};
use crate::session;

type Pointer = *mut c_void;

/// `$sp` and `$rbp`: the argument registers behind the function's own arguments.
macro_rules! trampoline {
    ($name:ident, $slot:ident, $sp:literal, $rbp:literal) => {
        #[doc = concat!("C's `", stringify!($name), "`.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                "cmp dword ptr [rip + {mode}], 0",
                "je 2f",
                concat!("mov ", $sp, ", rsp"),
                concat!("mov ", $rbp, ", rbp"),
                "jmp {hook}",
                "2:",
                "jmp qword ptr [rip + {next}]",
                mode = sym hooks::MODE,
                hook = sym hooks::$name,
                next = sym next::$slot,
            )
        }
    };
}

trampoline!(malloc, MALLOC, "rsi", "rdx");
trampoline!(calloc, CALLOC, "rdx", "rcx");
trampoline!(realloc, REALLOC, "rdx", "rcx");
trampoline!(memalign, MEMALIGN, "rdx", "rcx");
trampoline!(aligned_alloc, ALIGNED_ALLOC, "rdx", "rcx");
trampoline!(posix_memalign, POSIX_MEMALIGN, "rcx", "r8");
trampoline!(valloc, VALLOC, "rsi", "rdx");
trampoline!(pvalloc, PVALLOC, "rsi", "rdx");

/// C's `reallocarray`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray() {
    naked_asm!(
        "cmp dword ptr [rip + {mode}], 0",
        "je {plain}",
        "mov rcx, rsp",
        "mov r8, rbp",
        "jmp {hook}",
        mode = sym hooks::MODE,
        hook = sym hooks::reallocarray,
        plain = sym hooks::plain_reallocarray,
    )
}

/// The four spellings of `free`; a null pointer is none of our business.
macro_rules! free_trampoline {
    ($($name:ident)*) => { $(
        #[doc = concat!("C's `", stringify!($name), "`.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                "cmp dword ptr [rip + {mode}], 0",
                "je 2f",
                "test rdi, rdi",
                "jne {hook}",
                "2:",
                "jmp qword ptr [rip + {next}]",
                mode = sym hooks::MODE,
                hook = sym hooks::free,
                next = sym next::FREE,
            )
        }
    )* };
}

free_trampoline!(free cfree free_sized free_aligned_sized);

/// C's `malloc_usable_size`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size() {
    naked_asm!("jmp qword ptr [rip + {next}]", next = sym next::USABLE_SIZE)
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    session::load();
}

type Main = unsafe extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;
type StartMain =
    unsafe extern "C" fn(Main, c_int, *mut *mut c_char, Pointer, Pointer, Pointer, Pointer) -> c_int;

static GUEST_MAIN: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// The C library's entry: `main` is wrapped, because only then have the guest's constructors run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __libc_start_main(
    main: Main,
    count: c_int,
    arguments: *mut *mut c_char,
    init: Pointer,
    fini: Pointer,
    rtld_fini: Pointer,
    stack_end: Pointer,
) -> c_int {
    GUEST_MAIN.store(main as Pointer, Ordering::Relaxed);
    let real = next_of(&START_MAIN, c"__libc_start_main");
    // SAFETY: the C library's own function; all arguments are passed on.
    let real = unsafe { core::mem::transmute::<Pointer, StartMain>(real) };
    // SAFETY: as above.
    unsafe { real(wrapped_main, count, arguments, init, fini, rtld_fini, stack_end) }
}

unsafe extern "C" fn wrapped_main(
    count: c_int,
    arguments: *mut *mut c_char,
    environment: *mut *mut c_char,
) -> c_int {
    session::start();
    // SAFETY: stored by `__libc_start_main` from an argument of this type.
    let main = unsafe { core::mem::transmute::<Pointer, Main>(GUEST_MAIN.load(Ordering::Relaxed)) };
    // SAFETY: the C library's arguments.
    unsafe { main(count, arguments, environment) }
}

static START_MAIN: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static DLCLOSE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static EXIT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static QUICK_EXIT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

fn next_of(slot: &AtomicPtr<c_void>, name: &CStr) -> Pointer {
    let known = slot.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let found = process::symbol(name, true) as Pointer;
    slot.store(found, Ordering::Relaxed);
    found
}

/// C's `dlclose`: what is unloaded may be followed by something else at the same addresses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: Pointer) -> c_int {
    let real = next_of(&DLCLOSE, c"dlclose");
    // SAFETY: the loader's own function.
    let real = unsafe { core::mem::transmute::<Pointer, unsafe extern "C" fn(Pointer) -> c_int>(real) };
    let tracked = hooks::MODE.load(Ordering::Relaxed) == hooks::TRACKING && !Inside::now();
    let before = if tracked { session::module_unloads() } else { None };
    // SAFETY: the caller's handle.
    let status = unsafe { real(handle) };
    if let Some(before) = before {
        session::module_unloaded(before);
    }
    status
}

static DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static DLMOPEN: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// `RTLD_DEEPBIND` of glibc and of musl, which ignores it.
const DEEPBIND: c_int = 8;

/// C's `dlopen`. A jump leaves the caller's return address where the loader looks for it: it searches the caller's run path and
/// name space. With RTLD_DEEPBIND a library looks for `malloc` in the C library before it looks here.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen() {
    naked_asm!(
        "test esi, {deepbind}",
        "je 2f",
        "push rdi",
        "push rsi",
        "push rdx",
        "xor esi, esi",
        "call {note}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "2:",
        "mov rax, qword ptr [rip + {slot}]",
        "test rax, rax",
        "jne 3f",
        "push rdi",
        "push rsi",
        "push rdx",
        "call {find}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "3:",
        "jmp rax",
        deepbind = const DEEPBIND,
        note = sym bypassing_library,
        slot = sym DLOPEN,
        find = sym find_dlopen,
    )
}

/// C's `dlmopen`: a library of another name space brings a C library of its own.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlmopen() {
    naked_asm!(
        "test rdi, rdi",
        "jne 1f",
        "test edx, {deepbind}",
        "je 2f",
        "1:",
        "push rdi",
        "push rsi",
        "push rdx",
        "xchg rdi, rsi",
        "call {note}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "2:",
        "mov rax, qword ptr [rip + {slot}]",
        "test rax, rax",
        "jne 3f",
        "push rdi",
        "push rsi",
        "push rdx",
        "call {find}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "3:",
        "jmp rax",
        deepbind = const DEEPBIND,
        note = sym bypassing_library,
        slot = sym DLMOPEN,
        find = sym find_dlmopen,
    )
}

extern "C" fn find_dlopen() -> Pointer {
    found_or_none(next_of(&DLOPEN, c"dlopen"))
}

extern "C" fn find_dlmopen() -> Pointer {
    found_or_none(next_of(&DLMOPEN, c"dlmopen"))
}

/// Where the C library has no such function, the call gives nothing.
fn found_or_none(found: Pointer) -> Pointer {
    extern "C" fn none() -> Pointer {
        core::ptr::null_mut()
    }
    if found.is_null() { none as extern "C" fn() -> Pointer as Pointer } else { found }
}

/// `name_space`: 0 is the process's own.
unsafe extern "C" fn bypassing_library(path: *const c_char, name_space: isize) {
    // SAFETY: the loader's contract: a terminated string, or null for the program itself.
    let path = unsafe { text(path) };
    if !path.is_empty() {
        session::library_bypasses(path, name_space != 0);
    }
}

type Exit = unsafe extern "C" fn(c_int) -> !;

fn leave(slot: &AtomicPtr<c_void>, name: &CStr, status: c_int) -> ! {
    if hooks::MODE.load(Ordering::Relaxed) == hooks::TRACKING {
        session::ends(GoodbyeReason::QuickExit, Some(status));
    }
    let real = next_of(slot, name);
    // SAFETY: the C library's own function.
    let real = unsafe { core::mem::transmute::<Pointer, Exit>(real) };
    // SAFETY: never returns.
    unsafe { real(status) }
}

/// C's `_exit`.
#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: c_int) -> ! {
    leave(&EXIT, c"_exit", status)
}

/// C's `_Exit`.
#[unsafe(no_mangle)]
pub extern "C" fn _Exit(status: c_int) -> ! {
    leave(&EXIT, c"_exit", status)
}

/// C's `quick_exit`.
#[unsafe(no_mangle)]
pub extern "C" fn quick_exit(status: c_int) -> ! {
    leave(&QUICK_EXIT, c"quick_exit", status)
}

/// Destructor of the agent's thread key.
pub(crate) unsafe extern "C" fn thread_ends(round: Pointer) {
    session::thread_ends(round as usize);
}

/// glibc's lock-free lookup of unwind tables, where the C library has it (2.35 and later).
pub(crate) fn find_object() -> Option<FindObject> {
    let at = process::symbol(c"_dl_find_object", false);
    // SAFETY: a function of that name has this signature.
    (at != 0).then(|| unsafe { core::mem::transmute::<usize, FindObject>(at) })
}

/// Top of the main thread's stack, as glibc's loader noted it; 0: unknown.
pub(crate) fn stack_end() -> usize {
    let at = process::symbol(c"__libc_stack_end", false) as *const usize;
    // SAFETY: a word of the loader, written before the first constructor.
    if at.is_null() { 0 } else { unsafe { at.read() } }
}

/// Lets the tracker publish its counters to the four words this place points at.
pub(crate) fn publish_to(place: &'static AtomicPtr<AtomicU64>) {
    // SAFETY: the place is static; control pages it points at stay mapped until the process ends or the pointer is replaced.
    unsafe { hooks::TRACKER.publish_to(core::ptr::from_ref(place).cast_mut()) };
}

/// Allocates with one function and frees with its counterpart: does the tracker hear of it?
fn is_seen(allocate: usize, free: usize) -> bool {
    if allocate == 0 || free == 0 {
        return false;
    }
    let seen = hooks::TRACKER.totals().allocations;
    // SAFETY: `malloc`, or `operator new(unsigned long)`, of whatever library comes first.
    let allocate = unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(usize) -> Pointer>(allocate) };
    // SAFETY: a plain request.
    let block = unsafe { allocate(61) };
    let passed = hooks::TRACKER.totals().allocations != seen;
    // SAFETY: `free`, or `operator delete(void*)`, its counterpart.
    let free = unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(Pointer)>(free) };
    // SAFETY: the block just allocated.
    unsafe { free(block) };
    passed
}

/// Why this process's allocations do not come through here, if they do not. Recording must be on: this allocates.
pub(crate) fn blind() -> Option<String> {
    let first = process::symbol(c"malloc", false);
    // Not compared with our own `malloc` by name: that name means the first one here, too.
    let is_ours = process::object_of(first) == process::object_of(blind as fn() -> Option<String> as usize);
    // A program that is linked to a fixed address has stubs of its own, which come first and lead here.
    if !is_ours && !is_seen(first, process::symbol(c"free", false)) {
        return Some(format!(
            "the malloc of {} comes before the agent's; build or run it without that allocator for the gate",
            process::path_of(first)
        ));
    }
    let [new, delete, _] = weak();
    if new == 0 || delete == 0 || is_stock_library(&process::path_of(new)) {
        return None;
    }
    (!is_seen(new, delete)).then(|| {
        format!(
            "operator new of {} does not pass through malloc (a sanitizer, or an allocator of the program's own); \
             build or run it without that for the gate",
            process::path_of(new)
        )
    })
}

/// Do these pass through `malloc` for certain? Then the guest's heap stays untouched.
fn is_stock_library(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    ["libstdc++.so", "libc++.so", "libc++abi.so"].iter().any(|stock| name.starts_with(stock))
}

core::arch::global_asm!(
    ".weak _Znwm",
    ".weak _ZdlPv",
    ".weak _ZN7testing8UnitTest11GetInstanceEv",
    ".pushsection .data.rel.ro.memgate_weak,\"aw\",@progbits",
    ".p2align 3",
    ".hidden memgate_weak",
    ".globl memgate_weak",
    "memgate_weak:",
    ".quad _Znwm",
    ".quad _ZdlPv",
    ".quad _ZN7testing8UnitTest11GetInstanceEv",
    ".popsection",
);

unsafe extern "C" {
    static memgate_weak: [AtomicUsize; 3];
}

/// Addresses of `operator new`, `operator delete` and GoogleTest's `UnitTest::GetInstance` in the global scope; 0: none. The
/// loader filled them in: asking it by `dlsym` for a name that is missing would leave the error's text in the guest's heap.
pub(crate) fn weak() -> [usize; 3] {
    // SAFETY: words of this library that are only read.
    let words = unsafe { &memgate_weak };
    [0, 1, 2].map(|i| words.get(i).map_or(0, |word| word.load(Ordering::Relaxed)))
}

unsafe fn text(from: *const c_char) -> String {
    if from.is_null() {
        return String::new();
    }
    // SAFETY: the C API asks for terminated strings.
    unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned()
}

/// See `memgate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn memgate_active() -> c_int {
    c_int::from(session::is_active())
}

/// See `memgate.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memgate_test_begin(suite: *const c_char, test: *const c_char) {
    // SAFETY: the contract of `memgate.h`.
    let suite = unsafe { text(suite) };
    // SAFETY: as above.
    session::test_begins(&suite, &unsafe { text(test) });
}

/// See `memgate.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memgate_test_end(suite: *const c_char, test: *const c_char, outcome: c_int) {
    let outcome = match outcome {
        0 => Outcome::Passed,
        2 => Outcome::Skipped,
        _ => Outcome::Failed,
    };
    // SAFETY: the contract of `memgate.h`.
    let suite = unsafe { text(suite) };
    // SAFETY: as above.
    session::test_ends(&suite, &unsafe { text(test) }, Some(outcome));
}

/// See `memgate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn memgate_iteration(iteration: u32) {
    session::iteration_begins(iteration);
}

/// See `memgate.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memgate_mark(name: *const c_char) {
    // SAFETY: the contract of `memgate.h`.
    session::mark(&unsafe { text(name) });
}

/// See `memgate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn memgate_settle() {
    session::settle();
}

/// See `memgate.h`: all five results are written in any case.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memgate_get_malloc_leak_info(
    info: *mut *const u64,
    overall_size: *mut usize,
    info_size: *mut usize,
    total_memory: *mut usize,
    backtrace_size: *mut usize,
) {
    if info.is_null()
        || overall_size.is_null()
        || info_size.is_null()
        || total_memory.is_null()
        || backtrace_size.is_null()
    {
        return;
    }
    let taken = session::is_active().then(leak_info::take).flatten();
    // SAFETY: the caller passes a place for the address.
    unsafe { *info = taken.as_ref().map_or(core::ptr::null(), |t| t.words) };
    let sizes = taken.map_or([0; 4], |t| [t.overall_bytes, t.info_bytes, t.total_bytes, t.backtrace_size]);
    for (place, size) in [overall_size, info_size, total_memory, backtrace_size].into_iter().zip(sizes) {
        // SAFETY: the caller passes places for all four.
        unsafe { *place = size };
    }
}

/// See `memgate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn memgate_free_malloc_leak_info(info: *const u64) {
    leak_info::give_back(info);
}

/// See `memgate_gtest.h`: 1 where the agent itself listens to GoogleTest.
#[unsafe(no_mangle)]
pub extern "C" fn memgate_has_gtest_listener() -> c_int {
    c_int::from(crate::native::gtest::is_installed())
}

/// The virtual machine loads the agent (`-agentpath`). Always succeeds: a virtual machine whose agent fails does not start.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Agent_OnLoad(
    vm: *mut jni::sys::JavaVM,
    options: *const c_char,
    _reserved: Pointer,
) -> jni::sys::jint {
    if crate::jvm::is_awake() {
        return jni::sys::JNI_OK;
    }
    // SAFETY: the virtual machine's own interface.
    if let Some(jvmti) = unsafe { memgate_jvmti::Jvmti::of(vm) } {
        // SAFETY: the virtual machine passes a terminated text, or null.
        crate::jvm::on_load(jvmti, &unsafe { text(options) });
    }
    jni::sys::JNI_OK
}

/// Somebody attaches the agent to a virtual machine that runs. May come more than once; always succeeds, as above.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Agent_OnAttach(
    vm: *mut jni::sys::JavaVM,
    options: *const c_char,
    _reserved: Pointer,
) -> jni::sys::jint {
    if crate::jvm::is_awake() {
        return jni::sys::JNI_OK;
    }
    // SAFETY: the virtual machine passes a terminated text, or null.
    let options = unsafe { text(options) };
    // SAFETY: the virtual machine's own interface.
    let Some(jvmti) = (unsafe { memgate_jvmti::Jvmti::of(vm) }) else { return jni::sys::JNI_OK };
    // SAFETY: as above.
    unsafe { memgate_jvmti::with_env(vm, |env| crate::jvm::on_attach(env, jvmti, &options)) };
    jni::sys::JNI_OK
}
