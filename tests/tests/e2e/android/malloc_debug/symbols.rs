//! `memgate malloc-debug --symbols`: frames of a heap dump get functions, files and lines from unstripped
//! libraries and APKs, but only from the right build.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use memgate_e2e::samples::{compile, own_program, successful};
use memgate_e2e::{Project, Run};
use serde_json::Value;

/// A library of an app. `tile_pc` returns an address inside of a call that was inlined into it.
const LIBRARY: &str = r#"
static inline __attribute__((always_inline)) unsigned long decode(void) {
    unsigned long here;
    __asm__ volatile("1: lea 1b(%%rip), %0" : "=r"(here));
    return here;
}

unsigned long tile_pc(void) {
    unsigned long pc = decode();
    return pc;
}
"#;

/// Additional code before the library's makes it another build.
const OTHER: &str = "int more(int n) { static volatile int a[4096]; int s = 0;
#define TEN s = s * 31 + n / 7; n ^= a[(s * 13 + 5) & 4095] / (n | 1); s += a[(n * 7 + s) & 4095] * n; s ^= a[(s + 3) & 4095]; a[s & 4095] = n; n = n * 3 + s; s -= a[n & 4095] / 3;
#define HUNDRED TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN
HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED return s; }\n";

/// Writes a dump of itself, with one record whose only frame is in the library.
const APP: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words) {
    void *library = dlopen(words[1], RTLD_NOW);
    unsigned long (*tile_pc)(void) = library ? (unsigned long (*)(void))dlsym(library, "tile_pc") : NULL;
    FILE *maps = fopen("/proc/self/maps", "r");
    if (count != 2 || !tile_pc || !maps) {
        fprintf(stderr, "%s\n", library ? "not there" : dlerror());
        return 1;
    }
    printf("Android Native Heap Dump v1.1\n\nTotal memory: 24\nAllocation records: 1\nBacktrace size: 16\n\n");
    printf("z 0  sz       24  num    1  bt %016lx\nMAPS\n", tile_pc());
    char line[4096];
    while (fgets(line, sizeof line, maps)) fputs(line, stdout);
    puts("END");
    return 0;
}
"#;

/// The library as built, and as packaged into an app.
struct Built {
    unstripped: PathBuf,
    stripped: PathBuf,
}

/// Builds it into the folder `name` below `project`.
fn built(project: &Project, name: &str, source: &str) -> Built {
    let flags = ["tiles.c", "-shared", "-fPIC", "-O1", "-g", "-Wl,--build-id=sha1", "-Wl,-z,separate-code"];
    let library = compile("libtiles.so", "cc", &flags, &[("tiles.c", source)]);
    let unstripped = project.write(&format!("{name}/unstripped/libtiles.so"), fs::read(&library).unwrap());
    let stripped = project.write(&format!("{name}/app/libtiles.so"), fs::read(&library).unwrap());
    successful(Command::new("strip").arg(&stripped));
    Built { unstripped: unstripped.parent().unwrap().to_owned(), stripped }
}

/// The dump of an app with this library.
fn dump(library: &Path) -> String {
    successful(Command::new(own_program("dumps", APP)).arg(library))
}

fn shown(project: &Project, dump: &str, symbols: &[&Path]) -> Run {
    let dump = project.write("heap.txt", dump);
    let mut arguments = vec!["malloc-debug".to_owned(), dump.display().to_string(), "--json".to_owned()];
    for source in symbols {
        arguments.extend(["--symbols".to_owned(), source.display().to_string()]);
    }
    let run = project.memgate(&arguments);
    run.ends_with(0);
    run
}

/// The functions of the only frame, innermost first.
fn functions(run: &Run) -> Vec<String> {
    let told: Value = serde_json::from_str(&run.stdout).unwrap();
    let symbols = &told["files"][0]["records"][0]["symbols"][0];
    let functions = symbols.as_array().into_iter().flatten();
    functions
        .map(|symbol| {
            let file = symbol["file"].as_str().map(|file| file.rsplit('/').next().unwrap_or(file));
            let place = file.map(|file| format!(" {file}:{}", symbol["line"])).unwrap_or_default();
            let inlined = if symbol["inlined"] == true { " inlined" } else { "" };
            format!("{}{place}{inlined}", symbol["function"].as_str().unwrap())
        })
        .collect()
}

const WANT: [&str; 2] = ["decode tiles.c:4 inlined", "tile_pc tiles.c:9"];

