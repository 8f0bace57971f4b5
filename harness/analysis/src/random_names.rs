//! One name for a library whose file has a random name (`mkstemp`, a copy that a test makes): a leak's id contains the
//! names of modules.
//!
//! Data flow: the modules of processes that ran the same tests, by build id → builds of which no repeated run used a
//! name of the screen → what their names have in common, with `#` instead of the rest → the frames of every stack.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use memgate_model::Frame;
use memgate_wire::Module;

use crate::record::ProcessRecord;
use crate::resolve::{Resolve, ResolvedStack, Variable};
use crate::signature::normalised_module;

/// The random names of modules, by build id.
#[derive(Debug, Default)]
pub(crate) struct RandomNames(BTreeMap<Vec<u8>, BTreeSet<String>>);

impl RandomNames {
    /// The names that only one of two groups of processes, which ran the same tests, used for a build.
    pub(crate) fn between<'p>(
        screened: impl IntoIterator<Item = &'p ProcessRecord>,
        repeated: impl IntoIterator<Item = &'p ProcessRecord>,
    ) -> Self {
        let screened: Vec<&ProcessRecord> = screened.into_iter().collect();
        let borrowed = screened.iter().flat_map(|record| record.borrowed_modules());
        let repeated = repeated.into_iter().flat_map(ProcessRecord::own_modules);
        let mut repeated = builds(repeated.chain(borrowed));
        let screened = builds(screened.iter().flat_map(|record| record.own_modules()));
        let random = screened.into_iter().filter_map(|(id, mut names)| {
            let mut others = repeated.remove(id).filter(|others| others.is_disjoint(&names))?;
            names.append(&mut others);
            Some((id.to_vec(), names))
        });
        Self(random.collect())
    }

    /// Also replaces the names in `others`.
    pub(crate) fn and(mut self, others: Self) -> Self {
        for (id, mut names) in others.0 {
            self.0.entry(id).or_default().append(&mut names);
        }
        self
    }

    /// Each random name with the one that replaces it.
    fn replaced(&self) -> HashMap<String, String> {
        let mut builds_of: BTreeMap<String, Vec<&BTreeSet<String>>> = BTreeMap::new();
        for names in self.0.values() {
            builds_of.entry(common(names)).or_default().push(names);
        }
        // Leaks of two libraries must not have one id.
        builds_of.retain(|_, builds| builds.len() == 1);
        let of_one = |(name, builds): (String, Vec<&BTreeSet<String>>)| {
            builds.into_iter().flatten().map(|random| (random.clone(), name.clone())).collect::<Vec<_>>()
        };
        builds_of.into_iter().flat_map(of_one).collect()
    }

    /// Names modules alike in the stacks of `resolve`.
    pub(crate) fn over<'a>(&self, resolve: &'a mut dyn Resolve) -> OneName<'a> {
        OneName { resolve, names: self.replaced() }
    }
}

/// See [`RandomNames::over`].
pub(crate) struct OneName<'a> {
    resolve: &'a mut dyn Resolve,
    names: HashMap<String, String>,
}

impl OneName<'_> {
    fn named(&self, mut frames: Vec<Frame>) -> Vec<Frame> {
        for frame in frames.iter_mut().filter(|_| !self.names.is_empty()) {
            if let Some(name) = self.names.get(&normalised_module(&frame.module)) {
                frame.module.clone_from(name);
            }
        }
        frames
    }
}

impl Resolve for OneName<'_> {
    fn frames(&mut self, record: &ProcessRecord, stack: u32) -> ResolvedStack {
        let ResolvedStack { frames, truncated } = self.resolve.frames(record, stack);
        ResolvedStack { frames: self.named(frames), truncated }
    }

    fn functions(&mut self, record: &ProcessRecord, pc: u64) -> Vec<Frame> {
        let frames = self.resolve.functions(record, pc);
        self.named(frames)
    }

    fn variable(&mut self, module: &Module, offset: u64, thread_local: bool) -> Option<Variable> {
        self.resolve.variable(module, offset, thread_local)
    }

    fn file_name(&self, path: &str) -> String {
        let name = self.resolve.file_name(path);
        self.names.get(&normalised_module(&name)).cloned().unwrap_or(name)
    }
}

