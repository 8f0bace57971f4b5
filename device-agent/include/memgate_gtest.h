// Test boundaries for stripped and statically linked GoogleTest binaries, in which the agent cannot find GoogleTest
// itself. In main, after InitGoogleTest:
//   testing::UnitTest::GetInstance()->listeners().Append(new memgate::Listener);
// The listener does nothing if the agent has found GoogleTest or is not loaded.
#ifndef MEMGATE_GTEST_H
#define MEMGATE_GTEST_H

#include <gtest/gtest.h>

#include "memgate.h"

extern "C" MEMGATE_WEAK int memgate_has_gtest_listener(void);

namespace memgate {

class Listener : public testing::EmptyTestEventListener {
  static bool Wanted() { return MemgateActive() && !(memgate_has_gtest_listener && memgate_has_gtest_listener()); }
  void OnTestIterationStart(const testing::UnitTest &, int iteration) override {
    if (Wanted()) MemgateIteration(static_cast<uint32_t>(iteration));
  }
  void OnTestStart(const testing::TestInfo &info) override {
    if (Wanted()) MemgateTestBegin(info.test_suite_name(), info.name());
  }
  void OnTestEnd(const testing::TestInfo &info) override {
    if (!Wanted()) return;
    const testing::TestResult &result = *info.result();
    MemgateTestEnd(info.test_suite_name(), info.name(),
                   result.Failed() ? MEMGATE_FAILED : result.Skipped() ? MEMGATE_SKIPPED : MEMGATE_PASSED);
  }
};

}  // namespace memgate
#endif
