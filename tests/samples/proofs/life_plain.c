/* Allocates a little, frees most of it and keeps 3 x 4241: a simple program for testing other ways to build one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void* volatile kept[3];

int main(void) {
    for (int i = 0; i < 5000; i++) free(realloc(malloc(50 + (size_t)i % 100), 300));
    for (int i = 0; i < 3; i++) kept[i] = malloc(4241);
    char* text = strdup("some text");
    puts(text);
    free(text);
    return 0;
}
