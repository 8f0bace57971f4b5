//! Decides when a repeated Java test has run often enough to judge its native libraries.
//!
//! The limits are those of native tests ([`crate::Confirmation`]). Only memory of the own libraries is followed, end by
//! end: the virtual machine's own allocations never settle.

use std::collections::HashMap;
use std::time::Duration;

use memgate_model::{Metric, Per};

use super::Own;
use crate::growth::{Allowed, Finding, judge_series};
use crate::policy::{GatePolicy, smallest_limit};
use crate::record::ProcessRecord;
use crate::repetition::{RepetitionLimits, next_look};
use crate::stats::float;

/// Follows memory of own libraries at the ends of one test.
#[derive(Debug)]
pub struct NativeConfirmation {
    test: String,
    /// Allowed growth per iteration. `None`: no limit.
    limit: Option<f64>,
    run: RepetitionLimits,
    own: Own,
    /// Live allocations of own libraries, by stack and size.
    live: HashMap<(u32, u64), u64>,
    /// Their bytes at each end of the test.
    totals: Vec<f64>,
    /// Windows of the record that were read.
    looked_at: usize,
    next_check: usize,
    enough: bool,
}

impl NativeConfirmation {
    /// For the test or test class `test` of `suite`.
    #[must_use]
    pub fn new(policy: &GatePolicy, suite: &str, test: &str) -> Self {
        Self {
            test: test.to_owned(),
            limit: smallest_limit(policy, suite, test, Metric::NativeLiveBytes, Per::Iteration),
            run: RepetitionLimits::of(policy),
            own: Own::default(),
            live: HashMap::new(),
            totals: Vec::new(),
            looked_at: 0,
            next_check: 0,
            enough: false,
        }
    }

    /// Must be called after each end of the test, also after a second end of the same execution: changes carry the
    /// current counts.
    pub fn observe(&mut self, record: &ProcessRecord) {
        if record.is_java_only() {
            return;
        }
        let last = self.looked_at.saturating_sub(1);
        for (i, window) in record.windows.iter().enumerate().skip(last) {
            for change in window.changes.iter().filter(|change| self.own.has(record, change.stack)) {
                self.live.insert((change.stack, change.size), change.count);
            }
            if window.is(&self.test) {
                let total = self.live.iter().map(|((_, size), count)| float(*size) * float(*count)).sum();
                if i < self.looked_at {
                    self.totals.pop();
                }
                self.totals.push(total);
            }
        }
        self.looked_at = record.windows.len();
    }

    /// Did the memory increase between the last two ends?
    #[must_use]
    pub fn has_risen(&self) -> bool {
        matches!(self.totals.as_slice(), [.., before, last] if last > before)
    }

    /// Does it grow?
    #[must_use]
    pub fn grows(&self) -> bool {
        self.limit.is_some_and(|limit| self.growth(limit).finding == Finding::Grows)
    }

    /// Is enough known? Must be called once for each end of the test. `elapsed` is the time that its iterations took.
    pub fn is_enough(&mut self, elapsed: Duration) -> bool {
        self.enough = self.enough || self.decides(elapsed);
        self.enough
    }

    fn decides(&mut self, elapsed: Duration) -> bool {
        let Self { run, totals, .. } = self;
        let Some(limit) = self.limit.filter(|_| !totals.is_empty()) else { return true };
        let ends = totals.len();
        if ends >= run.cap {
            return true;
        }
        let unchanged = totals.windows(2).all(|pair| pair[0] == pair[1]);
        if unchanged {
            return ends > run.unchanged || ends >= run.fewest && elapsed >= run.min_run;
        }
        if ends < run.fewest || ends < self.next_check || elapsed < run.min_run {
            return false;
        }
        self.next_check = next_look(ends);
        let growth = self.growth(limit);
        !(growth.paused && elapsed < self.run.patience())
            && (growth.finding != Finding::Open || ends >= self.run.most)
    }

    fn growth(&self, limit: f64) -> crate::growth::Growth {
        let warm_up = self.run.warm_up.min(self.totals.len() / 3);
        judge_series(&self.totals, Allowed { warm_up, ..self.run.allowed(limit, 1.0) })
    }
}

#[cfg(test)]
mod tests {
    use memgate_wire::java::JvmInfo;
    use memgate_wire::{Frame, Module, Modules};

    use super::*;
    use crate::dsl::Process;
    use crate::observer::Observer;

    /// Stacks 1 to 15 contain a library of the project, those to 31 only the virtual machine, others generated code.
    fn process() -> Process {
        let module = |start, end, path: &str| Module {
            start,
            end,
            bias: 0,
            path: path.to_owned(),
            build_id: Vec::new(),
        };
        let modules =
            vec![module(0x1000, 0x1010, "/tmp/libtiles.so"), module(0x1010, 0x1020, "/usr/lib/libjvm.so")];
        let mut p = Process::confirm();
        p.frame(Frame::Modules(Modules { generation: 0, modules }));
        p
    }

    fn jvm(home: &str) -> JvmInfo {
        JvmInfo {
            vm: String::new(),
            version: "17".to_owned(),
            home: home.to_owned(),
            collector: String::new(),
            command: String::new(),
            vm_arguments: Vec::new(),
            class_path: Vec::new(),
            module_path: Vec::new(),
            properties: Vec::new(),
            listener: String::new(),
        }
    }

    /// Iterations until enough is known, and whether it grows.
    fn judged(body: impl Fn(&mut Process, u32)) -> (u32, bool) {
        let (mut p, mut observer) = (process(), Observer::new());
        let mut confirmation = NativeConfirmation::new(&GatePolicy::default(), "engine", "A.a");
        for i in 0..2000 {
            p.run("A.a", i, |p| body(p, i));
            p.pass_to(&mut observer);
            confirmation.observe(observer.record());
            // A second end of the same execution.
            confirmation.observe(observer.record());
            assert_eq!(confirmation.totals.len(), i as usize + 1);
            if confirmation.is_enough(Duration::from_millis(100 * u64::from(i + 1))) {
                return (i + 1, confirmation.grows());
            }
        }
        panic!("never enough")
    }

    #[test]
    fn what_a_library_adds_each_time_grows_and_the_machines_own_does_not_count() {
        let (after, grows) = judged(|p, _| {
            p.alloc(1, 100, 1);
            p.alloc(30, 5000, 7);
        });
        assert!(grows && after < 60, "{after}");
        let (after, grows) = judged(|p, i| {
            p.alloc(30, 5000, u64::from(i));
            if i == 0 {
                p.alloc(1, 100, 1);
            }
        });
        assert!(!grows && after < 100, "{after}");
    }

    /// Regression test: a native function that ends with `return malloc(n)` is not on the stack, and its leak passed.
    #[test]
    fn what_generated_code_of_hotspot_allocates_is_the_projects() {
        let grows = |home: &str| {
            let leak = |p: &mut Process, i: u32| {
                if i == 0 {
                    p.frame(Frame::JvmInfo(jvm(home)));
                }
                p.alloc(40, 100, 1);
            };
            judged(leak).1
        };
        assert!(grows("/opt/jdk-17"));
        assert!(!grows(""), "the code of apps on Android has files");
    }

    #[test]
    fn what_is_freed_some_iterations_late_does_not_grow() {
        let (_, grows) = judged(|p, i| {
            p.alloc(1, 100, 3);
            if i % 4 == 3 {
                p.free(1, 100, 12);
            }
        });
        assert!(!grows);
    }
}
