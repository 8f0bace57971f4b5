//! What maps and unmaps memory. On Linux only.
//!
//! In a process that is not tracked each function is a comparison and a jump. In a tracked one it
//! calls the C library's, and notes the result. An allocator may call these before the agent is
//! bound, from within the loader: until then they are the kernel's own calls, and nothing is looked
//! for. The program break is the C library's, which has to be found first.

use core::arch::global_asm;
use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, Ordering};

use memgate_session::mappings::{self, Mapping};
use memgate_tracker::capture::Registers;
use memgate_tracker::mappings::Owner;
use memgate_tracker::sys::Errno;
use memgate_wire::MappedKind;

use super::Pointer;
use super::function::{Function, exported, functions, keeping, no_descriptor as no_break, routine};

/// Finds all of them when the agent is loaded.
pub(crate) fn bind_mappings() {
    for function in BY_KERNEL.iter().chain(ALL) {
        function.bind();
    }
}

/// Makes of each name a module with its [`Function`], which is the kernel's call until it is bound.
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
                        // SAFETY: only called as what it is.
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
    mmap kernel_mmap mmap64 kernel_mmap munmap kernel_munmap mremap kernel_mremap mprotect kernel_mprotect
}
functions! { sbrk no_more brk no_break }

/// No program break: -1, in all bits.
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
) -> usize {
    // SAFETY: the caller's request.
    let result = unsafe { libc::syscall(libc::SYS_mmap, address, bytes, protection, flags, fd, offset) };
    result.cast_unsigned() as usize
}

unsafe extern "C" fn kernel_munmap(address: usize, bytes: usize) -> c_int {
    // SAFETY: the caller's request.
    let failed = unsafe { libc::syscall(libc::SYS_munmap, address, bytes) } != 0;
    -c_int::from(failed)
}

unsafe extern "C" fn kernel_mprotect(address: usize, bytes: usize, protection: c_int) -> c_int {
    // SAFETY: the caller's request.
    let failed = unsafe { libc::syscall(libc::SYS_mprotect, address, bytes, protection) } != 0;
    -c_int::from(failed)
}

/// The last argument is only there with MREMAP_FIXED.
unsafe extern "C" fn kernel_mremap(
    old: usize,
    bytes: usize,
    new_bytes: usize,
    flags: c_int,
    new: usize,
) -> usize {
    // SAFETY: the caller's request.
    let result = unsafe { libc::syscall(libc::SYS_mremap, old, bytes, new_bytes, flags, new) };
    result.cast_unsigned() as usize
}

exported! { "memgate_maps": mmap mmap64 }
exported! { "memgate_unmaps": munmap }
exported! { "memgate_moves": mremap }
exported! { "memgate_protects": mprotect }
exported! { "memgate_breaks": sbrk }
exported! { "memgate_breaks_at": brk }

/// With a result in `rax` and so many bytes of this routine's on the stack, `$call` of them the
/// arguments that are handed on: tells `$note` of them, the result, and the caller's registers.
macro_rules! noted {
    ($note:literal, $to_pc:literal, $to_sp:literal) => {
        concat!(
            "push rax\n.cfi_adjust_cfa_offset 8\n",
            "mov rdi, rax\n",
            "lea rsi, [rsp + 8]\n",
            "mov rdx, qword ptr [rsp + ",
            $to_pc,
            "]\n",
            "lea rcx, [rsp + ",
            $to_sp,
            "]\n",
            "mov r8, rbp\n",
            "sub rsp, 8\n.cfi_adjust_cfa_offset 8\n",
            "call {",
            $note,
            "}\n",
            "add rsp, 8\n.cfi_adjust_cfa_offset -8\n",
            "pop rax\n.cfi_adjust_cfa_offset -8",
        )
    };
}

