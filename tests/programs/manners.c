// Does things that additional threads in the process could disturb.
//
//     manners MODE
//
// `crates/cli/tests/it/plugin_manners.rs` runs each mode without Counterpoint and with plugins, and
// expects the same output and the same status.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void* ends_later(void* argument) {
  usleep(20000);
  puts("the last thread has ended");
  return argument;
}

static void said_at_exit(void) { puts("at exit"); }

static void signals(void) {
  char line[256];
  FILE* status = fopen("/proc/self/status", "r");
  while (status && fgets(line, sizeof line, status))
    if (!strncmp(line, "Sig", 3) && strncmp(line, "SigQ", 4)) fputs(line, stdout);
}

int main(int count, char** words) {
  const char* mode = count > 1 ? words[1] : "";
  printf("%s: ", mode);  // Stays in the buffer until the program ends.
  if (!strcmp(mode, "ids")) {
    gid_t groups[64];
    int have = getgroups(64, groups);
    printf("%d ", setgid(getgid()));
    printf("%d ", setgroups((size_t)have, groups));
    printf("%d\n", setuid(getuid()));
    return 3;
  }
  if (!strcmp(mode, "bare")) {
    fflush(stdout);
    syscall(SYS_exit, 5);
  }
  if (!strcmp(mode, "strict")) {
    fflush(stdout);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    syscall(SYS_exit, 6);
  }
  if (!strcmp(mode, "unshare")) {
    printf("%d ", unshare(CLONE_NEWUSER) ? errno : 0);
    printf("%d\n", unshare(CLONE_FS) ? errno : 0);
    return 3;
  }
  if (!strcmp(mode, "leave")) {  // The process ends with its last thread, as by exit(0).
    pthread_t thread;
    atexit(said_at_exit);
    pthread_create(&thread, NULL, ends_later, NULL);
    pthread_detach(thread);
    pthread_exit(NULL);
  }
  if (!strcmp(mode, "descriptors")) {  // Which numbers are free, here and in a child.
    usleep(50000);
    int first = open("/dev/null", O_RDONLY), last = dup(first), more = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
      for (int fd = last + 1; fd < 1000; fd++) more += fcntl(fd, F_GETFD) >= 0;
      _exit(more);
    }
    waitpid(child, &more, 0);
    printf("%d %d %d\n", first, last, WEXITSTATUS(more));
    return 3;
  }
  if (!strcmp(mode, "signals")) {
    signals();
    return 3;
  }
  if (!strcmp(mode, "wait")) {  // Until it is killed.
    fflush(stdout);
    for (;;) pause();
  }
  puts("done");
  return 3;
}
