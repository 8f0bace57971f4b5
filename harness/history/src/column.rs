//! The values of one metric over all tests of a run, in the order of the roster, as a few bytes.
//!
//! Layout: one byte version, one byte encoding, then a zlib stream of
//!
//! 1. one bit a test, "has a value" (a test that was not judged has none, which is not zero),
//! 2. the values of those that have one, by the encoding,
//! 3. the values with an interval: slot (as the distance from the one before), low, high.
//!
//! | encoding | values | exact |
//! |---|---|---|
//! | 1 | whole numbers, zigzag varints | yes |
//! | 2 | steps of 2 % of the logarithm, zigzag varints: figures that differ more than that from run to run | no |
//! | 3 | floats, the first bytes of all, then the second ones | yes |
//!
//! zlib instead of zstd: it needs no C compiler, and zeros and plateaus pack as well.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use memgate_model::Metric;

use crate::roster::MOST_TESTS;
use crate::varint::{put, take, unzigzag, zigzag};

const VERSION: u8 = 1;
const WHOLE: u8 = 1;
const STEPS: u8 = 2;
const FLOATS: u8 = 3;
/// Beyond it not every whole number is a float.
const LARGEST_WHOLE: f64 = 9_007_199_254_740_992.0;
const STEP: f64 = 1.02;
/// Bytes that a value can take at most: the value, and its interval.
const LARGEST_VALUE: u64 = 10 + 5 + 16;

/// A figure of a test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// Best estimate.
    pub value: f64,
    /// Lower and upper bound, where there is an interval.
    pub interval: Option<(f64, f64)>,
}

/// Bytes that are no column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("read the values of {tests} tests: {why}")]
pub struct ColumnError {
    /// How many there should be.
    pub tests: usize,
    /// What is wrong.
    pub why: &'static str,
}

/// Are the values of a metric kept in steps of 2 %? Such figures are shown, and never judged.
#[must_use]
pub const fn is_rounded(metric: Metric) -> bool {
    matches!(metric, Metric::OsRss | Metric::OsPss | Metric::JavaAllocatedBytes | Metric::JavaMetaspace)
}

/// The column of `figures`, one per test; `rounded`: in steps of 2 %.
#[must_use]
pub fn encode(figures: &[Option<Figure>], rounded: bool) -> Vec<u8> {
    let values: Vec<f64> = figures.iter().flatten().map(|figure| figure.value).collect();
    let encoding = if rounded {
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
        put(&mut plain, (slot - last) as u64);
        plain.extend(low.to_le_bytes());
        plain.extend(high.to_le_bytes());
        last = slot;
    }
    let mut packed = ZlibEncoder::new(vec![VERSION, encoding], Compression::default());
    let written = packed.write_all(&plain);
    debug_assert!(written.is_ok(), "memory takes everything");
    packed.finish().unwrap_or_default()
}

/// The way back, for `tests` tests.
///
/// # Errors
/// The bytes are no column of so many tests.
pub fn decode(bytes: &[u8], tests: usize) -> Result<Vec<Option<Figure>>, ColumnError> {
    let wrong = |why| ColumnError { tests, why };
    let Plain { encoding, bytes } = inflate(bytes, tests)?;
    let (bits, mut rest) = bytes.split_at_checked(tests.div_ceil(8)).ok_or_else(|| wrong("it ends early"))?;
    let count = (0..tests).filter(|slot| has(bits, *slot)).count();
    let mut values =
        values(encoding, count, &mut rest).ok_or_else(|| wrong("its values are broken"))?.into_iter();
    let mut figures: Vec<Option<Figure>> = (0..tests)
        .map(|slot| {
            values.by_ref().next_if_has(has(bits, slot)).map(|value| Figure { value, interval: None })
        })
        .collect();
    intervals(rest, |slot, interval| {
        figures.get_mut(slot)?.as_mut()?.interval = Some(interval);
        Some(())
    })
    .ok_or_else(|| wrong("its intervals are broken"))?;
    Ok(figures)
}

