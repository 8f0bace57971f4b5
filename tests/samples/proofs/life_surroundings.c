/* Changes the environment of its process: descriptors, users, namespaces, the root folder. It checks every byte of its
 * own files: nobody else may write there. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void* volatile kept[4];

static void tell(const char* what, int holds) {
    if (dprintf(1, "%s: %s\n", what, holds ? "yes" : "no") < 0) abort();
}

static void work(int n) {
    for (int i = 0; i < n; i++) free(realloc(malloc(50 + (size_t)i % 100), 300));
}

/* Opens a file at every number up to `last`, works, and checks whether somebody wrote into one. */
static void own_files(int last) {
    int files = 0, strange = 0;
    for (int i = 3; i <= last; i++) {
        int file = memfd_create("own", 0);
        if (file < 0) break;
        if (file != i) {
            dup2(file, i);
            close(file);
        }
        if (write(i, "own", 3) != 3) abort();
        files++;
    }
    for (int i = 0; i < 3; i++) kept[i] = malloc(4241);
    work(100000);
    for (int n = 0; n < 5000; n++) kept[3] = malloc(64 + (size_t)n); /* a snapshot that needs space */
    for (int i = 3; i < 3 + files; i++) {
        struct stat is;
        char text[4] = "";
        strange += fstat(i, &is) != 0 || is.st_size != 3 || pread(i, text, 3, 0) != 3 || strcmp(text, "own");
    }
    tell("all numbers were free", files == last - 2);
    tell("files are untouched", strange == 0);
}

/* A child works and ends while it shares the open files; the parent then checks what it wrote last. */
static void look_afterwards(int last) {
    pid_t user = fork();
    if (user < 0) abort();
    int status;
    if (user > 0) {
        while (waitpid(user, &status, 0) < 0) continue;
        int strange = 0;
        for (int i = 3; i <= last; i++) {
            struct stat is;
            strange += fstat(i, &is) != 0 || is.st_size != 3;
        }
        tell("files are untouched after its end", strange == 0);
        tell("it ended as it should", WIFEXITED(status) && WEXITSTATUS(status) == 4);
        exit(3);
    }
    for (int n = 0; n < 5000; n++) kept[3] = malloc(64 + (size_t)n);
    exit(4);
}

int main(int count, char** arguments) {
    const char* how = count > 1 ? arguments[1] : "";
    kept[0] = malloc(4241);
    if (!strcmp(how, "closefrom")) {
        closefrom(3);
        own_files(600);
        look_afterwards(600);
    } else if (!strcmp(how, "close_range")) {
        tell("close_range", close_range(3, ~0u, 0) == 0);
        own_files(600);
        look_afterwards(600);
    } else if (!strcmp(how, "dup2 high")) {
        for (int i = 3; i < 1020; i++) close(i);
        own_files(1000);
        look_afterwards(1000);
    } else if (!strcmp(how, "few descriptors")) {
        struct rlimit four = {4, 4};
        tell("limit", setrlimit(RLIMIT_NOFILE, &four) == 0);
        for (int n = 0; n < 60000; n++) kept[3] = malloc(64 + (size_t)n % 30000); /* more than 64 KiB hold */
        own_files(3);
        look_afterwards(3);
    } else if (!strcmp(how, "unshare user")) {
        tell("unshare", unshare(CLONE_NEWUSER) == 0);
        work(1000);
        kept[1] = malloc(4241);
        kept[2] = malloc(4241);
    } else if (!strcmp(how, "unshare mount")) {
        tell("unshare", unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0);
        work(1000);
        kept[1] = malloc(4241);
        kept[2] = malloc(4241);
    } else if (!strcmp(how, "unshare pid")) {
        tell("unshare", unshare(CLONE_NEWUSER | CLONE_NEWPID) == 0);
        pid_t child = fork();
        if (child == 0) {
            tell("first of its namespace", getpid() == 1);
            work(1000);
            kept[1] = malloc(4253);
            exit(6);
        }
        int status = 0;
        waitpid(child, &status, 0);
        tell("child", WEXITSTATUS(status) == 6);
    } else if (!strcmp(how, "setns")) {
        int mine = open("/proc/self/ns/mnt", O_RDONLY);
        tell("setns", setns(mine, 0) == 0);
        work(1000);
    } else if (!strcmp(how, "chroot")) {
        char folder[] = "/tmp/memgate-life-XXXXXX";
        tell("folder", mkdtemp(folder) != NULL);
        int outside = open("/tmp", O_RDONLY | O_DIRECTORY);
        /* A user namespace gives the privilege. */
        tell("chroot", (geteuid() == 0 || unshare(CLONE_NEWUSER) == 0) && chroot(folder) == 0 && chdir("/") == 0);
        work(1000);
        for (int i = 1; i < 3; i++) kept[i] = malloc(4241);
        if (count > 2) { /* so much that the spool must grow, and its folder is out of reach */
            for (int n = 0; n < 60000; n++) kept[3] = malloc(64 + (size_t)n);
        }
        tell("tidy", unlinkat(outside, folder + sizeof "/tmp", AT_REMOVEDIR) == 0);
        close(outside);
    } else if (!strcmp(how, "setresuid")) {
        tell("groups", setgroups(0, NULL) == 0);
        tell("group", setresgid(65534, 65534, 65534) == 0);
        tell("user", setresuid(65534, 65534, 65534) == 0);
        work(1000);
        kept[1] = malloc(4241);
        kept[2] = malloc(4241);
        pid_t child = fork();
        if (child == 0) {
            kept[3] = malloc(4253);
            exit(6);
        }
        int status = 0;
        waitpid(child, &status, 0);
        tell("child", WEXITSTATUS(status) == 6);
    } else if (!strcmp(how, "privileged")) {
        /* Set-user-id: the loader drops LD_PRELOAD. Allocates as usual. */
        tell("runs as the file's owner", geteuid() == 0 && getuid() != 0);
        work(1000);
        return 0;
    } else {
        return 99;
    }
    return 3;
}
