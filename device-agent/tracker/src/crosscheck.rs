//! A verification tool (feature `crosscheck`), in no shipped library: it compares stacks with those of the system
//! unwinder.
//!
//! One of every `every` captures is chosen at random. After that capture, the same thread calls `_Unwind_Backtrace` of
//! libgcc with signals blocked, on a stack of this module (small guest stacks have no room for it). It walks the stored
//! nodes in parallel, from the hook's caller outwards. It counts stacks that agree, stacks that are cut (with the
//! reason), and wrong stacks. The first wrong stacks are written to the file, with both sides. [`finish`] writes the
//! figures to `PID.crosscheck` in the given folder.
//!
//! Verdict: every address that both unwinders report must be the same. A stack of ours that is marked as whole must end
//! where the system's ends. A stack that is marked as cut may end earlier, or where the system's ends; it is counted
//! under the reason: `deep` (more frames than are kept), `no_object` (code outside every loaded object: JIT), `no_rule`
//! (code without unwind rules), `exotic` (a rule that is not followed), `bounds` (a slot outside the stack; if it is
//! outside all memory, the system's unwinder is stopped as well, because it would crash). `system_further` counts how
//! often the system's stack is longer. Everything else is wrong.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::fmt::{self, Write};
use core::ptr;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::arch::{Arch, Native};
use crate::capture::{Context, MAX_FRAMES, Registers, TRUNCATED_PC};
use crate::cfi::{FindObject, Return, Room, Rule};
use crate::sys::{self, Errno};
use crate::thread::Inside;

const STACKS: u32 = 32;
const STACK_BYTES: usize = 256 << 10;
const MAX_REPORTS: u64 = 20;
const PATH_BYTES: usize = 1024;
/// One bit per stack id.
const SEEN_BYTES: usize = 1 << 23;

macro_rules! figures {
    ($($name:ident)*) => {
        /// The counters.
        struct Figures { $($name: AtomicU64,)* }
        static FIGURES: Figures = Figures { $($name: AtomicU64::new(0),)* };
        impl Figures {
            fn each(&self, mut visit: impl FnMut(&str, &AtomicU64)) {
                $(visit(stringify!($name), &self.$name);)*
            }
        }
    };
}

figures! { captures compared distinct frames wrong wrong_frames skipped truncated deep no_object no_rule exotic bounds system_further }

fn add(figure: &AtomicU64, by: u64) -> u64 {
    figure.fetch_add(by, Ordering::Relaxed) + by
}

type Trace = extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type Backtrace = unsafe extern "C" fn(Trace, *mut c_void) -> c_int;
type IpInfo = unsafe extern "C" fn(*mut c_void, *mut c_int) -> usize;
type Register = unsafe extern "C" fn(*mut c_void, c_int) -> usize;
type Cfa = unsafe extern "C" fn(*mut c_void) -> usize;

static BACKTRACE: AtomicUsize = AtomicUsize::new(0);
static IP_INFO: AtomicUsize = AtomicUsize::new(0);
static GET_CFA: AtomicUsize = AtomicUsize::new(0);
static GET_REGISTER: AtomicUsize = AtomicUsize::new(0);
static FIND_OBJECT: AtomicUsize = AtomicUsize::new(0);
static EVERY: AtomicU64 = AtomicU64::new(0);
/// Differs between processes, so that each run of a program compares other captures.
static SEED: AtomicU64 = AtomicU64::new(0);
static STACK_POOL: AtomicUsize = AtomicUsize::new(0);
static STACKS_TAKEN: AtomicU32 = AtomicU32::new(0);
static SEEN: AtomicUsize = AtomicUsize::new(0);
static FOLDER: [AtomicU8; PATH_BYTES] = [const { AtomicU8::new(0) }; PATH_BYTES];

