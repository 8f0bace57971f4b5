//! Every statement of the store, by subject. SQLite and PostgreSQL use the same text; a test checks that each keeps to
//! one project.

/// The table of projects is outside of projects: its statements have no project id.
pub(super) const PROJECTS: &str = "SELECT name FROM project ORDER BY name";
pub(super) const PROJECT_IDS: &str = "SELECT project_id, name FROM project ORDER BY project_id";
pub(super) const PROJECT: &str = "SELECT project_id FROM project WHERE name = $1";
pub(super) const ADD_PROJECT: &str =
    "INSERT INTO project (project_id, name, created_us) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING";

/// Locks a project: of two transactions that add to it, one waits here.
pub(super) const HOLD_PROJECT: &str =
    "UPDATE project SET created_us = created_us WHERE name = $1 RETURNING project_id";

pub(super) const ADD_SECRET: &str =
    "INSERT INTO secret (name, value) VALUES ('tickets', $1) ON CONFLICT (name) DO NOTHING";
pub(super) const SECRET: &str = "SELECT value FROM secret WHERE name = 'tickets'";

pub(super) const BRANCH: &str = "SELECT branch_id, is_line FROM branch WHERE project_id = $1 AND name = $2";
pub(super) const ADD_BRANCH: &str = "INSERT INTO branch (project_id, branch_id, name, is_line) VALUES ($1, $2, $3, $4) \
     ON CONFLICT (project_id, name) DO UPDATE SET is_line = excluded.is_line";

pub(super) const ENVIRONMENT: &str =
    "SELECT environment_id FROM environment WHERE project_id = $1 AND digest = $2";
pub(super) const ADD_ENVIRONMENT: &str = "INSERT INTO environment (project_id, environment_id, digest, label) VALUES ($1, $2, $3, $4) \
     ON CONFLICT (project_id, digest) DO NOTHING";

pub(super) const REVISIONS: &str = "SELECT sha, parent FROM revision WHERE project_id = $1";
/// Stored data about a commit: 1 its first parent, 2 a commit whose first parent it is, 3 a run that measured it, or
/// uncommitted changes based on it.
pub(super) const COMMIT: &str = "SELECT CAST(1 AS BIGINT), parent FROM revision WHERE project_id = $1 AND sha = $2 \
     UNION ALL SELECT 2, sha FROM revision WHERE project_id = $1 AND parent = $2 \
     UNION ALL SELECT 3, run_key FROM run WHERE project_id = $1 AND sha = $2";
/// A commit and its ancestors, up to a number. A join would need statistics for its plan, which a new database lacks.
pub(super) const BACK: &str = "WITH RECURSIVE back (sha, parent, depth) AS ( \
     SELECT sha, parent, CAST(1 AS BIGINT) FROM revision WHERE project_id = $1 AND sha = $2 \
     UNION ALL SELECT b.parent, (SELECT r.parent FROM revision r WHERE r.project_id = $1 AND r.sha = b.parent), b.depth + 1 \
     FROM back b WHERE b.parent IS NOT NULL AND b.depth < $3) SELECT sha, parent FROM back WHERE parent IS NOT NULL ORDER BY depth";
pub(super) const ADD_REVISION: &str = "INSERT INTO revision (project_id, sha, parent) VALUES ($1, $2, $3) \
     ON CONFLICT (project_id, sha) DO NOTHING";

pub(super) const TESTS: &str = "SELECT test_id, suite, name FROM test WHERE project_id = $1";
/// The list is expanded to the number of tests.
pub(super) const TESTS_BY_ID: &str =
    "SELECT test_id, suite, name FROM test WHERE project_id = $1 AND test_id IN ($2)";
pub(super) const TESTS_BY_NAME: &str =
    "SELECT test_id, name FROM test WHERE project_id = $1 AND suite = $2 AND name IN ($3)";
pub(super) const ADD_TEST: &str =
    "INSERT INTO test (project_id, test_id, suite, name) VALUES ($1, $2, $3, $4)";

pub(super) const ROSTER: &str =
    "SELECT roster_id, tests, members FROM roster WHERE project_id = $1 AND digest = $2";
pub(super) const ADD_ROSTER: &str =
    "INSERT INTO roster (project_id, roster_id, digest, tests, members) VALUES ($1, $2, $3, $4, $5)";
pub(super) const ROSTERS: &str = "SELECT roster_id, tests, members FROM roster WHERE project_id = $1";
pub(super) const ROSTERS_OF_LINE: &str = "SELECT o.roster_id, o.tests, o.members FROM roster o WHERE o.project_id = $1 \
     AND o.roster_id IN (SELECT r.roster_id FROM run r WHERE r.project_id = $1 AND r.branch_id = $2 AND r.environment_id = $3 \
     ORDER BY r.place DESC, r.started_us DESC, r.run_id DESC LIMIT 1000)";
pub(super) const ROSTER_MEMBERS: &str =
    "SELECT tests, members FROM roster WHERE project_id = $1 AND roster_id = $2";

pub(super) const RUN_BY_KEY: &str =
    "SELECT run_id, body_digest FROM run WHERE project_id = $1 AND run_key = $2";
pub(super) const ADD_RUN: &str = "INSERT INTO run (project_id, run_id, run_key, body_digest, branch_id, environment_id, roster_id, \
     sha, target, commit_key, pipeline, place, placed_by, on_line, is_partial, session, ci_url, started_us, received_us, duration_ms, \
     verdict, exit_code, tests, failed, leaks, new_leaks, expires) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, 0, $26)";
