//! The position of a commit on its line, and the base of a review.
//!
//! Data flow: ancestors of each measured commit → [`Chain`] (which commit follows which) → [`order`] (the runs of a
//! line, oldest code first) and [`base`] (the measured commit that a review is compared with).
//!
//! Time and order of arrival are unreliable: an old pipeline is run again, one pipeline overtakes another, a release is
//! measured after main. So the chain of first parents decides if it is known, then the number of the CI pipeline, then
//! the start time.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::manifest::Manifest;

/// Largest distance of a base, in commits. Figures of older code are hardly comparable.
pub const FARTHEST_BASE: usize = 50;

/// First parents of commits, as reported by runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chain {
    parents: HashMap<String, String>,
}

/// How the position of a run was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlacedBy {
    /// By the chain of first parents.
    Chain,
    /// By the number of its CI pipeline.
    Pipeline,
    /// By its start time.
    Time,
}

impl PlacedBy {
    /// Its number in the database.
    #[must_use]
    pub const fn number(self) -> i64 {
        match self {
            Self::Chain => 1,
            Self::Pipeline => 2,
            Self::Time => 3,
        }
    }

    /// The variant with this number.
    #[must_use]
    pub fn of_number(number: i64) -> Option<Self> {
        [Self::Chain, Self::Pipeline, Self::Time].into_iter().find(|by| by.number() == number)
    }
}

/// Data from which the position of a run is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Its number.
    pub run: i64,
    /// Its commit, or the one that its uncommitted changes are based on. Empty: there is none.
    pub sha: String,
    /// The tree had uncommitted changes.
    pub dirty: bool,
    /// Number of its CI pipeline.
    pub pipeline: Option<u64>,
    /// When it began, microseconds since 1970.
    pub started_us: i64,
}

/// A run with its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Its number.
    pub run: i64,
    /// Position of its commit on the line: the number of measured commits before it.
    pub place: i64,
    /// How the position was found.
    pub by: PlacedBy,
}

/// The measured commit that a review is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    /// The commit.
    pub sha: String,
    /// How many commits it is before the merged one; 0 for the merged one itself.
    pub before: usize,
}

impl Manifest {
    /// Number of its CI pipeline, if the CI system counts pipelines.
    #[must_use]
    pub fn pipeline_number(&self) -> Option<u64> {
        let ci = self.ci.as_ref()?;
        ci.number.parse().or_else(|_not_a_number| ci.pipeline.parse()).ok()
    }
}

impl Chain {
    /// A stored chain: commits with their first parents. `None`: it contains a cycle, so it is not a stored chain.
    #[must_use]
    pub fn kept(pairs: impl IntoIterator<Item = (String, String)>) -> Option<Self> {
        let chain = Self { parents: pairs.into_iter().collect() };
        let mut walked = HashMap::<&str, usize>::new();
        for (walk, sha) in chain.parents.keys().enumerate() {
            for sha in chain.back(sha) {
                match walked.insert(sha, walk) {
                    Some(before) if before == walk => return None,
                    Some(before) => {
                        walked.insert(sha, before);
                        break;
                    }
                    None => {}
                }
            }
        }
        Some(chain)
    }

