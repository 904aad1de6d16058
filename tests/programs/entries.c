// Reaches the agent's entry points for memory, libraries, dispatches, threads, forks and the
// execution of other programs, and prints each step.
//
//     entries LIBRARY
//
// A handler of SIGUSR2 forks. The child returns from the handler into the code that the signal has
// interrupted, and continues to make calls. The parent prints how the child ended.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"

static loaded_t library;

static void call(uint32_t times) { dispatch(&library, NOTHING, times, 1, 1, 0, NULL); }
static void call_once(void) { call(1); }

static void* calls_of_a_thread(void* unused) {
  call(100);
  return unused;
}

static volatile pid_t forked_from;
static volatile pid_t child_of_handler;
static volatile int by_thread;
static pid_t main_process;
static void fork_here(int number) {
  (void)number;
  pid_t self = getpid();
  if (self != main_process) return;  // A vfork child, which shares these variables with us.
  pid_t child = fork();
  if (child == 0) forked_from = self;
  else child_of_handler = child, by_thread = gettid() != self;
}

static void say(const char* what) {
  // The child of the handler prints nothing, because it only has to survive.
  if (!forked_from) puts(what);
  fflush(stdout);
}

static void reap(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) say("no child");
  else if (WIFSIGNALED(status)) say("child killed");
  // A forked child has only the thread that forked it, and ends when that thread ends.
  else if (WEXITSTATUS(status) != 5 && !(child == child_of_handler && by_thread && status == 0)) say("child failed");
  else say("child came through");
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  main_process = getpid();
  setvbuf(stdout, NULL, _IOFBF, 4096);
  struct sigaction action = {.sa_handler = fork_here, .sa_flags = SA_RESTART};
  sigaction(SIGUSR2, &action, NULL);

  char* reserved = mmap(NULL, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED || mprotect(reserved, 4096, PROT_READ | PROT_EXEC)) return 3;
  munmap(reserved, 1 << 16);
  // If the agent is loaded, it defines this function, which AddressSanitizer's runtime would call.
  const char* (*options)(void) = (const char* (*)(void))dlsym(RTLD_DEFAULT, "__asan_default_options");
  if (options && !options()) return 3;
  say("memory");

  library = load(argv[1]);
  call(10);
  say("loaded");
  void (*volatile* inside)(void) = dlsym(library.handle, "inside_dispatch");
  if (!inside) return 3;
  *inside = call_once;
  dispatch(&library, CALL_OUT, 10, 1, 1, 0, NULL);
  say("nested");
  call(20000);
  say("many");
  for (int i = 0; i < 3; ++i) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, calls_of_a_thread, NULL) || pthread_join(thread, NULL)) return 3;
  }
  say("threads");
  dlclose(library.handle);
  library = load(argv[1]);
  call(10);
  say("again");
  pid_t child = fork();
  if (child == 0) {
    call(50);
    _exit(5);
  }
  reap(child);
  child = vfork();
  if (child == 0) {
    char* none[] = {NULL};
    execle("/bin/sh", "sh", "-c", "exit 5", (char*)NULL, none);
    _exit(6);
  }
  reap(child);
  call(10);
  if (forked_from) _exit(5);
  if (child_of_handler) reap(child_of_handler);
  say("done");
  return 17;
}
