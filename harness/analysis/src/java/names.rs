//! Names of classes with what differs from run to run taken out, and whose classes they are.
//!
//! Only what the virtual machine itself and Android's compilers number is touched, and the random ends that Byte Buddy gives: other names that a
//! library generates are its business.

/// A class's name, the same in every run: `com.example.Loader$$Lambda`, `jdk.internal.reflect.GeneratedMethodAccessor`.
pub(crate) fn normalised(name: &str) -> String {
    let element = name.trim_end_matches("[]");
    let dimensions = &name[element.len()..];
    let visible = without_address(element);
    let (package, simple) =
        visible.rsplit_once('.').map_or(("", visible), |(package, simple)| (package, simple));
    let joined = |package: &str, simple: &str| match package {
        "" => format!("{simple}{dimensions}"),
        package => format!("{package}.{simple}{dimensions}"),
    };
    if let Some(at) = simple.find("$$Lambda") {
        let rest = &simple[at + "$$Lambda".len()..];
        if rest.is_empty() || rest.strip_prefix('$').is_some_and(is_number) {
            return joined(package, &simple[..at + "$$Lambda".len()]);
        }
    }
    // D8 and R8 make classes of lambdas, and number them anew with each build.
    if let Some(at) = simple.find("$$ExternalSynthetic") {
        let stem = simple.trim_end_matches(|c: char| c.is_ascii_digit());
        if stem.len() > at {
            return joined(package, stem);
        }
    }
    if matches!(package, "jdk.internal.reflect" | "sun.reflect") {
        let stem = simple.trim_end_matches(|c: char| c.is_ascii_digit());
        if stem.starts_with("Generated") && stem.ends_with("Accessor") {
            return joined(package, stem);
        }
    }
    if let Some(stem) = without_random_end(simple) {
        return joined(package, stem);
    }
    if simple.strip_prefix("$Proxy").is_some_and(is_number) {
        let package =
            if package.strip_prefix("jdk.proxy").is_some_and(is_number) { "jdk.proxy" } else { package };
        return joined(package, "$Proxy");
    }
    joined(package, simple)
}

/// Classes that Byte Buddy makes for Mockito, Hibernate and others end in eight random letters and digits, other ones in every run.
fn without_random_end(simple: &str) -> Option<&str> {
    const MAKERS: [&str; 3] = ["$MockitoMock", "$ByteBuddy", "$HibernateProxy"];
    let (stem, end) = simple.rsplit_once('$')?;
    let is_random = end.len() == 8 && end.bytes().all(|b| b.is_ascii_alphanumeric());
    (is_random && MAKERS.iter().any(|maker| stem.ends_with(maker))).then_some(stem)
}