/// Loads libgcc's unwinder and starts. Called before the first event. `every` 1 compares each capture. Returns false if
/// there is no unwinder.
#[must_use]
pub fn start(every: u64, folder: &str, find_object: Option<FindObject>) -> bool {
    // SAFETY: a terminated name; the library stays loaded.
    let library = unsafe { libc::dlopen(c"libgcc_s.so.1".as_ptr(), libc::RTLD_NOW) };
    if library.is_null() || every == 0 || folder.len() >= PATH_BYTES / 2 {
        return false;
    }
    // SAFETY: a handle just opened and a terminated name.
    let symbol = |name: &CStr| unsafe { libc::dlsym(library, name.as_ptr()) } as usize;
    let found = [c"_Unwind_Backtrace", c"_Unwind_GetIPInfo", c"_Unwind_GetCFA", c"_Unwind_GetGR"].map(symbol);
    for (place, at) in [&BACKTRACE, &IP_INFO, &GET_CFA, &GET_REGISTER].into_iter().zip(found) {
        place.store(at, Ordering::Relaxed);
    }
    FIND_OBJECT.store(find_object.map_or(0, |f| f as usize), Ordering::Relaxed);
    let (stacks, seen) = (sys::map(STACKS as usize * STACK_BYTES), sys::map(SEEN_BYTES));
    let (Some(stacks), Some(seen)) = (stacks, seen) else { return false };
    STACK_POOL.store(stacks.as_ptr() as usize, Ordering::Relaxed);
    SEEN.store(seen.as_ptr() as usize, Ordering::Relaxed);
    for (place, byte) in FOLDER.iter().zip(folder.bytes()) {
        place.store(byte, Ordering::Relaxed);
    }
    if found.contains(&0) {
        return false;
    }
    // SAFETY: looks the value up in the kernel's auxiliary vector.
    let random = unsafe { libc::getauxval(libc::AT_RANDOM) } as *const u64;
    if !random.is_null() {
        // SAFETY: 16 random bytes, for every process.
        SEED.store(unsafe { random.read_unaligned() }, Ordering::Relaxed);
    }
    EVERY.store(every, Ordering::Release);
    true
}

/// Resets the counters in a forked child: they belong to the parent.
pub(crate) fn after_fork() {
    FIGURES.each(|_, figure| figure.store(0, Ordering::Relaxed));
    STACKS_TAKEN.store(0, Ordering::Relaxed);
}

/// Compares the capture just made, if it is chosen.
#[inline]
pub(crate) fn captured(known: &Context, at: Registers, stack: u32) {
    let every = EVERY.load(Ordering::Acquire);
    if every == 0 {
        return;
    }
    let count = add(&FIGURES.captures, 1) - 1;
    if count % every == place_in(count / every, every) {
        compare_on_own_stack(known, at, stack);
    }
}

/// Index of the chosen capture of a block. A fixed index could always choose the same line of a loop of the same
/// length.
fn place_in(block: u64, every: u64) -> u64 {
    let mixed = (block ^ SEED.load(Ordering::Relaxed)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) % every
}

struct Comparison<'a> {
    known: &'a Context,
    at: Registers,
    stack: u32,
}

#[cold]
#[inline(never)]
fn compare_on_own_stack(known: &Context, at: Registers, stack: u32) {
    let errno = Errno::save();
    let _inside = Inside::enter();
    let mask = block_signals(u64::MAX);
    if let Some(slot) = take_stack() {
        let top = STACK_POOL.load(Ordering::Relaxed) + (slot as usize + 1) * STACK_BYTES;
        let comparison = Comparison { known, at, stack };
        // SAFETY: `top` ends a mapped stack that is this thread's until the slot is given back;
        // `compare` gets what it expects.
        unsafe { memgate_call_on_stack((&raw const comparison).cast(), compare, top) };
        STACKS_TAKEN.fetch_and(!(1 << slot), Ordering::Release);
    } else {
        add(&FIGURES.skipped, 1);
    }
    restore_signals(mask);
    errno.restore();
}

fn take_stack() -> Option<u32> {
    let mut taken = STACKS_TAKEN.load(Ordering::Relaxed);
    loop {
        let slot = (!taken).trailing_zeros();
        if slot >= STACKS {
            return None;
        }
        match STACKS_TAKEN.compare_exchange_weak(
            taken,
            taken | 1 << slot,
            Ordering::Acquire,
            Ordering::Relaxed,
        ) {
            Ok(_) => return Some(slot),
            Err(now) => taken = now,
        }
    }
}

