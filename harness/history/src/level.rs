//! Shifts of exact figures, such as growth per iteration. Each value has its own interval.
//!
//! Data flow: the figures of one test, metric, line and environment, one per judged commit in the order of the line →
//! [`fold`] → the current level, and every [`Shift`] to another one.
//!
//! A level is an interval. A figure belongs to it if their intervals overlap. A figure above the level is reported at
//! once, because its run confirmed it. A figure below is reported only if it lasts long enough for the steadiness of
//! the figure. A figure that returns before that is transient and starts no level. The fold always begins at the first
//! figure, so the order of arrival changes nothing.

use crate::Figure;
use crate::life::misses_of_a_fix;

/// Number of neighbours that determine how steady a figure is.
const WINDOW: usize = 63;
/// Fewest commits of a level.
const FEWEST: usize = 2;

/// A figure moved to another level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shift {
    /// Position of the first figure that was off the level.
    pub at: usize,
    /// Position of the figure that revealed the shift.
    pub told_at: usize,
    /// The figure before.
    pub before: f64,
    /// The figure that revealed the shift.
    pub after: f64,
    /// It returned before it became a level.
    pub is_transient: bool,
}

/// Levels and shifts of a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Levels {
    /// The current level.
    pub level: Figure,
    /// Position of the first figure of that level.
    pub since: usize,
    /// Share of the last 63 pairs of neighbours that agree. 1: it never changes.
    pub steadiness: f64,
    /// Every reported shift, the first one first.
    pub shifts: Vec<Shift>,
}

/// The levels of a figure. `None`: it was never judged. Values that are not finite are skipped.
#[must_use]
pub fn fold(figures: &[Figure]) -> Option<Levels> {
    let mut judged = figures.iter().enumerate().filter(|(_, figure)| figure.value.is_finite());
    let (since, first) = judged.next()?;
    let levels = Levels { level: *first, since, steadiness: 1.0, shifts: Vec::new() };
    let mut folding =
        Folding { levels, away: None, highest: f64::NEG_INFINITY, last: *first, agreed: Vec::new() };
    judged.for_each(|(at, figure)| folding.goes_on(at, figure));
    folding.levels.steadiness = folding.steadiness(0);
    Some(folding.levels)
}

/// State of the fold.
struct Folding {
    levels: Levels,
    away: Option<Away>,
    /// The highest figure that came and went on this level: it is not reported again.
    highest: f64,
    last: Figure,
    /// Whether each figure agreed with the one before.
    agreed: Vec<bool>,
}

/// Figures off the level on one side of it, up to the current one.
struct Away {
    at: usize,
    above: bool,
    count: usize,
    /// The first of the latest figures that agree, and the narrowest of them.
    settled: (usize, Figure),
    settled_count: usize,
    highest: f64,
    /// Range of its reported shifts.
    told: std::ops::Range<usize>,
}

impl Folding {
    fn goes_on(&mut self, at: usize, figure: &Figure) {
        self.agreed.push(overlap(&self.last, figure));
        self.last = *figure;
        if overlap(&self.levels.level, figure) {
            self.goes_back();
            self.levels.level = narrower(self.levels.level, *figure);
            return;
        }
        let above = bounds(figure).0 > bounds(&self.levels.level).1;
        if self.away.as_ref().is_some_and(|away| away.above != above) {
            self.goes_back();
        }
        let told = self.levels.shifts.len();
        let away = self.away.get_or_insert(Away {
            at,
            above,
            count: 0,
            settled: (at, *figure),
            settled_count: 0,
            highest: self.highest,
            told: told..told,
        });
        away.count += 1;
        if overlap(&away.settled.1, figure) {
            away.settled.1 = narrower(away.settled.1, *figure);
            away.settled_count += 1;
        } else {
            away.settled = (at, *figure);
            away.settled_count = 1;
        }
        let is_new = above && bounds(figure).0 > away.highest;
        away.highest = away.highest.max(bounds(figure).1);
        let (begun, count, settled_count, settled) = (away.at, away.count, away.settled_count, away.settled);
        let lasts = FEWEST.max(misses_of_a_fix(self.steadiness(count)));
        let stays = count >= lasts && settled_count >= FEWEST;
        if is_new {
            self.tell(settled.0, at, figure);
        } else if stays && self.away.as_ref().is_some_and(|away| away.told.is_empty()) {
            self.tell(begun, at, figure);
        }
        if stays {
            (self.levels.since, self.levels.level) = settled;
            (self.away, self.highest) = (None, f64::NEG_INFINITY);
        }
    }

