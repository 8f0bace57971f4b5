/* A library that is loaded and unloaded. It is built with several PADs, which change only its frame sizes. If one is
 * loaded at the address of another, the old unwind rules are wrong. */
#include "stress_chain.h"

static uintptr_t site;

__attribute__((noinline)) static void inner(struct chain *chain, struct stress_call *call, stress_function probe) {
  CHAIN_ENTER(chain);
  volatile char pad[PAD];
  pad[0] = 1;
  call->result = call->function(call->a, call->b, call->c);
  if (call->function == probe) site = call->result;
  call->key = chain_extend(chain->hash[chain->depth], site);
  CHAIN_LEAVE(chain);
}

void plugin_call(struct chain *chain, struct stress_call *call, stress_function probe) {
  CHAIN_ENTER(chain);
  volatile char pad[PAD];
  pad[0] = 1;
  inner(chain, call, probe);
  CHAIN_LEAVE(chain);
}