/// The reasons of a run, a line each.
pub(super) const ADD_REASONS: &str =
    "INSERT INTO run_reason (project_id, run_id, reasons) VALUES ($1, $2, $3)";
pub(super) const COUNT_NEW_LEAKS: &str = "UPDATE run SET new_leaks = (SELECT COUNT(*) FROM event v \
     WHERE v.project_id = run.project_id AND v.run_id = run.run_id AND v.state IN (1, 4)) \
     WHERE project_id = $1 AND run_id = $2";
pub(super) const BRANCH_RUNS: &str = "SELECT run_id, commit_key, pipeline, started_us, place, placed_by, environment_id, sha \
     FROM run WHERE project_id = $1 AND branch_id = $2";
pub(super) const LAST_OF_BRANCH: &str = "SELECT commit_key, pipeline, started_us, place, placed_by, sha FROM run \
     WHERE project_id = $1 AND branch_id = $2 AND place >= 0 ORDER BY place DESC LIMIT 64";
pub(super) const LINES: &str =
    "SELECT branch_id FROM branch WHERE project_id = $1 AND is_line = 1 ORDER BY branch_id";
pub(super) const SET_PLACE: &str =
    "UPDATE run SET place = $3, placed_by = $4 WHERE project_id = $1 AND run_id = $2";
/// Whole runs of a line that ran tests, however thoroughly they looked; the newest of each commit first.
pub(super) const WHOLE_RUNS: &str = "SELECT run_id, commit_key, place, roster_id FROM run WHERE project_id = $1 AND branch_id = $2 \
     AND environment_id = $3 AND on_line = 1 AND is_partial IN (0, 2, 4) AND tests > 0 ORDER BY place DESC, started_us DESC, run_id DESC LIMIT 5000";
/// Events of a line up to a place. For a fix that uncommitted changes showed, the commit up to there that confirms it.
pub(super) const STATES_AT: &str = "SELECT v.leak_id, v.state, v.commit_key, k.fingerprint, l.flaky, l.bytes, l.objects, l.first_key, \
     CASE WHEN v.state = 3 AND v.commit_key LIKE 'run-%' THEN (SELECT MIN(q.commit_key) FROM run q WHERE q.project_id = v.project_id \
     AND q.branch_id = v.branch_id AND q.commit_key = l.fixed_key AND q.place <= $4) END FROM event v \
     JOIN run r ON r.project_id = v.project_id AND r.run_id = v.run_id \
     JOIN leak k ON k.project_id = v.project_id AND k.leak_id = v.leak_id \
     JOIN leak_line l ON l.project_id = v.project_id AND l.branch_id = v.branch_id AND l.environment_id = v.environment_id \
     AND l.leak_id = v.leak_id \
     WHERE v.project_id = $1 AND v.branch_id = $2 AND v.environment_id = $3 AND v.state <> 6 AND r.place <= $4 ORDER BY r.place, v.at_us";
pub(super) const SEEN_UP_TO: &str = "SELECT s.leak_id, s.test_id, s.bytes, s.objects, r.place FROM run r \
     JOIN sighting s ON s.project_id = r.project_id AND s.run_id = r.run_id \
     WHERE r.project_id = $1 AND r.branch_id = $2 AND r.environment_id = $3 AND r.on_line = 1 AND s.how <> 3 \
     AND r.place <= $4 AND r.place > $5 ORDER BY r.place";
pub(super) const NEWEST_OF_LINE: &str = "SELECT run_id, commit_key, roster_id FROM run WHERE project_id = $1 AND branch_id = $2 \
     AND environment_id = $3 AND on_line = 1 ORDER BY place DESC, started_us DESC, run_id DESC LIMIT $4";
pub(super) const LINE_RUNS: &str = "SELECT run_id, commit_key, started_us, roster_id, is_partial, sha FROM run \
     WHERE project_id = $1 AND branch_id = $2 AND environment_id = $3 AND on_line = 1 ORDER BY place, started_us, run_id";
pub(super) const NEWEST_LINE_RUNS: &str = "SELECT run_id, commit_key, started_us, roster_id, is_partial, sha FROM run \
     WHERE project_id = $1 AND branch_id = $2 AND environment_id = $3 AND on_line = 1 \
     ORDER BY place DESC, started_us DESC, run_id DESC LIMIT $4";

/// Each branch in each environment, with the time of its newest run: the lines to choose from.
pub(super) const ADD_LINE: &str = "INSERT INTO line (project_id, branch_id, environment_id, is_line, newest_us) \
     VALUES ($1, $2, $3, $4, $5) ON CONFLICT (project_id, branch_id, environment_id) DO UPDATE SET is_line = excluded.is_line, \
     newest_us = CASE WHEN excluded.newest_us > line.newest_us THEN excluded.newest_us ELSE line.newest_us END";
macro_rules! lines {
    ($rest:literal) => {
        concat!(
            "SELECT n.branch_id, b.name, n.environment_id, e.label FROM line n \
             JOIN branch b ON b.project_id = n.project_id AND b.branch_id = n.branch_id \
             JOIN environment e ON e.project_id = n.project_id AND e.environment_id = n.environment_id \
             WHERE n.project_id = $1",
            $rest,
            " ORDER BY n.is_line DESC, CASE b.name WHEN '' THEN 1 ELSE 0 END, n.newest_us DESC, n.branch_id, n.environment_id LIMIT 200"
        )
    };
}
pub(super) const NEWEST_LINES: &str = lines!("");
pub(super) const NEWEST_OF_NAME: &str = lines!(" AND b.name = $2");

