// Tests that leak mappings of each kind, and tests that only seem to. Each waits a moment, so that a confirmation
// repeats it hundreds of times, not a hundred thousand.
#include <gtest/gtest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>
#include <vector>
#define NOINLINE __attribute__((noinline))

namespace map {
const size_t KIB = 1024;
const int USE = PROT_READ | PROT_WRITE, OWN = MAP_PRIVATE | MAP_ANONYMOUS;

int moment() { return poll(nullptr, 0, 5); }
NOINLINE int tiles() {
    void* a = mmap(nullptr, 40 * KIB, USE, OWN, -1, 0);
    void* b = mmap(nullptr, 24 * KIB, USE, OWN, -1, 0);
    return moment() + (a == MAP_FAILED) + (b == MAP_FAILED);
}
NOINLINE int font() {
    int file = open("/proc/self/exe", O_RDONLY);
    void* at = mmap(nullptr, 3 * KIB, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    return moment() + (at == MAP_FAILED);
}
NOINLINE int log_grows() {
    static void* log = mmap(nullptr, 4 * KIB, USE, OWN, -1, 0);
    static size_t size = 4 * KIB;
    log = mremap(log, size, size + 8 * KIB, MREMAP_MAYMOVE);
    size += 8 * KIB;
    return moment() + (log == MAP_FAILED);
}
NOINLINE int aligned() {
    char* at = (char*)mmap(nullptr, 64 * KIB, USE, OWN, -1, 0);
    return moment() + munmap(at, 16 * KIB) + munmap(at + 48 * KIB, 16 * KIB);
}
NOINLINE int committed() {
    char* at = (char*)mmap(nullptr, 1024 * KIB, PROT_NONE, OWN | MAP_NORESERVE, -1, 0);
    return moment() + mprotect(at + 4 * KIB, 12 * KIB, USE);
}
NOINLINE int break_moves() { return moment() + (sbrk(8 * KIB) == (void*)-1); }

// At exit, removes IPC objects that would outlive the process.
struct Made {
    std::vector<int> segments = std::vector<int>(0);
    Made() { segments.reserve(100000); }
    ~Made() { for (int segment : segments) shmctl(segment, IPC_RMID, nullptr); }
} made;
NOINLINE int segment(size_t bytes) {
    int made_now = shmget(IPC_PRIVATE, bytes, IPC_CREAT | 0600);
    made.segments.push_back(made_now);
    return made_now;
}
NOINLINE void* attached(int segment) { return shmat(segment, nullptr, 0); }
NOINLINE int attaches() {
    int one = shmget(IPC_PRIVATE, 20 * KIB, 0600);
    void* at = attached(one);
    return moment() + shmctl(one, IPC_RMID, nullptr) + (at == (void*)-1);
}
}  // namespace map

TEST(Leaks, Anonymous) { EXPECT_EQ(map::tiles(), 0); }
TEST(Leaks, File) { EXPECT_EQ(map::font(), 0); }
TEST(Leaks, Growing) { EXPECT_EQ(map::log_grows(), 0); }
TEST(Leaks, PartlyUnmapped) { EXPECT_EQ(map::aligned(), 0); }
TEST(Leaks, Committed) { EXPECT_EQ(map::committed(), 0); }
TEST(Leaks, Break) { EXPECT_EQ(map::break_moves(), 0); }

TEST(Leaks, Attached) { EXPECT_EQ(map::attaches(), 0); }
TEST(Leaks, NotRemoved) { EXPECT_GE(map::segment(10 * map::KIB) - map::moment(), 0); }

TEST(Clean, Detaches) {
    int one = shmget(IPC_PRIVATE, 20 * map::KIB, 0600);
    void* at = map::attached(one);
    void* again = map::attached(one);
    EXPECT_EQ(shmctl(one, IPC_RMID, nullptr) + shmdt(at) + shmdt(again) + map::moment(), 0);
}
TEST(Clean, Unmaps) {
    using namespace map;
    char* at = (char*)mmap(nullptr, 64 * KIB, USE, OWN, -1, 0);
    void* next = mmap(nullptr, 64 * KIB, USE, OWN, -1, 0);
    EXPECT_EQ(munmap(at + 8 * KIB, 8 * KIB), 0);
    EXPECT_EQ(munmap(at, 64 * KIB) + munmap(next, 64 * KIB), 0);
}
// Both halves are the same memory: the second is mapped over a reservation.
TEST(Clean, Ring) {
    using namespace map;
    int file = memfd_create("ring", 0);
    ASSERT_EQ(ftruncate(file, 16 * KIB), 0);
    char* ring = (char*)mmap(nullptr, 32 * KIB, PROT_NONE, OWN, -1, 0);
    mmap(ring, 16 * KIB, USE, MAP_SHARED | MAP_FIXED, file, 0);
    mmap(ring + 16 * KIB, 16 * KIB, USE, MAP_SHARED | MAP_FIXED, file, 0);
    close(file);
    ring[0] = 7;
    EXPECT_EQ(ring[16 * KIB], 7);
    EXPECT_EQ(munmap(ring, 32 * KIB), 0);
}
TEST(Clean, Reserves) {
    void* at = mmap(nullptr, 1024 * map::KIB, PROT_NONE, map::OWN | MAP_NORESERVE, -1, 0);
    EXPECT_EQ(map::moment() + (at == MAP_FAILED), 0);
}
TEST(Clean, MapsOnce) {
    static void* pool = mmap(nullptr, 256 * map::KIB, map::USE, map::OWN, -1, 0);
    EXPECT_NE(pool, MAP_FAILED);
}
