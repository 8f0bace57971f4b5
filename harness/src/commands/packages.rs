//! Installation hints for the distribution on which memgate runs.

use std::fs;

/// Something that can be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Package {
    /// A C++ compiler.
    Compiler,
    /// GoogleTest, headers and static libraries.
    GoogleTest,
    /// Android's adb.
    Adb,
}

const DISTRIBUTIONS: [(&[&str], &str, [&str; 3]); 5] = [
    (&["debian", "ubuntu"], "apt install", ["g++", "libgtest-dev", "adb"]),
    (&["fedora", "rhel", "centos"], "dnf install", ["gcc-c++", "gtest-devel", "android-tools"]),
    (&["arch"], "pacman -S", ["gcc", "gtest", "android-tools"]),
    (&["suse", "opensuse"], "zypper install", ["gcc-c++", "googletest-devel", "android-tools"]),
    (&["gentoo"], "emerge", ["sys-devel/gcc", "dev-cpp/gtest", "dev-util/android-tools"]),
];

/// The command that installs `package` here, or the commands of all distributions if this one is unknown.
pub(super) fn install_hint(package: Package) -> String {
    hint_for(package, &fs::read_to_string("/etc/os-release").unwrap_or_default())
}

fn hint_for(package: Package, os_release: &str) -> String {
    let index = match package {
        Package::Compiler => 0,
        Package::GoogleTest => 1,
        Package::Adb => 2,
    };
    let ids = identities(os_release);
    let command = |install: &str, names: &[&str; 3]| format!("{install} {}", names[index]);
    let here = DISTRIBUTIONS.iter().find(|(known, ..)| ids.iter().any(|id| known.contains(&id.as_str())));
    match here {
        Some((_, install, names)) => format!("install it: {}", command(install, names)),
        None => {
            let all: Vec<_> = DISTRIBUTIONS
                .iter()
                .map(|(ids, install, names)| format!("{} ({})", command(install, names), ids.join(", ")))
                .collect();
            format!("install it: {}", all.join(" · "))
        }
    }
}

/// `ID` and `ID_LIKE` of os-release(5).
fn identities(os_release: &str) -> Vec<String> {
    let value = |line: &str| {
        line.strip_prefix("ID=")
            .or_else(|| line.strip_prefix("ID_LIKE="))
            .map(|v| v.trim_matches('"').to_owned())
    };
    os_release
        .lines()
        .filter_map(value)
        .flat_map(|ids| ids.split([' ', '-']).map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_speaks_the_language_of_the_distribution() {
        for (os_release, hint) in [
            ("ID=debian\n", "install it: apt install libgtest-dev"),
            ("NAME=Mint\nID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", "install it: apt install libgtest-dev"),
            ("ID=\"opensuse-leap\"\n", "install it: zypper install googletest-devel"),
        ] {
            assert_eq!(hint_for(Package::GoogleTest, os_release), hint);
        }
        let unknown = hint_for(Package::Compiler, "");
        assert!(unknown.contains("apt install g++ (debian, ubuntu)") && unknown.contains("pacman -S gcc"));
    }
}