    /// Adds the commits that the clone of a run reports: `sha`, its first parent, the parent of that one, and so on.
    /// Returns the new commits with their parents.
    ///
    /// A commit never gets another parent, so a known parent stays. A cycle is cut: a clone can report anything.
    pub fn add<'s>(
        &mut self,
        sha: &'s str,
        ancestors: impl IntoIterator<Item = &'s str>,
    ) -> Vec<(&'s str, &'s str)> {
        let (mut child, mut new) = (sha, Vec::new());
        let mut walked = BTreeSet::from([child]);
        for parent in ancestors {
            if child.is_empty() || parent.is_empty() || !walked.insert(parent) {
                break;
            }
            if !self.parents.contains_key(child) {
                if self.descends(parent, child) {
                    break;
                }
                self.parents.insert(child.to_owned(), parent.to_owned());
                new.push((child, parent));
            }
            child = parent;
        }
        new
    }

    /// The first parent of a commit.
    #[must_use]
    pub fn parent(&self, sha: &str) -> Option<&str> {
        self.parents.get(sha).map(String::as_str)
    }

    /// A commit, its first parent, the parent of that one, and so on, as far as known.
    pub fn back<'c>(&'c self, sha: &'c str) -> impl Iterator<Item = &'c str> {
        std::iter::successors(Some(sha), |sha| self.parent(sha))
    }

    /// Is `ancestor` the commit itself or one of its ancestors?
    fn descends(&self, sha: &str, ancestor: &str) -> bool {
        self.back(sha).any(|sha| sha == ancestor)
    }

    /// The commits between two, excluding both, oldest first. `None`: the path is unknown.
    #[must_use]
    pub fn between<'c>(&'c self, clean: &str, dirty: &'c str) -> Option<Vec<&'c str>> {
        let mut between: Vec<&str> = Vec::new();
        for sha in self.back(dirty).skip(1) {
            if sha == clean {
                between.reverse();
                return Some(between);
            }
            between.push(sha);
        }
        None
    }

    /// Each of these commits with its oldest ancestor and its distance from it.
    fn distances<'c>(&'c self, shas: impl IntoIterator<Item = &'c str>) -> HashMap<&'c str, (&'c str, i64)> {
        let mut known = HashMap::<&str, (&str, i64)>::new();
        for sha in shas {
            let mut way: Vec<&str> = Vec::new();
            let (root, mut distance) = self
                .back(sha)
                .find_map(|sha| {
                    let found = known.get(sha).copied();
                    if found.is_none() {
                        way.push(sha);
                    }
                    found
                })
                .unwrap_or_else(|| (way.last().copied().unwrap_or(sha), -1));
            for sha in way.into_iter().rev() {
                distance += 1;
                known.insert(sha, (root, distance));
            }
        }
        known
    }
}

/// The base for `merged`, the commit that a review was merged with: itself, or its nearest ancestor with a complete run
/// of that environment. `None`: none is near enough.
#[must_use]
pub fn base(chain: &Chain, merged: &str, is_measured: impl Fn(&str) -> bool) -> Option<Base> {
    let mut near = chain.back(merged).take(FARTHEST_BASE + 1).enumerate().filter(|(_, sha)| !sha.is_empty());
    let (before, sha) = near.find(|(_, sha)| is_measured(sha))?;
    Some(Base { sha: sha.to_owned(), before })
}

/// The runs of a line, oldest code first. Runs of one commit share a position and are consecutive. Runs with
/// uncommitted changes follow the commit that these are based on, each with a position of its own.
///
/// Commits of one chain are in the order of the chain. If chains fork (a branch was squashed or rebased, or merged main
/// into itself and became main), the one with the newest commit comes last: it is the current branch. A commit without
/// a known chain, or a run without a commit, comes after the last one with a lower pipeline number, if there are such
/// numbers. Otherwise it comes after the last one that was measured earlier.
#[must_use]
pub fn order(chain: &Chain, runs: &[Run]) -> Vec<Placed> {
    let units = units(runs);
    let parents: HashSet<&str> = chain.parents.values().map(String::as_str).collect();
    let is_chained = |unit: &Unit<'_>| {
        chain.parent(unit.sha).is_some() || (!unit.sha.is_empty() && parents.contains(unit.sha))
    };
    let (chained, single): (Vec<_>, Vec<_>) = units.into_iter().partition(is_chained);
    let mut line: Vec<(Unit<'_>, PlacedBy)> =
        parts(chain, chained).into_iter().flatten().map(|unit| (unit, PlacedBy::Chain)).collect();
    let counts = line.iter().any(|(unit, _)| unit.pipeline.is_some()) || line.is_empty();
    let (numbered, timed): (Vec<_>, Vec<_>) =
        single.into_iter().partition(|unit| counts && unit.pipeline.is_some());
    join(&mut line, numbered, PlacedBy::Pipeline, |unit| unit.pipeline);
    join(&mut line, timed, PlacedBy::Time, |unit| Some(unit.started_us));
    let (mut order, mut next) = (Vec::with_capacity(runs.len()), 0);
    for (unit, by) in line {
        let (changed, clean): (Vec<&Run>, Vec<&Run>) = unit.runs.iter().partition(|run| run.is_single());
        order.extend(clean.iter().map(|run| Placed { run: run.run, place: next, by }));
        next += i64::from(!clean.is_empty());
        for run in changed {
            order.push(Placed { run: run.run, place: next, by });
            next += 1;
        }
    }
    order
}

