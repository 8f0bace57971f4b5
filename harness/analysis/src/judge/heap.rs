//! Heap dumps of a suite: leaked objects, and numbers of objects per class.
//!
//! Each is an entry of the suite next to its tests, because a dump does not show which test left what. Its leaks have
//! ids and waivers like others. A dump that failed, is incomplete or was not searched is an error, never a pass.

use std::collections::BTreeMap;

use memgate_model::{
    HeapAt, HeapCheck, HeapLeak, HeapLimits, HeapSeen, Leak, LeakKind, Outcome, TestReport, Verdict,
    format_bytes, format_number_of,
};

use super::context::JudgeContext;
use super::judgement::Judgement;
use crate::signature::{heap_class_id, heap_id};
use crate::stats::float;

/// Bitmaps of Android.
const BITMAP: &str = "android.graphics.Bitmap";

/// The entry of a suite. `None`: nothing must be judged, or the event that triggers the dump did not happen.
pub(super) fn entry(context: &mut JudgeContext<'_>, suite: &str, check: &HeapCheck) -> Option<TestReport> {
    let limits = check.limits.as_ref()?;
    if check.dumps.is_empty() && check.at != HeapAt::SuiteEnd {
        return None;
    }
    let id = TestReport::heap_entry(check.at);
    context.waivers.enter(suite, &id);
    let mut judgement = Judgement::default();
    judgement.confirmed = true;
    if check.dumps.is_empty() {
        judgement
            .raise(Verdict::Error, "no heap dump was taken: no process that ran tests was seen".to_owned());
    }
    judge(context, check, limits, &mut judgement);
    judgement.against_base(context.policy, suite, &id);
    Some(TestReport { is_class: true, ..judgement.report(id, Outcome::Passed, 0.0) })
}

/// Adds retained sizes from dumps to leaks that the agent found. They appear where a test fails or warns; they do not
/// change the verdict.
pub(super) fn add_to(tests: &mut [TestReport], checks: &[HeapCheck]) {
    for test in tests.iter_mut().filter(|test| test.verdict >= Verdict::Warn && !test.is_heap_dump()) {
        let of_class = |leak: &Leak| {
            let class = leak.class.as_deref().filter(|_| leak.kind == LeakKind::Java)?;
            checks.iter().find_map(|check| {
                let seen = check.dumps.iter().filter_map(|dump| dump.seen.as_ref().ok());
                let ((objects, bytes), owner) = seen
                    .filter_map(|seen| Some((*seen.retained.get(class)?, seen.owners.get(class))))
                    .max_by_key(|(of, _)| of.1)?;
                let bytes = format_bytes(float(bytes));
                let owner = owner.map_or_else(String::new, |owner| format!(", dominated by {owner}"));
                let dump = TestReport::heap_entry(check.at);
                Some(format!("{dump}: {objects} × {class} retain {bytes}{owner}"))
            })
        };
        if let Some(text) = test.leaks.iter().find_map(of_class) {
            test.reason = format!("{}; {text}", test.reason);
            if let Some(beside) = &mut test.reason_beside_figures {
                *beside = if beside.is_empty() { text } else { format!("{beside}; {text}") };
            }
        }
    }
}

fn judge(context: &mut JudgeContext<'_>, check: &HeapCheck, limits: &HeapLimits, judgement: &mut Judgement) {
    let several = check.dumps.len() > 1;
    let mut leaks: BTreeMap<String, Leak> = BTreeMap::new();
    for dump in &check.dumps {
        let of = if several { format!(" of process {}", dump.process) } else { String::new() };
        match &dump.seen {
            Ok(seen) => DumpJudge { context, seen, limits, of, judgement, leaks: &mut leaks }.judge(),
            Err(why) => judgement.raise(Verdict::Error, format!("the heap dump{of} {why}")),
        }
    }
    judgement.leaks = leaks.into_values().collect();
    let readable = || check.dumps.iter().filter_map(|dump| dump.seen.as_ref().ok());
    if limits.leaks.is_some() && readable().next().is_some() && !readable().any(|seen| seen.searched) {
        let (verdict, why) = if check.own_rules {
            (Verdict::Warn, "are the classes of your rules loaded, are their names right?")
        } else {
            (Verdict::Error, "name rules (`rules`), or limits of classes alone (`fail.class`)")
        };
        let what = "nothing was looked for, because no rule knows a class of the heap dump";
        judgement.raise(verdict, format!("{what}: {why}"));
    }
}

