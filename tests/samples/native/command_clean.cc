// A plain program without a test runner: `--count=N` repeats its work N times and leaves one table, whatever N is.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "escape.h"

namespace command {

NOINLINE size_t compute(int number) {
    static char* table = new char[769];  // once per process
    escape(table);
    return std::string(static_cast<size_t>(41 + number % 7), 'x').size();
}

}  // namespace command

int main(int argc, char** argv) {
    int count = 1;
    for (int i = 1; i < argc; ++i) {
        if (std::strncmp(argv[i], "--count=", 8) == 0) count = std::atoi(argv[i] + 8);
    }
    size_t sum = 0;
    for (int i = 0; i < count; ++i) sum += command::compute(i);
    std::printf("%zu\n", sum);
}
