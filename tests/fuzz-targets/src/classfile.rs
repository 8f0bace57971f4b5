//! A class file into which the agent inserts its calls, as the JVM hands it over.
//!
//! Besides living through it: what comes out is a class file that reads like the one that went in,
//! and takes calls again.

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

/// One input.
///
/// # Panics
/// Where it does not hold: that is a finding.
pub fn run(data: &[u8]) {
    for calls in [&[call(Place::Start)][..], &[call(Place::End)], &[call(Place::End), call(Place::Start)]] {
        let Ok(once) = insert_calls(data, calls) else { continue };
        assert_eq!(once.get(..8), data.get(..8), "magic number and version");
        assert!(once.len() > data.len());
        // A class may be too full for a second time; damaged it is not.
        if let Ok(twice) = insert_calls(&once, calls) {
            assert!(twice.len() > once.len());
        }
    }
}
