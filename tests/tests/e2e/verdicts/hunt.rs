//! Growth that does not occur in every execution: one execution shows nothing of it; `--hunt` repeats tests
//! that were never suspects.

use memgate_e2e::{Project, Run, junit, jvm, samples};
use memgate_model::{Hunt, Metric, Verdict};

const POOL: &str = r#"
#include <gtest/gtest.h>
#include <cstdlib>
#include <vector>
static char* volatile lost;
__attribute__((noinline)) void new_chunk() { lost = new char[64 << 10]; }
TEST(Pool, TakesAChunkNowAndThen) { static int calls; if (++calls % 250 == 0) new_chunk(); }
TEST(Clean, Allocates) { std::vector<int> numbers(1000); EXPECT_EQ(numbers[7], 0); }
TEST(Once, Passes) { static int calls; EXPECT_LT(++calls, 5); }
TEST(Once, Survives) { static int calls; if (++calls == 20) std::abort(); }
"#;

fn pool(options: &[&str]) -> (Project, Run) {
    let program = samples::own_suite("pool", POOL);
    let mut all = vec!["run"];
    all.extend(options);
    all.extend(["--", program.to_str().unwrap()]);
    let project = Project::new(&format!("hunt{}", options.concat()));
    let run = project.memgate(&all);
    (project, run)
}

fn hunt(run: &Run) -> Hunt {
    run.suite().hunt.unwrap_or_else(|| panic!("nothing is said of a hunt\n{run}"))
}

#[test]
fn a_chunk_in_every_250th_execution_fails_its_test_in_a_hunt_alone() {
    pool(&[]).1.ends_with(0);
    let (project, run) = pool(&["--hunt", "8s"]);
    run.ends_with(1);
    let test = run.test("Pool.TakesAChunkNowAndThen");
    assert_eq!(test.verdict, Verdict::Fail, "{}\n{run}", test.reason);
    assert!(
        test.reason.ends_with(" executions") && test.reason.contains(" B per iteration (allowed 0 B), in "),
        "{run}"
    );
    let [leak] = test.leaks.as_slice() else { panic!("{:?}", test.leaks) };
    assert_eq!(leak.frames[0].function.as_deref(), Some("new_chunk()"));
    assert!((200.0..330.0).contains(&leak.bytes_per_iteration), "{}", leak.title);
    for clean in ["Clean.Allocates", "Once.Passes", "Once.Survives"] {
        assert_eq!(run.test(clean).verdict, Verdict::Pass, "{clean}\n{run}");
    }
    let hunt = hunt(&run);
    assert_eq!((hunt.of, hunt.repeated, hunt.grew, hunt.failing, hunt.not_reached), (4, 2, 1, 2, 0), "{run}");
    assert!(hunt.executions.0 > 250 && hunt.one_in > 50, "{hunt:?}");
    let failures = hunt.failures.join("\n");
    assert!(
        failures.contains("Once.Passes: it fails") && failures.contains("Once.Survives: after 19"),
        "{failures}"
    );
    run.says("hunt: 2 of 4 tests repeated, ")
        .says(" would have been missed with 1 % at most; 1 grew and was judged; 2 cannot be repeated: ");
    let kept = project.streams().len();
    assert_eq!(kept, 2, "of tests in which nothing grew nothing is kept: the screen and the leak\n{run}");
}

#[test]
fn what_a_hunt_has_no_time_for_or_cannot_repeat_is_said() {
    let (_, run) = pool(&["--hunt", "100ms"]);
    run.ends_with(0);
    assert_eq!(hunt(&run), Hunt { of: 4, not_reached: 4, ..Hunt::default() });
    run.says("hunt: 0 of 4 tests repeated; no time for 4");
    let program = samples::own_program("hunt_program", "int main() { return 0; }");
    let run =
        Project::new("hunt-program").memgate(&["run", "--hunt", "10m", "--", program.to_str().unwrap()]);
    run.says("hunt: nothing was repeated: the process is the test");
}

const SELDOM: &str = "import java.nio.ByteBuffer;
import java.util.*;
import org.junit.jupiter.api.*;
class SeldomTest {
    static final class Tile { long id; }
    static final class Chunk { final ByteBuffer memory = ByteBuffer.allocateDirect(1 << 16); }
    static final List<Object> KEPT = new ArrayList<>();
    static int calls;
    @Test void keeps() {
        if (++calls % 7 == 0) KEPT.add(new Tile());
        if (calls % 40 == 0) KEPT.add(new Chunk());
    }
}
";
const CLEAN: &str = "import java.util.*;
import org.junit.jupiter.api.*;
class CleanTest {
    @Test void formats() { Assertions.assertEquals(\"7\", String.format(\"%d\", 7)); }
    @Test void collects() { Assertions.assertEquals(1, new ArrayList<>(List.of(1)).size()); }
}
";

#[test]
fn objects_that_are_kept_now_and_then_are_found_in_a_hunt_and_a_clean_class_is_not_blamed() {
    let Some(jdk) = jvm::jdks_in_turn(0).into_iter().next() else { return };
    let project = junit::project("hunt", &jdk, &[("SeldomTest", SELDOM), ("CleanTest", CLEAN)]);
    junit::run(&project, &jdk, &[]).ends_with(0);
    let run = junit::run_with(&project, &jdk, &["--hunt", "60s"], &[]);
    run.ends_with(1);
    let test = run.test("com.example.SeldomTest.keeps");
    assert_eq!(test.verdict, Verdict::Fail, "{}\n{run}", test.reason);
    let objects = test.leaks.iter().find(|leak| leak.class.as_deref() == Some("com.example.SeldomTest$Tile"));
    let objects = objects.unwrap_or_else(|| panic!("{:?}\n{run}", test.leaks));
    assert!((0.1..0.2).contains(&objects.count_per_iteration), "{}", objects.title);
    assert!(objects.title.ends_with(" executions"), "{}", objects.title);
    let from = &objects.holder[0];
    assert_eq!((from.owner.as_str(), from.name.as_str()), ("com.example.SeldomTest", "KEPT"));
    let direct = test.metrics[&Metric::JavaDirectBytes].value;
    assert!((1000.0..2500.0).contains(&direct), "64 KiB in 40 executions: {direct}\n{run}");
    for clean in ["formats", "collects"] {
        assert_eq!(run.test(&format!("com.example.CleanTest.{clean}")).verdict, Verdict::Pass, "{run}");
    }
    let hunt = hunt(&run);
    assert_eq!(
        (hunt.classes, hunt.of, hunt.repeated, hunt.grew, hunt.not_reached),
        (true, 2, 2, 1, 0),
        "{run}"
    );
}