macro_rules! runs {
    ($rest:literal) => {
        runs!("", "", $rest)
    };
    ($columns:literal, $joins:literal, $rest:literal) => {
        concat!(
            "SELECT r.run_id, r.session, b.name, e.label, r.sha, r.started_us, r.duration_ms, r.verdict, r.tests, r.failed, \
             r.leaks, r.new_leaks, r.target, r.ci_url, r.roster_id, r.branch_id, r.environment_id, r.place, r.expires",
            $columns,
            ", r.commit_key",
            ", (SELECT COUNT(*) FROM event v WHERE v.project_id = r.project_id AND v.run_id = r.run_id AND v.state = 4) AS regressed, \
             (SELECT COUNT(*) FROM event v WHERE v.project_id = r.project_id AND v.run_id = r.run_id AND v.state = 3) AS fixed, \
             (SELECT COUNT(*) FROM event v WHERE v.project_id = r.project_id AND v.run_id = r.run_id AND v.state = 6) AS larger",
            " FROM run r \
             JOIN branch b ON b.project_id = r.project_id AND b.branch_id = r.branch_id \
             JOIN environment e ON e.project_id = r.project_id AND e.environment_id = r.environment_id",
            $joins,
            " WHERE r.project_id = $1",
            $rest
        )
    };
}
/// A run with its roster, the previous run on its line, and its reasons.
pub(super) const RUN: &str = runs!(
    ", o.tests, o.members, (SELECT q.run_id FROM run q WHERE q.project_id = r.project_id AND q.branch_id = r.branch_id \
     AND q.environment_id = r.environment_id AND (q.place < r.place OR (q.place = r.place AND q.run_id < r.run_id)) \
     ORDER BY q.place DESC, q.run_id DESC LIMIT 1), w.reasons",
    " JOIN roster o ON o.project_id = r.project_id AND o.roster_id = r.roster_id \
     LEFT JOIN run_reason w ON w.project_id = r.project_id AND w.run_id = r.run_id",
    " AND r.run_id = $2"
);
pub(super) const RUN_DIGEST: &str = "SELECT body_digest FROM run WHERE project_id = $1 AND run_id = $2";
/// Two runs with their rosters.
pub(super) const TWO_RUNS: &str = runs!(
    ", o.tests, o.members",
    " JOIN roster o ON o.project_id = r.project_id AND o.roster_id = r.roster_id",
    " AND r.run_id IN ($2, $3)"
);
pub(super) const RUNS_NEWEST: &str = runs!(" ORDER BY r.started_us DESC, r.run_id DESC LIMIT 20");
pub(super) const RUNS_OF_LEAK: &str = runs!(
    " AND r.run_id IN (SELECT s.run_id FROM sighting s WHERE s.project_id = $1 AND s.leak_id = $2 \
      ORDER BY s.run_id DESC LIMIT 200) ORDER BY r.run_id DESC"
);
pub(super) const RUNS_OF_LINE: &str = runs!(
    " AND r.branch_id = $2 AND r.environment_id = $3 AND (r.place < $4 OR (r.place = $4 AND r.run_id < $5)) \
      ORDER BY r.place DESC, r.run_id DESC LIMIT 101"
);
/// Runs with one test, and its exception in each.
pub(super) const CURVE_RUNS: &str = runs!(
    ", x.verdict, t.test_id, a.name",
    " JOIN test t ON t.project_id = r.project_id AND t.suite = $4 AND t.name = $5 \
     LEFT JOIN exception x ON x.project_id = r.project_id AND x.run_id = r.run_id AND x.test_id = t.test_id \
     LEFT JOIN artefact a ON a.project_id = r.project_id AND a.run_id = r.run_id AND a.name = 'report.html'",
    " AND r.branch_id = $2 AND r.environment_id = $3 ORDER BY r.place DESC, r.started_us DESC, r.run_id DESC LIMIT 1000"
);

pub(super) const ALL_RUNS: &str =
    runs!(" AND r.branch_id = $2 AND r.environment_id = $3 ORDER BY r.place, r.started_us, r.run_id");

pub(super) const ADD_COLUMN: &str =
    "INSERT INTO run_column (project_id, run_id, metric, data, expires) VALUES ($1, $2, $3, $4, $5)";
pub(super) const COLUMNS: &str = "SELECT metric, data FROM run_column WHERE project_id = $1 AND run_id = $2";
pub(super) const COLUMNS_OF_TWO: &str =
    "SELECT run_id, metric, data FROM run_column WHERE project_id = $1 AND run_id IN ($2, $3)";
pub(super) const CURVE_COLUMNS: &str = "SELECT c.run_id, c.metric, c.data FROM run_column c \
     JOIN run r ON r.project_id = c.project_id AND r.run_id = c.run_id AND r.expires = c.expires \
     WHERE c.project_id = $1 AND r.branch_id = $2 AND r.environment_id = $3 AND c.metric IN ($4, $5) \
     ORDER BY r.place DESC, r.started_us DESC, r.run_id DESC LIMIT 2000";

pub(super) const NEWEST_COLUMNS: &str = "SELECT c.run_id, c.metric, c.data FROM run_column c WHERE c.project_id = $1 \
     AND c.run_id IN (SELECT r.run_id FROM run r WHERE r.project_id = $1 AND r.branch_id = $2 AND r.environment_id = $3 \
     AND r.on_line = 1 ORDER BY r.place DESC, r.started_us DESC, r.run_id DESC LIMIT $4)";

