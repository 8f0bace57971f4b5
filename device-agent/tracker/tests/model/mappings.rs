//! The mappings: each thread changes its own part of one mapping, and exactly the remaining parts are left.

use std::sync::Arc;

use loom::thread;
use memgate_tracker::mappings::{Mappings, Owner, Placed, Span};

use crate::check;

/// First page and end page.
type Pages = (usize, usize);

const WHOLE: Pages = (100, 110);

fn span((first, end): Pages) -> Span {
    Span::of(first * Span::PAGE, (end - first) * Span::PAGE).expect("a span")
}

fn mapped(is_reserved: bool) -> Arc<Mappings> {
    let mappings = Mappings::new();
    mappings.insert(span(WHOLE), Owner::new(7, 0, is_reserved), Placed::ByKernel);
    Arc::new(mappings)
}

#[track_caller]
fn holds(mappings: &Mappings, want: &[Pages]) {
    let mut held = Vec::new();
    assert!(mappings.each(|span, _| held.push(span)), "nobody changes it any more");
    assert!(!mappings.is_lost());
    assert!(want.iter().all(|pages| held.contains(&span(*pages))) && held.len() == want.len(), "{held:?}");
}

/// Each thread unmaps one part and finds it. Afterwards, `rest` is left.
fn threads_unmap(parts: [Pages; 2], rest: &'static [Pages]) {
    let mappings = mapped(false);
    let threads = parts.map(|part| {
        let mappings = Arc::clone(&mappings);
        thread::spawn(move || {
            assert!(mappings.is_noted(span(part)), "missed");
            assert_eq!(mappings.remove(span(part)), Some(Owner::new(7, 0, false)));
        })
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    holds(&mappings, rest);
}

#[test]
fn parts_unmapped_by_two_threads() {
    let rest = &[(100, 102), (104, 106), (108, 110)];
    check("parts_unmapped_by_two_threads", (2, 3), || threads_unmap([(102, 104), (106, 108)], rest));
}

/// If the beginning of a mapping is unmapped, its remaining part moves to another slot.
#[test]
fn beginning_and_part_unmapped_by_two_threads() {
    let rest = &[(102, 106), (108, 110)];
    check("beginning_and_part_unmapped_by_two_threads", (2, 3), || {
        threads_unmap([(100, 102), (106, 108)], rest);
    });
}

#[test]
fn both_halves_unmapped_by_two_threads() {
    check("both_halves_unmapped_by_two_threads", (2, 3), || threads_unmap([(100, 105), (105, 110)], &[]));
}

#[test]
fn parts_made_accessible_by_two_threads() {
    check("parts_made_accessible_by_two_threads", (2, 3), || {
        let mappings = mapped(true);
        let threads = [(100, 102), (106, 108)].map(|part| {
            let mappings = Arc::clone(&mappings);
            thread::spawn(move || mappings.becomes_accessible(span(part)))
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        holds(&mappings, &[(100, 102), (106, 108)]);
        assert!(mappings.has_reserved());
        mappings.remove(span(WHOLE));
        holds(&mappings, &[]);
        assert!(!mappings.has_reserved());
    });
}

/// A concurrent reader learns that something has changed, or sees the state before or after the change.
#[test]
fn look_while_a_part_is_unmapped() {
    check("look_while_a_part_is_unmapped", (2, 3), || {
        let mappings = mapped(false);
        let unmaps = {
            let mappings = Arc::clone(&mappings);
            thread::spawn(move || mappings.remove(span((104, 106))))
        };
        let mut bytes = 0;
        let is_whole = mappings.each(|span, _| bytes += span.bytes());
        assert!(!is_whole || [10, 8].map(|pages| pages * Span::PAGE as u64).contains(&bytes), "{bytes}");
        unmaps.join().unwrap();
    });
}
