//! Compares the function table, the capabilities and the structures with the `jvmti.h` of every JDK that is found.
#![expect(clippy::print_stderr, clippy::unwrap_used, reason = "a test tells what it could not check")]

use std::path::PathBuf;
use std::{env, fs};

use memgate_jvmti::raw;

/// `include/jvmti.h` of `JAVA_HOME` and of the folders in which distributions install JDKs.
fn headers() -> Vec<PathBuf> {
    let installed = fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = env::var_os("JAVA_HOME")
        .map(PathBuf::from)
        .into_iter()
        .chain(installed)
        .filter_map(|home| fs::canonicalize(home.join("include/jvmti.h")).ok())
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Calls `check` with the text of each header. Prints a message if there is no header.
fn with_headers(check: impl Fn(&str)) {
    let headers = headers();
    if headers.is_empty() {
        eprintln!("not checked: no JDK with include/jvmti.h here (JAVA_HOME, /usr/lib/jvm)");
    }
    for header in headers {
        eprintln!("{}", header.display());
        check(&fs::read_to_string(header).unwrap());
    }
}

#[test]
fn every_function_stands_where_the_header_has_it() {
    with_headers(|text| {
        let table = text.split("typedef struct jvmtiInterface_1_ {").nth(1).unwrap();
        let table = table.split("} jvmtiInterface_1;").next().unwrap();
        // "/* 2 : Set Event Notification Mode */ jvmtiError (JNICALL *SetEventNotificationMode) (…"
        let in_header: Vec<(usize, &str)> = table
            .split("/*")
            .filter_map(|entry| {
                let (number, rest) = entry.split_once(':')?;
                let name = rest.split_once("(JNICALL *")?.1.split_once(')')?.0;
                Some((number.trim().parse().ok()?, name))
            })
            .collect();
        assert!(in_header.len() > 100, "{} functions were read", in_header.len());
        for slot in raw::SLOTS {
            assert!(in_header.contains(slot), "{slot:?}");
        }
    });
}

#[test]
fn every_capability_has_the_bit_of_the_header() {
    with_headers(|text| {
        let bits: Vec<&str> = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("unsigned int can_")?.split_once(' '))
            .map(|(name, _)| name)
            .collect();
        assert!(bits.len() >= 44);
        for (bit, name) in raw::CAPABILITIES {
            assert_eq!(bits[*bit], name.strip_prefix("can_").unwrap(), "bit {bit}");
        }
    });
}

#[test]
fn every_event_has_its_place_among_the_callbacks() {
    with_headers(|text| {
        let block = text.split("/* Event Callback Structure */").nth(1).unwrap();
        let number_of = |field: &str| -> usize {
            let before = block.split(&format!(" {field};")).next().unwrap();
            before.rsplit("/*").next().unwrap().split(':').next().unwrap().trim().parse().unwrap()
        };
        let offset = |n: usize| (n - 50) * size_of::<usize>();
        use std::mem::offset_of;
        for (field, ours) in [
            ("VMInit", offset_of!(raw::EventCallbacks, vm_init)),
            ("VMDeath", offset_of!(raw::EventCallbacks, vm_death)),
            ("ClassFileLoadHook", offset_of!(raw::EventCallbacks, class_file_load_hook)),
            ("ClassPrepare", offset_of!(raw::EventCallbacks, class_prepare)),
            ("ResourceExhausted", offset_of!(raw::EventCallbacks, resource_exhausted)),
            ("ObjectFree", offset_of!(raw::EventCallbacks, object_free)),
            ("VMObjectAlloc", offset_of!(raw::EventCallbacks, vm_object_alloc)),
            ("SampledObjectAlloc", offset_of!(raw::EventCallbacks, sampled_object_alloc)),
        ] {
            assert_eq!(ours, offset(number_of(field)), "{field}");
        }
    });
}

#[test]
fn a_frame_is_laid_out_as_the_virtual_machine_writes_it() {
    use std::mem::offset_of;

    use memgate_jvmti::StackFrame;
    assert_eq!(size_of::<StackFrame>(), size_of::<raw::FrameInfo>());
    assert_eq!(offset_of!(StackFrame, method), offset_of!(raw::FrameInfo, method));
    assert_eq!(offset_of!(StackFrame, location), offset_of!(raw::FrameInfo, location));
}
