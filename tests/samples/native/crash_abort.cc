// A suite that calls abort in its second test.
#include <cstdlib>

#include "sample.h"

namespace crash {

NOINLINE void give_up() { std::abort(); }  // CRASH: abort

}  // namespace crash

TEST(Crash, Before) {}

TEST(Crash, Abort) { crash::give_up(); }

TEST(Crash, After) {}
