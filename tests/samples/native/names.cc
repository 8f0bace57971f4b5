// Test names that macros do not allow but `testing::RegisterTest` does (GoogleTest 1.10 and later).
#include <string>

#include "sample.h"

namespace names {

NOINLINE void lose_letter() {
    char* letter = new char[73];  // LEAK: name
    escape(letter);
}

struct Fixture : testing::Test {};

struct Plain : Fixture {
    void TestBody() override {}
};

struct Leaky : Fixture {
    void TestBody() override { lose_letter(); }
};

template <class Test>
void add(char const* suite, std::string const& name) {
    testing::RegisterTest(suite, name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          []() -> Fixture* { return new Test; });
}

bool const added = [] {
    add<Leaky>("Names", "closes ]]> CDATA");
    add<Leaky>("Names", "<a href=\"x\">&amp;'</a>");
    add<Leaky>("Names", "bell \a, escape \x1b[31m, one \x01");
    add<Leaky>("Names", "two\nlines");
    add<Leaky>("Names", "not UTF-8 \xff\xfe");
    add<Leaky>("Names", "a-dash, a:colon, a*star, a?mark");
    add<Leaky>("Names", "../../etc/passwd");
    add<Plain>("Names", "");
    add<Plain>("Names", std::string(5000, 'n'));
    add<Plain>("Größe", "Übermaß 長い名前 🦀");
    add<Plain>("Names.with.dots", "and/slashes");
    return true;
}();

}  // namespace names
