// A plain program without a test runner: `--count=N` repeats its work N times and leaves 24 + 67 bytes each time.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>

#include "escape.h"

namespace command {

std::list<int> orders;

NOINLINE void take_order(int number) {
    orders.push_back(number);
}

NOINLINE void print_receipt() {
    char* receipt = static_cast<char*>(std::malloc(67));  // LEAK: receipt
    escape(receipt);
}

}  // namespace command

int main(int argc, char** argv) {
    int count = 1;
    for (int i = 1; i < argc; ++i) {
        if (std::strncmp(argv[i], "--count=", 8) == 0) count = std::atoi(argv[i] + 8);
    }
    for (int i = 0; i < count; ++i) {
        command::take_order(i);
        command::print_receipt();
    }
    std::printf("%d orders\n", count);
}
