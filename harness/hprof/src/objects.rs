//! Reads an object's state from its fields: in use, no longer in use, and labels for the reader.
//!
//! Data flow: rules about objects → those that apply to each class → [`Inspector::look`] at one object: reasons and
//! labels, from its references and the kept primitive fields.

use std::collections::HashMap;

use crate::contents::{Contents, Wanted};
use crate::graph::{Graph, Kind};
use crate::ids::{NONE, index, number};
use crate::index::Index;
use crate::looked::MOST_LABELS;
use crate::rules::{Check, ObjectRule, Rules, Test, Value};
use crate::text::{shortened, simple_name};

/// Names of LeakCanary's references to watched objects; the second one was used until 2018.
pub(crate) const WATCHERS: [&str; 2] =
    ["leakcanary.KeyedWeakReference", "com.squareup.leakcanary.KeyedWeakReference"];

/// Beginning of the label with the title of a window.
pub(crate) const WINDOW_TITLE: &str = "mWindowAttributes.mTitle = ";

/// Primitive fields that checks read, in addition to those of the rules.
const READ: [(&str, &str); 15] = [
    ("android.view.View", "mWindowAttachCount"),
    ("android.app.Activity", "mDestroyed"),
    ("androidx.fragment.app.Fragment", "mCalled"),
    ("androidx.fragment.app.Fragment", "mMaxState"),
    ("leakcanary.KeyedWeakReference", "watchUptimeMillis"),
    ("leakcanary.KeyedWeakReference", "retainedUptimeMillis"),
    ("android.view.WindowManager$LayoutParams", "type"),
    ("android.graphics.Bitmap", "mWidth"),
    ("android.graphics.Bitmap", "mHeight"),
    ("android.graphics.Bitmap", "mRecycled"),
    ("libcore.util.NativeAllocationRegistry", "size"),
    ("java.lang.Thread", "threadStatus"),
    ("java.lang.Thread$FieldHolder", "threadStatus"),
    ("java.lang.Thread", "tid"),
    ("android.os.Message", "what"),
];

/// Classes whose objects are `true` or `false` by their field `value`.
pub(crate) const TRUTHS: [&str; 2] = ["java.lang.Boolean", "java.util.concurrent.atomic.AtomicBoolean"];

pub(crate) fn is_truth(class: &str) -> bool {
    TRUTHS.contains(&class)
}

/// All primitive fields whose values are kept.
pub(crate) fn watched(rules: &Rules) -> Vec<(&str, &str)> {
    let mut all = READ.to_vec();
    for rule in &rules.objects {
        if let (Some(class), Test::Field { field, leaking, not_leaking }) = (&rule.class, &rule.test) {
            all.push((class, field));
            let mut values = leaking.iter().chain(not_leaking);
            if rule.own && values.any(|value| matches!(value, Value::True | Value::False)) {
                all.extend(TRUTHS.map(|class| (class, "value")));
            }
        }
    }
    all
}

/// The report on one object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) leaking: Vec<String>,
    pub(crate) not_leaking: Vec<String>,
    pub(crate) labels: Vec<String>,
}

pub(crate) struct Inspector<'a> {
    dump: &'a Index,
    graph: &'a Graph,
    rules: &'a [ObjectRule],
    /// Rules by class.
    of: Vec<Vec<usize>>,
    watchers: HashMap<u32, u32>,
    /// Number of references whose object is gone.
    pub(crate) cleared: u64,
    /// Names of threads and of watched objects, if they were read.
    pub(crate) names: HashMap<u32, String>,
}

