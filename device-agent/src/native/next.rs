//! The next allocator: the definitions that our exports hide.
//!
//! The allocation functions are bound by `dlsym(RTLD_NEXT)`, from the object that defines `malloc`. If an allocator
//! lacks one of the functions for aligned blocks, that function is built from its `posix_memalign`, so that two
//! allocators are not mixed where this can be avoided. If a library defines only some of the functions and relies on
//! the C library for the others, they are found there, as without the agent. Until everything is bound (`dlsym` itself
//! may allocate), requests are served from a small arena whose blocks are recognised for the whole life of the process.
#![expect(unsafe_code, reason = "calls allocators through pointers from the loader")]

use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use memgate_ffi::process;
use memgate_tracker::sys::Errno;

type Pointer = *mut c_void;

macro_rules! next_functions {
    ($($name:ident = $boot:expr;)*) => { $(
        /// The next function of this name.
        pub(crate) static $name: AtomicPtr<c_void> = AtomicPtr::new($boot as Pointer);
    )* };
}

next_functions! {
    MALLOC = boot_malloc;
    CALLOC = boot_calloc;
    REALLOC = boot_realloc;
    FREE = boot_free;
    MEMALIGN = boot_memalign;
    ALIGNED_ALLOC = boot_aligned_alloc;
    POSIX_MEMALIGN = boot_posix_memalign;
    VALLOC = boot_valloc;
    PVALLOC = boot_pvalloc;
    USABLE_SIZE = boot_usable_size;
}

macro_rules! callers {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty = $slot:ident;)*) => { $(
        /// Calls the next definition.
        #[inline(always)]
        pub(crate) unsafe fn $name($($arg: $type),*) -> $result {
            // SAFETY: the slot always holds a function of this signature.
            let next = unsafe {
                core::mem::transmute::<Pointer, unsafe extern "C" fn($($type),*) -> $result>($slot.load(Ordering::Relaxed))
            };
            // SAFETY: the caller keeps the contract of the C function.
            unsafe { next($($arg),*) }
        }
    )* };
}

/// The first `realloc` in the program's scope. It is not ours if the program has its own allocator without a
/// `reallocarray`.
static OUTER_REALLOC: AtomicPtr<c_void> = AtomicPtr::new(boot_realloc as Pointer);

callers! {
    outer_realloc(block: Pointer, bytes: usize) -> Pointer = OUTER_REALLOC;
    malloc(bytes: usize) -> Pointer = MALLOC;
    calloc(count: usize, bytes: usize) -> Pointer = CALLOC;
    realloc(block: Pointer, bytes: usize) -> Pointer = REALLOC;
    free(block: Pointer) -> () = FREE;
    memalign(align: usize, bytes: usize) -> Pointer = MEMALIGN;
    aligned_alloc(align: usize, bytes: usize) -> Pointer = ALIGNED_ALLOC;
    posix_memalign(out: *mut Pointer, align: usize, bytes: usize) -> c_int = POSIX_MEMALIGN;
    valloc(bytes: usize) -> Pointer = VALLOC;
    pvalloc(bytes: usize) -> Pointer = PVALLOC;
    usable_size(block: Pointer) -> usize = USABLE_SIZE;
}

const UNBOUND: u32 = 0;
const BINDING: u32 = 1;
const BOUND: u32 = 2;

static STATE: AtomicU32 = AtomicU32::new(UNBOUND);
/// Start address of the object that contains the bound `malloc`.
static OBJECT: AtomicUsize = AtomicUsize::new(0);

/// Does the next `malloc` belong to glibc itself, whose smallest block takes 32 bytes?
pub(crate) fn is_glibc() -> bool {
    let glibc = process::symbol(c"gnu_get_libc_version");
    glibc != 0 && process::object_of(glibc) == OBJECT.load(Ordering::Relaxed)
}

/// The next `malloc`.
#[cfg(not(target_os = "android"))]
pub(crate) fn allocator() -> usize {
    MALLOC.load(Ordering::Relaxed).addr()
}

/// The next definition. If this library was not preloaded but loaded later, there is no next one: then it is the first
/// one.
fn following(name: &CStr) -> usize {
    match process::next_symbol(name) {
        0 if cfg!(target_os = "android") => process::symbol(name),
        at => at,
    }
}

