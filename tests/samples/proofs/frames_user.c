// Calls a library that it is not linked to.
void frame_of_its_own(void (*)(void));
void call_lazily(void (*function)(void)) {
  frame_of_its_own(function);
  __asm__ volatile("");
}
