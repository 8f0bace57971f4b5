//! Class names without the parts that differ from run to run.
//!
//! Only numbers and random suffixes of known generators are removed: the virtual machine, Android's compilers, Byte
//! Buddy (Mockito, Hibernate), CGLIB (Spring, Guice), Javassist, Groovy and Spring. Numbers from a compiler (`Tile$1`,
//! Kotlin's `TilesKt$load$1`) are the same in every run and stay.

/// Is it a class or method of the library of Kotlin, Scala or Groovy? Like the JDK's, it allocates for its caller: in
/// Groovy even each `new` of a test goes through it.
#[must_use]
pub fn is_of_language(name: &str) -> bool {
    ["kotlin.", "scala.", "groovy.", "org.codehaus.groovy.", "org.apache.groovy."]
        .iter()
        .any(|package| name.starts_with(package))
}

/// The name of a class that is the same in every run: `com.example.Loader$$Lambda`,
/// `jdk.internal.reflect.GeneratedMethodAccessor`.
#[must_use]
pub fn stable_class_name(name: &str) -> String {
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
    // D8 and R8 convert lambdas to classes, and number them anew in each build.
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
    if let Some(stem) = generated(package, simple) {
        return joined(package, &stem);
    }
    if simple.strip_prefix("$Proxy").is_some_and(is_number) {
        let package =
            if package.strip_prefix("jdk.proxy").is_some_and(is_number) { "jdk.proxy" } else { package };
        return joined(package, "$Proxy");
    }
    joined(package, simple)
}

/// The name of a field that is the same in every run. Byte Buddy appends a hash or random letters to static fields of
/// generated classes: `invocationTarget$rbn5111` becomes `invocationTarget`.
#[must_use]
pub fn stable_field_name<'a>(owner: &str, field: &'a str) -> &'a str {
    const MADE: [&str; 7] = [
        "cachedValue",
        "delegate",
        "invocationHandler",
        "invocationTarget",
        "invokeDynamic",
        "methodCall",
        "value",
    ];
    let is_random =
        |part: &str| matches!(part.len(), 7 | 8) && part.bytes().all(|b| b.is_ascii_alphanumeric());
    match field.split_once('$') {
        Some((stem, rest))
            if MADE.contains(&stem)
                && rest.split('$').all(is_random)
                && stable_class_name(owner) != owner =>
        {
            stem
        }
        _ => field,
    }
}

/// A name that a library generated, without its numbers and random parts; `None`: no known generator made it.
fn generated(package: &str, simple: &str) -> Option<String> {
    let name = without_random_parts(simple);
    let name = without_cglib_hashes(&name);
    let name = without_javassist_number(&name);
    let name = without_spring_number(package, name);
    let name = without_groovy_number(package, name);
    (name != simple).then_some(name)
}

/// Byte Buddy appends eight random letters and digits to its marks, old versions of Mockito a random number:
/// `$MockitoMock$17Kd9QbZ$auxiliary$Xk2LmN0p`.
fn without_random_parts(simple: &str) -> String {
    const MAKERS: [&str; 7] = [
        "MockitoMock",
        "ByteBuddy",
        "auxiliary",
        "HibernateProxy",
        "HibernateBasicProxy",
        "HibernateInstantiator",
        "HibernateAccessOptimizer",
    ];
    let is_random = |part: &str| part.len() == 8 && part.bytes().all(|b| b.is_ascii_alphanumeric());
    let mut before = "";
    let mut kept = Vec::new();
    for part in simple.split('$') {
        let (of_maker, of_mockito) = (MAKERS.contains(&before), before == "MockitoMock");
        before = part;
        if !(is_random(part) && of_maker || is_number(part) && of_mockito) {
            kept.push(part);
        }
    }
    kept.join("$")
}

