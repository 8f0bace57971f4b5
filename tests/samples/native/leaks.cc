// One test for each way to leak. Each passes; truth.json lists what each leaves per iteration. Sizes are odd and
// distinct, so that a sum identifies its site. `LEAK: name` marks the line of the call that leaks.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "sample.h"

namespace leaks {

// --- blocks that nobody frees

struct Visit {
    char place[37];
};

struct Guestbook {
    std::list<Visit> visits;

    NOINLINE size_t remember(char const* place) {
        Visit visit{};
        std::strncpy(visit.place, place, sizeof visit.place - 1);
        visits.push_back(visit);  // LEAK: node
        return visits.size();
    }
};

Guestbook guestbook;  // outlives every test, so nothing here is unreachable: only growth shows the leak

NOINLINE int lose_array() {
    int sum = 0;
    for (int row = 0; row < 3; ++row) {
        int* cells = new int[37];  // LEAK: array
        escape(cells);
        cells[0] = row;
        sum += cells[0];
    }
    return sum;
}

struct Child;

struct Parent {
    std::shared_ptr<Child> child;
    char name[61];
};

struct Child {
    std::shared_ptr<Parent> parent;
    char name[109];
};

NOINLINE long make_family() {
    auto parent = std::make_shared<Parent>();  // LEAK: cycle
    parent->child = std::make_shared<Child>();
    parent->child->parent = parent;
    return parent.use_count();
}

NOINLINE int parse_header(char const* text) {
    char* copy = static_cast<char*>(std::malloc(1003));  // LEAK: exception
    escape(copy);
    if (text[0] != '#') throw std::runtime_error("no header");
    std::free(copy);
    return 1;
}

NOINLINE void render_tile(int* drawn) {
    void* pixels = std::malloc(277);  // LEAK: worker
    escape(pixels);
    ++*drawn;
}

NOINLINE size_t copy_title() {
    char* title = strdup("a title of sixty characters, which is fifty-nine and its end");  // LEAK: strdup
    escape(title);
    return std::strlen(title);
}

NOINLINE ssize_t first_line(FILE* file) {
    char* line = nullptr;
    size_t capacity = 0;
    ssize_t length = getline(&line, &capacity, file);  // LEAK: getline
    escape(line);
    return length;
}

// --- blocks that grow

struct Journal {
    char* text = nullptr;
    size_t size = 0;

    NOINLINE size_t append(size_t bytes) {
        text = static_cast<char*>(std::realloc(text, size + bytes));  // LEAK: realloc
        std::memset(text + size, '.', bytes);
        size += bytes;
        return size;
    }
};

Journal journal;

struct Reading {
    char raw[43];
};

std::vector<Reading> readings;

NOINLINE size_t record_reading() {
    readings.push_back(Reading{});  // LEAK: doubling
    return readings.size();
}

// --- the functions that allocate

struct Tile {
    ~Tile() { escape(this); }
    char pixels[29];
};

NOINLINE bool aligned_new() {
    void* line = ::operator new(203, std::align_val_t{64});  // LEAK: aligned_new
    escape(line);
    return reinterpret_cast<size_t>(line) % 64 == 0;
}

NOINLINE Tile* array_new() {
    Tile* tiles = new Tile[7];  // LEAK: array_new
    escape(tiles);
    return tiles;
}

NOINLINE int aligned_c() {
    void* page = nullptr;
    int error = posix_memalign(&page, 128, 229);  // LEAK: posix_memalign
    escape(page);
    return error;
}

// --- the part of the test that leaks

NOINLINE void* open_database() {
    void* database = std::calloc(1, 353);  // LEAK: fixture
    escape(database);
    return database;
}

NOINLINE int load(int level) {
    if (level != 3) return level;
    char* extra = new char[419];  // LEAK: parameter
    escape(extra);
    return level;
}

NOINLINE int poll_sensor() {
    static int polls = 0;
    if (polls++ % 3 == 0) {
        char* report = new char[999];  // LEAK: third
        escape(report);
    }
    return polls;
}

// --- kernel resources

// Waits a moment for an answer that never comes, as real programs do. A confirmation then repeats hundreds of times,
// not a hundred thousand, and stays below the limits of descriptors and threads.
constexpr int kAnswerMs = 5;

NOINLINE int ask_device() {
    int device = eventfd(0, EFD_CLOEXEC);  // LEAK: descriptor
    if (device < 0) return -1;
    pollfd answer{device, POLLIN, 0};
    return poll(&answer, 1, kAnswerMs);
}

void park() {
    for (;;) pause();
}

NOINLINE int start_watcher() {
    std::thread watcher(park);  // LEAK: thread
    watcher.detach();
    return poll(nullptr, 0, kAnswerMs);
}

}  // namespace leaks

TEST(Leaks, NodeLeftInContainer) { EXPECT_GE(leaks::guestbook.remember("harbour"), 1u); }

TEST(Leaks, LostArray) { EXPECT_EQ(leaks::lose_array(), 3); }

TEST(Leaks, SharedPointerCycle) { EXPECT_EQ(leaks::make_family(), 2); }

TEST(Leaks, ExceptionPath) { EXPECT_THROW(leaks::parse_header("no hash"), std::runtime_error); }

TEST(Leaks, WorkerThread) {
    int drawn = 0;
    std::thread worker(leaks::render_tile, &drawn);
    worker.join();
    EXPECT_EQ(drawn, 1);
}

TEST(Leaks, Strdup) { EXPECT_EQ(leaks::copy_title(), 60u); }

TEST(Leaks, Getline) {
    char text[] = "first\nsecond\n";
    FILE* file = fmemopen(text, sizeof text - 1, "r");
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(leaks::first_line(file), 6);
    std::fclose(file);
}

TEST(Leaks, ReallocGrowth) { EXPECT_GE(leaks::journal.append(513), 513u); }

TEST(Leaks, DoublingVector) { EXPECT_GE(leaks::record_reading(), 1u); }

TEST(Leaks, AlignedNew) { EXPECT_TRUE(leaks::aligned_new()); }

TEST(Leaks, ArrayNew) { EXPECT_NE(leaks::array_new(), nullptr); }

TEST(Leaks, PosixMemalign) { EXPECT_EQ(leaks::aligned_c(), 0); }

class LeakyFixture : public testing::Test {
protected:
    void SetUp() override { database = leaks::open_database(); }
    void* database = nullptr;
};

TEST_F(LeakyFixture, SetsUp) { EXPECT_NE(database, nullptr); }

class OneParameter : public testing::TestWithParam<int> {};

TEST_P(OneParameter, Loads) { EXPECT_EQ(leaks::load(GetParam()), GetParam()); }

INSTANTIATE_TEST_SUITE_P(Levels, OneParameter, testing::Values(1, 2, 3, 4));

TEST(Leaks, EveryThirdIteration) { EXPECT_GE(leaks::poll_sensor(), 1); }

TEST(Leaks, Descriptor) { EXPECT_EQ(leaks::ask_device(), 0); }

TEST(Leaks, ParkedThread) { EXPECT_EQ(leaks::start_watcher(), 0); }
