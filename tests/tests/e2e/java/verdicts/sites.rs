//! A leak of Java objects shows its allocation site, and a local variable that holds it shows thread and
//! frame.

use memgate_e2e::jvm;
use memgate_model::{LeakKind, Verdict};

/// A thread keeps a list in a local variable, and each test adds to it.
const KEEPER: &str = r#"package com.example;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.SynchronousQueue;
import org.junit.Test;

public class KeeperTest {
    static final SynchronousQueue<Integer> orders = new SynchronousQueue<>();
    static final SynchronousQueue<Integer> done = new SynchronousQueue<>();

    static {
        Thread keeper = new Thread(KeeperTest::keep, "keeper-7");
        keeper.setDaemon(true);
        keeper.start();
    }

    static void keep() {
        List<Parcel> parcels = new ArrayList<>();
        try {
            while (true) {
                int order = orders.take();
                parcels.add(new Parcel(order));
                done.put(parcels.size());
            }
        } catch (InterruptedException end) {
            return;
        }
    }

    @Test
    public void keeps() throws Exception {
        orders.put(1);
        done.take();
    }

    static final class Parcel {
        final int number;

        Parcel(int number) {
            this.number = number;
        }
    }
}
"#;

/// Since JDK 21: each test leaves a virtual thread that waits forever, in a list.
const PARKED: &str = r#"package com.example;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.SynchronousQueue;
import org.junit.Assume;
import org.junit.Test;

public class ParkedTest {
    static final List<Object> threads = new ArrayList<>();

    @Test
    public void parks() throws Exception {
        Assume.assumeTrue(Runtime.version().feature() >= 21);
        SynchronousQueue<Integer> begun = new SynchronousQueue<>();
        Runnable waits = () -> {
            KeeperTest.Parcel parcel = new KeeperTest.Parcel(3);
            try {
                begun.put(1);
                new SynchronousQueue<Integer>().put(parcel.number);
            } catch (InterruptedException end) {
                throw new IllegalStateException(parcel.number + ", " + end);
            }
        };
        threads.add(Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, waits));
        begun.take();
    }
}
"#;

#[test]
fn a_leak_says_where_it_is_allocated_and_which_thread_holds_it() {
    for jdk in jvm::jdks_in_turn(1) {
        let project = jvm::sample(&format!("jvm-sites-{}", jdk.release), "junit4");
        project.write("src/test/java/com/example/KeeperTest.java", KEEPER);
        project.write("src/test/java/com/example/ParkedTest.java", PARKED);
        let tests = "-Dtest=KeeperTest,ParkedTest,TileCacheTest";
        let mut command = project.command(&["run", "--", "mvn", "-q", "-B", "test", tests]);
        let run = project.finish(command.env("JAVA_HOME", &jdk.home));
        run.ends_with(1);

        let evicts = run.test("com.example.TileCacheTest.evicts");
        let frame = &evicts.leaks[0].frames[0];
        assert_eq!(
            frame.function.as_deref(),
            Some("com.example.Registry.load"),
            "{:?}",
            evicts.leaks[0].frames
        );
        assert_eq!((frame.file.as_deref(), frame.line.is_some()), (Some("Registry.java"), true));
        run.says(&format!("allocated at  com.example.Registry.load(Registry.java:{})", frame.line.unwrap()));

        let keeps = run.test("com.example.KeeperTest.keeps");
        assert_eq!(keeps.verdict, Verdict::Fail, "{run}");
        let parcels = keeps.leaks.iter().find(|leak| leak.kind == LeakKind::Java).unwrap();
        assert_eq!(parcels.title, "1 × com.example.KeeperTest$Parcel");
        let root: Vec<(&str, &str)> =
            parcels.holder.iter().take(2).map(|step| (step.kind.as_str(), step.owner.as_str())).collect();
        assert_eq!(
            root,
            [("thread", "keeper-…"), ("stack", "com.example.KeeperTest")],
            "{:?}",
            parcels.holder
        );
        let line_of = |text: &str| KEEPER.lines().position(|line| line.contains(text)).unwrap() + 1;
        let line = line_of("orders.take()");
        let here = format!(
            "held by  a local variable of com.example.KeeperTest.keep (KeeperTest.java:{line}) in thread keeper-…"
        );
        run.says(&here);
        let line = line_of("new Parcel(");
        run.says(&format!("allocated at  com.example.KeeperTest.keep(KeeperTest.java:{line})"));
        let again = project.memgate(&["gate", "--format", "json", ".memgate/latest"]);
        assert_eq!(again.test("com.example.KeeperTest.keeps").leaks, keeps.leaks, "judged again");

        if jdk.release >= 21 {
            // What holds a virtual thread holds its stack, too: all of it is one leak.
            let parks = run.test("com.example.ParkedTest.parks");
            let java: Vec<_> = parks.leaks.iter().filter(|leak| leak.kind == LeakKind::Java).collect();
            let [leak] = java.as_slice() else { panic!("{java:?}") };
            assert_eq!(leak.title, "1 × com.example.KeeperTest$Parcel");
            let list = "held by  static com.example.ParkedTest.threads → java.util.ArrayList.elementData[x]";
            run.says(&format!("{list} → stack com.example.ParkedTest.lambda$parks$0(ParkedTest.java:"));
        }
    }
}