/// A hidden class is called `name/0xaddress` (older virtual machines: `name/number`).
fn without_address(name: &str) -> &str {
    match name.rsplit_once('/') {
        Some((visible, address)) if address.strip_prefix("0x").is_some_and(is_hex) || is_number(address) => {
            visible
        }
        _ => name,
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Is it a class of the project or of a library it uses, not of the JDK, and not of Android as Robolectric brings it? Arrays are what
/// their elements are.
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
    // Primitive types have no package; neither have classes of the default package, whose names begin with a capital.
    let primitive =
        !element.contains('.') && !element.starts_with(|c: char| c.is_uppercase() || c == '_' || c == '$');
    !primitive && !JDK.iter().any(|prefix| element.starts_with(prefix))
}

/// What the names of the project's own classes begin with, as far as a test tells: the first two parts of its package. Empty where it
/// has none.
pub(crate) fn project_of(test: &str) -> String {
    const PARTS: usize = 2;
    let is_package = |part: &&str| part.starts_with(|c: char| c.is_lowercase());
    let package: Vec<&str> = test.split('.').take_while(is_package).take(PARTS).collect();
    // A test without a class: its name alone would pass for a package.
    if package.is_empty() || package.join(".") == test { String::new() } else { package.join(".") + "." }
}

/// Is it a class of the project whose classes begin so?
pub(crate) fn is_of_project(name: &str, project: &str) -> bool {
    !project.is_empty() && name.starts_with(project)
}

/// How well a class names a leak, the best first: one of the project, one of a library, one of those without a name of its own
/// (anonymous, a lambda), one of the JDK.
pub(crate) fn naming_rank(name: &str, project: &str) -> u8 {
    if !is_own(name) {
        return 4;
    }
    let element = name.trim_end_matches("[]");
    let last = element.rsplit('$').next().unwrap_or_default();
    let nameless = element.contains("$$Lambda")
        || element.contains("$$ExternalSynthetic")
        || element.contains('$') && is_number(last);
    u8::from(!is_of_project(name, project)) + if nameless { 2 } else { 0 }
}

/// A test framework that keeps objects of its own for each test, as long as the virtual machine lives.
pub(crate) fn is_of_framework(name: &str) -> bool {
    name.starts_with("org.robolectric.") || name.starts_with("androidx.test.")
}

/// A node or table of a collection: it says nothing of what is collected.
pub(crate) fn is_inside_collection(name: &str) -> bool {
    let element = name.trim_end_matches("[]");
    element.starts_with("java.util.") && element.contains('$')
        || matches!(
            name,
            "java.lang.Object[]" | "java.lang.ref.WeakReference" | "java.lang.ref.SoftReference"
        )
}

/// What a collector puts into gaps that it does not close; before JDK 19 these are arrays of int.
pub(crate) fn is_filler(name: &str) -> bool {
    name.starts_with("jdk.internal.vm.Filler")
}

/// What the virtual machine makes while code is compiled and literals are resolved.
pub(crate) fn is_literal(name: &str) -> bool {
    matches!(name, "java.lang.String" | "byte[]" | "char[]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_virtual_machine_numbers_is_taken_out_and_nothing_else() {
        for (name, expected) in [
            ("com.example.Tile", "com.example.Tile"),
            ("com.example.Tile$1", "com.example.Tile$1"),
            ("com.example.Tile[][]", "com.example.Tile[][]"),
            ("byte[]", "byte[]"),
            ("com.example.Loader$$Lambda/0x00007f3c1c001000", "com.example.Loader$$Lambda"),
            ("com.example.Loader$$Lambda$12/0x0000000800c03000", "com.example.Loader$$Lambda"),
            ("com.example.Loader$$Lambda$14/1324119927", "com.example.Loader$$Lambda"),
            ("com.example.Loader$$Lambda$7/0x12ab[]", "com.example.Loader$$Lambda[]"),
            ("java.lang.invoke.LambdaForm$MH/0x0000000800001800", "java.lang.invoke.LambdaForm$MH"),
            (
                "jdk.internal.reflect.GeneratedMethodAccessor12",
                "jdk.internal.reflect.GeneratedMethodAccessor",
            ),
            ("sun.reflect.GeneratedConstructorAccessor3", "sun.reflect.GeneratedConstructorAccessor"),
            ("com.example.GeneratedMethodAccessor12", "com.example.GeneratedMethodAccessor12"),
            ("$Proxy12", "$Proxy"),
            ("jdk.proxy2.$Proxy12", "jdk.proxy.$Proxy"),
            ("com.sun.proxy.$Proxy7", "com.sun.proxy.$Proxy"),
            ("com.example.$Proxy7", "com.example.$Proxy"),
            ("com.example.$ProxyFactory7", "com.example.$ProxyFactory7"),
            ("com.example.Order$HibernateProxy$ab12", "com.example.Order$HibernateProxy$ab12"),
            ("org.mockito.codegen.Writer$MockitoMock$UkSWhU3X", "org.mockito.codegen.Writer$MockitoMock"),
            ("com.example.Tile$MockitoMock$17Kd9QbZ[]", "com.example.Tile$MockitoMock[]"),
            ("com.example.Loader$$LambdaHelper", "com.example.Loader$$LambdaHelper"),
            ("com.example.Loader$$ExternalSyntheticLambda12", "com.example.Loader$$ExternalSyntheticLambda"),
            ("", ""),
            ("/0x", "/0x"),
            ("[]", "[]"),
        ] {
            assert_eq!(normalised(name), expected, "{name}");
            assert_eq!(normalised(expected), expected, "twice is once");
        }
    }

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
            "android.view.View",
        ];
        let ranks: Vec<u8> = ranked.iter().map(|name| naming_rank(name, &project)).collect();
        assert_eq!(ranks, [0, 1, 2, 3, 4]);
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
