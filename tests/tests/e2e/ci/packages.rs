//! The packages that `ci/linux/package` makes: what is unpacked from them measures as the program that was packed.

use std::fs;
use std::path::Path;
use std::process::Command;

use memgate_e2e::samples::successful;
use memgate_e2e::{Project, memgate, repository, samples, skip_without};

/// Fails a test that leaks, with the program that was unpacked to `program`.
fn measures(project: &Project, program: &Path) {
    let leaks =
        "#include <gtest/gtest.h>\nchar* volatile kept;\nTEST(Map, Leaks) { kept = new char[4096](); }\n";
    let suite = samples::own_suite("ci_leaking", leaks);
    let typed = project.command(&["run", "--", suite.to_str().unwrap()]);
    let mut packed = Command::new(program);
    packed.args(typed.get_args()).current_dir(project.folder());
    for (name, value) in typed.get_envs() {
        match value {
            Some(value) => packed.env(name, value),
            None => packed.env_remove(name),
        };
    }
    let run = project.finish(&mut packed);
    run.ends_with(1);
    run.says("FAIL  Map.Leaks");
}

#[test]
fn the_packages_contain_a_program_that_measures() {
    let is_missing = |tool: &&str| Command::new(tool).arg("--version").output().is_err();
    if let Some(missing) = ["dpkg-deb", "objdump"].into_iter().find(is_missing) {
        return skip_without(missing);
    }
    let project = Project::new("ci-packages");
    let folder = project.folder().join("my & packages");
    let unpacked = project.folder().join("local");
    fs::create_dir(&unpacked).unwrap();
    let mut package = Command::new(repository().join("ci/linux/package"));
    package.arg(&folder).env("MEMGATE_BIN", memgate());
    package.env("DEBFULLNAME", "Map Team").env("DEBEMAIL", "maps@example.com");
    let made = successful(&mut package);
    let made: Vec<&Path> = made.lines().map(Path::new).collect();
    let [archive, debian, sums] = made[..] else { panic!("{made:?}") };
    successful(Command::new("sha256sum").args(["--check", "--strict"]).arg(sums).current_dir(&folder));

    successful(
        Command::new("tar")
            .arg("-xzf")
            .arg(archive)
            .args(["--strip-components", "1", "--no-overwrite-dir", "-C"])
            .arg(&unpacked),
    );
    measures(&project, &unpacked.join("bin/memgate"));
    let page = successful(Command::new("zcat").arg(unpacked.join("share/man/man1/memgate.1.gz")));
    assert!(page.contains(".SH MEMGATE RUN"), "{page}");
    let libraries = fs::read_to_string(unpacked.join("share/doc/memgate/LIBRARIES")).unwrap();
    for part in ["\n  tokio 1.", "\n  gimli 0.", "Permission is hereby granted", "DejaVu Sans"] {
        assert!(libraries.contains(part), "{part}");
    }
    assert!(!libraries.contains("\n  memgate"), "memgate's own crates have its licence");

    let fields = successful(Command::new("dpkg-deb").arg("--field").arg(debian));
    let version = successful(Command::new(memgate()).arg("--version"));
    let version = version.replace("memgate ", "Version: ");
    for field in [&version, "Maintainer: Map Team <maps@example.com>\n", "Depends: libc6 (>= 2."] {
        assert!(fields.contains(field), "{fields}");
    }
    let debian_root = project.folder().join("root");
    successful(Command::new("dpkg-deb").arg("--extract").arg(debian).arg(&debian_root));
    let (packed, archived) = (debian_root.join("usr/bin/memgate"), unpacked.join("bin/memgate"));
    assert!(fs::read(packed).unwrap() == fs::read(archived).unwrap(), "both packages have the same program");
}

#[test]
fn without_a_jdk_nothing_is_packed() {
    let project = Project::new("ci-packages-no-jdk");
    let tools = project.folder().join("bin");
    fs::create_dir(&tools).unwrap();
    for tool in ["dirname", "realpath"] {
        std::os::unix::fs::symlink(Path::new("/usr/bin").join(tool), tools.join(tool)).unwrap();
    }
    let mut package = Command::new("/bin/bash");
    package.arg(repository().join("ci/linux/package")).arg(project.folder().join("packages"));
    let output =
        package.env("PATH", &tools).env_remove("JAVA_HOME").env_remove("MEMGATE_BIN").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("there is no javac (JAVA_HOME, PATH): install a JDK, 17 or later"), "{said}");
}