impl Run {
    /// Does it have a position of its own?
    const fn is_single(&self) -> bool {
        self.dirty || self.sha.is_empty()
    }
}

/// All runs of one commit and of changes to it, or one run without a commit.
struct Unit<'r> {
    sha: &'r str,
    /// The lowest number: the same commit may be measured again much later.
    pipeline: Option<u64>,
    /// The earliest start.
    started_us: i64,
    /// In the order of their start.
    runs: Vec<&'r Run>,
}

impl Unit<'_> {
    /// When its first run began, and the number of that.
    fn first(&self) -> (i64, Option<i64>) {
        (self.started_us, self.runs.first().map(|run| run.run))
    }

    /// Order for units without a known chain.
    fn cmp_unchained(&self, other: &Self) -> Ordering {
        self.first().cmp(&other.first()).then_with(|| self.sha.cmp(other.sha))
    }
}

fn units(runs: &[Run]) -> Vec<Unit<'_>> {
    let mut sorted: Vec<&Run> = runs.iter().collect();
    sorted.sort_by_key(|run| (run.started_us, run.run));
    let (mut units, mut known) = (Vec::<Unit<'_>>::new(), HashMap::<&str, usize>::new());
    for run in sorted {
        let next = units.len();
        let at = if run.sha.is_empty() { next } else { *known.entry(&run.sha).or_insert(next) };
        if let Some(unit) = units.get_mut(at) {
            unit.runs.push(run);
            unit.pipeline = [unit.pipeline, run.pipeline].into_iter().flatten().min();
        } else {
            let Run { sha, pipeline, started_us, .. } = run;
            units.push(Unit { sha, pipeline: *pipeline, started_us: *started_us, runs: vec![run] });
        }
    }
    units
}

/// Commits by chain. Chains that are not connected are ordered by their first pipeline if each has a number, otherwise
/// by their first measurement.
fn parts<'r>(chain: &'r Chain, units: Vec<Unit<'r>>) -> Vec<Vec<Unit<'r>>> {
    let distances = chain.distances(units.iter().map(|unit| unit.sha));
    let distance = |unit: &Unit<'_>| distances.get(unit.sha).map(|(_, distance)| *distance);
    let mut by_root = BTreeMap::<Option<&str>, Vec<Unit<'r>>>::new();
    for unit in units {
        let root = distances.get(unit.sha).map(|(root, _)| *root);
        by_root.entry(root).or_default().push(unit);
    }
    let mut parts: Vec<Vec<Unit<'r>>> = by_root.into_values().collect();
    for part in &mut parts {
        part.sort_by(|a, b| distance(a).cmp(&distance(b)).then_with(|| a.cmp_unchained(b)));
        *part = newest_last(chain, std::mem::take(part));
    }
    let pipeline = |part: &Vec<Unit<'_>>| part.iter().filter_map(|unit| unit.pipeline).min();
    let counts = parts.iter().all(|part| pipeline(part).is_some());
    let measured = |part: &Vec<Unit<'_>>| part.iter().map(Unit::first).min();
    parts.sort_by_cached_key(|part| (pipeline(part).filter(|_| counts), measured(part)));
    parts
}

/// The commits of one chain, older ones first, so that each comes after its ancestors. Commits of one branch of the
/// chain stay together, and the branch with the newest commit comes last.
fn newest_last<'r>(chain: &Chain, part: Vec<Unit<'r>>) -> Vec<Unit<'r>> {
    let counts = part.iter().all(|unit| unit.pipeline.is_some());
    let key = |unit: &Unit<'r>| (unit.pipeline.filter(|_| counts), unit.first());
    let mut newest: Vec<_> = part.iter().map(key).collect();
    // Position of the nearest measured ancestor of each commit; `part.len()` if there is none.
    let (none, mut nearest) = (part.len(), HashMap::<&str, usize>::new());
    let mut children = vec![Vec::new(); part.len() + 1];
    let mut parents = Vec::with_capacity(part.len());
    for (at, unit) in part.iter().enumerate() {
        let mut way = Vec::new();
        let parent = chain.back(unit.sha).skip(1).find_map(|sha| {
            let found = nearest.get(sha).copied();
            if found.is_none() {
                way.push(sha);
            }
            found
        });
        let parent = parent.unwrap_or(none);
        nearest.extend(way.into_iter().map(|sha| (sha, parent)));
        nearest.insert(unit.sha, at);
        children[parent].push(at);
        parents.push(parent);
    }
    // Children come after their parents. So, going backwards, each has received the values of all its descendants.
    for (at, parent) in parents.into_iter().enumerate().rev() {
        if parent < none {
            newest[parent] = newest[parent].max(newest[at]);
        }
    }
    let (mut units, mut ordered) = (part.into_iter().map(Some).collect::<Vec<_>>(), Vec::new());
    let mut next = vec![none];
    while let Some(at) = next.pop() {
        ordered.extend(units.get_mut(at).and_then(Option::take));
        let ways = &mut children[at];
        ways.sort_by_key(|way| std::cmp::Reverse(newest[*way]));
        next.append(ways);
    }
    ordered
}

