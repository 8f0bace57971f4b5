//! The out values of a leak-info buffer, from a JSON file next to it.

use std::path::Path;

use memgate_formats::malloc_debug::OutValues;
use serde::Deserialize;

use crate::exit::ExpectedError;

/// The values themselves, or an object with the values in `out`. Other keys belong to the writer.
#[derive(Debug, Deserialize)]
struct Sidecar {
    out: Option<Out>,
    /// `false`: the library left the variables untouched, so their values are meaningless.
    out_params_written: Option<bool>,
    android_api: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct Out {
    overall_size: u64,
    info_size: u64,
    total_memory: Option<u64>,
    backtrace_size: u64,
}

pub(super) fn read(path: &Path, bytes: &[u8]) -> Result<OutValues, ExpectedError> {
    let wrong = |why: serde_json::Error| ExpectedError::Session {
        path: path.to_owned(),
        why: why.to_string(),
        hint: "it holds {\"overall_size\": …, \"info_size\": …, \"total_memory\": …, \"backtrace_size\": …}"
            .to_owned(),
    };
    let Sidecar { out, out_params_written, android_api } = serde_json::from_slice(bytes).map_err(wrong)?;
    if out_params_written == Some(false) {
        return Ok(OutValues::default());
    }
    let out = match out {
        Some(out) => out,
        None => serde_json::from_slice(bytes).map_err(wrong)?,
    };
    let Out { overall_size, info_size, total_memory, backtrace_size } = out;
    Ok(OutValues { overall_size, info_size, total_memory, backtrace_size, android_api })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_alone_and_values_in_out_mean_the_same() {
        let values = r#"{"overall_size": 144, "info_size": 72, "total_memory": 9, "backtrace_size": 16}"#;
        let want = OutValues {
            overall_size: 144,
            info_size: 72,
            total_memory: Some(9),
            backtrace_size: 16,
            android_api: None,
        };
        assert_eq!(read(Path::new("x"), values.as_bytes()).unwrap(), want);
        let nested = format!(r#"{{"label": "x", "out": {values}, "android_api": 28}}"#);
        assert_eq!(
            read(Path::new("x"), nested.as_bytes()).unwrap(),
            OutValues { android_api: Some(28), ..want }
        );
        let untouched = format!(r#"{{"out": {values}, "out_params_written": false}}"#);
        assert_eq!(read(Path::new("x"), untouched.as_bytes()).unwrap(), OutValues::default());
    }

    #[test]
    fn what_is_no_sidecar_is_told_with_its_place() {
        for (text, want) in [
            ("{\"overall_size\": 1}", "missing field `info_size`"),
            ("{\n\"out\": 7}", "line 2"),
            ("[", "EOF while parsing"),
            (
                "{\"overall_size\": -1, \"info_size\": 1, \"backtrace_size\": 1}",
                "invalid value: integer `-1`",
            ),
        ] {
            let error = read(Path::new("s.json"), text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(want) && error.contains("s.json"), "{text}: {error}");
        }
    }
}
