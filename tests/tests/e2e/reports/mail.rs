//! The report mail, sent to a real server (aiosmtpd) and read by a third-party parser.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use memgate_e2e::waiting::Running;
use memgate_e2e::{Project, Run, peer, repository, samples};
use memgate_model::{RunReport, Verdict};
use serde_json::Value;

use crate::leaks_session;

pub(crate) const PASSWORD: &str = "hunter2 ä";

/// A server in one of the modes of `tests/peers/smtp.py`; it ends when its stdin is closed.
pub(crate) struct Server {
    _running: Running,
    pub(crate) port: u16,
    folder: PathBuf,
}

impl Server {
    pub(crate) fn start(mode: &str, folder: &Path) -> Option<Self> {
        let python = peer("venv/bin/python")?;
        fs::create_dir_all(folder).unwrap();
        let mut command = Command::new(python);
        command.arg(repository().join("tests/peers/smtp.py")).arg(mode).arg(folder);
        let mut running = Running::start(command.stdin(Stdio::piped()));
        let port = running.line("its port").parse().unwrap();
        Some(Self { _running: running, port, folder: folder.to_owned() })
    }

    pub(crate) fn mails(&self) -> Vec<(Value, Value)> {
        let python = peer("venv/bin/python").unwrap();
        let mut mails = Vec::new();
        for number in 1.. {
            let eml = self.folder.join(format!("{number}.eml"));
            if !eml.exists() {
                return mails;
            }
            let envelope = fs::read(eml.with_extension("json")).unwrap();
            mails.push((serde_json::from_slice(&envelope).unwrap(), read(&python, &eml)));
        }
        unreachable!("numbers do not end")
    }
}

fn read(python: &Path, eml: &Path) -> Value {
    let mut read = Command::new(python);
    let told = samples::successful(read.arg(repository().join("tests/peers/read_mail.py")).arg(eml));
    serde_json::from_str(&told).unwrap()
}

/// A project with a report whose leaks are in its own files, and with owners of these files.
fn project(name: &str) -> Project {
    let project = Project::new(name);
    let mut report: RunReport =
        serde_json::from_str(&leaks_session().0.read(".memgate/latest/report.json")).unwrap();
    for frame in report
        .suites
        .iter_mut()
        .flat_map(|s| &mut s.tests)
        .flat_map(|t| &mut t.leaks)
        .flat_map(|l| &mut l.frames)
    {
        frame.file = Some("src/leaks.cc".to_owned());
    }
    project.write("session/report.json", serde_json::to_string(&report).unwrap());
    project.write("CODEOWNERS", "* @everybody\n/src/ @leaks owner@example.com team@example.com\n");
    project.write(".git/HEAD", "ref: refs/heads/main\n");
    project
}

fn configure(project: &Project, server: &str, more: &str) {
    let more = format!("    owners: CODEOWNERS\n    addresses: {{ \"@leaks\": leaks@example.com }}\n{more}");
    configure_one(project, server, &more);
}

/// Configures a single recipient.
fn configure_one(project: &Project, server: &str, more: &str) {
    let text = format!(
        "version: 1\nreports:\n  mail:\n    server: \"{server}\"\n    password: ${{SMTP_PASSWORD}}\n    \
         to: [\"Größe <team@example.com>\"]\n{more}"
    );
    project.write("memgate.yaml", text);
}

fn mail(project: &Project, password: &str) -> Run {
    project.finish(project.command(&["mail", "session"]).env("SMTP_PASSWORD", password))
}

