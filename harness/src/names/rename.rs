//! Gives the frames of one stream the original names of its program.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memgate_formats::mapping::{Mapping, OriginalFrame};
use memgate_wire::Frame;
use memgate_wire::java::{HolderKind, HolderLink, Holders, JavaMethod, JavaStackNode, JavaStacks};

use super::builds::MAP_ID;
use super::files::Source;
use super::mappings::Mappings;
use crate::session::label::Label;

/// Maximum number of remembered methods, like in a record.
const MAX_METHODS: usize = 1_000_000;
/// Maximum nesting of outlines: in a damaged stream, a caller may be its own.
const MOST_NESTED: usize = 16;
/// A method that the stream never defined.
const UNKNOWN: u32 = u32::MAX;

/// Gives the frames of one stream their original names.
#[derive(Debug)]
pub struct Renamer {
    mappings: Arc<Mappings>,
    /// The stream, if it is a file.
    stream: Option<PathBuf>,
    source: Option<Source>,
    /// Methods as defined in the stream.
    methods: HashMap<u32, JavaMethod>,
    /// Nodes from the stream whose frames call code that was moved out of their method.
    calls: HashMap<u32, JavaStackNode>,
    /// Numbers of the methods created from them.
    numbers: HashMap<(String, String, String), u32>,
    /// The next number of a node for an inlined call: the agent counts from the other end.
    next_node: u32,
    complaint: Option<String>,
    complained: bool,
}

/// A frame with original names.
pub(super) struct Original {
    pub(super) class: String,
    pub(super) method: String,
    pub(super) file: String,
    pub(super) line: u32,
}

impl Mappings {
    /// For a stream that is being written.
    #[must_use]
    pub fn renamer(self: &Arc<Self>) -> Renamer {
        Renamer::new(Arc::clone(self), None)
    }

    /// For a recorded stream, in a session (`SESSION/frames/NAME.mgf`) or alone.
    #[must_use]
    pub fn renamer_of(self: &Arc<Self>, stream: &Path) -> Renamer {
        Renamer::new(Arc::clone(self), Some(stream.to_owned()))
    }
}

impl Renamer {
    pub(super) fn new(mappings: Arc<Mappings>, stream: Option<PathBuf>) -> Self {
        Self {
            mappings,
            stream,
            source: None,
            methods: HashMap::new(),
            calls: HashMap::new(),
            numbers: HashMap::new(),
            next_node: u32::MAX,
            complaint: None,
            complained: false,
        }
    }

    /// The frame with original names. The first frame is the hello, which selects the mapping.
    #[must_use]
    pub fn frame(&mut self, frame: Frame) -> Frame {
        if let Frame::Hello(hello) = &frame {
            self.choose(&hello.label);
        }
        let Some(Source { mapping, .. }) = self.source else { return own_names(frame) };
        match frame {
            Frame::Classes(mut told) => {
                told.classes.iter_mut().for_each(|class| class.name = original_class(mapping, &class.name));
                Frame::Classes(told)
            }
            Frame::Holders(holders) => Frame::Holders(holding(mapping, holders)),
            Frame::JavaStacks(stacks) => Frame::JavaStacks(self.stacks(mapping, stacks)),
            other => other,
        }
    }

    /// The problem with the names, returned once.
    pub fn complaint(&mut self) -> Option<String> {
        self.complaint.take()
    }

    fn choose(&mut self, label: &str) {
        match self.mappings.of(&Label::from_text(label).into_suite(), self.stream.as_deref()) {
            Ok(source) => self.source = source,
            Err(why) => self.complaint = Some(why),
        }
    }

    fn stacks(&mut self, mapping: &Mapping<'_>, told: JavaStacks) -> JavaStacks {
        let mut stacks = JavaStacks { methods: Vec::new(), nodes: Vec::new() };
        for method in told.methods {
            self.check_build(mapping, &method.file);
            if self.methods.len() < MAX_METHODS {
                self.methods.insert(method.id, method);
            }
        }
        for node in told.nodes {
            let place = self.place(&node);
            let calls_outline =
                place.is_some_and(|(class, method, line)| mapping.calls_outline(class, method, line));
            if calls_outline && self.calls.len() < MAX_METHODS {
                self.calls.insert(node.id, node);
            }
            let stands_for = self.outlined(mapping, node);
            let Some(method) = self.methods.get(&stands_for.method) else {
                stacks.nodes.push(JavaStackNode { method: UNKNOWN, ..node });
                continue;
            };
            let calls = originals(mapping, method, stands_for.line);
            let mut parent = stands_for.parent;
            // Callers come first; the innermost call keeps the number that other frames refer to.
            for (inside, call) in (0..calls.len()).rev().zip(calls.into_iter().rev()) {
                let id = if inside == 0 { node.id } else { self.new_node() };
                let line = call.line;
                let method = self.number(call, &mut stacks.methods);
                stacks.nodes.push(JavaStackNode { id, parent, method, line });
                parent = id;
            }
        }
        stacks
    }

