/* The app's own library: functions that Decoder.java calls. */
#include <jni.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) static char *decoded(size_t bytes, int tile) {
    char *block = malloc(bytes);
    if (block) memset(block, tile, bytes);
    __asm__ volatile("" : "+r"(block) : : "memory");
    return block;
}

__attribute__((noinline)) static int kept(int tile) {
    char *row = decoded(1009, tile), *column = decoded(1009, tile);
    int sum = row && column ? row[7] + column[7] : -1;
    __asm__ volatile("" : "+r"(row), "+r"(column));
    return sum;
}

JNIEXPORT jint JNICALL Java_com_example_tracks_Decoder_keep(JNIEnv *env, jclass class, jint tile) {
    (void)env, (void)class;
    int sum = kept(tile);
    __asm__ volatile("" : "+r"(sum));
    return sum;
}

JNIEXPORT jint JNICALL Java_com_example_tracks_Decoder_decode(JNIEnv *env, jclass class, jint tile) {
    (void)env, (void)class;
    char *block = decoded(2003, tile);
    int sum = block ? block[7] : -1;
    free(block);
    return sum;
}
