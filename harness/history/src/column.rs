//! The values of one metric for all tests of a run, in the order of the roster, packed into bytes.
//!
//! Layout: one byte for the version, one byte for the encoding, then a zlib stream of
//!
//! 1. one bit per test, "has a value" (a test that was not judged has none, which is not zero),
//! 2. the values of those that have one, in the encoding,
//! 3. the intervals: slot (as the distance from the previous one, doubled; odd: the interval consists of the value
//!    alone, as for nearly every test without a leak), low, high: floats; steps in encoding 2. In version 1 distances
//!    are not doubled and all bounds are floats.
//!
//! | encoding | values | exact |
//! |---|---|---|
//! | 1 | whole numbers, zigzag varints | yes |
//! | 2 | steps of 2 % of the logarithm, zigzag varints: for figures that vary more than that between runs | no |
//! | 3 | floats: the first bytes of all values, then the second bytes, and so on | yes |
//!
//! zlib instead of zstd: it needs no C compiler, and packs zeros and plateaus as well.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use memgate_model::Metric;

use crate::roster::MOST_TESTS;
use crate::varint::{put, take, unzigzag, zigzag};

const VERSION: u8 = 2;
/// In this version every interval has both bounds. It was written until November 2026.
const ALL_BOUNDS: u8 = 1;
const WHOLE: u8 = 1;
const STEPS: u8 = 2;
const FLOATS: u8 = 3;
/// Above this, not every whole number is a float.
const LARGEST_WHOLE: f64 = 9_007_199_254_740_992.0;
const STEP: f64 = 1.02;
/// Most bytes that a value can take, including its interval.
const LARGEST_VALUE: u64 = 10 + 5 + 16;

/// A figure of a test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// Best estimate.
    pub value: f64,
    /// Lower and upper bound, if there is an interval.
    pub interval: Option<(f64, f64)>,
}

/// The bytes are not a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("read the values of {tests} tests: {why}")]
pub struct ColumnError {
    /// Expected number of tests.
    pub tests: usize,
    /// Description of the error.
    pub why: &'static str,
}

/// Are the values of a metric stored in steps of 2 %? Such figures are displayed but never judged.
#[must_use]
pub const fn is_rounded(metric: Metric) -> bool {
    matches!(metric, Metric::OsRss | Metric::OsPss | Metric::JavaAllocatedBytes | Metric::JavaMetaspace)
}

/// Does a figure of a test vary from run to run? That of a suite (no name) does, even if it is measured exactly:
/// another test, or a thread that ends later, changes what is left at its end.
#[must_use]
pub const fn is_noisy(metric: Metric, test: &str) -> bool {
    test.is_empty() || is_rounded(metric)
}

/// Precision of the stored values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// Stored exactly.
    Exact,
    /// Stored in steps of 2 %.
    Rounded,
}

impl Precision {
    /// The precision for a metric.
    #[must_use]
    pub const fn of(metric: Metric) -> Self {
        if is_rounded(metric) { Self::Rounded } else { Self::Exact }
    }
}

/// Encodes `figures`, one per test.
#[must_use]
pub fn encode(figures: &[Option<Figure>], precision: Precision) -> Vec<u8> {
    let values: Vec<f64> = figures.iter().flatten().map(|figure| figure.value).collect();
    let encoding = if precision == Precision::Rounded {
        STEPS
    } else if values.iter().all(|value| value.fract() == 0.0 && value.abs() < LARGEST_WHOLE) {
        WHOLE
    } else {
        FLOATS
    };
    let mut plain = bitmap(figures);
    match encoding {
        FLOATS => {
            for at in 0..8 {
                plain.extend(values.iter().map(|value| value.to_be_bytes()[at]));
            }
        }
        WHOLE => values.iter().for_each(|value| put(&mut plain, zigzag(whole(*value)))),
        _ => values.iter().for_each(|value| put(&mut plain, zigzag(steps(*value)))),
    }
    let mut last = 0;
    for (slot, figure) in figures.iter().enumerate() {
        let Some((low, high)) = figure.and_then(|figure| figure.interval) else { continue };
        let distance = 2 * (slot - last) as u64;
        last = slot;
        if figure.is_some_and(|figure| figure.value == low && low == high) {
            put(&mut plain, distance + 1);
            continue;
        }
        put(&mut plain, distance);
        for bound in [low, high] {
            if encoding == STEPS {
                put(&mut plain, zigzag(steps_of_bound(bound)));
            } else {
                plain.extend(bound.to_le_bytes());
            }
        }
    }
    let mut packed = ZlibEncoder::new(vec![VERSION, encoding], Compression::default());
    let written = packed.write_all(&plain);
    debug_assert!(written.is_ok(), "memory takes everything");
    packed.finish().unwrap_or_default()
}

