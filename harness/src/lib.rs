//! Keeps memory leaks out of the main branch: runs the tests, measures what each leaves behind, judges
