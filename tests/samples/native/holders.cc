// One function for each way to hold a leaked object, or to lose it. The table in tests/tests/e2e/native/holders.rs
// names the holder of each. `HELD: name` marks the line that defines a holder.
#include <pthread.h>
#include <sys/mman.h>

#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <forward_list>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "sample.h"

#define HOLDS(name) NOINLINE static void name()

struct Node {
    Node* next = nullptr;
    char name[33] = {};
};

NOINLINE Node* make_node() {
    Node* made = new Node;
    escape(made);
    return made;
}

NOINLINE char* make_text(size_t bytes) {
    char* made = new char[bytes];
    escape(made);
    return made;
}

static void push(Node*& head) {
    Node* node = make_node();
    node->next = head;
    head = node;
}

// --- static data

Node* global_list;         // HELD: global_list
static Node* file_list;    // HELD: file_list

HOLDS(static_global) { push(global_list); }
HOLDS(static_file) { push(file_list); }
HOLDS(static_function) {
    static Node* function_list;  // HELD: function_list
    push(function_list);
}

namespace tiles {
std::vector<char*> kept;             // HELD: kept
std::map<int, char*> by_number;      // HELD: by_number
std::unordered_map<int, char*> hashed;  // HELD: hashed
namespace {
std::deque<char*> recent;  // HELD: recent
}
std::list<char*> listed;               // HELD: listed
std::forward_list<char*> forwarded;    // HELD: forwarded
std::set<std::string> names;           // HELD: names
std::string text;                      // HELD: text
std::vector<std::shared_ptr<Node>> shared;  // HELD: shared
std::vector<std::function<size_t()>> calls;  // HELD: calls
}  // namespace tiles

HOLDS(static_vector) { tiles::kept.push_back(make_text(41)); }
HOLDS(static_map) { tiles::by_number[static_cast<int>(tiles::by_number.size())] = make_text(42); }
HOLDS(static_hashed) { tiles::hashed[static_cast<int>(tiles::hashed.size())] = make_text(43); }
HOLDS(static_deque) { tiles::recent.push_back(make_text(44)); }
HOLDS(static_list) { tiles::listed.push_back(make_text(45)); }
HOLDS(static_forward_list) { tiles::forwarded.push_front(make_text(46)); }
HOLDS(static_set) { tiles::names.insert("a name that is too long to be held in place " + std::to_string(tiles::names.size())); }
HOLDS(static_string) { tiles::text.append(4096, 'x'); }
HOLDS(static_shared) { tiles::shared.push_back(std::make_shared<Node>()); }
HOLDS(static_callback) {
    std::string held = "what a closure has captured, and more than in place";
    char* more = make_text(47);
    tiles::calls.push_back([held, more] { return held.size() + static_cast<size_t>(more[0]); });
}

struct Window {
    int number = 0;
    Node* views = nullptr;
};
struct App {
    long started = 0;
    Window window;
    Node* menus = nullptr;
};
App app;  // HELD: app

HOLDS(static_member) { push(app.menus); }
HOLDS(static_member_of_member) { push(app.window.views); }

class Registry {
public:
    static std::vector<Node*> cache;
    static inline std::map<int, Node*> index;  // HELD: index
};
std::vector<Node*> Registry::cache;  // HELD: cache

HOLDS(static_class_member) { Registry::cache.push_back(make_node()); }
HOLDS(static_inline_member) { Registry::index[static_cast<int>(Registry::index.size())] = make_node(); }

static char* slots[1 << 16];  // HELD: slots
static size_t used_slots;
HOLDS(static_array_of_pointers) { slots[used_slots++] = make_text(48), escape(slots); }

static char* interior[1 << 16];  // HELD: interior
static size_t used_interior;
HOLDS(static_interior_pointer) { interior[used_interior++] = make_text(400) + 96, escape(interior); }

static char* last_bytes[1 << 16];  // HELD: last_bytes
static size_t used_last;
HOLDS(static_last_byte) { last_bytes[used_last++] = make_text(40) + 39, escape(last_bytes); }