pub(super) const ADD_EXCEPTION: &str = "INSERT INTO exception (project_id, run_id, test_id, outcome, verdict, judged, reason, expires) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
pub(super) const EXCEPTIONS: &str =
    "SELECT test_id, outcome, verdict, reason FROM exception WHERE project_id = $1 AND run_id = $2";
pub(super) const VERDICTS_OF_TWO: &str =
    "SELECT run_id, test_id, verdict, judged FROM exception WHERE project_id = $1 AND run_id IN ($2, $3)";
pub(super) const NOT_JUDGED: &str =
    "SELECT run_id FROM exception WHERE project_id = $1 AND test_id = $2 AND judged = 0";
pub(super) const NOT_JUDGED_BY: &str =
    "SELECT test_id FROM exception WHERE project_id = $1 AND run_id = $2 AND judged = 0";

/// Takes sixteen names.
pub(super) const LEAK_IDS: &str = "SELECT leak_id, fingerprint FROM leak WHERE project_id = $1 AND fingerprint IN \
     ($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)";
pub(super) const LEAK: &str =
    "SELECT leak_id, fingerprint, body FROM leak WHERE project_id = $1 AND fingerprint = $2";
pub(super) const LEAK_BODIES: &str =
    "SELECT leak_id, fingerprint, body FROM leak WHERE project_id = $1 AND leak_id IN ($2)";
pub(super) const ADD_LEAK: &str =
    "INSERT INTO leak (project_id, leak_id, fingerprint, body) VALUES ($1, $2, $3, $4)";
/// For leaks that are there: how they look now.
pub(super) const SET_LEAK: &str = "INSERT INTO leak (project_id, leak_id, fingerprint, body) VALUES ($1, $2, $3, $4) \
     ON CONFLICT (project_id, fingerprint) DO UPDATE SET body = excluded.body WHERE leak.body <> excluded.body";

pub(super) const ADD_SIGHTING: &str = "INSERT INTO sighting (project_id, leak_id, run_id, test_id, how, bytes, objects, expires) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
pub(super) const SIGHTINGS_OF_LINE: &str = "SELECT s.run_id, s.test_id, s.how, s.bytes, s.objects FROM sighting s \
     JOIN run r ON r.project_id = s.project_id AND r.run_id = s.run_id \
     WHERE s.project_id = $1 AND s.leak_id = $2 AND r.branch_id = $3 AND r.environment_id = $4 AND r.on_line = 1";
/// The first commit that saw a leak, from a run on. Uncommitted changes are no commit, and a one-time cost is no leak.
pub(super) const FIRST_COMMIT_WITH: &str = "SELECT r.commit_key FROM sighting s \
     JOIN run r ON r.project_id = s.project_id AND r.run_id = s.run_id \
     WHERE s.project_id = $1 AND r.branch_id = $2 AND r.environment_id = $3 AND s.leak_id = $4 AND r.on_line = 1 AND s.how <> 3 \
     AND r.commit_key NOT LIKE 'run-%' \
     AND r.place >= (SELECT e.place FROM run e WHERE e.project_id = $1 AND e.run_id = $5) ORDER BY r.place, r.run_id LIMIT 1";
pub(super) const SIGHTINGS_OF_TWO: &str = "SELECT s.run_id, l.fingerprint, l.body, t.suite, t.name, s.how, s.bytes \
     FROM sighting s JOIN leak l ON l.project_id = s.project_id AND l.leak_id = s.leak_id \
     JOIN test t ON t.project_id = s.project_id AND t.test_id = s.test_id WHERE s.project_id = $1 AND s.run_id IN ($2, $3) \
     ORDER BY s.bytes DESC, l.fingerprint, t.suite, t.name";
/// The largest sightings with the state of each leak on a line. A run may have 500,000, each with its leak's body.
pub(super) const SIGHTINGS_WITH_STATES: &str = "SELECT s.leak_id, l.fingerprint, l.body, t.suite, t.name, s.how, s.bytes, s.objects, n.state \
     FROM sighting s JOIN leak l ON l.project_id = s.project_id AND l.leak_id = s.leak_id \
     JOIN test t ON t.project_id = s.project_id AND t.test_id = s.test_id \
     LEFT JOIN leak_line n ON n.project_id = s.project_id AND n.leak_id = s.leak_id AND n.branch_id = $3 AND n.environment_id = $4 \
     WHERE s.project_id = $1 AND s.run_id = $2 ORDER BY s.bytes DESC, l.fingerprint, t.suite, t.name LIMIT 201";
pub(super) const SIGHTINGS_WITH_TESTS: &str = "SELECT s.run_id, t.suite, t.name, s.how, s.bytes, s.objects FROM sighting s \
     JOIN test t ON t.project_id = s.project_id AND t.test_id = s.test_id \
     WHERE s.project_id = $1 AND s.leak_id = $2 ORDER BY s.run_id DESC LIMIT 200";
macro_rules! last_tests {
    ($rest:literal) => {
        concat!(
            "SELECT s.leak_id, t.suite, t.name FROM leak_line l \
             JOIN sighting s ON s.project_id = l.project_id AND s.leak_id = l.leak_id AND s.run_id = l.last_run \
             JOIN test t ON t.project_id = s.project_id AND t.test_id = s.test_id \
             WHERE l.project_id = $1 AND l.branch_id = $2 AND l.environment_id = $3 AND s.how <> 3",
            $rest
        )
    };
}
pub(super) const LAST_TESTS: &str = last_tests!("");
/// Only those of the leaks in the list.
pub(super) const LAST_TESTS_OF: &str = last_tests!(" AND l.leak_id IN ($4)");

