//! Describes in words what holds a Java object or a native block.

use memgate_model::{Hold, HolderStep, Leak, LeakKind, OtherHold, Reach};

use crate::visible::visible;

/// Maximum number of other holders of a leak that are shown.
const MOST_OTHERS: usize = 3;

/// `held by static com.example.Registry.cache → java.util.HashMap.table[x]`; empty if nothing is known.
#[must_use]
pub fn holder(leak: &Leak) -> String {
    if leak.kind == LeakKind::Native {
        return leak.hold.as_ref().map_or_else(String::new, |hold| native(hold, &leak.holder));
    }
    let (root, way) = root_of_thread(&leak.holder);
    let steps = way.iter().enumerate().map(|(index, step)| {
        // The kind of the root says why the object stays alive. For the other steps, names are enough, except for the
        // stack of a virtual thread.
        let is_root = index == 0 && root.is_none();
        let kind =
            if is_root || step.kind == "stack" { format!("{} ", visible(&step.kind)) } else { String::new() };
        let before = index.checked_sub(1).and_then(|before| way.get(before));
        let same_package = before.is_some_and(|before| package(&before.owner) == package(&step.owner));
        let owner = visible(if same_package { simple(&step.owner) } else { &step.owner });
        match step.name.as_str() {
            // No more is known about a reference from native code.
            "" => format!("{kind}{owner}").trim_end().to_owned(),
            name if name.starts_with('[') => format!("{kind}{owner}{}", visible(name)),
            name => format!("{kind}{owner}.{}", visible(name)),
        }
    });
    let steps: Vec<String> = root.iter().cloned().chain(steps).collect();
    if steps.is_empty() { String::new() } else { format!("held by  {}", steps.join(" → ")) }
}

/// Only the root, for a single line: `Registry.cache`, `a local variable of Worker.run`.
pub(crate) fn short_holder(leak: &Leak) -> Option<String> {
    if let Some((thread, frame, _)) = local_variable(&leak.holder) {
        let method = frame.name.split('(').next().unwrap_or_default();
        let (class, method) = (visible(simple(&frame.owner)), visible(method));
        return Some(format!("a local variable of {class}.{method} in thread {}", visible(&thread.owner)));
    }
    if let Some((thread, field, _)) = thread_local(&leak.holder) {
        let (class, name) = (visible(simple(&field.owner)), visible(&field.name));
        return Some(format!("ThreadLocal {class}.{name} of thread {}", visible(&thread.owner)));
    }
    let root = leak.holder.first()?;
    let kind = if root.kind == "static" { String::new() } else { format!("{} ", visible(&root.kind)) };
    let name = match root.name.as_str() {
        "" => String::new(),
        name if name.starts_with('[') => visible(name).into_owned(),
        name => format!(".{}", visible(name)),
    };
    Some(format!("{kind}{}{name}", visible(simple(&root.owner))).trim_end().to_owned())
}

/// `held by  static Registry::cache (registry.cc:12) → 48 B allocated in insert (map.h:7)`, `lost: no
/// pointer to it is left`.
fn native(hold: &Hold, way: &[HolderStep]) -> String {
    if let Some(told) = lost_with(hold) {
        return told;
    }
    let Hold { reach, of_reach, blocks, note, others } = hold;
    let steps = || way.iter().map(native_step).collect::<Vec<_>>().join(" → ");
    let told = match reach {
        Reach::Reachable => format!("held by  {}", steps()),
        Reach::Lost => "lost: no pointer to it is left".to_owned(),
        Reach::LostCycle => "lost: only blocks refer to it that refer to each other".to_owned(),
        Reach::IndirectlyLost => format!("lost with  {}", steps()),
        Reach::NotSearched => "holder not searched".to_owned(),
    };
    let part = (of_reach < blocks).then(|| format!("{of_reach} of {blocks} blocks"));
    let more: u64 = others.iter().skip(MOST_OTHERS).map(|other| other.blocks).fold(0, u64::saturating_add);
    let details: Vec<String> = part
        .into_iter()
        .chain(others.iter().take(MOST_OTHERS).map(other))
        .chain((more > 0).then(|| format!("{more} held otherwise")))
        .chain(note.as_deref().map(|it| visible(it).into_owned()))
        .collect();
    match (hold.reach, details.as_slice()) {
        (_, []) => told,
        (Reach::NotSearched, details) => format!("{told}: {}", details.join("; ")),
        (_, details) => format!("{told} ({})", details.join("; ")),
    }
}

/// Blocks that are all lost, most of them in a cycle: `lost with  a lost block: 72 B allocated in Doc::Doc() (doc.cc:7)
/// (55440 blocks, all lost)`. `None`: there is no block with which they are lost.
fn lost_with(hold: &Hold) -> Option<String> {
    let root = native_step(behind_cycle(hold)?.first()?);
    let note = hold.note.as_deref().map_or_else(String::new, |note| format!("; {}", visible(note)));
    Some(format!("lost with  {root} ({} blocks, all lost{note})", hold.blocks))
}