impl<'a> Inspector<'a> {
    pub(crate) fn new(dump: &'a Index, graph: &'a Graph, rules: &'a Rules) -> Self {
        let mut by_class: HashMap<&str, Vec<usize>> = HashMap::new();
        for (at, rule) in rules.objects.iter().enumerate() {
            if let Some(class) = &rule.class {
                by_class.entry(class).or_default().push(at);
            }
        }
        let of = (0..dump.classes.len()).map(|class| {
            if graph.layout(number(class)).bytes == 0 {
                return Vec::new();
            }
            let mut rules: Vec<usize> = dump
                .hierarchy(number(class))
                .filter_map(|class| by_class.get(dump.classes[index(class)].name.as_str()))
                .flatten()
                .copied()
                .collect();
            rules.sort_unstable();
            rules
        });
        let of = of.collect();
        let mut inspector = Self {
            dump,
            graph,
            rules: &rules.objects,
            of,
            watchers: HashMap::new(),
            cleared: 0,
            names: HashMap::new(),
        };
        inspector.find_watchers();
        inspector
    }

    fn find_watchers(&mut self) {
        let legacy = !self
            .dump
            .classes
            .iter()
            .filter(|class| class.name == WATCHERS[0])
            .flat_map(|class| &class.statics)
            .any(|field| self.dump.string(field.name) == Some("heapDumpUptimeMillis"));
        for name in WATCHERS {
            if !self.dump.classes.iter().any(|class| class.name == name) {
                continue;
            }
            for reference in self.graph.instances(self.dump, name) {
                let retained =
                    legacy || self.graph.number(self.dump, reference, "retainedUptimeMillis") != Some(-1);
                match self.graph.field(self.dump, reference, "referent") {
                    Some(object) if retained => {
                        self.watchers.insert(object, reference);
                    }
                    Some(_) => {}
                    None => self.cleared += u64::from(retained),
                }
            }
        }
    }

    /// LeakCanary's reference to an object that it watched.
    pub(crate) fn watcher(&self, object: u32) -> Option<u32> {
        self.watchers.get(&object).copied()
    }

