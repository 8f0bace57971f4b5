//! A class file into which the agent inserts its calls, as the JVM provides it.
//!
//! Besides not crashing: the result is a class file that reads like the input and accepts calls again.

use memgate_classfile::{Call, Place, insert_calls};

const fn call(place: Place) -> Call<'static> {
    Call {
        method: "started",
        descriptor: "(Ljava/lang/Object;)V",
        place,
        class: "io/memgate/agent/Hooks",
        callee: "junit4Started",
    }
}

/// Runs one input.
///
/// # Panics
/// When a checked property does not hold; this is a finding.
pub fn run(data: &[u8]) {
    for calls in [&[call(Place::Start)][..], &[call(Place::End)], &[call(Place::End), call(Place::Start)]] {
        let Ok(once) = insert_calls(data, calls) else { continue };
        assert_eq!(once.get(..8), data.get(..8), "magic number and version");
        assert!(once.len() > data.len());
        // A class may have no room for further calls, but it is never damaged.
        if let Ok(twice) = insert_calls(&once, calls) {
            assert!(twice.len() > once.len());
        }
    }
}
