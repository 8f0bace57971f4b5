//! Classifies classes by their owner: project, library, JDK or test framework.

use memgate_model::is_of_language;
pub(crate) use memgate_model::stable_class_name as normalised;

/// Is it a class of the project or of a library, that is, neither of the JDK nor of Android as Robolectric supplies it?
/// An array is classified by its elements.
pub(crate) fn is_own(name: &str) -> bool {
    const JDK: [&str; 11] = [
        "java.",
        "javax.",
        "jdk.",
        "sun.",
        "com.sun.",
        "apple.",
        "android.",
        "com.android.",
        "dalvik.",
        "libcore.",
        "org.robolectric.",
    ];
    let element = name.trim_end_matches("[]");
    // Primitive types have no package. Neither have classes of the default package, but their names begin with a
    // capital letter.
    let primitive =
        !element.contains('.') && !element.starts_with(|c: char| c.is_uppercase() || c == '_' || c == '$');
    !primitive && !JDK.iter().any(|prefix| element.starts_with(prefix))
}

/// The name prefix of the project's own classes, derived from a test: the first two parts of its package. Empty if it
/// has no package.
pub(crate) fn project_of(test: &str) -> String {
    const PARTS: usize = 2;
    let is_package = |part: &&str| part.starts_with(|c: char| c.is_lowercase());
    let package: Vec<&str> = test.split('.').take_while(is_package).take(PARTS).collect();
    // A test without a class: the name alone would look like a package.
    if package.is_empty() || package.join(".") == test { String::new() } else { package.join(".") + "." }
}

/// Is it a class of the project with this prefix?
pub(crate) fn is_of_project(name: &str, project: &str) -> bool {
    !project.is_empty() && name.starts_with(project)
}

/// [`naming_rank`] of classes of the JDK.
pub(crate) const OF_THE_JDK: u8 = 4;

/// How well a class names a leak, best first: a class of the project, of a library, a nameless class (anonymous, a
/// lambda, what a compiler makes of a captured variable: `kotlin.jvm.internal.Ref$ObjectRef`), a class of the JDK.
pub(crate) fn naming_rank(name: &str, project: &str) -> u8 {
    if !is_own(name) {
        return OF_THE_JDK;
    }
    let element = name.trim_end_matches("[]");
    let last = element.rsplit('$').next().unwrap_or_default();
    let nameless = is_of_language(element)
        || element.contains("$$Lambda")
        || element.contains("$$ExternalSynthetic")
        || element.contains('$') && !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit());
    u8::from(!is_of_project(name, project)) + if nameless { 2 } else { 0 }
}

/// Does it belong to a test framework that keeps objects for each test as long as the virtual machine runs?
pub(crate) fn is_of_framework(name: &str) -> bool {
    const FRAMEWORKS: [&str; 3] = ["org.robolectric.", "androidx.test.", "org.testng."];
    FRAMEWORKS.iter().any(|prefix| name.starts_with(prefix))
}

/// A node or table of a collection: it does not show what is collected.
pub(crate) fn is_inside_collection(name: &str) -> bool {
    let element = name.trim_end_matches("[]");
    element.starts_with("java.util.") && element.contains('$')
        || matches!(
            name,
            "java.lang.Object[]" | "java.lang.ref.WeakReference" | "java.lang.ref.SoftReference"
        )
}

/// Filler objects that a collector puts into gaps; before JDK 19 these are int arrays.
pub(crate) fn is_filler(name: &str) -> bool {
    name.starts_with("jdk.internal.vm.Filler")
}

/// Objects that the virtual machine makes when it first uses methods and classes: mirrors of classes and of their
/// arrays, method handles and their forms, accessors, references to them.
pub(crate) fn is_made_by_machine(name: &str) -> bool {
    const PREFIXES: [&str; 6] = [
        "java.lang.invoke.",
        "java.lang.reflect.",
        "java.lang.ref.",
        "java.lang.Class",
        "jdk.internal.",
        "sun.",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Objects that the virtual machine makes when code is compiled and literals are resolved.
pub(crate) fn is_literal(name: &str) -> bool {
    matches!(name, "java.lang.String" | "byte[]" | "char[]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leak_is_named_after_the_project_before_libraries_and_nameless_classes() {
        let project = project_of("com.example.viewer.ViewerTest.isClean");
        assert_eq!(project, "com.example.");
        assert_eq!([project_of("ATest.a"), project_of("lonely")], ["", ""]);
        let ranked = [
            "com.example.viewer.DownloadActivity",
            "com.google.common.collect.HashBiMap",
            "com.example.viewer.DownloadActivity$1",
            "io.reactivex.Flow$$Lambda",
            "kotlin.jvm.internal.Ref$ObjectRef",
            "android.view.View",
        ];
        let ranks: Vec<u8> = ranked.iter().map(|name| naming_rank(name, &project)).collect();
        assert_eq!(ranks, [0, 1, 2, 3, 3, 4]);
        assert_eq!(naming_rank("com.example.Page$Bookmark", &project), 0);
        assert_eq!(naming_rank("Tile", ""), 1);
    }

    #[test]
    fn classes_of_the_jdk_are_not_the_projects() {
        for (name, own) in [
            ("com.example.Tile", true),
            ("com.example.Tile[]", true),
            ("Tile", true),
            ("javassist.ClassPool", true),
            ("java.lang.String", false),
            ("java.util.HashMap$Node[]", false),
            ("jdk.internal.ref.Cleaner", false),
            ("byte[]", false),
            ("int[][]", false),
        ] {
            assert_eq!(is_own(name), own, "{name}");
        }
    }
}
