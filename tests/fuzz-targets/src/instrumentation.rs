//! The output of `am instrument`: however it is split into pieces, it gives the same tests and the same end.
//! It has an end only where the protocol has one.

use memgate_formats::instrumentation::{Ending, InstrumentationRun, RawStream, Status, TestResult};

type Told = (Ending, Vec<TestResult>);

fn text(stream: &[u8], piece: usize) -> Told {
    let (mut run, mut reader) = (InstrumentationRun::new(), RawStream::new());
    stream.chunks(piece).for_each(|piece| reader.push(piece, |item| run.apply(item)));
    reader.finish(|item| run.apply(item));
    (run.end(), run.tests().to_vec())
}

fn check((ending, tests): &Told) {
    assert!(!ending.to_string().is_empty());
    if *ending == Ending::Complete {
        assert!(tests.iter().all(|test| test.status != Status::NotEnded));
        assert!(!tests.is_empty());
    }
}

/// Runs one input.
///
/// # Panics
/// When a checked property does not hold; this is a finding.
pub fn run(data: &[u8]) {
    let Some((piece, stream)) = data.split_first() else { return };
    let piece = usize::from(*piece) + 1;
    let whole = text(stream, stream.len().max(1));
    check(&whole);
    if whole.0 == Ending::Complete {
        let end = b"INSTRUMENTATION_CODE: ";
        assert!(stream.windows(end.len()).any(|at| at == end));
    }
    assert_eq!(text(stream, piece), whole);
}
