CREATE TABLE notice (
    project_id BIGINT NOT NULL, channel TEXT NOT NULL, branch_id BIGINT NOT NULL, leak_id BIGINT NOT NULL, state BIGINT NOT NULL,
    commit_key TEXT NOT NULL, claimed_us BIGINT NOT NULL, told_us BIGINT,
    PRIMARY KEY (project_id, channel, branch_id, leak_id, state, commit_key)
);
