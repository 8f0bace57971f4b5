/* What libart and its plugin take from other headers on Android. */
#include <cstddef>
#include <cassert>
#include <memory>
#include <string>
#include <iterator>
using std::nullptr_t;
