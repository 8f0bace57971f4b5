//! Rules about references and objects, in TOML.
//!
//! Data flow: the built-in files (`rules/`), then those of the user → [`Rules`]; a mistake is reported with its line.
//! Names in rules are looked up when a dump is analysed.

use serde::Deserialize;

const REFERENCES: &str = include_str!("rules/references.toml");
const OBJECTS: &str = include_str!("rules/objects.toml");

/// All rules.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    pub(crate) references: Vec<Reference>,
    pub(crate) objects: Vec<ObjectRule>,
}

/// A rule about a reference.
#[derive(Debug, Clone)]
pub(crate) struct Reference {
    /// LeakCanary's name for it.
    pub(crate) name: String,
    /// Its pattern, as written: LeakCanary's fingerprint is made of it.
    pub(crate) text: String,
    pub(crate) pattern: Pattern,
    /// Whether it is a leak of a library. Otherwise it is never followed.
    pub(crate) library: bool,
    /// From a rules file of the user.
    pub(crate) own: bool,
    sdk: Option<[i64; 2]>,
    manufacturers: Vec<String>,
    build_id: Option<String>,
    android: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pattern {
    Instance { class: String, field: String },
    Static { class: String, field: String },
    Thread(String),
    NativeGlobal(String),
}

/// The device a dump comes from, as far as the dump shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) android: bool,
    pub(crate) sdk: Option<i64>,
    pub(crate) manufacturer: Option<String>,
    pub(crate) build_id: Option<String>,
}

impl Reference {
    /// Does the rule apply to this device? A condition on a value that the dump lacks is not met.
    pub(crate) fn applies(&self, device: &Device) -> bool {
        let sdk = self.sdk.is_none_or(|[first, last]| {
            device.sdk.is_some_and(|sdk| sdk >= first && (last == 0 || sdk <= last))
        });
        let made = device.manufacturer.as_ref();
        sdk && (self.manufacturers.is_empty() || made.is_some_and(|made| self.manufacturers.contains(made)))
            && (self.build_id.is_none() || self.build_id == device.build_id)
            && (!self.android || device.android)
    }
}

/// A rule about the state of an object.
#[derive(Debug, Clone)]
pub(crate) struct ObjectRule {
    /// From a rules file of the user.
    pub(crate) own: bool,
    pub(crate) class: Option<String>,
    pub(crate) heap: bool,
    pub(crate) test: Test,
    pub(crate) text: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) enum Test {
    NeverLeaking,
    Check(Check),
    Field { field: String, leaking: Vec<Value>, not_leaking: Vec<Value> },
}

/// A rule that needs more than one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Check {
    Class,
    MainThread,
    View,
    Editor,
    Service,
    ContextWrapper,
    OuterContext,
    AndroidxFragment,
    ViewRoot,
    Toast,
    Recomposer,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    True,
    False,
    Null,
    Set,
    Number(i64),
    Constant(String),
}

impl Value {
    /// Its text in a rules file.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::True => "true".to_owned(),
            Self::False => "false".to_owned(),
            Self::Null => "null".to_owned(),
            Self::Set => "set".to_owned(),
            Self::Number(number) => number.to_string(),
            Self::Constant(name) => name.clone(),
        }
    }
}