    /// For a frame in an outline, the frame at the line where the outlined code was written; any other frame is
    /// returned as it is.
    fn outlined(&self, mapping: &Mapping<'_>, node: JavaStackNode) -> JavaStackNode {
        let (mut stands_for, mut frame) = (node, node);
        for _ in 0..MOST_NESTED {
            let place = self.place(&frame);
            let is_outline =
                place.is_some_and(|(class, method, line)| mapping.is_outline(class, method, line));
            let caller = is_outline.then(|| self.calls.get(&frame.parent)).flatten();
            let Some((caller, (class, method, line))) =
                caller.and_then(|caller| Some((caller, self.place(caller)?)))
            else {
                break;
            };
            let inside = known(stands_for.line);
            let Some(line) = mapping.line_of_outline(class, method, line, inside) else { break };
            (frame, stands_for) = (*caller, JavaStackNode { line, ..*caller });
        }
        stands_for
    }

    /// Class, method and line of a node.
    fn place(&self, node: &JavaStackNode) -> Option<(&str, &str, Option<u32>)> {
        let JavaMethod { class, name, .. } = self.methods.get(&node.method)?;
        Some((class, name, known(node.line)))
    }

    fn new_node(&mut self) -> u32 {
        let id = self.next_node;
        self.next_node = id.saturating_sub(1);
        id
    }

    /// The number of a method, which is added to `methods` if it is new.
    fn number(&mut self, call: Original, methods: &mut Vec<JavaMethod>) -> u32 {
        let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        let Original { class, method, file, .. } = call;
        *self.numbers.entry((class, method, file)).or_insert_with_key(|(class, name, file)| {
            let (class, name, file) = (class.clone(), name.clone(), file.clone());
            methods.push(JavaMethod { id: next, class, name, file });
            next
        })
    }

    /// Checks that the mapping is of this build: otherwise names would be wrong without notice.
    fn check_build(&mut self, mapping: &Mapping<'_>, file: &str) {
        let Some(id) = file.strip_prefix(MAP_ID) else { return };
        if self.complained || mapping.is_of_build(id) != Some(false) {
            return;
        }
        self.complained = true;
        let path = self.source.as_ref().map(|source| source.path.display().to_string()).unwrap_or_default();
        self.complaint = Some(format!(
            "the mapping file {path} is of another build: the app says it was renamed by the mapping {id}; name the mapping.txt of that build"
        ));
    }
}

/// For a class that the virtual machine generated for another (`a.b$$Lambda/0x1234`), at least the prefix is original.
pub(super) fn original_class(mapping: &Mapping<'_>, name: &str) -> String {
    let whole = mapping.class(name);
    if whole != name {
        return whole.into_owned();
    }
    let made = ["$$Lambda", "/"].iter().filter_map(|mark| name.find(mark)).min();
    match made.and_then(|at| name.split_at_checked(at)) {
        Some((host, rest)) => format!("{}{rest}", mapping.class(host)),
        None => name.to_owned(),
    }
}

fn holding(mapping: &Mapping<'_>, mut holders: Holders) -> Holders {
    for link in holders.paths.iter_mut().flat_map(|path| &mut path.links) {
        let class = original_class(mapping, &link.class);
        match link.kind {
            HolderKind::Static | HolderKind::Field => link.name = field(mapping, link, &class),
            HolderKind::Stack | HolderKind::JniLocal => link.name = stack_frame(mapping, link),
            _ => {}
        }
        // A thread's name is not a class.
        if link.kind != HolderKind::Thread {
            link.owner = original_class(mapping, &link.owner);
        }
        link.class = class;
    }
    holders
}

/// The plain name of an inherited field, as in the source: the declaring class in it is only for us.
fn own_names(frame: Frame) -> Frame {
    let Frame::Holders(mut holders) = frame else { return frame };
    let links = holders.paths.iter_mut().flat_map(|path| &mut path.links);
    for link in links.filter(|link| link.kind == HolderKind::Field) {
        if let Some((_, name)) = link.name.rsplit_once('.') {
            link.name = name.to_owned();
        }
    }
    Frame::Holders(holders)
}

