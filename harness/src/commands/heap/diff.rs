//! `memgate heap diff`: shows what changed between two dumps.
//!
//! Data flow: both dumps, one after the other → objects by class, or by class and place (as ledgers) → differences, the
//! largest first → exit code 1 if one is over a limit.

use std::collections::BTreeMap;

use memgate_hprof::read::Oddities;
use memgate_hprof::{Index, Ledger, changes};

use super::Answer;
use super::growth;
use super::read::{Dump, bad, read_index, read_original, read_rules};
use super::show::{Changed, Shown};
use super::watch::Watch;
use crate::cli::HeapBy;
use crate::exit::{self, ExpectedError};

/// Allowed growth.
#[derive(Clone, Copy)]
pub(super) struct Most {
    pub(super) bytes: Option<u64>,
    pub(super) count: Option<u64>,
}

impl Most {
    /// The exit code; `otherwise`: nothing is over a limit.
    fn code(self, changes: &[Changed], otherwise: u8) -> u8 {
        let over = |most: Option<u64>, change: i64| {
            most.is_some_and(|most| u64::try_from(change).is_ok_and(|grown| grown > most))
        };
        let is_over = |change: &Changed| over(self.bytes, change.bytes) || over(self.count, change.count);
        if changes.iter().any(is_over) { exit::FAIL } else { otherwise }
    }
}

pub(super) fn diff(
    by: HeapBy,
    dumps: [Dump<'_>; 2],
    most: Most,
    (top, allow_truncated): (usize, bool),
    watch: &Watch<'_>,
) -> Result<Answer, ExpectedError> {
    let Changes { changes, odd, written, ledgers } = match by {
        HeapBy::Class => of_classes(dumps, watch)?,
        HeapBy::Path => of_places(dumps, |dump| places(dump, watch))?,
        HeapBy::Container => of_places(dumps, |dump| growth::read(dump, watch))?,
    };
    let files = dumps.map(|dump| dump.path);
    if most.bytes.or(most.count).is_some() {
        growth::in_order(files.into_iter().zip(written))?;
    }
    let code = most.code(&changes, growth::unless_cut(&ledgers, allow_truncated));
    let odd = files.map(ToOwned::to_owned).into_iter().zip(odd).collect();
    Ok(Answer { shown: Shown::diff(by, changes, top), code, odd })
}

/// What changed between two dumps.
struct Changes {
    changes: Vec<Changed>,
    odd: [Oddities; 2],
    /// When each was written.
    written: [u64; 2],
    /// Those that were compared; none by class.
    ledgers: Vec<Ledger>,
}

fn of_classes([old, new]: [Dump<'_>; 2], watch: &Watch<'_>) -> Result<Changes, ExpectedError> {
    let read = |dump: Dump<'_>| -> Result<(ByName, Oddities, u64), ExpectedError> {
        let dump = read_index(dump, watch)?;
        Ok((by_name(&dump), dump.odd, dump.header.milliseconds))
    };
    let ((before, odd_before, first), (mut after, odd_after, second)) = (read(old)?, read(new)?);
    let mut changes: Vec<Changed> = Vec::new();
    for (class, before) in before {
        let after = after.remove(&class).unwrap_or_default();
        changes.push(Changed::new(class, before, after));
    }
    changes.extend(after.into_iter().map(|(class, after)| Changed::new(class, (0, 0), after)));
    changes.retain(|change| change.bytes != 0 || change.count != 0);
    changes
        .sort_by_key(|change| std::cmp::Reverse((change.bytes.unsigned_abs(), change.count.unsigned_abs())));
    Ok(Changes { changes, odd: [odd_before, odd_after], written: [first, second], ledgers: Vec::new() })
}

fn of_places(
    [old, new]: [Dump<'_>; 2],
    read: impl Fn(Dump<'_>) -> Result<(Ledger, Oddities), ExpectedError>,
) -> Result<Changes, ExpectedError> {
    let ((before, odd_before), (after, odd_after)) = (read(old)?, read(new)?);
    let written = [before.milliseconds, after.milliseconds];
    let changes = changes(&before, &after).into_iter().map(|(class, at)| Changed::at(class, at)).collect();
    Ok(Changes { changes, odd: [odd_before, odd_after], written, ledgers: vec![before, after] })
}

/// All objects of a dump by their place.
fn places(dump: Dump<'_>, watch: &Watch<'_>) -> Result<(Ledger, Oddities), ExpectedError> {
    let rules = read_rules(&[])?;
    let heap = read_original(dump, &rules, watch)?;
    let places = watch.passes(|told| heap.places(&rules, told)).map_err(bad(dump.path))?;
    Ok((places, heap.dump.odd))
}

/// Objects and bytes by the name of their class.
type ByName = BTreeMap<String, (u64, u64)>;

pub(super) fn by_name(dump: &Index) -> ByName {
    let mut all = ByName::new();
    for (name, tally) in dump.kinds() {
        let sum = all.entry(name.to_owned()).or_default();
        *sum = (sum.0 + tally.count, sum.1.saturating_add(tally.bytes));
    }
    all
}