/// The way to some blocks of a leak whose blocks are all lost, most of them in a cycle. The blocks of a tree with
/// pointers to parents form one, and the block with which as many others are lost is the one that nobody freed.
fn behind_cycle(Hold { reach, of_reach, others, .. }: &Hold) -> Option<&[HolderStep]> {
    let is_lost = |other: &OtherHold| !matches!(other.reach, Reach::Reachable | Reach::NotSearched);
    let behind = |other: &&OtherHold| {
        let are_many = other.blocks >= of_reach / 2;
        other.reach == Reach::IndirectlyLost && !other.holder.is_empty() && are_many
    };
    let found = others.iter().find(behind).filter(|_| others.iter().all(is_lost));
    found.filter(|_| *reach == Reach::LostCycle).map(|other| other.holder.as_slice())
}

/// Is what holds the most blocks of a native leak known to hold nearly all of them?
pub(crate) fn is_of_nearly_all(leak: &Leak) -> bool {
    leak.hold.as_ref().is_none_or(|hold| {
        behind_cycle(hold).is_some() || hold.blocks.saturating_sub(hold.of_reach) <= hold.blocks / 10
    })
}

/// The blocks that a native leak is held by or lost with.
pub(crate) fn way(leak: &Leak) -> &[HolderStep] {
    leak.hold.as_ref().and_then(behind_cycle).unwrap_or(&leak.holder)
}

/// Only the root: `1 held by static other (other.cc:3)`.
fn other(OtherHold { reach, blocks, holder }: &OtherHold) -> String {
    let root = || holder.first().map(native_step).unwrap_or_default();
    match reach {
        Reach::Reachable if holder.is_empty() => format!("{blocks} held otherwise"),
        Reach::Reachable => format!("{blocks} held by {}", root()),
        Reach::IndirectlyLost if !holder.is_empty() => format!("{blocks} lost with {}", root()),
        Reach::Lost | Reach::LostCycle | Reach::IndirectlyLost => format!("{blocks} lost"),
        Reach::NotSearched => format!("{blocks} not searched"),
    }
}

fn native_step(step: &HolderStep) -> String {
    let HolderStep { kind, owner, name, class } = step;
    let owner = crate::names::readable(owner);
    let [owner, name, class] = [&*owner, name, class].map(visible);
    let place = if name.is_empty() { String::new() } else { format!(" ({name})") };
    let behind = |text: &str| if text.is_empty() { String::new() } else { format!(" {text}") };
    match kind.as_str() {
        "block" | "lost block" if owner.is_empty() => {
            format!("{class} allocated before recording or without symbols")
        }
        "block" => format!("{class} allocated in {owner}{place}"),
        "lost block" => format!("a lost block: {class} allocated in {owner}{place}"),
        "stack" if owner.is_empty() => format!("the stack{}", behind(&class)),
        "stack" => format!("the stack{}, in {owner}{place}", behind(&class)),
        "static" if class.starts_with('+') => format!("static {owner} {class}{place}"),
        _ => format!("{}{}{place}{}", visible(kind), behind(&owner), behind(&class)),
    }
}

/// `HashMap$Node` for `java.util.HashMap$Node`.
fn simple(class: &str) -> &str {
    class[package(class).len()..].trim_start_matches('.')
}

/// The root in words, if it is a thread with a step that says more, and the steps after it.
fn root_of_thread(holder: &[HolderStep]) -> (Option<String>, &[HolderStep]) {
    if let Some((thread, frame, way)) = local_variable(holder) {
        let method = visible(&frame.name).replace('(', " (");
        let place = format!("{}.{method}", visible(&frame.owner));
        return (Some(format!("a local variable of {place} in thread {}", visible(&thread.owner))), way);
    }
    if let Some((thread, field, way)) = thread_local(holder) {
        let field = format!("{}.{}", visible(&field.owner), visible(&field.name));
        return (Some(format!("ThreadLocal {field} of thread {}", visible(&thread.owner))), way);
    }
    (None, holder)
}

/// A thread, a frame of its stack, and the steps after them.
fn local_variable(holder: &[HolderStep]) -> Option<(&HolderStep, &HolderStep, &[HolderStep])> {
    match holder {
        [thread, frame, way @ ..] if thread.kind == "thread" && frame.kind == "stack" => {
            Some((thread, frame, way))
        }
        _ => None,
    }
}

/// A thread, the static field with the `ThreadLocal` of one of its values, and the steps after the value. The steps
/// through the thread's table say nothing.
fn thread_local(holder: &[HolderStep]) -> Option<(&HolderStep, &HolderStep, &[HolderStep])> {
    const TABLE: &str = "java.lang.ThreadLocal$ThreadLocalMap";
    match holder {
        [thread, _, table, field, _, way @ ..]
            if thread.kind == "thread" && table.owner == TABLE && field.kind == "static" =>
        {
            Some((thread, field, way))
        }
        _ => None,
    }
}