/// The names of each build that has an id.
fn builds<'p>(lists: impl Iterator<Item = &'p [Arc<Module>]>) -> BTreeMap<&'p [u8], BTreeSet<String>> {
    let (mut builds, mut seen) = (BTreeMap::<_, BTreeSet<String>>::new(), HashSet::new());
    for module in lists.flatten() {
        if !module.build_id.is_empty() && seen.insert(Arc::as_ptr(module)) {
            builds.entry(module.build_id.as_slice()).or_default().insert(normalised_module(&module.path));
        }
    }
    builds
}

/// `plug-#.so` for `plug-aB3dE.so` and `plug-x7Yz.so`. Only whole words count: random ones may begin alike.
fn common(names: &BTreeSet<String>) -> String {
    let reversed = |name: &String| name.chars().rev().collect();
    let start = common_start(names.iter().cloned());
    let end = reversed(&common_start(names.iter().map(reversed)));
    format!("{start}#{end}")
}

fn common_start(names: impl Iterator<Item = String>) -> String {
    let alike =
        |a: String, b: String| a.chars().zip(b.chars()).map_while(|(a, b)| (a == b).then_some(a)).collect();
    let start = names.reduce(alike).unwrap_or_default();
    start.trim_end_matches(char::is_alphanumeric).to_owned()
}

#[cfg(test)]
mod tests {
    use memgate_model::Leak;
    use memgate_wire::native_holders::{HeldBlocks, HeldLink, HeldState, NativeHolders};
    use memgate_wire::{Frame as Wired, Modules, StackNode, Stacks};

    use super::*;
    use crate::company::missing;
    use crate::dsl::Process;
    use crate::groups::Places;
    use crate::input::{ConfirmationInput, RunInput};
    use crate::judge::judge;
    use crate::judge::tests::{TEST, run_of, suite};
    use crate::native_holders::Holding;
    use crate::policy::GatePolicy;
    use crate::resolve::ByAddress;

    /// A process that leaks in library number N, with these names one after the other.
    fn process(mut p: Process, names: &[&str], number: u8) -> ProcessRecord {
        for (i, name) in (0..).zip(names) {
            let start = 0x10_0000 * u64::from(i + 1);
            let module = Module {
                start,
                end: start + 0x1000,
                bias: start,
                path: format!("/tmp/{name}"),
                build_id: vec![number],
            };
            p.frame(Wired::Modules(Modules { generation: i, modules: vec![module] }));
            let nodes = vec![StackNode { id: 100 + i, parent: 0, pc: start + 0x40 }];
            p.frame(Wired::Stacks(Stacks { generation: i, nodes }));
            p.run(TEST, i, |p| p.alloc(100 + i, 48, 1));
        }
        p.end()
    }

    fn input(screen: &str, again: &[&str]) -> RunInput {
        let mut suite = suite(vec![process(Process::screen(), &[screen], 1).into()]);
        let again = Arc::new(process(Process::confirm(), again, 1).into());
        suite.confirmations.insert(TEST.to_owned(), ConfirmationInput::Repeated(again));
        run_of(suite)
    }

    fn renamed(screen: &[(&[&str], u8)], again: &[(&[&str], u8)]) -> Vec<(String, String)> {
        let of = |all: &[(&[&str], u8)]| -> Vec<ProcessRecord> {
            all.iter().map(|(names, number)| process(Process::screen(), names, *number)).collect()
        };
        let mut renamed: Vec<_> =
            RandomNames::between(&of(screen), &of(again)).replaced().into_iter().collect();
        renamed.sort();
        renamed
    }

