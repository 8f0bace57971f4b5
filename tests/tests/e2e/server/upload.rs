//! Runs are uploaded to a real `memgate serve`: once each, whatever happens on the way, and only with
//! permission.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;

use flate2::Compression;
use flate2::write::GzEncoder;
use memgate_e2e::{Project, Run, peer};

use crate::history::commits::{build, get, git};

/// A program whose stderr is read line by line. Dropping the value kills a program that still runs.
pub(crate) struct Heard {
    child: Child,
    stderr: BufReader<ChildStderr>,
    said: String,
}

impl Heard {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stderr, said: String::new() }
    }

    /// Waits for a line with this text.
    #[track_caller]
    pub(crate) fn hears(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.stderr.read_line(&mut line).unwrap() > 0, "it never said `{text}`:\n{}", self.said);
            self.said.push_str(&line);
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Waits for its end; returns the exit code and all its output.
    pub(crate) fn ends(mut self) -> (Option<i32>, String) {
        self.stderr.read_to_string(&mut self.said).unwrap();
        let code = self.child.wait().unwrap().code();
        (code, std::mem::take(&mut self.said))
    }

    /// Terminates it, as a service manager does.
    pub(crate) fn stopped(self) -> (Option<i32>, String) {
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
        self.ends()
    }

    /// Its peak memory, in MiB.
    fn peak_mib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// An address on which nobody listens.
pub(crate) fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

pub(crate) fn serve(project: &Project, address: &str) -> Heard {
    let mut server = Heard::start(&mut project.command(&["serve", "--data", "server", "--listen", address]));
    server.hears(&format!("http://{address} shows the history"));
    server
}

/// Creates a token of the server for these branches.
pub(crate) fn token(project: &Project, name: &str, branches: &[&str]) -> String {
    let branches = branches.iter().flat_map(|branch| ["--branch", branch]);
    let create = ["serve", "token", "create", "--data", "server", "--project", name];
    let run = project.memgate(&create.into_iter().chain(branches).collect::<Vec<_>>());
    run.ends_with(0);
    let token = run.stdout.trim().to_owned();
    assert!(token.starts_with("mgt_") && !run.stderr.contains(&token[12..]), "{run}");
    token
}

pub(crate) fn configure(project: &Project, name: &str, address: &str, mode: &str) {
    project.write(
        "memgate.yaml",
        format!(
            "version: 1\nproject: {name}\nhistory:\n  server: http://{address}\n  token: ${{UPLOAD_TOKEN}}\n  \
             upload: {mode}\n  wait: 2s\n"
        ),
    );
}

/// A project with a repository and a test that leaks or not, in a folder that also holds its server's data.
pub(crate) fn project(name: &str, leaks: bool) -> Project {
    let project = Project::new(name);
    git(&project, &["init", "-q"]);
    build(&project, leaks);
    git(&project, &["commit", "-q", "--allow-empty", "-m", "x"]);
    project
}

pub(crate) fn with_token(project: &Project, token: &str, arguments: &[&str]) -> Run {
    project.finish(project.command(arguments).env("UPLOAD_TOKEN", token))
}

pub(crate) const RUN: [&str; 3] = ["run", "--", "./engine_tests"];
const LATEST: [&str; 2] = ["upload", ".memgate/latest"];

fn server_says(project: &Project, arguments: &[&str]) -> serde_json::Value {
    let run = project.memgate(&[&["history"], arguments, &["--data", "server", "--json"]].concat());
    run.ends_with(0);
    serde_json::from_str(&run.stdout).unwrap()
}

fn runs(project: &Project) -> usize {
    server_says(project, &["runs"])["runs"].as_array().unwrap().len()
}

/// Copies of the newest session, each a separate run.
fn sessions(project: &Project, count: usize) -> Vec<PathBuf> {
    let info = project.read(".memgate/latest/session.json");
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    let report = project.read(".memgate/latest/report.json");
    let session = |number: usize| {
        let name = format!("s{number:02}");
        let mut info = info.clone();
        info["history"]["session"] = name.clone().into();
        project.write(&format!("{name}/session.json"), info.to_string());
        project.write(&format!("{name}/report.json"), &report);
        project.folder().join(name)
    };
    (0..count).map(session).collect()
}

/// The head of an answer, and its body.
fn ask(address: &str, request: &str, body: &[u8]) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n\
         Content-Type: text/html\r\nContent-Encoding: gzip\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|at| at == b"\r\n\r\n").unwrap();
    (String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase(), answer.split_off(end + 4))
}

