//! A JVM that does not run tests does not notice the agent: build tools, compilers, programs.

use std::process::Command;

use memgate_e2e::jvm;
use memgate_e2e::{Project, agent, probes, waiting};

#[test]
fn in_other_programs_nothing_is_done() {
    for jdk in jvm::jdks() {
        let project = Project::new(&format!("jvm-dormant-{}", jdk.release));
        let options = probes::options(&jdk, &project, "follow=*;heap_dump=.");
        let option = format!("-agentpath:{}={}", agent().display(), options.display());
        let source = project.write("Plain.java", "public class Plain { public static void main(String[] a) throws Exception {
            Class<?> hooks = null;
            try { hooks = Class.forName(\"io.memgate.agent.Hooks\", true, null); } catch (ClassNotFoundException good) { }
            System.out.println(hooks + \" \" + System.getProperty(\"java.class.path\"));
        } }");
        let mut javac = Command::new(jdk.home.join("bin/javac"));
        javac.env("JAVA_TOOL_OPTIONS", &option).arg("-d").arg(project.folder()).arg(&source);
        let javac = waiting::output(&mut javac);
        assert!(javac.status.success(), "{javac:?}");
        let class_path = project.folder().display().to_string();
        let mut java = Command::new(jdk.home.join("bin/java"));
        java.env("JAVA_TOOL_OPTIONS", &option).args(["-Xcheck:jni", "-cp", &class_path, "Plain"]);
        let java = waiting::output(&mut java);
        assert_eq!(
            String::from_utf8_lossy(&java.stdout),
            format!("null {class_path}\n"),
            "nothing is on its paths"
        );
        assert!(probes::streams(&project).is_empty(), "no stream of {} or javac", jdk.release);
    }
}
