//! The loaded ELF objects.

use core::ffi::{CStr, c_int, c_void};

/// A loaded object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// First mapped address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Load bias.
    pub bias: u64,
    /// Path as the loader knows it; empty for the main program.
    pub path: String,
    /// GNU build id, empty where there is none.
    pub build_id: Vec<u8>,
}

/// All loaded objects, with the loader's counts of loads and unloads so far. Takes the loader's lock: never call it in
/// a hook.
#[must_use]
pub fn loaded() -> (Vec<Loaded>, u64, u64) {
    let mut out = (Vec::new(), 0, 0);
    // SAFETY: the callback gets the address of `out`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut out).cast()) };
    out
}

/// An object with thread-local variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadLocal {
    /// Path as the loader knows it; empty for the main program.
    pub path: String,
    /// Its TLS module id (`dlpi_tls_modid`).
    pub number: u64,
    /// Size of its variables in bytes.
    pub bytes: u64,
}

/// The objects with thread-local variables. Takes the loader's lock: never call it in a hook.
#[must_use]
pub fn thread_local() -> Vec<ThreadLocal> {
    let mut out = Vec::new();
    // SAFETY: the callback gets the address of `out`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(add_thread_local), (&raw mut out).cast()) };
    out
}

unsafe extern "C" fn add_thread_local(info: *mut libc::dl_phdr_info, size: usize, out: *mut c_void) -> c_int {
    if size < size_of::<libc::dl_phdr_info>() {
        return 0;
    }
    // SAFETY: the loader passes a valid structure, which has all members.
    let info = unsafe { &*info };
    // SAFETY: `thread_local` passes its own list.
    let out = unsafe { &mut *out.cast::<Vec<ThreadLocal>>() };
    // SAFETY: the loader's program headers of this object.
    let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let Some(header) = headers.iter().find(|header| header.p_type == libc::PT_TLS) else { return 0 };
    let path = if info.dlpi_name.is_null() {
        String::new()
    } else {
        // SAFETY: a terminated string of the loader.
        unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned()
    };
    out.push(ThreadLocal { path, number: info.dlpi_tls_modid as u64, bytes: header.p_memsz });
    0
}

/// The loader's counts of loads and unloads so far. For a loader that does not count (bionic before API 30): the number
/// of loaded objects, and a checksum that changes with the set of objects.
#[must_use]
pub fn counts() -> (u64, u64) {
    let mut out = (0, 0);
    // SAFETY: as above.
    unsafe { libc::dl_iterate_phdr(Some(count), (&raw mut out).cast()) };
    out
}

unsafe extern "C" fn count(info: *mut libc::dl_phdr_info, size: usize, out: *mut c_void) -> c_int {
    // SAFETY: `counts` passes its own pair.
    let out = unsafe { &mut *out.cast::<(u64, u64)>() };
    if size >= size_of::<libc::dl_phdr_info>() {
        // SAFETY: the loader passes a valid structure, which has these members.
        let info = unsafe { &*info };
        *out = (info.dlpi_adds, info.dlpi_subs);
        return 1;
    }
    // SAFETY: every loader's structure begins with this.
    let bias = unsafe { (*info).dlpi_addr };
    *out = uncounted(*out, bias);
    0
}

/// Adds one object of a loader that does not count.
const fn uncounted((adds, sum): (u64, u64), bias: u64) -> (u64, u64) {
    (adds.wrapping_add(1), sum.wrapping_add(bias.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, size: usize, out: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid structure; a short one ends after the headers.
    let info = unsafe { &*info };
    // SAFETY: `loaded` passes its own triple.
    let out = unsafe { &mut *out.cast::<(Vec<Loaded>, u64, u64)>() };
    if size >= size_of::<libc::dl_phdr_info>() {
        (out.1, out.2) = (info.dlpi_adds, info.dlpi_subs);
    } else {
        (out.1, out.2) = uncounted((out.1, out.2), info.dlpi_addr);
    }
    let path = if info.dlpi_name.is_null() {
        String::new()
    } else {
        // SAFETY: a terminated string of the loader.
        unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned()
    };
    // SAFETY: the loader's program headers of this object.
    let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let bias = info.dlpi_addr;
    let mut module = Loaded { start: u64::MAX, end: 0, bias, path, build_id: Vec::new() };
    for header in headers {
        match header.p_type {
            libc::PT_LOAD => {
                module.start = module.start.min(bias.wrapping_add(header.p_vaddr));
                module.end = module.end.max(bias.wrapping_add(header.p_vaddr).wrapping_add(header.p_memsz));
            }
            libc::PT_NOTE => {
                let at = bias.wrapping_add(header.p_vaddr) as *const u8;
                // SAFETY: a loaded note segment; it lies inside a PT_LOAD of this object.
                let notes =
                    unsafe { core::slice::from_raw_parts(at, usize::try_from(header.p_memsz).unwrap_or(0)) };
                if module.build_id.is_empty() {
                    module.build_id = build_id(notes).unwrap_or_default();
                }
            }
            _ => {}
        }
    }
    if module.start < module.end {
        out.0.push(module);
    }
    0
}

/// The GNU build id among ELF notes.
fn build_id(mut notes: &[u8]) -> Option<Vec<u8>> {
    const NT_GNU_BUILD_ID: u32 = 3;
    loop {
        let (head, rest) = notes.split_first_chunk::<12>()?;
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *head;
        let name_bytes = u32::from_le_bytes([a, b, c, d]) as usize;
        let id_bytes = u32::from_le_bytes([e, f, g, h]) as usize;
        let kind = u32::from_le_bytes([i, j, k, l]);
        let padded = |n: usize| n.checked_add(3).map(|n| n & !3);
        let name = rest.get(..name_bytes)?;
        let rest = rest.get(padded(name_bytes)?..)?;
        let id = rest.get(..id_bytes)?;
        if kind == NT_GNU_BUILD_ID && name == b"GNU\0" {
            return Some(id.to_vec());
        }
        notes = rest.get(padded(id_bytes)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_is_loaded_and_has_a_build_id() {
        let (all, adds, _) = loaded();
        let libc = all.iter().find(|m| m.path.contains("libc.so")).unwrap();
        assert!(libc.build_id.len() >= 8);
        assert!(adds + 1 >= all.len() as u64);
        let here = loaded as fn() -> _ as usize as u64;
        assert!(all.iter().any(|m| m.path.is_empty() && (m.start..m.end).contains(&here)));
    }

    #[test]
    fn cut_notes_hold_no_build_id() {
        let note = [4, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, b'G', b'N', b'U', 0, 7, 9, 0, 0];
        assert_eq!(build_id(&note), Some(vec![7, 9]));
        for n in 0..18 {
            assert_eq!(build_id(&note[..n]), None, "{n}");
        }
        assert_eq!(build_id(&[0xff; 40]), None);
    }
}