/// An S3 store with one bucket.
fn bucket(folder: &Path) -> Option<(Heard, String)> {
    let program = peer("s3s/bin/s3s-fs")?;
    fs::create_dir_all(folder.join("leaks")).unwrap();
    let address = free_address();
    let port = address.rsplit_once(':').unwrap().1;
    let mut command = Command::new("sh");
    // It logs to stdout, other programs to stderr.
    command.args(["-c", "exec \"$0\" \"$@\" >&2"]).arg(program).env("RUST_LOG", "info");
    command.args(["--host", "127.0.0.1", "--port", port, "--access-key", "AKIAOFATEST"]);
    let mut store = Heard::start(command.args(["--secret-key", "secret-of-a-test"]).arg(folder));
    store.hears("server is running");
    Some((store, address))
}

/// What a proxy does besides forwarding.
#[derive(Clone, Copy)]
enum Proxy {
    /// Breaks the connection once, after this many bytes.
    Breaks(usize),
    /// As `Breaks`, and accepts no further connection.
    Ends(usize),
    /// Does not support `PATCH`.
    KnowsNoPieces,
    /// Answers this many `PUT` requests with 503.
    IsBusy(u32),
}

/// Starts a proxy in front of a server; returns its address.
fn behind(proxy: Proxy, server: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, server) = (listener.local_addr().unwrap().to_string(), server.to_owned());
    let mut busy = if let Proxy::IsBusy(times) = proxy { times } else { 0 };
    let mut left = if let Proxy::Breaks(bytes) | Proxy::Ends(bytes) = proxy { bytes } else { usize::MAX };
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut to) = (client.unwrap(), TcpStream::connect(&server).unwrap());
            let (mut answers, mut back) = (to.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || {
                drop(io::copy(&mut answers, &mut back));
                drop(back.shutdown(Shutdown::Both));
            });
            let mut bytes = [0; 64 << 10];
            loop {
                let read = client.read(&mut bytes).unwrap_or(0);
                if busy > 0 && bytes[..read].starts_with(b"PUT ") {
                    busy -= 1;
                    let busy = b"HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                    client.write_all(busy).unwrap();
                    break;
                }
                if matches!(proxy, Proxy::KnowsNoPieces) && bytes[..read].starts_with(b"PATCH ") {
                    client.write_all(b"HTTP/1.1 405 Not Allowed\r\nContent-Length: 0\r\n\r\n").unwrap();
                    break;
                }
                if read == 0 || to.write_all(&bytes[..read]).is_err() {
                    break;
                }
                let before = left;
                left = left.saturating_sub(read);
                if before > 0 && left == 0 {
                    client.shutdown(Shutdown::Both).unwrap();
                    break;
                }
            }
            // The peer may have closed it already.
            drop(to.shutdown(Shutdown::Both));
            if left == 0 && matches!(proxy, Proxy::Ends(_)) {
                return;
            }
        }
    });
    address
}