    fn tell(&mut self, at: usize, told_at: usize, figure: &Figure) {
        let before = match &self.away {
            // After another shift: starts from the one that was reported last.
            Some(Away { told, .. }) if !told.is_empty() => self.levels.shifts.last().map(|shift| shift.after),
            _ => None,
        };
        let before = before.unwrap_or(self.levels.level.value);
        let shift = Shift { at, told_at, before, after: figure.value, is_transient: false };
        self.levels.shifts.push(shift);
        if let Some(away) = &mut self.away {
            away.told.end += 1;
        }
    }

    /// The figures off the level formed no level.
    fn goes_back(&mut self) {
        let Some(away) = self.away.take() else { return };
        if away.above {
            self.highest = self.highest.max(away.highest);
        }
        for shift in self.levels.shifts.get_mut(away.told).into_iter().flatten() {
            shift.is_transient = true;
        }
    }

    /// Share of neighbours that agree, ignoring the last few figures.
    fn steadiness(&self, without: usize) -> f64 {
        let known = self.agreed.get(..self.agreed.len().saturating_sub(without)).unwrap_or_default();
        let recent = known.get(known.len().saturating_sub(WINDOW)..).unwrap_or_default();
        if recent.is_empty() {
            return 1.0;
        }
        recent.iter().filter(|agree| **agree).count() as f64 / recent.len() as f64
    }
}

fn bounds(figure: &Figure) -> (f64, f64) {
    let (low, high) = figure.interval.unwrap_or((figure.value, figure.value));
    // An interval that does not contain its value is extended to it.
    (low.min(figure.value), high.max(figure.value))
}

fn overlap(a: &Figure, b: &Figure) -> bool {
    let ((a_low, a_high), (b_low, b_high)) = (bounds(a), bounds(b));
    a_low <= b_high && b_low <= a_high
}

