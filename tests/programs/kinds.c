// A program that the tests build in many ways, and that does things which have caused problems for
// preloaded libraries:
//
//     kinds alloc [ROUNDS] | threads | fork | close | strict | limits | clear | signals | stdio
//
// Its output is the same in every run with the same arguments.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// From linux/seccomp.h, which musl's compiler does not find.
#ifndef SECCOMP_MODE_STRICT
#define SECCOMP_MODE_STRICT 1
#endif

static int rounds = 20000;

static void* churn(void* seed) {
  unsigned state = (unsigned)(size_t)seed, sum = 0;
  unsigned char* held[64] = {0};
  for (int i = 0; i < rounds; ++i) {
    state = state * 1664525u + 1013904223u;
    unsigned slot = state >> 26, bytes = 1 + (state >> 8) % 5000;
    held[slot] = realloc(held[slot], bytes);
    held[slot][bytes - 1] = (unsigned char)state;
    sum += held[slot][bytes - 1];
    if (state & 64) free(held[slot]), held[slot] = NULL;
  }
  for (int i = 0; i < 64; ++i) free(held[i]);
  return (void*)(size_t)sum;
}

static unsigned in_threads(int count) {
  pthread_t threads[64];
  unsigned sum = 0;
  for (int i = 0; i < count; ++i) pthread_create(&threads[i], NULL, churn, (void*)(size_t)(i + 1));
  for (int i = 0; i < count; ++i) {
    void* one;
    pthread_join(threads[i], &one);
    sum += (unsigned)(size_t)one;
  }
  return sum;
}

static int child_status(pid_t child) {
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void say(const char* text) {
  if (write(1, text, strlen(text)) < 0) _exit(99);
}

static volatile int came;
static void count(int signal) { came += signal == SIGUSR1; }

int main(int argc, char** argv) {
  const char* mode = argc > 1 ? argv[1] : "alloc";
  if (argc > 2) rounds = atoi(argv[2]);
  setvbuf(stdout, NULL, _IONBF, 0);
  if (!strcmp(mode, "alloc")) printf("alloc %u\n", (unsigned)(size_t)churn((void*)7));
  if (!strcmp(mode, "threads")) printf("threads %u\n", in_threads(40));
  if (!strcmp(mode, "fork")) {
    int sum = 0;
    for (int i = 0; i < 5; ++i) {
      pid_t child = fork();
      if (child == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0) _exit(i);
        exit(child_status(grandchild) + 10);
      }
      sum += child_status(child);
    }
    pid_t child = vfork();
    if (child == 0) {
      execl("/bin/sh", "sh", "-c", "exit 3", (char*)NULL);
      _exit(4);
    }
    printf("fork %d %d %d\n", sum, child_status(child), system("exit 5") >> 8);
  }
  if (!strcmp(mode, "close")) {
    for (int fd = 3; fd < 20000; ++fd) close(fd);
    int pair[2];
    if (pipe(pair)) return 9;
    printf("close %d %d\n", pair[0], pair[1]);
    close(0), close(1), close(2);
    int null = open("/dev/null", O_RDWR);
    return null == 0 ? 6 : 7;
  }
  if (!strcmp(mode, "strict")) {
    say("strict\n");
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) return 9;
    say("still\n");
    syscall(SYS_exit, 8);
  }
  if (!strcmp(mode, "limits")) {
    signal(SIGXFSZ, SIG_IGN);
    struct { int what; rlim_t most; } limits[] = {
        {RLIMIT_NOFILE, 10}, {RLIMIT_FSIZE, 1 << 20}, {RLIMIT_MEMLOCK, 0}, {RLIMIT_CORE, 0}, {RLIMIT_DATA, 64 << 20}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; ++i) {
      struct rlimit limit = {limits[i].most, limits[i].most};
      if (setrlimit(limits[i].what, &limit)) return 9;
    }
    int opened = 0;
    while (open("/dev/null", O_RDONLY) >= 0) ++opened;
    for (int fd = 3; fd < 10; ++fd) close(fd);
    printf("limits %d %s\n", opened, malloc(512 << 20) ? "memory" : strerror(errno));
    pid_t child = fork();
    if (child == 0) {
      execl("/bin/sh", "sh", "-c", "ulimit -n; ulimit -f", (char*)NULL);
      _exit(4);
    }
    return child_status(child);
  }
  if (!strcmp(mode, "clear")) {
    clearenv();
    char* arguments[] = {argv[0], "alloc", NULL};
    execv("/proc/self/exe", arguments);
    return 9;
  }
  if (!strcmp(mode, "signals")) {
    struct sigaction action = {.sa_handler = count};
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < 100; ++i) raise(SIGUSR1);
    printf("signals %d\n", came);
    raise(SIGKILL);
  }
  if (!strcmp(mode, "stdio")) {
    char line[100];
    int lines = 0;
    while (fgets(line, sizeof line, stdin)) ++lines;
    fprintf(stderr, "on stderr\n");
    printf("stdio %d\n", lines);
    return 11;
  }
  return 0;
}
