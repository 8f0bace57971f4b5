/* Runs one program and writes what it used: `CPU_NS MAXRSS_KIB STATUS`.
 *
 *   measure RESULT ADDRESS_SPACE_MIB N NAME=VALUE... PROGRAM ARGUMENT...
 *
 * Only the program gets the N settings. ADDRESS_SPACE_MIB is a limit for it, 0: none. This is a separate, small
 * process, because the kernel includes the peak memory of the forking process in the peak of the child.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv) {
  if (argc < 5) return 2;
  const rlim_t limit = (rlim_t)atoll(argv[2]) << 20;
  const int settings = atoi(argv[3]);
  char **program = argv + 4 + settings;
  if (program >= argv + argc) return 2;
  int known = 0;
  while (environ[known]) known++;
  char **environment = calloc((size_t)(known + settings + 1), sizeof *environment);
  if (!environment) return 2;
  memcpy(environment, environ, (size_t)known * sizeof *environment);
  memcpy(environment + known, argv + 4, (size_t)settings * sizeof *environment);

  const pid_t child = vfork();
  if (child < 0) return 2;
  if (child == 0) {
    const struct rlimit space = {limit, limit};
    if (limit && setrlimit(RLIMIT_AS, &space) != 0) _exit(126);
    execve(program[0], program, environment);
    _exit(127);
  }
  int status = 0;
  struct rusage used;
  while (wait4(child, &status, 0, &used) < 0)
    if (errno != EINTR) return 2;
  FILE *result = fopen(argv[1], "w");
  if (!result) return 2;
  const long long microseconds =
      (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000LL + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
  fprintf(result, "%lld %ld %d\n", microseconds * 1000, used.ru_maxrss,
          WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  return fclose(result) == 0 ? 0 : 2;
}
