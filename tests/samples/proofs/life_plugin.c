/* A library that allocates when it is loaded, called and unloaded. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void* loaded;

__attribute__((constructor)) static void load(void) {
    loaded = malloc(333);
    free(realloc(malloc(40), 4000));
    if (getenv("LIFE_FORKING_CONSTRUCTOR")) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) {
            free(malloc(500));
            _exit(6);
        }
        if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 6) abort();
    }
}

__attribute__((destructor)) static void unload(void) {
    free(loaded);
    free(malloc(444));
}

/* Allocated here, freed by the caller. */
void* plugin_make(size_t bytes) {
    void* block = malloc(bytes);
    if (block) memset(block, 7, bytes);
    return block;
}

/* Allocated by the caller, freed here. */
void plugin_drop(void* block) { free(block); }
