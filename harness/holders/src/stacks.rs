//! Finds the function whose frame contains a place on a stack, without unwind tables: a call by this function left
//! the nearest return address below the place. The call instruction before a return address distinguishes it from a
//! number that only looks like one.

use crate::maps::Mapping;
use crate::memory::{Memory, Reader, WORD};

/// How far below a place to search.
const FARTHEST: u64 = 1 << 20;

/// A return address into the function whose frame contains `at`; `None`: none was found above `stack_pointer`.
#[must_use]
pub fn function_at(memory: &dyn Memory, mappings: &[Mapping], stack_pointer: u64, at: u64) -> Option<u64> {
    let from = stack_pointer.max(at.saturating_sub(FARTHEST));
    let mut found = None;
    let mut reader = Reader::new(memory);
    let is_code = |value: u64| mappings.iter().any(|m| m.executable && m.range.contains(&value));
    reader.words(from..at, &mut || true, |_, value| {
        let value = without_signature(value);
        if is_code(value) && follows_a_call(memory, value) {
            found = Some(value);
        }
    });
    found
}

/// Is there a call instruction of this machine right before this address?
fn follows_a_call(memory: &dyn Memory, address: u64) -> bool {
    if cfg!(target_arch = "aarch64") {
        follows_a_call_on_aarch64(memory, address)
    } else {
        follows_a_call_on_x86_64(memory, address)
    }
}

fn follows_a_call_on_x86_64(memory: &dyn Memory, address: u64) -> bool {
    const LONGEST: usize = 7;
    let mut code = [0; LONGEST];
    let start = address.saturating_sub(LONGEST as u64);
    if memory.read(start, &mut code) < LONGEST {
        return false;
    }
    let before = |bytes: usize| LONGEST.checked_sub(bytes).and_then(|at| code.get(at)).copied().unwrap_or(0);
    // call rel32; call r/m64, in its lengths.
    before(5) == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(|n| before(n) == 0xff && before(n - 1) >> 3 & 7 == 2)
}

fn follows_a_call_on_aarch64(memory: &dyn Memory, address: u64) -> bool {
    let mut code = [0; 4];
    if !address.is_multiple_of(4) || memory.read(address.saturating_sub(4), &mut code) < code.len() {
        return false;
    }
    let instruction = u32::from_le_bytes(code);
    // bl; blr, and with authentication of its target.
    [(0xfc00_0000, 0x9400_0000), (0xffff_fc1f, 0xd63f_0000), (0xfeff_f800, 0xd63f_0800)]
        .into_iter()
        .any(|(mask, call)| instruction & mask == call)
}

/// A return address without its signature: addresses of arm64 processes have 48 bits.
const fn without_signature(value: u64) -> u64 {
    if cfg!(target_arch = "aarch64") { value & ((1 << 48) - 1) } else { value }
}

/// glibc's control block of the thread between two addresses: its first and third words are its own address, and it
/// contains an id that `is_id` accepts.
pub(crate) fn control_block(
    memory: &dyn Memory,
    range: std::ops::Range<u64>,
    is_id: impl Fn(u32) -> bool,
) -> Option<u64> {
    const THREAD_ID: u64 = 0x2d0;
    let mut candidates = Vec::new();
    let mut reader = Reader::new(memory);
    reader.words(range, &mut || true, |at, value| {
        if at == value {
            candidates.push(at);
        }
    });
    let is_one = |at: &u64| {
        let mut again = Reader::new(memory);
        again.word(at.wrapping_add(2 * WORD)) == Some(*at)
            && again
                .word(at.wrapping_add(THREAD_ID))
                .is_some_and(|id| is_id(u32::try_from(id & u64::from(u32::MAX)).unwrap_or_default()))
    };
    candidates.into_iter().find(is_one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::tests::Image;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_nearest_return_address_below_a_place_names_its_function() {
        let mut image = Image::default();
        let code = Mapping {
            range: 0x40_0000..0x40_1000,
            writable: false,
            executable: true,
            shared: false,
            name: String::new(),
            of_file: true,
        };
        // At 0x400018: after `call rel32`. At 0x400030: after `call *8(%rax)`. 0x400040: after none.
        image.put(0x40_0010, &[0xe800_0000]);
        image.put(0x40_0028, &[0x0850_ff00_0000_0000]);
        image.put(0x40_0038, &[0]);
        image.put(0x7000, &[0x40_0018, 1, 0x40_0030, 0x40_0040, 2, 3]);
        let at = |sp, place| function_at(&image, std::slice::from_ref(&code), sp, place);
        assert_eq!(at(0x7000, 0x7008), Some(0x40_0018));
        assert_eq!(at(0x7000, 0x7028), Some(0x40_0030));
        assert_eq!(at(0x7018, 0x7028), None);
    }

    #[test]
    fn calls_of_aarch64_are_told_from_other_instructions() {
        let mut image = Image::default();
        // bl, blr x8, blraa x8, x9, b, br x8, ret
        let code = [0x9400_0010_u32, 0xd63f_0100, 0xd73f_0909, 0x1400_0010, 0xd61f_0100, 0xd65f_03c0];
        let words: Vec<u64> =
            code.chunks(2).map(|pair| u64::from(pair[0]) | u64::from(pair[1]) << 32).collect();
        image.put(0x40_0000, &words);
        let calls = (1..=6).map(|n| follows_a_call_on_aarch64(&image, 0x40_0000 + 4 * n));
        assert_eq!(calls.collect::<Vec<_>>(), [true, true, true, false, false, false]);
        assert!(!follows_a_call_on_aarch64(&image, 0x40_0006));
    }

    #[test]
    fn a_control_block_is_told_by_its_own_address_and_its_thread() {
        let mut image = Image::default();
        image.put(0x1_8000, &[0x1_8000, 5, 6]);
        image.put(0x1_9000, &[0x1_9000, 5, 0x1_9000]);
        image.put(0x1_92d0, &[77 | 1 << 32]);
        // Fills the gaps, because real memory has none.
        for at in (0x1_7000..0x1_a000_u64).step_by(8) {
            if image.read(at, &mut [0; 8]) == 0 {
                image.put(at, &[0]);
            }
        }
        assert_eq!(control_block(&image, 0x1_7000..0x1_a000, |id| id == 77), Some(0x1_9000));
        assert_eq!(control_block(&image, 0x1_7000..0x1_a000, |id| id == 78), None);
    }
}
