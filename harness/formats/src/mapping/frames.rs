//! Translates a frame of the renamed program to the original frames.

use super::classes::{Class, Mapping, Method};

/// A frame of the original program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginalFrame<'a> {
    /// Its class.
    pub class: &'a str,
    /// Its method.
    pub method: &'a str,
    /// Source file.
    pub file: String,
    /// Line in it, if known.
    pub line: Option<u32>,
}

impl<'a> Mapping<'a> {
    /// The original frames of a renamed frame. For each possible reading: inlined frames, innermost first, then the
    /// method itself. Readings are sorted by names. Empty if class or method were not renamed, or if the line belongs
    /// to no original.
    #[must_use]
    pub fn frames(
        &self,
        class: &str,
        method: &str,
        file: Option<&str>,
        line: Option<u32>,
    ) -> Vec<Vec<OriginalFrame<'a>>> {
        let Some(class) = self.classes.get(class) else { return Vec::new() };
        let mut alternatives: Vec<Vec<OriginalFrame<'a>>> = Vec::new();
        for stack in candidates(class, method, line) {
            let frame = |(method, line): &(&Method<'a>, Option<u32>)| {
                let declared = method.class.unwrap_or(class.original);
                OriginalFrame {
                    class: declared,
                    method: method.name,
                    file: self.source_file(declared, file),
                    // R8 writes 0 for code without a line.
                    line: line.filter(|line| *line != 0),
                }
            };
            let written = stack.iter().filter(|(method, _)| !method.synthesized);
            let mut frames: Vec<_> = written.map(frame).collect();
            if frames.is_empty() {
                frames.extend(stack.last().map(frame));
            }
            if !alternatives.contains(&frames) && alternatives.len() < MOST_ALTERNATIVES {
                alternatives.push(frames);
            }
        }
        alternatives.sort_by(|a, b| key(a).cmp(key(b)));
        alternatives
    }

    /// The source file of a class: as recorded, else the name of its outermost class.
    pub(super) fn source_file(&self, class: &str, shown: Option<&str>) -> String {
        if let Some(file) = self.source_files.get(class) {
            return file.clone();
        }
        let simple = class.rsplit('.').next().unwrap_or(class);
        let outermost = simple.split('$').find(|part| !part.is_empty()).unwrap_or(simple);
        // Code outside of classes in `Tiles.kt` is in a class `TilesKt`.
        match outermost.strip_suffix("Kt").filter(|_| shown.is_none_or(|shown| !shown.ends_with(".java"))) {
            Some(file) => format!("{file}.kt"),
            None if shown.is_some_and(|shown| shown.ends_with(".kt")) => format!("{outermost}.kt"),
            None => format!("{outermost}.java"),
        }
    }
}

/// Class and method of each frame.
fn key<'f, 'a>(frames: &'f [OriginalFrame<'a>]) -> impl Iterator<Item = (&'a str, &'a str)> + use<'f, 'a> {
    frames.iter().map(|frame| (frame.class, frame.method))
}

/// Maximum number of originals of one frame: more are not useful.
const MOST_ALTERNATIVES: usize = 16;

/// Last line of a range that R8 writes if a method has no lines.
const EVERYWHERE: u32 = 65535;

/// Methods with their lines, innermost first.
type Stack<'m, 'a> = Vec<(&'m Method<'a>, Option<u32>)>;

fn candidates<'m, 'a>(class: &'m Class<'a>, method: &str, line: Option<u32>) -> Vec<Stack<'m, 'a>> {
    let stacks: Vec<_> = stacks(class.methods())
        .filter(|stack| stack.first().is_some_and(|first| first.renamed == method))
        .collect();
    let with_lines = |stack: &&'m [Method<'a>]| -> Stack<'m, 'a> {
        stack.iter().map(|method| (method, original_line(method, line))).collect()
    };
    let range = |stack: &&[Method<'a>]| stack.first().and_then(|first| first.range);
    let at_line = |stack: &&&[Method<'a>]| matches!((range(stack), line), (Some((from, to)), Some(line)) if from <= line && line <= to);
    let anywhere = |stack: &&&[Method<'a>]| matches!(range(stack), None | Some((0, 0 | EVERYWHERE)));
    let exact: Vec<_> = stacks.iter().filter(at_line).map(with_lines).collect();
    if !exact.is_empty() {
        return exact;
    }
    let all: Vec<_> = stacks.iter().filter(anywhere).map(with_lines).collect();
    if !all.is_empty() {
        return all;
    }
    if line.is_some() {
        // The line belongs to none of the methods, so any answer would be a guess.
        return Vec::new();
    }
    // The methods themselves, without methods that were inlined into them. The compiler's own stand around some: around
    // one method, or around several (merged lambdas), of which any may be meant.
    let written = |stack: &&'m [Method<'a>]| stack.iter().rfind(|method| !method.synthesized);
    let name = |method: &Method<'a>| (method.class, method.name);
    let mut names: Vec<_> = stacks.iter().map(|stack| written(stack).map(name)).collect();
    names.dedup();
    let is_one = names.len() == 1;
    let outermost = |stack| written(stack).filter(|_| is_one).or(stack.last());
    stacks.iter().filter_map(outermost).map(|outermost| vec![(outermost, None)]).collect()
}

/// Groups the methods: neighbours with the same range and the same new name form a stack.
fn stacks<'m, 'a>(methods: &'m [Method<'a>]) -> impl Iterator<Item = &'m [Method<'a>]> {
    methods.chunk_by(|a, b| a.range.is_some() && a.range == b.range && a.renamed == b.renamed)
}

