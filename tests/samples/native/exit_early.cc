// A suite that leaves by _exit(0) in its second test: the exit code says success, but a test was never run.
#include <unistd.h>

#include "sample.h"

namespace crash {

NOINLINE void leave() { _exit(0); }  // CRASH: exit

}  // namespace crash

TEST(Crash, Before) {}

TEST(Crash, Exit) { crash::leave(); }

TEST(Crash, After) {}