/// The field of a link that refers to an instance of `class`. If several fields got the same new name: the one of this
/// type, otherwise all candidates.
fn field(mapping: &Mapping<'_>, link: &HolderLink, class: &str) -> String {
    const PRIMITIVE: [&str; 8] = ["boolean", "byte", "char", "short", "int", "long", "float", "double"];
    let (declared_by, name) = link.name.rsplit_once('.').unwrap_or((&link.owner, &link.name));
    let meant: Vec<_> =
        mapping.fields(declared_by, name).filter(|field| !PRIMITIVE.contains(&field.kind)).collect();
    match meant.as_slice() {
        [] => name.to_owned(),
        several => match several.iter().find(|field| field.kind == class) {
            Some(of_type) => of_type.name.to_owned(),
            None => several.iter().map(|field| field.name).collect::<Vec<_>>().join("|"),
        },
    }
}

/// `c(SourceFile:12)`: method, with file and line if known.
fn stack_frame(mapping: &Mapping<'_>, link: &HolderLink) -> String {
    let (name, place) = link.name.split_once('(').unwrap_or((&link.name, ""));
    let place = place.trim_end_matches(')');
    let (file, line) =
        place.rsplit_once(':').map_or((place, 0), |(file, line)| (file, line.parse().unwrap_or(0)));
    let method =
        JavaMethod { id: 0, class: link.owner.clone(), name: name.to_owned(), file: file.to_owned() };
    // The owner is reported separately: take the method itself, not one inlined into it.
    let Some(Original { method, file, line, .. }) = originals(mapping, &method, line).pop() else {
        return link.name.clone();
    };
    match (file.is_empty(), line) {
        (true, _) => method,
        (false, 0) => format!("{method}({file})"),
        (false, line) => format!("{method}({file}:{line})"),
    }
}

/// A line number, if known.
fn known(line: u32) -> Option<u32> {
    (line != 0).then_some(line)
}

/// The calls that a frame represents, innermost first; at least one.
pub(super) fn originals(mapping: &Mapping<'_>, method: &JavaMethod, line: u32) -> Vec<Original> {
    let JavaMethod { class, name, file, .. } = method;
    let known_line = known(line);
    let shown = (!file.is_empty()).then_some(file.as_str());
    let mut ways = mapping.frames(class, name, shown, known_line);
    if ways.len() > 1 {
        return vec![any_of(&ways)];
    }
    if let Some(only) = ways.pop().filter(|only| !only.is_empty()) {
        let original = |frame: OriginalFrame<'_>| Original {
            class: frame.class.to_owned(),
            method: frame.method.to_owned(),
            file: frame.file,
            line: frame.line.unwrap_or(0),
        };
        return only.into_iter().map(original).collect();
    }
    let nameless = file == "SourceFile" || file.starts_with(MAP_ID);
    let file = if nameless { String::new() } else { file.clone() };
    vec![Original { class: original_class(mapping, class), method: name.clone(), file, line }]
}

