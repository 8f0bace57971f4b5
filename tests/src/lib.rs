//! End-to-end tests and the sample suites they run