#[test]
fn a_stripped_library_is_named_by_its_unstripped_build_with_what_was_inlined() {
    let project = Project::new("malloc-debug-symbols");
    let library = built(&project, "this", LIBRARY);
    let dump = dump(&library.stripped);
    let run = shown(&project, &dump, &[&library.unstripped]);
    assert_eq!(functions(&run), WANT, "{run}");
    run.says("a dump does not say which build it was");
    let person =
        project.memgate(&["malloc-debug", "heap.txt", "--symbols", library.unstripped.to_str().unwrap()]);
    person.ends_with(0);
    assert!(person.stdout.contains("decode  ") && person.stdout.contains("tiles.c:9\n"), "{person}");
    // Without symbols, frames show the offset in the file.
    let none = shown(&project, &dump, &[]);
    assert!(functions(&none).is_empty() && none.stdout.contains("/libtiles.so+0x"), "{none}");
    let empty = project.folder().join("empty");
    fs::create_dir(&empty).unwrap();
    shown(&project, &dump, &[&empty]).says("no file libtiles.so with a build id");
}

#[test]
fn a_library_of_another_build_names_nothing_and_an_apk_says_which_is_right() {
    let project = Project::new("malloc-debug-builds");
    let library = built(&project, "this", LIBRARY);
    let other = built(&project, "other", &format!("{OTHER}{LIBRARY}"));
    // Its code takes the same number of pages, but at other offsets.
    let similar = built(
        &project,
        "similar",
        &LIBRARY
            .replace("    unsigned long here;", "    unsigned long here;\n    __asm__ volatile(\"nop\");"),
    );
    let dump = dump(&library.stripped);
    let run = shown(&project, &dump, &[&other.unstripped]);
    assert!(functions(&run).is_empty(), "{run}");
    run.says("is of another build");
    let run = shown(&project, &dump, &[&similar.unstripped, &library.unstripped]);
    assert!(functions(&run).is_empty(), "nobody can know: {run}");
    run.says("2 builds of libtiles.so fit: name the APK too");

    let apk = project.write("base.apk", apk(&fs::read(&library.stripped).unwrap()).0);
    let sources = [apk.as_path(), &similar.unstripped, &library.unstripped];
    let run = shown(&project, &dump, &sources);
    assert_eq!(functions(&run), WANT);
    assert!(run.stderr.is_empty(), "now it is known: {run}");
    assert_eq!(functions(&shown(&project, &dump, &[&apk])), ["tile_pc"], "what a stripped library exports");
    let run = project.memgate(&["malloc-debug", "heap.txt", "--symbols", "heap.txt"]);
    run.ends_with(2).says("heap.txt").says("it is no APK");
}

#[test]
fn a_library_that_is_mapped_from_within_an_apk_is_found_in_it() {
    let project = Project::new("malloc-debug-within");
    let library = built(&project, "this", LIBRARY);
    let (bytes, place) = apk(&fs::read(&library.stripped).unwrap());
    let apk = project.write("app-debug.apk", bytes);
    let path = library.stripped.to_str().unwrap();
    let moved = |line: &str| {
        let Some(rest) = line.strip_suffix(path).filter(|rest| rest.contains('-')) else {
            return line.to_owned();
        };
        let mut words: Vec<String> = rest.split_whitespace().map(str::to_owned).collect();
        let offset = u64::from_str_radix(&words[2], 16).unwrap() + place as u64;
        words[2] = format!("{offset:08x}");
        format!("{} /data/app/~~x==/com.example.tiles-1/base.apk", words.join(" "))
    };
    let dump: String = dump(&library.stripped).lines().map(|line| moved(line) + "\n").collect();
    assert!(dump.contains("base.apk") && !dump.contains("libtiles.so"), "{dump}");
    assert_eq!(functions(&shown(&project, &dump, &[&apk, &library.unstripped])), WANT);
}

/// An APK that contains this library uncompressed, and the library's offset in it.
fn apk(library: &[u8]) -> (Vec<u8>, usize) {
    let name = b"lib/x86_64/libtiles.so";
    let length = u32::try_from(library.len()).unwrap().to_le_bytes();
    let name_length = u16::try_from(name.len()).unwrap().to_le_bytes();
    let sizes = [&[0; 4], &length[..], &length].concat();
    let mut apk = [&b"PK\x03\x04"[..], &[0; 10], &sizes[..], &name_length, &[0; 2], name].concat();
    // Aligned as zipalign does.
    let gap = 4096 - apk.len() % 4096;
    let extra = u16::try_from(gap).unwrap().to_le_bytes();
    apk[28..30].copy_from_slice(&extra);
    apk.resize(apk.len() + gap, 0);
    let place = apk.len();
    apk.extend(library);
    let directory = u32::try_from(apk.len()).unwrap().to_le_bytes();
    apk.extend([&b"PK\x01\x02"[..], &[0; 12], &sizes[..], &name_length, &[0; 12], &[0; 4], name].concat());
    let end = u32::try_from(apk.len()).unwrap() - u32::from_le_bytes(directory);
    apk.extend(
        [&b"PK\x05\x06"[..], &[0; 4], &[1, 0, 1, 0], &end.to_le_bytes(), &directory, &[0; 2]].concat(),
    );
    (apk, place)
}