/// Tests that had one leak in the last run that saw it, on all lines.
pub(super) const TESTS_OF_LEAK: &str = "SELECT l.branch_id, l.environment_id, t.suite, t.name FROM leak_line l \
     JOIN sighting s ON s.project_id = l.project_id AND s.leak_id = l.leak_id AND s.run_id = l.last_run \
     JOIN test t ON t.project_id = s.project_id AND t.test_id = s.test_id \
     WHERE l.project_id = $1 AND l.leak_id = $2 AND s.how <> 3";

pub(super) const HAS_LEAKS: &str = "SELECT leak_id FROM leak_line WHERE project_id = $1 AND branch_id = $2 AND environment_id = $3 AND leak_id IN ($4)";
pub(super) const LINE_STATES: &str =
    "SELECT leak_id, state FROM leak_line WHERE project_id = $1 AND branch_id = $2 AND environment_id = $3";
/// Leaks that are alive, or were closed by an earlier run of this commit, or whose fix no commit has confirmed.
pub(super) const FOLLOWED: &str = "SELECT leak_id, followed FROM leak_line WHERE project_id = $1 AND branch_id = $2 \
     AND environment_id = $3 AND (state IN (1, 2, 4) OR followed_key = $4 \
     OR (state = 3 AND fixed_key LIKE 'run-%' AND $4 NOT LIKE 'run-%')) ORDER BY leak_id";
pub(super) const SET_LEAK_LINE: &str = "INSERT INTO leak_line (project_id, branch_id, environment_id, leak_id, state, flaky, waived, \
     first_key, clean_key, last_key, fixed_key, since_us, last_run, recent, rate, bytes, objects, followed_key, followed) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19) \
     ON CONFLICT (project_id, branch_id, environment_id, leak_id) DO UPDATE SET state = excluded.state, flaky = excluded.flaky, \
     waived = excluded.waived, first_key = excluded.first_key, clean_key = excluded.clean_key, last_key = excluded.last_key, \
     fixed_key = excluded.fixed_key, since_us = excluded.since_us, last_run = excluded.last_run, recent = excluded.recent, \
     rate = excluded.rate, bytes = excluded.bytes, objects = excluded.objects, followed_key = excluded.followed_key, \
     followed = excluded.followed";
macro_rules! leak_lines {
    ($columns:literal, $joins:literal, $rest:literal) => {
        concat!(
            "SELECT l.leak_id, k.fingerprint, k.body, l.state, l.flaky, l.waived, l.first_key, l.clean_key, l.last_key, \
             l.fixed_key, l.since_us, l.last_run, l.recent, l.rate, l.bytes, l.objects, l.branch_id, l.environment_id",
            $columns,
            " FROM leak_line l JOIN leak k ON k.project_id = l.project_id AND k.leak_id = l.leak_id",
            $joins,
            " WHERE l.project_id = $1",
            $rest
        )
    };
}
/// The list is expanded to the number of leaks.
pub(super) const LEAKS_ON_LINE: &str =
    leak_lines!("", "", " AND l.branch_id = $2 AND l.environment_id = $3 AND l.leak_id IN ($4)");
macro_rules! of_line {
    ($columns:literal, $rest:literal) => {
        concat!(
            "SELECT l.leak_id, k.fingerprint, ",
            $columns,
            " FROM leak_line l JOIN leak k ON k.project_id = l.project_id AND k.leak_id = l.leak_id \
             WHERE l.project_id = $1 AND l.branch_id = $2 AND l.environment_id = $3",
            $rest
        )
    };
}
pub(super) const LEAK_HEADS_OF_LINE: &str = of_line!("l.state, l.waived, l.bytes", "");
pub(super) const BODIES_OF_LINE: &str = of_line!("k.body", "");
/// Bodies with owners.
pub(super) const OWNED_OF_LINE: &str = of_line!("k.body", " AND k.body LIKE '%\"owners\":[%'");
/// The worst leaks of a line that are alive: as [`State`](memgate_history::life::State) orders them.
pub(super) const WORST_OF_LINE: &str = leak_lines!(
    "",
    "",
    " AND l.branch_id = $2 AND l.environment_id = $3 AND l.leak_id IN (SELECT leak_id FROM leak_line w WHERE w.project_id = $1 \
     AND w.branch_id = $2 AND w.environment_id = $3 AND w.state IN (1, 2, 4) \
     ORDER BY w.waived, CASE w.state WHEN 1 THEN 0 WHEN 4 THEN 1 ELSE 2 END, w.bytes DESC, w.leak_id LIMIT $4)"
);
/// How many leaks a line has, by state, and whether they come and go. Of a leak that is fixed or gone, only the commits
/// that saw it tell that.
pub(super) const COUNTS_OF_LINE: &str = "SELECT state, flaky, CASE WHEN state IN (3, 5) AND rate < 1 THEN recent ELSE '' END, COUNT(*) \
     FROM leak_line WHERE project_id = $1 AND branch_id = $2 AND environment_id = $3 GROUP BY 1, 2, 3";
