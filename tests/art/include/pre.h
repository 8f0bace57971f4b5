/* Declarations that libart and its plugin get from other headers on Android. */
#include <cstddef>
#include <cassert>
#include <memory>
#include <string>
#include <iterator>
using std::nullptr_t;
