//! Origins of descriptors, threads and mappings as the agent reports them: the stack of each.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use memgate_wire::{Handle, Handles, MappedKind, Mappings, OsSample};

use crate::looks::Named;
use crate::os_names;
use crate::record::{Mapped, Names, OsName};

/// Limit on descriptors, or threads, with a stored origin.
const MAX_ORIGINS: usize = 1 << 20;

/// Stacks that opened descriptors and started threads, by the number of these.
#[derive(Debug, Default)]
pub(super) struct Origins {
    /// The latest boundary with reported origins.
    boundary: u32,
    descriptors: HashMap<u32, u32>,
    threads: HashMap<u32, u32>,
    /// Numbers that are new at that boundary.
    new_descriptors: HashSet<u32>,
    new_threads: HashSet<u32>,
}

impl Origins {
    pub(super) fn learn(&mut self, told: Handles) {
        if told.boundary > self.boundary {
            self.boundary = told.boundary;
            self.new_descriptors.clear();
            self.new_threads.clear();
        }
        for (known, new, told) in [
            (&mut self.descriptors, &mut self.new_descriptors, told.descriptors),
            (&mut self.threads, &mut self.new_threads, told.threads),
        ] {
            for Handle { id, stack } in told {
                if new.len() < MAX_ORIGINS {
                    new.insert(id);
                }
                if stack == 0 {
                    known.remove(&id);
                } else if known.len() < MAX_ORIGINS || known.contains_key(&id) {
                    known.insert(id, stack);
                }
            }
        }
    }

    /// Numbers are reused: origins known now are wrong for earlier boundaries.
    pub(super) fn fit(&self, sample: &OsSample) -> bool {
        sample.boundary == 0 || sample.boundary >= self.boundary
    }

    /// The numbers that are new at this boundary.
    pub(super) fn told_at(&self, boundary: u32) -> (&HashSet<u32>, &HashSet<u32>) {
        static NONE: LazyLock<HashSet<u32>> = LazyLock::new(HashSet::new);
        if boundary == self.boundary { (&self.new_descriptors, &self.new_threads) } else { (&NONE, &NONE) }
    }

    /// Removes the origins of threads that have ended by this sample.
    pub(super) fn forget_the_dead(&mut self, sample: &OsSample) {
        if self.threads.len() > sample.threads.len() {
            let alive: HashSet<u32> = sample.threads.iter().map(|thread| thread.id).collect();
            self.threads.retain(|id, _| alive.contains(id));
        }
    }

    /// Names of the descriptors and threads in this sample.
    pub(super) fn named(&self, sample: &OsSample) -> Named {
        let fit = self.fit(sample);
        let named = |name: String, of: &HashMap<u32, u32>, id: u32| OsName {
            name,
            stack: of.get(&id).filter(|_| fit).copied().unwrap_or(0),
        };
        let fds = sample.fds.iter().map(|f| named(os_names::descriptor(&f.target), &self.descriptors, f.fd));
        let threads = sample.threads.iter().map(|t| named(os_names::thread(&t.name), &self.threads, t.id));
        (fds.collect(), threads.collect())
    }
}

/// Current mappings of the program itself.
#[derive(Debug, Default)]
pub(super) struct MappedNow {
    /// Ranges and bytes by kind and stack.
    groups: BTreeMap<(u8, u32), (u64, u64)>,
    /// The same in the form that windows store. `None`: mappings are not recorded, or not all could be stored.
    pub(super) state: Option<Mapped>,
    pub(super) lost: bool,
}

impl MappedNow {
    pub(super) fn learn(&mut self, told: Mappings) {
        self.lost |= told.lost;
        for memgate_wire::Mapped { stack, kind, count, bytes } in told.mapped {
            let key = (kind, stack);
            if count == 0 {
                self.groups.remove(&key);
            } else if self.groups.len() < MAX_ORIGINS || self.groups.contains_key(&key) {
                self.groups.insert(key, (count, bytes));
            } else {
                self.lost = true;
            }
        }
        let named = |of: fn((u64, u64)) -> u64| -> Names {
            let named = |(&(kind, stack), &group): (&(u8, u32), &(u64, u64))| {
                let kind = MappedKind::from_number(kind);
                (OsName { name: os_names::mapped(kind).to_owned(), stack }, of(group))
            };
            let mut names: Vec<_> = self.groups.iter().map(named).collect();
            names.sort_unstable();
            Arc::new(names)
        };
        let mapped = Mapped { bytes: named(|(_, bytes)| bytes), counts: named(|(count, _)| count) };
        self.state = Some(mapped).filter(|_| !self.lost);
    }
}

#[cfg(test)]
mod tests {
    use memgate_wire::Frame;

    use crate::dsl::Process;
    use crate::observer::Observer;
    use crate::record::{ProcessRecord, Window};

    #[test]
    fn where_a_descriptor_was_opened_is_known_from_its_boundary_on_and_not_before() {
        let mut p = Process::screen();
        p.run("Map.first", 0, |p| p.fds.push("/tmp/log"));
        p.run("Map.second", 0, |p| {
            p.fds.pop();
            p.open("/tmp/log", 7);
        });
        let stacks = |record: &ProcessRecord| -> Vec<u32> {
            let of_log = |w: &Window| {
                let fds = &w.os_end.as_ref().expect("a sample").fds;
                fds.iter().find(|(fd, _)| fd.name == "/tmp/log").expect("it is open").0.stack
            };
            record.windows.iter().map(of_log).collect()
        };
        let mut observer = Observer::new();
        p.frames.iter().cloned().for_each(|(frame, t_ns)| observer.push(frame, t_ns));
        assert_eq!(stacks(observer.record()), [0, 7]);
        // A late sample must not use the later meaning of a number.
        let mut observer = Observer::new();
        let (late, frames): (Vec<_>, Vec<_>) =
            p.frames.into_iter().partition(|(frame, _)| matches!(frame, Frame::OsSample(_)));
        frames.into_iter().for_each(|(frame, t_ns)| observer.push(frame, t_ns));
        late.into_iter().for_each(|(frame, t_ns)| observer.push(frame, t_ns));
        assert_eq!(stacks(observer.record()), [0, 7]);
    }
}