/// The worst leaks that a test had in the last run that saw them: as [`State`](memgate_history::life::State) orders
/// them.
pub(super) const LEAKS_OF_TEST: &str = leak_lines!(
    "",
    "",
    " AND l.branch_id = $2 AND l.environment_id = $3 AND l.leak_id IN (SELECT w.leak_id FROM leak_line w WHERE w.project_id = $1 \
     AND w.branch_id = $2 AND w.environment_id = $3 AND EXISTS (SELECT 1 FROM sighting s WHERE s.project_id = $1 \
     AND s.leak_id = w.leak_id AND s.run_id = w.last_run AND s.test_id = $4 AND s.how <> 3) \
     ORDER BY w.waived, CASE w.state WHEN 1 THEN 0 WHEN 4 THEN 1 WHEN 2 THEN 2 ELSE w.state + 3 END, w.bytes DESC, w.leak_id LIMIT $5)"
);
/// A leak with the names of its lines.
pub(super) const LINES_OF_LEAK: &str = leak_lines!(
    ", b.name, e.label",
    " JOIN branch b ON b.project_id = l.project_id AND b.branch_id = l.branch_id \
     JOIN environment e ON e.project_id = l.project_id AND e.environment_id = l.environment_id",
    " AND k.fingerprint = $2 ORDER BY l.branch_id, l.environment_id"
);

pub(super) const EVENTS: &str = "SELECT state, commit_key, before_key, run_id, at_us FROM event \
     WHERE project_id = $1 AND branch_id = $2 AND environment_id = $3 AND leak_id = $4";
pub(super) const SET_EVENT: &str = "INSERT INTO event (project_id, event_id, branch_id, environment_id, leak_id, state, commit_key, \
     before_key, run_id, at_us) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
     ON CONFLICT (project_id, branch_id, environment_id, leak_id, state, commit_key) \
     DO UPDATE SET before_key = excluded.before_key, run_id = excluded.run_id, at_us = excluded.at_us";
pub(super) const REMOVE_EVENT: &str = "DELETE FROM event WHERE project_id = $1 AND branch_id = $2 AND environment_id = $3 \
     AND leak_id = $4 AND state = $5 AND commit_key = $6";
pub(super) const REMOVE_LEAK_LINE: &str = "DELETE FROM leak_line WHERE project_id = $1 AND branch_id = $2 AND environment_id = $3 \
     AND leak_id = $4";
macro_rules! events {
    ($rest:literal) => {
        events!("", "", $rest)
    };
    ($columns:literal, $joins:literal, $rest:literal) => {
        concat!(
            "SELECT v.at_us, v.state, b.name, k.fingerprint, k.body, v.commit_key, v.before_key, v.run_id",
            $columns,
            " FROM event v \
             JOIN branch b ON b.project_id = v.project_id AND b.branch_id = v.branch_id \
             JOIN leak k ON k.project_id = v.project_id AND k.leak_id = v.leak_id",
            $joins,
            " WHERE v.project_id = $1",
            $rest
        )
    };
}
pub(super) const EVENTS_OF_LINE: &str = events!(
    " AND v.branch_id = $2 AND v.environment_id = $3 ORDER BY v.at_us DESC, v.event_id DESC LIMIT 20"
);
/// Events of the leaks that a test had in the last run that saw them.
pub(super) const EVENTS_OF_TEST: &str = events!(
    " AND v.branch_id = $2 AND v.environment_id = $3 AND v.leak_id IN (SELECT w.leak_id FROM leak_line w WHERE w.project_id = $1 \
     AND w.branch_id = $2 AND w.environment_id = $3 AND EXISTS (SELECT 1 FROM sighting s WHERE s.project_id = $1 \
     AND s.leak_id = w.leak_id AND s.run_id = w.last_run AND s.test_id = $4 AND s.how <> 3)) \
     ORDER BY v.at_us DESC, v.event_id DESC LIMIT 200"
);
/// Those of one line first. A run of an old commit is newer than runs of later ones: the place counts.
pub(super) const EVENTS_OF_LEAK: &str = events!(
    ", v.branch_id, v.environment_id",
    " JOIN run r ON r.project_id = v.project_id AND r.run_id = v.run_id",
    " AND v.leak_id = $4 ORDER BY CASE WHEN v.branch_id = $2 AND v.environment_id = $3 THEN 0 ELSE 1 END, \
     v.branch_id, v.environment_id, r.place DESC, v.at_us DESC, v.event_id DESC LIMIT 200"
);
/// Events without a claim that is valid at $4, or a result, for channel $2; not older than the id $3. That a leak
/// becomes known (2) is not reported; that it is larger (6), with the figure of its test.
macro_rules! due {
    ($first:literal, $rest:literal) => {
        concat!(
            $first,
            " FROM event v \
             JOIN leak_line l ON l.project_id = v.project_id AND l.branch_id = v.branch_id AND l.environment_id = v.environment_id \
             AND l.leak_id = v.leak_id \
             LEFT JOIN notice n ON n.project_id = v.project_id AND n.channel = $2 AND n.branch_id = v.branch_id \
             AND n.leak_id = v.leak_id AND n.state = v.state AND n.commit_key = v.commit_key \
             WHERE v.project_id = $1 AND v.event_id > $3 AND v.state NOT IN (2, 6) AND l.waived = 0 \
             AND (n.claimed_us IS NULL OR (n.told_us IS NULL AND n.claimed_us < $4))",
            $rest
        )
    };
}
pub(super) const DUE_RUNS: &str = due!("SELECT DISTINCT v.run_id", " ORDER BY v.run_id LIMIT 1000");
/// Claims the due events of a run. One statement: of two servers that try at the same time, one gets all. The order
/// lets the other one wait at its first row; it never gets a part.
pub(super) const CLAIM_NOTICES: &str = due!(
    "INSERT INTO notice (project_id, channel, branch_id, leak_id, state, commit_key, claimed_us) \
     SELECT v.project_id, $2, v.branch_id, v.leak_id, v.state, v.commit_key, $6",
    " AND v.run_id = $5 ORDER BY v.branch_id, v.leak_id, v.state, v.commit_key \
     ON CONFLICT (project_id, channel, branch_id, leak_id, state, commit_key) DO UPDATE SET claimed_us = excluded.claimed_us \
     WHERE notice.told_us IS NULL AND notice.claimed_us < $4 RETURNING branch_id, leak_id, state, commit_key"
);
/// An event took the place of another one, of commit $5: who was told about that one, is not told again.
pub(super) const MOVE_NOTICES: &str = "INSERT INTO notice (project_id, channel, branch_id, leak_id, state, commit_key, claimed_us, told_us) \
     SELECT project_id, channel, branch_id, leak_id, state, $6, claimed_us, told_us FROM notice \
     WHERE project_id = $1 AND branch_id = $2 AND leak_id = $3 AND state = $4 AND commit_key = $5 AND told_us IS NOT NULL \
     ON CONFLICT (project_id, channel, branch_id, leak_id, state, commit_key) DO NOTHING";