/// Binds all functions, once.
pub(crate) fn bind() {
    if STATE.compare_exchange(UNBOUND, BINDING, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return;
    }
    let malloc = following(c"malloc");
    let object = process::object_of(malloc);
    OBJECT.store(object, Ordering::Relaxed);
    let has = |name: &CStr| process::object_of(following(name)) == object;
    let aligns = has(c"posix_memalign");
    let find = |name: &CStr| following(name) as Pointer;
    let find_aligned = |name: &CStr| if aligns && !has(name) { ptr::null_mut() } else { find(name) };
    let set = |slot: &AtomicPtr<c_void>, found: Pointer, instead: Pointer| {
        slot.store(if found.is_null() { instead } else { found }, Ordering::Relaxed);
    };
    set(&MALLOC, malloc as Pointer, no_memory as Pointer);
    set(&CALLOC, find(c"calloc"), calloc_of_malloc as Pointer);
    set(&POSIX_MEMALIGN, find(c"posix_memalign"), posix_memalign_fails as Pointer);
    set(&MEMALIGN, find_aligned(c"memalign"), memalign_of_posix as Pointer);
    set(&ALIGNED_ALLOC, find_aligned(c"aligned_alloc"), memalign_of_posix as Pointer);
    set(&VALLOC, find_aligned(c"valloc"), valloc_of_posix as Pointer);
    set(&PVALLOC, find_aligned(c"pvalloc"), pvalloc_of_posix as Pointer);
    // From here on, blocks of the arena may exist: these three check before they call.
    set(&REAL_REALLOC, find(c"realloc"), no_memory as Pointer);
    set(&REAL_FREE, find(c"free"), ignore as Pointer);
    // The function of another allocator would look for its own data before the block.
    let usable_size = if has(c"malloc_usable_size") { find(c"malloc_usable_size") } else { ptr::null_mut() };
    set(&REAL_USABLE_SIZE, usable_size, no_size as Pointer);
    let used = arena::used();
    let direct = |real: &AtomicPtr<c_void>, looking: Pointer| {
        if used { looking } else { real.load(Ordering::Relaxed) }
    };
    REALLOC.store(direct(&REAL_REALLOC, looking_realloc as Pointer), Ordering::Relaxed);
    FREE.store(direct(&REAL_FREE, looking_free as Pointer), Ordering::Relaxed);
    USABLE_SIZE.store(direct(&REAL_USABLE_SIZE, looking_usable_size as Pointer), Ordering::Relaxed);
    let first = process::symbol(c"realloc");
    let ours = process::object_of(first) == process::object_of(bind as fn() as usize);
    let outer = if ours || first == 0 { REALLOC.load(Ordering::Relaxed) } else { first as Pointer };
    OUTER_REALLOC.store(outer, Ordering::Relaxed);
    STATE.store(BOUND, Ordering::Release);
}

static REAL_REALLOC: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static REAL_FREE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static REAL_USABLE_SIZE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

callers! {
    real_realloc(block: Pointer, bytes: usize) -> Pointer = REAL_REALLOC;
    real_free(block: Pointer) -> () = REAL_FREE;
    real_usable_size(block: Pointer) -> usize = REAL_USABLE_SIZE;
}

/// True when the slots hold the real functions.
fn bound() -> bool {
    bind();
    STATE.load(Ordering::Acquire) == BOUND
}

unsafe extern "C" fn boot_malloc(bytes: usize) -> Pointer {
    // SAFETY: forwarded.
    if bound() { unsafe { malloc(bytes) } } else { arena::take(16, bytes) }
}

unsafe extern "C" fn boot_calloc(count: usize, bytes: usize) -> Pointer {
    if bound() {
        // SAFETY: forwarded.
        return unsafe { calloc(count, bytes) };
    }
    // The arena is zeroed and never used twice.
    count.checked_mul(bytes).map_or(ptr::null_mut(), |n| arena::take(16, n))
}

unsafe extern "C" fn boot_realloc(block: Pointer, bytes: usize) -> Pointer {
    if bound() {
        // SAFETY: forwarded.
        return unsafe { realloc(block, bytes) };
    }
    let new = arena::take(16, bytes);
    if !new.is_null() && !block.is_null() {
        // SAFETY: before binding, every block belongs to the arena. Its size is known, and the new block has at least
        // `bytes`.
        unsafe { ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast(), arena::size(block).min(bytes)) };
    }
    new
}

unsafe extern "C" fn boot_free(block: Pointer) {
    if bound() {
        // SAFETY: forwarded.
        unsafe { free(block) };
    }
}

unsafe extern "C" fn boot_memalign(align: usize, bytes: usize) -> Pointer {
    // SAFETY: forwarded.
    if bound() { unsafe { memalign(align, bytes) } } else { arena::take(align, bytes) }
}

unsafe extern "C" fn boot_aligned_alloc(align: usize, bytes: usize) -> Pointer {
    // SAFETY: forwarded.
    if bound() { unsafe { aligned_alloc(align, bytes) } } else { arena::take(align, bytes) }
}

unsafe extern "C" fn boot_posix_memalign(out: *mut Pointer, align: usize, bytes: usize) -> c_int {
    if bound() {
        // SAFETY: forwarded.
        return unsafe { posix_memalign(out, align, bytes) };
    }
    let block = arena::take(align, bytes);
    if block.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller passes a variable for a pointer.
    unsafe { *out = block };
    0
}

unsafe extern "C" fn boot_valloc(bytes: usize) -> Pointer {
    // SAFETY: forwarded.
    if bound() { unsafe { valloc(bytes) } } else { arena::take(4096, bytes) }
}

unsafe extern "C" fn boot_pvalloc(bytes: usize) -> Pointer {
    // SAFETY: forwarded.
    if bound() { unsafe { pvalloc(bytes) } } else { in_pages(bytes, |bytes| arena::take(4096, bytes)) }
}

