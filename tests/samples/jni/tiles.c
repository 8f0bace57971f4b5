/* A JNI library, for tests/tests/e2e/java/verdicts/native.rs. */
#include <jni.h>
#include <stdlib.h>
#include <string.h>

static char *table;

/* Once, for the whole process. */
static void prepare(void)
{
    if (table == NULL)
        table = calloc(1, 300000);
}

static void *decoded(jint bytes)
{
    void *pixels = malloc((size_t) bytes);
    if (pixels != NULL)
        memset(pixels, table[bytes], (size_t) bytes);
    return pixels;
}

JNIEXPORT jlong JNICALL Java_Tiles_open(JNIEnv *env, jclass class, jint bytes)
{
    prepare();
    return (jlong) (size_t) decoded(bytes);
}

JNIEXPORT void JNICALL Java_Tiles_close(JNIEnv *env, jclass class, jlong pixels)
{
    free((void *) (size_t) pixels);
}
