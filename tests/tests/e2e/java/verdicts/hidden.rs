//! Leaks that hide among the JVM's own allocations, and patterns that only look like leaks.

use memgate_e2e::{Project, junit, jvm};
use memgate_model::Verdict;

const SOURCES: [(&str, &str); 8] = [
    // Keeps some arrays each time, while the JVM sometimes makes arrays and strings of its own.
    (
        "BuffersTest",
        "import org.junit.jupiter.api.Test;
class BuffersTest {
    static final byte[][] KEPT = new byte[100_000][];
    static int next;
    @Test void keeps() { for (int i = 0; i < 5; i++) KEPT[next++] = new byte[704]; }
}
",
    ),
    // Replaces an array by a larger one.
    (
        "GrowingTest",
        "import java.util.Arrays;
import org.junit.jupiter.api.Test;
class GrowingTest {
    static byte[] kept = new byte[100];
    @Test void grows() { kept = Arrays.copyOf(kept, kept.length + 20_000); }
}
",
    ),
    // Lists a folder and never closes it: no object in the Java heap refers to it.
    (
        "FoldersTest",
        "import java.nio.file.*;
import org.junit.jupiter.api.Test;
class FoldersTest {
    @Test void lists() throws Exception { Files.list(Path.of(\"/etc\")).count(); }
}
",
    ),
    // Held by a class object; the JVM does not report the fields of class objects.
    (
        "ValuesTest",
        "import java.util.*;
import org.junit.jupiter.api.Test;
class ValuesTest {
    static class Kept { }
    static final ClassValue<List<Object>> VALUES = new ClassValue<>() {
        @Override protected List<Object> computeValue(Class<?> type) { return new ArrayList<>(); }
    };
    @Test void keeps() { VALUES.get(ValuesTest.class).add(new Kept()); }
}
",
    ),
    // The JDK would keep each connection for five seconds.
    (
        "ConnectionsTest",
        "import com.sun.net.httpserver.HttpServer;
import java.net.*;
import org.junit.jupiter.api.Test;
class ConnectionsTest {
    @Test void gets() throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.createContext(\"/\", exchange -> {
            exchange.sendResponseHeaders(200, 2);
            exchange.getResponseBody().write(new byte[2]);
            exchange.close();
        });
        server.start();
        URL url = new URL(\"http\", \"127.0.0.1\", server.getAddress().getPort(), \"/\");
        try (var body = url.openStream()) {
            body.readAllBytes();
        } finally {
            server.stop(0);
        }
    }
}
",
    ),
    // In each round, the second test frees as much of the first one as it keeps.
    (
        "SlotTest",
        "import org.junit.jupiter.api.Test;
class SlotTest {
    static class Page { }
    static final Object[] KEPT = new Object[100_000];
    static int next;
    static Page slot;
    @Test void fills() { slot = new Page(); }
    @Test void keeps() { slot = null; KEPT[next++] = new Page(); }
}
",
    ),
    (
        "com/example/OpensTest",
        "package com.example;
import org.junit.jupiter.api.Test;
class OpensTest {
    static boolean open;
    @Test void opens() { open = true; }
}
",
    ),
    // Leaks only if the other class ran before it.
    (
        "com/example/UsesTest",
        "package com.example;
import java.util.*;
import org.junit.jupiter.api.Test;
class UsesTest {
    static class Listener { }
    static final List<Listener> LISTENERS = new ArrayList<>(10_000);
    @Test void uses() { if (OpensTest.open) LISTENERS.add(new Listener()); }
}
",
    ),
];

#[test]
fn a_leak_of_arrays_or_descriptors_alone_is_found_and_one_that_needs_another_class_is_told() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let project = Project::new("java-hidden");
    let classes = junit::compile(&jdk, project.folder(), &SOURCES);
    let java = junit::java(&jdk, &[], &classes);
    let run = project.run_command(&java);

    let buffers = run.test("BuffersTest.keeps");
    assert_eq!(buffers.verdict, Verdict::Fail, "{run}");
    let [leak] = buffers.leaks.as_slice() else { panic!("{run}") };
    assert_eq!((leak.count_per_iteration, leak.bytes_per_iteration), (5.0, 3600.0), "{run}");
    assert_eq!(leak.holder[0].owner, "BuffersTest", "{run}");

    assert_eq!(run.test("GrowingTest.grows").verdict, Verdict::Fail, "{run}");

    let folders = run.test("FoldersTest.lists");
    assert_eq!(folders.verdict, Verdict::Fail, "{run}");
    assert!(folders.leaks[0].title.ends_with("× descriptor /etc"), "{run}");

    let values = run.test("ValuesTest.keeps");
    assert_eq!(values.verdict, Verdict::Fail, "{run}");
    let [leak] = values.leaks.as_slice() else { panic!("{run}") };
    assert_eq!(leak.title, "1 × ValuesTest$Kept", "{run}");
    let held = leak
        .holder
        .first()
        .map(|step| (step.owner.as_str(), step.name.split('[').next().unwrap_or_default()));
    assert_eq!(held, Some(("java.lang.Class", "classValueMap")), "{run}");

    assert_eq!(run.test("ConnectionsTest.gets").verdict, Verdict::Pass, "{run}");

    assert_eq!(run.test("SlotTest.keeps").leaks[0].title, "1 × SlotTest$Page", "{run}");
    assert_eq!(run.test("SlotTest.fills").verdict, Verdict::Pass, "{run}");

    let uses = run.test("com.example.UsesTest.uses");
    assert_eq!(uses.verdict, Verdict::Warn, "{run}");
    assert!(
        uses.reason.contains("1 × com.example.UsesTest$Listener in each of the last rounds; alone,"),
        "{run}"
    );
}

/// In each round, the second class releases one `Tile` of the first class and keeps another: the sum in its
/// window is zero.
#[test]
fn a_leak_that_what_the_class_before_gives_back_makes_up_for_is_found() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let sources = [
        (
            "HandsOverTest",
            "import org.junit.jupiter.api.Test;
class HandsOverTest {
    static class Tile { }
    static Tile last;
    @Test void leaves() { last = new Tile(); }
}
",
        ),
        (
            "KeepsTest",
            "import org.junit.jupiter.api.Test;
class KeepsTest {
    static final Object[] KEPT = new Object[100_000];
    static int next;
    @Test void keeps() { HandsOverTest.last = null; KEPT[next++] = new HandsOverTest.Tile(); }
}
",
        ),
    ];
    let project = junit::project("java-hands-over", &jdk, &sources);
    let run = junit::run(&project, &jdk, &[]);
    let keeps = run.test("com.example.KeepsTest.keeps");
    assert_eq!(keeps.verdict, Verdict::Fail, "{run}");
    assert_eq!(keeps.leaks[0].title, "1 × com.example.HandsOverTest$Tile", "{run}");
    assert_eq!(run.test("com.example.HandsOverTest.leaves").verdict, Verdict::Pass, "{run}");
}

