//! Functions that map and unmap memory. On Linux only.
//!
//! In a process that is not tracked each function is a comparison and a jump. In a tracked process it calls the C
//! library's function and records the result. An allocator may call these functions from within the loader, before the
//! agent is bound. Until then they are the kernel's own calls, and nothing is looked up. The functions for the program
//! break are the C library's, which must be looked up first.

use core::ffi::{c_int, c_long};
use core::sync::atomic::{AtomicPtr, Ordering};

use memgate_session::mappings::{self, Mapping};
use memgate_tracker::capture::Registers;
use memgate_tracker::mappings::{Owner, Placed};
use memgate_tracker::sys::Errno;
use memgate_wire::MappedKind;

use super::Pointer;
use super::function::{Function, exported, finding, functions, no_descriptor as no_break};

#[cfg_attr(target_arch = "x86_64", path = "x86_64/mappings.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64/mappings.rs")]
mod machine;

pub(super) fn bind() {
    BY_KERNEL.iter().chain(ALL).for_each(|function| function.bind_early());
}

/// Makes a module for each name, with its [`Function`], which is the kernel's call until it is bound.
macro_rules! by_kernel {
    ($($name:ident $kernel:ident)*) => {
        $(
            mod $name {
                use super::*;

                pub(super) static FUNCTION: Function = Function {
                    next: AtomicPtr::new(super::$kernel as *const () as Pointer),
                    name: match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => c"",
                    },
                    missing: {
                        // SAFETY: only called with its real type.
                        unsafe {
                            core::mem::transmute::<*const (), unsafe extern "C" fn()>(super::$kernel as *const ())
                        }
                    },
                };
            }
        )*
        static BY_KERNEL: &[&Function] = &[$(&$name::FUNCTION),*];
    };
}

by_kernel! {
    mmap kernel_mmap mmap64 kernel_mmap munmap kernel_munmap mremap kernel_mremap
    mprotect kernel_mprotect pkey_mprotect kernel_pkey_mprotect
}
functions! { sbrk no_more brk no_break shmat no_more shmdt no_break shmget no_break }

/// Fails with -1 (all bits set): no memory.
unsafe extern "C" fn no_more() -> usize {
    Errno::of(libc::ENOMEM).restore();
    usize::MAX
}

unsafe extern "C" fn kernel_mmap(
    address: usize,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: usize,
) -> c_long {
    // SAFETY: the caller's request.
    unsafe { libc::syscall(libc::SYS_mmap, address, bytes, protection, flags, fd, offset) }
}

unsafe extern "C" fn kernel_munmap(address: usize, bytes: usize) -> c_int {
    // SAFETY: the caller's request.
    let failed = unsafe { libc::syscall(libc::SYS_munmap, address, bytes) } != 0;
    if failed { -1 } else { 0 }
}

unsafe extern "C" fn kernel_mprotect(address: usize, bytes: usize, protection: c_int) -> c_int {
    // SAFETY: the caller's request.
    let failed = unsafe { libc::syscall(libc::SYS_mprotect, address, bytes, protection) } != 0;
    if failed { -1 } else { 0 }
}

unsafe extern "C" fn kernel_pkey_mprotect(
    address: usize,
    bytes: usize,
    protection: c_int,
    key: c_int,
) -> c_int {
    // SAFETY: the caller's request.
    let failed = unsafe { libc::syscall(libc::SYS_pkey_mprotect, address, bytes, protection, key) } != 0;
    if failed { -1 } else { 0 }
}

/// The last argument exists only with MREMAP_FIXED.
unsafe extern "C" fn kernel_mremap(
    old: usize,
    bytes: usize,
    new_bytes: usize,
    flags: c_int,
    new: usize,
) -> c_long {
    // SAFETY: the caller's request.
    unsafe { libc::syscall(libc::SYS_mremap, old, bytes, new_bytes, flags, new) }
}

exported! { "memgate_maps": mmap mmap64 }
exported! { "memgate_unmaps": munmap }
exported! { "memgate_moves": mremap }
exported! { "memgate_protects": mprotect pkey_mprotect }
exported! { "memgate_attaches": shmat }
exported! { "memgate_detaches": shmdt }
exported! { "memgate_gives": shmget }
exported! { "memgate_breaks": sbrk }
exported! { "memgate_breaks_at": brk }