struct Session {
    std::vector<std::unique_ptr<Node>> nodes;
};
HOLDS(static_singleton) {
    static Session* instance = new Session;  // HELD: instance
    instance->nodes.emplace_back(make_node());
}

static Session* early = new Session;  // HELD: early
HOLDS(static_early) { early->nodes.emplace_back(make_node()); }

struct Tree {
    std::unique_ptr<Tree> left, right;
    char leaf[21];
};
std::unique_ptr<Tree> root;  // HELD: root
HOLDS(static_tree) {
    std::unique_ptr<Tree>* at = &root;
    for (unsigned path = reinterpret_cast<uintptr_t>(at) & 0xff; *at; path = path * 5 + 1)
        at = path & 4 ? &(*at)->left : &(*at)->right;
    *at = std::make_unique<Tree>();
}

static char** table;  // HELD: table
static size_t table_size;
HOLDS(static_growing_table) {
    table = static_cast<char**>(realloc(table, (table_size + 1) * sizeof *table));
    table[table_size++] = static_cast<char*>(malloc(49));
}

static void* aligned[1 << 16];  // HELD: aligned
static size_t used_aligned;
HOLDS(static_aligned) { aligned[used_aligned++] = aligned_alloc(64, 128), escape(aligned); }

static char* large[64];  // HELD: large
static size_t used_large;
HOLDS(static_large) { large[used_large++ % 64] = make_text(17u << 20), escape(large); }

static Node* million;  // HELD: million
HOLDS(static_million) {
    if (!million)
        for (int i = 0; i < 1000000; ++i) push(million);
    push(million);
}

struct Shape {
    virtual ~Shape() = default;
    char area[51] = {};
};
struct Circle : Shape {};
static std::vector<Shape*> shapes;  // HELD: shapes
NOINLINE Shape* make_shape() { return new Circle; }
HOLDS(static_polymorphic) { shapes.push_back(make_shape()); }

// --- stacks

static Node** on_main_stack;
HOLDS(stack_main) { push(*on_main_stack); }

// A thread that holds a list until it is told to end.
class Keeper {
public:
    explicit Keeper(char const* name, void (*run)(Keeper&)) : thread([this, name, run] {
        pthread_setname_np(pthread_self(), name);
        run(*this);
    }) {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [this] { return list != nullptr; });
    }
    ~Keeper() {
        {
            std::lock_guard<std::mutex> lock(mutex);
            done = true;
        }
        changed.notify_all();
        thread.join();
    }
    void keep(Node*& at) {
        std::unique_lock<std::mutex> lock(mutex);
        list = &at;
        changed.notify_all();
        changed.wait(lock, [this] { return done; });
    }
    Node*& head() { return *list; }

private:
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    Node** list = nullptr;
    std::thread thread;
};

NOINLINE void hold_on_stack(Keeper& keeper) {
    Node* on_stack = nullptr;
    escape(&on_stack);
    keeper.keep(on_stack);
    escape(&on_stack);
}

NOINLINE void hold_deep_on_stack(Keeper& keeper) {
    Node* many[100] = {};
    escape(many);
    keeper.keep(many[70]);
    escape(many);
}

HOLDS(stack_thread) {
    static Keeper* keeper = new Keeper("stack keeper", hold_on_stack);
    push(keeper->head());
}
HOLDS(stack_array_of_thread) {
    static Keeper* keeper = new Keeper("array keeper", hold_deep_on_stack);
    push(keeper->head());
}

// --- thread-local storage

thread_local Node* thread_list;  // HELD: thread_list
static thread_local std::vector<char*> thread_texts;  // HELD: thread_texts

