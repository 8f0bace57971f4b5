//! Judges one Java class at the ends of a test: it grows, its growth is over, or it is undecided.
//!
//! Data flow: a [`ClassSeries`] → the slopes of its instances and bytes ([`crate::growth`]) → shapes that look like
//! growth but may be over ([`super::shape`], [`super::pool`]) → its holders ([`super::held`]) → [`Seen`].

use std::collections::BTreeMap;

use memgate_wire::java::Holders;

use super::held::{HeldBy, Noise, can_hold_more, held, leads_to_own};
use super::names::is_literal;
use super::pool::rises_with;
use super::series::ClassSeries;
use super::shape::{
    FEW_STEPS, gives_back, grew, has_stalled, is_regular, rise_of_lows, rises_each_time, usual,
    usual_enlargement,
};
use crate::growth::{Allowed, Finding, Growth, is_over, judge_series, steps};
use crate::stats::as_f64;

/// A compiler resolves only a few short strings. More bytes than this per iteration are something else.
pub(crate) const LITERAL_BYTES: f64 = 4096.0;
/// Object sizes are multiples of this.
const ALIGNMENT: f64 = 8.0;
/// Objects whose number grew by a smaller share than that of strings do not hold these in their fields.
const HOLDING_SHARE: f64 = 0.1;

/// A class that keeps growing.
#[derive(Debug, Clone)]
pub(crate) struct Growing {
    pub(crate) series: ClassSeries,
    /// Instances per iteration. 0: only its bytes grow.
    pub(crate) count: f64,
    /// Bytes per iteration.
    pub(crate) bytes: f64,
    /// Total growth in bytes.
    pub(super) grown_bytes: f64,
    /// Most iterations add the same.
    pub(super) is_regular: bool,
    /// Each iteration adds something, either instances or bytes.
    pub(super) is_steady: bool,
    /// Its holders, as far as known.
    pub(crate) held: HeldBy,
}

impl Growing {
    /// A class without known holders that grows by this many instances and bytes.
    pub(super) fn counted(series: ClassSeries, count: f64, bytes: f64) -> Self {
        let grown_bytes = grew(&series.bytes);
        Self { series, count, bytes, grown_bytes, is_regular: true, is_steady: true, held: HeldBy::Unknown }
    }
}

/// Data about the classes of a test.
pub(super) struct Classes<'a> {
    pub(super) explained: &'a BTreeMap<&'a str, Vec<&'a Holders>>,
    pub(super) project: &'a str,
    /// By how many instances each class rose.
    pub(super) rises: BTreeMap<String, f64>,
    /// Threads at the ends, if they may be those of a pool that is filling.
    pub(super) threads: Option<Vec<f64>>,
    pub(super) warm_up: usize,
    pub(super) confidence: f64,
}

/// Behaviour of one class.
pub(super) enum Seen {
    /// It does not grow, or no longer.
    Over,
    /// Undecided.
    Open {
        class: String,
        /// Estimated bytes per iteration.
        bytes: f64,
        /// It rose so rarely that the rises may be accidents.
        rises_rarely: bool,
    },
    /// It grew, but may have stopped.
    Stalled { class: String, bytes: f64 },
    /// It keeps growing.
    Grows {
        growing: Growing,
        /// Not only by bytes.
        by_count: bool,
        has_paused: bool,
        /// Why it is no leak.
        noise: Option<Noise>,
    },
}