fn kept_beside_the_run(name: &str, place: &str, variables: &[(&str, &str)]) -> Project {
    let project = project(name, true);
    let address = free_address();
    let arguments = ["serve", "--data", "server", "--listen", &address, "--artefacts", place];
    let token = token(&project, "tiles", &["main"]);
    let mut server = Heard::start(project.command(&arguments).envs(variables.iter().copied()));
    server.hears("shows the history");
    configure(&project, "tiles", &address, "required");
    let run = with_token(&project, &token, &RUN);
    run.ends_with(1).says("uploaded: ");
    assert!(!run.stderr.contains("was not added"), "{run}");
    let page = run.stderr.lines().find_map(|line| line.split_once(&address)).unwrap().1.trim().to_owned();
    let (_, shown) = get(&address, &page, &address);
    let report = format!("{page}/artefacts/report.html");
    assert!(shown.contains(&format!("<a href=\"{report}\">full report</a>")), "{shown}");
    let (_, test) = get(&address, "/p/tiles/tests/engine_tests/Title.IsRead", &address);
    assert!(test.contains(&format!("{report}#t:engine_tests::Title.IsRead\">curve</a>")), "{test}");
    assert!(project.read(".memgate/latest/report.html").contains("t:engine_tests::Title.IsRead"));
    let (head, packed) = ask(&address, &format!("GET {report}"), b"");
    for part in ["http/1.1 200", "content-encoding: gzip", "sandbox allow-scripts;", "nosniff"] {
        assert!(head.contains(part), "{part}: {head}");
    }
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut text).unwrap();
    assert_eq!(text, project.read(".memgate/latest/report.html"));

    // A dump of several pieces, which is uploaded only if configured.
    let dump: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(project.folder().join(".memgate/latest/java_pid7.hprof"), &dump).unwrap();
    let yaml = project.read("memgate.yaml") + "  artefacts: [heap_dumps]\n";
    project.write("memgate.yaml", yaml);
    let added = with_token(&project, &token, &LATEST);
    added.ends_with(0).says("uploading java_pid7.hprof (11.4 MiB)");
    assert!(get(&address, &page, &address).1.contains("java_pid7.hprof (11.4 MiB)"), "{added}");
    let (head, got) = ask(&address, &format!("GET {page}/artefacts/java_pid7.hprof"), b"");
    assert!(
        head.contains("content-disposition: attachment") && got.len() >= dump.len(),
        "{head} {}",
        got.len()
    );

    // Connections that break, in three uploads of the next dump.
    let dump: Vec<u8> = (0..5_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let latest = project.folder().join(".memgate/latest");
    fs::write(latest.join("java_pid8.hprof"), &dump).unwrap();
    let dumps = |address: &str, wait: &str| {
        configure(&project, "tiles", address, "required");
        project.write("memgate.yaml", project.read("memgate.yaml") + "  artefacts: [heap_dumps]\n");
        with_token(&project, &token, &["upload", "--wait", wait, ".memgate/latest"])
    };
    let is_there = |name: &str| {
        let (_, got) = ask(&address, &format!("GET {page}/artefacts/{name}"), b"");
        assert!(got == dump, "{name}: {} of {} bytes", got.len(), dump.len());
    };
    let cut = dumps(&behind(Proxy::Ends(6 << 20), &address), "2s");
    cut.ends_with(0).says("java_pid8.hprof was not added to the run: ");
    let broken = dumps(&behind(Proxy::Breaks(8 << 20), &address), "10s");
    broken.ends_with(0).says("java_pid8.hprof goes on at ").says("java_pid8.hprof is not uploaded yet: ");
    assert!(!broken.stderr.contains("was not added"), "{broken}");
    is_there("java_pid8.hprof");
    let again = dumps(&address, "10s");
    assert!(!again.stderr.contains("was not added") && !again.stderr.contains("yet"), "{again}");

    // Without a proxy, and with a byte that changed on the server's disk meanwhile.
    fs::write(latest.join("java_pid9.hprof"), &dump).unwrap();
    dumps(&behind(Proxy::Ends(6 << 20), &address), "2s").says("java_pid9.hprof was not added to the run: ");
    let number = page.rsplit_once('/').unwrap().1;
    let folder = project.folder().join(if place.starts_with("s3:") { "server" } else { place });
    let part = folder.join(format!("arriving/{number}-java_pid9.hprof.part"));
    let mut arrived = fs::read(&part).unwrap();
    arrived[7] ^= 1;
    fs::write(&part, arrived).unwrap();
    let direct = dumps(&address, "10s");
    direct.ends_with(0).says("java_pid9.hprof goes on at ");
    assert!(!direct.stderr.contains("was not added") && !direct.stderr.contains("yet"), "{direct}");
    is_there("java_pid9.hprof");

    // If the server does not support pieces, the dump is sent as a whole.
    fs::write(latest.join("java_pid10.hprof"), &dump).unwrap();
    let whole = dumps(&behind(Proxy::KnowsNoPieces, &address), "10s");
    assert!(!whole.stderr.contains("was not added"), "{whole}");
    is_there("java_pid10.hprof");

    // While the server is busy, the page is sent again.
    configure(&project, "tiles", &behind(Proxy::IsBusy(1), &address), "required");
    let busy = with_token(&project, &token, &RUN);
    busy.ends_with(1).says("the report page was not added to the run yet: it answered 503");
    assert!(!busy.stderr.contains("not added to the run: "), "{busy}");

    // Another client that may upload to the project cannot replace this run's page.
    let put = format!("PUT /api/v1/projects/tiles/runs/{number}/artefacts/report.html?ticket=0");
    let (head, _) = ask(&address, &put, &packed);
    assert!(head.contains("http/1.1 401"), "a token is needed: {head}");
    let (_, said) = server.stopped();
    assert!(!said.contains("Signature") && !said.contains("secret-of"), "no secret is in a log: {said}");
    let _server = serve(&project, &address);
    assert!(!get(&address, &page, &address).1.contains("full report"), "pages are not kept here");
    project
}