HOLDS(thread_local_variable) { push(thread_list); }
HOLDS(thread_local_vector) { thread_texts.push_back(make_text(52)); }
HOLDS(thread_local_function) {
    static thread_local Node* function_thread_list;  // HELD: function_thread_list
    push(function_thread_list);
}
NOINLINE void hold_in_thread_local(Keeper& keeper) { keeper.keep(thread_list); }
HOLDS(thread_local_of_thread) {
    static Keeper* keeper = new Keeper("tls keeper", hold_in_thread_local);
    push(keeper->head());
}
HOLDS(thread_local_specific) {
    static pthread_key_t key = [] {
        pthread_key_t made;
        pthread_key_create(&made, nullptr);
        return made;
    }();
    Node* list = static_cast<Node*>(pthread_getspecific(key));
    push(list);
    pthread_setspecific(key, list);
}

// --- memory mapped without the allocator

static uintptr_t hidden_page;  // not a pointer to any block
HOLDS(mapped_page) {
    if (!hidden_page) {
        void* page = mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        hidden_page = reinterpret_cast<uintptr_t>(page);
    }
    push(*reinterpret_cast<Node**>(hidden_page));
}

// --- lost

NOINLINE void lose() { make_text(61); }
HOLDS(lost_block) { lose(); }

struct Pair {
    std::shared_ptr<Pair> other;
    char name[62];
};
NOINLINE void lose_cycle() {
    auto a = std::make_shared<Pair>(), b = std::make_shared<Pair>();
    a->other = b;
    b->other = a;
}
HOLDS(lost_shared_cycle) { lose_cycle(); }

struct Owner {
    char* text;
    char name[63];
};
NOINLINE Owner* make_owner() { return new Owner; }
NOINLINE char* make_owned() { return new char[64]; }
NOINLINE void lose_owner() {
    Owner* owner = make_owner();
    owner->text = make_owned();
    escape(owner);
}
HOLDS(lost_indirectly) { lose_owner(); }

struct Ring {
    Ring *next, *before;
    char name[65];
};
NOINLINE Ring* make_ring() { return new Ring; }
NOINLINE void lose_ring() {
    Ring* links[3];
    for (auto& link : links) link = make_ring();
    for (int i = 0; i < 3; ++i) {
        links[i]->next = links[(i + 1) % 3];
        links[i]->before = links[(i + 2) % 3];
    }
    escape(links[0]);
}
HOLDS(lost_ring) { lose_ring(); }

NOINLINE void lose_itself() {
    void** block = static_cast<void**>(malloc(66));
    block[0] = block;
    escape(block);
}
HOLDS(lost_points_at_itself) { lose_itself(); }

static uintptr_t masked[1 << 16];
static size_t used_masked;
NOINLINE void mask() { masked[used_masked++] = ~reinterpret_cast<uintptr_t>(make_text(67)), escape(masked); }
HOLDS(lost_masked) { mask(); }

// Several leaks in one test: the report separates them by the functions that allocate.
TEST(Holders, Static) {
    static_global();
    static_file();
    static_function();
    static_vector();
    static_map();
    static_hashed();
    static_deque();
    static_list();
    static_forward_list();
    static_set();
    static_string();
    static_shared();
    static_callback();
    static_member();
    static_member_of_member();
    static_class_member();
    static_inline_member();
    static_array_of_pointers();
    static_interior_pointer();
    static_last_byte();
    static_singleton();
    static_early();
    static_tree();
    static_growing_table();
    static_aligned();
    static_polymorphic();
}
TEST(Holders, Large) {
    static_large();
}
TEST(Holders, Million) {
    static_million();
}
TEST(Holders, Threads) {
    stack_main();
    stack_thread();
    stack_array_of_thread();
    thread_local_variable();
    thread_local_vector();
    thread_local_function();
    thread_local_of_thread();
    thread_local_specific();
    mapped_page();
}
TEST(Holders, Lost) {
    lost_block();
    lost_shared_cycle();
    lost_indirectly();
    lost_ring();
    lost_points_at_itself();
    lost_masked();
}

int main(int argc, char** argv) {
    Node* main_list = nullptr;
    on_main_stack = &main_list;
    testing::InitGoogleTest(&argc, argv);
    int result = RUN_ALL_TESTS();
    escape(&main_list);
    return result;
}