pub(super) const TOLD_NOTICE: &str = "UPDATE notice SET told_us = $7 WHERE project_id = $1 AND channel = $2 AND branch_id = $3 \
     AND leak_id = $4 AND state = $5 AND commit_key = $6";
/// Leaks that the commit of a run showed to be larger and that still count, each with its tests in this run.
pub(super) const LARGER_OF_RUN: &str = "SELECT s.leak_id, t.suite, t.name FROM run r \
     JOIN event v ON v.project_id = r.project_id AND v.branch_id = r.branch_id AND v.environment_id = r.environment_id \
     AND v.commit_key = r.commit_key AND v.state = 6 \
     JOIN leak_line l ON l.project_id = v.project_id AND l.branch_id = v.branch_id AND l.environment_id = v.environment_id \
     AND l.leak_id = v.leak_id AND l.state IN (1, 2, 4) AND l.waived = 0 \
     JOIN sighting s ON s.project_id = v.project_id AND s.leak_id = v.leak_id AND s.run_id = r.run_id AND s.how = 1 \
     JOIN test t ON t.project_id = s.project_id AND t.test_id = s.test_id \
     WHERE r.project_id = $1 AND r.branch_id = $2 AND r.environment_id = $3 AND r.run_id = $4 ORDER BY 1, 2, 3";
/// Leaks that are fixed, since then.
pub(super) const FIXED_SINCE: &str = "SELECT COUNT(DISTINCT l.leak_id) FROM leak_line l \
     JOIN event v ON v.project_id = l.project_id AND v.branch_id = l.branch_id AND v.environment_id = l.environment_id \
     AND v.leak_id = l.leak_id AND v.state = l.state \
     WHERE l.project_id = $1 AND l.branch_id = $2 AND l.environment_id = $3 AND l.state = 3 AND v.at_us >= $4";

pub(super) const RUNS_AFTER: &str = "SELECT run_id, roster_id, expires FROM run WHERE project_id = $1 AND run_id > $2 ORDER BY run_id LIMIT 500";
pub(super) const NEWEST_BEFORE: &str = "SELECT MAX(run_id) FROM run WHERE project_id = $1 AND run_id < $2";
/// Runs whose figures have expired, some at a time; `expires` is 0 if they are already removed.
pub(super) const EXPIRED: &str =
    "SELECT run_id FROM run WHERE project_id = $1 AND expires > 0 AND expires < $2 LIMIT 20";
pub(super) const SET_EXPIRED: &str =
    "UPDATE run SET expires = 0 WHERE project_id = $1 AND expires > 0 AND expires < $2";
pub(super) const SET_RUN_EXPIRED: &str = "UPDATE run SET expires = 0 WHERE project_id = $1 AND run_id = $2";
pub(super) const REMOVE_COLUMNS: &str =
    "DELETE FROM run_column WHERE project_id = $1 AND run_id = $2 AND expires < $3";
pub(super) const REMOVE_EXCEPTIONS: &str =
    "DELETE FROM exception WHERE project_id = $1 AND run_id = $2 AND expires < $3";
pub(super) const REMOVE_SIGHTINGS: &str =
    "DELETE FROM sighting WHERE project_id = $1 AND run_id = $2 AND expires < $3";

/// Tokens are outside of projects: a token is looked up before its project is known.
pub(super) const ADD_TOKEN: &str = "INSERT INTO token (token_id, digest, project, branches, created_us, expires_us) \
     VALUES ($1, $2, $3, $4, $5, $6)";
pub(super) const TOKENS: &str = "SELECT token_id, project, branches, created_us, expires_us, used_us, revoked_us FROM token \
     ORDER BY created_us, token_id";
pub(super) const TOKEN: &str = "SELECT token_id, project, branches, created_us, expires_us, used_us, revoked_us FROM token WHERE digest = $1";
/// Rules for signed tokens are outside of projects, too.
pub(super) const ADD_RULE: &str = "INSERT INTO oidc_rule (rule_id, project, provider, issuer, subject, audience, branches, created_us) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
pub(super) const RULES: &str = "SELECT rule_id, project, provider, issuer, subject, audience, branches FROM oidc_rule ORDER BY created_us, rule_id";
pub(super) const REMOVE_RULE: &str = "DELETE FROM oidc_rule WHERE rule_id = $1";
pub(super) const ANY_RULE: &str = "SELECT rule_id FROM oidc_rule LIMIT 1";
pub(super) const REMOVE_USES: &str = "DELETE FROM oidc_use WHERE expires_us < $1";
pub(super) const ADD_USE: &str = "INSERT INTO oidc_use (digest, run_key, expires_us) VALUES ($1, $2, $3)";
pub(super) const USE: &str = "SELECT run_key FROM oidc_use WHERE digest = $1";
pub(super) const ANY_TOKEN: &str = "SELECT token_id FROM token LIMIT 1";
pub(super) const USE_TOKEN: &str =
    "UPDATE token SET used_us = $2 WHERE token_id = $1 AND (used_us IS NULL OR used_us < $3)";
