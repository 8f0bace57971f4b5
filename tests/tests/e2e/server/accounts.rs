//! A project that only its members see: accounts created by the built program, a real server, a real browser.

use std::io::Write as _;
use std::process::Stdio;

use memgate_e2e::Project;
use serde_json::json;

use crate::history::commits::{get, git};
use crate::history::review::{in_ci, merge};
use crate::reports::page::browse;
use crate::server::upload::{RUN, configure, free_address, project, serve, token, with_token};

const USER: [&str; 4] = ["serve", "user", "--data", "server"];

/// `memgate serve user …`, as typed on the server's machine.
fn user(project: &Project, command: &str, more: &[&str]) -> memgate_e2e::Run {
    let [serve, user, data, server] = USER;
    project.memgate(&[&[serve, user, command, data, server], more].concat())
}

#[test]
fn members_sign_in_and_others_see_no_such_project() {
    let project = project("accounts", true);
    let token = token(&project, "tiles", &["main"]);
    let address = free_address();
    configure(&project, "tiles", &address, "required");
    let server = serve(&project, &address);
    let only = ["serve", "members-only", "add", "--data", "server", "til*"];
    project.memgate(&only).ends_with(0).says("only members read the projects til*");
    let made = user(&project, "add", &["Anna", "--project", "tiles"]);
    made.ends_with(0).says("account anna: may read tiles");
    let password = made.stdout.trim().to_owned();
    assert!(password.len() == 20 && !made.stderr.contains(&password), "{made}");
    user(&project, "add", &["anna"]).ends_with(2).says("there is an account anna");
    let listed = user(&project, "list", &[]);
    assert!(listed.stdout.contains("anna") && !listed.stdout.contains(&password), "{listed}");

    // CI uploads still work, and a review can read its base.
    let run = with_token(&project, &token, &RUN);
    run.ends_with(1).says(&format!("uploaded: http://{address}/p/tiles/runs/"));
    git(&project, &["checkout", "-q", "-b", "fix"]);
    git(&project, &["commit", "-q", "--allow-empty", "-m", "fix"]);
    git(&project, &["checkout", "-q", "main"]);
    let head = merge(&project);
    for (token, code, said) in [(token.as_str(), 0, "1 leaks alive"), ("", 2, "needs a token of its project")]
    {
        let mut fetch = project.command(&["baseline", "fetch"]);
        project.finish(in_ci(&mut fetch, &head).env("UPLOAD_TOKEN", token)).ends_with(code).says(said);
    }
    assert!(get(&address, "/p/tiles", &address).0.starts_with("http/1.1 404"));
    assert!(!get(&address, "/api/v1/projects", &address).1.contains("tiles"));

    if let Some(found) = browse(&[&format!("http://{address}/p/tiles"), "--signs-in", "anna", &password]) {
        let at = |path: &str, heading: &str| json!({ "at": path, "heading": heading });
        assert_eq!(
            (&found["before"], &found["form"]),
            (&"Not found".into(), &at("/login", "Sign in")),
            "{found:#}"
        );
        let wrong = json!({ "at": "/login", "heading": "Sign in", "said": "Name or password is wrong." });
        assert_eq!((&found["wrong"], &found["inside"]), (&wrong, &at("/p/tiles", "tiles")), "{found:#}");
        assert_eq!((&found["script_sees"], &found["out"]["at"]), (&"".into(), &"/".into()), "{found:#}");
        assert_eq!(found["after"], "Not found", "{found:#}");
    }

    let mut command = project.command(&[&USER[..2], &["password", "anna", "--stdin"], &USER[2..]].concat());
    let mut changing = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    changing.stdin.take().unwrap().write_all(b"short\n").unwrap();
    let said = changing.wait_with_output().unwrap();
    let said = (said.status.code(), String::from_utf8(said.stderr).unwrap());
    assert!(said.0 == Some(2) && said.1.contains("a password has 12 characters or more"), "{said:?}");
    user(&project, "remove", &["anna"]).ends_with(0);
    user(&project, "remove", &["anna"]).ends_with(2).says("memgate serve user list");
    let (_, said) = server.stopped();
    assert!(!said.contains(&password) && !said.contains(&token), "no secret is in a log: {said}");
}
