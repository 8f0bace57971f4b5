//! Finds out how the agent gets into the app, and which tests there are. AndroidJUnitRunner lists its tests without
//! running them, and the agent's handshake in that run proves that it is loaded. That run has no listener, so it cannot
//! prove delivery ways that need the listener; the tests prove them.

use std::collections::BTreeSet;
use std::path::PathBuf;

use memgate_adb::{Device, DeviceFacts};
use memgate_formats::instrumentation::Ending;
use memgate_model::format_number_of;
use memgate_wire::options::Detail;

use super::drive::Done;
use super::on_device::{Broken, OnDevice, Run, random};
use super::places::Place;
use crate::device::delivery::dex;
use crate::device::delivery::{self, Delivery, Way, ways};
use crate::exit::{chain, failed_to};
use crate::plan::PlannedInstrumentation;
use crate::run::engine::{Clocked, Context, Settle, Stopped};
use crate::session::label::Label;
use crate::suite::instrumentation::{Component, Mode, Selection, components, find};

/// Time limit of an installation.
const INSTALL_LIMIT: std::time::Duration = std::time::Duration::from_secs(600);

/// These packages have no tests; they start the tests one by one.
const ORCHESTRATORS: [&str; 2] = ["androidx.test.orchestrator", "android.support.test.orchestrator"];

/// Installs the APKs, and looks at device and app. Nothing of ours is on the device yet.
pub(super) async fn prepare<'a>(
    context: &mut Context<'_>,
    planned: &'a PlannedInstrumentation,
    place: Place,
) -> Result<(OnDevice<'a>, DeviceFacts), Broken> {
    let Place { device, about, name, share } = place;
    for apk in &planned.suite.apks {
        context.console.line(&format!("installing {}", apk.display()));
        // The test APKs replace those of an earlier run, and get all permissions.
        let one = [apk.as_path()];
        tokio::select! {
            installed = device.install(&one, &["-r", "-t", "-g"], INSTALL_LIMIT) => {
                installed.map_err(|why| Broken::by(&why))?;
            }
            () = context.interrupts.next() => return Err(Stopped::Interrupted.into()),
        }
    }
    let component = component(planned, &device).await?;
    let refused = |why: delivery::AppError| Broken::Suite { what: failed_to(&why), hint: why.hint() };
    let user = delivery::current_user(&device).await.map_err(|why| Broken::by(&why))?;
    let app = delivery::app(&device, &component.app, user, &about.abis).await.map_err(refused)?;
    let Some(way) = possible(planned, about.api).first().copied() else { return Err(too_old(&about)) };
    let (nonce, token) = (random(4)?, random(16)?);
    let delivery = Delivery::new(device.clone(), app, way, nonce);
    let suite = OnDevice {
        planned,
        device,
        component,
        delivery,
        token,
        name,
        share,
        tried: Vec::new(),
        failing: BTreeSet::new(),
        unsteady: BTreeSet::new(),
        own: None,
    };
    Ok((suite, about))
}

async fn component(planned: &PlannedInstrumentation, device: &Device) -> Result<Component, Broken> {
    if ORCHESTRATORS.contains(&planned.suite.package.as_str()) {
        return Err(Broken::Suite {
            what: format!("{} has no tests, it starts those of another package one by one", planned.suite.package),
            hint: "name the package of the tests themselves, and add `execution: orchestrator` where each of them needs a process of its own: memgate starts them one by one then".to_owned(),
        });
    }
    let line = "pm list instrumentation";
    let listing = device.shell(line).await.and_then(|told| told.success(line));
    let listing = listing.map_err(|why| match chain(&why) {
        text if text.contains("Can't find service") => Broken::Suite {
            what: failed_to(&why),
            hint: "the device is still starting: wait until `adb shell getprop sys.boot_completed` prints 1"
                .to_owned(),
        },
        _ => Broken::by(&why),
    })?;
    find(&components(&listing.text()), &planned.suite.package, planned.suite.instrumentation.as_deref())
        .map_err(|(what, hint)| Broken::Suite { what, hint })
}