pub(super) const REVOKE_TOKEN: &str =
    "UPDATE token SET revoked_us = $2 WHERE token_id = $1 AND revoked_us IS NULL";

/// Accounts are outside of projects: one may read several.
pub(super) const READER: &str = "SELECT CAST(1 AS BIGINT), pattern, '' FROM members_only UNION ALL \
     SELECT CAST(2 AS BIGINT), a.name, a.projects FROM account a JOIN web_session s ON s.account = a.name \
     WHERE s.digest = $1 AND s.expires_us > $2";
pub(super) const ADD_ACCOUNT: &str = "INSERT INTO account (name, password, projects, created_us) SELECT $1, $2, $3, $4 \
     WHERE NOT EXISTS (SELECT 1 FROM account WHERE name = $1)";
pub(super) const SET_PASSWORD: &str = "UPDATE account SET password = $2 WHERE name = $1";
pub(super) const SET_PROJECTS: &str = "UPDATE account SET projects = $2 WHERE name = $1";
pub(super) const USE_ACCOUNT: &str = "UPDATE account SET used_us = $3 WHERE name = $1 AND password = $2";
pub(super) const REMOVE_ACCOUNT: &str = "DELETE FROM account WHERE name = $1";
pub(super) const ACCOUNTS: &str = "SELECT name, projects, created_us, used_us FROM account ORDER BY name";
pub(super) const PASSWORD: &str = "SELECT password FROM account WHERE name = $1";
pub(super) const ADD_SESSION: &str =
    "INSERT INTO web_session (digest, account, expires_us) VALUES ($1, $2, $3)";
pub(super) const REMOVE_SESSIONS: &str = "DELETE FROM web_session WHERE expires_us <= $1";
pub(super) const END_SESSION: &str = "DELETE FROM web_session WHERE digest = $1";
pub(super) const END_SESSIONS: &str = "DELETE FROM web_session WHERE account = $1";
pub(super) const MEMBERS_ONLY: &str = "SELECT pattern FROM members_only ORDER BY pattern";
pub(super) const ADD_MEMBERS_ONLY: &str = "INSERT INTO members_only (pattern, created_us) SELECT $1, $2 \
     WHERE NOT EXISTS (SELECT 1 FROM members_only WHERE pattern = $1)";
pub(super) const REMOVE_MEMBERS_ONLY: &str = "DELETE FROM members_only WHERE pattern = $1";

pub(super) const ARTEFACTS: &str =
    "SELECT name, bytes FROM artefact WHERE project_id = $1 AND run_id = $2 ORDER BY name";
pub(super) const ADD_ARTEFACT: &str = "INSERT INTO artefact (project_id, run_id, name, bytes, expires_us) \
     VALUES ($1, $2, $3, $4, $5) ON CONFLICT (project_id, run_id, name) DO NOTHING";
pub(super) const ENDED_ARTEFACTS: &str = "SELECT run_id, name FROM artefact WHERE project_id = $1 AND expires_us <= $2 ORDER BY expires_us LIMIT 1000";
pub(super) const REMOVE_ARTEFACT: &str =
    "DELETE FROM artefact WHERE project_id = $1 AND run_id = $2 AND name = $3";

/// Lines with recent runs, each with the last run on it.
pub(super) const LAST_OF_LINES: &str = "SELECT n.branch_id, n.environment_id, (SELECT q.run_id FROM run q \
     WHERE q.project_id = n.project_id AND q.branch_id = n.branch_id AND q.environment_id = n.environment_id AND q.on_line = 1 \
     ORDER BY q.place DESC, q.started_us DESC, q.run_id DESC LIMIT 1) FROM line n \
     WHERE n.project_id = $1 AND n.is_line = 1 AND n.newest_us > $2 ORDER BY n.branch_id, n.environment_id";
/// A new channel gets no reports of earlier shifts.
pub(super) const BEGIN_SHIFTS: &str = "INSERT INTO shift_notice (project_id, channel, branch_id, environment_id, told_run, claimed_us) \
     VALUES ($1, $2, $3, $4, $5, 0) ON CONFLICT (project_id, channel, branch_id, environment_id) DO NOTHING";
pub(super) const TOLD_SHIFTS: &str = "SELECT told_run FROM shift_notice WHERE project_id = $1 AND channel = $2 AND branch_id = $3 AND environment_id = $4";
pub(super) const CLAIM_SHIFTS: &str = "UPDATE shift_notice SET claimed_us = $6 WHERE project_id = $1 AND channel = $2 \
     AND branch_id = $3 AND environment_id = $4 AND told_run = $5 AND claimed_us < $7";
pub(super) const SET_TOLD_SHIFTS: &str = "UPDATE shift_notice SET told_run = $5, claimed_us = 0 WHERE project_id = $1 AND channel = $2 \
     AND branch_id = $3 AND environment_id = $4 AND (told_run < $5 OR told_run >= $6)";