// memgate_call_on_stack(data, function, top): calls function(data) with the stack pointer at `top`.
// Its unwind rules lead back to the caller's stack.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".text",
    ".hidden memgate_call_on_stack",
    ".globl memgate_call_on_stack",
    ".type memgate_call_on_stack,@function",
    "memgate_call_on_stack:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "mov rsp, rdx",
    "call rsi",
    "mov rsp, rbp",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size memgate_call_on_stack, . - memgate_call_on_stack",
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".text",
    ".hidden memgate_call_on_stack",
    ".globl memgate_call_on_stack",
    ".type memgate_call_on_stack,@function",
    "memgate_call_on_stack:",
    ".cfi_startproc",
    "stp x29, x30, [sp, #-16]!",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset x29, -16",
    ".cfi_offset x30, -8",
    "mov x29, sp",
    ".cfi_def_cfa_register x29",
    "mov sp, x2",
    "blr x1",
    "mov sp, x29",
    ".cfi_def_cfa_register sp",
    "ldp x29, x30, [sp], #16",
    ".cfi_restore x29",
    ".cfi_restore x30",
    ".cfi_def_cfa_offset 0",
    "ret",
    ".cfi_endproc",
    ".size memgate_call_on_stack, . - memgate_call_on_stack",
);

unsafe extern "C" {
    fn memgate_call_on_stack(data: *const c_void, function: extern "C" fn(*const c_void), top: usize);
}

/// State of the parallel walk along both stacks.
struct Along<'a> {
    known: &'a Context,
    at: Registers,
    /// Our next node; 0: none.
    next: u32,
    /// Number of frames that agree.
    same: u64,
    /// Whether the walk has met the hook's caller.
    met: bool,
    /// Whether the system reports another address, or a different end where our stack is whole.
    differs: bool,
    /// Whether the system's stack continues where ours is cut.
    further: bool,
    last_pc: usize,
}

