//! The native methods of `io.memgate.agent.Hooks`: Java calls one of the functions here, which calls the agent's
//! [`Natives`] value. A call from Java never throws and never fails: the agent reports errors itself.

use core::ffi::c_void;
use std::sync::OnceLock;

use jni::objects::{JClass, JString};
use jni::strings::JNIStr;
use jni::sys::{jboolean, jint};
use jni::{Env, EnvUnowned, NativeMethod, jni_str};

/// Calls from Java to the agent. Names have the form that the test runner shows.
pub trait Natives: Sync {
    /// Is this process measured?
    fn active(&self) -> bool;
    /// A test begins.
    fn test_started(&self, suite: &str, test: &str);
    /// A test ended; 0: passed, 1: failed, 2: skipped.
    fn test_finished(&self, env: &mut Env<'_>, suite: &str, test: &str, outcome: i32);
    /// The launcher begins a round or an iteration.
    fn iteration(&self, number: u32);
    /// A window ends here: live objects are measured. Returns the orders of the harness.
    fn window(&self, env: &mut Env<'_>, suite: &str, test: &str, outcome: i32) -> u32;
    /// Name of the component that reports the tests, called before the first test. Also the system properties at that
    /// time, as `key NUL value NUL …`.
    fn listener(&self, name: &str, properties: &str);
    /// All tests are over. No later event reports the end of the process, because Android ends it with the run.
    fn run_finished(&self, env: &mut Env<'_>);
}

static NATIVES: OnceLock<&'static dyn Natives> = OnceLock::new();

/// Binds the native methods of `class` to `natives`, for the life of the process.
pub fn register(
    env: &mut Env<'_>,
    class: &JClass<'_>,
    natives: &'static dyn Natives,
) -> Result<(), jni::errors::Error> {
    NATIVES.get_or_init(|| natives);
    let texts = jni_str!("(Ljava/lang/String;Ljava/lang/String;)V");
    let texts_and_number = jni_str!("(Ljava/lang/String;Ljava/lang/String;I)V");
    let method = |name: &'static JNIStr, signature: &'static JNIStr, function: *mut c_void| {
        // SAFETY: each function below has the type that its signature states.
        unsafe { NativeMethod::from_raw_parts(name, signature, function) }
    };
    let methods = [
        method(jni_str!("active"), jni_str!("()Z"), active as *mut c_void),
        method(jni_str!("testStarted"), texts, test_started as *mut c_void),
        method(jni_str!("testFinished"), texts_and_number, test_finished as *mut c_void),
        method(jni_str!("iteration"), jni_str!("(I)V"), iteration as *mut c_void),
        method(
            jni_str!("window"),
            jni_str!("(Ljava/lang/String;Ljava/lang/String;I)I"),
            window as *mut c_void,
        ),
        method(jni_str!("listener"), texts, listener as *mut c_void),
        method(jni_str!("runFinished"), jni_str!("()V"), run_finished as *mut c_void),
    ];
    // SAFETY: as above.
    unsafe { env.register_native_methods(class, &methods) }
}

/// Runs `work` with the agent's value. Returns the default value if that is not possible.
fn call<T: Default>(mut env: EnvUnowned<'_>, work: impl FnOnce(&mut Env<'_>, &dyn Natives) -> T) -> T {
    let Some(natives) = NATIVES.get() else { return T::default() };
    let outcome =
        env.with_env_no_catch(|env| Ok::<T, jni::errors::Error>(work(env, *natives))).into_outcome();
    match outcome {
        jni::Outcome::Ok(value) => value,
        jni::Outcome::Err(_) | jni::Outcome::Panic(_) => T::default(),
    }
}

/// A Java string; null gives an empty one.
fn text(env: &Env<'_>, from: &JString<'_>) -> String {
    if from.is_null() { String::new() } else { from.try_to_string(env).unwrap_or_default() }
}

extern "system" fn active<'l>(env: EnvUnowned<'l>, _: JClass<'l>) -> jboolean {
    call(env, |_, natives| natives.active())
}

extern "system" fn test_started<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    suite: JString<'l>,
    test: JString<'l>,
) {
    call(env, |env, natives| natives.test_started(&text(env, &suite), &text(env, &test)));
}

extern "system" fn test_finished<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    suite: JString<'l>,
    test: JString<'l>,
    outcome: jint,
) {
    call(env, |env, natives| {
        let (suite, test) = (text(env, &suite), text(env, &test));
        natives.test_finished(env, &suite, &test, outcome);
    });
}

extern "system" fn iteration<'l>(env: EnvUnowned<'l>, _: JClass<'l>, number: jint) {
    call(env, |_, natives| natives.iteration(u32::try_from(number).unwrap_or(0)));
}

extern "system" fn window<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    suite: JString<'l>,
    test: JString<'l>,
    outcome: jint,
) -> jint {
    call(env, |env, natives| {
        let (suite, test) = (text(env, &suite), text(env, &test));
        natives.window(env, &suite, &test, outcome).cast_signed()
    })
}

extern "system" fn run_finished<'l>(env: EnvUnowned<'l>, _: JClass<'l>) {
    call(env, |env, natives| natives.run_finished(env));
}

extern "system" fn listener<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    name: JString<'l>,
    properties: JString<'l>,
) {
    call(env, |env, natives| natives.listener(&text(env, &name), &text(env, &properties)));
}