unsafe extern "C" fn boot_usable_size(block: Pointer) -> usize {
    // SAFETY: forwarded.
    if bound() { unsafe { usable_size(block) } } else { arena::size(block) }
}

unsafe extern "C" fn looking_realloc(block: Pointer, bytes: usize) -> Pointer {
    if !arena::holds(block) {
        // SAFETY: forwarded.
        return unsafe { real_realloc(block, bytes) };
    }
    // SAFETY: a plain request.
    let new = unsafe { malloc(bytes) };
    if !new.is_null() {
        // SAFETY: both blocks have at least this size.
        unsafe { ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast(), arena::size(block).min(bytes)) };
    }
    new
}

unsafe extern "C" fn looking_free(block: Pointer) {
    if !arena::holds(block) {
        // SAFETY: forwarded.
        unsafe { real_free(block) };
    }
}

unsafe extern "C" fn looking_usable_size(block: Pointer) -> usize {
    // SAFETY: forwarded.
    if arena::holds(block) { arena::size(block) } else { unsafe { real_usable_size(block) } }
}

unsafe extern "C" fn no_memory() -> Pointer {
    ptr::null_mut()
}

unsafe extern "C" fn ignore(_: Pointer) {}

unsafe extern "C" fn no_size(_: Pointer) -> usize {
    0
}

unsafe extern "C" fn calloc_of_malloc(count: usize, bytes: usize) -> Pointer {
    let Some(total) = count.checked_mul(bytes) else { return ptr::null_mut() };
    // SAFETY: a plain request.
    let block = unsafe { malloc(total) };
    if !block.is_null() {
        // SAFETY: `total` bytes were just allocated.
        unsafe { ptr::write_bytes(block.cast::<u8>(), 0, total) };
    }
    block
}

unsafe extern "C" fn posix_memalign_fails(_: *mut Pointer, _: usize, _: usize) -> c_int {
    libc::ENOMEM
}

unsafe extern "C" fn memalign_of_posix(align: usize, bytes: usize) -> Pointer {
    let mut block = ptr::null_mut();
    // SAFETY: a variable for the pointer.
    let status = unsafe { posix_memalign(&raw mut block, align.max(size_of::<Pointer>()), bytes) };
    if status != 0 {
        // That function reports errors only by its status; the functions that it replaces use errno.
        Errno::of(status).restore();
        return ptr::null_mut();
    }
    block
}

unsafe extern "C" fn valloc_of_posix(bytes: usize) -> Pointer {
    // SAFETY: forwarded.
    unsafe { memalign_of_posix(4096, bytes) }
}

unsafe extern "C" fn pvalloc_of_posix(bytes: usize) -> Pointer {
    // SAFETY: forwarded.
    in_pages(bytes, |bytes| unsafe { memalign_of_posix(4096, bytes) })
}

/// Takes the bytes rounded up to pages. Returns null if the rounding overflows.
fn in_pages(bytes: usize, take: impl FnOnce(usize) -> Pointer) -> Pointer {
    let Some(bytes) = bytes.checked_next_multiple_of(4096) else {
        Errno::of(libc::ENOMEM).restore();
        return ptr::null_mut();
    };
    take(bytes)
}

/// The arena for requests while the next allocator is not bound. The word before a block holds its size.
mod arena {
    use super::{AtomicUsize, Ordering, Pointer, ptr};

    /// `dlsym` uses some hundred bytes.
    const BYTES: usize = 32 << 10;

    #[repr(align(4096))]
    struct Arena(core::cell::UnsafeCell<[u8; BYTES]>);
    // SAFETY: every byte is handed out once.
    unsafe impl Sync for Arena {}

    static ARENA: Arena = Arena(core::cell::UnsafeCell::new([0; BYTES]));
    static NEXT: AtomicUsize = AtomicUsize::new(0);

    pub(super) fn used() -> bool {
        NEXT.load(Ordering::Relaxed) != 0
    }

    pub(super) fn holds(block: Pointer) -> bool {
        (block as usize).wrapping_sub(ARENA.0.get() as usize) < BYTES
    }

    pub(super) fn take(align: usize, bytes: usize) -> Pointer {
        let align = align.max(16);
        let base = ARENA.0.get() as usize;
        let mut at = NEXT.load(Ordering::Relaxed);
        loop {
            let block = base.wrapping_add(at).wrapping_add(16).next_multiple_of(align);
            let Some(end) = block.wrapping_sub(base).checked_add(bytes).filter(|&end| end <= BYTES) else {
                return ptr::null_mut();
            };
            match NEXT.compare_exchange(at, end.next_multiple_of(16), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    // SAFETY: the word before the block lies inside the arena and belongs to this
                    // block.
                    unsafe { (block as *mut usize).wrapping_sub(1).write(bytes) };
                    return block as Pointer;
                }
                Err(now) => at = now,
            }
        }
    }

    pub(super) fn size(block: Pointer) -> usize {
        if !holds(block) {
            return 0;
        }
        // SAFETY: `take` wrote it.
        unsafe { block.cast::<usize>().wrapping_sub(1).read() }
    }
}