    /// Regression: the leak had another id in each run, so no waiver and no history knew it.
    #[test]
    fn a_leak_of_a_library_with_a_random_file_name_keeps_its_id() {
        let leaks = |first: &str, names: &[String]| {
            let again: Vec<&str> = names.iter().map(String::as_str).collect();
            let input = input(first, &again);
            let [suite] = &input.suites[..] else { panic!("one suite") };
            let Some(ConfirmationInput::Repeated(alone)) = suite.confirmations.get(TEST) else {
                panic!("repeated")
            };
            let screened = &suite.screen[0].record;
            assert!(
                missing(screened, &screened.windows[0], &alone.record, TEST).is_empty(),
                "needs no company"
            );
            let report = judge(&input, &GatePolicy::default(), &mut ByAddress);
            let leaks = report.suites.into_iter().flat_map(|suite| suite.tests).flat_map(|test| test.leaks);
            leaks
                .map(|leak| (leak.id, leak.frames[0].module.clone(), leak.bytes_per_iteration))
                .collect::<Vec<_>>()
        };
        let names =
            |seed: usize| (0..60).map(|i| format!("plug-{:x}q.so", (i * 7919 + seed) * 104_729)).collect();
        let (one, other): (Vec<_>, Vec<_>) = (names(11), names(13));
        let (one, other) = (leaks("plug-Aq.so", &one), leaks("plug-Bq.so", &other));
        assert_eq!(one, other);
        let shown: Vec<_> = one.iter().map(|(_, module, bytes)| (module.as_str(), *bytes)).collect();
        assert_eq!(shown, [("plug-#.so", 48.0)]);
        // One name for a whole process.
        assert_eq!(leaks("plug-Cq.so", &vec!["plug-Dq.so".to_owned(); 60])[0].0, one[0].0);
    }

    /// Regression: a holder in a library without debug information had another name in each run.
    #[test]
    fn a_holder_in_a_library_with_a_random_file_name_keeps_its_name() {
        let owner = |screen: &str, again: &str| {
            let between = RandomNames::between(
                &[process(Process::screen(), &[screen], 1)],
                &[process(Process::confirm(), &[again], 1)],
            );
            let mut record = process(Process::confirm(), &[again], 1);
            let path = vec![HeldLink::Static { module: format!("/tmp/{again}"), offset: 16 }];
            let held = HeldBlocks { stack: 100, blocks: 1, state: HeldState::Reachable, of_state: 1, path };
            record.native_holders = Some(NativeHolders { held: vec![held], ..NativeHolders::default() });
            let mut symbols = ByAddress;
            let mut resolve = between.over(&mut symbols);
            let id = Places::new(&record, &mut resolve).of(100).id.clone();
            let mut leak = Leak { id, ..Leak::default() };
            Holding::new(&record, &mut resolve).tell(&mut leak, &mut resolve);
            leak.holder[0].owner.clone()
        };
        assert_eq!(owner("plug-Aq.so", "plug-Bq.so"), "plug-#.so+0x10");
        assert_eq!(owner("plug.so", "plug.so"), "plug.so+0x10");
    }

    #[test]
    fn names_are_random_only_if_no_repeated_run_uses_one_of_the_screen() {
        let pairs = |names: &[(&str, &str)]| -> Vec<(String, String)> {
            names.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
        };
        let random = pairs(&[("tmpab_d", "#"), ("tmpaxyz", "#")]);
        assert_eq!(renamed(&[(&["tmpab_d"], 1)], &[(&["tmpaxyz"], 1)]), random);
        assert!(renamed(&[(&["a.so", "b.so"], 1)], &[(&["b.so"], 1)]).is_empty(), "copies with fixed names");
        assert!(renamed(&[(&["a.so"], 2)], &[(&["b.so"], 1)]).is_empty(), "another build");
        assert!(
            renamed(&[(&["a.so.1"], 1)], &[(&["a.so.2"], 1)]).is_empty(),
            "versions are no part of a name"
        );
    }

    #[test]
    fn two_libraries_never_get_one_name() {
        let again: [(&[&str], u8); 2] = [(&["qq.so"], 1), (&["x-rr.so"], 2)];
        assert!(renamed(&[(&["ss.so"], 1), (&["tt.so"], 2)], &again).is_empty());
        assert_eq!(renamed(&[(&["ss.so"], 1), (&["x-tt.so"], 2)], &again).len(), 4);
    }
}
