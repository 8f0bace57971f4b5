//! Names of classes, fields, methods and threads, for paths through the heap.
//!
//! [`with_classes`] numbers every loaded class by its tag in a separate environment. A heap walk reports these
//! numbers, and this module turns them back into names. Fields have the numbers that references use.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use jni::Env;
use jni::objects::{JClass, JObject};
use memgate_jvmti::{Error, Jvmti, Method, StackFrame};
use memgate_session as session;
use memgate_wire::LogLevel;
use memgate_wire::hotspot::class_name;

use super::machine::Failure;

/// Room for a reference to every class.
const LOCAL_REFERENCES: usize = 1 << 16;

/// A class with its number.
pub(super) struct Known {
    pub(super) name: String,
    /// For a class of soft, weak or phantom references: the number of the field whose object they do not hold.
    pub(super) referent: Option<u32>,
}

/// Runs `work` with every loaded class, numbered from 1 by its tag. Reports if the classes are not available.
pub(super) fn with_classes<R: Default>(
    env: &mut Env<'_>,
    jvmti: Jvmti<'_>,
    work: impl FnOnce(&mut Env<'_>, &[(Known, JClass<'_>)]) -> R,
) -> R {
    let done = env.with_local_frame(LOCAL_REFERENCES, |env| -> Result<R, Failure> {
        let reference = env.find_class(jni::jni_str!("java/lang/ref/Reference"))?;
        let loaded = known_or_empty(jvmti.loaded_classes(env))?;
        for (number, class) in loaded.iter().enumerate() {
            let _unnumbered = jvmti.set_tag(class, i64::try_from(number).unwrap_or(0).saturating_add(1));
        }
        let mut classes = Vec::new();
        for class in loaded {
            let name = name_of(jvmti, &class);
            let is_reference = env.is_assignable_from(&class, &reference).unwrap_or(false);
            let fields = if is_reference { fields_of(env, jvmti, &class)? } else { Vec::new() };
            let referent = fields
                .iter()
                .position(|(owner, field)| owner == "java.lang.ref.Reference" && field == "referent")
                .and_then(|index| u32::try_from(index).ok());
            classes.push((Known { name, referent }, class));
        }
        Ok(work(env, &classes))
    });
    done.unwrap_or_else(|why| {
        session::log(LogLevel::Warn, &format!("who holds what grew is not known: {why}"));
        R::default()
    })
}

/// Treats an answer that the virtual machine refuses as empty. Lack of memory stays an error.
fn known_or_empty<T: Default>(answer: Result<T, Error>) -> Result<T, Error> {
    if matches!(answer, Err(Error::NoMemory)) { answer } else { Ok(answer.unwrap_or_default()) }
}

/// The name of a class as in the source. A hidden class (`Lcom/example/Loader$$Lambda.0x12;`) is named as in class
/// histograms.
pub(super) fn name_of(jvmti: Jvmti<'_>, class: &JObject<'_>) -> String {
    class_of(&jvmti.class_signature(class).unwrap_or_default())
}

/// The class of a signature.
pub(super) fn class_of(signature: &str) -> String {
    let plain = signature.strip_prefix('L').and_then(|s| s.strip_suffix(';')).unwrap_or(signature);
    match plain.rsplit_once('.') {
        Some((visible, hidden)) => class_name(&format!("{}/{hidden}", visible.replace('/', "."))),
        None => class_name(&plain.replace('/', ".")),
    }
}

pub(super) fn known<'a>(classes: &'a [(Known, JClass<'_>)], number: i64) -> Option<&'a Known> {
    classes.get(usize::try_from(number).ok()?.checked_sub(1)?).map(|(known, _)| known)
}

/// Names of classes and fields.
pub(super) struct Names<'a, 'l> {
    pub(super) jvmti: Jvmti<'a>,
    pub(super) classes: &'a [(Known, JClass<'l>)],
    pub(super) fields: BTreeMap<i64, Vec<(String, String)>>,
}

impl Names<'_, '_> {
    pub(super) fn class(&self, number: i64) -> &str {
        known(self.classes, number).map_or("?", |known| &known.name)
    }

    pub(super) fn method(&self, method: Method) -> String {
        self.jvmti.method_name(method).unwrap_or_default()
    }

