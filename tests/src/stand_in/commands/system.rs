//! Commands for properties, user ids, processes and the log.

use std::io;

use super::Shell;
use crate::stand_in::files::Who;

/// Maximum length of a property value.
const LONGEST: usize = 91;

impl Shell<'_> {
    pub(super) fn system(&mut self, words: &[String], name: &str, rest: &[&str]) -> io::Result<u8> {
        match (name, rest) {
            ("getprop", []) => {
                let all = self.device.state().properties.clone();
                let lines: String =
                    all.iter().map(|(name, value)| format!("[{name}]: [{value}]\n")).collect();
                self.print(&lines)
            }
            ("getprop", [name]) => {
                self.print(&format!("{}\n", self.device.property(name).unwrap_or_default()))
            }
            ("getprop", [name, otherwise]) => {
                let value = self.device.property(name).unwrap_or_else(|| (*otherwise).to_owned());
                self.print(&format!("{value}\n"))
            }
            ("setprop", [name, value]) => self.set_property(name, value),
            ("id", []) => {
                let uid = self.uid();
                self.print(&match self.who {
                    Who::Shell => "uid=2000(shell) gid=2000(shell) groups=2000(shell),1004(input),1007(log),3009(readproc) context=u:r:shell:s0\n".to_owned(),
                    Who::App(_) => format!("uid={uid}(u0_a{0}) gid={uid}(u0_a{0}) groups={uid}(u0_a{0}) context=u:r:runas_app:s0\n", uid - 10_000),
                })
            }
            ("id", ["-u"]) => self.print(&format!("{}\n", self.uid())),
            ("pidof", [name]) => {
                let processes = self.device.processes();
                let pids: Vec<String> = processes
                    .iter()
                    .filter(|(_, other)| other == name)
                    .map(|(pid, _)| pid.to_string())
                    .collect();
                if pids.is_empty() { Ok(1) } else { self.print(&format!("{}\n", pids.join(" "))) }
            }
            ("ps", [] | ["-A"] | ["-A", "-o", "PID,NAME"]) => {
                let long = rest.len() < 2;
                let header = if long { "USER PID PPID VSZ RSS WCHAN ADDR S NAME\n" } else { "PID NAME\n" };
                let line = |pid, name| {
                    if long {
                        format!("u0_a100 {pid} 1 0 0 0 0 S {name}\n")
                    } else {
                        format!("{pid} {name}\n")
                    }
                };
                let lines: String =
                    self.device.processes().iter().map(|(pid, name)| line(pid, name)).collect();
                self.print(&format!("{header}{lines}"))
            }
            ("logcat", ["-c"]) => {
                self.device.state().log.clear();
                Ok(0)
            }
            ("logcat", ["-d", ..]) => {
                let lines: String = self.device.state().log.iter().map(|line| format!("{line}\n")).collect();
                self.print(&lines)
            }
            ("settings", ["get", ..]) => self.print("null\n"),
            ("getenforce", []) => self.print("Enforcing\n"),
            _ => self.not_found(words),
        }
    }

    fn set_property(&mut self, name: &str, value: &str) -> io::Result<u8> {
        let allowed = ["debug.", "log.", "persist.log."].iter().any(|prefix| name.starts_with(prefix));
        if value.len() > LONGEST || !allowed {
            let text = format!("Failed to set property '{name}' to '{value}'.\nSee dmesg for error reason.");
            return self.complain(&text, 1);
        }
        let mut state = self.device.state();
        if value.is_empty() {
            state.properties.remove(name);
        } else {
            state.properties.insert(name.to_owned(), value.to_owned());
        }
        Ok(0)
    }
}
