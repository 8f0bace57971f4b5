//! Commit and job from the variables of the CI system.

use memgate_model::{Ci, Commit};

/// A CI system: what it is called in reports, and its variables. An empty name: it has no such variable.
struct System {
    name: &'static str,
    /// Only this system sets it.
    mark: &'static str,
    pipeline: &'static str,
    number: &'static str,
    job: &'static str,
    attempt: &'static str,
    url: fn(&Variables<'_>) -> Option<String>,
}

/// Reads a variable; `None`: it is not set, or empty.
type Variables<'a> = dyn Fn(&str) -> Option<String> + 'a;

const SYSTEMS: [System; 9] = [
    System {
        name: "github",
        mark: "GITHUB_ACTIONS",
        pipeline: "GITHUB_RUN_ID",
        number: "GITHUB_RUN_NUMBER",
        job: "GITHUB_JOB",
        attempt: "GITHUB_RUN_ATTEMPT",
        url: |get| {
            let (server, repository) = (get("GITHUB_SERVER_URL")?, get("GITHUB_REPOSITORY")?);
            Some(format!("{server}/{repository}/actions/runs/{}", get("GITHUB_RUN_ID")?))
        },
    },
    System {
        name: "gitlab",
        mark: "GITLAB_CI",
        pipeline: "CI_PIPELINE_ID",
        number: "CI_PIPELINE_IID",
        job: "CI_JOB_NAME",
        attempt: "",
        url: |get| get("CI_JOB_URL"),
    },
    System {
        name: "jenkins",
        mark: "JENKINS_URL",
        pipeline: "BUILD_TAG",
        number: "BUILD_NUMBER",
        job: "JOB_NAME",
        attempt: "",
        url: |get| get("BUILD_URL"),
    },
    System {
        name: "azure",
        mark: "TF_BUILD",
        pipeline: "BUILD_BUILDID",
        number: "BUILD_BUILDNUMBER",
        job: "SYSTEM_JOBDISPLAYNAME",
        attempt: "SYSTEM_JOBATTEMPT",
        url: |get| {
            let (server, project) = (get("SYSTEM_COLLECTIONURI")?, get("SYSTEM_TEAMPROJECT")?);
            let (server, project) = (server.trim_end_matches('/'), project.replace(' ', "%20"));
            Some(format!("{server}/{project}/_build/results?buildId={}", get("BUILD_BUILDID")?))
        },
    },
    System {
        name: "bitbucket",
        mark: "BITBUCKET_BUILD_NUMBER",
        pipeline: "BITBUCKET_PIPELINE_UUID",
        number: "BITBUCKET_BUILD_NUMBER",
        job: "BITBUCKET_STEP_UUID",
        attempt: "",
        url: |get| {
            let repository = get("BITBUCKET_REPO_FULL_NAME")?;
            let number = get("BITBUCKET_BUILD_NUMBER")?;
            Some(format!("https://bitbucket.org/{repository}/pipelines/results/{number}"))
        },
    },
    System {
        name: "teamcity",
        mark: "TEAMCITY_VERSION",
        pipeline: "",
        number: "BUILD_NUMBER",
        job: "TEAMCITY_BUILDCONF_NAME",
        attempt: "",
        url: |get| get("BUILD_URL"),
    },
    System {
        name: "buildkite",
        mark: "BUILDKITE",
        pipeline: "BUILDKITE_BUILD_ID",
        number: "BUILDKITE_BUILD_NUMBER",
        job: "BUILDKITE_LABEL",
        attempt: "BUILDKITE_RETRY_COUNT",
        url: |get| get("BUILDKITE_BUILD_URL"),
    },
    System {
        name: "circleci",
        mark: "CIRCLECI",
        pipeline: "CIRCLE_WORKFLOW_ID",
        number: "CIRCLE_BUILD_NUM",
        job: "CIRCLE_JOB",
        attempt: "",
        url: |get| get("CIRCLE_BUILD_URL"),
    },
    System {
        name: "woodpecker",
        mark: "CI_PIPELINE_FORGE_URL",
        pipeline: "",
        number: "CI_PIPELINE_NUMBER",
        job: "CI_WORKFLOW_NAME",
        attempt: "",
        url: |get| get("CI_PIPELINE_URL"),
    },
];

/// Variables with the commit. A container may get them without the variable that only the system sets.
const SHA: [&str; 8] = [
    "GITHUB_SHA",
    "CI_COMMIT_SHA",
    "GIT_COMMIT",
    "BUILD_SOURCEVERSION",
    "BITBUCKET_COMMIT",
    "BUILD_VCS_NUMBER",
    "BUILDKITE_COMMIT",
    "CIRCLE_SHA1",
];

/// Variables with the branch. Variables that only a pull or merge request has come first: the other ones then name a
/// reference or the target.
const BRANCH: [&str; 15] = [
    "GITHUB_HEAD_REF",
    "GITHUB_REF_NAME",
    "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME",
    "CI_COMMIT_SOURCE_BRANCH",
    "CI_COMMIT_REF_NAME",
    "CI_COMMIT_BRANCH",
    "CHANGE_BRANCH",
    "BRANCH_NAME",
    "GIT_BRANCH",
    "SYSTEM_PULLREQUEST_SOURCEBRANCH",
    "BUILD_SOURCEBRANCH",
    "BITBUCKET_BRANCH",
    "BITBUCKET_TAG",
    "BUILDKITE_BRANCH",
    "CIRCLE_BRANCH",
];

/// Variables with the branch that a pull or merge request is to be merged into.
const TARGET: [&str; 7] = [
    "GITHUB_BASE_REF",
    "CI_MERGE_REQUEST_TARGET_BRANCH_NAME",
    "CI_COMMIT_TARGET_BRANCH",
    "CHANGE_TARGET",
    "SYSTEM_PULLREQUEST_TARGETBRANCH",
    "BITBUCKET_PR_DESTINATION_BRANCH",
    "BUILDKITE_PULL_REQUEST_BASE_BRANCH",
];

/// The commit and the job. If no CI system is known, the commit is empty and the job is `None`.
pub(super) fn told(get: &Variables<'_>) -> (Commit, Option<Ci>) {
    let first = |names: &[&str]| names.iter().find_map(|name| get(name)).unwrap_or_default();
    let commit = Commit {
        sha: first(&SHA),
        branch: short(&first(&BRANCH)),
        target: short(&first(&TARGET)),
        base_sha: get("CI_MERGE_REQUEST_DIFF_BASE_SHA").unwrap_or_default(),
        is_merge: is_merge(get),
    };
    let system = SYSTEMS.iter().find(|system| get(system.mark).is_some());
    let ci = system.map(|system| {
        let value = |name: &str| get(name).unwrap_or_default();
        Ci {
            provider: system.name.to_owned(),
            pipeline: value(system.pipeline),
            number: value(system.number),
            job: value(system.job),
            attempt: value(system.attempt),
            url: without_user(&(system.url)(get).unwrap_or_default()),
        }
    });
    (commit, ci)
}

/// The name of a branch or tag without the place of the reference.
fn short(reference: &str) -> String {
    let places = ["origin/", "refs/heads/", "refs/tags/"];
    let name = places.iter().find_map(|place| reference.strip_prefix(place));
    name.unwrap_or(reference).to_owned()
}

/// Whether CI created the commit, with the tip of the target as its first parent.
fn is_merge(get: &Variables<'_>) -> bool {
    let of_request =
        |name: &str| get(name).is_some_and(|name| name.starts_with("refs/pull/") && name.ends_with("/merge"));
    let gitlab = get("CI_MERGE_REQUEST_EVENT_TYPE")
        .is_some_and(|kind| matches!(kind.as_str(), "merged_result" | "merge_train"));
    of_request("GITHUB_REF") || of_request("BUILD_SOURCEBRANCH") || gitlab
}

/// A URL without user name and password.
fn without_user(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let host = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let begin = rest[..host].rfind('@').map_or(0, |at| at + 1);
    format!("{scheme}://{}", &rest[begin..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA: &str = "3f0c1b2a9d8e7f60514233241506978877665544";

    fn of(variables: &[(&str, &str)]) -> (Commit, Option<Ci>) {
        told(&|name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn the_branch_and_the_job_are_those_of_the_ci_system() {
        let (commit, ci) = of(&[
            ("GITHUB_ACTIONS", "true"),
            ("GITHUB_REF_NAME", "12/merge"),
            ("GITHUB_HEAD_REF", "fix"),
            ("GITHUB_BASE_REF", "main"),
            ("GITHUB_SERVER_URL", "https://github.com"),
            ("GITHUB_REPOSITORY", "a/b"),
            ("GITHUB_RUN_ID", "7"),
            ("GITHUB_RUN_ATTEMPT", "2"),
        ]);
        assert_eq!((commit.branch.as_str(), commit.target.as_str()), ("fix", "main"));
        let ci = ci.unwrap();
        assert_eq!(
            (ci.provider.as_str(), ci.pipeline.as_str(), ci.attempt.as_str(), ci.url.as_str()),
            ("github", "7", "2", "https://github.com/a/b/actions/runs/7")
        );
        let (commit, ci) = of(&[
            ("GITLAB_CI", "true"),
            ("CI_COMMIT_REF_NAME", "main"),
            ("CI_COMMIT_SHA", SHA),
            ("CI_JOB_URL", "https://gitlab.example.com/job/9"),
        ]);
        assert_eq!((commit.sha.as_str(), commit.branch.as_str()), (SHA, "main"));
        assert_eq!(ci.unwrap().url, "https://gitlab.example.com/job/9");
        assert_eq!(of(&[("GIT_BRANCH", "origin/main")]).0.branch, "main");
        assert_eq!(of(&[]), (Commit::default(), None));
    }

    #[test]
    fn a_pull_request_of_azure_has_its_own_branch_and_a_commit_that_the_system_merged() {
        let job = [
            ("TF_BUILD", "True"),
            ("BUILD_SOURCEVERSION", SHA),
            ("BUILD_BUILDID", "41"),
            ("BUILD_BUILDNUMBER", "20261129.3"),
            ("SYSTEM_JOBDISPLAYNAME", "leaks"),
            ("SYSTEM_JOBATTEMPT", "2"),
            ("SYSTEM_COLLECTIONURI", "https://dev.azure.com/tiles/"),
            ("SYSTEM_TEAMPROJECT", "Map engine"),
        ];
        let (commit, ci) = of(&[&job[..], &[("BUILD_SOURCEBRANCH", "refs/heads/feature/x")]].concat());
        assert_eq!((commit.sha.as_str(), commit.branch.as_str(), commit.is_merge), (SHA, "feature/x", false));
        assert_eq!(
            ci.unwrap(),
            Ci {
                provider: "azure".to_owned(),
                pipeline: "41".to_owned(),
                number: "20261129.3".to_owned(),
                job: "leaks".to_owned(),
                attempt: "2".to_owned(),
                url: "https://dev.azure.com/tiles/Map%20engine/_build/results?buildId=41".to_owned(),
            }
        );
        let request = [
            ("BUILD_SOURCEBRANCH", "refs/pull/9/merge"),
            ("SYSTEM_PULLREQUEST_SOURCEBRANCH", "refs/heads/fix"),
            ("SYSTEM_PULLREQUEST_TARGETBRANCH", "refs/heads/main"),
        ];
        let (commit, _) = of(&[&job[..], &request].concat());
        assert_eq!((commit.branch.as_str(), commit.target.as_str(), commit.is_merge), ("fix", "main", true));
    }

    #[test]
    fn branch_and_page_of_the_other_systems_are_told() {
        let bitbucket = [
            ("BITBUCKET_BUILD_NUMBER", "7"),
            ("BITBUCKET_BRANCH", "fix"),
            ("BITBUCKET_PR_DESTINATION_BRANCH", "main"),
            ("BITBUCKET_REPO_FULL_NAME", "tiles/engine"),
        ];
        let teamcity = [
            ("TEAMCITY_VERSION", "2024.03"),
            ("BUILD_NUMBER", "7"),
            ("BUILD_VCS_NUMBER", SHA),
            ("BUILD_URL", "https://ci.example.com/build/7"),
        ];
        let woodpecker = [
            ("CI_PIPELINE_FORGE_URL", "https://git.example.com/tiles/engine/pulls/1"),
            ("CI_COMMIT_BRANCH", "main"),
            ("CI_COMMIT_SOURCE_BRANCH", "fix"),
            ("CI_COMMIT_TARGET_BRANCH", "main"),
            ("CI_PIPELINE_NUMBER", "7"),
            ("CI_PIPELINE_URL", "https://ci.example.com/repos/1/pipeline/7"),
        ];
        for (variables, provider, branch, target, url) in [
            (
                &bitbucket[..],
                "bitbucket",
                "fix",
                "main",
                "https://bitbucket.org/tiles/engine/pipelines/results/7",
            ),
            (&teamcity, "teamcity", "", "", "https://ci.example.com/build/7"),
            (&woodpecker, "woodpecker", "fix", "main", "https://ci.example.com/repos/1/pipeline/7"),
        ] {
            let (commit, ci) = of(variables);
            let ci = ci.unwrap();
            assert_eq!((ci.provider.as_str(), ci.number.as_str(), ci.url.as_str()), (provider, "7", url));
            assert_eq!((commit.branch.as_str(), commit.target.as_str()), (branch, target), "{provider}");
        }
    }

    #[test]
    fn the_address_of_a_job_has_no_user_in_it() {
        for (url, told) in [
            ("https://ci:tok@ci.example.com:8443/job/7?x=a@b", "https://ci.example.com:8443/job/7?x=a@b"),
            ("https://ci.example.com/job/7", "https://ci.example.com/job/7"),
            ("job/7", "job/7"),
        ] {
            assert_eq!(without_user(url), told);
        }
    }
}
