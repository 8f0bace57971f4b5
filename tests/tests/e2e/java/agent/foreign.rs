//! Another agent in the same JVM samples allocations. Only one agent may, so memgate leaves it to the agent
//! of the build.

use std::process::Command;

use memgate_e2e::samples::successful;
use memgate_e2e::{has_tool, jvm};
use memgate_model::Verdict;

/// Prints whether it may sample; acts as a profiler that gives up if it may not.
const AGENT: &str = r#"
#include <jvmti.h>
#include <stdio.h>

JNIEXPORT jint JNICALL Agent_OnLoad(JavaVM *vm, char *options, void *reserved) {
    jvmtiEnv *tools;
    if ((*vm)->GetEnv(vm, (void **) &tools, JVMTI_VERSION_11) != JNI_OK) return JNI_ERR;
    jvmtiCapabilities wanted = {0};
    wanted.can_generate_sampled_object_alloc_events = 1;
    jvmtiError refused = (*tools)->AddCapabilities(tools, &wanted);
    FILE *said = fopen(options, "w");
    fprintf(said, "%d %d", refused, (*tools)->SetHeapSamplingInterval(tools, 16 << 10));
    fclose(said);
    return JNI_OK;
}
"#;

#[test]
fn a_profiler_of_the_build_samples_as_it_does_without_memgate() {
    if !has_tool("cc") {
        return;
    }
    for jdk in jvm::jdks() {
        let project = jvm::sample(&format!("jvm-foreign-{}", jdk.release), "junit4");
        let source = project.write("profiler.c", AGENT);
        let library = project.folder().join("profiler.so");
        let include = jdk.home.join("include");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
        successful(cc.arg("-I").arg(&include).arg("-I").arg(include.join("linux")));
        let said = project.folder().join("said");
        let load = format!("<argLine>-agentpath:{}={} ", library.display(), said.display());
        let pom = project.read("pom.xml").replace("<argLine>", &load);
        project.write("pom.xml", pom);
        let mvn = ["run", "--", "mvn", "-q", "-B", "test", "-Dtest=CleanTest"];
        let run = project.finish(project.command(&mvn).env("JAVA_HOME", &jdk.home));
        run.ends_with(0);
        assert_eq!(project.read("said"), "0 0", "it was refused:\n{run}");
        let suite = run.suite();
        let told = format!("allocations are not sampled: that is left to {}", library.display());
        assert!(suite.verdict == Verdict::Pass && suite.reason.contains(&told), "{}\n{run}", suite.reason);
    }
}