/// `java.util` for `java.util.HashMap$Node`; empty in the default package.
fn package(class: &str) -> &str {
    class.rsplit_once('.').map_or("", |(package, _)| package)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_holders_of_a_native_leak_are_named_by_their_roots_and_the_rest_is_counted() {
        let step = |owner: &str| HolderStep {
            kind: "static".to_owned(),
            owner: owner.to_owned(),
            name: format!("{owner}.cc:3"),
            class: String::new(),
        };
        let other = |reach, blocks, holder| OtherHold { reach, blocks, holder };
        let mut others = vec![
            other(Reach::Lost, 12, Vec::new()),
            other(Reach::Reachable, 9, vec![step("other"), step("deeper")]),
            other(Reach::IndirectlyLost, 8, Vec::new()),
        ];
        others.extend([7, 6].map(|blocks| other(Reach::Reachable, blocks, vec![step("x")])));
        let hold = Hold { reach: Reach::Reachable, of_reach: 24, blocks: 66, note: None, others };
        let leak = Leak { hold: Some(hold), holder: vec![step("cache")], ..Leak::default() };
        let told = "held by  static cache (cache.cc:3) (24 of 66 blocks; 12 lost; 9 held by static other (other.cc:3); 8 lost; \
                    13 held otherwise)";
        assert_eq!(holder(&leak), told);
    }

    /// The blocks of a document whose nodes refer to it. Its owner forgot one `delete`.
    #[test]
    fn blocks_of_a_cycle_are_told_with_the_block_that_nobody_freed() {
        let step = |owner: &str| HolderStep {
            kind: "lost block".to_owned(),
            owner: owner.to_owned(),
            name: "m.cc:7".to_owned(),
            class: "72 B".to_owned(),
        };
        let other = |reach, blocks, holder| OtherHold { reach, blocks, holder };
        let doc = other(Reach::IndirectlyLost, 25_159, vec![step("Doc::Doc()"), step("deeper")]);
        let others =
            vec![doc, other(Reach::IndirectlyLost, 5_030, vec![step("x")]), other(Reach::Lost, 91, vec![])];
        let hold = Hold { reach: Reach::LostCycle, of_reach: 25_160, blocks: 55_440, note: None, others };
        let mut leak = Leak { hold: Some(hold), ..Leak::default() };
        assert_eq!(
            holder(&leak),
            "lost with  a lost block: 72 B allocated in Doc::Doc() (m.cc:7) (55440 blocks, all lost)"
        );
        let hold = leak.hold.as_mut().unwrap();
        hold.others.push(other(Reach::Reachable, 1, vec![step("static")]));
        assert!(holder(&leak).starts_with("lost: only blocks refer to it"), "not all are lost");
    }

    #[test]
    fn a_value_of_a_thread_local_variable_is_held_by_that_variable() {
        let step = |kind: &str, owner: &str, name: &str| HolderStep {
            kind: kind.to_owned(),
            owner: owner.to_owned(),
            name: name.to_owned(),
            class: String::new(),
        };
        let mut steps = vec![
            step("thread", "sessions", ""),
            step("field", "java.lang.Thread", "threadLocals"),
            step("field", "java.lang.ThreadLocal$ThreadLocalMap", "table[x]"),
            step("static", "com.example.Sessions", "open"),
            step("field", "java.lang.ThreadLocal$ThreadLocalMap$Entry", "value"),
            step("field", "java.util.ArrayList", "elementData[x]"),
        ];
        let told = |holder: &[HolderStep]| {
            let leak = Leak { kind: LeakKind::Java, holder: holder.to_vec(), ..Leak::default() };
            (super::holder(&leak), short_holder(&leak).unwrap_or_default())
        };
        let (long, short) = told(&steps);
        let variable = "ThreadLocal com.example.Sessions.open of thread sessions";
        assert_eq!(long, format!("held by  {variable} → java.util.ArrayList.elementData[x]"));
        assert_eq!(short, "ThreadLocal Sessions.open of thread sessions");
        assert_eq!(told(&steps[..5]).0, format!("held by  {variable}"), "the value itself");
        steps.remove(3);
        let (long, short) = told(&steps);
        assert!(long.starts_with("held by  thread sessions → java.lang.Thread.threadLocals → "), "{long}");
        assert_eq!(short, "thread sessions", "the variable is not known");
    }

    #[test]
    fn a_reference_from_native_code_has_no_name() {
        let [owner, name] = [String::new(), String::new()];
        let step = HolderStep { kind: "jni global".to_owned(), owner, name, class: "Tile".to_owned() };
        let leak = Leak { kind: LeakKind::Java, holder: vec![step], ..Leak::default() };
        assert_eq!(holder(&leak), "held by  jni global");
        assert_eq!(short_holder(&leak).as_deref(), Some("jni global"));
    }
}
