// What all sample programs share.
#pragma once

// Every function that leaks keeps a frame of its own, so that a report can name it.
#define NOINLINE __attribute__((noinline))

// Tells the compiler that `block` is used, or it may drop the allocation.
static inline void escape(void* block) { __asm__ volatile("" : : "g"(block) : "memory"); }