#[test]
fn a_mail_arrives_with_curves_and_owners_get_what_is_theirs() {
    for (mode, scheme) in [("starttls", "smtp"), ("tls", "smtps")] {
        let project = project(&format!("mail-{mode}"));
        let Some(server) = Server::start(mode, &project.folder().join("server")) else { return };
        configure(
            &project,
            &format!("{scheme}://ci%40example.com@localhost:{}", server.port),
            "    ca: server/ca.pem\n",
        );
        mail(&project, PASSWORD).ends_with(0).says("sent 3 mails");
        let mails = server.mails();
        let to: Vec<_> =
            mails.iter().map(|(envelope, _)| envelope["to"][0].as_str().unwrap().to_owned()).collect();
        assert_eq!(
            to,
            ["team@example.com", "leaks@example.com", "owner@example.com"],
            "{mode}: nobody gets two"
        );
        for (envelope, mail) in &mails {
            assert_eq!(envelope["login"], true, "{mode}");
            assert_eq!(mail["type"], "multipart/alternative");
            assert_eq!(mail["defects"], serde_json::json!([]));
            let parts = mail["parts"].as_array().unwrap();
            assert_eq!(
                (parts[0]["type"].as_str(), parts[1]["type"].as_str()),
                (Some("text/plain"), Some("text/html"))
            );
            let pictures: Vec<_> = parts[2..].iter().map(|part| part["id"].clone()).collect();
            assert!(
                !pictures.is_empty() && mail["shown"] == Value::Array(pictures),
                "{mode}: every picture is shown"
            );
            for part in &parts[2..] {
                assert_eq!(
                    (&part["type"], &part["disposition"], &part["begins"]),
                    (&"image/png".into(), &"inline".into(), &"89504e470d0a1a0a".into())
                );
            }
            assert!(parts[0]["text"].as_str().unwrap().contains("per iteration (allowed 0 B)"));
        }
        let headers = &mails[0].1["headers"];
        let subject = headers["subject"].as_str().unwrap();
        assert!(subject.contains(" per run · src/leaks.cc:"), "who leaks stands first: {subject}");
        assert!(
            headers["subject"].as_str().unwrap().ends_with(" new leaks in leaks on main"),
            "{}",
            headers["subject"]
        );
        assert_eq!(headers["auto-submitted"], "auto-generated");
        assert!(headers["date"].as_str().unwrap().ends_with("+0000"), "a time carries its zone");
        assert_eq!(headers["references"], mails[1].1["headers"]["references"], "one thread for a branch");
        assert!(mails[1].1["headers"]["subject"].as_str().unwrap().contains("in your code"));
    }
}

/// `openssl req -x509` creates certificates that are their own authority.
#[test]
fn a_server_with_a_self_signed_certificate_gets_mail_where_that_very_one_is_trusted() {
    let project = project("mail-self-signed");
    let Some(server) = Server::start("selfsigned", &project.folder().join("server")) else { return };
    let other = Server::start("selfsigned", &project.folder().join("other")).unwrap();
    let url = format!("smtps://ci%40example.com@localhost:{}", server.port);
    configure_one(&project, &url, "    ca: other/ca.pem\n");
    mail(&project, PASSWORD)
        .ends_with(2)
        .says("its certificate is a certificate authority's, and not in `ca`");
    configure_one(&project, &url.replace("localhost", "127.0.0.1"), "    ca: server/ca.pem\n");
    mail(&project, PASSWORD).ends_with(2).says("certificate not valid for name");
    assert_eq!((server.mails().len(), other.mails().len()), (0, 0));
    configure_one(&project, &url, "    ca: server/ca.pem\n");
    mail(&project, PASSWORD).ends_with(0).says("sent 1 mail");
    assert_eq!(server.mails().len(), 1);
}

#[test]
fn a_recipient_that_is_refused_keeps_nobody_else_from_the_mail() {
    let project = project("mail-gone");
    let Some(server) = Server::start("starttls", &project.folder().join("server")) else { return };
    configure_one(
        &project,
        &format!("smtp://ci%40example.com@localhost:{}", server.port),
        "    ca: server/ca.pem\n",
    );
    let text = project.read("memgate.yaml").replace("to: [", "to: [gone@example.com, ");
    project.write("memgate.yaml", text);
    let run = mail(&project, PASSWORD);
    run.ends_with(2).says("1 of 1 mails sent: not to gone@example.com").says("no such user");
    let mails = server.mails();
    assert_eq!(mails.len(), 1, "{run}");
    assert_eq!(mails[0].0["to"], serde_json::json!(["team@example.com"]));
}

