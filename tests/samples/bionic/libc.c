/*
 * What bionic has and glibc has not, or has in another form, so that the agent as it is built for Android can be run on
 * Linux: the same library file, over the same kernel. Everything else it needs has one name and one meaning in both.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int* __errno(void) {
    return __errno_location();
}

/* No property is set. */
int __system_property_get(const char* name, char* value) {
    (void)name;
    *value = 0;
    return 0;
}

/* On 64-bit bionic a set of signals is one word, as it is for the kernel. */
int sigfillset(sigset_t* set) {
    memset(set, 0xff, 8);
    return 0;
}

int sigprocmask(int how, const sigset_t* set, sigset_t* old) {
    return (int)syscall(SYS_rt_sigprocmask, how, set, old, 8);
}

int __xpg_strerror_r(int number, char* text, size_t bytes);
int memgate_strerror_r(int number, char* text, size_t bytes) __asm__("strerror_r");
int memgate_strerror_r(int number, char* text, size_t bytes) {
    return __xpg_strerror_r(number, text, bytes);
}
