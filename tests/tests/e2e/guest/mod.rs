//! The agent as a guest: programs behave with it as they do alone, and what it could not measure is said.

mod allocators;
mod disks;
mod ends;
mod foreign;
mod kills;
mod libraries;
pub(crate) mod life;
mod limits;
mod memory;
mod processes;
pub(crate) mod rules;
mod sanitizers;
mod signals;
mod socket_peers;
mod surroundings;

/// For suites that leave much behind, from many places: `deep(15, path)` allocates from another place for each path.
const DEEP: &str = r#"
#include <stdlib.h>
static void *volatile sink;
__attribute__((noinline)) void *deep(int depth, unsigned path);
__attribute__((noinline)) void *left(int depth, unsigned path) { void *p = deep(depth, path); sink = p; return p; }
__attribute__((noinline)) void *right(int depth, unsigned path) { void *p = deep(depth, path); sink = p; return p; }
void *deep(int depth, unsigned path) {
  if (depth == 0) return malloc(9 + path % 7);
  return path & 1 ? left(depth - 1, path >> 1) : right(depth - 1, path >> 1);
}
"#;
