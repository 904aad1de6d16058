// A program that ends, forks and replaces itself in ways that matter to profiler plugins.
//
//     plugged MODE [PROGRAM…]
//
// `crates/cli/tests/it/plugin_in_programs.rs` contains the expected recording of a plugin in each
// mode.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void rest(int ms) { usleep((useconds_t)ms * 1000); }

static void* ends(void* argument) {
  (void)argument;
  rest(5);
  exit(4);
}

static int wait_for(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int count, char** words) {
  const char* mode = count > 1 ? words[1] : "";
  rest(2);
  if (!strcmp(mode, "return")) return 3;
  if (!strcmp(mode, "exit")) exit(3);
  if (!strcmp(mode, "_exit")) _exit(3);
  if (!strcmp(mode, "kill")) raise(SIGKILL);
  if (!strcmp(mode, "abort")) abort();
  if (!strcmp(mode, "threads")) {  // The other thread ends the program.
    pthread_t thread;
    pthread_create(&thread, NULL, ends, NULL);
    for (;;) pause();
  }
  if (!strcmp(mode, "fork")) {  // The child ends in an orderly way.
    pid_t child = fork();
    if (child == 0) exit(7);
    return wait_for(child);
  }
  if (!strcmp(mode, "children")) {  // Each child is a program of its own.
    for (int i = 0; i < 2; i++) {
      pid_t child = fork();
      if (child == 0) {
        execv(words[2], words + 2);
        _exit(127);
      }
      if (wait_for(child) != 3) return 1;
    }
    return 0;
  }
  if (!strcmp(mode, "exec")) {  // The first two do not exist.
    execl("/nowhere/at all", "x", NULL);
    execl("/", "x", NULL);
    execv(words[2], words + 2);
    return 127;
  }
  if (!strcmp(mode, "system")) return system(words[2]) == 0 ? 0 : 1;
  if (!strcmp(mode, "wait")) {  // Until its standard input ends.
    char byte;
    while (read(0, &byte, 1) > 0) {
    }
    return 0;
  }
  return 64;
}