/// Removes CGLIB's hashes, and the numbers of classes with the same hash: `Tile$$EnhancerBySpringCGLIB$$1a2b3c4d_2`,
/// Spring 6: `Tile$$SpringCGLIB$$0`.
fn without_cglib_hashes(name: &str) -> String {
    let is_hash = |part: &str| {
        let (hash, number) = part.split_once('_').unwrap_or((part, "0"));
        is_hex(hash) && is_number(number)
    };
    let is_mark = |part: &str| part.ends_with("CGLIB") || part.contains("ByGuice") || part == "FastClass";
    let mut before = "";
    let mut kept = Vec::new();
    for part in name.split("$$") {
        let of_mark = is_mark(before);
        before = part;
        if !(of_mark && is_hash(part)) {
            kept.push(part);
        }
    }
    kept.join("$$")
}

/// `Tile_$$_jvst3a4_12`; in older versions `Tile_$$_javassist_12`.
fn without_javassist_number(name: &str) -> &str {
    let Some((stem, number)) = name.rsplit_once('_') else { return name };
    if stem.ends_with("_$$_javassist") && is_number(number) {
        return stem;
    }
    match stem.rsplit_once("_$$_jvst") {
        Some((_, hash)) if is_hex(number) && hash.bytes().all(|b| b.is_ascii_hexdigit()) => {
            &stem[..stem.len() - hash.len()]
        }
        _ => name,
    }
}

/// Spring Data's `Order_Accessor_1x2y3z` and `Order_Instantiator_1x2y3z`, which end in identity hashes, and compiled
/// expressions: `spel.Ex12`.
fn without_spring_number<'a>(package: &str, name: &'a str) -> &'a str {
    let is_hash = |end: &str| {
        (4..=7).contains(&end.len()) && end.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    match name.rsplit_once('_') {
        Some((stem, end))
            if is_hash(end) && (stem.ends_with("_Accessor") || stem.ends_with("_Instantiator")) =>
        {
            stem
        }
        _ if package == "spel" && name.strip_prefix("Ex").is_some_and(is_number) => "Ex",
        _ => name,
    }
}

/// Scripts without a file (`Script12`, `script17000000000001234567890`), proxies (`Tile3_groovyProxy`) and call sites
/// (`java_util_ArrayList$add$4`). Numbers from Groovy's compiler, as in closures, are the same in every run.
fn without_groovy_number(package: &str, name: &str) -> String {
    if let Some(stem) = name.strip_suffix("_groovyProxy") {
        return format!("{}_groovyProxy", stem.trim_end_matches(|c: char| c.is_ascii_digit()));
    }
    // These names have no package. In the name of a call site, underscores replace the dots of its class.
    if !package.is_empty() {
        return name.to_owned();
    }
    if let Some(rest) = name.strip_prefix("Script").or_else(|| name.strip_prefix("script")) {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, rest) = rest.split_at(digits);
        if !number.is_empty() && (rest.is_empty() || rest.starts_with('$')) {
            return format!("{}{rest}", &name[.."script".len()]);
        }
    }
    match name.rsplit_once('$') {
        Some((site, number)) if site.starts_with("java_") && is_number(number) => site.to_owned(),
        _ => name.to_owned(),
    }
}