/// Inverse of [`encode`], for `tests` tests.
///
/// # Errors
/// The bytes are not a column of this many tests.
pub fn decode(bytes: &[u8], tests: usize) -> Result<Vec<Option<Figure>>, ColumnError> {
    let mut figures = vec![None; tests.min(MOST_TESTS)];
    for (slot, figure) in decode_where(bytes, tests, |_, _| true)? {
        if let Some(place) = figures.get_mut(slot) {
            *place = Some(figure);
        }
    }
    Ok(figures)
}

/// The figures of wanted slots, in order. `wanted` is called for each slot with a value; its second argument is whether
/// the value is zero. This is for curves over a thousand runs, which need one slot of each, while most values are zero.
///
/// # Errors
/// The bytes are not a column of this many tests.
pub fn decode_where(
    bytes: &[u8],
    tests: usize,
    mut wanted: impl FnMut(usize, bool) -> bool,
) -> Result<Vec<(usize, Figure)>, ColumnError> {
    let wrong = |why| ColumnError { tests, why };
    let Plain { version, encoding, bytes } = inflate(bytes, tests)?;
    let (bits, mut rest) = bytes.split_at_checked(tests.div_ceil(8)).ok_or_else(|| wrong("it ends early"))?;
    let slots = || (0..tests).filter(|slot| has(bits, *slot));
    let mut found = Vec::new();
    let mut find = |slot, value| found.push((slot, Figure { value, interval: None }));
    let broken = || wrong("its values are broken");
    match encoding {
        WHOLE | STEPS => {
            for slot in slots() {
                let number = unzigzag(take(&mut rest).ok_or_else(broken)?);
                if wanted(slot, number == 0) {
                    find(slot, if encoding == WHOLE { number as f64 } else { from_steps(number) });
                }
            }
        }
        FLOATS => {
            let count = slots().count();
            let (planes, behind) = rest.split_at_checked(count * 8).ok_or_else(broken)?;
            rest = behind;
            for (at, slot) in slots().enumerate() {
                let value = plane(planes, count, at).ok_or_else(broken)?;
                if wanted(slot, value == 0.0) {
                    find(slot, value);
                }
            }
        }
        _ => return Err(broken()),
    }
    let mut at = 0;
    let bounds_in = match (version, encoding) {
        (ALL_BOUNDS, _) => Bounds::OfAll,
        (_, STEPS) => Bounds::Steps,
        _ => Bounds::Floats,
    };
    intervals(bounds_in, rest, |slot, bounds| {
        while found.get(at).is_some_and(|(found, _)| *found < slot) {
            at += 1;
        }
        if let Some((_, figure)) = found.get_mut(at).filter(|(found, _)| *found == slot) {
            figure.interval = Some(bounds.unwrap_or((figure.value, figure.value)));
        }
        (slot < tests && has(bits, slot)).then_some(())
    })
    .ok_or_else(|| wrong("its intervals are broken"))?;
    Ok(found)
}

/// An inflated column.
struct Plain {
    version: u8,
    encoding: u8,
    bytes: Vec<u8>,
}

fn inflate(bytes: &[u8], tests: usize) -> Result<Plain, ColumnError> {
    let wrong = |why| ColumnError { tests, why };
    if tests > MOST_TESTS {
        return Err(wrong("no run has so many"));
    }
    let [version @ (ALL_BOUNDS | VERSION), encoding, packed @ ..] = bytes else {
        return Err(wrong("another version"));
    };
    let most = tests as u64 * LARGEST_VALUE + tests as u64 / 8 + 1;
    let mut plain = Vec::new();
    let read = ZlibDecoder::new(packed).take(most + 1).read_to_end(&mut plain);
    read.map_err(|_broken| wrong("it does not inflate"))?;
    if plain.len() as u64 > most {
        return Err(wrong("it is too long"));
    }
    Ok(Plain { version: *version, encoding: *encoding, bytes: plain })
}

/// Does the test at `slot` have a value?
fn has(bits: &[u8], slot: usize) -> bool {
    bits.get(slot / 8).is_some_and(|byte| byte >> (slot % 8) & 1 == 1)
}

/// Encoding of interval bounds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bounds {
    /// As floats, for every interval.
    OfAll,
    Floats,
    Steps,
}