fn too_old(about: &DeviceFacts) -> Broken {
    let what = format!("the device has Android {} (API {})", about.release, about.api);
    Broken::Suite { what, hint: "Android 8 (API 26) or later can be measured".to_owned() }
}

/// The delivery ways to try, best first. In the last one the tests load the agent.
fn possible(planned: &PlannedInstrumentation, api: u32) -> Vec<Way> {
    ways(api).into_iter().filter(|way| (*way == Way::Packaged) == planned.suite.packaged).collect()
}

/// The tests of a device, as its runner lists them.
#[derive(Default)]
pub(super) struct Named {
    /// `None`: it has no share of the tests.
    pub(super) own: Option<Vec<Selection>>,
    /// All tests that it can run, including those of other devices; empty if all are its own.
    pub(super) all: Vec<Selection>,
}

/// Tests that some device can run but no device has as its own, because the device to which they are assigned excludes
/// them. The name of a parameter may differ between runs.
pub(super) fn nowhere(devices: &[Named]) -> BTreeSet<String> {
    let plain = |test: &Selection| {
        let id = test.id();
        id.split_once('[').map_or(id.clone(), |(method, _)| method.to_owned())
    };
    let own: BTreeSet<String> = devices.iter().flat_map(|device| &device.own).flatten().map(plain).collect();
    devices.iter().flat_map(|device| &device.all).map(plain).filter(|test| !own.contains(test)).collect()
}

/// Delivers the agent in the first way that works; returns the names of the tests.
pub(super) async fn probe(
    context: &mut Context<'_>,
    suite: &mut OnDevice<'_>,
    about: &DeviceFacts,
) -> Result<Named, Broken> {
    let abi = suite.delivery.app().abi.clone();
    let library = library(&abi, suite.planned.suite.packaged)?;
    if possible(suite.planned, about.api).contains(&Way::StartupAgents) {
        let folder = context.session.folder().join(format!("listener-{}", suite.delivery.nonce()));
        match dex::listener(&folder).await {
            Ok(Some(dex)) => suite.delivery.with_listener(dex),
            Ok(None) => {}
            Err(why) => context.console.warning(&format!(
                "no listener for apps that are built without memgate's: failed to {}",
                chain(&why)
            )),
        }
    }
    for way in possible(suite.planned, about.api) {
        for left in suite.delivery.remove().await {
            context.console.warning(&left);
        }
        suite.delivery.go(way);
        suite.delivery.bring(library.as_deref()).await.map_err(|why| Broken::by(&why))?;
        let done = name_tests(context, suite).await?;
        if let Some(lost) = &done.lost {
            return Err(Broken::Suite { what: lost.why.clone(), hint: String::new() });
        }
        if done.ending == Ending::NoTests && suite.share.is_some() {
            return Ok(Named { own: None, all: all(context, suite).await? });
        }
        if done.ending != Ending::Complete {
            let what = format!("the runner could not name its tests: {}", done.ending);
            return Err(Broken::Suite { what, hint: hint(&done.ending).to_owned() });
        }
        let names = names(&done);
        let is_proven = done.finished.iter().any(|process| process.hello().blind.is_none());
        if is_proven || way.needs_listener() {
            let comes = if is_proven { format!(", {}", comes_by(way)) } else { String::new() };
            context.console.line(&format!(
                "{}: {} on {} ({}, Android {}, API {}, {abi}){comes}",
                suite.name,
                format_number_of(names.len(), "test"),
                suite.device.serial(),
                about.model,
                about.release,
                about.api,
            ));
            return Ok(Named { own: Some(names), all: all(context, suite).await? });
        }
        let said = done.finished.iter().find_map(|process| process.hello().blind.clone());
        let why =
            said.or_else(|| done.problems.first().cloned()).unwrap_or_else(|| "it did not answer".to_owned());
        suite.tried.push(format!("{way}: {why}"));
    }
    Err(too_old(about))
}