    /// Objects of the whole heap that are no longer in use but still exist.
    pub(crate) fn leaking(&self) -> Vec<u32> {
        let heap: Vec<bool> =
            self.of.iter().map(|rules| rules.iter().any(|rule| self.rules[*rule].heap)).collect();
        let mut all: Vec<u32> = self.watchers.keys().copied().collect();
        if heap.iter().any(|heap| *heap) {
            for object in (0..self.graph.len()).map(number) {
                if let Kind::Of(class) = self.graph.kind(object)
                    && heap[index(class)]
                    && self.is_leaking(object, class)
                {
                    all.push(object);
                }
            }
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Number of rules about the whole heap that apply to some class; LeakCanary's references count as one.
    pub(crate) fn applicable(&self) -> usize {
        let mut rules: Vec<usize> =
            self.of.iter().flatten().copied().filter(|rule| self.rules[*rule].heap).collect();
        rules.sort_unstable();
        rules.dedup();
        let watched = self.dump.classes.iter().any(|class| WATCHERS.contains(&class.name.as_str()));
        rules.len() + usize::from(watched)
    }

    fn is_leaking(&self, object: u32, class: u32) -> bool {
        self.of[index(class)].iter().map(|rule| &self.rules[*rule]).filter(|rule| rule.heap).any(|rule| {
            match rule.test {
                // In the whole heap, only the root of a view tree counts.
                Test::Check(Check::View) => self.root_view_is_over(object),
                _ => {
                    let mut seen = Seen::default();
                    self.apply(rule, object, &mut seen);
                    !seen.leaking.is_empty()
                }
            }
        })
    }

    /// Everything that is known about an object.
    pub(crate) fn look(&self, object: u32) -> Seen {
        let mut seen = Seen::default();
        if let Some(watcher) = self.watcher(object) {
            self.watched(watcher, &mut seen);
        }
        match self.graph.kind(object) {
            Kind::Class(_) => {
                for rule in self.rules.iter().filter(|rule| rule.class.is_none()) {
                    seen.not_leaking.push(rule.text.clone().unwrap_or_default());
                }
            }
            Kind::Of(class) => {
                self.anonymous(class, &mut seen);
                if let Some(name) = self.names.get(&object)
                    && self.dump.is_a(class, "java.lang.Thread")
                {
                    seen.labels.push(format!("Thread name: '{name}'"));
                }
                // In LeakCanary's order: views, contexts, everything else.
                let of = self.of[index(class)].iter().map(|rule| &self.rules[*rule]);
                let (views, others): (Vec<_>, Vec<_>) =
                    of.partition(|rule| matches!(rule.test, Test::Check(Check::View | Check::Editor)));
                views.iter().for_each(|rule| self.apply(rule, object, &mut seen));
                self.contexts(object, class, &mut seen);
                others.iter().for_each(|rule| self.apply(rule, object, &mut seen));
            }
            Kind::Primitives(_) | Kind::Unknown => {}
        }
        let mut told = std::collections::HashSet::new();
        seen.labels.retain(|label| told.insert(label.clone()));
        seen
    }

    fn watched(&self, watcher: u32, seen: &mut Seen) {
        let text = |field| {
            let text = self.field(watcher, field)?;
            self.names.get(&text).cloned()
        };
        let why = text("description").unwrap_or_else(|| "Unknown (legacy)".to_owned());
        seen.leaking.push(match why.as_str() {
            "" => "ObjectWatcher was watching this".to_owned(),
            why => format!("ObjectWatcher was watching this because {why}"),
        });
        if let Some(key) = text("key") {
            seen.labels.push(format!("key = {key}"));
        }
        let millis = |field| self.graph.number(self.dump, watcher, field);
        let dumped = self.static_number(WATCHERS[0], "heapDumpUptimeMillis");
        for (field, label) in
            [("watchUptimeMillis", "watchDurationMillis"), ("retainedUptimeMillis", "retainedDurationMillis")]
        {
            if let (Some(at), Some(dumped)) = (millis(field), dumped) {
                seen.labels.push(format!("{label} = {}", dumped.wrapping_sub(at)));
            }
        }
    }

    /// Adds the texts that are shown for this object.
    pub(crate) fn want(&self, wanted: &mut Wanted, object: u32) {
        let mut texts = Vec::new();
        if let Some(watcher) = self.watcher(object) {
            texts.extend(["key", "description"].map(|field| self.field(watcher, field)));
        }
        if let Kind::Of(class) = self.graph.kind(object)
            && self.dump.is_a(class, "java.lang.Thread")
        {
            texts.push(self.field(object, "name"));
        }
        if let Some(attributes) = self.field(object, "mWindowAttributes") {
            texts.push(self.field(attributes, "mTitle"));
        }
        for text in texts.into_iter().flatten() {
            wanted.text(self.dump, self.graph, text);
        }
    }

    /// Stores the texts that were read.
    pub(crate) fn take(&mut self, contents: &Contents, objects: impl IntoIterator<Item = u32>) {
        for object in objects {
            let mut texts: Vec<(u32, u32)> = Vec::new();
            if let Some(watcher) = self.watcher(object) {
                let fields = ["key", "description"].map(|field| self.field(watcher, field));
                texts.extend(fields.into_iter().flatten().map(|text| (text, text)));
            }
            if let Some(attributes) = self.field(object, "mWindowAttributes") {
                texts.extend(self.field(attributes, "mTitle").map(|text| (text, text)));
            }
            texts.extend(self.field(object, "name").map(|text| (object, text)));
            for (key, text) in texts {
                if let Some(text) = contents.text(self.dump, self.graph, text) {
                    self.names.insert(key, shortened(text));
                }
            }
        }
    }

    fn apply(&self, rule: &ObjectRule, object: u32, seen: &mut Seen) {
        match &rule.test {
            Test::NeverLeaking => seen.not_leaking.push(rule.text.clone().unwrap_or_default()),
            Test::Check(check) => self.check(*check, rule, object, seen),
            Test::Field { field, leaking, not_leaking } => {
                let class = rule.class.as_deref().unwrap_or_default();
                let text = |value: &str| {
                    rule.text.clone().unwrap_or_else(|| format!("{}#{field} is {value}", simple_name(class)))
                };
                if let Some(value) = self.first(object, field, leaking) {
                    seen.leaking.push(text(&value));
                } else if let Some(value) = self.first(object, field, not_leaking) {
                    seen.not_leaking.push(text(&value));
                }
            }
        }
    }

    /// The first of these values that the field has, in display form.
    fn first(&self, object: u32, field: &str, values: &[Value]) -> Option<String> {
        values.iter().find_map(|value| match value {
            Value::True | Value::False => {
                let wanted = *value == Value::True;
                (self.truth(object, field)? == wanted).then(|| wanted.to_string())
            }
            Value::Number(wanted) => {
                (self.graph.number(self.dump, object, field)? == *wanted).then(|| wanted.to_string())
            }
            Value::Null => self.reference(object, field)?.is_none().then(|| "null".to_owned()),
            Value::Set => self.reference(object, field)?.map(|_| "not null".to_owned()),
            Value::Constant(name) => {
                (self.constant(self.field(object, field)?)? == *name).then(|| name.clone())
            }
        })
    }

    fn check(&self, check: Check, rule: &ObjectRule, object: u32, seen: &mut Seen) {
        match check {
            Check::Class => {}
            Check::MainThread => {
                if self.names.get(&object).is_some_and(|name| name == "main") {
                    seen.not_leaking.push(rule.text.clone().unwrap_or_default());
                }
            }
            Check::View => self.view(object, seen),
            Check::Editor => {
                if let Some(view) = self.field(object, "mTextView") {
                    self.view(view, seen);
                }
            }
            Check::Service => self.service(object, seen),
            Check::ContextWrapper => self.context_wrapper(object, seen),
            Check::OuterContext => self.outer_context(object, seen),
            Check::AndroidxFragment => self.androidx_fragment(object, seen),
            Check::ViewRoot => self.view_root(object, seen),
            Check::Toast => self.toast(object, seen),
            Check::Recomposer => self.recomposer(object, seen),
        }
    }

    fn service(&self, object: u32, seen: &mut Seen) {
        match self.is_running_service(object) {
            Some(true) => seen.not_leaking.push("Service held by ActivityThread".to_owned()),
            Some(false) => seen.leaking.push("Service not held by ActivityThread".to_owned()),
            None => {}
        }
    }

    fn context_wrapper(&self, object: u32, seen: &mut Seen) {
        // Activities, services and applications have their own rules.
        if self.is_component(object) {
            return;
        }
        if let Some(activity) = self.unwrap(object).filter(|found| self.is(*found, ACTIVITY)) {
            let name = simple_name(self.graph.class_name(self.dump, object)).to_owned();
            match self.destroyed(activity) {
                Some(true) => {
                    seen.leaking.push(format!("{name} wraps an Activity with Activity.mDestroyed true"));
                }
                Some(false) => {
                    seen.labels.push(format!("{name} wraps an Activity with Activity.mDestroyed false"));
                }
                None => {}
            }
        }
    }

    fn outer_context(&self, object: u32, seen: &mut Seen) {
        let field = if self.slot_exists(object, "mOuterContext") { "mOuterContext" } else { "mContext" };
        let Some(outer) = self.field(object, field) else { return };
        let name = simple_name(self.graph.class_name(self.dump, object)).to_owned();
        if self.is(outer, ACTIVITY) {
            match self.destroyed(outer) {
                Some(true) => seen.leaking.push(format!(
                    "{name}.{field} is an instance of {} with Activity.mDestroyed true",
                    self.graph.class_name(self.dump, outer)
                )),
                Some(false) => seen.not_leaking.push(format!(
                    "{name}.{field} is an instance of {} with Activity.mDestroyed false",
                    self.graph.class_name(self.dump, outer)
                )),
                None => {}
            }
        } else if self.is(outer, "android.app.Application") {
            seen.not_leaking.push(format!("{name}.{field} is an application context"));
        }
    }

    fn view_root(&self, object: u32, seen: &mut Seen) {
        if self.reference(object, "mView") == Some(None) {
            seen.leaking.push("ViewRootImpl#mView is null".to_owned());
        } else if let Some(context) = self.field(object, "mContext")
            && let Some(activity) = self.unwrap(context).filter(|found| self.is(*found, ACTIVITY))
            && self.destroyed(activity) == Some(true)
        {
            let text = "ViewRootImpl#mContext references an activity that is destroyed";
            seen.leaking.push(text.to_owned());
        }
        if let Some(attributes) = self.field(object, "mWindowAttributes") {
            if let Some(title) = self.field(attributes, "mTitle").and_then(|title| self.names.get(&title)) {
                seen.labels.push(format!("{WINDOW_TITLE}\"{title}\""));
            }
            if let Some(kind) = self.graph.number(self.dump, attributes, "type") {
                seen.labels.push(format!("mWindowAttributes.type = {kind}"));
            }
        }
    }

    fn toast(&self, object: u32, seen: &mut Seen) {
        let Some(tn) = self.field(object, "mTN") else { return };
        let field = |name| self.reference(tn, name).flatten();
        if field("mWM").is_some() {
            if field("mView").is_none() {
                let text = "This toast is done showing (Toast.mTN.mWM != null && Toast.mTN.mView == null)";
                seen.leaking.push(text.to_owned());
            } else {
                let text = "This toast is showing (Toast.mTN.mWM != null && Toast.mTN.mView != null)";
                seen.not_leaking.push(text.to_owned());
            }
        }
    }

    fn recomposer(&self, object: u32, seen: &mut Seen) {
        let state = self.field(object, "_state").and_then(|flow| self.field(flow, "_state"));
        match state.and_then(|state| self.constant(state)).as_deref() {
            Some(over @ ("ShutDown" | "ShuttingDown")) => {
                seen.leaking.push(format!("Recomposer is in state {over}"));
            }
            Some(used @ ("PendingWork" | "Idle")) => {
                seen.not_leaking.push(format!("Recomposer is in state {used}"));
            }
            _ => {}
        }
    }

    // ---- views

    fn root_view_is_over(&self, view: u32) -> bool {
        let Some(parent) = self.reference(view, "mParent") else { return false };
        if parent.is_some_and(|parent| self.is(parent, VIEW)) {
            return false;
        }
        if self.context_is_over(view) == Some(true) {
            return true;
        }
        let detached = self.reference(view, "mAttachInfo") == Some(None);
        let attached_before =
            self.graph.number(self.dump, view, "mWindowAttachCount").is_some_and(|count| count > 0);
        detached
            && attached_before
            && (parent.is_some()
                || self.graph.class_name(self.dump, view) == "com.android.internal.policy.DecorView")
    }

    fn context_is_over(&self, view: u32) -> Option<bool> {
        let context = self.field(view, "mContext")?;
        self.destroyed(self.unwrap(context).filter(|found| self.is(*found, ACTIVITY))?)
    }

    fn view(&self, view: u32, seen: &mut Seen) {
        let over = self.context_is_over(view);
        if over == Some(true) {
            seen.leaking.push("View.mContext references a destroyed activity".to_owned());
        }
        // Find the root of its view tree.
        let (mut top, mut steps, mut in_window) = (view, 0, false);
        while let Some(parent) = self.field(top, "mParent") {
            if !self.is(parent, VIEW) {
                in_window = true;
                break;
            }
            top = parent;
            steps += 1;
            if steps > 10_000 {
                return;
            }
        }
        in_window |= self.graph.class_name(self.dump, top) == "com.android.internal.policy.DecorView";
        let detached = self.reference(view, "mAttachInfo") == Some(None);
        let count = self.graph.number(self.dump, view, "mWindowAttachCount");
        if in_window && over != Some(true) {
            if count == Some(0) {
                seen.labels.push("View is part of a window view hierarchy, never attached".to_owned());
            } else if detached {
                let text = "View detached yet still part of window view hierarchy";
                seen.leaking.push(text.to_owned());
            } else if self.reference(top, "mAttachInfo") == Some(None) {
                seen.leaking.push("View attached but root view detached (attach disorder)".to_owned());
            } else {
                seen.not_leaking.push("View attached".to_owned());
            }
        } else {
            let text = if in_window {
                "View is part of a window view hierarchy"
            } else {
                "View not part of a window view hierarchy"
            };
            seen.labels.push(text.to_owned());
        }
        if let Some(count) = count {
            seen.labels.push(format!("View.mWindowAttachCount = {count}"));
        }
        if self.reference(view, "mAttachInfo").is_some() {
            let text = if detached {
                "View.mAttachInfo is null (view detached)"
            } else {
                "View.mAttachInfo is not null (view attached)"
            };
            seen.labels.push(text.to_owned());
        }
    }

    fn androidx_fragment(&self, fragment: u32, seen: &mut Seen) {
        let registry = self.field(fragment, "mLifecycleRegistry");
        let state = registry
            .and_then(|registry| self.field(registry, "state").or_else(|| self.field(registry, "mState")));
        let Some(state) = state.and_then(|state| self.constant(state)) else { return };
        let manager = self.reference(fragment, "mFragmentManager").flatten();
        let text = format!("Fragment.mLifecycleRegistry.state is {state}");
        match state.as_str() {
            "DESTROYED" => seen.leaking.push(text),
            "INITIALIZED" if manager.is_none() => {
                let new = self.slot_exists(fragment, "mMaxState");
                if new && self.graph.truth(self.dump, fragment, "mCalled") == Some(true) {
                    seen.leaking
                        .push(format!("{text}, Fragment.mFragmentManager is null, Fragment.mCalled is true"));
                } else {
                    seen.not_leaking.push(format!("{text}, never attached"));
                }
            }
            _ => seen.not_leaking.push(text),
        }
    }

    /// Is it among the services of the app's main thread? `None`: unknown.
    fn is_running_service(&self, service: u32) -> Option<bool> {
        let thread = self.static_reference("android.app.ActivityThread", "sCurrentActivityThread")?;
        let services = self.field(thread, "mServices")?;
        let array = self.field(services, "mArray")?;
        Some(self.graph.references(array).contains(&service))
    }

    // ---- contexts

    fn is_component(&self, object: u32) -> bool {
        [ACTIVITY, "android.app.Application", "android.app.Service"]
            .iter()
            .any(|class| self.is(object, class))
    }

    /// The component that a context wraps.
    fn unwrap(&self, context: u32) -> Option<u32> {
        let (mut at, mut met) = (context, Vec::new());
        loop {
            if self.is_component(at) {
                return Some(at);
            }
            if met.contains(&at) || met.len() > 1000 || !self.is(at, "android.content.ContextWrapper") {
                return None;
            }
            met.push(at);
            let base = self.field(at, "mBase");
            let decor = self.graph.class_name(self.dump, at) == "com.android.internal.policy.DecorContext";
            at = match base {
                Some(base) if !decor || self.is(base, "android.content.ContextWrapper") => base,
                _ if decor => self.field(self.field(at, "mPhoneWindow")?, "mContext")?,
                _ => return None,
            };
        }
    }

    fn destroyed(&self, activity: u32) -> Option<bool> {
        self.graph.truth(self.dump, activity, "mDestroyed")
    }

    /// Labels for fields that hold a context.
    fn contexts(&self, object: u32, class: u32, seen: &mut Seen) {
        let layout = self.graph.layout(class);
        let mut slots: Vec<(u32, usize)> =
            layout.slots.iter().enumerate().map(|(at, slot)| (slot.offset, at)).collect();
        slots.sort_unstable();
        let held = slots.into_iter().map(|(_, at)| (at, self.graph.references(object)[at]));
        let is_context = |held| held != NONE && self.is(held, "android.content.Context");
        for (at, held) in held.filter(|(_, held)| is_context(*held)).take(MOST_LABELS) {
            let name = self.dump.name(layout.slots[at].name);
            let class = |object| self.graph.class_name(self.dump, object);
            let found = self.unwrap(held);
            seen.labels.push(match found {
                Some(activity) if self.is(activity, ACTIVITY) => {
                    let state =
                        self.destroyed(activity).map_or("UNKNOWN".to_owned(), |over| over.to_string());
                    let wraps = if activity == held {
                        String::new()
                    } else {
                        format!(", wrapping activity {}", class(activity))
                    };
                    format!("{name} instance of {}{wraps} with mDestroyed = {state}", class(held))
                }
                Some(other) if other != held => {
                    format!("{name} instance of {}, wrapping {}", class(held), class(other))
                }
                _ => format!("{name} instance of {}", class(held)),
            });
        }
    }

    fn anonymous(&self, class: u32, seen: &mut Seen) {
        let of = &self.dump.classes[index(class)];
        let digits = of.name.rsplit_once('$').map_or("", |(_, digits)| digits);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return;
        }
        if let Some(above) = of.above.map(|above| &self.dump.classes[index(above)].name)
            && above != "java.lang.Object"
        {
            seen.labels.push(format!("Anonymous subclass of {above}"));
        }
    }

    // ---- fields

    fn is(&self, object: u32, class: &str) -> bool {
        matches!(self.graph.kind(object), Kind::Of(of) if self.dump.is_a(of, class))
    }

    fn field(&self, object: u32, name: &str) -> Option<u32> {
        self.graph.field(self.dump, object, name)
    }

    /// The value of a boolean, or of an object that wraps one.
    fn truth(&self, object: u32, field: &str) -> Option<bool> {
        let own = self.graph.truth(self.dump, object, field);
        own.or_else(|| {
            let held = self.field(object, field)?;
            let is_one = is_truth(self.graph.class_name(self.dump, held));
            is_one.then(|| self.graph.truth(self.dump, held, "value"))?
        })
    }

    /// `None`: there is no such field; `Some(None)`: it is null.
    fn reference(&self, object: u32, name: &str) -> Option<Option<u32>> {
        let Kind::Of(class) = self.graph.kind(object) else { return None };
        let slot = self.graph.slot(self.dump, class, name)?;
        let held = *self.graph.references(object).get(slot)?;
        Some((held != NONE).then_some(held))
    }

    fn slot_exists(&self, object: u32, name: &str) -> bool {
        let Kind::Of(class) = self.graph.kind(object) else { return false };
        self.dump
            .hierarchy(class)
            .flat_map(|class| &self.dump.classes[index(class)].fields)
            .any(|field| self.dump.string(field.name) == Some(name))
    }

    /// Name of an enum constant: the static field of its class that holds it.
    fn constant(&self, object: u32) -> Option<String> {
        let Kind::Of(class) = self.graph.kind(object) else { return None };
        self.dump.hierarchy(class).find_map(|class| {
            let of = &self.dump.classes[index(class)];
            let names = of.statics.iter().filter(|field| field.kind == 2);
            let held = self.graph.references(self.dump.object(of.id)?);
            let (field, _) = names.zip(held).find(|(_, held)| **held == object)?;
            Some(self.dump.name(field.name))
        })
    }

    /// A static reference.
    pub(crate) fn static_reference(&self, class: &str, field: &str) -> Option<u32> {
        let found = self.static_field(class, field)?;
        self.dump.object(found)
    }

    /// A static number.
    pub(crate) fn static_number(&self, class: &str, field: &str) -> Option<i64> {
        self.static_field(class, field).map(u64::cast_signed)
    }

    fn static_field(&self, class: &str, field: &str) -> Option<u64> {
        let classes = self.dump.classes.iter().filter(|of| of.name == class);
        let mut fields = classes.flat_map(|class| &class.statics);
        fields.find(|of| self.dump.string(of.name) == Some(field)).map(|field| field.value)
    }
}

const ACTIVITY: &str = "android.app.Activity";
const VIEW: &str = "android.view.View";
