//! Compiles the Java part and packs it into jars: zip files whose members are stored, which every
//! Java reads.
//!
//! Data flow: `device-agent/java` → `javac --release 8` → class files → four jars in `OUT_DIR`. The
//! stubs stand for JUnit while compiling and go into no jar.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A jar, the packages its classes are in, and a folder of files that go in beside them. An Android
/// app has no agent to bring the first jar: its test APK holds both.
const JARS: [(&str, &[&str], Option<&str>); 4] = [
    ("memgate-agent-java.jar", &["io/memgate/agent"], None),
    ("memgate-junit-platform.jar", &["io/memgate/junit"], Some("junit-platform/src/main/resources")),
    ("memgate-launcher.jar", &["io/memgate/launcher"], None),
    ("memgate-android-junit4.jar", &["io/memgate/agent", "io/memgate/android"], None),
];

/// Builds the jars from the sources below `java`. Without a compiler they are empty files and the
/// text says what is missing.
pub(crate) fn build(java: &Path, out: &Path) -> Result<Option<String>, String> {
    println!("cargo::rerun-if-changed={}", java.display());
    println!("cargo::rerun-if-env-changed=JAVA_HOME");
    let Some(compiler) = compiler() else {
        for (jar, ..) in JARS {
            write(&out.join(jar), &[])?;
        }
        return Ok(Some(
            "no javac was found (JAVA_HOME, PATH): this memgate cannot measure JUnit suites".to_owned(),
        ));
    };
    let classes = out.join("java-classes");
    if classes.exists() {
        fs::remove_dir_all(&classes).map_err(|e| format!("empty {}: {e}", classes.display()))?;
    }
    fs::create_dir_all(&classes).map_err(|e| format!("create {}: {e}", classes.display()))?;
    let sources = files_below(java)?.into_iter().filter(|path| path.extension().is_some_and(|e| e == "java"));
    let output = Command::new(&compiler)
        .args(["--release", "8", "-Xlint:-options", "-g", "-encoding", "UTF-8", "-d"])
        .arg(&classes)
        .args(sources)
        .output()
        .map_err(|e| format!("compile the Java part: start {}: {e}", compiler.display()))?;
    if !output.status.success() {
        return Err(format!("compile the Java part:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    for (jar, packages, resources) in JARS {
        let mut members =
            vec![("META-INF/MANIFEST.MF".to_owned(), b"Manifest-Version: 1.0\r\n\r\n".to_vec())];
        for package in packages {
            take(&mut members, &classes, &classes.join(package))?;
        }
        if let Some(resources) = resources.map(|folder| java.join(folder)) {
            take(&mut members, &resources, &resources)?;
        }
        write(&out.join(jar), &zip(&members))?;
    }
    Ok(None)
}

/// The compiler of `JAVA_HOME`, or the one in `PATH`.
fn compiler() -> Option<PathBuf> {
    let home = env::var_os("JAVA_HOME").filter(|home| !home.is_empty());
    let of_home = home.map(|home| Path::new(&home).join("bin"));
    let path = env::var_os("PATH").unwrap_or_default();
    of_home
        .into_iter()
        .chain(env::split_paths(&path))
        .map(|bin| bin.join("javac"))
        .find(|javac| javac.is_file())
}

/// All files below `folder`, sorted, so that the same sources give the same jar.
fn files_below(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let list = |e: std::io::Error| format!("list {}: {e}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(list)? {
        let path = entry.map_err(list)?.path();
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Adds the files below `folder`, named from `root` on.
fn take(members: &mut Vec<(String, Vec<u8>)>, root: &Path, folder: &Path) -> Result<(), String> {
    for file in files_below(folder)? {
        let name = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().into_owned();
        let contents = fs::read(&file).map_err(|e| format!("read {}: {e}", file.display()))?;
        members.push((name, contents));
    }
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    fs::write(path, bytes).map_err(|e| format!("write {}: {e}", path.display()))
}

/// A zip file of stored members. The date is the first one that zip knows, so that the same members
/// give the same bytes.
fn zip(members: &[(String, Vec<u8>)]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, contents) in members {
        let offset = word(file.len());
        // Version 2.0, no flags, stored, 1980-01-01.
        let mut common = vec![20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0];
        common.extend(crc32(contents).to_le_bytes());
        common.extend([word(contents.len()), word(contents.len())].concat());
        common.extend([&word(name.len())[..2], &[0, 0]].concat());
        file.extend([b"PK\x03\x04".as_slice(), &common, name.as_bytes(), contents].concat());
        // Made by version 2.0; no comment, first disk, no attributes.
        directory
            .extend([b"PK\x01\x02\x14\x00".as_slice(), &common, &[0; 10], &offset, name.as_bytes()].concat());
    }
    let count = word(members.len());
    let (start, size) = (word(file.len()), word(directory.len()));
    file.extend(&directory);
    file.extend(
        [b"PK\x05\x06\x00\x00\x00\x00".as_slice(), &count[..2], &count[..2], &size, &start, &[0, 0]].concat(),
    );
    file
}

/// Little endian. A jar of ours is far from 4 GiB.
fn word(value: usize) -> [u8; 4] {
    u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes()
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}
