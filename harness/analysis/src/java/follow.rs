//! Objects of followed classes: what was allocated where, how long it lived, what is left.
//!
//! Data flow: `JavaObjects` frames → [`Followed::objects`] joins each end with its beginning and
//! counts per class and stack; events tell what was ordered meanwhile ([`Followed::obeyed`]) →
//! [`followed`] adds up the processes of a run, names the stacks, blames the classes that allocate,
//! and keeps what has most bytes. The agent tells an end when the virtual machine does, some time
//! after the collection: lifetimes are upper bounds.

use std::collections::{BTreeMap, HashMap};

use memgate_model::{Blamed, Followed as FollowedReport, FollowedSite, Frame, LIFETIMES_NS};
use memgate_wire::java::JavaObjects;
use memgate_wire::spool::follow::{BEGINS, PAUSES, RESET};

use super::record::JavaRecord;
use crate::policy::FollowPolicy;
use crate::record::ProcessRecord;

/// Sites and live objects that are kept; what is beyond counts as lost.
const MAX_SITES: usize = 100_000;
const MAX_ALIVE: usize = 2_000_000;

/// Objects of followed classes in one process.
#[derive(Debug, Clone, Default)]
pub struct Followed {
    sites: BTreeMap<(u32, u32), Counts>,
    alive: HashMap<u64, Born>,
    /// Events that the agent had no room for.
    lost: u64,
    /// Objects that there was no room for here.
    left_out: u64,
    /// Objects are followed in this process, whether or not there was one.
    begun: bool,
    pauses: u64,
}

/// What is known of an object that lives.
#[derive(Debug, Clone, Copy)]
struct Born {
    site: (u32, u32),
    bytes: u64,
    at_ns: u64,
}

#[derive(Debug, Clone, Default)]
struct Counts {
    allocations: u64,
    bytes: u64,
    freed: u64,
    freed_bytes: u64,
    lifetimes: [u64; LIFETIMES_NS.len() + 1],
}

impl Followed {
    fn is_used(&self) -> bool {
        !self.sites.is_empty() || self.lost > 0
    }

    /// Are objects followed in this process?
    #[must_use]
    pub const fn is_following(&self) -> bool {
        self.begun
    }

    /// What was ordered was obeyed: everything that was followed before is forgotten, or taking
    /// pauses.
    pub(crate) fn obeyed(&mut self, what: &str) {
        match what {
            BEGINS => self.begun = true,
            RESET => (self.sites, self.alive) = Default::default(),
            PAUSES => self.pauses = self.pauses.saturating_add(1),
            _ => {}
        }
    }

    /// Reads what a frame tells.
    pub(crate) fn objects(&mut self, frame: &JavaObjects) {
        self.lost = self.lost.max(frame.lost);
        for born in &frame.born {
            let site = (born.class, born.stack);
            let known = self.sites.len() < MAX_SITES || self.sites.contains_key(&site);
            if !known || self.alive.len() >= MAX_ALIVE {
                self.left_out = self.left_out.saturating_add(1);
                continue;
            }
            let counts = self.sites.entry(site).or_default();
            counts.allocations = counts.allocations.saturating_add(1);
            counts.bytes = counts.bytes.saturating_add(born.bytes);
            let at_ns = frame.base_ns.saturating_add(born.after_ns);
            self.alive.insert(born.object, Born { site, bytes: born.bytes, at_ns });
        }
        for freed in &frame.freed {
            let Some(born) = self.alive.remove(&freed.object) else { continue };
            let Some(counts) = self.sites.get_mut(&born.site) else { continue };
            let lived = frame.base_ns.saturating_add(freed.after_ns).saturating_sub(born.at_ns);
            counts.freed = counts.freed.saturating_add(1);
            counts.freed_bytes = counts.freed_bytes.saturating_add(born.bytes);
            let bucket = LIFETIMES_NS.iter().position(|limit| lived < *limit);
            if let Some(count) = counts.lifetimes.get_mut(bucket.unwrap_or(LIFETIMES_NS.len())) {
                *count = count.saturating_add(1);
            }
        }
    }
}