#[test]
fn the_report_page_and_the_dumps_of_a_run_are_kept_beside_it_and_get_no_rights_there() {
    let project = kept_beside_the_run("upload-page", "pages", &[]);
    let left = fs::read_dir(project.folder().join("pages/arriving")).unwrap().count();
    assert_eq!(left, 0, "nothing half written is left");
}

#[test]
fn artefacts_are_kept_in_a_bucket() {
    let folder = tempfile::tempdir().unwrap();
    let Some((_store, address)) = bucket(folder.path()) else { return };
    let endpoint = format!("http://{address}");
    let keys = |secret| {
        [
            ("AWS_ACCESS_KEY_ID", "AKIAOFATEST"),
            ("AWS_SECRET_ACCESS_KEY", secret),
            ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ]
    };
    kept_beside_the_run("upload-bucket", "s3://leaks/team", &keys("secret-of-a-test"));
    let objects = fs::read_dir(folder.path().join("leaks/team")).unwrap().count();
    assert!(objects > 0, "they are in the bucket");

    // The run is stored even if the artefact store refuses.
    let project = project("upload-no-bucket", true);
    let served = free_address();
    let arguments = ["serve", "--data", "server", "--listen", &served, "--artefacts", "s3://leaks/team"];
    let token = token(&project, "tiles", &["main"]);
    let mut server = Heard::start(project.command(&arguments).envs(keys("another")));
    server.hears("shows the history");
    configure(&project, "tiles", &served, "required");
    let run = with_token(&project, &token, &RUN);
    run.ends_with(1).says("uploaded: ").says("the report page was not added to the run: it answered 503");
    let (_, said) = server.stopped();
    assert!(
        said.contains(
            "failed to keep report.html: Bucket(leaks/team/): it answered 403 SignatureDoesNotMatch"
        ),
        "{said}"
    );
    project.memgate(&arguments).ends_with(2).says("the variable AWS_ACCESS_KEY_ID is not set");
}

#[test]
fn a_run_uploads_itself_once_and_its_page_shows_it() {
    let project = project("upload", true);
    let token = token(&project, "tiles", &["main"]);
    let address = free_address();
    let server = serve(&project, &address);
    configure(&project, "tiles", &address, "required");
    let run = with_token(&project, &token, &RUN);
    run.ends_with(1).says(&format!("uploaded: http://{address}/p/tiles/runs/"));
    run.says("\nhistory of the server: 1 new\n");
    let id = run.test("Title.IsRead").leaks[0].id.clone();
    assert!(project.folder().join(".memgate/history.db").exists(), "the local file has it too");

    let mut page = run.stderr.lines().find_map(|line| line.split_once(&address)).unwrap().1.trim().to_owned();
    let again = with_token(&project, &token, &LATEST);
    again.ends_with(0).says(&format!("uploaded before: http://{address}{page}"));
    let upload = || {
        let mut command = project.command(&LATEST);
        Heard::start(command.env("UPLOAD_TOKEN", &token))
    };
    for running in [upload(), upload()] {
        let (code, said) = running.ends();
        assert!(code == Some(0) && said.contains(&page), "{said}");
    }
    assert_eq!(runs(&project), 1);
    // Two uploads at once, of a run that is not stored yet.
    let session = sessions(&project, 1).remove(0);
    let upload = || {
        let mut command = project.command(&["upload".as_ref(), session.as_os_str()]);
        Heard::start(command.env("UPLOAD_TOKEN", &token))
    };
    let (one, two) = (upload(), upload());
    let (one, two) = (one.ends(), two.ends());
    let said = format!("{one:?} {two:?}");
    assert_eq!((one.0, two.0), (Some(0), Some(0)), "{said}");
    assert!(said.contains("uploaded: ") && said.contains("uploaded before: "), "{said}");
    assert_eq!(runs(&project), 2);

    let leaks = server_says(&project, &["leaks"]);
    assert_eq!((&leaks["leaks"][0]["id"], &leaks["selection"]["branch"]), (&id.into(), &"main".into()));
    for text in ["read_title", "Title.IsRead"] {
        let (head, body) = get(&address, &page, &address);
        assert!(head.starts_with("http/1.1 200") && body.contains(text), "{text}: {head}\n{body}");
        page = "/p/tiles/tests/engine_tests/Title.IsRead".to_owned();
    }
    drop(server);
}