impl Classes<'_> {
    /// No holder of this class is known.
    pub(super) fn is_unexplained(&self, class: &str) -> bool {
        !self.explained.contains_key(class)
    }

    /// Judges a class.
    pub(super) fn look(&self, series: ClassSeries) -> Seen {
        let warm_up = self.warm_up;
        // Most classes that grew once are over: this check is much cheaper than a slope.
        if is_over(&series.instances, warm_up) && is_over(&series.bytes, warm_up) {
            return Seen::Over;
        }
        let instances = self.judge(&series.instances, 1.0);
        let bytes = self.judge(&series.bytes, ALIGNMENT);
        let [by_count, by_bytes] = [&instances, &bytes].map(|growth| growth.finding == Finding::Grows);
        if !by_count && !by_bytes {
            if ![&instances, &bytes].iter().any(|growth| growth.finding == Finding::Open) {
                return Seen::Over;
            }
            let few_steps =
                [&series.instances, &series.bytes].iter().all(|figures| steps(figures, warm_up) < FEW_STEPS);
            let rises_rarely = few_steps && !is_literal(&series.class);
            return Seen::Open { class: series.class, bytes: bytes.slope.slope, rises_rarely };
        }
        let figures = if by_count { &series.instances } else { &series.bytes };
        // A low point slightly above the earlier ones may be a rare leak. More iterations show it.
        let rise = rise_of_lows(figures, warm_up);
        if rise.is_some_and(|rise| rise <= 0.0) {
            return Seen::Over;
        }
        let accidental = self.is_unexplained(&series.class) && steps(figures, warm_up) < FEW_STEPS;
        let of_a_pool = self.threads.as_ref().is_some_and(|threads| rises_with(figures, threads, warm_up));
        // Strings and arrays are never open, only over or growing.
        let may_be_over = !is_literal(&series.class) && gives_back(figures, warm_up);
        if accidental || of_a_pool || rise.is_some() || may_be_over || has_stalled(figures, warm_up) {
            return Seen::Stalled { class: series.class, bytes: bytes.slope.slope };
        }
        let has_paused = if by_count { instances.paused } else { bytes.paused };
        let (growing, noise) = self.growing(series, by_count, &instances, &bytes);
        Seen::Grows { growing, by_count, has_paused, noise }
    }

    fn judge(&self, values: &[f64], block: f64) -> Growth {
        let (warm_up, confidence) = (self.warm_up, self.confidence);
        judge_series(values, Allowed { limit: 0.0, block, warm_up, confidence })
    }

    /// A growing class, and the reason if it is no leak.
    fn growing(
        &self,
        mut series: ClassSeries,
        by_count: bool,
        instances: &Growth,
        bytes: &Growth,
    ) -> (Growing, Option<Noise>) {
        let Self { explained, project, rises, warm_up, .. } = self;
        let warm_up = *warm_up;
        let slope = if by_count { instances.slope.slope } else { bytes.slope.slope };
        let irregular = !is_regular(if by_count { &series.instances } else { &series.bytes }, slope, warm_up);
        let is_steady =
            rises_each_time(&series.instances, warm_up) || rises_each_time(&series.bytes, warm_up);
        let grown_bytes = grew(&series.bytes);
        let step = usual(&mut series.instances, warm_up);
        let enlarged = usual_enlargement(&series.bytes, warm_up, ALIGNMENT)
            .filter(|_| step.is_none() && is_literal(&series.class));
        let step_of_bytes = usual(&mut series.bytes, warm_up).or(enlarged);
        // One array replaces another. Other arrays that come and go belong to the virtual machine.
        let is_enlarged = step.is_none() && step_of_bytes.is_some();
        let by_count = by_count && !is_enlarged;
        let count = if by_count { step.unwrap_or(instances.slope.slope) } else { 0.0 };
        let told = explained.get(series.class.as_str()).map_or(&[][..], Vec::as_slice);
        let (held, mut noise) = match held(told, (&series.class, count), project) {
            Ok(held) => (held, None),
            // Only bytes grow: no object of an execution survives the next one, so none has a holder.
            Err(Noise::Unheld) if !by_count => (HeldBy::Unknown, None),
            // The surviving literals are other objects than the array that is enlarged.
            Err(Noise::Literals) if enlarged.is_some() => (HeldBy::Unknown, None),
            Err(noise) => (HeldBy::Unknown, Some(noise)),
        };
        // The JDK keeps a few names of its own. They do not explain objects that come irregularly.
        let of_the_jdk = !is_enlarged
            && match &held {
                HeldBy::Unknown => irregular,
                HeldBy::Paths { paths, .. } => irregular && step.is_none() && !paths.iter().any(leads_to_own),
            };
        if noise.is_none() && is_literal(&series.class) && bytes.slope.slope < LITERAL_BYTES {
            if of_the_jdk {
                noise = Some(Noise::Irregular);
            } else if let HeldBy::Paths { paths, complete: true, .. } = &held
                && by_count
            {
                let added = instances.slope.slope * as_f64(series.instances.len().saturating_sub(warm_up));
                let grows = |class: &str| rises.get(class).is_some_and(|rise| *rise > HOLDING_SHARE * added);
                if !paths.iter().any(|path| can_hold_more(path, grows)) {
                    noise = Some(Noise::Replaced);
                }
            }
        }
        let bytes = step_of_bytes.unwrap_or(bytes.slope.slope).max(0.0);
        let is_regular = !by_count || step.is_some();
        let is_steady = is_steady || by_count && step.is_some();
        (Growing { series, count, bytes, grown_bytes, is_regular, is_steady, held }, noise)
    }
}
