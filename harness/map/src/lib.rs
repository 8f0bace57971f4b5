//! The harness's unsafe fence: the shared control page of a spool
