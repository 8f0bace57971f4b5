//! Report on tracked objects of a run: sums up its processes, names the stacks, blames the allocating classes, and
//! keeps the entries with the most bytes.

use std::collections::BTreeMap;

use memgate_model::{Blamed, Followed as FollowedReport, FollowedSite, FollowedTotal, Frame, LIFETIMES_NS};

use super::record::JavaRecord;
use super::tracked_objects::Counts;
use crate::policy::FollowPolicy;
use crate::record::ProcessRecord;

/// Tracked objects of these processes, most bytes first. `None`: nothing was tracked.
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
        report.all.add_totals(site.totals());
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
    site.add_totals(FollowedTotal {
        allocations: counts.allocations,
        bytes: counts.bytes,
        live: counts.allocations.saturating_sub(counts.freed),
        live_bytes: counts.bytes.saturating_sub(counts.freed_bytes),
    });
    for (sum, count) in site.lifetimes.iter_mut().zip(counts.lifetimes) {
        *sum = sum.saturating_add(count);
    }
}

/// The allocating classes, most live bytes first.
fn blame(sites: &[FollowedSite], policy: &FollowPolicy) -> Vec<Blamed> {
    let mut blamed: BTreeMap<&str, Blamed> = BTreeMap::new();
    for site in sites {
        let class = culprit(&site.frames, policy);
        let sum =
            blamed.entry(class).or_insert_with(|| Blamed { class: class.to_owned(), ..Blamed::default() });
        sum.add_totals(site.totals());
    }
    let mut blamed: Vec<Blamed> = blamed.into_values().collect();
    blamed.sort_by(|a, b| b.live_bytes.cmp(&a.live_bytes).then(b.bytes.cmp(&a.bytes)));
    blamed.truncate(policy.sites);
    blamed
}

/// The innermost class of the stack that the policy allows to blame.
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
    use memgate_wire::java::{ClassName, Classes, JavaObjects, ObjectBorn, ObjectFreed};

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
