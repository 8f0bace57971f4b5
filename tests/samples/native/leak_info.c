/* A C program that knows only the contract of Android's get_malloc_leak_info and free_malloc_leak_info: records are
 * {size_t size | zygote << 31; size_t count; uintptr_t pcs[backtrace_size]}, and words after the last program counter
 * are 0. It uses whichever of the two families of names is loaded, so that it also runs without the agent.
 *
 * Prints one line for each violation, and at the end the number of checks. */
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "escape.h"

typedef void get_function(uint8_t** info, size_t* overall_size, size_t* info_size, size_t* total_memory, size_t* backtrace_size);
typedef void free_function(uint8_t* info);

static get_function* get_info;
static free_function* free_info;

static int checks, failures;
#define CHECK(holds) (++checks, (holds) ? 1 : (++failures, printf("does not hold, line %d: %s\n", __LINE__, #holds), 0))

#define ZYGOTE ((size_t)1 << 31)

typedef struct {
  uint8_t* info;
  size_t overall_size, info_size, total_memory, backtrace_size;
} Snapshot;

/* Without recording, out parameters stay unchanged: zero them first. */
static Snapshot take(void) {
  Snapshot s = {0};
  get_info(&s.info, &s.overall_size, &s.info_size, &s.total_memory, &s.backtrace_size);
  return s;
}

static size_t records(const Snapshot* s) { return s->info_size ? s->overall_size / s->info_size : 0; }

static size_t word(const Snapshot* s, size_t record, size_t index) {
  size_t value;
  memcpy(&value, s->info + record * s->info_size + index * sizeof value, sizeof value);
  return value;
}
static size_t size_of(const Snapshot* s, size_t record) { return word(s, record, 0); }
static size_t count_of(const Snapshot* s, size_t record) { return word(s, record, 1); }
static uintptr_t pc_of(const Snapshot* s, size_t record, size_t frame) { return word(s, record, 2 + frame); }

/* Number plus one of the only record with this size; 0 if there is none or more than one. */
static size_t only(const Snapshot* s, size_t size) {
  size_t found = 0;
  for (size_t r = 0; r < records(s); ++r) {
    if ((size_of(s, r) & ~ZYGOTE) != size) continue;
    if (found) return 0;
    found = r + 1;
  }
  return found;
}

static size_t count_with_size(const Snapshot* s, size_t size) {
  size_t r = only(s, size);
  return r ? count_of(s, r - 1) : 0;
}

/* Each function that allocates has its own section, which gives its bounds without a symbol table. */
#define PLACE(name) __attribute__((noinline, noclone, section("place_" #name)))
#define BOUNDS(name) extern const char __start_place_##name[], __stop_place_##name[]
#define IS_IN(pc, name) ((pc) >= (uintptr_t)__start_place_##name && (pc) < (uintptr_t)__stop_place_##name)

BOUNDS(plain);
BOUNDS(zeroed);
BOUNDS(grown);
BOUNDS(caller);
BOUNDS(deep);

PLACE(plain) static void* plain(size_t bytes) {
  void* block = malloc(bytes);
  escape(block);
  return block;
}
PLACE(zeroed) static void* zeroed(size_t count, size_t bytes) {
  void* block = calloc(count, bytes);
  escape(block);
  return block;
}
PLACE(grown) static void* grown(void* old, size_t bytes) {
  void* block = realloc(old, bytes);
  escape(block);
  return block;
}
PLACE(caller) static void* called(size_t bytes) {
  void* block = plain(bytes);
  escape(block);
  return block;
}
PLACE(deep) static void* deep(int levels, size_t bytes) {
  void* block = levels ? deep(levels - 1, bytes) : plain(bytes);
  escape(block);
  return block;
}

static void* in_thread(void* argument) {
  (void)argument;
  return plain(1409);
}

/* Checks that apply to every snapshot. */
static void check_form(const Snapshot* s) {
  if (!s->info) {
    CHECK(s->overall_size == 0 && s->info_size == 0 && s->total_memory == 0 && s->backtrace_size == 0);
    return;
  }
  CHECK(s->backtrace_size >= 1);
  CHECK(s->info_size == 2 * sizeof(size_t) + s->backtrace_size * sizeof(uintptr_t));
  CHECK(s->overall_size > 0 && s->overall_size % s->info_size == 0);
  CHECK((uintptr_t)s->info % sizeof(size_t) == 0);
  size_t sum = 0, gaps = 0, unsorted = 0, doubled = 0, empty = 0;
  for (size_t r = 0; r < records(s); ++r) {
    sum += size_of(s, r) * count_of(s, r);
    empty += count_of(s, r) == 0 || pc_of(s, r, 0) == 0;
    for (size_t f = 1; f < s->backtrace_size; ++f) gaps += pc_of(s, r, f) && !pc_of(s, r, f - 1);
    unsorted += r && size_of(s, r) > size_of(s, r - 1);
    for (size_t other = 0; other < r; ++other) {
      doubled += size_of(s, r) == size_of(s, other) &&
                 !memcmp(s->info + r * s->info_size + 2 * sizeof(size_t), s->info + other * s->info_size + 2 * sizeof(size_t),
                         s->info_size - 2 * sizeof(size_t));
    }
  }
  CHECK(sum == s->total_memory);
  CHECK(empty == 0);
  CHECK(gaps == 0);
  CHECK(unsorted == 0);
  CHECK(doubled == 0);
}

