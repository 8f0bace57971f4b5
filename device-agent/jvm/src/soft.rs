//! Makes a single collection clear soft references.
//!
//! HotSpot marks a soft reference with the time of the last collection, each time the reference is made or used. With
//! `-XX:SoftRefLRUPolicyMSPerMB=0` a collection clears the references whose mark is older than the last collection. So
//! two collections are needed to clear the references that a test used.
//!
//! Here the clock is set back by a millisecond after each collection: references that a test then uses get an older
//! mark. Before the next collection the clock is set right again, and that collection clears all of them.

use core::sync::atomic::{AtomicI64, Ordering};

use jni::objects::JValue;
use jni::{Env, jni_sig, jni_str};

use super::machine::clearing;

/// [`SoftReferences::before`] while the clock is not set back.
const NOT_SET_BACK: i64 = 0;

/// The clock of `java.lang.ref.SoftReference`.
#[derive(Debug, Default)]
pub(super) struct SoftReferences {
    /// The value of the clock before it was set back.
    before: AtomicI64,
}

impl SoftReferences {
    /// Sets the clock back, after a collection.
    pub(super) fn set_back(&self, env: &mut Env<'_>) {
        let Some(now) = clock(env).filter(|now| *now > NOT_SET_BACK) else { return };
        if set_clock(env, now.saturating_sub(1)) {
            self.before.store(now, Ordering::Relaxed);
        }
    }

    /// Sets the clock right. Returns true if the next collection clears all references that were used since
    /// [`Self::set_back`]. Returns false if another collection came in between and set the clock itself.
    pub(super) fn set_right(&self, env: &mut Env<'_>) -> bool {
        let before = self.before.swap(NOT_SET_BACK, Ordering::Relaxed);
        before != NOT_SET_BACK && clock(env) == Some(before.saturating_sub(1)) && set_clock(env, before)
    }
}

fn clock(env: &mut Env<'_>) -> Option<i64> {
    clearing(env, |env| {
        let class = env.find_class(jni_str!("java/lang/ref/SoftReference"))?;
        env.get_static_field(class, jni_str!("clock"), jni_sig!("J"))?.j()
    })
    .ok()
}

fn set_clock(env: &mut Env<'_>, time: i64) -> bool {
    clearing(env, |env| {
        let class = env.find_class(jni_str!("java/lang/ref/SoftReference"))?;
        env.set_static_field(class, jni_str!("clock"), jni_sig!("J"), JValue::Long(time))
    })
    .is_ok()
}
