/* Starts ART as app_process does, without a zygote: vm [OPTION OF THE VIRTUAL MACHINE]… CLASS [ARGUMENT]… */
#include <dlfcn.h>
#include <jni.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char** words) {
    void* art = dlopen("libart.so.0", RTLD_NOW | RTLD_GLOBAL);
    if (!art) return fprintf(stderr, "%s\n", dlerror()), 2;
    jint (*create)(JavaVM**, JNIEnv**, void*) = (jint (*)(JavaVM**, JNIEnv**, void*))dlsym(art, "JNI_CreateJavaVM");
    JavaVMOption* options = calloc((size_t)count, sizeof *options);
    if (!create || !options) return fprintf(stderr, "libart has no JNI_CreateJavaVM, or there is no memory\n"), 2;
    int at = 1;
    for (; at < count && words[at][0] == '-'; at++) options[at - 1].optionString = words[at];
    if (at == count) return fprintf(stderr, "vm [OPTION]… CLASS [ARGUMENT]…\n"), 2;
    JavaVMInitArgs start = {JNI_VERSION_1_6, at - 1, options, JNI_FALSE};
    JavaVM* vm;
    JNIEnv* env;
    if (create(&vm, &env, &start)) return fprintf(stderr, "ART did not start\n"), 2;
    for (char* c = words[at]; *c; c++)
        if (*c == '.') *c = '/';
    jclass class = (*env)->FindClass(env, words[at++]);
    jmethodID entry = class ? (*env)->GetStaticMethodID(env, class, "main", "([Ljava/lang/String;)V") : NULL;
    jobjectArray arguments = entry ? (*env)->NewObjectArray(env, count - at, (*env)->FindClass(env, "java/lang/String"), NULL) : NULL;
    for (int i = at; arguments && i < count; i++) (*env)->SetObjectArrayElement(env, arguments, i - at, (*env)->NewStringUTF(env, words[i]));
    if (arguments) (*env)->CallStaticVoidMethod(env, class, entry, arguments);
    int failed = (*env)->ExceptionCheck(env);
    if (failed) (*env)->ExceptionDescribe(env);
    (*vm)->DetachCurrentThread(vm);
    (*vm)->DestroyJavaVM(vm);
    return failed ? 1 : 0;
}
