//! `am`, and `cmd activity`, which is nearly the same.

use std::io;

use super::Shell;
use crate::stand_in::Instrumentation;

/// The first API level that has `set-agent-app`.
const SET_AGENT_APP: u32 = 29;

impl Shell<'_> {
    pub(super) fn am(&mut self, words: &[String], rest: &[&str]) -> io::Result<u8> {
        let apps = self.device.inner.made.instrument.clone();
        match rest {
            ["instrument", rest @ ..] => self.instrument(words, rest),
            ["get-current-user"] => self.print("0\n"),
            ["force-stop", "--user", _, package] | ["force-stop", package] => {
                apps.force_stop(self.device, package);
                Ok(0)
            }
            ["set-agent-app", package, agent @ ..] if agent.len() < 2 => {
                self.set_agent_app(package, agent.first().copied())
            }
            ["attach-agent", process, agent] => {
                let (path, options) = agent.split_once('=').unwrap_or((agent, ""));
                match apps.attach_agent(self.device, process, path, options) {
                    Ok(()) => Ok(0),
                    Err(why) => self.complain(&why, 255),
                }
            }
            ["attach-agent", _, _, more, ..] => self.complain(&format!("Error: Unknown option: {more}"), 255),
            ["dumpheap", rest @ ..] => {
                let options: Vec<&str> = rest.iter().copied().filter(|word| word.starts_with('-')).collect();
                let others: Vec<&str> = rest.iter().copied().filter(|word| !word.starts_with('-')).collect();
                let (Ok([process, path]), true) = (
                    <[&str; 2]>::try_from(others),
                    options.iter().all(|option| ["-n", "-g"].contains(option)),
                ) else {
                    return self.not_found(words);
                };
                // The calling shell opens the file.
                let Ok(file) = self.device.inner.files.writable(&self.who, &self.path(path)) else {
                    return self.complain(&format!("Error: Unable to open file: {path}"), 255);
                };
                let [native, collect] = ["-n", "-g"].map(|option| options.contains(&option));
                self.print(&format!("File: {path}\nWaiting for dump to finish...\n"))?;
                match apps.dump_heap(self.device, process, native, collect, &file) {
                    Ok(()) => Ok(0),
                    Err(why) => self.complain(&why, 255),
                }
            }
            _ => self.not_found(words),
        }
    }

    fn set_agent_app(&mut self, package: &str, agent: Option<&str>) -> io::Result<u8> {
        if self.device.api() < SET_AGENT_APP {
            return self.complain("Unknown command: set-agent-app", 255);
        }
        if self.device.package(package).is_none() {
            let error = format!("java.lang.SecurityException: Unknown package: {package}");
            return self.complain(&error, 255);
        }
        let mut state = self.device.state();
        match agent {
            Some(agent) => state.agent_apps.insert(package.to_owned(), agent.to_owned()),
            None => state.agent_apps.remove(package),
        };
        Ok(0)
    }

    fn instrument(&mut self, words: &[String], rest: &[&str]) -> io::Result<u8> {
        let Some((mut call, component)) = options(rest).filter(|(call, _)| call.wait) else {
            return self.not_found(words);
        };
        let (package, runner) = component.split_once('/').unwrap_or((&component, ""));
        let runner = if runner.starts_with('.') { format!("{package}{runner}") } else { runner.to_owned() };
        let known =
            self.device.package(package).map(|package| package.instrumentations.clone()).unwrap_or_default();
        let found = match (runner.as_str(), known.as_slice()) {
            ("", [only]) => Some(only),
            (runner, known) => known.iter().find(|(name, _)| name == runner),
        };
        let Some((runner, target)) = found else {
            let error =
                format!("Unable to find instrumentation info for: ComponentInfo{{{package}/{runner}}}");
            return self.cannot_start(&component, &error, call.raw);
        };
        if self.device.package(target).is_none() {
            return self.cannot_start(
                &component,
                &format!("Unable to find instrumentation target package: {target}"),
                call.raw,
            );
        }
        (call.package, call.runner) = (package.to_owned(), runner.clone());
        let apps = self.device.inner.made.instrument.clone();
        Ok(apps.instrument(self.device, &call, self.terminal))
    }

    fn cannot_start(&mut self, component: &str, error: &str, raw: bool) -> io::Result<u8> {
        if raw {
            self.print(&format!(
                "INSTRUMENTATION_STATUS: Error={error}\nINSTRUMENTATION_STATUS: id=ActivityManagerService\nINSTRUMENTATION_STATUS_CODE: -1\n\
                 onError: commandError=true message=INSTRUMENTATION_FAILED: {component}\n"
            ))?;
        }
        let trace = "\tat com.android.commands.am.Instrument.run(Instrument.java:519)";
        self.complain(
            &format!("android.util.AndroidException: INSTRUMENTATION_FAILED: {component}\n{trace}"),
            1,
        )
    }
}

/// The options of `am instrument`, and its component; `None` if one is unknown here.
fn options(rest: &[&str]) -> Option<(Instrumentation, String)> {
    let mut call = Instrumentation::default();
    let mut words = rest.iter().copied();
    while let Some(word) = words.next() {
        match word {
            "-r" => call.raw = true,
            "-m" => call.proto = true,
            "-w" => call.wait = true,
            "--no-restart" => call.no_restart = true,
            "--no-window-animation" | "--no-hidden-api-checks" | "--no-isolated-storage" => {}
            "--user" => call.user = Some(words.next()?.to_owned()),
            "-e" => call.arguments.push((words.next()?.to_owned(), words.next()?.to_owned())),
            option if option.starts_with('-') => return None,
            component => return words.next().is_none().then(|| (call, component.to_owned())),
        }
    }
    None
}