/// One dump while it is being judged.
struct DumpJudge<'a, 'p> {
    context: &'a mut JudgeContext<'p>,
    seen: &'a HeapSeen,
    limits: &'a HeapLimits,
    /// Names the process, if there are several.
    of: String,
    judgement: &'a mut Judgement,
    /// Leaks of all dumps so far, by their id.
    leaks: &'a mut BTreeMap<String, Leak>,
}

impl DumpJudge<'_, '_> {
    fn judge(mut self) {
        self.not_measured();
        self.leaks();
        self.classes();
        self.bitmaps();
    }

    /// Reports what a dump cannot show.
    fn not_measured(&mut self) {
        let Self { seen, limits, of, judgement, .. } = self;
        if let Some(why) = &seen.truncated {
            judgement.raise(Verdict::Error, format!("the heap dump{of} is not whole: {why}"));
        }
        for mistake in &seen.mistakes {
            judgement.raise(Verdict::Error, format!("{mistake}: correct the rules file (heap dump{of})"));
        }
        if seen.held_by_nothing > 0 && limits.leaks.is_some() {
            let objects = format_number_of(seen.held_by_nothing, "object");
            let what = format!(
                "{objects} of the heap dump{of} are over, and no reference that memgate follows holds them"
            );
            judgement.raise(Verdict::Warn, format!("{what}: soft references, or the virtual machine itself"));
        }
        if seen.not_looked_at > 0 && limits.leaks.is_some() {
            let more = format_number_of(seen.not_looked_at, "leaking object");
            judgement.raise(
                Verdict::Error,
                format!("{more} of the heap dump{of} were not looked at: there are too many"),
            );
        }
    }

    fn leaks(&mut self) {
        let mut counted = 0;
        for found in &self.seen.leaks {
            if self.is_waived(shown(found)) {
                continue;
            }
            match &found.library {
                Some(name) => self
                    .judgement
                    .raise(Verdict::Warn, format!("{} is a known leak of a library ({name})", found.class)),
                None => counted += 1,
            }
        }
        if let Some(allowed) = self.limits.leaks.filter(|allowed| counted > *allowed) {
            self.fail(&format_number_of(counted, "leak"), &allowed.to_string());
        }
    }

    fn classes(&mut self) {
        for (class, allowed) in &self.limits.class {
            let Some((objects, bytes)) = self.seen.classes.get(class).copied() else {
                let of = &self.of;
                let what =
                    format!("the heap dump{of} knows no class {class}: was it loaded, is the name right?");
                self.judgement.raise(Verdict::Warn, what);
                continue;
            };
            let title = format!("{objects} × {class}");
            let leak = leak(heap_class_id(class), title.clone(), (float(bytes), float(objects)));
            if objects > *allowed && !self.is_waived(Leak { class: Some(class.clone()), ..leak }) {
                self.fail(&title, &allowed.to_string());
            }
        }
    }

    fn bitmaps(&mut self) {
        let Some(allowed) = self.limits.bitmaps else { return };
        let Some((bytes, count)) = self.seen.bitmaps else {
            let of = &self.of;
            let what = format!("the heap dump{of} knows no class {BITMAP}: pictures are those of Android");
            return self.judgement.raise(Verdict::Warn, what);
        };
        let title = format!("{} of {}", format_number_of(count, "picture"), format_bytes(float(bytes)));
        let leak = leak(heap_class_id("bytes of pictures"), title.clone(), (float(bytes), float(count)));
        if bytes > allowed && !self.is_waived(Leak { class: Some(BITMAP.to_owned()), ..leak }) {
            self.fail(&title, &format_bytes(float(allowed)));
        }
    }

