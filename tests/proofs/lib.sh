# Sourced by the proofs. Every proof takes --short, prints what it proves and its figures, and exits 0 (proven), 1
# (refuted) or 2 (could not run).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
short=0
for argument in "$@"; do [ "$argument" = --short ] && short=1; done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Prints the path of the agent's library: $MEMGATE_AGENT, or a build from this tree.
agent_so() {
  if [ -n "${MEMGATE_AGENT:-}" ]; then
    echo "$MEMGATE_AGENT"
    return
  fi
  # The folder in which harness/build builds it, so that it is not built twice.
  local target=${CARGO_TARGET_DIR:-$root/target}/memgate-agent
  CARGO_TARGET_DIR=$target cargo build --quiet --locked --manifest-path "$root/Cargo.toml" -p memgate-agent --profile agent >&2
  echo "$target/agent/libmemgate_agent.so"
}

# Prints the path of the memgate program: $MEMGATE_BIN, or a build from this tree.
memgate_bin() {
  if [ -n "${MEMGATE_BIN:-}" ]; then
    echo "$MEMGATE_BIN"
    return
  fi
  # Optimised, because some proofs measure time. CI runs none of these and names its existing program.
  cargo build --quiet --locked --release --manifest-path "$root/Cargo.toml" --bin memgate >&2
  echo "${CARGO_TARGET_DIR:-$root/target}/release/memgate"
}

# Runs the end-to-end tests with these arguments. Built as by `tests/run`, so that nothing is rebuilt.
e2e() {
  cargo test --quiet --locked --manifest-path "$root/Cargo.toml" --workspace --test e2e -- "$@"
}

# needs COMMAND PACKAGE: ends the proof with a message if a program is missing.
needs() {
  command -v "$1" >/dev/null || { echo "cannot run: $1 is missing (Debian package $2)" >&2; exit 2; }
}