#[test]
fn a_run_that_concerns_everybody_is_no_storm() {
    let project = project("mail-storm");
    let owners: String = (0..50).map(|n| format!(" owner{n}@example.com")).collect();
    project.write("CODEOWNERS", format!("*{owners}\n"));
    configure(&project, "smtp+plain://127.0.0.1:1", "");
    project
        .write("memgate.yaml", project.read("memgate.yaml").replace("    password: ${SMTP_PASSWORD}\n", ""));
    project
        .memgate(&["mail", "--preview", "session"])
        .ends_with(0)
        .says("30 owners of leaking code get no mail of their own: 20 with most leaks do");
    let mails = fs::read_dir(project.folder().join("session")).unwrap();
    let mails = mails.filter(|entry| entry.as_ref().unwrap().path().extension() == Some("eml".as_ref()));
    assert_eq!(mails.count(), 21, "one for the team, twenty for owners");
}

#[test]
fn what_keeps_a_mail_from_being_sent_is_told_in_time_and_without_the_password() {
    let project = project("mail-refused");
    let folder = |name: &str| project.folder().join(name);
    let Some(server) = Server::start("starttls", &folder("server")) else { return };
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let odd = |mode: &str| Server::start(mode, &folder(mode)).unwrap();
    let (silent, garbage, refuse) = (odd("silent"), odd("garbage"), odd("refuse"));
    let known = "    ca: server/ca.pem\n    timeout: 2s\n";
    for (what, url, more, password, says) in [
        (
            "a wrong password",
            format!("smtp://ci%40example.com@localhost:{}", server.port),
            known,
            "letmein-4711",
            "535",
        ),
        (
            "an unknown CA",
            format!("smtp://ci%40example.com@localhost:{}", server.port),
            "",
            PASSWORD,
            "certificate",
        ),
        (
            "TLS where STARTTLS is",
            format!("smtps://ci%40example.com@localhost:{}", server.port),
            known,
            PASSWORD,
            "0 of 1 mails sent",
        ),
        ("a dead port", format!("smtp://ci@127.0.0.1:{dead}"), known, PASSWORD, "refused"),
        ("no such host", "smtp://ci@nowhere.invalid".to_owned(), known, PASSWORD, "0 of 1 mails sent"),
        (
            "a server that says nothing",
            format!("smtp://ci@127.0.0.1:{}", silent.port),
            known,
            PASSWORD,
            "longer than 2 s",
        ),
        (
            "a server that says TLS nothing",
            format!("smtps://ci@127.0.0.1:{}", silent.port),
            known,
            PASSWORD,
            "longer than 2 s",
        ),
        ("garbage", format!("smtp://ci@127.0.0.1:{}", garbage.port), known, PASSWORD, "0 of 1 mails sent"),
        (
            "a server that does not want",
            format!("smtp://ci@127.0.0.1:{}", refuse.port),
            known,
            PASSWORD,
            "554",
        ),
        ("no password", format!("smtp://ci@127.0.0.1:{dead}"), known, "", "no variable `SMTP_PASSWORD`"),
        (
            "no certificate",
            format!("smtp://ci@127.0.0.1:{dead}"),
            "    ca: CODEOWNERS\n",
            PASSWORD,
            "no certificate in it",
        ),
    ] {
        configure_one(&project, &url, more);
        let began = Instant::now();
        let run = mail(&project, password);
        run.ends_with(2).says("the mail was not sent").says(says);
        // The limit only ends a hang; a busy machine may be slow.
        assert!(began.elapsed() < Duration::from_secs(240), "{what}: {:?}", began.elapsed());
        assert!(password.is_empty() || !run.stderr.contains(password), "{what}: the password is told\n{run}");
    }
    assert!(server.mails().is_empty());
}

