//! A heap dump, whole or not, and every query on it: a consistent answer or an error. A rules file: rules or
//! a reported mistake. Tailor's output: a dump or an error. A ledger: a consistent one or an error.

use memgate_hprof::read::{DumpFile, ReadError};
use memgate_hprof::{
    Cropped, Dominators, Heap, Index, Ledger, Question, Rules, changes, growth, lonely, restore, tree,
    trim_file, uncrop,
};

/// An object takes at least this many bytes of a file.
const LEAST: usize = 9;

/// Accepts a bounded number of bytes: restored arrays may be long.
struct Bounded<'a>(&'a mut Vec<u8>);

impl std::io::Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > 16 << 20 {
            return Err(std::io::Error::other("more than is wanted here"));
        }
        self.0.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn quiet(_: &'static str, _: u64, _: Option<u64>) {}

/// Runs every query; none may change what the first pass counted.
fn ask(bytes: &[u8], rules: &Rules) -> Result<(), ReadError> {
    let file = DumpFile::of_bytes(bytes)?;
    let heap = Heap::read(file.clone(), rules, &quiet)?;
    let dump = &heap.dump;
    assert!(dump.bytes <= bytes.len() as u64 || file.packing() != memgate_hprof::read::Packing::Plain);
    assert!(dump.objects() as u64 <= dump.bytes / LEAST as u64 + 1, "{} objects", dump.objects());
    assert_eq!(dump.counts, Index::read(&file, &quiet)?.counts, "read twice");
    let question = Question {
        wanted: vec!["byte[]".to_owned(), "java.lang.String".to_owned()],
        only_wanted: false,
        ways: 0,
    };
    let found = heap.analyse(rules, &question, &quiet)?;
    let objects: u64 = found.leaks.iter().chain(&found.library_leaks).map(|leak| leak.objects).sum();
    assert!(objects <= heap.graph.len() as u64 && objects <= found.attributed_objects);
    for leak in found.leaks.iter().chain(&found.library_leaks) {
        let text = tree(leak);
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }
    found.unreachable.iter().for_each(|node| assert!(!lonely(node).is_empty()));
    let question = Question { wanted: vec!["byte[]".to_owned()], only_wanted: true, ways: 2 };
    let ways = heap.analyse(rules, &question, &quiet)?;
    assert!(ways.leaks.len() + ways.library_leaks.len() <= 2);
    let ledger = heap.ledger(rules, &quiet)?;
    assert_eq!(ledger.check(), Ok(()), "its own ledger");
    assert!(changes(&ledger, &ledger).is_empty());
    let places = heap.places(rules, &quiet)?;
    assert_eq!(places.check(), Ok(()), "its own places");
    let placed: u64 = places.holds.iter().map(|held| held.count).sum();
    assert!(
        places.truncated || placed == places.objects,
        "{placed} of {} objects have a place",
        places.objects
    );
    let same = [ledger.clone(), ledger.clone(), ledger];
    assert_eq!(growth(&same, 1).as_deref(), Some(&[][..]), "what stays the same does not grow");
    let mut copy = Vec::new();
    let trimmed = trim_file(&file, &heap.kept_in_private(rules), &mut Bounded(&mut copy), &quiet);
    assert!(trimmed.is_err() || copy.len() as u64 <= dump.bytes, "a trimmed copy is no longer");
    let mut whole = Vec::new();
    if Cropped::of(&file, &quiet)? == Cropped::Cropped
        && uncrop(&file, &mut Bounded(&mut whole), &quiet).is_ok()
    {
        assert_eq!(Cropped::of(&DumpFile::of_bytes(whole)?, &quiet)?, Cropped::Whole);
    }
    heap.threads(&quiet)?;
    heap.texts(3, &quiet)?;
    let Heap { dump, graph, .. } = heap;
    let dominators = Dominators::of(&dump, graph, &quiet);
    let top: u64 = dominators
        .below(None, usize::MAX)
        .0
        .into_iter()
        .filter_map(|object| dominators.retained(object))
        .fold(0, u64::saturating_add);
    assert_eq!(top, dominators.bytes(), "what the roots retain is all there is");
    let count: u64 = dominators.by_class(&dump).iter().map(|class| class.count).sum();
    assert_eq!(count, dominators.reachable() as u64);
    Ok(())
}

/// Runs one input.
///
/// # Panics
/// When a checked property does not hold; this is a finding.
pub fn run(data: &[u8]) {
    let Some((how, rest)) = data.split_first() else { return };
    let mut rules = Rules::default();
    if how & 1 == 1 {
        let Ok(text) = std::str::from_utf8(rest) else { return };
        if let Err(why) = rules.add(text) {
            assert!(!why.to_string().is_empty());
        }
        return;
    }
    if how & 2 == 2 {
        let mut restored = Vec::new();
        match restore(rest, &mut Bounded(&mut restored)) {
            Ok(bytes) => assert_eq!(bytes, restored.len() as u64),
            Err(why) => assert!(!why.to_string().is_empty()),
        }
        return;
    }
    if how & 4 == 4 {
        let Ok(ledger) = serde_json::from_slice::<Ledger>(rest) else { return };
        if ledger.check().is_ok() {
            let three = [Ledger { holds: Vec::new(), ..ledger.clone() }, ledger.clone(), ledger];
            let growing = growth(&three, 1).unwrap_or_default();
            assert!(growing.is_empty(), "the last step rises nowhere");
        }
        return;
    }
    // Parsed once because it never changes.
    static BUILT_IN: std::sync::LazyLock<Rules> =
        std::sync::LazyLock::new(|| Rules::built_in().expect("the built-in rules are rules"));
    if let Err(why) = ask(rest, &BUILT_IN) {
        assert!(!why.to_string().is_empty());
    }
}