/// The name of a hidden class is `name/0xaddress` (older virtual machines: `name/number`), in a heap dump
/// `name+0xaddress` (`name.number`; no class name is a number).
fn without_address(name: &str) -> &str {
    match name.rsplit_once(['/', '+', '.']) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_byte_buddy_made_has_one_name_in_every_run_and_a_field_of_yours_keeps_its_own() {
        let made = "com.example.Order$HibernateAccessOptimizer$aB3dE6gH";
        for (owner, field, expected) in [
            (made, "invocationTarget$rbn5111", "invocationTarget"),
            (made, "cachedValue$17Kd9QbZ$d66sqv1", "cachedValue"),
            (made, "delegate$mine", "delegate$mine"),
            (made, "tile$rbn5111", "tile$rbn5111"),
            (made, "value", "value"),
            ("com.example.Order", "value$rbn5111", "value$rbn5111"),
        ] {
            assert_eq!(stable_field_name(owner, field), expected, "{field} of {owner}");
        }
    }

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
            ("com.example.Loader$$Lambda+0x00007f3c1c001000", "com.example.Loader$$Lambda"),
            ("com.example.Loader$$Lambda$12+0x0000000800c03000[]", "com.example.Loader$$Lambda[]"),
            ("com.example.Loader$$Lambda$14.1324119927", "com.example.Loader$$Lambda"),
            ("com.example.Loader+Part", "com.example.Loader+Part"),
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
            ("com.example.FooKt$main$1", "com.example.FooKt$main$1"),
            ("com.example.Loader$$LambdaHelper", "com.example.Loader$$LambdaHelper"),
            ("com.example.Loader$$ExternalSyntheticLambda12", "com.example.Loader$$ExternalSyntheticLambda"),
            ("", ""),
            ("/0x", "/0x"),
            ("[]", "[]"),
        ] {
            assert_eq!(stable_class_name(name), expected, "{name}");
            assert_eq!(stable_class_name(expected), expected, "twice is once");
        }
    }

    #[track_caller]
    fn are(names: &[(&str, &str)]) {
        for (name, expected) in names {
            assert_eq!(stable_class_name(name), *expected, "{name}");
            assert_eq!(stable_class_name(expected), *expected, "twice is once: {name}");
        }
    }

    #[test]
    fn byte_buddy_draws_the_ends_of_names() {
        are(&[
            ("com.example.Tile$ByteBuddy$aB3dE6gH", "com.example.Tile$ByteBuddy"),
            (
                "com.example.Tile$MockitoMock$17Kd9QbZ$auxiliary$Xk2LmN0p",
                "com.example.Tile$MockitoMock$auxiliary",
            ),
            ("org.mockito.codegen.List$MockitoMock$1903466431", "org.mockito.codegen.List$MockitoMock"),
            (
                "com.example.Tile$MockitoMock$1903466431$auxiliary$Xk2LmN0p",
                "com.example.Tile$MockitoMock$auxiliary",
            ),
            ("com.example.Tile$auxiliary$Xk2LmN0p[]", "com.example.Tile$auxiliary[]"),
            ("com.example.Tile$auxiliary$Helper", "com.example.Tile$auxiliary$Helper"),
            ("com.example.Tile$MockitoMock", "com.example.Tile$MockitoMock"),
        ]);
    }

    #[test]
    fn hibernates_names_are_byte_buddys() {
        are(&[
            ("com.example.Order$HibernateProxy$aB3dE6gH", "com.example.Order$HibernateProxy"),
            ("com.example.Order$HibernateBasicProxy$aB3dE6gH", "com.example.Order$HibernateBasicProxy"),
            ("com.example.Order$HibernateInstantiator$aB3dE6gH", "com.example.Order$HibernateInstantiator"),
            (
                "com.example.Order$HibernateAccessOptimizer$aB3dE6gH",
                "com.example.Order$HibernateAccessOptimizer",
            ),
            ("com.example.Order$HibernateProxy", "com.example.Order$HibernateProxy"),
        ]);
    }

    #[test]
    fn cglib_hashes_what_a_class_is_made_from() {
        are(&[
            ("com.example.Tile$$EnhancerByCGLIB$$1a2b3c4d", "com.example.Tile$$EnhancerByCGLIB"),
            (
                "com.example.Tile$$EnhancerByMockitoWithCGLIB$$f00d",
                "com.example.Tile$$EnhancerByMockitoWithCGLIB",
            ),
            (
                "com.example.Tile$$EnhancerByCGLIB$$1a2b3c4d$$FastClassByCGLIB$$5e6f",
                "com.example.Tile$$EnhancerByCGLIB$$FastClassByCGLIB",
            ),
            (
                "net.sf.cglib.core.MethodWrapper$MethodWrapperKey$$KeyFactoryByCGLIB$$d45e49f7_2",
                "net.sf.cglib.core.MethodWrapper$MethodWrapperKey$$KeyFactoryByCGLIB",
            ),
            ("com.example.Tile$$EnhancerByGuice$$1a2b3c4d", "com.example.Tile$$EnhancerByGuice"),
            ("com.example.Tile$$FastClassByGuice$$1234567", "com.example.Tile$$FastClassByGuice"),
            ("com.example.Tile$$cafe", "com.example.Tile$$cafe"),
        ]);
    }

    #[test]
    fn spring_numbers_proxies_accessors_and_expressions() {
        are(&[
            ("com.example.Tile$$EnhancerBySpringCGLIB$$1a2b3c4d", "com.example.Tile$$EnhancerBySpringCGLIB"),
            (
                "com.example.Tile$$EnhancerBySpringCGLIB$$1a2b3c4d_2",
                "com.example.Tile$$EnhancerBySpringCGLIB",
            ),
            ("com.example.Tile$$SpringCGLIB$$0", "com.example.Tile$$SpringCGLIB"),
            ("com.example.Tile$$SpringCGLIB$$FastClass$$1", "com.example.Tile$$SpringCGLIB$$FastClass"),
            ("com.example.Order_Accessor_k3j2h1", "com.example.Order_Accessor"),
            ("com.example.Order_Instantiator_dz81x0", "com.example.Order_Instantiator"),
            ("com.example.Order_Accessor_Main", "com.example.Order_Accessor_Main"),
            ("spel.Ex42", "spel.Ex"),
            ("com.example.Ex42", "com.example.Ex42"),
        ]);
    }

    #[test]
    fn javassist_numbers_proxies() {
        are(&[
            ("com.example.Tile_$$_jvst3a4_12", "com.example.Tile_$$_jvst"),
            ("com.example.Tile_$$_jvst3a4_c", "com.example.Tile_$$_jvst"),
            ("com.example.Tile_$$_javassist_12", "com.example.Tile_$$_javassist"),
            ("com.example.Tile_12", "com.example.Tile_12"),
        ]);
    }

    #[test]
    fn the_jdk_numbers_proxies_and_accessors() {
        are(&[
            ("jdk.proxy3.$Proxy41", "jdk.proxy.$Proxy"),
            ("com.sun.proxy.$Proxy41[]", "com.sun.proxy.$Proxy[]"),
            (
                "jdk.internal.reflect.GeneratedSerializationConstructorAccessor2",
                "jdk.internal.reflect.GeneratedSerializationConstructorAccessor",
            ),
        ]);
    }

    #[test]
    fn groovy_numbers_scripts_proxies_and_call_sites() {
        are(&[
            ("Script12", "Script"),
            ("Script12$_run_closure1", "Script$_run_closure1"),
            ("script17000000000001234567890", "script"),
            ("Tile3_groovyProxy", "Tile_groovyProxy"),
            ("java_util_ArrayList$add$4", "java_util_ArrayList$add"),
            ("com.example.Build$_run_closure2", "com.example.Build$_run_closure2"),
            ("com.example.Script12", "com.example.Script12"),
            ("com.example.java_tiles$1", "com.example.java_tiles$1"),
        ]);
    }

    /// The virtual machine makes the lambdas of Kotlin 2; older ones are classes that the compiler numbers.
    #[test]
    fn kotlins_lambdas_are_the_virtual_machines_or_have_the_compilers_number() {
        are(&[
            ("com.example.TilesKt$$Lambda/0x00007f3c1c001000", "com.example.TilesKt$$Lambda"),
            ("com.example.TilesKt$$Lambda$31/0x0000000800c03000", "com.example.TilesKt$$Lambda"),
            ("com.example.TilesKt$load$1", "com.example.TilesKt$load$1"),
            ("com.example.TilesKt$sam$java_lang_Runnable$0", "com.example.TilesKt$sam$java_lang_Runnable$0"),
        ]);
    }
}
