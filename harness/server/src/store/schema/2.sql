CREATE TABLE notice (
    project_id BIGINT NOT NULL, channel TEXT NOT NULL, branch_id BIGINT NOT NULL, leak_id BIGINT NOT NULL, state BIGINT NOT NULL,
    commit_key TEXT NOT NULL, claimed_us BIGINT NOT NULL, told_us BIGINT,
    PRIMARY KEY (project_id, channel, branch_id, leak_id, state, commit_key)
);
CREATE TABLE oidc_rule (
    rule_id TEXT NOT NULL PRIMARY KEY, project TEXT NOT NULL, provider TEXT NOT NULL, issuer TEXT NOT NULL, subject TEXT NOT NULL,
    audience TEXT NOT NULL, branches TEXT NOT NULL, created_us BIGINT NOT NULL
);
CREATE TABLE oidc_use (
    digest TEXT NOT NULL PRIMARY KEY, run_key TEXT NOT NULL, expires_us BIGINT NOT NULL
);
