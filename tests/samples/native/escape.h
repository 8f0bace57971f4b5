// Shared by all sample programs.
#pragma once

// A function that leaks keeps its own frame, so that a report can name it.
#define NOINLINE __attribute__((noinline))

// Makes the compiler treat `block` as used: otherwise it may remove the allocation.
static inline void escape(void* block) { __asm__ volatile("" : : "g"(block) : "memory"); }