static void check_null_arguments(void) {
  for (int missing = 0; missing < 5; ++missing) {
    uint8_t* info = (uint8_t*)&info;
    size_t sizes[4] = {11, 12, 13, 14};
    get_info(missing == 0 ? NULL : &info, missing == 1 ? NULL : &sizes[0], missing == 2 ? NULL : &sizes[1],
             missing == 3 ? NULL : &sizes[2], missing == 4 ? NULL : &sizes[3]);
    CHECK(info == (uint8_t*)&info && sizes[0] == 11 && sizes[1] == 12 && sizes[2] == 13 && sizes[3] == 14);
  }
  free_info(NULL);
}

/* Volatile, because an unrolled loop would have several allocation sites. */
static volatile int three = 3, five = 5, eight = 8;

static void check_sizes_and_counts(void) {
  void *same[3], *rows[5], *nothing = plain(0), *moved = plain(53), *page = NULL;
  for (int i = 0; i < three; ++i) same[i] = plain(1001);
  for (int i = 0; i < five; ++i) rows[i] = zeroed(7, 33);
  moved = grown(moved, 307);
  int refused = grown(same[0], SIZE_MAX / 2) == NULL;
  free(plain(401));
  void* aligned = memalign(64, 77);
  int failed = posix_memalign(&page, 4096, 79);

  Snapshot s = take();
  check_form(&s);
  CHECK(count_with_size(&s, 1001) == 3);
  CHECK(count_with_size(&s, 7 * 33) == 5);
  CHECK(count_with_size(&s, 0) == 1);
  CHECK(count_with_size(&s, 53) == 0);
  CHECK(count_with_size(&s, 307) == 1);
  CHECK(count_with_size(&s, 401) == 0);
  CHECK(count_with_size(&s, 77) == 1);
  CHECK(!failed && count_with_size(&s, 79) == 1);
  CHECK(refused);
  size_t a = only(&s, 1001), b = only(&s, 7 * 33), c = only(&s, 307);
  if (CHECK(a && b && c)) {
    CHECK(IS_IN(pc_of(&s, a - 1, 0), plain));
    CHECK(IS_IN(pc_of(&s, b - 1, 0), zeroed));
    /* realloc is attributed to its caller. */
    CHECK(IS_IN(pc_of(&s, c - 1, 0), grown));
  }
  free_info(s.info);

  for (int i = 0; i < 3; ++i) free(same[i]);
  for (int i = 0; i < 5; ++i) free(rows[i]);
  free(nothing);
  free(moved);
  free(aligned);
  free(page);
}

static void check_stacks(void) {
  void *shallow = called(503), *far_down = deep(40, 509);
  /* Two sites alternate with the same size: two records, each with its own count. */
  void* turns[8];
  for (int i = 0; i < eight; ++i) turns[i] = i % 2 ? plain(601) : zeroed(1, 601);
  Snapshot s = take();
  check_form(&s);
  size_t a = only(&s, 503), b = only(&s, 509);
  if (CHECK(a && b)) {
    CHECK(IS_IN(pc_of(&s, a - 1, 0), plain));
    CHECK(IS_IN(pc_of(&s, a - 1, 1), caller));
    CHECK(s.backtrace_size > 42);
    CHECK(IS_IN(pc_of(&s, b - 1, 0), plain));
    int inside = 0;
    for (size_t f = 1; f <= 41; ++f) inside += IS_IN(pc_of(&s, b - 1, f), deep);
    CHECK(inside == 41);
    CHECK(pc_of(&s, a - 1, s.backtrace_size - 1) == 0);
#if defined(__x86_64__)
    /* The program counter is adjusted to be inside the call, whose first byte is e8 (with its displacement) or ff. */
    const uint8_t* call = (const uint8_t*)pc_of(&s, a - 1, 1);
    CHECK(call[-4] == 0xe8 || call[-5] == 0xff);
#endif
  }
  size_t with_size = 0, with_four = 0;
  for (size_t r = 0; r < records(&s); ++r) {
    with_size += size_of(&s, r) == 601;
    with_four += size_of(&s, r) == 601 && count_of(&s, r) == 4;
  }
  CHECK(with_size == 2 && with_four == 2);
  free_info(s.info);
  for (int i = 0; i < 8; ++i) free(turns[i]);
  free(shallow);
  free(far_down);
}