    /// Lists a leak. Does a waiver cover it?
    fn is_waived(&mut self, mut leak: Leak) -> bool {
        self.context.waivers.cover_java(&mut leak);
        let is_waived = leak.waiver.is_some();
        join(self.leaks, leak);
        is_waived
    }

    fn fail(&mut self, what: &str, allowed: &str) {
        let of = &self.of;
        self.judgement.raise(Verdict::Fail, format!("{what} in the heap dump{of} (allowed {allowed})"));
    }
}

/// Joins equal leaks of several processes.
fn join(leaks: &mut BTreeMap<String, Leak>, leak: Leak) {
    match leaks.get_mut(&leak.id) {
        Some(known) => {
            known.bytes_per_iteration += leak.bytes_per_iteration;
            known.count_per_iteration += leak.count_per_iteration;
        }
        None => {
            leaks.insert(leak.id.clone(), leak);
        }
    }
}

fn shown(found: &HeapLeak) -> Leak {
    let HeapLeak { fingerprint, class, of_others, why, objects, attributed, retained, holder, .. } = found;
    let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
    let retained =
        retained.map_or_else(String::new, |bytes| format!(", retains {}", format_bytes(float(bytes))));
    let own = objects.saturating_sub(*of_others);
    let others = match of_others {
        0 => String::new(),
        others => format!(" and {others} of other classes"),
    };
    Leak {
        class: Some(class.clone()),
        holder: holder.clone(),
        ..leak(
            heap_id(fingerprint),
            format!("{own} × {class}{others}{why}{retained}"),
            (float(*attributed), float(*objects)),
        )
    }
}

fn leak(id: String, title: String, (bytes, count): (f64, f64)) -> Leak {
    Leak {
        id,
        kind: LeakKind::Heap,
        title,
        bytes_per_iteration: bytes,
        count_per_iteration: count,
        ..Leak::default()
    }
}

#[cfg(test)]
mod tests {
    use memgate_model::HeapDump;

    use super::*;
    use crate::judge::tests::waiver;
    use crate::policy::{GatePolicy, Waiver, WaiverMatch};
    use crate::record::ProcessRecord;
    use crate::resolve::{Resolve, ResolvedStack};

    struct Unresolved;

    impl Resolve for Unresolved {
        fn frames(&mut self, _: &ProcessRecord, _: u32) -> ResolvedStack {
            ResolvedStack::default()
        }
    }

    fn found(fingerprint: &str, library: Option<&str>) -> HeapLeak {
        HeapLeak {
            fingerprint: fingerprint.to_owned(),
            library: library.map(str::to_owned),
            class: "com.acme.Session".to_owned(),
            of_others: 0,
            why: "Session#closed is true".to_owned(),
            objects: 2,
            attributed: 96,
            retained: Some(48),
            holder: Vec::new(),
        }
    }

    fn judged(seen: Result<HeapSeen, &str>, limits: &HeapLimits, waivers: Vec<Waiver>) -> Judgement {
        let own_rules = false;
        let dump = HeapDump { process: 7, path: "/d".into(), kept: None, seen: seen.map_err(str::to_owned) };
        let check =
            HeapCheck { at: HeapAt::SuiteEnd, own_rules, limits: Some(limits.clone()), dumps: vec![dump] };
        let policy = GatePolicy { waivers, ..GatePolicy::default() };
        let mut resolve = Unresolved;
        let mut context = JudgeContext::new(&policy, &mut resolve);
        let mut judgement = Judgement::default();
        judge(&mut context, &check, limits, &mut judgement);
        judgement
    }

    fn seen(leaks: Vec<HeapLeak>) -> HeapSeen {
        HeapSeen { searched: true, leaks, ..HeapSeen::default() }
    }

