/* Leaves three blocks allocated. Their stacks can be read from frame records. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void* volatile kept[3];

__attribute__((noinline)) static void lose(int place, size_t bytes) {
    kept[place] = malloc(bytes);
    /* Prevents a tail call. */
    __asm__ volatile("");
}

__attribute__((noinline)) static void churn(void) {
    for (int i = 0; i < 1000; i++) {
        void* volatile block = calloc(3, 7);
        block = realloc(block, 100 + i);
        free(block);
        free(NULL);
    }
}

static void* thread(void* place) {
    churn();
    lose((int)(size_t)place, 148);
    return NULL;
}

int main(void) {
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++) pthread_create(&threads[i], NULL, thread, (void*)(i + 1));
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    churn();
    lose(0, 4711);
    puts("done");
    return 0;
}