/// What was followed in these processes, most bytes first; `None`: nothing was.
pub fn followed<'a>(
    processes: impl Iterator<Item = &'a ProcessRecord>,
    policy: &FollowPolicy,
) -> Option<FollowedReport> {
    let mut report = FollowedReport::default();
    let mut sites: BTreeMap<(String, Vec<String>), FollowedSite> = BTreeMap::new();
    let mut any = false;
    for record in processes {
        let Some(java) = record.java.as_ref().filter(|java| java.followed.is_used()) else { continue };
        any = true;
        report.pauses = report.pauses.saturating_add(java.followed.pauses);
        report.lost = report.lost.saturating_add(java.followed.lost).saturating_add(java.followed.left_out);
        for (site, counts) in &java.followed.sites {
            add(&mut sites, java, *site, counts);
        }
    }
    let mut all: Vec<FollowedSite> = sites.into_values().collect();
    all.sort_by(|a, b| b.live_bytes.cmp(&a.live_bytes).then(b.bytes.cmp(&a.bytes)));
    report.blame = blame(&all, policy);
    for site in &all {
        let sum = &mut report.all;
        sum.allocations = sum.allocations.saturating_add(site.allocations);
        sum.bytes = sum.bytes.saturating_add(site.bytes);
        sum.live = sum.live.saturating_add(site.live);
        sum.live_bytes = sum.live_bytes.saturating_add(site.live_bytes);
    }
    report.left_out = all.len().saturating_sub(policy.sites) as u64;
    all.truncate(policy.sites);
    report.sites = all;
    any.then_some(report)
}

fn add(
    sites: &mut BTreeMap<(String, Vec<String>), FollowedSite>,
    java: &JavaRecord,
    (class, stack): (u32, u32),
    counts: &Counts,
) {
    let class = java.class(class).unwrap_or("?").to_owned();
    let frames = java.stack(stack);
    let place = frames.iter().map(|f| format!("{:?}:{:?}", f.function, f.line)).collect();
    let site = sites.entry((class.clone(), place)).or_insert_with(|| FollowedSite {
        class,
        frames,
        lifetimes: vec![0; LIFETIMES_NS.len() + 1],
        ..FollowedSite::default()
    });
    site.allocations = site.allocations.saturating_add(counts.allocations);
    site.bytes = site.bytes.saturating_add(counts.bytes);
    site.live = site.live.saturating_add(counts.allocations.saturating_sub(counts.freed));
    site.live_bytes = site.live_bytes.saturating_add(counts.bytes.saturating_sub(counts.freed_bytes));
    for (sum, count) in site.lifetimes.iter_mut().zip(counts.lifetimes) {
        *sum = sum.saturating_add(count);
    }
}

/// The classes that allocate, most live bytes first.
fn blame(sites: &[FollowedSite], policy: &FollowPolicy) -> Vec<Blamed> {
    let mut blamed: BTreeMap<&str, Blamed> = BTreeMap::new();
    for site in sites {
        let class = culprit(&site.frames, policy);
        let sum =
            blamed.entry(class).or_insert_with(|| Blamed { class: class.to_owned(), ..Blamed::default() });
        sum.allocations = sum.allocations.saturating_add(site.allocations);
        sum.bytes = sum.bytes.saturating_add(site.bytes);
        sum.live = sum.live.saturating_add(site.live);
        sum.live_bytes = sum.live_bytes.saturating_add(site.live_bytes);
    }
    let mut blamed: Vec<Blamed> = blamed.into_values().collect();
    blamed.sort_by(|a, b| b.live_bytes.cmp(&a.live_bytes).then(b.bytes.cmp(&a.bytes)));
    blamed.truncate(policy.sites);
    blamed
}

/// The innermost class of the stack that may be blamed.
fn culprit<'a>(frames: &'a [Frame], policy: &FollowPolicy) -> &'a str {
    let fits = |class: &str, part: &String| match part.strip_suffix('*') {
        Some(prefix) => class.starts_with(prefix),
        None => class == part,
    };
    let may_be = |class: &&str| {
        !policy.ignore.iter().any(|part| fits(class, part))
            && (policy.target.is_empty() || policy.target.iter().any(|part| fits(class, part)))
    };
    let classes = frames.iter().filter_map(|frame| frame.function.as_deref()?.rsplit_once('.'));
    classes.map(|(class, _)| class).find(may_be).unwrap_or("(elsewhere)")
}

