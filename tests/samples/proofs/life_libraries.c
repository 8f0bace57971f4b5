/* Loads a library in the given way, lets it allocate, and keeps 3 x 4241 bytes that it allocated. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void* volatile kept[3];

int main(int count, char** arguments) {
    if (count < 3) return 99;
    const char* how = arguments[2];
    if (!strcmp(how, "not found") && dlopen("/nowhere/none.so", RTLD_NOW | RTLD_DEEPBIND)) return 96;
    int rounds = !strcmp(how, "reload") ? 50 : 1;
    for (int round = 0; round < rounds; round++) {
        void* library;
        if (!strcmp(how, "dlmopen")) library = dlmopen(LM_ID_NEWLM, arguments[1], RTLD_NOW);
        else library = dlopen(arguments[1], !strcmp(how, "deepbind") ? RTLD_NOW | RTLD_DEEPBIND : RTLD_NOW);
        if (!library) {
            puts(dlerror());
            return 98;
        }
        void* (*make)(size_t) = (void* (*)(size_t))dlsym(library, "plugin_make");
        void (*drop)(void*) = (void (*)(void*))dlsym(library, "plugin_drop");
        if (!make || !drop) return 97;
        for (int i = 0; i < 3; i++) {
            free(kept[i]);
            kept[i] = make(4241);
        }
        if (strcmp(how, "dlmopen")) {
            for (int i = 0; i < 1000; i++) {
                free(make(100));
                drop(malloc(100));
            }
        }
        if (strcmp(how, "keep") && strcmp(how, "not found")) dlclose(library);
    }
    printf("%d\n", ((char*)kept[2])[4240]);
    return 0;
}