#[test]
fn tests_do_not_see_the_password_of_the_mail() {
    let project = Project::new("mail-secret");
    let suite = samples::own_suite("one_pass", "#include <gtest/gtest.h>\nTEST(One, Passes) {}\n");
    configure_one(&project, "smtp://ci@127.0.0.1:1", "    when: failed\n");
    let typed = format!("test -z \"$SMTP_PASSWORD\" && test \"$KEPT\" = yes && exec {}", suite.display());
    let mut command = project.command(&["run", "--", "sh", "-c", &typed]);
    let run = project.finish(command.env("SMTP_PASSWORD", PASSWORD).env("KEPT", "yes"));
    run.ends_with(0);
    assert_eq!(run.test("One.Passes").verdict, Verdict::Pass, "{run}");
}

#[test]
fn a_job_behind_the_tests_mails_only_what_is_due() {
    let project = project("mail-due");
    let mut clean: Value = serde_json::from_str(&project.read("session/report.json")).unwrap();
    (clean["exit_code"], clean["verdict"], clean["suites"]) =
        (0.into(), "pass".into(), Value::Array(Vec::new()));
    project.write("clean/report.json", clean.to_string());
    // The port is closed: an attempt to send fails.
    let settings = "version: 1\nreports: { mail: { server: \"smtp+plain://127.0.0.1:1\", to: [a@example.com], when: failed } }\n";
    project.write("memgate.yaml", settings);
    project.memgate(&["mail", "clean"]).ends_with(2).says("the mail was not sent");
    let run = project.memgate(&["mail", "--when-due", "clean"]);
    run.ends_with(0).says("no mail is due of clean: `reports.mail.when`");
    assert!(!run.stderr.contains("not sent"), "{run}");
    let run = project.memgate(&["mail", "--when-due", "clean", "session"]);
    run.ends_with(2).says("no mail is due of clean").says("the mail was not sent");
    // A session compared with itself has no changes. The first call has no previous session.
    project.write("memgate.yaml", settings.replace("when: failed", "when: changed"));
    project.memgate(&["mail", "--when-due", "session"]).ends_with(2).says("the mail was not sent");
    let same = settings.replace("when: failed } }", "when: changed }, previous: session/report.json }");
    project.write("memgate.yaml", same);
    project.memgate(&["mail", "--when-due", "session"]).ends_with(0).says("no mail is due of session");
}

#[test]
fn a_mail_that_cannot_be_sent_leaves_the_verdict_as_it_is() {
    let project = Project::new("mail-verdict");
    let suite = samples::own_suite("one_pass", "#include <gtest/gtest.h>\nTEST(One, Passes) {}\n");
    // Accepts and never answers: the backlog of a listener that nobody serves.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let settings = |when: &str| {
        format!(
            "version: 1\nreports:\n  mail: {{ server: \"smtp+plain://127.0.0.1:{port}\", to: [a@example.com], timeout: 1s, when: {when} }}\n"
        )
    };
    project.write("memgate.yaml", settings("always"));
    project.run(&suite).ends_with(0).says("the mail was not sent").says("longer than 1 s");
    project.write("memgate.yaml", settings("changed"));
    let run = project.run(&suite);
    run.ends_with(0);
    assert!(!run.stderr.contains("mail"), "nothing has changed, so nobody is told\n{run}");
}

#[test]
fn a_preview_is_the_mail_as_a_file_and_needs_no_settings() {
    let project = project("mail-preview");
    project.memgate(&["mail", "--preview", "session"]).ends_with(0).says("session/mail.eml");
    let Some(python) = peer("venv/bin/python") else { return };
    let mail = read(&python, &project.folder().join("session/mail.eml"));
    assert!(mail["headers"]["subject"].as_str().unwrap().contains("new leaks"), "{mail}");
    assert_eq!(mail["shown"].as_array().unwrap().len(), 5);
}

/// A local chat server: returns the posted request, after sending `answer`.
fn chat(answer: &'static str) -> (u16, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let posted = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        serve(stream, answer)
    });
    (port, posted)
}

fn serve(mut stream: TcpStream, answer: &str) -> String {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut length, mut head) = (0, String::new());
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
        head += &line;
    }
    let mut body = vec![0; length];
    std::io::Read::read_exact(&mut reader, &mut body).unwrap();
    stream.write_all(answer.as_bytes()).unwrap();
    head + &String::from_utf8(body).unwrap()
}

