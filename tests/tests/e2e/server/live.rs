//! Watching a run while it continues: a real run that waits, a real server, and its stream of events.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::process::Command;

use memgate_e2e::{Project, samples};

use crate::history::commits::get;
use crate::server::upload::{Heard, configure, free_address, serve, token};

/// A suite whose only test waits until something is written into `gate`.
fn build(project: &Project, name: &str) {
    let gate = project.folder().join("gate");
    let path = gate.display();
    let built = samples::own_suite(
        name,
        &format!(
            "#include <gtest/gtest.h>\n#include <fstream>\n#include <string>\n\
             TEST(Gate, Waits) {{ std::ifstream gate(\"{path}\"); std::string word; gate >> word; ASSERT_EQ(word, \"open\"); }}\n"
        ),
    );
    fs::copy(built, project.folder().join("engine_tests")).unwrap();
}

/// Reads events until one contains all of these parts.
#[track_caller]
fn watch(stream: &mut BufReader<TcpStream>, parts: &[&str]) -> String {
    loop {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream has ended before {parts:?}");
        if parts.iter().all(|part| line.contains(part)) {
            return line;
        }
    }
}

#[test]
fn whoever_watches_sees_the_test_that_runs_and_then_the_verdict_with_its_page() {
    let project = Project::new("live");
    build(&project, "live_waits");
    let gate = project.folder().join("gate");
    assert!(Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let token = token(&project, "tiles", &["main"]);
    let address = free_address();
    configure(&project, "tiles", &address, "required");
    let _server = serve(&project, &address);
    let events = "/api/v1/projects/tiles/live/events";
    let mut stream = TcpStream::connect(&address).unwrap();
    write!(stream, "GET {events} HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\n\r\n").unwrap();
    let mut watcher = BufReader::new(stream);
    watch(&mut watcher, &["data:", "Nothing runs."]);

    let mut run = project.command(&["run", "--live", "--", "./engine_tests"]);
    let mut run = Heard::start(run.env("UPLOAD_TOKEN", &token));
    run.hears(&format!("this run can be watched: http://{address}/p/tiles/live"));
    watch(&mut watcher, &["screening", "Gate.Waits"]);
    let (head, page) = get(&address, "/p/tiles/live", &address);
    assert!(head.contains("script-src 'self'") && page.contains("Gate.Waits"), "{head}\n{page}");
    let (head, _) = get(&address, "/p/tiles", &address);
    assert!(!head.contains("script-src"), "other pages have no script: {head}");
    fs::write(gate, "open").unwrap();
    let ended = watch(&mut watcher, &["<td>pass"]);
    let (code, said) = run.ends();
    assert_eq!(code, Some(0), "{said}");
    let page = said
        .lines()
        .find_map(|line| line.split_once(&format!("uploaded: http://{address}")))
        .unwrap()
        .1
        .trim();
    assert!(ended.contains(page), "{page}: {ended}");
}

#[test]
fn a_run_that_nobody_can_watch_says_so_and_goes_on() {
    let project = Project::new("live-refused");
    build(&project, "live_goes_on");
    fs::write(project.folder().join("gate"), "open").unwrap();
    let run = ["run", "--live", "--", "./engine_tests"];
    project.memgate(&run).ends_with(2).says("there is no server on which this run could be watched");
    let address = free_address();
    configure(&project, "tiles", &address, "best_effort");
    let mut command = project.command(&run);
    let run = project.finish(command.env("UPLOAD_TOKEN", "mgt_none"));
    run.ends_with(0).says("nobody could watch this run: ");
    assert!(!run.stderr.contains("mgt_none"), "{run}");
}