/// Calls `each` for every interval with its slot. There are no bounds if the interval is the value alone. `None`: the
/// bytes are invalid, or `each` returned `None`.
fn intervals(
    written: Bounds,
    mut rest: &[u8],
    mut each: impl FnMut(usize, Option<(f64, f64)>) -> Option<()>,
) -> Option<()> {
    let mut slot = 0_usize;
    while !rest.is_empty() {
        let told = usize::try_from(take(&mut rest)?).ok()?;
        let (distance, is_value) =
            if written == Bounds::OfAll { (told, false) } else { (told / 2, told % 2 == 1) };
        slot = slot.checked_add(distance)?;
        let mut bound = || match written {
            Bounds::Steps => take(&mut rest).map(|steps| bound_of_steps(unzigzag(steps))),
            _ => float(&mut rest),
        };
        let bounds = if is_value { None } else { Some((bound()?, bound()?)) };
        each(slot, bounds)?;
    }
    Some(())
}

fn bitmap(figures: &[Option<Figure>]) -> Vec<u8> {
    let byte = |eight: &[Option<Figure>]| {
        eight.iter().enumerate().fold(0, |byte, (at, figure)| byte | u8::from(figure.is_some()) << at)
    };
    figures.chunks(8).map(byte).collect()
}

/// A float whose bytes are `count` bytes apart.
fn plane(planes: &[u8], count: usize, at: usize) -> Option<f64> {
    let mut bytes = [0; 8];
    for (plane, byte) in bytes.iter_mut().enumerate() {
        *byte = *planes.get(plane * count + at)?;
    }
    Some(f64::from_be_bytes(bytes))
}

