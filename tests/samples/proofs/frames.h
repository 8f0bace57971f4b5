// Difficult frames for tests/proofs/stacks. A section allocates under frames of one kind and prints how many stacks the
// agent may cut, and for which reason; all others must be whole.
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
// Stacks about which the two unwinders must disagree: proves that the comparison notices a difference.
extern volatile long planted;

// Makes one allocation, by one of the allocation functions.
void probe();
// Makes one allocation whose stack is cut.
void probe_cut(Reason reason);
// Ends the program if an assumption of a section does not hold.
void require(bool holds, const char* what);
// Number of frames from the caller to the root, by the system unwinder.
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

// frames_rules.S: each function calls its argument from its kind of frame.
extern "C" {
#define RULES(X) \
  X(rule_none) X(rule_data) X(rule_zero) X(rule_skips) X(rule_fake_rbp) X(rule_registers) X(rule_expression) \
  X(rule_signal) X(rule_rip) X(rule_states) X(rule_rbx) X(rule_drap) X(rule_far) X(rule_same) X(rule_long) X(rule_true)
#define DECLARE(name) void name(Function);
RULES(DECLARE)
#undef DECLARE
// Addresses in rule_drap where the CFA is in r10.
extern const char drap_begin[], drap_end[], drap_leaves[], drap_left[];
// Each calls the function on the stack that ends at `top`. By the unwind rules, the first returns to the caller's
// stack, the second to a zero, the third to the address of data.
void call_on_stack(Function, void* top);
void call_on_stack_zero(Function, void* top);
void call_on_stack_data(Function, void* top);
// By its rules, it returns to a word after the end of the stack.
void call_on_stack_end(Function, void* top);
// Turns the processor's trap after each instruction on and off.
void steps_on();
void steps_off();
// Frames of many shapes: thunk i calls function(argument).
extern void (*const thunks[])(void (*)(unsigned), unsigned);
extern const size_t thunk_count;
// The thunks that realign the stack.
extern void (*const thunks_realigned[])(void (*)(unsigned), unsigned);
extern void (*const thunks_realigned_end[])(void (*)(unsigned), unsigned);
// A signal return without unwind rules.
void bare_restorer();
}
