// A library with a part of the malloc family: the rest is the C library's.
#include <stddef.h>

void *__libc_malloc(size_t bytes);
void __libc_free(void *block);

void *malloc(size_t bytes) { return __libc_malloc(bytes); }
void free(void *block) { __libc_free(block); }