fn original_line(method: &Method<'_>, line: Option<u32>) -> Option<u32> {
    match (method.range, method.original) {
        (_, None) => line,
        (_, Some((from, to))) if from == to => Some(from),
        (Some((start, _)), Some((from, _))) => line?.checked_sub(start)?.checked_add(from),
        (None, Some(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
com.example.Outer$Tile -> a.b:
# {\"id\":\"sourceFile\",\"fileName\":\"Tiles.kt\"}
    1:3:void com.example.Cache.put(int):40:42 -> c
    1:3:void load(int):12 -> c
    4:9:void load(int):20:25 -> c
    10:10:void com.example.-$$Lambda.run():7:7 -> c
    # {\"id\":\"com.android.tools.r8.synthesized\"}
    10:10:void load(int):30:30 -> c
    11:11:void com.example.TilesKt.clear():8:8 -> c
    11:11:void com.example.-$$Lambda.run():0 -> c
    11:11:void load(int):31 -> c
    void over() -> d
    int over2(int) -> d
    5:6:void kept() -> e
    void gone():77 -> f
    12:12:void drop():0:0 -> g
    1:4:void wait():50:53 -> h
    1:4:void Tile.wait():0 -> h
      # {\"id\":\"com.android.tools.r8.synthesized\"}
    5:5:void wait():54:54 -> h
    1:1:void show():30 -> j
    1:1:void Merged.run():0 -> j
      # {\"id\":\"com.android.tools.r8.synthesized\"}
    2:2:void load():12 -> j
    2:2:void Merged.run():0 -> j
      # {\"id\":\"com.android.tools.r8.synthesized\"}
";

    fn frames(method: &str, line: Option<u32>) -> Vec<Vec<String>> {
        let mapping = Mapping::read(TEXT).unwrap();
        let show = |frame: &OriginalFrame<'_>| {
            let OriginalFrame { class, method, file, line } = frame;
            format!(
                "{}.{method}({file}:{})",
                class.rsplit('.').next().unwrap(),
                line.map_or_else(|| "?".to_owned(), |n| n.to_string())
            )
        };
        let alternatives = mapping.frames("a.b", method, Some("SourceFile"), line);
        alternatives.iter().map(|frames| frames.iter().map(show).collect()).collect()
    }

    #[test]
    fn inlined_frames_come_innermost_first_with_their_own_lines() {
        assert_eq!(frames("c", Some(2)), [["Cache.put(Cache.java:41)", "Outer$Tile.load(Tiles.kt:12)"]]);
        assert_eq!(frames("c", Some(6)), [["Outer$Tile.load(Tiles.kt:22)"]]);
    }

    #[test]
    fn frames_the_compiler_made_are_left_out() {
        assert_eq!(frames("c", Some(10)), [["Outer$Tile.load(Tiles.kt:30)"]]);
        // R8 writes this once for each method. Line 0 means no line.
        assert_eq!(frames("c", Some(11)), [["TilesKt.clear(Tiles.kt:8)", "Outer$Tile.load(Tiles.kt:31)"]]);
        assert_eq!(frames("g", Some(12)), [["Outer$Tile.drop(Tiles.kt:?)"]]);
        assert_eq!(frames("h", Some(2)), [["Outer$Tile.wait(Tiles.kt:51)"]]);
        assert_eq!(frames("h", None), [["Outer$Tile.wait(Tiles.kt:?)"]], "a frame without a line");
        let merged = frames("j", None);
        let is_merged = |frames: &Vec<String>| frames.iter().all(|frame| frame.starts_with("Merged.run"));
        assert!(!merged.is_empty() && merged.iter().all(is_merged), "any of them: {merged:?}");
    }

    #[test]
    fn what_cannot_be_told_apart_is_given_in_all_its_ways() {
        assert_eq!(frames("d", Some(9)), [["Outer$Tile.over(Tiles.kt:9)"], ["Outer$Tile.over2(Tiles.kt:9)"]]);
        assert_eq!(frames("c", None), [["Outer$Tile.load(Tiles.kt:?)"]]);
        assert!(frames("c", Some(999)).is_empty(), "a line of none of them: not guessed");
    }

    #[test]
    fn lines_that_were_kept_stay() {
        assert_eq!(frames("e", Some(6)), [["Outer$Tile.kept(Tiles.kt:6)"]]);
        assert_eq!(frames("f", Some(1)), [["Outer$Tile.gone(Tiles.kt:77)"]]);
    }

    #[test]
    fn unknown_methods_and_classes_have_no_original() {
        assert!(frames("x", Some(1)).is_empty());
        assert!(Mapping::read(TEXT).unwrap().frames("java.util.List", "add", None, None).is_empty());
    }
}