global_asm!(
    ".text",
    // Size, protection and flags are kept as `Maps`.
    routine!("memgate_maps":
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "push rcx",
        ".cfi_adjust_cfa_offset 8",
        "call r11",
        "cmp rax, -1",
        "je 1f",
        noted!("maps", "32", "40"),
        "1:",
        "add rsp, 24",
        ".cfi_adjust_cfa_offset -24",
        "ret",
    ),
    routine!("memgate_unmaps":
        keeping!(["rdi" "rsi" "r11"] "call {unmaps}"),
        "test al, al",
        "jne 1f",
        "jmp r11",
        "1:",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call r11",
        "test eax, eax",
        "je 2f",
        "mov qword ptr [rsp], rax",
        "sub rsp, 16",
        ".cfi_adjust_cfa_offset 16",
        "call {stays}",
        "add rsp, 16",
        ".cfi_adjust_cfa_offset -16",
        "mov rax, qword ptr [rsp]",
        "2:",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "ret",
    ),
    // What was taken, and the arguments, are kept as `Moves`.
    routine!("memgate_moves":
        keeping!(["rdi" "rsi" "rdx" "rcx" "r8" "r11" "r9"] "call {takes}"),
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "push rcx",
        ".cfi_adjust_cfa_offset 8",
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "xor eax, eax",
        "call r11",
        noted!("moved", "48", "56"),
        "add rsp, 40",
        ".cfi_adjust_cfa_offset -40",
        "ret",
    ),
    routine!("memgate_protects":
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "call r11",
        "test eax, eax",
        "jne 1f",
        "mov rdi, qword ptr [rsp + 16]",
        "mov rsi, qword ptr [rsp + 8]",
        "mov edx, dword ptr [rsp]",
        "mov qword ptr [rsp], rax",
        "call {protects}",
        "mov rax, qword ptr [rsp]",
        "1:",
        "add rsp, 24",
        ".cfi_adjust_cfa_offset -24",
        "ret",
    ),
    routine!("memgate_breaks":
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "call r11",
        "cmp rax, -1",
        "je 1f",
        noted!("breaks", "16", "24"),
        "1:",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "ret",
    ),
    // Where the break was before is the place of the result.
    routine!("memgate_breaks_at":
        keeping!(["rdi" "r11" "r9"] "call {now}"),
        "sub rax, rdi",
        "neg rax",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call r11",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "test eax, eax",
        "jne 1f",
        "mov rax, qword ptr [rsp + 8]",
        "sub rax, qword ptr [rsp]",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "mov rdi, rax",
        "lea rsi, [rsp + 8]",
        "mov rdx, qword ptr [rsp + 24]",
        "lea rcx, [rsp + 32]",
        "mov r8, rbp",
        "call {breaks}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "xor eax, eax",
        "1:",
        "add rsp, 16",
        ".cfi_adjust_cfa_offset -16",
        "ret",
    ),
    maps = sym maps,
    unmaps = sym unmaps,
    stays = sym stays,
    takes = sym takes,
    moved = sym moved,
    protects = sym protects,
    breaks = sym breaks,
    now = sym now,
);

/// Of what `mmap` was called with, in the order that it lies on the stack.
#[repr(C)]
struct Maps {
    flags: usize,
    protection: usize,
    bytes: usize,
}

/// Of what `mremap` was called with, behind the word that [`takes`] gave.
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

/// Can something be stored in, or read from, memory that is protected so?
const fn is_accessible(protection: usize) -> bool {
    has(protection, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC)
}

extern "C" fn maps(address: usize, call: &Maps, pc: usize, sp: usize, rbp: usize) {
    let kind = match (has(call.flags, libc::MAP_ANONYMOUS), has(call.flags, libc::MAP_SHARED)) {
        (false, _) => MappedKind::File,
        (true, true) => MappedKind::Shared,
        (true, false) => MappedKind::Anonymous,
    };
    let is_reserved = !is_accessible(call.protection);
    let is_fixed = has(call.flags, libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE);
    let new = Mapping { address, bytes: call.bytes, kind, is_reserved, is_fixed };
    mappings::maps(new, Registers { pc, sp, rbp });
}

extern "C" fn unmaps(address: usize, bytes: usize) -> bool {
    mappings::unmaps(address, bytes)
}

extern "C" fn stays() {
    mappings::stays();
}

/// The word of what is about to move; 0: it was not noted.
extern "C" fn takes(address: usize, bytes: usize) -> u64 {
    mappings::takes(address, bytes).map_or(0, |owner| owner.word())
}

extern "C" fn moved(to: usize, call: &Moves, pc: usize, sp: usize, rbp: usize) {
    let &Moves { taken, flags, new_bytes, old_bytes, old } = call;
    let Some(owner) = Owner::from_word(taken) else { return };
    let failed = to == usize::MAX;
    if failed || has(flags, libc::MREMAP_DONTUNMAP) {
        mappings::stays_where_it_was(old, old_bytes, owner);
    }
    if !failed {
        mappings::moved(to, new_bytes, owner, new_bytes > old_bytes, Registers { pc, sp, rbp });
    }
}

extern "C" fn protects(address: usize, bytes: usize, protection: usize) {
    if is_accessible(protection) {
        mappings::becomes_accessible(address, bytes);
    }
}

extern "C" fn breaks(before: usize, by: &isize, pc: usize, sp: usize, rbp: usize) {
    mappings::breaks(before, before.wrapping_add_signed(*by), Registers { pc, sp, rbp });
}

/// The program break.
extern "C" fn now() -> usize {
    let next = sbrk::FUNCTION.next.load(Ordering::Relaxed);
    // SAFETY: the C library's own function, or what stands for it.
    let sbrk = unsafe { core::mem::transmute::<Pointer, unsafe extern "C" fn(isize) -> usize>(next) };
    // SAFETY: asks where the break is.
    unsafe { sbrk(0) }
}
