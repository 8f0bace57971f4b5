//! Finds tests whose leftovers were freed by later tests.
//!
//! Data flow: a test of the screen ends and something survives → its boundary and its epochs are noted → all tests of
//! the program have run, and one walk over the live blocks shows which of the noted tests still own a block → the other
//! tests are reported (`memgate_wire::Freed`).

use memgate_tracker::table::Entry;

/// The noted tests, in the order of their epochs.
#[derive(Default)]
pub(crate) struct Leavers(Vec<Leaver>);

struct Leaver {
    /// The boundary at its end.
    boundary: u32,
    /// The first and the last epoch in which blocks of the test were allocated.
    epochs: (u32, u32),
    owns_some: bool,
}

impl Leavers {
    /// Notes that something survived the test that ends with this boundary. Without memory, it is not noted.
    pub(crate) fn note(&mut self, boundary: u32, epochs: (u32, u32)) {
        let follows = self.0.last().is_none_or(|last| last.epochs.1 <= epochs.0);
        if follows && self.0.try_reserve(1).is_ok() {
            self.0.push(Leaver { boundary, epochs, owns_some: false });
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Epochs restart: live blocks can no longer be matched to tests.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }

    /// The boundaries of noted tests that own no live block. Afterwards the list is empty. `scan` visits every live
    /// block that was born in the given epoch or later.
    pub(crate) fn freed(&mut self, scan: impl FnOnce(u32, &mut dyn FnMut(Entry))) -> Vec<u32> {
        let Some(first) = self.0.first().map(|leaver| leaver.epochs.0) else { return Vec::new() };
        scan(first, &mut |entry| {
            // Two tests share an epoch if one ended twice, or if one ran within the other.
            let from = self.0.partition_point(|leaver| leaver.epochs.1 < entry.epoch);
            let of = self.0.iter_mut().skip(from).take_while(|leaver| leaver.epochs.0 <= entry.epoch);
            of.for_each(|leaver| leaver.owns_some = true);
        });
        self.0.retain(|leaver| !leaver.owns_some);
        core::mem::take(&mut self.0).into_iter().map(|leaver| leaver.boundary).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn freed(noted: &[(u32, (u32, u32))], alive: &[u32]) -> Vec<u32> {
        let mut leavers = Leavers::default();
        noted.iter().for_each(|&(boundary, epochs)| leavers.note(boundary, epochs));
        leavers.freed(|from, visit| {
            let alive = alive.iter().filter(|epoch| **epoch >= from);
            alive.for_each(|&epoch| visit(Entry { size: 8, stack: 0, epoch }));
        })
    }

    #[test]
    fn only_who_owns_no_live_block_is_told() {
        let noted = [(4, (3, 3)), (8, (5, 5)), (9, (6, 8)), (20, (9, 9))];
        assert_eq!(freed(&noted, &[]), [4, 8, 9, 20]);
        assert_eq!(freed(&noted, &[2, 4, 10]), [4, 8, 9, 20], "blocks of others");
        assert_eq!(freed(&noted, &[3, 3, 9]), [8, 9]);
        assert_eq!(freed(&noted, &[7]), [4, 8, 20], "born while another test ran within it");
        assert_eq!(freed(&[], &[3]), [0; 0]);
    }

    #[test]
    fn who_ended_twice_owns_the_blocks_of_both_ends() {
        assert_eq!(freed(&[(4, (3, 3)), (5, (3, 3))], &[3]), [0; 0]);
        assert_eq!(freed(&[(4, (3, 3)), (5, (3, 3))], &[5]), [4, 5]);
    }

    #[test]
    fn who_cannot_be_told_apart_from_others_is_not_noted() {
        assert_eq!(freed(&[(4, (3, 9)), (5, (4, 4))], &[]), [4], "it ended within the other");
        let mut leavers = Leavers::default();
        leavers.note(4, (3, 3));
        leavers.forget();
        assert_eq!(leavers.freed(|_, _| panic!("there is nothing to look for")), [0; 0]);
    }
}
