// Code that appears and disappears: JIT, libraries at reused addresses, the loader's own calls.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <iconv.h>
#include <link.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "frames.h"

extern "C" void __register_frame(void*);
extern "C" void __deregister_frame(void*);

// ---- JIT

static void cut_no_object() { probe_cut(no_object); }

// sub $24, %rsp; call *%rdi; add $24, %rsp; ret
static const unsigned char code[] = {0x48, 0x83, 0xec, 0x18, 0xff, 0xd7, 0x48, 0x83, 0xc4, 0x18, 0xc3};
// sub $72, %rsp
static const unsigned char other_code[] = {0x48, 0x83, 0xec, 0x48, 0xff, 0xd7, 0x48, 0x83, 0xc4, 0x48, 0xc3};

// One CIE, one FDE, a terminator. `frame`: bytes of stack that the code uses.
struct Rules {
  unsigned char bytes[128] = {};

  Rules(const unsigned char* start, uint64_t size, unsigned char frame) {
    const unsigned char cie[] = {20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0, 0, 0, 0, 0};
    memcpy(bytes, cie, sizeof cie);
    const uint32_t length = 28, back = 28;
    const uint64_t range[] = {reinterpret_cast<uint64_t>(start), size};
    const unsigned char moves[] = {0x44, 0x0e, (unsigned char)(frame + 8), 0x46, 0x0e, 8, 0, 0};
    memcpy(bytes + 24, &length, 4);
    memcpy(bytes + 28, &back, 4);
    memcpy(bytes + 32, range, 16);
    memcpy(bytes + 48, moves, sizeof moves);
  }
};

void jit(int rounds) {
  void* at = mmap(nullptr, 65536, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(at != MAP_FAILED, "mmap");
  for (int i = 0; i < rounds; i++) {
    // The code at these addresses alternates.
    bool other = i % 2;
    auto* place = static_cast<unsigned char*>(at) + i % 3 * 4096;
    memcpy(place, other ? other_code : code, sizeof code);
    auto run = reinterpret_cast<void (*)(Function)>(place);
    run(cut_no_object);
    static Rules rules(place, sizeof code, 0);
    rules = Rules(place, sizeof code, other ? 72 : 24);
    // Registered at run time: the system's unwinder finds the rules, ours asks only the loader.
    __register_frame(rules.bytes);
    run(cut_no_object);
    __deregister_frame(rules.bytes);
    probe();
  }
}

// ---- a planted difference: wrong rules for a function of ours, registered without the loader

static void probe_planted() {
  planted = planted + 1;
  probe();
}

void plant(int rounds) {
  static Rules rules(reinterpret_cast<const unsigned char*>(rule_true), 64, 8);
  rule_true(probe);
  __register_frame(rules.bytes);
  for (int i = 0; i < rounds; i++) rule_true(probe_planted);
  __deregister_frame(rules.bytes);
  rule_true(probe);
}

// ---- a library at the address of an unloaded one

static std::string folder() {
  char path[4096] = {};
  require(readlink("/proc/self/exe", path, sizeof path - 1) > 0, "readlink");
  std::string text = path;
  return text.substr(0, text.rfind('/') + 1);
}

using Close = int (*)(void*);

// Loads the libraries in turn; each allocates at the same offset, in a frame of another size.
static void take_turns(int rounds, Close close) {
  uintptr_t last = 0;
  int same = 0;
  for (int i = 0; i < rounds; i++) {
    std::string path = folder() + "libframes_" + std::to_string(i % 3) + ".so";
    void* library = dlopen(path.c_str(), RTLD_NOW);
    require(library != nullptr, "dlopen");
    auto call = reinterpret_cast<void (*)(Function)>(dlsym(library, "frame_of_its_own"));
    same += reinterpret_cast<uintptr_t>(call) == last;
    last = reinterpret_cast<uintptr_t>(call);
    for (int k = 0; k < 3; k++) call(probe);
    close(library);
  }
  require(same > rounds / 2, "the libraries did not come to the same place");
}

void reload(int rounds) {
  take_turns(rounds, dlclose);
  // libc's own dlclose, not an interposed one: RTLD_DEEPBIND and the C library's own unloading use it.
  auto close = reinterpret_cast<Close>(dlsym(dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD), "dlclose"));
  require(close != nullptr && close != dlclose, "another dlclose");
  take_turns(rounds, close);
}

// ---- modules that the C library loads and unloads itself: character converters

void converters(int rounds) {
  setenv("GCONV_PATH", folder().c_str(), 1);
  for (int i = 0; i < rounds; i++) {
    std::string name = "FRAMES" + std::to_string(i % 5) + "//";
    iconv_t converter = iconv_open("UTF-8//", name.c_str());
    require(converter != iconv_t(-1), "iconv_open");
    iconv_close(converter);
  }
}

// ---- the loader allocates while it binds a call

void binding(int rounds) {
  for (int i = 0; i < rounds; i++) {
    void* provider = dlopen((folder() + "libframes_0.so").c_str(), RTLD_NOW | RTLD_GLOBAL);
    void* user = dlopen((folder() + "libframes_user.so").c_str(), RTLD_LAZY);
    require(provider && user, "dlopen");
    auto call = reinterpret_cast<void (*)(Function)>(dlsym(user, "call_lazily"));
    // The loader records that one library now depends on the other. It allocates below its entry, whose CFA is in rbx.
    expected[exotic] = expected[exotic] + 1;
    call(probe);
    call(probe);
    dlclose(user);
    dlclose(provider);
  }
}