fn float(rest: &mut &[u8]) -> Option<f64> {
    let (bytes, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(f64::from_le_bytes(*bytes))
}

#[expect(clippy::cast_possible_truncation, reason = "a whole number below 2^53, or a logarithm")]
const fn whole(value: f64) -> i64 {
    value as i64
}

/// 0 for zero, otherwise the number of 2 % steps above 1, plus one, with the sign of the value.
fn steps(value: f64) -> i64 {
    if value == 0.0 {
        return 0;
    }
    let size = whole((value.abs().clamp(1.0, f64::MAX).ln() / STEP.ln()).round()) + 1;
    if value < 0.0 { -size } else { size }
}

/// A bound may be infinite.
fn steps_of_bound(bound: f64) -> i64 {
    match bound {
        f64::INFINITY => i64::MAX,
        f64::NEG_INFINITY => -i64::MAX,
        bound => steps(bound),
    }
}

fn bound_of_steps(steps: i64) -> f64 {
    match steps {
        i64::MAX => f64::INFINITY,
        steps if steps <= -i64::MAX => f64::NEG_INFINITY,
        steps => from_steps(steps),
    }
}

fn from_steps(steps: i64) -> f64 {
    let size = |steps: i64| STEP.powf((steps.unsigned_abs() - 1) as f64);
    match steps {
        0 => 0.0,
        1.. => size(steps),
        _ => -size(steps),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Precision::{Exact, Rounded};
    use super::*;

    fn figures() -> impl Strategy<Value = Vec<Option<Figure>>> {
        let interval = proptest::option::of((any::<f64>(), any::<f64>()));
        let value = prop_oneof![Just(0.0), (-1000_i32..1000).prop_map(f64::from), -1e9..1e9];
        let figure = (value, interval, any::<bool>()).prop_map(|(value, interval, is_value)| Figure {
            value,
            interval: if is_value { Some((value, value)) } else { interval },
        });
        proptest::collection::vec(proptest::option::of(figure), 0..200)
    }

    type Bits = Vec<Option<(u64, Option<(u64, u64)>)>>;

    fn one(bytes: &[u8], tests: usize, slot: usize) -> Result<Option<Figure>, ColumnError> {
        Ok(decode_where(bytes, tests, |at, _| at == slot)?.pop().map(|(_, figure)| figure))
    }

    /// NaN is not equal to itself.
    fn bits(figures: &[Option<Figure>]) -> Bits {
        let of = |figure: &Figure| {
            (figure.value.to_bits(), figure.interval.map(|(low, high)| (low.to_bits(), high.to_bits())))
        };
        figures.iter().map(|figure| figure.as_ref().map(of)).collect()
    }

    proptest! {
        #[test]
        fn every_exact_column_comes_back(figures in figures()) {
            let back = decode(&encode(&figures, Exact), figures.len()).unwrap();
            // -0 becomes 0.
            let plain = |figures: &[Option<Figure>]| bits(&figures.iter().map(|figure| figure.map(|f| Figure { value: f.value + 0.0, interval: f.interval.map(|(low, high)| (low + 0.0, high + 0.0)) })).collect::<Vec<_>>());
            prop_assert_eq!(plain(&back), plain(&figures));
        }

        #[test]
        fn one_figure_is_what_it_is_among_all(figures in figures(), rounded: bool) {
            let column = encode(&figures, if rounded { Rounded } else { Exact });
            let all = decode(&column, figures.len()).unwrap();
            for slot in 0..figures.len() {
                let one = one(&column, figures.len(), slot).unwrap();
                prop_assert_eq!(bits(&[one]), bits(&all[slot..=slot]));
            }
            prop_assert_eq!(one(&column, figures.len(), figures.len()).unwrap(), None);
            for (slot, figure) in decode_where(&column, figures.len(), |_, is_zero| !is_zero).unwrap() {
                prop_assert!(figure.value != 0.0 && bits(&[Some(figure)]) == bits(&all[slot..=slot]));
            }
        }

        #[test]
        fn rounded_values_are_within_one_percent(value in 1.0..1e12_f64) {
            let back = decode(&encode(&[Some(Figure { value, interval: None })], Rounded), 1).unwrap();
            let near = back[0].unwrap().value;
            prop_assert!((near / value - 1.0).abs() < 0.0101, "{value} {near}");
        }

        #[test]
        fn any_bytes_are_an_error_or_a_column(mut bytes: Vec<u8>, tests in 0_usize..100) {
            drop(decode(&bytes, tests));
            bytes.splice(0..0, [VERSION, WHOLE]);
            drop(decode(&bytes, tests));
        }

        #[test]
        fn a_cut_or_changed_column_does_no_harm(figures in figures(), at: usize, bit in 0..8) {
            let mut bytes = encode(&figures, Exact);
            let at = at % bytes.len();
            bytes[at] ^= 1_u8 << bit;
            drop(decode(&bytes, figures.len()));
            drop(decode(&bytes[..at], figures.len()));
        }
    }

    #[test]
    fn bounds_of_rounded_values_are_rounded_and_open_ones_stay_open() {
        let figure = |value, interval| Some(Figure { value, interval });
        let figures =
            [figure(1e6, Some((0.9e6, 1.1e6))), figure(5.0, Some((f64::NEG_INFINITY, f64::INFINITY)))];
        let back = decode(&encode(&figures, Rounded), 2).unwrap();
        let (low, high) = back[0].unwrap().interval.unwrap();
        assert!((low / 0.9e6 - 1.0).abs() < 0.0101 && (high / 1.1e6 - 1.0).abs() < 0.0101, "{low} {high}");
        assert_eq!(back[1].unwrap().interval, Some((f64::NEG_INFINITY, f64::INFINITY)));
    }

    #[test]
    fn a_column_of_the_first_version_is_read() {
        // Bytes of that version: 3, no value, 0 with the interval 0 to 0.5.
        let mut plain = vec![0b101, 6, 0, 2];
        plain.extend(0.0_f64.to_le_bytes());
        plain.extend(0.5_f64.to_le_bytes());
        let mut packed = ZlibEncoder::new(vec![ALL_BOUNDS, WHOLE], Compression::best());
        packed.write_all(&plain).unwrap();
        let figure = |value, interval| Some(Figure { value, interval });
        let figures = [figure(3.0, None), None, figure(0.0, Some((0.0, 0.5)))];
        assert_eq!(decode(&packed.finish().unwrap(), 3).unwrap(), figures);
    }

    #[test]
    fn a_test_that_was_not_judged_is_not_zero() {
        let figures = [Some(Figure { value: 0.0, interval: None }), None];
        assert_eq!(decode(&encode(&figures, Exact), 2).unwrap(), figures);
    }

    #[test]
    fn a_bomb_is_refused_before_it_fills_the_memory() {
        let mut packed = ZlibEncoder::new(vec![VERSION, WHOLE], Compression::best());
        packed.write_all(&vec![0; 100 << 20]).unwrap();
        let bomb = packed.finish().unwrap();
        assert!(bomb.len() < 200_000);
        assert_eq!(decode(&bomb, 5000).unwrap_err().why, "it is too long");
    }

    #[test]
    fn a_length_that_no_run_has_is_refused() {
        let column = encode(&[], Exact);
        for tests in [MOST_TESTS + 1, usize::MAX] {
            assert_eq!(decode(&column, tests).unwrap_err().why, "no run has so many");
        }
    }

    #[test]
    fn a_rounded_value_beyond_all_measure_stays_the_largest() {
        let back = |value| {
            decode(&encode(&[Some(Figure { value, interval: None })], Rounded), 1).unwrap()[0].unwrap().value
        };
        assert!(back(f64::INFINITY) > 1e307 && back(f64::NEG_INFINITY) < -1e307);
        assert_eq!((back(0.3), back(0.0)), (1.0, 0.0));
    }

    #[test]
    fn five_thousand_zeros_are_a_few_bytes() {
        let zeros = vec![Some(Figure { value: 0.0, interval: None }); 5000];
        assert!(encode(&zeros, Exact).len() < 60, "{}", encode(&zeros, Exact).len());
    }
}
