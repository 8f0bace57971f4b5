//! Public dumps, compared with the results of LeakCanary's Shark, AOSP's ahat and hprof-slurp.
//!
//! They are not part of this project: `MEMGATE_HPROF_DUMPS` names their folder (else `shared/fixtures/hprof` next to
//! the checkout), unpacked or packed by xz, with the files that those programs printed in `oracle/`. Without it these
//! tests report that they are skipped. By the git blob of the unpacked dump:
//!
//! | file | blob | from |
//! |---|---|---|
//! | `leak_asynctask_pre_m.hprof` | a1d60adc | square/leakcanary, `shark/shark-android/src/test/resources` |
//! | `ahat-O.hprof`, `ahat-RI.hprof` | d474c6c6, 9482542a | AOSP `art/tools/ahat/etc` |
//! | `hprof-slurp-hprof-64.bin` | ab6c7f31 | agourlay/hprof-slurp, `test-heap-dumps` |
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "what a test cannot do without fails it")]

use std::collections::HashMap;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use memgate_hprof::read::DumpFile;
use memgate_hprof::{
    Analysis, Counts, Dominators, Heap, Index, Packed, Question, Rules, leakcanary, lonely, restore, tree,
    trim_file,
};

fn folder() -> Option<PathBuf> {
    let beside = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/fixtures/hprof"));
    let named = std::env::var_os("MEMGATE_HPROF_DUMPS").map(PathBuf::from);
    let folder = named.or_else(|| Some(beside).filter(|folder| folder.is_dir()));
    if folder.is_none() {
        skipped("MEMGATE_HPROF_DUMPS names no folder with the public dumps");
    }
    folder
}

/// Printed even though the test passes; `tests/run` counts and names skipped tests.
fn skipped(why: &str) {
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    std::io::stderr().write_all(format!("{test} skipped: {why}\n").as_bytes()).unwrap();
    if let Some(list) = std::env::var_os("MEMGATE_SKIPPED") {
        let mut list = fs::OpenOptions::new().create(true).append(true).open(list).unwrap();
        list.write_all(format!("{test}: {why}\n").as_bytes()).unwrap();
    }
}

fn bytes(name: &str) -> Option<Vec<u8>> {
    let plain = folder()?.join(name);
    if plain.exists() {
        return Some(fs::read(plain).unwrap());
    }
    let packed = PathBuf::from(format!("{}.xz", plain.display()));
    let unpacked = Command::new("xz").arg("-dc").arg(&packed).output().unwrap();
    assert!(unpacked.status.success(), "{}", packed.display());
    Some(unpacked.stdout)
}

fn oracle(name: &str) -> Option<String> {
    Some(fs::read_to_string(folder()?.join("oracle").join(name)).unwrap())
}

fn heap(bytes: Vec<u8>) -> Heap {
    let file = DumpFile::of_bytes(bytes).unwrap();
    Heap::read(file, &Rules::built_in().unwrap(), &|_, _, _| ()).unwrap()
}

fn analysis(bytes: Vec<u8>) -> Analysis {
    let rules = Rules::built_in().unwrap();
    heap(bytes).analyse(&rules, &Question::default(), &|_, _, _| ()).unwrap()
}

#[test]
fn every_record_is_counted() {
    for (name, want, roots) in [
        (
            "leak_asynctask_pre_m.hprof",
            Counts {
                strings: 23361,
                loaded: 3631,
                traces: 1,
                segments: 683,
                sub_records: 57312,
                heap_infos: 595,
                classes: 3631,
                instances: 25977,
                object_arrays: 2060,
                primitive_arrays: 13717,
                elements: 34690,
                ..Counts::default()
            },
            vec![
                (0x01, 270),
                (0x02, 7),
                (0x03, 99),
                (0x05, 3631),
                (0x08, 12),
                (0x89, 7309),
                (0x8a, 1),
                (0x8b, 3),
            ],
        ),
        (
            "ahat-O.hprof",
            Counts {
                strings: 9792,
                loaded: 2148,
                frames: 1554,
                traces: 145,
                segments: 1780,
                sub_records: 145_458,
                heap_infos: 1084,
                classes: 2148,
                instances: 51470,
                object_arrays: 1512,
                primitive_arrays: 27335,
                elements: 24945,
            },
            vec![
                (0x01, 95),
                (0x02, 7),
                (0x03, 66),
                (0x04, 6),
                (0x05, 2152),
                (0x08, 6),
                (0x89, 22765),
                (0x8b, 55),
                (0x8d, 36749),
                (0xff, 8),
            ],
        ),
    ] {
        let Some(bytes) = bytes(name) else { return };
        let dump = Index::read(&DumpFile::of_bytes(bytes).unwrap(), &|_, _, _| ()).unwrap();
        assert_eq!(dump.counts, want, "{name}");
        let mut found: HashMap<u8, u64> = HashMap::new();
        dump.roots.iter().for_each(|root| *found.entry(root.tag).or_default() += 1);
        assert_eq!(found, roots.into_iter().collect(), "{name}");
        assert!(dump.odd.is_empty(), "{name}: {:?}", dump.odd);
    }
    let Some(bytes) = bytes("hprof-slurp-hprof-64.bin") else { return };
    let dump = Index::read(&DumpFile::of_bytes(bytes).unwrap(), &|_, _, _| ()).unwrap();
    let counts = &dump.counts;
    assert_eq!((counts.strings, counts.classes, counts.traces, counts.frames), (10768, 474, 10, 20));
    assert_eq!((counts.segments, counts.sub_records), (1, 8715));
}