/// Inserts units into a line, each after the last unit whose key is not larger. Units of the line without a key are
/// skipped.
fn join<'r, K: Ord + Copy>(
    line: &mut Vec<(Unit<'r>, PlacedBy)>,
    mut new: Vec<Unit<'r>>,
    by: PlacedBy,
    key: impl Fn(&Unit<'r>) -> Option<K>,
) {
    // The smallest key from each position on never decreases, so the position is found by binary search.
    let mut smallest: Vec<Option<K>> = line.iter().map(|(unit, _)| key(unit)).collect();
    let mut least = None;
    for slot in smallest.iter_mut().rev() {
        least = [least, *slot].into_iter().flatten().min();
        *slot = least;
    }
    new.sort_by(|a, b| key(a).cmp(&key(b)).then_with(|| a.cmp_unchained(b)));
    let mut old = std::mem::take(line).into_iter();
    let mut taken = 0;
    for unit in new {
        let behind = smallest.partition_point(|least| least.is_some_and(|least| Some(least) <= key(&unit)));
        line.extend(old.by_ref().take(behind.saturating_sub(taken)));
        taken = taken.max(behind);
        line.push((unit, by));
    }
    line.extend(old);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `c3@30` is a run of commit c3 at time 30, `c3+@30` one with changes, `@30` one without a commit, `c3@30#7` one
    /// of pipeline 7.
    fn run(number: usize, text: &str) -> Run {
        let (text, pipeline) = text.split_once('#').map_or((text, None), |(text, n)| (text, n.parse().ok()));
        let (sha, started) = text.split_once('@').unwrap();
        let run = i64::try_from(number).unwrap();
        let (sha, dirty) = sha.strip_suffix('+').map_or((sha, false), |sha| (sha, true));
        Run { run, sha: sha.to_owned(), dirty, pipeline, started_us: started.parse().unwrap() }
    }

    fn chain(chains: &[&[&str]]) -> Chain {
        let mut chain = Chain::default();
        for shas in chains {
            chain.add(shas[0], shas[1..].iter().copied());
        }
        let pairs = chain.parents.iter().map(|(sha, parent)| (sha.clone(), parent.clone()));
        assert_eq!(Chain::kept(pairs).as_ref(), Some(&chain));
        chain
    }

    fn ordered(chain: &Chain, runs: &[&str]) -> String {
        let found: Vec<Run> = runs.iter().enumerate().map(|(number, text)| run(number, text)).collect();
        let told: Vec<&str> =
            order(chain, &found).iter().map(|placed| runs[usize::try_from(placed.run).unwrap()]).collect();
        told.join(" ")
    }

    #[test]
    fn commits_stand_as_they_follow_one_another_whenever_they_were_measured() {
        let known = chain(&[&["c3", "c2", "c1"], &["c5", "c4", "c3"]]);
        for (case, runs, expected) in [
            ("old pipeline again", &["c1@10", "c5@20", "c1@99"][..], "c1@10 c1@99 c5@20"),
            ("overtaken pipeline", &["c5@10", "c3@20"], "c3@20 c5@10"),
            ("backwards", &["c5@1", "c4@2", "c2@3", "c1@4"], "c1@4 c2@3 c4@2 c5@1"),
            ("no commit", &["c1@10", "@15", "c5@20", "@5"], "@5 c1@10 @15 c5@20"),
            ("changes to an old commit", &["c1@10", "c5@20", "c1+@30"], "c1@10 c1+@30 c5@20"),
            ("changes to one that nobody measured", &["c2@10", "c5@20", "c4+@30"], "c2@10 c4+@30 c5@20"),
            ("changes and commit in turn", &["c5+@1", "c5@2", "c5+@3", "c5@4"], "c5@2 c5@4 c5+@1 c5+@3"),
            ("changes, chain not known", &["x+@1", "@2", "x@3", "c5@4"], "x@3 x+@1 @2 c5@4"),
            ("chain not known, with number", &["c1@1#1", "x@9#3", "c5@2#5"], "c1@1#1 x@9#3 c5@2#5"),
            ("chain not known, no number", &["c1@1#1", "x@1", "c5@2#5"], "c1@1#1 x@1 c5@2#5"),
            ("numbers that none of the chain has", &["c1@1", "x@9#3", "c5@20"], "c1@1 x@9#3 c5@20"),
            ("nothing but numbers", &["x@1#20", "y@2#10", "z@3#9"], "z@3#9 y@2#10 x@1#20"),
            ("nothing but time", &["x@3", "@1", "y@2"], "@1 y@2 x@3"),
        ] {
            assert_eq!(ordered(&known, runs), expected, "{case}");
        }
        assert_eq!(ordered(&known, &[]), "");
    }

    #[test]
    fn shallow_clones_are_joined_when_a_deeper_one_comes() {
        let runs = ["c1@9", "c2@5", "c8@4"];
        assert_eq!(ordered(&chain(&[&["c2", "c1"], &["c8", "c7"]]), &runs), "c8@4 c1@9 c2@5");
        let numbered = ["c1@9#1", "c2@5#2", "c8@4#3"];
        assert_eq!(ordered(&chain(&[&["c2", "c1"], &["c8", "c7"]]), &numbered), "c1@9#1 c2@5#2 c8@4#3");
        let joined = chain(&[&["c2", "c1"], &["c8", "c7"], &["c7", "c6", "c2"]]);
        assert_eq!(ordered(&joined, &runs), "c1@9 c2@5 c8@4");
        assert_eq!(joined.between("c2", "c8"), Some(vec!["c6", "c7"]));
        assert_eq!((joined.between("c8", "c2"), joined.between("x", "c2")), (None, None));
    }

    #[test]
    fn of_chains_that_part_the_one_that_the_branch_is_now_stands_last() {
        for (case, chains, runs, expected) in [
            (
                "git pull on a branch that becomes main",
                &[&["m3", "m2", "m1", "c0"][..], &["m", "dev", "c0"]][..],
                &["m@9", "m3@4", "m2@3", "m1@2", "c0@1"][..],
                "c0@1 m1@2 m2@3 m3@4 m@9",
            ),
            (
                "squashed",
                &[&["c2", "c1", "c0"], &["s", "c0"]],
                &["s@9", "c2@3", "c1@2", "c0@1"],
                "c0@1 c1@2 c2@3 s@9",
            ),
            (
                "and it goes on",
                &[&["c2", "c1", "c0"], &["t", "s", "c0"]],
                &["c2@3", "t@10", "s@9", "c1@2"],
                "c1@2 c2@3 s@9 t@10",
            ),
            (
                "by pipeline where all have one",
                &[&["c2", "c1", "c0"], &["s", "c0"]],
                &["s@1#9", "c2@5#3", "c1@4#2"],
                "c1@4#2 c2@5#3 s@1#9",
            ),
        ] {
            assert_eq!(ordered(&chain(chains), runs), expected, "{case}");
        }
    }

    #[test]
    fn runs_of_one_commit_share_a_place() {
        let known = chain(&[&["c2", "c1"]]);
        let runs = ["c2@1", "c1@2", "c2@3", "@4", "c1+@5", "c1+@6"];
        let placed = order(&known, &runs.iter().zip(0..).map(|(text, n)| run(n, text)).collect::<Vec<_>>());
        let told: Vec<_> = placed.iter().map(|placed| (placed.run, placed.place, placed.by)).collect();
        let (chain, time) = (PlacedBy::Chain, PlacedBy::Time);
        assert_eq!(
            told,
            [(1, 0, chain), (4, 1, chain), (5, 2, chain), (0, 3, chain), (2, 3, chain), (3, 4, time)]
        );
    }

    #[test]
    fn a_clone_that_lies_makes_no_circle() {
        let known =
            chain(&[&["a", "b", "c"], &["c", "a"], &["x", "y", "x"], &["z", "z"], &["b", "q"], &["", "a"]]);
        assert_eq!(known.back("a").collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(known.back("x").collect::<Vec<_>>(), ["x", "y"]);
        assert_eq!((known.parent("z"), known.parent(""), known.parent("b")), (None, None, Some("c")));
        let circle = ["ab", "bc", "ca", "xa"].map(|two| (two[..1].to_owned(), two[1..].to_owned()));
        assert_eq!(Chain::kept(circle), None);
    }

    #[test]
    fn a_review_is_compared_with_the_nearest_measured_ancestor_of_what_was_merged() {
        let shas: Vec<String> = (0..60).rev().map(|n| format!("c{n}")).collect();
        let shas: Vec<&str> = shas.iter().map(String::as_str).collect();
        let known = chain(&[&shas]);
        let measured = |list: &'static [&str]| move |sha: &str| list.contains(&sha);
        let told = |base: Option<Base>| base.map(|base| (base.sha, base.before));
        assert_eq!(told(base(&known, "c59", measured(&["c59", "c58"]))), Some(("c59".into(), 0)));
        assert_eq!(told(base(&known, "c59", measured(&["c56", "c10"]))), Some(("c56".into(), 3)));
        assert_eq!(told(base(&known, "c59", measured(&["c9"]))), Some(("c9".into(), 50)));
        assert_eq!(told(base(&known, "c59", measured(&["c8"]))), None, "51 back is too far");
        assert_eq!(told(base(&known, "c20", measured(&["c59"]))), None, "a later commit is no base");
        assert_eq!(told(base(&known, "other", measured(&["c59"]))), None);
        assert_eq!(told(base(&known, "", |_| true)), None, "CI names none");
    }

    #[test]
    fn a_pipeline_has_a_number_where_ci_counts() {
        let number = |pipeline: &str, number: &str| {
            let ci =
                memgate_model::Ci { pipeline: pipeline.into(), number: number.into(), ..Default::default() };
            Manifest { ci: Some(ci), ..Manifest::default() }.pipeline_number()
        };
        assert_eq!((number("981", "17"), number("981", ""), number("a-b", "")), (Some(17), Some(981), None));
        assert_eq!(Manifest::default().pipeline_number(), None);
    }

    proptest! {
        #[test]
        fn order_of_arrival_changes_nothing(
            chains in proptest::collection::vec((0_u32..30, 1_u32..6), 0..8),
            runs in proptest::collection::vec(
                (0_u32..40, proptest::bool::weighted(0.2), proptest::option::of(0_u64..9), 0_i64..50),
                1..40,
            ),
            seed in any::<u64>(),
        ) {
            let sha = |n: u32| if n < 32 { format!("c{n}") } else { String::new() };
            let runs: Vec<Run> = runs
                .into_iter()
                .zip(0..)
                .map(|((n, dirty, pipeline, started_us), run)| Run { run, sha: sha(n), dirty, pipeline, started_us })
                .collect();
            let told = |(n, deep): (u32, u32)| (0..=deep.min(n)).map(|back| sha(n - back)).collect();
            let chains: Vec<Vec<String>> = chains.into_iter().map(told).collect();
            let known = |chains: &[Vec<String>]| {
                let mut chain = Chain::default();
                for shas in chains {
                    chain.add(&shas[0], shas[1..].iter().map(String::as_str));
                }
                chain
            };
            let key = |n: usize| (n as u64 + 1).wrapping_mul(seed | 1).rotate_left(17);
            let shuffled = |count: usize| {
                let mut order: Vec<usize> = (0..count).collect();
                order.sort_by_key(|n| key(*n));
                order
            };
            let first = order(&known(&chains), &runs);
            let later: Vec<_> = shuffled(chains.len()).into_iter().map(|n| chains[n].clone()).collect();
            let mixed: Vec<Run> = shuffled(runs.len()).into_iter().map(|n| runs[n].clone()).collect();
            prop_assert_eq!(&order(&known(&later), &mixed), &first);
            prop_assert_eq!(first.len(), runs.len());
            // No commit comes before its ancestor.
            let chain = known(&chains);
            for (at, old) in first.iter().enumerate() {
                for new in &first[at + 1..] {
                    let [old, new] = [old, new].map(|placed| &runs[usize::try_from(placed.run).unwrap()].sha);
                    let is_right = old == new || old.is_empty() || !chain.descends(old, new);
                    prop_assert!(is_right, "{} before {}", old, new);
                }
            }
        }
    }
}
