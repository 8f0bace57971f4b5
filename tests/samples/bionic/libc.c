/*
 * Functions that bionic has and glibc lacks, or has in another form. With them, the agent's Android build runs on
 * Linux: the same library file on the same kernel. All other functions have the same name and meaning in both.
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

/* On 64-bit bionic, as for the kernel, a signal set is one word. */
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
