// Makes calls without pause, and forks in a signal handler at random moments. Each child returns
// from the handler into the interrupted code, finishes its call and exits.
//
//     storm LIBRARY FORKS [bare]
//
// `bare` forks with `_Fork`, which runs no `pthread_atfork` handlers, if glibc has it. Prints how
// many children survived and how many did not; exits with 4 if any child did not.
#define _GNU_SOURCE
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"

static volatile sig_atomic_t forks, is_child, wanted;
static pid_t (*fork_fn)(void);

static void on_timer(int number) {
  (void)number;
  if (is_child || forks >= wanted) return;
  pid_t child = fork_fn();
  if (child == 0) is_child = 1;
  else if (child > 0) ++forks;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  loaded_t library = load(argv[1]);
  wanted = atoi(argv[2]);
  fork_fn = fork;
  if (argc > 3) {
    pid_t (*bare)(void) = (pid_t(*)(void))dlsym(RTLD_DEFAULT, "_Fork");
    if (bare && dlvsym(RTLD_DEFAULT, "_Fork", "GLIBC_2.34")) fork_fn = bare;
  }
  struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  struct itimerval every = {{0, 300}, {0, 300}};
  dispatch(&library, NOTHING, 10, 1, 1, 0, NULL);
  setitimer(ITIMER_REAL, &every, NULL);
  int through = 0, lost = 0;
  while (through + lost < wanted) {
    dispatch(&library, NOTHING, 1, 1, 1, 0, NULL);
    if (is_child) _exit(0);
    int status;
    while (waitpid(-1, &status, WNOHANG) > 0) {
      if (status == 0) ++through;
      else ++lost;
    }
  }
  printf("%d came through, %d did not\n", through, lost);
  return lost ? 4 : 0;
}