/// Several methods got the same name, and nothing shows which one this is: all are named.
fn any_of(ways: &[Vec<OriginalFrame<'_>>]) -> Original {
    let outermost: Vec<&OriginalFrame<'_>> = ways.iter().filter_map(|way| way.last()).collect();
    let mut methods: Vec<&str> = outermost.iter().map(|frame| frame.method).collect();
    methods.sort_unstable();
    methods.dedup();
    let first = outermost.first();
    Original {
        class: first.map_or_else(String::new, |frame| frame.class.to_owned()),
        method: methods.join("|"),
        file: first.map_or_else(String::new, |frame| frame.file.clone()),
        line: 0,
    }
}

#[cfg(test)]
mod tests {
    use memgate_wire::java::{ClassName, Classes, HolderPath};

    use super::*;

    const TEXT: &str = "\
# pg_map_id: 7b2d7d4
com.example.Cache -> a.a:
# {\"id\":\"sourceFile\",\"fileName\":\"Caches.kt\"}
    com.example.Tile[] tiles -> a
    int size -> a
    java.util.Map named -> b
    java.util.List listed -> b
    1:3:void com.example.Pool.take(int):40:42 -> a
    1:3:void fill(int):12 -> a
    void clear() -> b
    void close() -> b
com.example.Tile -> a.b:
com.example.Loader -> a.c:
";

    fn renamer() -> Renamer {
        let mapping = Box::leak(Box::new(Mapping::read(TEXT).unwrap()));
        let source = Source { path: "mapping.txt".into(), mapping };
        Renamer { source: Some(source), ..Renamer::new(Arc::default(), None) }
    }

    fn method(id: u32, class: &str, name: &str, file: &str) -> JavaMethod {
        JavaMethod { id, class: class.into(), name: name.into(), file: file.into() }
    }

    /// The stack whose innermost node is `id`, as read from a record.
    fn stack(stacks: &JavaStacks, id: u32) -> Vec<String> {
        let mut shown = Vec::new();
        let mut next = id;
        while let Some(node) = stacks.nodes.iter().find(|node| node.id == next) {
            let method = stacks.methods.iter().find(|method| method.id == node.method);
            shown.push(method.map_or_else(
                || "?".to_owned(),
                |m| format!("{}.{}({}:{})", m.class, m.name, m.file, node.line),
            ));
            next = node.parent;
        }
        shown
    }

    #[test]
    fn classes_get_their_names_back_also_where_the_virtual_machine_made_them() {
        let names =
            ["a.b", "a.b[][]", "byte[]", "a.c$$Lambda/0x0123", "a.c/0x0123", "x.y", "java.lang.String"];
        let classes = (1..).zip(names).map(|(id, name)| ClassName { id, name: name.into() }).collect();
        let Frame::Classes(renamed) = renamer().frame(Frame::Classes(Classes { classes })) else { panic!() };
        let shown: Vec<&str> = renamed.classes.iter().map(|class| class.name.as_str()).collect();
        let want = [
            "com.example.Tile",
            "com.example.Tile[][]",
            "byte[]",
            "com.example.Loader$$Lambda/0x0123",
            "com.example.Loader/0x0123",
            "x.y",
            "java.lang.String",
        ];
        assert_eq!(shown, want);
    }

    #[test]
    fn what_was_inlined_becomes_frames_of_its_own_and_stacks_stay_joined() {
        let mut renamer = renamer();
        let node = |id, parent, method, line| JavaStackNode { id, parent, method, line };
        let stacks = JavaStacks {
            methods: vec![
                method(7, "a.a", "a", "SourceFile"),
                method(8, "x.Main", "main", "Main.java"),
                method(9, "a.b", "z", "SourceFile"),
            ],
            nodes: vec![node(1, 0, 8, 5), node(2, 1, 7, 2), node(3, 2, 9, 4), node(4, 2, 77, 1)],
        };
        let Frame::JavaStacks(renamed) = renamer.frame(Frame::JavaStacks(stacks)) else { panic!() };
        let callers = [
            "com.example.Pool.take(Pool.java:41)",
            "com.example.Cache.fill(Caches.kt:12)",
            "x.Main.main(Main.java:5)",
        ];
        assert_eq!(stack(&renamed, 2), callers);
        assert_eq!(stack(&renamed, 3), [&["com.example.Tile.z(:4)"], &callers[..]].concat());
        assert_eq!(stack(&renamed, 4), [&["?"], &callers[..]].concat(), "a method nobody told");
        // A later frame of the stream defines only new items.
        let more = JavaStacks { methods: Vec::new(), nodes: vec![node(5, 1, 7, 3)] };
        let Frame::JavaStacks(more) = renamer.frame(Frame::JavaStacks(more)) else { panic!() };
        assert!(more.methods.is_empty(), "{more:?}");
        assert_eq!((more.nodes.len(), more.nodes[0].parent, more.nodes[1].id), (2, 1, 5));
    }

    #[test]
    fn an_allocation_that_was_moved_out_of_its_method_is_at_its_line_there() {
        let text = "\
a.Outline0 -> x:
    1:2:a.Tile m():0:1 -> m
    # {\"id\":\"com.android.tools.r8.synthesized\"}
    # {\"id\":\"com.android.tools.r8.outline\"}
a.Cache -> y:
    1:6:void fill():21:26 -> f
    7:7:void fill():0:0 -> f
    # {\"id\":\"com.android.tools.r8.outlineCallsite\",\"positions\":{\"1\":10,\"2\":11},\"outline\":\"Lx;m()La/Tile;\"}
    10:10:void a.Pool.take():1337:1337 -> f
    10:10:void fill():42 -> f
    11:11:void fill():44:44 -> f
";
        let mapping = Box::leak(Box::new(Mapping::read(text).unwrap()));
        let source = Source { path: "mapping.txt".into(), mapping };
        let mut renamer = Renamer { source: Some(source), ..Renamer::new(Arc::default(), None) };
        let node = |id, parent, method, line| JavaStackNode { id, parent, method, line };
        let methods =
            vec![method(1, "z", "main", "Main.java"), method(2, "y", "f", ""), method(3, "x", "m", "")];
        let nodes = vec![
            node(1, 0, 1, 5),
            node(2, 1, 2, 7),
            node(3, 2, 3, 1),
            node(4, 2, 3, 2),
            node(5, 3, 1, 9),
            node(6, 6, 3, 1),
        ];
        let Frame::JavaStacks(renamed) = renamer.frame(Frame::JavaStacks(JavaStacks { methods, nodes }))
        else {
            panic!()
        };
        let at = ["a.Pool.take(Pool.java:1337)", "a.Cache.fill(Cache.java:42)", "z.main(Main.java:5)"];
        assert_eq!(stack(&renamed, 3), at);
        assert_eq!(stack(&renamed, 4), ["a.Cache.fill(Cache.java:44)", "z.main(Main.java:5)"]);
        assert_eq!(stack(&renamed, 5), [&["z.main(Main.java:9)"], &at[..]].concat(), "called by it");
        let alone = renamed.nodes.iter().find(|node| node.id == 6).unwrap();
        assert_eq!(alone.parent, 6, "a damaged stream");
    }

    #[test]
    fn ways_of_holders_show_fields_and_methods_as_they_were_written() {
        let link = |kind: &str, owner: &str, name: &str, class: &str| HolderLink {
            kind: kind.to_owned().into(),
            owner: owner.into(),
            name: name.into(),
            class: class.into(),
        };
        for (given, want) in [
            // An `int` with the same new name holds no object.
            (
                link("static", "a.a", "a", "a.b[]"),
                link("static", "com.example.Cache", "tiles", "com.example.Tile[]"),
            ),
            (
                link("field", "a.a", "b", "java.util.List"),
                link("field", "com.example.Cache", "listed", "java.util.List"),
            ),
            (
                link("field", "a.a", "b", "java.util.HashMap"),
                link("field", "com.example.Cache", "named|listed", "java.util.HashMap"),
            ),
            // The first field is inherited from a renamed class, the second is in a class that kept its name, the third
            // has no mapping.
            (
                link("field", "a.c", "a.a.a", "a.b[]"),
                link("field", "com.example.Loader", "tiles", "com.example.Tile[]"),
            ),
            (
                link("field", "x.Kept", "a.a.b", "java.util.List"),
                link("field", "x.Kept", "listed", "java.util.List"),
            ),
            (
                link("field", "java.util.LinkedHashMap$Entry", "java.util.HashMap$Node.value", "a.b"),
                link("field", "java.util.LinkedHashMap$Entry", "value", "com.example.Tile"),
            ),
            (
                link("array", "a.b[]", "[x]", "a.b"),
                link("array", "com.example.Tile[]", "[x]", "com.example.Tile"),
            ),
            (link("thread", "a.b", "", "java.lang.Thread"), link("thread", "a.b", "", "java.lang.Thread")),
            (
                link("stack", "a.a", "a(SourceFile:2)", "a.b"),
                link("stack", "com.example.Cache", "fill(Caches.kt:12)", "com.example.Tile"),
            ),
            (
                link("jni local", "a.a", "b", "a.b"),
                link("jni local", "com.example.Cache", "clear|close(Caches.kt)", "com.example.Tile"),
            ),
        ] {
            let paths = vec![HolderPath { instances: 1, links: vec![given] }];
            let holders = Holders { boundary: 1, class: 1, instances: 1, paths, cut: None };
            let Frame::Holders(renamed) = renamer().frame(Frame::Holders(holders)) else { panic!() };
            assert_eq!(renamed.paths[0].links[0], want);
        }
    }

    #[test]
    fn without_a_mapping_an_inherited_field_has_its_name_alone() {
        let links = vec![HolderLink {
            kind: HolderKind::Field,
            owner: "java.util.LinkedHashMap$Entry".into(),
            name: "java.util.HashMap$Node.value".into(),
            class: "com.example.Tile".into(),
        }];
        let paths = vec![HolderPath { instances: 1, links }];
        let told = Frame::Holders(Holders { boundary: 1, class: 1, instances: 1, paths, cut: None });
        let Frame::Holders(shown) = Renamer::new(Arc::default(), None).frame(told) else { panic!() };
        assert_eq!(shown.paths[0].links[0].name, "value");
    }

    #[test]
    fn a_mapping_of_another_build_is_told_once() {
        let mut renamer = renamer();
        for (file, complains) in
            [("r8-map-id-7b2d7d4", false), ("r8-map-id-0000000", true), ("r8-map-id-0000000", false)]
        {
            let stacks = JavaStacks { methods: vec![method(1, "a.a", "a", file)], nodes: Vec::new() };
            drop(renamer.frame(Frame::JavaStacks(stacks)));
            let complaint = renamer.complaint();
            assert_eq!(complaint.is_some(), complains, "{file}");
            assert!(
                complaint
                    .is_none_or(|why| why.contains("mapping 0000000; name the mapping.txt of that build"))
            );
        }
    }
}
