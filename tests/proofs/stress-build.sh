# Sourced by `stress` and `faults`: the stress program, its plugins, and one run of it.

needs c++ g++

build_stress() {
  local sources=$root/tests/samples/proofs pad
  for pad in 0 1 2; do
    cc -O1 -shared -fPIC -DPAD=$((32 + 32 * pad)) "$sources/stress_plugin.c" -o "$scratch/plugin$pad.so"
  done
  c++ -std=c++17 -O2 -g -I"$root/device-agent/include" "$sources/stress.cc" -o "$scratch/stress" -lpthread -ldl
}

# run_stress AGENT OPTION…: runs the program with the agent. The caller may set GLIBC_TUNABLES.
run_stress() {
  local agent=$1 spools
  shift
  spools=$(mktemp -d -p "$scratch")
  LD_PRELOAD=$agent MEMGATE_AGENT_OPTIONS="dir=$spools;target=all;wait_ms=0" \
    timeout --kill-after=5 1800 "$scratch/stress" --plugins="$scratch" "$@"
}

# One arena for all threads and no per-thread cache: another thread gets a freed block at once.
readonly without_caches=glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1
