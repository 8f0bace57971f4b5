//! A job uploads with a token that its CI system signs: a real issuer with RSA keys (tests/peers/issuer.py),
//! a real server.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use memgate_e2e::waiting::Running;
use memgate_e2e::{Project, Run, peer, repository};
use serde_json::json;

use crate::history::commits::git;
use crate::server::upload::{RUN, free_address, project, serve};

/// It ends when its stdin is closed.
struct Issuer {
    _running: Running,
    address: String,
}

impl Issuer {
    fn start(folder: &Path) -> Option<Self> {
        let python = peer("venv/bin/python")?;
        fs::create_dir_all(folder).unwrap();
        let mut command = Command::new(python);
        command.arg(repository().join("tests/peers/issuer.py")).arg(folder);
        let mut running = Running::start(command.stdin(Stdio::piped()));
        let address = format!("http://127.0.0.1:{}", running.line("its port"));
        Some(Self { _running: running, address })
    }
}

fn run_in_job(project: &Project, issuer: &Issuer, secret: &str, arguments: &[&str]) -> Run {
    let mut command = project.command(arguments);
    command.env("ACTIONS_ID_TOKEN_REQUEST_URL", format!("{}/token?api-version=2.0", issuer.address));
    project.finish(command.env("ACTIONS_ID_TOKEN_REQUEST_TOKEN", secret))
}

#[test]
fn a_job_of_github_uploads_without_a_stored_secret() {
    let project = project("oidc", true);
    let folder = project.folder().join("issuer");
    let Some(issuer) = Issuer::start(&folder) else { return };
    let address = free_address();
    let add = ["serve", "oidc", "add", "--data", "server", "--project", "tiles", "--github", "74"];
    let audience = format!("http://{address}");
    let more = ["--issuer", &issuer.address, "--audience", &audience, "--branch", "main"];
    project.memgate(&[&add[..], &more].concat()).ends_with(0).says("may write the lines main");
    let listed = project.memgate(&["serve", "oidc", "list", "--data", "server"]);
    listed.ends_with(0);
    assert!(listed.stdout.contains(&format!("github 74 of {}", issuer.address)), "{listed}");
    let server = serve(&project, &address);
    project.write(
        "memgate.yaml",
        format!(
            "version: 1\nproject: tiles\nhistory:\n  server: {audience}\n  upload: required\n  wait: 2s\n"
        ),
    );
    let job = |event: &str, sha: &str| {
        let claims =
            json!({ "repository_id": "74", "event_name": event, "ref": "refs/heads/main", "sha": sha });
        fs::write(folder.join("claims.json"), claims.to_string()).unwrap();
        fs::write(folder.join("secret"), "of this job").unwrap();
    };
    let head = git(&project, &["rev-parse", "HEAD"]);
    job("push", &head);
    let run = run_in_job(&project, &issuer, "of this job", &RUN);
    run.ends_with(1).says(&format!("uploaded: {audience}/p/tiles/runs/"));
    assert!(!run.stderr.contains("kept like a review"), "{run}");
    let doctor = run_in_job(&project, &issuer, "of this job", &["doctor"]);
    assert!(doctor.stdout.contains("the token writes main"), "{doctor}");

    // A pull request changes no state, whatever its manifest says.
    job("pull_request", &head);
    let review = run_in_job(&project, &issuer, "of this job", &RUN);
    review.ends_with(1).says("it was kept like a review, and changes no state");

    let refused = run_in_job(&project, &issuer, "of another job", &RUN);
    refused.says("GitHub signs no token for this job: it answered 403").says("id-token: write");
    assert!(!refused.stderr.contains("of another job"), "{refused}");
    drop(server);

    let (rule, _) = listed.stdout.split_once(' ').expect("the id of the rule");
    let removed = project.memgate(&["serve", "oidc", "remove", "--data", "server", rule]);
    removed.ends_with(0).says("takes uploads without a token again");
}