/// Some arguments of `mmap`, in their order on the stack.
#[repr(C)]
struct Maps {
    flags: usize,
    protection: usize,
    bytes: usize,
}

/// The arguments of `shmat`, in their order on the stack.
#[repr(C)]
struct Attaches {
    flags: c_int,
    address: usize,
    segment: c_int,
}

/// Some arguments of `mremap`, in their order on the stack, after the result of [`takes`].
#[repr(C)]
struct Moves {
    taken: u64,
    flags: usize,
    new_bytes: usize,
    old_bytes: usize,
    old: usize,
}

const fn has(word: usize, flags: c_int) -> bool {
    word & flags.cast_unsigned() as usize != 0
}

/// Is memory with this protection accessible?
const fn is_accessible(protection: usize) -> bool {
    has(protection, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC)
}

extern "C" fn maps(address: usize, call: &Maps, pc: usize, sp: usize, fp: usize) {
    let kind = match (has(call.flags, libc::MAP_ANONYMOUS), has(call.flags, libc::MAP_SHARED)) {
        (false, _) => MappedKind::File,
        (true, true) => MappedKind::Shared,
        (true, false) => MappedKind::Anonymous,
    };
    let is_reserved = !is_accessible(call.protection);
    let is_fixed = has(call.flags, libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE);
    let placed = if is_fixed { Placed::ByCaller } else { Placed::ByKernel };
    let new = Mapping { address, bytes: call.bytes, kind, is_reserved, placed };
    mappings::maps(new, Registers { pc, sp, fp });
}

extern "C" fn unmaps(address: usize, bytes: usize) -> bool {
    mappings::unmaps(address, bytes)
}

extern "C" fn attaches(address: usize, call: &Attaches, pc: usize, sp: usize, fp: usize) {
    let replaces = call.flags & libc::SHM_REMAP != 0 && call.address != 0;
    let placed = if replaces { Placed::ByCaller } else { Placed::ByKernel };
    mappings::attaches(address, call.segment, placed, Registers { pc, sp, fp });
}

extern "C" fn gives(segment: c_int, _: usize, pc: usize, sp: usize, fp: usize) {
    mappings::gives(segment, Registers { pc, sp, fp });
}

extern "C" fn detaches(address: usize) -> bool {
    mappings::detaches(address)
}

extern "C" fn stays() {
    mappings::stays();
}

/// The owner word of the mapping that is about to move; 0: it was not recorded.
extern "C" fn takes(address: usize, bytes: usize) -> u64 {
    mappings::takes(address, bytes).map_or(0, |owner| owner.word())
}

extern "C" fn moved(to: usize, call: &Moves, pc: usize, sp: usize, fp: usize) {
    let &Moves { taken, flags, new_bytes, old_bytes, old } = call;
    let failed = to == usize::MAX;
    let Some(owner) = Owner::from_word(taken) else {
        if !failed && old_bytes == 0 {
            mappings::duplicated(old, to, new_bytes, Registers { pc, sp, fp });
        }
        return;
    };
    if failed || has(flags, libc::MREMAP_DONTUNMAP) {
        mappings::stays_where_it_was(old, old_bytes, owner);
    }
    if !failed {
        mappings::moved(to, new_bytes, owner, new_bytes > old_bytes, Registers { pc, sp, fp });
    }
}

extern "C" fn protects(address: usize, bytes: usize, protection: usize) {
    if is_accessible(protection) {
        mappings::becomes_accessible(address, bytes);
    }
}

extern "C" fn breaks(before: usize, by: &isize, pc: usize, sp: usize, fp: usize) {
    mappings::breaks(before, before.wrapping_add_signed(*by), Registers { pc, sp, fp });
}

/// The current program break.
extern "C" fn now() -> usize {
    let next = sbrk::FUNCTION.next.load(Ordering::Relaxed);
    // SAFETY: the C library's own function, or its replacement.
    let sbrk = unsafe { core::mem::transmute::<Pointer, unsafe extern "C" fn(isize) -> usize>(next) };
    // SAFETY: only queries the break.
    unsafe { sbrk(0) }
}