#[test]
fn leaks_are_those_of_leakcanary_line_by_line() {
    let Some(bytes) = bytes("leak_asynctask_pre_m.hprof") else { return };
    let shark = oracle("leak_asynctask_pre_m.hprof.sharkhead.txt").unwrap();
    let found = analysis(bytes);
    assert_eq!((found.attributed_bytes, found.attributed_objects), (193_431, 546));
    assert_eq!((found.leaks.len(), found.library_leaks.len(), found.unreachable.len()), (2, 0, 1));
    for leak in &found.leaks {
        let told = format!(
            "{} bytes retained by leaking objects\nLeak fingerprint: {}\n{}",
            leak.attributed,
            leak.fingerprint,
            tree(leak)
        );
        assert!(shark.contains(&told), "LeakCanary has no\n{told}");
    }
    let gone = lonely(&found.unreachable[0]);
    assert!(shark.contains(&gone), "LeakCanary has no\n{gone}");
    let about = &found.about;
    assert_eq!((about.heap_bytes, about.threads, about.bitmaps, about.cleared), (2_863_481, 12, 52, 1));
    assert_eq!((about.sdk, about.manufacturer.as_deref()), (Some(19), Some("Genymotion")));
    assert_eq!(about.process.as_deref(), Some("com.example.leakcanary"));

    // Compares everything except values that only a run of Shark has.
    let told = leakcanary(&found, "leak_asynctask_pre_m.hprof");
    let of_its_run = |line: &&str| {
        [
            "Stats:",
            "Analysis duration:",
            "Heap dump timestamp:",
            "Heap dump duration:",
            "Bitmap total bytes:",
            "Large bitmap",
            "TOTAL",
        ]
        .iter()
        .any(|own| line.starts_with(own))
    };
    let lines = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !of_its_run(line)).map(str::to_owned).collect()
    };
    assert_eq!(lines(&told), lines(&shark));
}

#[test]
fn a_trimmed_dump_has_the_same_leaks() {
    let Some(bytes) = bytes("leak_asynctask_pre_m.hprof") else { return };
    let (before, whole) = (analysis(bytes.clone()), bytes.len());
    let from = heap(bytes.clone());
    let file = DumpFile::of_bytes(bytes).unwrap();
    let private = from.kept_in_private(&Rules::built_in().unwrap());
    // Tailor makes it 4.41 times smaller.
    for (keep, smaller) in [(from.kept(), 4.5), (private, 4.8)] {
        let (mut trimmed, mut packed) = (Vec::new(), Packed::zstd(Vec::new()).unwrap());
        trim_file(&file, &keep, &mut trimmed, &|_, _, _| ()).unwrap();
        packed.write_all(&trimmed).unwrap();
        let packed = packed.finish().unwrap();
        assert!(whole as f64 / packed.len() as f64 >= smaller, "{} of {whole}", packed.len());
        let after = analysis(packed);
        let shown = |found: &Analysis| -> String { found.leaks.iter().map(tree).collect() };
        assert_eq!(shown(&after), shown(&before));
        assert_eq!(after.about.process, before.about.process);
        assert_eq!(after.about.manufacturer, before.about.manufacturer);
        assert_eq!((after.about.heap_bytes, after.attributed_bytes), (2_863_481, 193_431));
    }
}

#[test]
fn what_tailor_trimmed_is_restored_as_tailor_restores_it() {
    let Some(trimmed) = folder().map(|folder| folder.join("trimmed/leak_asynctask_pre_m.hprof.tailor"))
    else {
        return;
    };
    let trimmed = fs::read(trimmed).unwrap();
    let mut restored = Vec::new();
    restore(trimmed.as_slice(), &mut restored).unwrap();
    let want = bytes("trimmed/leak_asynctask_pre_m.hprof.restored").unwrap();
    assert!(restored == want, "{} and {} bytes", restored.len(), want.len());
    let found = analysis(restored);
    let ids: Vec<&str> = found.leaks.iter().map(|leak| leak.fingerprint.as_str()).collect();
    assert_eq!(ids, ["3c18b2ae66d35e46918a99cdc46030e0a7e96fc3", "78b4853d51f3ed2e940033684dde057921e70aab"]);
    assert_eq!((found.attributed_bytes, found.attributed_objects), (193_431, 546));
}