#[test]
fn chats_are_told_and_their_addresses_are_not() {
    let project = Project::new("webhooks");
    let suite = samples::own_suite("one_pass", "#include <gtest/gtest.h>\nTEST(One, Passes) {}\n");
    project.write(
        "memgate.yaml",
        "version: 1\nproject: tiles\nreports:\n  webhooks:\n    - { chat: slack, url: \"${SLACK}\", when: always }\n    \
         - { chat: lark, url: \"${LARK}\", secret: \"${LARK_SECRET}\", when: always }\n    - { chat: teams, url: \"${TEAMS}\", when: always }\n",
    );
    let (slack, told) = chat("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let (lark, signed) =
        chat("HTTP/1.1 200 OK\r\nContent-Length: 35\r\n\r\n{\"code\":19021,\"msg\":\"sign match x\"}");
    let slack = format!("http://127.0.0.1:{slack}/services/T0/SECRET");
    let lark = format!("http://127.0.0.1:{lark}/hook/SECRET");
    let run = project.finish(
        project
            .command(&["run".as_ref(), "--".as_ref(), suite.as_os_str()])
            .envs([("SLACK", slack.as_str()), ("LARK", lark.as_str()), ("LARK_SECRET", "KEY4711")])
            .env("TEAMS", "http://example.com/SECRET")
            // The proxy's port is closed. Chats on this machine are reached anyway, and the proxy's password
            // is not printed.
            .env("http_proxy", "http://me:KEY4711@127.0.0.1:1"),
    );
    run.ends_with(0).says("told slack").says("lark was not told (${LARK}): it answered code 19021");
    assert!(!run.stderr.contains("sign match"), "an answer may repeat a secret: {run}");
    run.says("teams was not told (${TEAMS}): its address does not begin with https://");
    assert!(!run.stderr.contains("SECRET") && !run.stderr.contains("KEY4711"), "{run}");
    let told = told.join().unwrap();
    assert!(
        told.starts_with("POST /services/T0/SECRET") && told.contains("tiles: no leak in 1 test"),
        "{told}"
    );
    let signed = signed.join().unwrap();
    assert!(
        signed.contains("\"sign\":\"") && signed.contains("\"timestamp\":\"") && !signed.contains("KEY4711"),
        "{signed}"
    );
}

#[test]
fn a_chat_is_told_over_tls_with_the_certificates_of_the_system_or_with_its_own() {
    let project = Project::new("webhook-tls");
    let Some(server) = Server::start("https", &project.folder().join("server")) else { return };
    let suite = samples::own_suite("one_pass", "#include <gtest/gtest.h>\nTEST(One, Passes) {}\n");
    project.write(
        "memgate.yaml",
        "version: 1\nreports: { webhooks: [{ chat: teams, url: \"${TEAMS}\", when: always }] }\n",
    );
    let missing = "the environment has no variable `TEAMS`, which reports.webhooks.url names";
    project.memgate(&["run", "--", "true"]).says(missing);
    let doctor = project.memgate(&["doctor"]);
    assert!(doctor.stdout.contains(missing), "{doctor}");
    let run = |trusted: bool| {
        let mut command = project.command(&["run".as_ref(), "--".as_ref(), suite.as_os_str()]);
        command.env("TEAMS", format!("https://localhost:{}/hook", server.port));
        if trusted {
            command.env("SSL_CERT_FILE", server.folder.join("ca.pem"));
        }
        project.finish(&mut command)
    };
    run(false).ends_with(0).says("teams was not told");
    assert!(!server.folder.join("posted").exists());
    run(true).ends_with(0).says("told teams");
    fs::remove_file(server.folder.join("posted")).unwrap();
    let own = project.read("memgate.yaml").replace("when: always", "when: always, ca: server/ca.pem");
    project.write("memgate.yaml", own);
    run(false).ends_with(0).says("told teams");
    let posted: Value = serde_json::from_slice(&fs::read(server.folder.join("posted")).unwrap()).unwrap();
    assert_eq!(posted["attachments"][0]["content"]["type"], "AdaptiveCard");
}
