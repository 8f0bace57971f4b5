CREATE INDEX IF NOT EXISTS run_by_sha ON run (project_id, sha);
