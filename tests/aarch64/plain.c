// Allocates, opens files, starts a thread, and prints the results, which must be the same with the agent.
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void* sums(void* from) {
  return (void*)((size_t)from + 1);
}

int main(int count, char** arguments) {
  char* texts[100];
  for (int i = 0; i < 100; i++) {
    texts[i] = strdup(arguments[0]);
    texts[i] = realloc(texts[i], 1000 + (size_t)i);
  }
  void* aligned = NULL;
  printf("%d ", posix_memalign(&aligned, 3, 10));
  int file = open("/dev/null", O_RDONLY), twin = dup(file), pair[2];
  printf("%d %d %d ", file, twin, pipe(pair));
  pthread_t thread;
  void* result = NULL;
  printf("%d ", pthread_create(&thread, NULL, sums, (void*)4));
  printf("%d %zu %s\n", pthread_join(thread, &result), (size_t)result, texts[7] + strlen(texts[7]) - 5);
  for (int i = 0; i < 100; i++) free(texts[i]);
  return close(file) + close(twin) + close(pair[0]) + close(pair[1]) + count - 1;
}
