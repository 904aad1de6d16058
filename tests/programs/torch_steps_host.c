/* Stands in for PyTorch and Counterpoint's shim in a program with steps. It announces ops only
 * while the recorder asks for that (counterpoint/torch_ops.h). Without Counterpoint, it does the
 * same work and prints the same output.
 *
 *     torch_steps_host MODE STEPS
 *
 * Each step begins with the range "a step" and has 5 calls of aten::same, and of aten::other
 *
 *   same, fork, kill, alone,
 *   threads, worker             3 calls
 *   varying                     from 1 to 9 calls
 *   none                        3 calls, and no range
 *   inside                      3 calls, which are inside of a call of aten::around
 *   tail                        3 calls; after the steps, calls of aten::tail until they are announced, and then
 *                               50,000 more
 *
 * It prints how often it called aten::other. With `threads`, another thread makes 2 calls of
 * aten::worker in each step; with `worker`, that thread makes 72. With `alone` and `worker`, the
 * processor time of the process is simulated (see `clock_gettime`). With `fork`, the program forks
 * a child after the calls of each hundredth step, and the child makes 7 calls of aten::child. With
 * `inside`, that child is forked inside of aten::around, and leaves aten::around after its calls.
 * With `kill`, the program kills itself after the last step. In every mode, the program calls
 * aten::first 4 times before the first step.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../include/counterpoint/torch_ops.h"

static const counterpoint_torch_ops_t* table;
static int by_steps;
static volatile int wanted = 1;
/* Ops that were not announced. As in PyTorch's sampling, each 256th asks whether announcing is
 * overdue. */
static unsigned canary;

/* The processor time of the process in ns, and whether `clock_gettime` returns it. */
static uint64_t simulated_ns;
static int is_simulated;

/* The simulated time of an op, and the additional time for announcing it. */
enum { OP_NS = 100, ANNOUNCING_NS = 1000 };

static void pass(uint64_t ns) { __atomic_fetch_add(&simulated_ns, ns, __ATOMIC_RELAXED); }

/* Counterpoint calls this, too, because the dynamic linker searches the program first. */
int clock_gettime(clockid_t clock, struct timespec* time) {
  if (!is_simulated || clock != CLOCK_PROCESS_CPUTIME_ID) {
    return (int)syscall(SYS_clock_gettime, clock, time);
  }
  const uint64_t ns = __atomic_load_n(&simulated_ns, __ATOMIC_RELAXED);
  time->tv_sec = (time_t)(ns / 1000000000);
  time->tv_nsec = (long)(ns % 1000000000);
  return 0;
}

/* Returns whether the op was announced. If so, its end must be announced, too. */
static int begin(counterpoint_torch_call_t* what, const char* name) {
  memset(what, 0, sizeof(*what));
  what->size = sizeof(*what);
  what->name = name;
  what->sequence = -1;
  what->thread = 1;
  if (table && !wanted && ++canary % 256 == 0 && table->is_overdue()) wanted = 1;
  pass(OP_NS);
  if (!table || !wanted) return 0;
  /* Announcing costs much more than the variation of a step's processor time. */
  for (volatile int spin = 0; spin < 2000; ++spin) {
  }
  pass(ANNOUNCING_NS);
  if (!table->begin_known(what, what)) table->begin(what, what);
  return 1;
}

static void op(const char* name) {
  counterpoint_torch_call_t what;
  if (begin(&what, name)) table->end(&what, NULL);
}

static void step(void) {
  static char memory[4096] __attribute__((aligned(16)));
  if (!table) return;
  if (by_steps) {
    const int32_t now = table->range_begins("a step", 0, 0);
    if (now >= 0) wanted = now;
  }
  counterpoint_torch_call_t what = {0};
  what.size = sizeof(what);
  what.kind = COUNTERPOINT_TORCH_RANGE;
  what.name = "a step";
  what.sequence = -1;
  if (table->begin_apart(memory, &what)) table->end_apart(memory, NULL);
}

/* As with OpenMP, the worker makes its calls while the main thread waits. */
static pthread_barrier_t barrier;
static int over, calls_of_worker = 2;

static void* work(void* unused) {
  for (;;) {
    pthread_barrier_wait(&barrier);
    if (over) return unused;
    for (int i = 0; i < calls_of_worker; ++i) op("aten::worker");
    pthread_barrier_wait(&barrier);
  }
}

/* The child ends the call `around` if there is one. */
static void fork_child(counterpoint_torch_call_t* around) {
  const pid_t pid = fork();
  if (pid > 0) waitpid(pid, NULL, 0);
  if (pid != 0) return;
  if (table && by_steps) {
    wanted = 1;
    by_steps = table->steps(1);
  }
  for (int i = 0; i < 7; ++i) op("aten::child");
  if (around) table->end(around, NULL);
  exit(0);
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const char* mode = argv[1];
  const int steps = atoi(argv[2]), is_none = !strcmp(mode, "none"), forks = !strcmp(mode, "fork");
  const int varies = !strcmp(mode, "varying"), works = !strcmp(mode, "worker");
  const int threads = works || !strcmp(mode, "threads");
  if (works) calls_of_worker = 72;
  is_simulated = works || !strcmp(mode, "alone");
  const int inside = !strcmp(mode, "inside");
  table = dlsym(RTLD_DEFAULT, "counterpoint_torch_ops");
  if (table) {
    if (table->apart_bytes > 4096) return 2;
    table->ready();
    by_steps = table->steps(0);
  }
  pthread_t worker;
  if (threads) {
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&worker, NULL, work, NULL);
  }
  for (int i = 0; i < 4; ++i) op("aten::first");
  long others = 0;
  uint64_t random = 88172645463325252u;
  for (int i = 0; i < steps; ++i) {
    if (!is_none) step();
    for (int j = 0; j < 5; ++j) op("aten::same");
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    const int count = varies ? 1 + (int)(random % 9) : 3;
    counterpoint_torch_call_t around;
    const int is_around = inside && begin(&around, "aten::around");
    for (int j = 0; j < count; ++j) op("aten::other");
    if (inside && i % 100 == 99) fork_child(is_around ? &around : NULL);
    if (is_around) table->end(&around, NULL);
    others += count;
    if (threads) {
      pthread_barrier_wait(&barrier);
      pthread_barrier_wait(&barrier);
    }
    if (forks && i % 100 == 99) fork_child(NULL);
  }
  if (!strcmp(mode, "tail")) {
    const struct timespec pause = {0, 1000000};
    for (int i = 0; i < 10000 && !wanted; ++i) {
      for (int j = 0; j < 1000; ++j) op("aten::tail");
      nanosleep(&pause, NULL);
    }
    for (int j = 0; j < 50000; ++j) op("aten::tail");
  }
  if (threads) {
    over = 1;
    pthread_barrier_wait(&barrier);
    pthread_join(worker, NULL);
  }
  printf("%ld\n", others);
  fflush(stdout);
  if (!strcmp(mode, "kill")) kill(getpid(), SIGKILL);
  return 0;
}
