// Shared by all sample suites.
#pragma once

#include <gtest/gtest.h>

#include "escape.h"

// GoogleTest 1.8 has an older name for one macro and lacks the other.
#ifndef INSTANTIATE_TEST_SUITE_P
#define INSTANTIATE_TEST_SUITE_P INSTANTIATE_TEST_CASE_P
#endif
#ifndef GTEST_SKIP
#define GTEST_SKIP() return
#endif