    pub(super) fn declaring(&self, env: &mut Env<'_>, method: Method) -> String {
        let jvmti = self.jvmti;
        env.with_local_frame(4, |env| -> Result<String, jni::errors::Error> {
            Ok(jvmti
                .declaring_class(env, method)
                .map_or_else(|_unknown| String::new(), |class| name_of(jvmti, &class)))
        })
        .unwrap_or_default()
    }

    /// Class of a frame, and its method with file and line: `run(Worker.java:12)`.
    pub(super) fn frame(&self, env: &mut Env<'_>, frame: StackFrame) -> (String, String) {
        let jvmti = self.jvmti;
        let described = env.with_local_frame(4, |env| -> Result<_, jni::errors::Error> {
            let class = jvmti.declaring_class(env, frame.method).ok();
            let name = class.as_ref().map(|class| name_of(jvmti, class)).unwrap_or_default();
            Ok((name, class.and_then(|class| jvmti.source_file(&class))))
        });
        let (owner, file) = described.unwrap_or_default();
        let method = self.method(frame.method);
        let line = jvmti.line(frame.method, frame.location);
        let place = match (file, line) {
            (Some(file), Some(line)) => format!("({file}:{line})"),
            (Some(file), None) => format!("({file})"),
            (None, _) => String::new(),
        };
        (owner, method + &place)
    }

    /// The class that declares the field with this number, and its name.
    pub(super) fn field(&mut self, env: &mut Env<'_>, class: i64, index: u32) -> (String, String) {
        if !self.fields.contains_key(&class) {
            let place = usize::try_from(class).ok().and_then(|n| n.checked_sub(1));
            let found = place.and_then(|place| self.classes.get(place));
            let fields = found.and_then(|(_, class)| fields_of(env, self.jvmti, class).ok());
            let fields = fields.unwrap_or_default();
            self.fields.insert(class, fields);
        }
        let known = self.fields.get(&class).and_then(|fields| fields.get(index as usize)).cloned();
        known.unwrap_or_else(|| (self.class(class).to_owned(), format!("#{index}")))
    }
}

/// The fields of a class, `(class that declares it, name)`, in the order in which references number them (JVMTI,
/// `jvmtiHeapReferenceInfoField`): those of all interfaces, then of the superclasses from `Object` down, then its own.
/// Returns an error if some fields are not known, because all others would get wrong numbers.
pub(super) fn fields_of(
    env: &mut Env<'_>,
    jvmti: Jvmti<'_>,
    class: &JClass<'_>,
) -> Result<Vec<(String, String)>, Failure> {
    env.with_local_frame(256, |env| -> Result<_, Failure> {
        let mut chain = Vec::new();
        let mut at = Some(env.new_local_ref(class)?);
        while let Some(class) = at {
            at = env.get_superclass(&class)?;
            chain.push(class);
        }
        let mut interfaces: BTreeMap<i64, usize> = BTreeMap::new();
        for class in &chain {
            count_interface_fields(env, jvmti, class, &mut interfaces)?;
        }
        let mut fields: Vec<(String, String)> =
            vec![(String::new(), String::new()); interfaces.values().sum()];
        for class in chain.iter().rev() {
            let owner = name_of(jvmti, class);
            let own = known_or_empty(jvmti.fields(class))?;
            fields.extend(own.into_iter().map(|field| (owner.clone(), field.name)));
        }
        Ok(fields)
    })
}

/// Counts the fields of the interfaces of a class, each interface (by its tag) once.
fn count_interface_fields(
    env: &mut Env<'_>,
    jvmti: Jvmti<'_>,
    class: &JObject<'_>,
    seen: &mut BTreeMap<i64, usize>,
) -> Result<(), Error> {
    for interface in known_or_empty(jvmti.interfaces(env, class))? {
        let tag = jvmti.tag(&interface).unwrap_or(0);
        if let Entry::Vacant(place) = seen.entry(tag) {
            place.insert(known_or_empty(jvmti.fields(&interface))?.len());
            count_interface_fields(env, jvmti, &interface, seen)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_there_is_no_memory_for_is_not_known() {
        assert_eq!(known_or_empty(Ok(vec![1])), Ok(vec![1]));
        assert_eq!(known_or_empty::<Vec<u8>>(Err(Error::NotThere)), Ok(Vec::new()));
        assert_eq!(known_or_empty::<Vec<u8>>(Err(Error::NoMemory)), Err(Error::NoMemory));
    }
}
