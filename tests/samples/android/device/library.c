/*
 * libmemgate_agent.so of the test APK, for HotSpot. On a phone this is the agent itself: its JNI_OnLoad makes the
 * runtime attach it, and it finds its options in the app's data folder. Here, the same call attaches this machine's
 * agent.
 */
#include <dlfcn.h>
#include <stdlib.h>

typedef int (*on_attach)(void *vm, char *options, void *reserved);

int JNI_OnLoad(void *vm, void *reserved) {
    (void)reserved;
    void *agent = dlopen(getenv("STANDIN_AGENT"), RTLD_NOW | RTLD_GLOBAL);
    on_attach attach = agent ? (on_attach)dlsym(agent, "Agent_OnAttach") : 0;
    if (attach) {
        attach(vm, getenv("STANDIN_OPTIONS"), 0);
    }
    return 0x00010006; /* JNI_VERSION_1_6 */
}
