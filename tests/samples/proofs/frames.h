// Nasty frames for tests/proofs/stacks. A section allocates under frames of one kind and tells how many of its
// allocations have a stack that the agent may cut, and for which reason; all others must be whole.
#pragma once

#include <cstddef>

enum Reason {
  deep,       // more frames than are kept
  no_object,  // code outside every loaded object
  no_rule,    // code without unwind rules
  exotic,     // a rule that is not followed
  bounds,     // a slot outside the stack
  reasons,
};

extern volatile long expected[reasons];
// Stacks that the two unwinders must tell differently: proof that a difference is seen.
extern volatile long planted;

// One allocation, by one of the functions that allocate.
void probe();
// One allocation whose stack is cut.
void probe_cut(Reason reason);
// Ends the program if what a section relies on does not hold.
void require(bool holds, const char* what);
// Frames from the caller to the root, by the system unwinder.
int depth();

using Function = void (*)();

// frames_code.cc
void jit(int rounds);
void plant(int rounds);
void reload(int rounds);
void converters(int rounds);
void binding(int rounds);
// frames_stacks.cc
void signals(int rounds);
void stepped(int rounds);
void timers(int rounds);
void coroutines(int rounds);
void made_stacks(int rounds);
void edges(int rounds);
void threads(int rounds);

// frames_rules.S: each calls its argument from a frame of its kind.
extern "C" {
#define RULES(X) \
  X(rule_none) X(rule_data) X(rule_zero) X(rule_skips) X(rule_fake_rbp) X(rule_registers) X(rule_expression) \
  X(rule_signal) X(rule_rip) X(rule_states) X(rule_rbx) X(rule_drap) X(rule_far) X(rule_same) X(rule_long) X(rule_true)
#define DECLARE(name) void name(Function);
RULES(DECLARE)
#undef DECLARE
// The part of rule_drap in which the CFA is in r10.
extern const char drap_begin[], drap_end[], drap_leaves[], drap_left[];
// Calls the function on the stack that ends at `top`. The rules of the first lead back to the caller's stack, those of
// the second to a zero, those of the third to the address of data.
void call_on_stack(Function, void* top);
void call_on_stack_zero(Function, void* top);
void call_on_stack_data(Function, void* top);
// The rules lead to a word behind the end.
void call_on_stack_end(Function, void* top);
// The processor's trap behind each instruction.
void steps_on();
void steps_off();
// Frames of many shapes: thunk i calls function(argument).
extern void (*const thunks[])(void (*)(unsigned), unsigned);
extern const size_t thunk_count;
// Those among them that realign the stack.
extern void (*const thunks_realigned[])(void (*)(unsigned), unsigned);
extern void (*const thunks_realigned_end[])(void (*)(unsigned), unsigned);
// A signal return without unwind rules.
void bare_restorer();
}
