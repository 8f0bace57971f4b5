//! A server that notifies people of changes: a real `memgate serve`, real runs, and a real mail server.

use memgate_e2e::Project;
use serde_json::json;

use crate::history::commits::{build, git};
use crate::history::review::build_other;
use crate::reports::mail::{PASSWORD, Server};
use crate::server::upload::{Heard, RUN, configure, free_address, project, token, with_token};

fn serve(project: &Project, address: &str) -> Heard {
    let arguments = ["serve", "--data", "server", "--listen", address, "--notify", "notify.yaml"];
    let mut server = Heard::start(project.command(&arguments).env("SMTP_PASSWORD", PASSWORD));
    server.hears(&format!("http://{address} shows the history"));
    server
}

#[test]
fn a_leak_is_told_to_the_team_and_its_owner_when_it_comes_and_when_it_goes() {
    let project = project("notify", true);
    let Some(post) = Server::start("starttls", &project.folder().join("post")) else { return };
    let token = token(&project, "tiles", &["main"]);
    let address = free_address();
    configure(&project, "tiles", &address, "required");
    project.write("CODEOWNERS", "/src/ @titles\n");
    let written = |to: &str| {
        let server = format!("smtp://ci%40example.com@localhost:{}", post.port);
        let mail = format!(
            "    server: \"{server}\"\n    password: ${{SMTP_PASSWORD}}\n    ca: post/ca.pem\n    to: [{to}]\n    \
             addresses: {{ \"@titles\": titles@example.com }}\n"
        );
        project.write("notify.yaml", format!("version: 1\nreports:\n  mail:\n{mail}"));
    };
    written("team@example.com");
    let commit_and_run = |leaks: bool| {
        build(&project, leaks);
        git(&project, &["commit", "-q", "--allow-empty", "-m", "x"]);
        with_token(&project, &token, &RUN).ends_with(i32::from(leaks)).says("uploaded: ");
        git(&project, &["rev-parse", "HEAD"])
    };
    let mut server = serve(&project, &address);
    let guilty = commit_and_run(true);
    server.hears("sent 2 mails");
    let mails = post.mails();
    let [(team, first), (owner, own)] = mails.as_slice() else { panic!("{mails:?}") };
    assert_eq!((&team["to"], &owner["to"]), (&json!(["team@example.com"]), &json!(["titles@example.com"])));
    let page = format!("http://{address}/p/tiles/runs/");
    for (mail, words) in
        [(first, "1 new leak in engine_tests on main"), (own, "1 new leak in your code on main")]
    {
        let subject = mail["headers"]["subject"].as_str().unwrap();
        assert!(subject.contains("[tiles] read_title") && subject.contains(words), "{subject}");
        let text = mail.to_string();
        for part in ["src/title.cc:1", page.as_str(), &guilty, "what this run changed"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    // A known leak sends no mail.
    commit_and_run(true);
    // A leak that grows does.
    build_other(&project, "notify_grew", 122, "");
    git(&project, &["commit", "-q", "--allow-empty", "-m", "more"]);
    with_token(&project, &token, &RUN).ends_with(1).says("uploaded: ");
    server.hears("sent 1 mail");
    let mails = post.mails();
    assert_eq!(mails.len(), 3, "{mails:?}");
    let text = mails[2].1.to_string();
    let subject = mails[2].1["headers"]["subject"].as_str().unwrap();
    assert!(subject.contains("1 larger leak in engine_tests"), "{subject}");
    for part in ["larger; native.live_bytes rose from 61 B to 122 B on main", "Title.IsRead", page.as_str()] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // A restart of the server sends no mail.
    drop(server);
    let mut server = serve(&project, &address);
    let fix = commit_and_run(false);
    server.hears("sent 1 mail");
    let mails = post.mails();
    assert_eq!(mails.len(), 4, "what leaked last was nobody's own: {mails:?}");
    let subject = mails[3].1["headers"]["subject"].as_str().unwrap();
    assert!(subject.contains("1 leak fixed in engine_tests on main"), "{subject}");
    let text = mails[3].1.to_string();
    assert!(text.contains(&format!("fixed by {fix}: read_title")), "{text}");
}

#[test]
fn a_file_that_names_nobody_is_refused_before_anything_is_served() {
    let project = Project::new("notify-nobody");
    token(&project, "tiles", &[]);
    project.write("notify.yaml", "version: 1\n");
    project
        .memgate(&["serve", "--data", "server", "--listen", "127.0.0.1:0", "--notify", "notify.yaml"])
        .ends_with(2)
        .says("notify.yaml names nobody to tell")
        .says("`reports.mail` or `reports.webhooks`");
}
