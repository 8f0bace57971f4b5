// A program for sanitizers; its argument selects what it does wrong. Its children are built the same way.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

static char* volatile kept[3];
static int shared;
static volatile int largest = 2147483647;

__attribute__((noinline)) static void lose() {
    char* volatile lost = new char[4241];
    std::memset(lost, 1, 4241);
    lost = nullptr;
}

static void work() {
    std::vector<std::string> all;
    for (int i = 0; i < 2000; i++) all.push_back("a text that does not fit into the object " + std::to_string(i));
}

int main(int count, char** arguments) {
    std::string how = count > 1 ? arguments[1] : "well";
    std::thread a(work), b(work);
    a.join();
    b.join();
    for (auto& block : kept) block = static_cast<char*>(std::malloc(4241));
    pid_t child = fork();
    if (child == 0) {
        work();
        std::exit(6);
    }
    int status = 0;
    waitpid(child, &status, 0);
    std::printf("child %d\n", WEXITSTATUS(status));
    if (how == "leak") lose();
    if (how == "after free") {
        std::free(kept[0]);
        std::printf("%d\n", kept[0][5]);
    }
    if (how == "race") {
        // One line for both threads, so that the reported line is always the same.
        auto race = [] { for (int i = 0; i < 1000; i++) shared++; };
        std::thread one(race), two(race);
        one.join();
        two.join();
    }
    if (how == "overflow") std::printf("%d\n", largest + count);
    if (how == "tree") {
        std::fflush(stdout);
        execlp("sh", "sh", "-c", "echo a shell; true | cat; exit 7", nullptr);
    }
    std::puts("done");
    return 0;
}