/// The library to deliver; `None`: the test APK contains it.
fn library(abi: &str, packaged: bool) -> Result<Option<PathBuf>, Broken> {
    let has_32_bits = ["armeabi-v7a", "armeabi", "x86"].contains(&abi);
    if packaged && !has_32_bits {
        return Ok(None);
    }
    let hint = match has_32_bits {
        true => "there is no agent for apps of 32 bits: build the app for arm64-v8a or x86_64 too",
        false => "`memgate docs android` says how the agent for Android is built",
    };
    let library = crate::agent::embedded::android_agent(abi);
    library.map(Some).map_err(|why| Broken::Suite { what: failed_to(&why), hint: hint.to_owned() })
}

/// The way in which the agent got into the app.
pub(super) fn comes_by(way: Way) -> String {
    format!("the agent comes by {way}")
}

/// All tests that the device can run, if it has only a share of them.
async fn all(context: &mut Context<'_>, suite: &mut OnDevice<'_>) -> Result<Vec<Selection>, Broken> {
    let Some(share) = suite.share.take() else { return Ok(Vec::new()) };
    let done = name_tests(context, suite).await;
    suite.share = Some(share);
    let done = done?;
    match done.ending {
        Ending::Complete => Ok(names(&done)),
        Ending::NoTests => Ok(Vec::new()),
        ending => {
            let what = format!("the runner could not name the tests of all devices: {ending}");
            Err(Broken::Suite { what, hint: hint(&ending).to_owned() })
        }
    }
}

fn names(done: &Done) -> Vec<Selection> {
    let named = done.run.tests().iter().filter(|test| test.method.is_some());
    let mut known = BTreeSet::new();
    let named = named.filter(|test| known.insert((&test.class, &test.method)));
    named.map(|test| Selection { class: test.class.clone(), test: test.method.clone() }).collect()
}

async fn name_tests(context: &mut Context<'_>, suite: &mut OnDevice<'_>) -> Result<Done, Broken> {
    let run = Run {
        mode: Mode::List,
        label: Label::Screen { suite: suite.name.clone() },
        detail: Detail::Survivors,
        orders: Box::new(|_| Box::new(Settle::new(false))),
        held: None,
        clocked: Clocked::Test,
        timeout: suite.planned.timeout,
        log: "tests",
    };
    let (mut done, _output) = suite.run(context, run, &mut |_| ()).await?;
    // No test ran: the streams of this run are useless.
    for process in &done.finished {
        let path = context.session.frames().join(process.stream());
        std::fs::remove_file(&path)
            .map_err(crate::exit::ExpectedError::file("remove", &path))
            .map_err(Stopped::from)?;
    }
    done.output.clear();
    Ok(done)
}

fn hint(ending: &Ending) -> &'static str {
    match ending {
        Ending::NoTests => "look at the suite's `arguments` and --filter",
        Ending::NotStarted(_) => "are the APKs of app and tests of the same build, and signed alike?",
        Ending::RunnerFailed(_) | Ending::Crashed(_) => "`adb logcat` says more",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_only_another_device_can_run_is_missed() {
        let tests = |names: &[&str]| {
            let test = |name: &&str| Selection { class: "TileTest".into(), test: Some((*name).into()) };
            names.iter().map(test).collect::<Vec<_>>()
        };
        let new = Named { own: Some(tests(&["a", "b[x@1f]"])), all: tests(&["a", "b[x@2e]", "c"]) };
        let old = Named { own: None, all: tests(&["a"]) };
        assert_eq!(nowhere(&[new, old]), BTreeSet::from(["TileTest.c".to_owned()]));
        assert!(nowhere(&[Named { own: Some(tests(&["a"])), all: Vec::new() }]).is_empty(), "one device");
    }
}