#[test]
fn a_server_that_is_killed_again_and_again_has_each_run_once() {
    let project = project("upload-killed", true);
    let token = token(&project, "tiles", &["main"]);
    configure(&project, "tiles", "127.0.0.1:1", "off");
    project.run(Path::new("./engine_tests")).ends_with(1);
    let sessions = sessions(&project, 24);
    let address = free_address();
    let url = format!("http://{address}");
    let upload = |sessions: &[PathBuf]| {
        let mut command = project.command(&["upload", "--wait", "5m", "--server", &url]);
        Heard::start(command.args(sessions).env("UPLOAD_TOKEN", &token))
    };
    let mut server = serve(&project, &address);
    let (mut one, two) = (upload(&sessions[..16]), upload(&sessions[8..]));
    for kill in 0..4 {
        for _ in 0..=kill {
            one.hears("uploaded");
        }
        server.child.kill().unwrap();
        server.child.wait().unwrap();
        server = serve(&project, &address);
    }
    for running in [one, two] {
        let (code, said) = running.ends();
        assert_eq!(code, Some(0), "{said}");
    }
    let (code, said) = upload(&sessions).ends();
    assert_eq!((code, said.matches("uploaded before: ").count()), (Some(0), 24), "{said}");
    assert_eq!(runs(&project), 24);
    let leaks = server_says(&project, &["leaks"]);
    assert_eq!(leaks["leaks"][0]["state"], "new", "one commit, however many runs: {leaks}");
    drop(server);
}

#[test]
fn a_token_writes_the_branches_it_names_and_nothing_else() {
    let project = project("upload-tokens", true);
    let main = token(&project, "tiles", &["main"]);
    let review = token(&project, "tiles", &[]);
    let other = token(&project, "roads", &["main"]);
    let address = free_address();
    let server = serve(&project, &address);
    configure(&project, "tiles", &address, "best_effort");
    with_token(&project, &main, &RUN).ends_with(1).says("uploaded: ");
    let before = server_says(&project, &["leaks", "--branch", "main", "--state", "any"])["leaks"].clone();
    assert_eq!(before[0]["state"], "new");

    // The next commit of main does not leak, but with this token the server does not accept it as main's.
    build(&project, false);
    git(&project, &["commit", "-q", "--allow-empty", "-m", "clean"]);
    let run = with_token(&project, &review, &RUN);
    run.ends_with(0).says("kept like a review").says("the token may not write `main`");
    let after = server_says(&project, &["leaks", "--branch", "main", "--state", "any"])["leaks"].clone();
    assert_eq!(after, before);
    assert_eq!(server_says(&project, &["runs", "--branch", "main"])["runs"].as_array().unwrap().len(), 1);

    for (token, told) in [
        (&main, format!("http://{address}, the token writes main, until 20")),
        (&review, format!("http://{address}, the token adds reviews only, until 20")),
        (&other, "it answered 403: token ".to_owned()),
    ] {
        let run = with_token(&project, token, &["doctor"]);
        assert!(run.stdout.contains(&told), "{run}");
    }
    let mut said = String::new();
    let revoked = token(&project, "tiles", &["main"]);
    project.memgate(&["serve", "token", "revoke", &revoked[4..12], "--data", "server"]).ends_with(0);
    let mut unknown = main.clone();
    unknown.replace_range(20..21, if &main[20..21] == "x" { "y" } else { "x" });
    for (token, why) in [
        (&revoked, "401: token".to_owned()),
        (&unknown, "401: the token is not valid".to_owned()),
        (&other, format!("403: token {} is for another project than `tiles`", &other[4..12])),
        (&String::new(), "no variable `UPLOAD_TOKEN`".to_owned()),
    ] {
        let run = with_token(&project, token, &LATEST);
        run.ends_with(2).says(&why);
        assert!(!run.stderr.contains("trying for"), "nobody asks again: {run}");
        said += &run.stderr;
    }
    assert_eq!(with_token(&project, &main, &LATEST).ends_with(0).code, Some(0));
    let fixed = server_says(&project, &["leaks", "--branch", "main", "--state", "any"])["leaks"].clone();
    assert_eq!(fixed[0]["state"], "fixed", "the same run, by who may");
    let list = project.memgate(&["serve", "token", "list", "--data", "server"]);
    list.ends_with(0);
    assert!(list.stdout.contains("reviews only") && list.stdout.contains("revoked"), "{list}");
    said += &list.stdout;
    let mut server = server;
    server.child.kill().unwrap();
    said += &server.ends().1;
    for token in [&main, &review, &other, &revoked] {
        assert!(!said.contains(&token[12..]), "{said}");
    }
}

