UPDATE run SET started_us = received_us WHERE started_us > received_us;
UPDATE line SET newest_us = (SELECT MAX(r.started_us) FROM run r WHERE r.project_id = line.project_id AND r.branch_id = line.branch_id
    AND r.environment_id = line.environment_id)
    WHERE EXISTS (SELECT 1 FROM run r WHERE r.project_id = line.project_id AND r.branch_id = line.branch_id AND r.environment_id = line.environment_id);