/* A snapshot does not contain other snapshots, and stays unchanged until it is freed. */
static void check_buffers(void) {
  void* block = plain(701);
  Snapshot first = take(), second = take();
  CHECK(first.info != second.info);
  CHECK(first.overall_size == second.overall_size && !memcmp(first.info, second.info, first.overall_size));
  free(block);
  Snapshot third = take();
  CHECK(count_with_size(&first, 701) == 1 && count_with_size(&second, 701) == 1 && count_with_size(&third, 701) == 0);
  free_info(first.info);
  CHECK(count_with_size(&second, 701) == 1);
  free_info(third.info);
  free_info(second.info);
}

static void check_threads(void) {
  pthread_t thread;
  void* block = NULL;
  CHECK(pthread_create(&thread, NULL, in_thread, NULL) == 0 && pthread_join(thread, &block) == 0);
  Snapshot s = take();
  CHECK(count_with_size(&s, 1409) == 1);
  free_info(s.info);
  free(block);
  s = take();
  CHECK(count_with_size(&s, 1409) == 0);
  free_info(s.info);
}

/* Bit 31 marks allocations of a child of the zygote. No process here is one, not even a forked child. */
static void check_zygote_bit(void) {
  void* before = plain(809);
  pid_t child = fork();
  if (child == 0) {
    checks = failures = 0;
    void* after = plain(811);
    Snapshot s = take();
    check_form(&s);
    size_t marked = 0;
    for (size_t r = 0; r < records(&s); ++r) marked += (size_of(&s, r) & ZYGOTE) != 0;
    CHECK(marked == 0);
    CHECK(count_with_size(&s, 809) == 1 && count_with_size(&s, 811) == 1);
    free_info(s.info);
    free(after);
    free(before);
    s = take();
    CHECK(count_with_size(&s, 809) == 0 && count_with_size(&s, 811) == 0);
    _exit(failures != 0);
  }
  int status = -1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  free(before);
}

/* Some sizes fit in 8-byte words but not in 4-byte words; if the allocator grants such a block, its record is exact. */
static void check_large_blocks(void) {
  size_t sizes[] = {((size_t)40 << 20) + 1, sizeof(size_t) == 8 ? ((size_t)5 << 30) + 3 : 0};
  for (int i = 0; i < 2 && sizes[i]; ++i) {
    void* block = plain(sizes[i]);
    if (!block) continue;
    Snapshot s = take();
    check_form(&s);
    size_t whole = 0;
    for (size_t r = 0; r < records(&s); ++r) whole += size_of(&s, r) == sizes[i] && count_of(&s, r) == 1;
    CHECK(whole == 1);
    CHECK(s.total_memory >= sizes[i]);
    free_info(s.info);
    free(block);
  }
}

int main(void) {
  /* Without a buffer for the output, which the snapshots would contain. */
  setvbuf(stdout, NULL, _IONBF, 0);
  get_info = (get_function*)dlsym(RTLD_DEFAULT, "get_malloc_leak_info");
  free_info = (free_function*)dlsym(RTLD_DEFAULT, "free_malloc_leak_info");
  if (!get_info || !free_info) {
    get_info = (get_function*)dlsym(RTLD_DEFAULT, "memgate_get_malloc_leak_info");
    free_info = (free_function*)dlsym(RTLD_DEFAULT, "memgate_free_malloc_leak_info");
  }
  if (!get_info || !free_info) {
    puts("no snapshots here");
    return 0;
  }
  Snapshot nothing = take();
  check_form(&nothing);
  printf("%zu records before the first allocation\n", records(&nothing));
  free_info(nothing.info);
  void* one = plain(907);
  Snapshot something = take();
  int recorded = something.info != NULL;
  free_info(something.info);
  free(one);
  check_null_arguments();
  if (recorded) {
    check_sizes_and_counts();
    check_stacks();
    check_buffers();
    check_zygote_bit();
    check_large_blocks();
    Snapshot end = take();
    CHECK(end.overall_size == nothing.overall_size && end.total_memory == nothing.total_memory);
    free_info(end.info);
    /* Last, because the C library keeps some memory of every thread. */
    check_threads();
  }
  printf("words of %zu bytes, %s: %d checks, %d do not hold\n", sizeof(size_t), recorded ? "recorded" : "not recorded", checks,
         failures);
  return failures != 0;
}
