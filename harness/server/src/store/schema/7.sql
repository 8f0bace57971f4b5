CREATE INDEX run_by_sha ON run (project_id, sha);