/// The figure of the test at `slot` alone: a curve over a thousand runs wants one of each.
///
/// # Errors
/// The bytes are no column of so many tests, as far as is seen on the way to this figure.
pub fn decode_one(bytes: &[u8], tests: usize, slot: usize) -> Result<Option<Figure>, ColumnError> {
    let wrong = |why| ColumnError { tests, why };
    let Plain { encoding, bytes } = inflate(bytes, tests)?;
    let (bits, mut rest) = bytes.split_at_checked(tests.div_ceil(8)).ok_or_else(|| wrong("it ends early"))?;
    if slot >= tests || !has(bits, slot) {
        return Ok(None);
    }
    let before = (0..slot).filter(|slot| has(bits, *slot)).count();
    let after = (slot + 1..tests).filter(|slot| has(bits, *slot)).count();
    let value = value(encoding, (before, after), &mut rest).ok_or_else(|| wrong("its values are broken"))?;
    let mut figure = Figure { value, interval: None };
    intervals(rest, |at, interval| {
        if at == slot {
            figure.interval = Some(interval);
        }
        Some(())
    })
    .ok_or_else(|| wrong("its intervals are broken"))?;
    Ok(Some(figure))
}

/// A column that was inflated.
struct Plain {
    encoding: u8,
    bytes: Vec<u8>,
}

fn inflate(bytes: &[u8], tests: usize) -> Result<Plain, ColumnError> {
    let wrong = |why| ColumnError { tests, why };
    if tests > MOST_TESTS {
        return Err(wrong("no run has so many"));
    }
    let [VERSION, encoding, packed @ ..] = bytes else { return Err(wrong("another version")) };
    let most = tests as u64 * LARGEST_VALUE + tests as u64 / 8 + 1;
    let mut plain = Vec::new();
    let read = ZlibDecoder::new(packed).take(most + 1).read_to_end(&mut plain);
    read.map_err(|_broken| wrong("it does not inflate"))?;
    if plain.len() as u64 > most {
        return Err(wrong("it is too long"));
    }
    Ok(Plain { encoding: *encoding, bytes: plain })
}

/// Has the test at `slot` a value?
fn has(bits: &[u8], slot: usize) -> bool {
    bits.get(slot / 8).is_some_and(|byte| byte >> (slot % 8) & 1 == 1)
}

/// Hands every interval with its slot to `each`; `None`: the bytes are none, or `each` says so.
fn intervals(mut rest: &[u8], mut each: impl FnMut(usize, (f64, f64)) -> Option<()>) -> Option<()> {
    let mut slot = 0_usize;
    while !rest.is_empty() {
        slot = slot.checked_add(usize::try_from(take(&mut rest)?).ok()?)?;
        let low = float(&mut rest)?;
        let high = float(&mut rest)?;
        each(slot, (low, high))?;
    }
    Some(())
}

/// Takes an item only where there is one.
trait NextIf: Iterator {
    fn next_if_has(&mut self, has: bool) -> Option<Self::Item> {
        if has { self.next() } else { None }
    }
}

impl<I: Iterator> NextIf for I {}

fn bitmap(figures: &[Option<Figure>]) -> Vec<u8> {
    let byte = |eight: &[Option<Figure>]| {
        eight.iter().enumerate().fold(0, |byte, (at, figure)| byte | u8::from(figure.is_some()) << at)
    };
    figures.chunks(8).map(byte).collect()
}

fn values(encoding: u8, count: usize, rest: &mut &[u8]) -> Option<Vec<f64>> {
    match encoding {
        WHOLE => (0..count).map(|_| take(rest).map(|value| unzigzag(value) as f64)).collect(),
        STEPS => (0..count).map(|_| take(rest).map(|value| from_steps(unzigzag(value)))).collect(),
        FLOATS => {
            let (planes, after) = rest.split_at_checked(count.checked_mul(8)?)?;
            *rest = after;
            (0..count).map(|at| plane(planes, count, at)).collect()
        }
        _ => None,
    }
}

/// The value that has so many before and after it.
fn value(encoding: u8, (before, after): (usize, usize), rest: &mut &[u8]) -> Option<f64> {
    let skip = |rest: &mut &[u8], count: usize| (0..count).try_for_each(|_| take(rest).map(drop));
    match encoding {
        WHOLE | STEPS => {
            skip(rest, before)?;
            let number = unzigzag(take(rest)?);
            skip(rest, after)?;
            Some(if encoding == WHOLE { number as f64 } else { from_steps(number) })
        }
        FLOATS => {
            let count = before + 1 + after;
            let (planes, behind) = rest.split_at_checked(count.checked_mul(8)?)?;
            *rest = behind;
            plane(planes, count, before)
        }
        _ => None,
    }
}

