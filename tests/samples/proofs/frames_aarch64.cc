// Sections of tests/proofs/stacks that arm64 lacks: they need machine code or single steps.
#include "frames.h"

static void missing() { require(false, "this section is for x86-64"); }
void jit(int) { missing(); }
void plant(int) { missing(); }
void reload(int) { missing(); }
void converters(int) { missing(); }
void binding(int) { missing(); }
extern "C" {
void steps_on() { missing(); }
void steps_off() {}
void bare_restorer() {}
const char drap_begin[] = "", drap_end[] = "", drap_leaves[] = "", drap_left[] = "";
}