/// The figure with the narrower interval. A level does not follow slow drift: its interval only becomes narrower.
fn narrower(level: Figure, figure: Figure) -> Figure {
    let width = |figure: &Figure| {
        let (low, high) = bounds(figure);
        high - low
    };
    if width(&figure) < width(&level) { figure } else { level }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::chance::Chance;

    fn exact(values: impl IntoIterator<Item = f64>) -> Vec<Figure> {
        values.into_iter().map(|value| Figure { value, interval: None }).collect()
    }

    fn between(low: f64, high: f64) -> Figure {
        Figure { value: f64::midpoint(low, high), interval: Some((low, high)) }
    }

    /// `at>told_at before→after`, with `~` if it was transient; then the level at the end.
    fn told(figures: &[Figure]) -> String {
        let levels = fold(figures).unwrap();
        let shift = |s: &Shift| {
            let transient = if s.is_transient { "~" } else { "" };
            format!("{}>{} {}→{}{transient}, ", s.at, s.told_at, s.before, s.after)
        };
        let shifts: String = levels.shifts.iter().map(shift).collect();
        format!("{shifts}{} since {}", levels.level.value, levels.since)
    }

    #[test]
    fn worse_is_told_at_once_and_better_when_it_lasts() {
        for (case, values, expected) in [
            ("worse", &[0.0, 0.0, 444.0][..], "2>2 0→444, 0 since 0"),
            ("worse for good", &[0.0, 0.0, 444.0, 444.0, 444.0], "2>2 0→444, 444 since 2"),
            ("worse twice", &[0.0, 48.0, 96.0, 96.0], "1>1 0→48, 2>2 48→96, 96 since 2"),
            ("back at once", &[0.0, 0.0, 444.0, 0.0], "2>2 0→444~, 0 since 0"),
            ("back again", &[0.0, 9.0, 0.0, 0.0, 9.0, 0.0], "1>1 0→9~, 0 since 0"),
            ("better", &[48.0, 48.0, 0.0], "48 since 0"),
            ("better for good", &[48.0, 48.0, 0.0, 0.0], "2>3 48→0, 0 since 2"),
            ("better and back", &[48.0, 48.0, 0.0, 48.0, 48.0], "48 since 0"),
            ("fixed, and worse again", &[9.0, 0.0, 0.0, 9.0], "1>2 9→0, 3>3 0→9, 0 since 1"),
            ("above, then below", &[5.0, 5.0, 9.0, 1.0, 1.0], "2>2 5→9~, 5 since 0"),
            ("one", &[7.0], "7 since 0"),
            ("no number", &[f64::NAN, 7.0, f64::INFINITY, 7.0], "7 since 1"),
        ] {
            assert_eq!(told(&exact(values.iter().copied())), expected, "{case}");
        }
        assert_eq!(fold(&[]), None);
        assert_eq!(fold(&exact([f64::NAN])), None);
    }

    #[test]
    fn intervals_that_overlap_are_one_level_and_no_drift_is_followed() {
        let drift: Vec<Figure> = (0..20).map(|n| between(f64::from(n), f64::from(n) + 10.0)).collect();
        assert!(told(&drift).starts_with("11>11 5→16, "), "{}", told(&drift));
        let open = [between(f64::NEG_INFINITY, f64::INFINITY), between(0.0, 2.0), between(3.0, 4.0)];
        assert_eq!(fold(&open).unwrap().shifts[0].told_at, 2, "the first one says nothing");
        assert_eq!(told(&[between(0.0, 4.0), between(4.0, 8.0), between(0.0, 8.0)]), "2 since 0");
    }

    #[test]
    fn zeros_and_constants_never_alarm() {
        for value in [0.0, 48.0, 1e12] {
            let levels = fold(&exact(std::iter::repeat_n(value, 100_000))).unwrap();
            assert_eq!((levels.shifts, levels.since, levels.steadiness), (vec![], 0, 1.0));
        }
    }

    #[test]
    fn after_any_zeros_the_first_leaking_run_is_told_and_once() {
        for zeros in [1, 2, 63, 64, 500] {
            let runs = std::iter::repeat_n(0.0, zeros).chain(std::iter::repeat_n(444.0, 64));
            let shifts = fold(&exact(runs)).unwrap().shifts;
            let expected =
                Shift { at: zeros, told_at: zeros, before: 0.0, after: 444.0, is_transient: false };
            assert_eq!(shifts, [expected]);
        }
    }

    #[test]
    fn what_comes_and_goes_does_not_alarm_each_time() {
        let spikes = (0..1000).map(|run| if run % 100 == 50 { 444.0 } else { 0.0 });
        assert_eq!(fold(&exact(spikes)).unwrap().shifts.len(), 1);
        let mut chance = Chance::of(3);
        let rare = (0..10_000).map(|_| if chance.uniform() < 0.02 { 16.0 } else { 0.0 });
        let rare = fold(&exact(rare)).unwrap();
        assert!(rare.shifts.len() <= 20, "{} in 10,000", rare.shifts.len());
        let small = (0..10_000).map(|_| (chance.uniform() * 4.0).floor());
        let small = fold(&exact(small)).unwrap();
        assert!(small.shifts.len() <= 10 && small.steadiness < 0.5, "{} in 10,000", small.shifts.len());
    }

    proptest! {
        #[test]
        fn any_figures_have_their_levels(
            values in proptest::collection::vec(
                (0_u8..5, proptest::option::of((any::<f64>(), any::<f64>()))),
                1..80,
            ),
        ) {
            let figure = |(value, interval): (u8, _)| Figure { value: f64::from(value), interval };
            let figures: Vec<Figure> = values.into_iter().map(figure).collect();
            let levels = fold(&figures).unwrap();
            prop_assert!(levels.since < figures.len() && (0.0..=1.0).contains(&levels.steadiness));
            for shift in &levels.shifts {
                prop_assert!(shift.at <= shift.told_at && shift.told_at < figures.len() && shift.at > 0);
                prop_assert!(shift.before != shift.after);
            }
            prop_assert!(levels.shifts.windows(2).all(|two| two[0].told_at < two[1].told_at));
        }
    }
}