extern "C" fn compare(comparison: *const c_void) {
    // SAFETY: `compare_on_own_stack` passes one.
    let Comparison { known, at, stack } = unsafe { &*comparison.cast::<Comparison<'_>>() };
    let mut along = Along {
        known,
        at: *at,
        next: *stack,
        same: 0,
        met: false,
        differs: false,
        further: false,
        last_pc: 0,
    };
    backtrace(each, (&raw mut along).cast());
    add(&FIGURES.compared, 1);
    add(&FIGURES.frames, along.same);
    if see(*stack) {
        add(&FIGURES.distinct, 1);
    }
    let rest = known.store.node(along.next);
    let cut = rest.is_some_and(|n| n.pc == TRUNCATED_PC as u64);
    // The system's stack ended before ours, or ours was not found at all.
    let short = rest.is_some() && !cut && !along.differs;
    if along.differs || short || !along.met {
        let number = add(&FIGURES.wrong, 1);
        add(&FIGURES.wrong_frames, left(known, along.next).max(1));
        if number <= MAX_REPORTS {
            report(number, along.same, *at, *stack, known);
        }
    } else if cut {
        if add(&FIGURES.truncated, 1) <= MAX_REPORTS {
            let mut text = Report::new();
            text.line(format_args!("cut at"));
            text.frame(along.last_pc);
            text.append_to_file();
        }
        add(reason(known, &along), 1);
        if along.further {
            add(&FIGURES.system_further, 1);
        }
    }
}

/// Handles one frame of the system's stack.
extern "C" fn each(context: *mut c_void, along: *mut c_void) -> c_int {
    const STOP: c_int = 1;
    // SAFETY: `compare` passes one.
    let along = unsafe { &mut *along.cast::<Along<'_>>() };
    let pc = return_address(context);
    if !along.met {
        // The agent's own frames lie in between.
        if pc != along.at.pc || cfa(context) != along.at.sp {
            return 0;
        }
        along.met = true;
    }
    if pc == 0 {
        // A zero return address marks the root.
        return STOP;
    }
    match along.known.store.node(along.next) {
        Some(node) if node.pc == TRUNCATED_PC as u64 => {
            along.further = true;
            STOP
        }
        Some(node) if node.pc == pc as u64 => {
            along.next = node.parent;
            along.same += 1;
            along.last_pc = pc;
            // If rules lead out of all memory, the system's unwinder would follow them and crash.
            let cut = along.known.store.node(node.parent).is_some_and(|n| n.pc == TRUNCATED_PC as u64);
            if cut && !caller_is_readable(context, rule_of(along.known, pc)) { STOP } else { 0 }
        }
        _ => {
            along.differs = true;
            STOP
        }
    }
}

/// Is the word readable that this frame's rule uses as the return address?
fn caller_is_readable(context: *mut c_void, rule: Option<Rule>) -> bool {
    let Some(Rule::Frame { cfa: rule, ra: Return::AtCfa(ra), .. }) = rule else { return true };
    let fp = || {
        // SAFETY: `start` stored libgcc's function of this name.
        let call = unsafe { core::mem::transmute::<usize, Register>(GET_REGISTER.load(Ordering::Relaxed)) };
        // SAFETY: the unwinder's own context.
        unsafe { call(context, Native::FP as c_int) }
    };
    let frame = match rule {
        crate::cfi::Cfa::Sp(offset) => cfa(context).wrapping_add_signed(offset as isize),
        crate::cfi::Cfa::Fp(offset) => fp().wrapping_add_signed(offset as isize),
        crate::cfi::Cfa::AtFp(_) => return sys::readable(fp()),
    };
    sys::readable(frame.wrapping_add_signed(ra as isize))
}

fn reason(known: &Context, along: &Along<'_>) -> &'static AtomicU64 {
    if along.same == MAX_FRAMES as u64 {
        return &FIGURES.deep;
    }
    match rule_of(known, along.last_pc) {
        None => &FIGURES.no_object,
        Some(Rule::Unknown) if along.further => &FIGURES.exotic,
        Some(Rule::Frame { ra: Return::InLink, .. }) => &FIGURES.exotic,
        Some(Rule::Unknown) => &FIGURES.no_rule,
        Some(_) => &FIGURES.bounds,
    }
}

/// The unwind rule for a return address.
fn rule_of(known: &Context, pc: usize) -> Option<Rule> {
    known.rules.exact(pc, &mut Room::new())
}

fn left(known: &Context, mut id: u32) -> u64 {
    let mut frames = 0;
    while let Some(node) = known.store.node(id) {
        id = node.parent;
        frames += u64::from(node.pc != TRUNCATED_PC as u64);
    }
    frames
}

/// Marks a stack id as seen. Returns whether it is new.
fn see(id: u32) -> bool {
    let at = SEEN.load(Ordering::Relaxed) + (id as usize / 32) * 4;
    // SAFETY: ids have 26 bits, and the mapping has a bit for each.
    let word = unsafe { &*(at as *const AtomicU32) };
    word.fetch_or(1 << (id % 32), Ordering::Relaxed) & (1 << (id % 32)) == 0
}

fn backtrace(each: Trace, data: *mut c_void) {
    // SAFETY: `start` stored libgcc's function of this name.
    let call = unsafe { core::mem::transmute::<usize, Backtrace>(BACKTRACE.load(Ordering::Relaxed)) };
    // SAFETY: each caller passes what its function expects.
    unsafe { call(each, data) };
}

/// The address of a frame as this tracker reports it: after the interrupted instruction, if a signal interrupted the
/// frame.
fn return_address(context: *mut c_void) -> usize {
    // SAFETY: `start` stored libgcc's function of this name.
    let call = unsafe { core::mem::transmute::<usize, IpInfo>(IP_INFO.load(Ordering::Relaxed)) };
    let mut before = 0;
    // SAFETY: the unwinder's own context.
    let ip = unsafe { call(context, &raw mut before) };
    if before != 0 { ip + 1 } else { ip }
}

fn cfa(context: *mut c_void) -> usize {
    // SAFETY: `start` stored libgcc's function of this name.
    let call = unsafe { core::mem::transmute::<usize, Cfa>(GET_CFA.load(Ordering::Relaxed)) };
    // SAFETY: the unwinder's own context.
    unsafe { call(context) }
}

// ---- Output, with bare system calls

/// Writes the figures. Called at the end of the process.
pub fn finish() {
    if EVERY.load(Ordering::Acquire) == 0 {
        return;
    }
    let errno = Errno::save();
    let mut text = Report::new();
    FIGURES.each(|name, figure| {
        text.line(format_args!("{name} {}\n", figure.load(Ordering::Relaxed)));
    });
    text.append_to_file();
    errno.restore();
}

/// Writes both stacks to the file.
#[cold]
#[inline(never)]
fn report(number: u64, same: u64, at: Registers, stack: u32, known: &Context) {
    let mut text = Report::new();
    text.line(format_args!(
        "\nwrong stack {number}: {same} frames agree; caller {:#x}, sp {:#x}\nours:\n",
        at.pc, at.sp
    ));
    let mut id = stack;
    while let Some(node) = known.store.node(id) {
        text.frame(node.pc as usize);
        id = node.parent;
    }
    text.line(format_args!("system:\n"));
    backtrace(write_frame, (&raw mut text).cast());
    text.append_to_file();
}

extern "C" fn write_frame(context: *mut c_void, text: *mut c_void) -> c_int {
    // SAFETY: `report` passes one.
    let text = unsafe { &mut *text.cast::<Report>() };
    text.frame(return_address(context));
    c_int::from(text.used > text.bytes.len() - 512)
}

/// Text for a file, or a path.
struct Text<const BYTES: usize> {
    used: usize,
    bytes: [u8; BYTES],
}

type Report = Text<{ 48 << 10 }>;

impl<const BYTES: usize> Text<BYTES> {
    const fn new() -> Self {
        Self { used: 0, bytes: [0; BYTES] }
    }

    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.used) {
            *place = byte;
            self.used += 1;
        }
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        let written = self.write_fmt(line);
        debug_assert!(written.is_ok(), "what does not fit is left out");
    }

    /// Address, module and offset.
    fn frame(&mut self, pc: usize) {
        match module(pc) {
            Some((name, base)) => self.line(format_args!("  {pc:#x} {name}+{:#x}\n", pc.wrapping_sub(base))),
            None => self.line(format_args!("  {pc:#x}\n")),
        }
    }

    fn append_to_file(&self) {
        let mut path = Text::<{ PATH_BYTES + 32 }>::new();
        for byte in FOLDER.iter().map(|byte| byte.load(Ordering::Relaxed)).take_while(|&byte| byte != 0) {
            path.push(byte);
        }
        // SAFETY: no arguments.
        let pid = unsafe { libc::syscall(libc::SYS_getpid) };
        path.line(format_args!("/{pid}.crosscheck\0"));
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
        // SAFETY: a terminated path: the folder is shorter than its buffer.
        let file =
            unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.bytes.as_ptr(), flags, 0o600) };
        if file < 0 {
            return;
        }
        // SAFETY: the bytes written so far.
        unsafe { libc::syscall(libc::SYS_write, file, self.bytes.as_ptr(), self.used) };
        // SAFETY: the descriptor just opened.
        unsafe { libc::syscall(libc::SYS_close, file) };
    }
}