#[test]
fn without_its_server_a_run_passes_with_a_warning_or_ends_with_two() {
    let project = project("upload-away", false);
    let token = token(&project, "tiles", &["main"]);
    let address = free_address();
    configure(&project, "tiles", &address, "best_effort");
    let run = with_token(&project, &token, &RUN);
    run.ends_with(0).says("not uploaded to").says("trying for").says("memgate upload ");
    configure(&project, "tiles", &address, "required");
    let run = with_token(&project, &token, &RUN);
    run.ends_with(2).says("exit code 2: the run was not uploaded, and `history.upload` is `required`");
    let report = run.report();
    assert_eq!((report.exit_code, report.verdict), (0, memgate_model::Verdict::Pass), "the verdict stays");
    let command = run.stderr.lines().find_map(|line| line.split_once("`memgate upload ")).unwrap().1;
    let session = command.split('`').next().unwrap();

    // The server comes back while an upload is retried.
    let mut upload = project.command(&["upload", "--wait", "5m", session]);
    let mut upload = Heard::start(upload.env("UPLOAD_TOKEN", &token));
    upload.hears("trying for");
    let server = serve(&project, &address);
    upload.hears(&format!("uploaded: http://{address}/p/tiles/runs/"));
    assert_eq!(upload.ends().0, Some(0));
    configure(&project, "tiles", &address, "off");
    let run = with_token(&project, &token, &RUN);
    run.ends_with(0);
    assert!(!run.stderr.contains("upload"), "{run}");
    assert_eq!(runs(&project), 1);
    drop(server);

    // A leak takes precedence over a failed upload.
    build(&project, true);
    configure(&project, "tiles", &address, "required");
    with_token(&project, &token, &RUN).ends_with(1).says("not uploaded to");
}

#[test]
fn a_server_on_the_local_file_takes_its_own_runs_for_the_same() {
    let project = project("upload-own", true);
    let address = free_address();
    configure(&project, "tiles", &address, "off");
    let run = || with_token(&project, "", &RUN);
    run().ends_with(1);
    let mut server = Heard::start(&mut project.command(&["serve", "--listen", &address]));
    server.hears("shows the history");
    let url = format!("http://{address}");
    project.write("memgate.yaml", "version: 1\nproject: tiles\n");
    project.memgate(&["upload", ".memgate/latest", "--server", &url]).ends_with(0).says("uploaded before");
    drop(server);
}

#[test]
fn bombs_are_refused_by_name_and_take_little_memory() {
    let project = Project::new("upload-bombs");
    let token = token(&project, "tiles", &["main"]);
    let address = free_address();
    let server = serve(&project, &address);
    let send = |body: &[u8]| {
        let mut stream = TcpStream::connect(&address).unwrap();
        let head = format!(
            "POST /api/v1/projects/tiles/runs HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Encoding: gzip\r\nAuthorization: Bearer {token}\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let bomb = |head: &str, filling: &str, mib: usize| {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(head.as_bytes()).unwrap();
        let block = filling.repeat((1 << 20) / filling.len());
        (0..mib).for_each(|_| gzip.write_all(block.as_bytes()).unwrap());
        gzip.finish().unwrap()
    };
    let manifest = r#"{"manifest":{"project":"tiles","session":"s"},"report":"#;
    let blanks = send(&bomb(manifest, " ", 257));
    assert!(blanks.contains("413 ") && blanks.contains("more than 268435456 bytes, inflated"), "{blanks}");
    let ancestors = r#"{"manifest":{"project":"tiles","session":"s","ancestors":[""#;
    let values = send(&bomb(ancestors, r#"",""#, 30));
    assert!(values.contains("413 ") && values.contains("more than 8000000 values"), "{values}");
    let peak = server.peak_mib();
    assert!(peak < 512, "{peak} MiB");
    assert!(get(&address, "/readyz", &address).0.starts_with("http/1.1 200"));
    println!("{peak} MiB at most");
}