/// Each test class replaces the object that the previous class set: the class that keeps its object adds
/// nothing in its window.
#[test]
fn a_leak_of_what_the_next_class_would_replace_is_found() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let class = |name: &str, body: &str| {
        let source = format!("import org.junit.jupiter.api.Test;\nclass {name} {{ {body} }}\n");
        (name.to_owned(), source)
    };
    let replaces = "@Test void replaces() { App.current = new App(); }";
    let keeps = "static final App[] KEPT = new App[100_000]; static int next;
        @Test void keeps() { App.current = KEPT[next++] = new App(); }";
    let sources = [
        class("App", "static App current;"),
        class("FirstTest", replaces),
        class("KeepsTest", keeps),
        class("PlainTest", "@Test void adds() { new Object(); }"),
        class("ReplacesTest", replaces),
    ];
    let sources: Vec<(&str, &str)> =
        sources.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let project = junit::project("java-replaces", &jdk, &sources);
    let run = junit::run(&project, &jdk, &[]);
    let keeps = run.test("com.example.KeepsTest.keeps");
    assert_eq!(keeps.verdict, Verdict::Fail, "{run}");
    assert_eq!(keeps.leaks[0].title, "1 × com.example.App", "{run}");
    for test in ["FirstTest.replaces", "ReplacesTest.replaces"] {
        assert_eq!(run.test(&format!("com.example.{test}")).verdict, Verdict::Pass, "{run}");
    }
}

/// The same between two classes that leak: objects of the class never stop growing, and each suspect leaks alone, but
/// one of them fewer than in the rounds.
#[test]
fn a_leak_of_what_a_leaking_class_would_replace_is_found() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let class = |name: &str, set: &str| {
        let source = format!(
            "import org.junit.jupiter.api.Test;
class {name} {{
    static final App[] KEPT = new App[100_000];
    static int next;
    @Test void keeps() {{ App.current = {set}; }}
}}
"
        );
        (name.to_owned(), source)
    };
    let leaks = "new App(); KEPT[next++] = new App()";
    let sources = [
        ("App".to_owned(), "class App { static App current; }\n".to_owned()),
        class("FirstTest", leaks),
        class("KeepsTest", "KEPT[next++] = new App()"),
        class("LastTest", leaks),
    ];
    let sources: Vec<(&str, &str)> =
        sources.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let project = junit::project("java-replaces-beside-leaks", &jdk, &sources);
    let run = junit::run(&project, &jdk, &[]);
    for class in ["FirstTest", "KeepsTest", "LastTest"] {
        let test = run.test(&format!("com.example.{class}.keeps"));
        assert_eq!(test.verdict, Verdict::Fail, "{run}");
        assert_eq!(test.leaks[0].title, "1 × com.example.App", "{run}");
        assert_eq!(test.leaks[0].holder[0].owner, format!("com.example.{class}"), "{run}");
    }
}