/// Why a rules file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RulesError(String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    library: Vec<WrittenReference>,
    #[serde(default)]
    ignored: Vec<WrittenReference>,
    #[serde(default)]
    rule: Vec<WrittenRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenReference {
    #[serde(default)]
    name: String,
    pattern: String,
    sdk: Option<[i64; 2]>,
    #[serde(default)]
    manufacturers: Vec<String>,
    build_id: Option<String>,
    #[serde(default)]
    android: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRule {
    class: Option<String>,
    field: Option<String>,
    leaking: Option<Values>,
    not_leaking: Option<Values>,
    always: Option<Always>,
    check: Option<Check>,
    #[serde(default)]
    heap: Option<bool>,
    text: Option<String>,
}

#[derive(Deserialize)]
enum Always {
    #[serde(rename = "not leaking")]
    NotLeaking,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Values {
    One(String),
    Many(Vec<String>),
}

impl Rules {
    /// The rules that come with memgate.
    ///
    /// # Errors
    /// The built-in rules have a defect.
    pub fn built_in() -> Result<Self, RulesError> {
        let mut rules = Self::default();
        rules.add_all(REFERENCES, false)?;
        rules.add_all(OBJECTS, false)?;
        Ok(rules)
    }

    /// The same rules, but paths may go through weak, soft and phantom references, which do not keep an object alive:
    /// such paths show what could still reach it.
    #[must_use]
    pub fn through_weak(mut self) -> Self {
        const HOLD_NOTHING: [&str; 3] =
            ["java.lang.ref.WeakReference", "java.lang.ref.SoftReference", "java.lang.ref.PhantomReference"];
        self.references.retain(|known| match &known.pattern {
            Pattern::Instance { class, field } => {
                field != "referent" || !HOLD_NOTHING.contains(&class.as_str())
            }
            _ => true,
        });
        self
    }

    /// Adds the rules of a rules file.
    ///
    /// # Errors
    /// The text is no rules file; the error gives the line.
    pub fn add(&mut self, text: &str) -> Result<(), RulesError> {
        self.add_all(text, true)
    }

    fn add_all(&mut self, text: &str, own: bool) -> Result<(), RulesError> {
        let Written { library, ignored, rule } =
            toml::from_str(text).map_err(|why| RulesError(why.to_string().trim_end().to_owned()))?;
        for (list, library) in [(library, true), (ignored, false)] {
            for written in list {
                self.references.push(Reference { own, ..reference(written, library)? });
            }
        }
        for written in rule {
            self.objects.push(ObjectRule { own, ..object_rule(written)? });
        }
        Ok(())
    }
}

fn reference(written: WrittenReference, library: bool) -> Result<Reference, RulesError> {
    let WrittenReference { name, pattern: text, sdk, manufacturers, build_id, android } = written;
    let field = |rest: &str| {
        rest.split_once('#')
            .map(|(class, field)| (class.to_owned(), field.to_owned()))
            .ok_or_else(|| RulesError(format!("`{text}` names no field: it ends with CLASS#FIELD")))
    };
    let pattern = if let Some(rest) = text.strip_prefix("instance field ") {
        let (class, field) = field(rest)?;
        Pattern::Instance { class, field }
    } else if let Some(rest) = text.strip_prefix("static field ") {
        let (class, field) = field(rest)?;
        Pattern::Static { class, field }
    } else if let Some(name) = text.strip_prefix("local variable on thread ") {
        Pattern::Thread(name.to_owned())
    } else if let Some(class) = text.strip_prefix("native global variable referencing ") {
        Pattern::NativeGlobal(class.to_owned())
    } else {
        return Err(RulesError(format!(
            "`{text}` is no pattern: `instance field CLASS#FIELD`, `static field CLASS#FIELD`, `local variable on \
             thread NAME` or `native global variable referencing CLASS`"
        )));
    };
    Ok(Reference { name, text, pattern, library, own: false, sdk, manufacturers, build_id, android })
}

fn object_rule(written: WrittenRule) -> Result<ObjectRule, RulesError> {
    let WrittenRule { class, field, leaking, not_leaking, always, check, heap, text } = written;
    let name = class.clone().unwrap_or_default();
    let wrong = |why: &str| RulesError(format!("the rule for `{name}` {why}"));
    let test = match (field, always, check) {
        (Some(field), None, None) => {
            let (leaking, not_leaking) = (values(leaking), values(not_leaking));
            if leaking.is_empty() && not_leaking.is_empty() {
                return Err(wrong("has neither `leaking` nor `not_leaking`"));
            }
            Test::Field { field, leaking, not_leaking }
        }
        (None, Some(Always::NotLeaking), None) => Test::NeverLeaking,
        (None, None, Some(check)) => Test::Check(check),
        _ => return Err(wrong("needs one of `field`, `always` and `check`")),
    };
    if class.is_none() && !matches!(test, Test::Check(Check::Class)) {
        return Err(RulesError("a rule has no `class`".to_owned()));
    }
    // The author of a rule wants to see all such objects.
    let heap = heap.unwrap_or(matches!(&test, Test::Field { leaking, .. } if !leaking.is_empty()));
    Ok(ObjectRule { own: false, class, heap, test, text })
}

fn values(written: Option<Values>) -> Vec<Value> {
    let all = match written {
        None => Vec::new(),
        Some(Values::One(one)) => vec![one],
        Some(Values::Many(many)) => many,
    };
    all.iter().map(|text| value(text)).collect()
}

fn value(text: &str) -> Value {
    match text {
        "true" => Value::True,
        "false" => Value::False,
        "null" => Value::Null,
        "set" => Value::Set,
        other => other.parse().map_or_else(|_| Value::Constant(text.to_owned()), Value::Number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_rules_are_those_of_leakcanary() {
        let rules = Rules::built_in().unwrap();
        let (library, ignored): (Vec<_>, Vec<_>) = rules.references.iter().partition(|rule| rule.library);
        assert_eq!((library.len(), ignored.len()), (LIBRARY, IGNORED));
        assert!(rules.objects.len() >= 24, "{}", rules.objects.len());
    }

    /// Patterns in LeakCanary's table, without those that it builds and never uses.
    const LIBRARY: usize = 91;
    const IGNORED: usize = 18;

    #[test]
    fn a_library_leak_is_known_of_its_devices_alone() {
        let rules = Rules::built_in().unwrap();
        let rule = rules.references.iter().find(|rule| rule.name == "PERSONA_MANAGER").unwrap();
        let device = |sdk, made: &str| Device {
            android: true,
            sdk: Some(sdk),
            manufacturer: Some(made.to_owned()),
            build_id: None,
        };
        assert!(rule.applies(&device(19, "samsung")));
        assert!(!rule.applies(&device(20, "samsung")) && !rule.applies(&device(19, "HUAWEI")));
        assert!(!rule.applies(&Device::default()), "nothing is known of the device");
    }

    #[test]
    fn a_mistake_in_a_rules_file_is_told() {
        for (text, told) in [
            ("[[rule]]\nclass = \"a.B\"\n", "the rule for `a.B` needs one of"),
            ("[[rule]]\nclass = \"a.B\"\nfield = \"f\"\n", "neither `leaking` nor `not_leaking`"),
            ("[[rule]]\nclas = \"a.B\"\n", "line 2"),
            ("[[library]]\npattern = \"a.B#f\"\n", "is no pattern"),
            ("[[library]]\npattern = \"static field a.B\"\n", "names no field"),
        ] {
            let why = Rules::default().add(text).unwrap_err().to_string();
            assert!(why.contains(told), "{why}");
        }
    }
}
