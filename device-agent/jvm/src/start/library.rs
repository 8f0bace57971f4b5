//! `System.loadLibrary`: the app itself loads the agent. JNI is then available, but JVMTI only after an agent was
//! attached. So this code asks the runtime to attach this library, by the method that debuggable apps may call.

use jni::objects::{JClass, JObject, JValue};
use jni::{Env, jni_sig, jni_str};
use memgate_ffi::process;
use memgate_jvmti::Natives;

use super::{AGENT, Failure, platform, session};
use crate::agent::outcome_of;
use crate::frames::window_ends;

/// The name that the class loader finds, wherever it keeps its libraries.
const LIBRARY: &str = "libmemgate_agent.so";

/// Replaces the agent if the runtime attaches none: boundaries measure only the native side.
struct WithoutTools;

impl Natives for WithoutTools {
    fn active(&self) -> bool {
        session::is_active()
    }
    fn test_started(&self, suite: &str, test: &str) {
        session::test_begins(|| Some((suite, test)));
    }
    fn test_finished(&self, _: &mut Env<'_>, suite: &str, test: &str, outcome: i32) {
        window_ends((suite, test), outcome_of(outcome), None);
    }
    fn iteration(&self, number: u32) {
        session::iteration_begins(number);
    }
    fn window(&self, _: &mut Env<'_>, suite: &str, test: &str, outcome: i32) -> u32 {
        window_ends((suite, test), outcome_of(outcome), None).bits
    }
    fn listener(&self, _: &str, _: &str) {}
    fn run_finished(&self, _: &mut Env<'_>) {
        session::ends(memgate_wire::GoodbyeReason::Exit, None);
    }
}

/// The library was loaded by a class of the tests, whose loader finds the class with the natives.
pub fn on_library(env: &mut Env<'_>) {
    let Ok(hooks) = env.find_class(jni_str!("io/memgate/agent/Hooks")) else {
        // Loaded by something other than memgate's listener: the class is bound when it is prepared.
        env.exception_clear();
        return;
    };
    if is_served(env, &hooks) {
        return;
    }
    if AGENT.get().is_none() && platform::options_of("").is_some() {
        let refused = attach(env, &hooks).err().map_or_else(String::new, |why| why.to_string());
        env.exception_clear();
        if AGENT.get().is_none() {
            without_tools(&refused);
        }
    }
    let bound = match AGENT.get() {
        Some(agent) => memgate_jvmti::register(env, &hooks, agent),
        None => memgate_jvmti::register(env, &hooks, &WithoutTools),
    };
    if bound.is_err() {
        env.exception_clear();
    }
}

/// Does an agent already answer? It may be another copy of this library, attached from another path.
fn is_served(env: &mut Env<'_>, hooks: &JClass<'_>) -> bool {
    let answer = env.call_static_method(hooks, jni_str!("active"), jni_sig!("()Z"), &[]);
    // If no native method is bound yet, the call has thrown.
    env.exception_clear();
    answer.and_then(|active| active.z()).unwrap_or(false)
}

/// Asks the runtime to attach this library; it calls `Agent_OnAttach` before it answers.
fn attach(env: &mut Env<'_>, hooks: &JClass<'_>) -> Result<(), Failure> {
    env.with_local_frame(16, |env| -> Result<(), Failure> {
        let get = jni_sig!("()Ljava/lang/ClassLoader;");
        let loader = env.call_method(hooks, jni_str!("getClassLoader"), get, &[])?.l()?;
        let name = env.new_string(LIBRARY)?;
        let debug = env.find_class(jni_str!("android/os/Debug"))?;
        let signature = jni_sig!("(Ljava/lang/String;Ljava/lang/String;Ljava/lang/ClassLoader;)V");
        let arguments = [JValue::Object(&name), JValue::Object(&JObject::null()), JValue::Object(&loader)];
        let attached = env.call_static_method(debug, jni_str!("attachJvmtiAgent"), signature, &arguments);
        if attached.is_ok() {
            return Ok(());
        }
        // Before API 28 there is only the runtime's own method, which takes a path and does not search class loaders.
        env.exception_clear();
        let path = env.new_string(process::path_of(on_library as fn(&mut Env<'_>) as usize))?;
        let debug = env.find_class(jni_str!("dalvik/system/VMDebug"))?;
        let by_path = jni_sig!("(Ljava/lang/String;)V");
        env.call_static_method(debug, jni_str!("attachAgent"), by_path, &[JValue::Object(&path)])?;
        Ok(())
    })
}

fn without_tools(refused: &str) {
    let Some(options) = platform::options_of("") else { return };
    let why =
        format!("the runtime attaches no agent ({refused}): is the app debuggable? Java is not measured");
    session::open_late(options, Some(why.clone()));
    session::fails(&why);
}
