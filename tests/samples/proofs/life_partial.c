// A library with only a part of the malloc family; the C library provides the other functions.
#include <stddef.h>

void *__libc_malloc(size_t bytes);
void __libc_free(void *block);

void *malloc(size_t bytes) { return __libc_malloc(bytes); }
void free(void *block) { __libc_free(block); }
