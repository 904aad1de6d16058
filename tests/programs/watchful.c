// A host that checks what Counterpoint's helper process could disturb in the host while the first
// executable is loaded: the host's children, SIGCHLD, the handlers of its timers, its signal mask,
// its descriptors and errno. Prints "undisturbed", or what was disturbed.
//
//     watchful MODE LIBRARY      MODE: plain, ignore (SIGCHLD ignored), closed (no standard streams)
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"

static volatile sig_atomic_t children, alarms, foreign;
static pid_t self;

static void on_child(int signal) { (void)signal; ++children; }

// If the signal reached the helper process, the handler would find another process id there.
static void on_alarm(int signal) {
  (void)signal;
  ++alarms;
  if (getpid() != self) foreign = 1;
}

static int descriptors(void) {
  int count = 0;
  DIR* directory = opendir("/proc/self/fd");
  while (directory && readdir(directory)) ++count;
  if (directory) closedir(directory);
  return count;
}

static int failures;
static void check(int good, const char* what) {
  if (!good) { ++failures; fprintf(stderr, "disturbed: %s\n", what); }
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const char* mode = argv[1];
  self = getpid();
  if (!strcmp(mode, "closed")) { close(0); close(1); close(2); }
  struct sigaction action = {.sa_handler = on_child, .sa_flags = SA_RESTART};
  if (!strcmp(mode, "ignore")) action.sa_handler = SIG_IGN;
  sigaction(SIGCHLD, &action, NULL);
  action.sa_handler = on_alarm;
  sigaction(SIGALRM, &action, NULL);

  int gate[2];
  if (pipe(gate)) return 3;
  pid_t child = fork();
  if (child == 0) {
    char byte;
    close(gate[1]);
    _exit(read(gate[0], &byte, 1) == 0 ? 7 : 8);
  }
  close(gate[0]);
  void* handle = dlopen(argv[2], RTLD_LAZY | RTLD_LOCAL);
  if (!handle) return 3;
  struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &often, NULL);
  /* The C library writes only the part of a set that the kernel uses. */
  sigset_t before = {0}, after = {0};
  sigprocmask(SIG_BLOCK, NULL, &before);
  int open_before = descriptors();

  environment_t environment = {0};
  query_fn query = (query_fn)dlsym(handle, "iree_hal_executable_library_query");
  errno = 1234;
  const library_v6_t* library = query(6, &environment);
  check(errno == 1234, "errno");

  check(descriptors() == open_before, "descriptors");
  sigprocmask(SIG_BLOCK, NULL, &after);
  check(!memcmp(&before, &after, sizeof before), "signal mask");
  setitimer(ITIMER_REAL, &never, NULL);
  check(!foreign, "a handler ran in another process");
  check(children == 0, "SIGCHLD");
  int status;
  check(waitpid(-1, &status, WNOHANG) == 0, "a child to wait for");

  loaded_t l = {handle, library->exports.ptrs, library->exports.count};
  dispatch(&l, NOTHING, 100, 1, 1, 0, NULL);
  close(gate[1]);
  pid_t ended = wait(&status);
  if (!strcmp(mode, "ignore")) {
    check(ended == -1 && errno == ECHILD, "wait with SIGCHLD ignored");
  } else {
    check(ended == child && WIFEXITED(status) && WEXITSTATUS(status) == 7, "wait");
    check(children == 1, "SIGCHLD of its own child");
    check(wait(&status) == -1 && errno == ECHILD, "a second child");
  }
  if (!failures) printf("undisturbed");  // Not flushed: the report must come after it.
  return failures ? 4 : 0;
}
