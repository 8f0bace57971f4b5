// Replaces operator new, as many large programs do, and forwards to malloc: the agent still sees each block, and only
// once. Keeps 3 x 4241.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#include <cstdio>
#include <cstdlib>
#include <map>
#include <new>
#include <string>
#include <thread>
#include <vector>

static unsigned long made;

void* operator new(std::size_t bytes) {
    __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED);
    if (void* block = std::malloc(bytes ? bytes : 1)) return block;
    throw std::bad_alloc();
}
void* operator new[](std::size_t bytes) { return operator new(bytes); }
void operator delete(void* block) noexcept { std::free(block); }
void operator delete[](void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }
void operator delete[](void* block, std::size_t) noexcept { std::free(block); }

static char* kept[3];

static void work() {
    std::map<std::string, std::vector<int>> map;
    for (int i = 0; i < 5000; i++) map["a key that is too long for the small string " + std::to_string(i % 97)].push_back(i);
}

int main() {
    std::thread a(work), b(work);
    a.join();
    b.join();
    for (char*& block : kept) block = new char[4241];
    std::printf("%s\n", made > 10000 ? "replaced" : "not replaced");
    return 0;
}