impl<const BYTES: usize> Write for Text<BYTES> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        s.bytes().for_each(|byte| self.push(byte));
        Ok(())
    }
}

/// Head of glibc's `struct dl_find_object`.
#[repr(C)]
struct Found {
    flags: u64,
    map_start: usize,
    map_end: usize,
    link_map: *const LinkMap,
    rest: [u64; 20],
}

/// Head of `struct link_map` (`link.h`).
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const c_char,
}

/// Name and base of the module that `pc` lies in.
fn module(pc: usize) -> Option<(&'static str, usize)> {
    let find = FIND_OBJECT.load(Ordering::Relaxed);
    if find == 0 {
        return None;
    }
    // SAFETY: only `start` writes the word, from a function of this type.
    let find = unsafe { core::mem::transmute::<usize, FindObject>(find) };
    let mut found = Found { flags: 0, map_start: 0, map_end: 0, link_map: ptr::null(), rest: [0; 20] };
    // SAFETY: the function writes at most the structure, which is larger than the one it knows.
    if unsafe { find(pc.wrapping_sub(1) as *mut c_void, (&raw mut found).cast()) } != 0 {
        return None;
    }
    // SAFETY: the loader's record of an object that is loaded: a frame lies in it.
    let map = unsafe { found.link_map.as_ref() }?;
    // SAFETY: a terminated string of the loader's.
    let name = unsafe { CStr::from_ptr(map.name) }.to_str().unwrap_or("?");
    Some((if name.is_empty() { "(executable)" } else { name }, map.base))
}

fn block_signals(mask: u64) -> u64 {
    let mut old = 0_u64;
    // SAFETY: reads and writes one word each.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, &raw mut old, 8_usize)
    };
    old
}

fn restore_signals(mask: u64) {
    block_signals(mask);
}
