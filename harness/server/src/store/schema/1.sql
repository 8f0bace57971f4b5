CREATE TABLE project (
    project_id BIGINT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    created_us BIGINT NOT NULL
);
CREATE TABLE branch (
    project_id BIGINT NOT NULL, branch_id BIGINT NOT NULL, name TEXT NOT NULL, is_line BIGINT NOT NULL,
    PRIMARY KEY (project_id, branch_id), UNIQUE (project_id, name)
);
CREATE TABLE environment (
    project_id BIGINT NOT NULL, environment_id BIGINT NOT NULL, digest TEXT NOT NULL, label TEXT NOT NULL,
    PRIMARY KEY (project_id, environment_id), UNIQUE (project_id, digest)
);
CREATE TABLE line (
    project_id BIGINT NOT NULL, branch_id BIGINT NOT NULL, environment_id BIGINT NOT NULL, is_line BIGINT NOT NULL, newest_us BIGINT NOT NULL,
    PRIMARY KEY (project_id, branch_id, environment_id)
);
CREATE INDEX line_by_time ON line (project_id, is_line, newest_us);
CREATE TABLE revision (
    project_id BIGINT NOT NULL, sha TEXT NOT NULL, parent TEXT NOT NULL,
    PRIMARY KEY (project_id, sha)
);
CREATE INDEX revision_by_parent ON revision (project_id, parent);
CREATE TABLE test (
    project_id BIGINT NOT NULL, test_id BIGINT NOT NULL, suite TEXT NOT NULL, name TEXT NOT NULL,
    PRIMARY KEY (project_id, test_id), UNIQUE (project_id, suite, name)
);
CREATE TABLE roster (
    project_id BIGINT NOT NULL, roster_id BIGINT NOT NULL, digest TEXT NOT NULL, tests BIGINT NOT NULL, members BYTEA NOT NULL,
    PRIMARY KEY (project_id, roster_id), UNIQUE (project_id, digest)
);
CREATE TABLE run (
    project_id BIGINT NOT NULL, run_id BIGINT NOT NULL, run_key TEXT NOT NULL, body_digest TEXT NOT NULL,
    branch_id BIGINT NOT NULL, environment_id BIGINT NOT NULL, roster_id BIGINT NOT NULL,
    sha TEXT NOT NULL, target TEXT NOT NULL, commit_key TEXT NOT NULL, pipeline BIGINT, place BIGINT NOT NULL, placed_by BIGINT NOT NULL,
    on_line BIGINT NOT NULL, is_partial BIGINT NOT NULL, session TEXT NOT NULL, ci_url TEXT NOT NULL,
    started_us BIGINT NOT NULL, received_us BIGINT NOT NULL, duration_ms BIGINT NOT NULL,
    verdict TEXT NOT NULL, exit_code BIGINT NOT NULL,
    tests BIGINT NOT NULL, failed BIGINT NOT NULL, leaks BIGINT NOT NULL, new_leaks BIGINT NOT NULL, expires BIGINT NOT NULL,
    PRIMARY KEY (project_id, run_id), UNIQUE (project_id, run_key)
);
CREATE INDEX run_by_line ON run (project_id, branch_id, environment_id, place, run_id);
CREATE INDEX run_by_place ON run (project_id, branch_id, place);
CREATE INDEX run_by_commit ON run (project_id, commit_key);
CREATE INDEX run_by_expiry ON run (project_id, expires);
CREATE INDEX run_by_time ON run (project_id, started_us, run_id);
CREATE TABLE run_column (
    project_id BIGINT NOT NULL, run_id BIGINT NOT NULL, metric TEXT NOT NULL, data BYTEA NOT NULL, expires BIGINT NOT NULL,
    PRIMARY KEY (project_id, run_id, metric, expires)
) PARTITION BY RANGE (expires);
CREATE TABLE exception (
    project_id BIGINT NOT NULL, run_id BIGINT NOT NULL, test_id BIGINT NOT NULL,
    outcome TEXT NOT NULL, verdict TEXT NOT NULL, judged BIGINT NOT NULL, reason TEXT NOT NULL, expires BIGINT NOT NULL,
    PRIMARY KEY (project_id, run_id, test_id, expires)
) PARTITION BY RANGE (expires);
CREATE INDEX exception_by_test ON exception (project_id, test_id, run_id);
CREATE TABLE leak (
    project_id BIGINT NOT NULL, leak_id BIGINT NOT NULL, fingerprint TEXT NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (project_id, leak_id), UNIQUE (project_id, fingerprint)
);
CREATE TABLE sighting (
    project_id BIGINT NOT NULL, leak_id BIGINT NOT NULL, run_id BIGINT NOT NULL, test_id BIGINT NOT NULL, how BIGINT NOT NULL,
    bytes DOUBLE PRECISION NOT NULL, objects DOUBLE PRECISION NOT NULL, expires BIGINT NOT NULL,
    PRIMARY KEY (project_id, leak_id, run_id, test_id, how, expires)
) PARTITION BY RANGE (expires);
CREATE INDEX sighting_by_run ON sighting (project_id, run_id);
CREATE TABLE leak_line (
    project_id BIGINT NOT NULL, branch_id BIGINT NOT NULL, environment_id BIGINT NOT NULL, leak_id BIGINT NOT NULL,
    state BIGINT NOT NULL, flaky BIGINT NOT NULL, waived BIGINT NOT NULL,
    first_key TEXT NOT NULL, clean_key TEXT NOT NULL, last_key TEXT NOT NULL, fixed_key TEXT NOT NULL,
    since_us BIGINT NOT NULL, last_run BIGINT NOT NULL, recent TEXT NOT NULL, rate DOUBLE PRECISION NOT NULL,
    bytes DOUBLE PRECISION NOT NULL, objects DOUBLE PRECISION NOT NULL,
    followed_key TEXT NOT NULL, followed TEXT NOT NULL,
    PRIMARY KEY (project_id, branch_id, environment_id, leak_id)
);
CREATE INDEX leak_line_by_leak ON leak_line (project_id, leak_id);
CREATE TABLE event (
    project_id BIGINT NOT NULL, event_id BIGINT NOT NULL, branch_id BIGINT NOT NULL, environment_id BIGINT NOT NULL,
    leak_id BIGINT NOT NULL, state BIGINT NOT NULL, commit_key TEXT NOT NULL, before_key TEXT NOT NULL,
    run_id BIGINT NOT NULL, at_us BIGINT NOT NULL,
    PRIMARY KEY (project_id, event_id), UNIQUE (project_id, branch_id, environment_id, leak_id, state, commit_key)
);
CREATE INDEX event_by_time ON event (project_id, branch_id, environment_id, at_us);
CREATE INDEX event_by_run ON event (project_id, run_id);
CREATE TABLE token (
    token_id TEXT NOT NULL PRIMARY KEY, digest TEXT NOT NULL UNIQUE, project TEXT NOT NULL, branches TEXT NOT NULL,
    created_us BIGINT NOT NULL, expires_us BIGINT NOT NULL, used_us BIGINT, revoked_us BIGINT
);