#[cfg(test)]
mod tests {
    use memgate_wire::Frame;
    use memgate_wire::java::{ClassName, Classes, ObjectBorn, ObjectFreed};

    use super::*;
    use crate::observer::Observer;

    const MS: u64 = 1_000_000;

    fn objects(base_ns: u64, lost: u64, born: &[(u64, u64)], freed: &[(u64, u64)]) -> Frame {
        let born = born.iter().map(|&(object, after_ns)| ObjectBorn {
            object,
            class: 1,
            stack: 0,
            bytes: 24,
            after_ns,
        });
        let freed = freed.iter().map(|&(object, after_ns)| ObjectFreed { object, after_ns });
        Frame::JavaObjects(JavaObjects { base_ns, lost, born: born.collect(), freed: freed.collect() })
    }

    #[test]
    fn ends_find_their_beginnings_across_frames_and_lifetimes_fall_into_buckets() {
        let mut observer = Observer::new();
        let class = ClassName { id: 1, name: "com.example.Tile".to_owned() };
        observer.push(Frame::Classes(Classes { classes: vec![class] }), 0);
        observer.push(objects(1000, 0, &[(1, 0), (2, 0), (3, 0)], &[(1, MS / 2)]), 1);
        observer.push(objects(1000 + 50 * MS, 2, &[(4, 0)], &[(2, 0), (99, 0)]), 2);
        observer.push(objects(1000 + 60_000 * MS, 2, &[], &[(4, 0)]), 3);
        let record = observer.into_record();
        let report =
            followed([&record].into_iter(), &FollowPolicy::default()).expect("something was followed");
        let [site] = report.sites.as_slice() else { panic!("{report:?}") };
        assert_eq!((site.class.as_str(), site.allocations, site.bytes), ("com.example.Tile", 4, 96));
        assert_eq!((site.live, site.live_bytes), (1, 24), "number 3; number 99 was never heard of");
        assert_eq!(site.lifetimes, [1, 0, 1, 0, 0, 1]);
        assert_eq!((report.lost, report.left_out), (2, 0));
    }

    #[test]
    fn what_came_before_a_reset_is_forgotten() {
        let event = |detail: &str| {
            Frame::Event(memgate_wire::Event { name: "follow".to_owned(), detail: detail.to_owned() })
        };
        let mut observer = Observer::new();
        observer.push(objects(0, 0, &[(1, 0), (2, 0)], &[]), 1);
        observer.push(event("paused"), 2);
        observer.push(event("resumed"), 3);
        observer.push(event("reset"), 4);
        observer.push(objects(MS, 0, &[(3, 0)], &[(1, 0)]), 5);
        let record = observer.into_record();
        let report = followed([&record].into_iter(), &FollowPolicy::default()).expect("one was followed");
        assert_eq!((report.sites[0].allocations, report.sites[0].live, report.pauses), (1, 1, 1));
    }

    #[test]
    fn the_innermost_class_that_may_be_blamed_is() {
        let frame = |function: &str| memgate_model::Frame {
            function: Some(function.to_owned()),
            file: None,
            line: None,
            module: String::new(),
            offset: 0,
            inlined: false,
        };
        let stack = [
            "java.util.HashMap.put",
            "com.example.util.Pool.take",
            "com.example.Loader$1.load",
            "org.Test.run",
        ];
        let frames = stack.map(frame);
        let list = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect();
        for (ignore, target, class) in [
            (&["java.*"][..], &[][..], "com.example.util.Pool"),
            (&["java.*", "com.example.util.Pool"], &[], "com.example.Loader$1"),
            (&[], &[], "java.util.HashMap"),
            (&["java.*"], &["org.*"], "org.Test"),
            (&["java.*", "com.*", "org.*"], &[], "(elsewhere)"),
            (&[], &["com.other.*"], "(elsewhere)"),
        ] {
            let policy = FollowPolicy { sites: 9, ignore: list(ignore), target: list(target) };
            assert_eq!(culprit(&frames, &policy), class, "{ignore:?} {target:?}");
        }
    }

    #[test]
    fn nothing_followed_is_no_section() {
        assert_eq!(followed([&ProcessRecord::default()].into_iter(), &FollowPolicy::default()), None);
    }
}
