// One test for each pattern that looks like a leak but is not. Each passes and grows by nothing.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "sample.h"

namespace clean {

// Keeps the last 400 entries. A test adds five: it grows evenly for eighty runs and is then full.
class RecentTiles {
public:
    NOINLINE void insert(int key) {
        order.push_front(key);
        tiles[key] = std::make_unique<char[]>(167);
        if (order.size() > 400) {
            tiles.erase(order.back());
            order.pop_back();
        }
    }
    size_t size() const { return order.size(); }

private:
    std::list<int> order;
    std::map<int, std::unique_ptr<char[]>> tiles;
};

RecentTiles recent_tiles;
int next_tile = 0;

NOINLINE char* lookup_table() {
    static std::unique_ptr<char[]> table(new char[12289]);  // once per process
    return table.get();
}

std::unique_ptr<std::string> last_answer;

NOINLINE void keep_answer() { last_answer = std::make_unique<std::string>(83, 'a'); }

std::unique_ptr<char[]> toggled;

NOINLINE void toggle() {
    if (toggled) {
        toggled.reset();
    } else {
        toggled.reset(new char[2053]);
        escape(toggled.get());
    }
}

// A thread that frees each block 15 ms after it gets it.
class Reaper {
public:
    struct Job {
        Job* next;
        std::chrono::steady_clock::time_point due;
        char payload[193];
    };

    Reaper() : thread([this] { run(); }) {}

    ~Reaper() {
        {
            std::lock_guard<std::mutex> lock(mutex);
            stopping = true;
        }
        changed.notify_one();
        thread.join();
    }

    NOINLINE void free_later() {
        Job* job = new Job{};
        job->due = std::chrono::steady_clock::now() + std::chrono::milliseconds(15);
        {
            std::lock_guard<std::mutex> lock(mutex);
            *tail = job;
            tail = &job->next;
        }
        changed.notify_one();
    }

private:
    void run() {
        std::unique_lock<std::mutex> lock(mutex);
        while (!stopping || head) {
            if (!head) {
                changed.wait(lock);
            } else if (!stopping && std::chrono::steady_clock::now() < head->due) {
                changed.wait_until(lock, head->due);
            } else {
                Job* job = head;
                head = job->next;
                if (!head) tail = &head;
                delete job;
            }
        }
    }

    std::mutex mutex;
    std::condition_variable changed;
    Job* head = nullptr;
    Job** tail = &head;
    bool stopping = false;
    std::thread thread;  // last: it uses all of the above
};

Reaper& reaper() {
    static Reaper instance;
    return instance;
}

NOINLINE void lose(size_t bytes) {
    char* block = new char[bytes];
    escape(block);
}

[[noreturn]] void lose_and_exit(int code) {
    lose(4099);
    _exit(code);
}

[[noreturn]] void lose_and_abort() {
    lose(4127);
    std::abort();
}

}  // namespace clean

TEST(Clean, BoundedCache) {
    for (int tile = 0; tile < 5; ++tile) clean::recent_tiles.insert(clean::next_tile++);
    EXPECT_LE(clean::recent_tiles.size(), 400u);
}

TEST(Clean, LazyInit) { EXPECT_NE(clean::lookup_table(), nullptr); }

TEST(Clean, LastValueKept) {
    clean::keep_answer();
    EXPECT_EQ(clean::last_answer->size(), 83u);
}

TEST(Clean, TogglingBlock) { clean::toggle(); }

TEST(Clean, Churn) {
    std::vector<std::unique_ptr<char[]>> blocks;
    for (size_t round = 0; round < 10; ++round) {
        for (size_t i = 0; i < 200; ++i) blocks.emplace_back(new char[17 + i * 7 % 1031]);
        if (round % 2) blocks.erase(blocks.begin(), blocks.begin() + 150);
    }
    EXPECT_EQ(blocks.size(), 1250u);
}

TEST(Clean, FreeInAnotherThread) {
    char* message = new char[431];
    escape(message);
    std::thread reader([message] { delete[] message; });
    reader.join();
}

TEST(Clean, LateFree) { clean::reaper().free_later(); }

TEST(Clean, ChildProcess) {
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) clean::lose_and_exit(7);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(Clean, Skipped) {
    clean::lose(523);  // a skipped test is not judged
    GTEST_SKIP();
}

TEST(Clean, NothingAtAll) {}

TEST(CleanDeathTest, Exits) { EXPECT_EXIT(clean::lose_and_exit(3), testing::ExitedWithCode(3), ""); }

TEST(CleanDeathTest, Aborts) { EXPECT_DEATH(clean::lose_and_abort(), ""); }

class NamedParameter : public testing::TestWithParam<std::string> {};

TEST_P(NamedParameter, Copies) {
    std::vector<std::string> copies(11, GetParam());
    EXPECT_EQ(copies.back(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Cities, NamedParameter, testing::Values("Lisbon", "Kyoto", "Oslo"),
                         [](testing::TestParamInfo<std::string> const& parameter) { return parameter.param; });
