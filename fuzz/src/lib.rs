//! Connects libFuzzer with the targets, which live in `tests/fuzz-targets`.

#[doc(hidden)]
pub use libfuzzer_sys;
#[doc(hidden)]
pub use memgate_fuzz_targets as targets;

/// Defines the fuzz target of this name for libFuzzer. A stream of frames is mutated frame by frame.
#[macro_export]
macro_rules! fuzz {
    ($name:ident) => {
        $crate::libfuzzer_sys::fuzz_target!(|data: &[u8]| $crate::targets::$name::run(data));

        $crate::libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
            let target = $crate::targets::TARGETS.iter().find(|target| target.name == stringify!($name));
            let change = $crate::libfuzzer_sys::fuzzer_mutate;
            match target.and_then(|target| target.frames_at) {
                Some(at) => $crate::targets::mutate_frames(data, size, max_size, seed, at, change),
                None => change(data, size, max_size),
            }
        });
    };
}
