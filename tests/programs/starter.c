// Starts a program with one of glibc's `exec` or `posix_spawn` functions.
//
//     starter [-l LIBRARY] WAY PROGRAM
//
// WAY is one of the names in the function `start` below, optionally with the prefix `fork-` or
// `vfork-`. With a prefix, a child starts the program, and the starter prints the child's exit
// status or signal. With `-l`, the starter itself first makes five calls into an executable
// library. PROGRAM gets eight arguments (the first is its name), which are too many to pass in
// registers to functions such as `execl`.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"

extern char** environ;

#define LIST "one", "two", "three", "four", "five", "six", "seven"

// Returns the environment with MARK=yes added, for the ways that take an environment.
static char** with_mark(void) {
  static char* all[200000];
  size_t count = 0;
  for (; environ[count] && count < 199998; ++count) all[count] = environ[count];
  all[count] = "MARK=yes";
  return all;
}

static int reap(pid_t child) {
  int status;
  if (child < 0 || waitpid(child, &status, 0) != child) return 3;
  if (WIFSIGNALED(status)) printf("signal %d\n", WTERMSIG(status));
  else printf("status %d\n", WEXITSTATUS(status));
  return 0;
}

// Returns only on failure, or if the program was spawned.
static int start(const char* way, char* program, char** marked, int* spawned) {
  char* arguments[] = {program, LIST, NULL};
  char* empty[] = {NULL};
  *spawned = 0;
  if (!strcmp(way, "execve")) return execve(program, arguments, marked);
  if (!strcmp(way, "cleared")) return execve(program, arguments, empty);
  if (!strcmp(way, "execv")) return execv(program, arguments);
  if (!strcmp(way, "execvp")) return execvp(program, arguments);
  if (!strcmp(way, "execvpe")) return execvpe(program, arguments, marked);
  if (!strcmp(way, "execl")) return execl(program, program, LIST, (char*)NULL);
  if (!strcmp(way, "execlp")) return execlp(program, program, LIST, (char*)NULL);
  if (!strcmp(way, "execle")) return execle(program, program, LIST, (char*)NULL, marked);
  if (!strcmp(way, "fexecve")) return fexecve(open(program, O_RDONLY | O_CLOEXEC), arguments, marked);
  if (!strcmp(way, "execveat")) return syscall(SYS_gettid) ? execveat(AT_FDCWD, program, arguments, marked, 0) : 3;
  pid_t child;
  *spawned = 1;
  if (!strcmp(way, "spawn")) errno = posix_spawn(&child, program, NULL, NULL, arguments, marked);
  else if (!strcmp(way, "spawnp")) errno = posix_spawnp(&child, program, NULL, NULL, arguments, marked);
  else _exit(2);
  return errno ? -1 : reap(child);
}

int main(int argc, char** argv) {
  if (argc > 2 && !strcmp(argv[1], "-l")) {
    loaded_t library = load(argv[2]);
    dispatch(&library, NOTHING, 5, 1, 1, 0, NULL);
    argv += 2, argc -= 2;
  }
  if (argc != 3) return 2;
  const char* way = argv[1];
  int forks = !strncmp(way, "fork-", 5), vforks = !strncmp(way, "vfork-", 6);
  way += forks ? 5 : vforks ? 6 : 0;
  char** marked = with_mark();
  setvbuf(stdout, NULL, _IONBF, 0);
  int spawned;
  errno = 0;
  if (forks || vforks) {
    pid_t child = forks ? fork() : vfork();
    if (child == 0) {
      start(way, argv[2], marked, &spawned);
      _exit(100 + errno);
    }
    int left = errno;  // A vfork child shares errno.
    int result = reap(child);
    if (left != 0) printf("errno %d\n", left);
    return result;
  }
  int result = start(way, argv[2], marked, &spawned);
  if (result == -1) printf("errno %d\n", errno);
  return spawned && result == 0 ? 0 : 3;
}