/// A class whose task in a pool ends late and frees objects of a class of `java.text`, and one that leaks such objects.
fn task_and_leak([submits, keeps]: [&str; 2], class: &str, pool: &str) -> [(String, String); 2] {
    let task = format!(
        "import java.util.*;
import java.util.concurrent.*;
import java.text.{class};
import org.junit.jupiter.api.Test;
class {submits}Test {{
    static final ExecutorService POOL = {pool};
    static Future<?> started;
    static CountDownLatch mayEnd;
    static int runs;
    @Test void submits() throws Exception {{
        ends();
        int positions = 2 + 2 * (++runs % 2);
        CountDownLatch end = mayEnd = new CountDownLatch(1);
        started = POOL.submit(() -> {{
            {class}[] kept = new {class}[positions];
            Arrays.setAll(kept, i -> new {class}(0));
            try {{ end.await(200, TimeUnit.MILLISECONDS); }} catch (InterruptedException e) {{ }}
            Objects.requireNonNull(kept);
        }});
    }}
    static void ends() throws Exception {{
        if (started != null) {{
            mayEnd.countDown();
            started.get();
        }}
    }}
}}
"
    );
    let leak = format!(
        "import java.text.{class};
import org.junit.jupiter.api.Test;
class {keeps}Test {{
    static final {class}[] KEPT = new {class}[100_000];
    static int next;
    @Test void keeps() throws Exception {{
        if ({submits}Test.runs % 2 == 0) {submits}Test.ends();
        KEPT[next++] = new {class}(0);
    }}
}}
"
    );
    [(format!("{submits}Test"), task), (format!("{keeps}Test"), leak)]
}

/// The thread of a class, or its task in a pool, ends while the second class runs, or before the first one runs again:
/// what it frees hides what the second one keeps.
#[test]
fn a_leak_while_the_thread_or_the_task_of_the_class_before_ends_is_found() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let sources = [
        (
            "AStartsTest",
            "import java.util.*;
import java.util.concurrent.*;
import org.junit.jupiter.api.Test;
class AStartsTest {
    static Thread started;
    static CountDownLatch mayEnd;
    static int runs;
    @Test void starts() throws Exception {
        ends();
        int dates = 2 + 2 * (++runs % 2);
        mayEnd = new CountDownLatch(1);
        started = new Thread(() -> {
            Date[] kept = new Date[dates];
            Arrays.setAll(kept, i -> new Date());
            try { mayEnd.await(200, TimeUnit.MILLISECONDS); } catch (InterruptedException e) { }
            Objects.requireNonNull(kept);
        });
        started.start();
    }
    static void ends() throws Exception {
        if (started != null) {
            mayEnd.countDown();
            started.join();
        }
    }
}
",
        ),
        (
            "BKeepsTest",
            "import java.util.Date;
import org.junit.jupiter.api.Test;
class BKeepsTest {
    static final Date[] KEPT = new Date[100_000];
    static int next;
    @Test void keeps() throws Exception {
        if (AStartsTest.runs % 2 == 0) AStartsTest.ends();
        KEPT[next++] = new Date();
    }
}
",
        ),
    ];
    let own = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
    let sources: Vec<(String, String)> = sources
        .iter()
        .map(own)
        .chain(task_and_leak(["CSubmits", "DKeeps"], "FieldPosition", "Executors.newFixedThreadPool(2)"))
        .chain(task_and_leak(["EForks", "FKeeps"], "ParsePosition", "ForkJoinPool.commonPool()"))
        .collect();
    let sources: Vec<(&str, &str)> =
        sources.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let project = junit::project("java-late-threads", &jdk, &sources);
    let run = junit::run(&project, &jdk, &[]);
    for class in ["BKeepsTest", "DKeepsTest", "FKeepsTest"] {
        assert_eq!(run.test(&format!("com.example.{class}.keeps")).verdict, Verdict::Fail, "{run}");
    }
    for test in ["AStartsTest.starts", "CSubmitsTest.submits", "EForksTest.submits"] {
        assert_eq!(run.test(&format!("com.example.{test}")).verdict, Verdict::Pass, "{run}");
    }
}
