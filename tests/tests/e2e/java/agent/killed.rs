//! memgate is killed while its own virtual machine repeats tests.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use memgate_e2e::{junit, jvm, waiting};

/// Its third execution kills memgate, which started its virtual machine, and then hangs.
const KILLER: &str = r#"
import java.nio.file.*;
import org.junit.jupiter.api.Test;
class KillerTest {
    static int executions;
    @Test void kills() throws Exception {
        if (++executions == 3) {
            Files.writeString(Path.of("pid"), Long.toString(ProcessHandle.current().pid()));
            ProcessHandle.current().parent().get().destroyForcibly();
            Thread.sleep(Long.MAX_VALUE);
        }
    }
}
"#;

#[test]
fn the_virtual_machine_that_repeats_tests_ends_with_memgate() {
    let jdk = &jvm::jdks()[0];
    let project = junit::project("jvm-killed", jdk, &[("KillerTest", KILLER)]);
    let java = junit::java(jdk, &[], &project.folder().join("classes"));
    let words = ["run".to_owned(), "--".to_owned()].into_iter().chain(java).collect::<Vec<_>>();
    let output = waiting::output(&mut project.command(&words));
    assert!(!output.status.success(), "{output:?}");
    let command = format!("/proc/{}/cmdline", project.read("pid"));
    // A process that ended has no command. The boundaries of a hanging test never come, and unanswered ones end a
    // virtual machine only after minutes.
    let lives = || fs::read(&command).is_ok_and(|words| !words.is_empty());
    let until = Instant::now() + Duration::from_secs(30);
    while lives() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    if lives() {
        Command::new("kill").args(["-9", &project.read("pid")]).status().unwrap();
        panic!("the virtual machine lived on");
    }
}
