CREATE TABLE run_reason (
    project_id BIGINT NOT NULL, run_id BIGINT NOT NULL, reasons TEXT NOT NULL,
    PRIMARY KEY (project_id, run_id)
);
