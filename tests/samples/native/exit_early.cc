// A suite whose second test calls _exit(0): the exit code means success, but one test never ran.
#include <unistd.h>

#include "sample.h"

namespace crash {

NOINLINE void leave() { _exit(0); }  // CRASH: exit

}  // namespace crash

TEST(Crash, Before) {}

TEST(Crash, Exit) { crash::leave(); }

TEST(Crash, After) {}