/// `class NAME count N bytes N max_retained N`, as ahat printed them.
fn rows(text: &str) -> Vec<(&str, [u64; 3])> {
    text.lines()
        .filter_map(|line| {
            let (name, rest) = line.strip_prefix("class ")?.split_once(" count ")?;
            let mut numbers = rest.split(' ').filter_map(|word| word.parse().ok());
            Some((name, [numbers.next()?, numbers.next()?, numbers.next()?]))
        })
        .collect()
}

#[test]
fn dominators_are_those_of_ahat() {
    for (name, reachable, all, top, native) in [
        ("leak_asynctask_pre_m.hprof", 45072, 2_626_297 + 511_838, 12649, 0),
        // ahat adds native bytes, which are outside of the heap.
        ("ahat-O.hprof", 82185, 1_282_612 + 2_042_987, 36842, 50_200),
        ("ahat-RI.hprof", 24029, 1_243_352, 1347, 0),
    ] {
        let Some(bytes) = bytes(name) else { return };
        let Heap { dump, graph, .. } = heap(bytes);
        let dominators = Dominators::of(&dump, graph, &|_, _, _| ());
        let found = (dominators.reachable(), dominators.bytes(), dominators.below(None, 1).1);
        assert_eq!(found, (reachable, all, top), "{name}");
        let text = oracle(&format!("{name}.ahat.txt")).unwrap();
        let mut ours: HashMap<String, [u64; 3]> = HashMap::new();
        for class in dominators.by_class(&dump) {
            let row = ours.entry(class.name).or_default();
            *row = [row[0] + class.count, row[1] + class.bytes, row[2].max(class.largest)];
        }
        let rows = rows(&text);
        assert!(rows.len() >= 20, "{name}");
        let mut outside = 0;
        for (class, row) in rows {
            let here = ours.get(class).copied().unwrap_or_default();
            assert_eq!(here[0], row[0], "{name}: {class}");
            outside += row[1] - here[1];
            assert!(row[2] - here[2] <= native, "{name}: {class} {here:?} {row:?}");
        }
        assert!(outside <= native, "{name}: {outside}");
    }
}

#[test]
fn a_chain_of_twenty_thousand_is_shown_shortened() {
    let Some(bytes) = bytes("ahat-RI.hprof") else { return };
    let heap = heap(bytes);
    let rules = Rules::built_in().unwrap();
    let all = heap.named("Main$StackSmasher").unwrap();
    assert_eq!(all.len(), 20_000);
    let question = Question { wanted: vec!["Main$StackSmasher".to_owned()], only_wanted: true, ways: 0 };
    let found = heap.analyse(&rules, &question, &|_, _, _| ()).unwrap();
    assert_eq!((found.attributed_bytes, found.attributed_objects), (80_000, 20_000));
}

/// Android's own tool writes them as 1.0.2, for readers that do not know heaps.
#[test]
fn what_hprof_conv_makes_of_a_dump_has_the_same_leaks() {
    const BY_DEBIAN: &str = "/usr/lib/android-sdk/platform-tools/hprof-conv";
    let Some(conv) = ["hprof-conv", BY_DEBIAN].into_iter().find(|conv| Command::new(conv).output().is_ok())
    else {
        return skipped("hprof-conv (Debian's package of that name) is not here");
    };
    for name in ["leak_asynctask_pre_m.hprof", "ahat-O.hprof"] {
        let Some(bytes) = bytes(name) else { return };
        let place = std::env::temp_dir().join(format!("memgate-conv-{}", std::process::id()));
        let (from, to) = (place.with_extension("in"), place.with_extension("out"));
        fs::write(&from, &bytes).unwrap();
        let converted = Command::new(conv).arg(&from).arg(&to).status().unwrap();
        let converted = converted.success().then(|| fs::read(&to).unwrap());
        [from, to].iter().for_each(|path| drop(fs::remove_file(path)));
        let (before, after) = (analysis(bytes), analysis(converted.unwrap()));
        assert_eq!(after.about.format, "JAVA PROFILE 1.0.2", "{name}");
        let told = |found: &Analysis| {
            let leaks =
                found.leaks.iter().map(|leak| (leak.fingerprint.clone(), leak.attributed, leak.objects));
            (leaks.collect::<Vec<_>>(), found.about.instances, found.about.heap_bytes, found.about.sdk)
        };
        assert_eq!(told(&after), told(&before), "{name}");
    }
}