    #[test]
    fn a_leak_of_several_classes_does_not_count_all_as_one_class() {
        let title = |of_others| shown(&HeapLeak { objects: 8, of_others, ..found(APP, None) }).title;
        assert_eq!(title(0), "8 × com.acme.Session (Session#closed is true), retains 48 B");
        assert_eq!(
            title(5),
            "3 × com.acme.Session and 5 of other classes (Session#closed is true), retains 48 B"
        );
    }

    const APP: &str = "3c18b2ae66d35e46918a99cdc46030e0a7e96fc3";

    #[test]
    fn each_dump_is_judged_by_what_is_in_it() {
        let leaks = |allowed| HeapLimits { leaks: Some(allowed), ..HeapLimits::default() };
        let class =
            |allowed| HeapLimits { class: [("a.B".to_owned(), allowed)].into(), ..HeapLimits::default() };
        let pictures = |allowed| HeapLimits { bitmaps: Some(allowed), ..HeapLimits::default() };
        let drawn = HeapSeen { bitmaps: Some((4096, 2)), ..HeapSeen::default() };
        let counted = HeapSeen { classes: [("a.B".to_owned(), (3, 72))].into(), ..HeapSeen::default() };
        let cases = [
            (Ok(seen(vec![])), leaks(0), Verdict::Pass),
            (Ok(seen(vec![found(APP, None)])), leaks(0), Verdict::Fail),
            (Ok(seen(vec![found(APP, None)])), leaks(1), Verdict::Pass),
            (Ok(seen(vec![found(APP, Some("ACME"))])), leaks(0), Verdict::Warn),
            (Ok(HeapSeen::default()), leaks(0), Verdict::Error),
            (Ok(HeapSeen { mistakes: vec!["the rule".into()], ..seen(vec![]) }), leaks(0), Verdict::Error),
            (Ok(HeapSeen { held_by_nothing: 2, ..seen(vec![]) }), leaks(0), Verdict::Warn),
            (Ok(HeapSeen { not_looked_at: 1, ..seen(vec![]) }), leaks(0), Verdict::Error),
            (Ok(HeapSeen { truncated: Some("cut".into()), ..seen(vec![]) }), leaks(0), Verdict::Error),
            (Err("is missing"), leaks(0), Verdict::Error),
            (Ok(counted.clone()), class(2), Verdict::Fail),
            (Ok(counted), class(3), Verdict::Pass),
            (Ok(HeapSeen::default()), class(3), Verdict::Warn),
            (Ok(drawn.clone()), pictures(4095), Verdict::Fail),
            (Ok(drawn), pictures(4096), Verdict::Pass),
            (Ok(HeapSeen::default()), pictures(0), Verdict::Warn),
        ];
        for (at, (seen, limits, verdict)) in cases.into_iter().enumerate() {
            let judgement = judged(seen, &limits, Vec::new());
            assert_eq!(judgement.verdict(), verdict, "case {at}");
        }
    }

    #[test]
    fn a_leak_has_the_fingerprint_in_its_id_and_can_be_waived_by_it() {
        let limits = HeapLimits { leaks: Some(0), ..HeapLimits::default() };
        let judgement = judged(Ok(seen(vec![found(APP, None)])), &limits, Vec::new());
        let leak = &judgement.leaks[0];
        assert_eq!(leak.id, "h1-3c18b2ae66d35e46");
        assert_eq!(leak.title, "2 × com.acme.Session (Session#closed is true), retains 48 B");
        let waiver = waiver(WaiverMatch::Leak(leak.id.clone()), None);
        let judgement = judged(Ok(seen(vec![found(APP, None)])), &limits, vec![waiver]);
        assert_eq!(
            (judgement.verdict(), judgement.leaks[0].waiver.as_deref()),
            (Verdict::Pass, Some("upstream issue 1234"))
        );
    }
}
