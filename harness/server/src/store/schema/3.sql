CREATE TABLE account (
    name TEXT NOT NULL PRIMARY KEY, password TEXT NOT NULL, projects TEXT NOT NULL, created_us BIGINT NOT NULL, used_us BIGINT
);
CREATE TABLE web_session (
    digest TEXT NOT NULL PRIMARY KEY, account TEXT NOT NULL, expires_us BIGINT NOT NULL
);
CREATE TABLE members_only (
    pattern TEXT NOT NULL PRIMARY KEY, created_us BIGINT NOT NULL
);
CREATE TABLE artefact (
    project_id BIGINT NOT NULL, run_id BIGINT NOT NULL, name TEXT NOT NULL, bytes BIGINT NOT NULL, expires_us BIGINT NOT NULL,
    PRIMARY KEY (project_id, run_id, name)
);
CREATE INDEX artefact_by_expiry ON artefact (project_id, expires_us);
CREATE TABLE shift_notice (
    project_id BIGINT NOT NULL, channel TEXT NOT NULL, branch_id BIGINT NOT NULL, environment_id BIGINT NOT NULL,
    told_run BIGINT NOT NULL, claimed_us BIGINT NOT NULL,
    PRIMARY KEY (project_id, channel, branch_id, environment_id)
);
