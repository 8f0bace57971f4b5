// Which test allocated it? Threads that outlive the test that started them, pools that serve several tests, blocks that
// are freed or reallocated in a later test. Each leak belongs to the test that was running when it was allocated.
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "sample.h"

namespace epochs {

// Threads that run functions one after the other. They start with the first test that needs them and end with the
// process.
class Pool {
public:
    explicit Pool(int size) {
        threads.reserve(static_cast<size_t>(size));
        for (int i = 0; i < size; ++i) threads.emplace_back([this] { serve(); });
    }

    ~Pool() {
        {
            std::lock_guard<std::mutex> lock(mutex);
            stopping = true;
        }
        changed.notify_all();
        for (std::thread& thread : threads) thread.join();
    }

    // Returns when one of the threads has run the function.
    void run(void (*function)()) {
        std::unique_lock<std::mutex> lock(mutex);
        job = function;
        done = false;
        changed.notify_all();
        changed.wait(lock, [this] { return done; });
    }

private:
    void serve() {
        std::unique_lock<std::mutex> lock(mutex);
        for (;;) {
            changed.wait(lock, [this] { return stopping || job; });
            if (!job) return;
            void (*function)() = job;
            job = nullptr;
            lock.unlock();
            function();
            lock.lock();
            done = true;
            changed.notify_all();
        }
    }

    std::mutex mutex;
    std::condition_variable changed;
    void (*job)() = nullptr;
    bool done = false;
    bool stopping = false;
    std::vector<std::thread> threads;
};

Pool& background() {
    static Pool one(1);
    return one;
}

Pool& pool() {
    static Pool four(4);
    return four;
}

NOINLINE void fetch() {
    void* page = std::malloc(137);  // LEAK: background
    escape(page);
}

NOINLINE void resize_image() {
    void* pixels = std::malloc(149);  // LEAK: pooled
    escape(pixels);
}

NOINLINE void compress_image() {
    void* pixels = std::malloc(151);  // LEAK: pooled later
    escape(pixels);
}

NOINLINE void count_pixels() {
    void* pixels = std::malloc(149);
    escape(pixels);
    std::free(pixels);
}

// At most one letter waits.
void* letter = nullptr;

NOINLINE void write_letter() {
    std::free(letter);
    letter = std::malloc(163);
    escape(letter);
}

// Frees a block of an earlier test and loses its own: the number of live bytes stays the same.
NOINLINE void answer_letter() {
    std::free(letter);
    letter = nullptr;
    void* answer = std::malloc(163);  // LEAK: in exchange
    escape(answer);
}

struct Log {
    char* text = nullptr;
    size_t size = 0;

    NOINLINE void open() {
        if (text) return;
        size = 173;
        text = static_cast<char*>(std::malloc(size));
        escape(text);
    }
    NOINLINE void append() {
        text = static_cast<char*>(std::realloc(text, size + 59));  // LEAK: appended
        escape(text);
        size += 59;
    }
};

Log shared_log;

// A function that one test sets and the pool runs in the next test.
void (*postponed)() = nullptr;

NOINLINE void file_report() {
    void* report = std::malloc(179);  // LEAK: postponed
    escape(report);
}

NOINLINE void lose_between_tests() {
    void* block = std::malloc(191);  // LEAK: between
    escape(block);
}

}  // namespace epochs

TEST(Background, Starts) { epochs::background(); }

TEST(Background, Allocates) { epochs::background().run(epochs::fetch); }

TEST(Background, IsIdle) { epochs::background().run([] {}); }

TEST(Pool, Starts) { epochs::pool().run(epochs::count_pixels); }

TEST(Pool, Resizes) {
    for (int i = 0; i < 2; ++i) epochs::pool().run(epochs::resize_image);
}

TEST(Pool, Counts) {
    for (int i = 0; i < 8; ++i) epochs::pool().run(epochs::count_pixels);
}

TEST(Pool, Compresses) {
    for (int i = 0; i < 3; ++i) epochs::pool().run(epochs::compress_image);
}

TEST(LateFree, Writes) { epochs::write_letter(); }

TEST(LateFree, Waits) { EXPECT_NE(&epochs::letter, nullptr); }

TEST(LateFree, Answers) { epochs::answer_letter(); }

TEST(LateFree, Frees) {
    std::free(epochs::letter);
    epochs::letter = nullptr;
}

TEST(Realloc, Opens) { epochs::shared_log.open(); }

TEST(Realloc, Appends) { epochs::shared_log.append(); }

TEST(Realloc, Reads) { EXPECT_GE(epochs::shared_log.size + 1, 1u); }

TEST(Postponed, Orders) { epochs::postponed = epochs::file_report; }

TEST(Postponed, Happens) {
    if (!epochs::postponed) epochs::postponed = epochs::file_report;
    epochs::pool().run(epochs::postponed);
    epochs::postponed = nullptr;
}

class Between : public testing::Test {
protected:
    static void TearDownTestSuite() { epochs::lose_between_tests(); }
};

TEST_F(Between, Comes) {}

TEST(Between2, Follows) {}