/// A float whose bytes lie `count` apart.
fn plane(planes: &[u8], count: usize, at: usize) -> Option<f64> {
    let bytes: Option<Vec<u8>> = (0..8).map(|plane| planes.get(plane * count + at).copied()).collect();
    Some(f64::from_be_bytes(bytes?.try_into().ok()?))
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

/// 0, or the signed number of 2 % steps from 1, moved away from 0.
fn steps(value: f64) -> i64 {
    if value == 0.0 {
        return 0;
    }
    let size = whole((value.abs().clamp(1.0, f64::MAX).ln() / STEP.ln()).round()) + 1;
    if value < 0.0 { -size } else { size }
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

    use super::*;

    fn figures() -> impl Strategy<Value = Vec<Option<Figure>>> {
        let interval = proptest::option::of((any::<f64>(), any::<f64>()));
        let value = prop_oneof![Just(0.0), (-1000_i32..1000).prop_map(f64::from), -1e9..1e9];
        let figure = (value, interval).prop_map(|(value, interval)| Figure { value, interval });
        proptest::collection::vec(proptest::option::of(figure), 0..200)
    }

    type Bits = Vec<Option<(u64, Option<(u64, u64)>)>>;

    /// Where bytes are a column, one of its figures is what it is among all.
    fn agrees(bytes: &[u8], tests: usize) -> Result<(), TestCaseError> {
        let (all, one) = (decode(bytes, tests), decode_one(bytes, tests, tests / 2));
        match all {
            Ok(all) => prop_assert_eq!(
                one.map(|one| bits(&[one])),
                Ok(bits(&[all.get(tests / 2).copied().flatten()]))
            ),
            Err(_broken) => drop(one.map(|one| bits(&[one]))),
        }
        Ok(())
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
            let back = decode(&encode(&figures, false), figures.len()).unwrap();
            // -0 becomes 0.
            let plain = |figures: &[Option<Figure>]| bits(&figures.iter().map(|figure| figure.map(|f| Figure { value: f.value + 0.0, ..f })).collect::<Vec<_>>());
            prop_assert_eq!(plain(&back), plain(&figures));
        }

        #[test]
        fn one_figure_is_what_it_is_among_all(figures in figures(), rounded: bool) {
            let column = encode(&figures, rounded);
            let all = decode(&column, figures.len()).unwrap();
            for slot in 0..figures.len() {
                let one = decode_one(&column, figures.len(), slot).unwrap();
                prop_assert_eq!(bits(&[one]), bits(&all[slot..=slot]));
            }
            prop_assert_eq!(decode_one(&column, figures.len(), figures.len()).unwrap(), None);
        }

        #[test]
        fn rounded_values_are_within_one_percent(value in 1.0..1e12_f64) {
            let back = decode(&encode(&[Some(Figure { value, interval: None })], true), 1).unwrap();
            let near = back[0].unwrap().value;
            prop_assert!((near / value - 1.0).abs() < 0.0101, "{value} {near}");
        }

        #[test]
        fn any_bytes_are_an_error_or_a_column(mut bytes: Vec<u8>, tests in 0_usize..100) {
            drop(decode(&bytes, tests));
            bytes.splice(0..0, [VERSION, WHOLE]);
            drop(decode(&bytes, tests));
            agrees(&bytes, tests)?;
        }

        #[test]
        fn a_cut_or_changed_column_does_no_harm(figures in figures(), at: usize, bit in 0..8) {
            let mut bytes = encode(&figures, false);
            let at = at % bytes.len();
            bytes[at] ^= 1_u8 << bit;
            drop(decode(&bytes, figures.len()));
            drop(decode(&bytes[..at], figures.len()));
            agrees(&bytes, figures.len())?;
        }
    }

    #[test]
    fn a_test_that_was_not_judged_is_not_zero() {
        let figures = [Some(Figure { value: 0.0, interval: None }), None];
        assert_eq!(decode(&encode(&figures, false), 2).unwrap(), figures);
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
        let column = encode(&[], false);
        for tests in [MOST_TESTS + 1, usize::MAX] {
            assert_eq!(decode(&column, tests).unwrap_err().why, "no run has so many");
        }
    }

    #[test]
    fn a_rounded_value_beyond_all_measure_stays_the_largest() {
        let back = |value| {
            decode(&encode(&[Some(Figure { value, interval: None })], true), 1).unwrap()[0].unwrap().value
        };
        assert!(back(f64::INFINITY) > 1e307 && back(f64::NEG_INFINITY) < -1e307);
        assert_eq!((back(0.3), back(0.0)), (1.0, 0.0));
    }

    #[test]
    fn five_thousand_zeros_are_a_few_bytes() {
        let zeros = vec![Some(Figure { value: 0.0, interval: None }); 5000];
        assert!(encode(&zeros, false).len() < 60, "{}", encode(&zeros, false).len());
    }
}
