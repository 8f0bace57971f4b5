// A suite whose second test never ends; only a signal stops it.
#include <unistd.h>

#include "sample.h"

namespace crash {

NOINLINE void wait_for_ever() {
    for (;;) pause();  // CRASH: hang
}

}  // namespace crash

TEST(Crash, Before) {}

TEST(Crash, Hang) { crash::wait_for_ever(); }

TEST(Crash, After) {}
