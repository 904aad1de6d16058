/* Ops with known numbers of instructions, which the program announces to Counterpoint
 * (counterpoint/agent.h). A round calls
 *
 *     loop_1000, loop_10000, loop_100000    1: sub $1, %rcx         two instructions, of which one is a
 *                                              jnz 1b               branch
 *     load_10000, load_100000               1: mov (%rdx), %rax     three, of which one is a load and one
 *                                              sub $1, %rcx         a branch
 *                                              jnz 1b
 *
 * The number in a name is the number of iterations. So a call of loop_100000 has 180,000
 * instructions and 90,000 branches more than a call of loop_10000, whatever other code a call
 * executes.
 *
 *     known [ROUNDS]           one thread; prints how many read(2) it made during the rounds
 *     known ROUNDS threads     two threads: `ten` calls loop_10000, and `hundred` calls loop_100000
 *     known ROUNDS fork        one thread, and then a child
 *     known ROUNDS price       ROUNDS empty ops, 21 times; prints the least ns per op
 *     known ROUNDS dispatches LIBRARY     the same functions as dispatches of the executable known_iree.c
 *     known ROUNDS loops       the loops of known_loops.c; with -DINSTRUMENTED
 *     known address            prints the address of `written`
 *
 * -DSTAND_IN is for machines without a PMU. Instead of each 100 iterations, there is a page fault,
 * and instead of each 1,000 iterations a write to `written`. The kernel counts both exactly. With
 * -DBROKEN, every loop is two percent too long. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "counterpoint/agent.h"

static const counterpoint_host_t known = {
    .size = sizeof(known),
    .name = "known",
    .title = "Known",
    .ops = "loops of known length",
    .library_key = "program",
    .without_calls = "nothing was called",
    .bookkeeping = "known.",
    .kinds = {[COUNTERPOINT_ROLE_OP] = "loop", [COUNTERPOINT_ROLE_RUN] = "run"},
};

static const counterpoint_agent_t* agent;
static const counterpoint_machine_t* machine;
volatile long written;

#ifdef STAND_IN
static void stand_in(unsigned long n) {
  size_t bytes = n / 100 * 4096;
  char* pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(pages, bytes, MADV_NOHUGEPAGE);
  for (size_t at = 0; at < bytes; at += 4096) ((volatile char*)pages)[at] = 1;
  munmap(pages, bytes);
  for (unsigned long i = 0; i < n / 1000; ++i) written = (long)i;
}
#endif

__attribute__((noinline)) static void loop(unsigned long n) {
#ifdef BROKEN
  n += n / 50;
#endif
#if defined(STAND_IN)
  stand_in(n);
#elif defined(__x86_64__)
  __asm__ volatile("1: sub $1, %0\n\tjnz 1b" : "+r"(n) : : "cc");
#elif defined(__aarch64__)
  __asm__ volatile("1: subs %0, %0, #1\n\tb.ne 1b" : "+r"(n) : : "cc");
#endif
}

__attribute__((noinline)) static void load(unsigned long n) {
#ifdef BROKEN
  n += n / 50;
#endif
#if defined(STAND_IN)
  stand_in(n);
#elif defined(__x86_64__)
  long out;
  __asm__ volatile("1: mov (%2), %1\n\tsub $1, %0\n\tjnz 1b" : "+r"(n), "=&r"(out) : "r"(&written) : "cc");
#elif defined(__aarch64__)
  long out;
  __asm__ volatile("1: ldr %1, [%2]\n\tsubs %0, %0, #1\n\tb.ne 1b" : "+r"(n), "=&r"(out) : "r"(&written) : "cc");
#endif
}

/* For programs that load this file as a library. */
void known_loop(unsigned long n);
void known_load(unsigned long n);
void known_loop(unsigned long n) { loop(n); }
void known_load(unsigned long n) { load(n); }

#ifdef INSTRUMENTED
void known_hits(long rounds);
#else
static void known_hits(long rounds) { (void)rounds; }
#endif

static const struct op {
  const char* name;
  void (*run)(unsigned long);
  unsigned long n;
} ops[] = {{"loop_1000", loop, 1000},
           {"loop_10000", loop, 10000},
           {"loop_100000", loop, 100000},
           {"load_10000", load, 10000},
           {"load_100000", load, 100000}};

static void call(const struct op* op) {
  char here;
  if (agent) agent->op_begin(machine, COUNTERPOINT_ROLE_OP, op->name, &here);
  if (op->run) op->run(op->n);
  if (agent) agent->op_end(&here);
}

static void rounds_of(long rounds) {
  for (long round = 0; round < rounds; ++round)
    for (size_t i = 0; i < sizeof ops / sizeof *ops; ++i) call(&ops[i]);
}

/* Returns the thread's read(2) so far, of which this function itself makes some. */
static long reads(void) {
  char line[80];
  long found = -1;
  FILE* file = fopen("/proc/thread-self/io", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    if (sscanf(line, "syscr: %ld", &found) == 1) break;
  if (file != NULL) fclose(file);
  return found;
}

static long thread_rounds;

static void* thread(void* op) {
  pthread_setname_np(pthread_self(), op == &ops[1] ? "ten" : "hundred");
  for (long round = 0; round < thread_rounds; ++round) call(op);
  return NULL;
}

static int compare(const void* a, const void* b) {
  double difference = *(const double*)a - *(const double*)b;
  return (difference > 0) - (difference < 0);
}

static void price(long rounds) {
  static const struct op nothing = {"nothing", NULL, 0};
  double batches[21];
  for (int batch = 0; batch < 21; ++batch) {
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (long i = 0; i < rounds; ++i) call(&nothing);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double ns = 1e9 * (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec);
    batches[batch] = ns / (double)rounds;
  }
  qsort(batches, 21, sizeof *batches, compare);
  printf("price %.1f\n", batches[0]);
}

/* Calls exports like IREE's loader of system libraries: each once in a round, with one
 * workgroup. */
static int dispatches(const char* file, long rounds) {
  typedef int dispatch_t(const void* environment, const void* dispatch, const void* workgroup);
  void* opened = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
  if (opened == NULL) return 1;
  const void* (*query)(unsigned, const void*) =
      (const void* (*)(unsigned, const void*))dlsym(opened, "iree_hal_executable_library_query");
  unsigned long environment[12] = {0}, workgroup[4] = {0};
  const struct {
    const void *header, *imports[2];
    unsigned count;
    dispatch_t* const* functions;
  }* library = query != NULL ? query(6, environment) : NULL;
  if (library == NULL) return 1;
  /* There is one workgroup of size 1, without constants and bindings. */
  struct {
    unsigned size_x, size_y;
    unsigned short size_z, constants;
    unsigned count_x, count_y;
    unsigned short count_z;
    unsigned char concurrency, bindings;
    const void* pointers[3];
  } dispatch = {1, 1, 1, 0, 1, 1, 1, 1, 0, {NULL, NULL, NULL}};
  for (long round = 0; round < rounds; ++round)
    for (unsigned i = 0; i < library->count; ++i)
      if (library->functions[i](environment, &dispatch, workgroup) != 0) return 1;
  return 0;
}

int main(int count, char** words) {
  const char* mode = count > 2 ? words[2] : "";
  long rounds = count > 1 ? atol(words[1]) : 20;
  if (count > 1 && strcmp(words[1], "address") == 0) {
    printf("%p\n", (void*)&written);
    return 0;
  }
  if (strcmp(mode, "dispatches") == 0) {
    if (count < 4 || dispatches(words[3], rounds) != 0) return 1;
    puts("done");
    return 0;
  }
  if (strcmp(mode, "loops") == 0) {
    known_hits(rounds);
    puts("done");
    return 0;
  }
  agent = dlsym(RTLD_DEFAULT, "counterpoint_agent");
  machine = agent ? agent->host_machine(&known, "loops") : NULL;
  static const struct op warm = {"warm", NULL, 0};
  if (strcmp(mode, "threads") == 0) {
    pthread_t threads[2];
    thread_rounds = rounds;
    for (int i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, thread, (void*)(size_t)&ops[1 + i]);
    for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  } else if (strcmp(mode, "price") == 0) {
    price(rounds);
  } else {
    call(&warm); /* The thread's counters are opened in its first call. */
    long first = reads(), second = reads();
    rounds_of(rounds);
    printf("reads %ld\n", reads() - second - (second - first));
    if (strcmp(mode, "fork") == 0) {
      fflush(stdout);
      pid_t child = fork();
      if (child == 0) {
        rounds_of(rounds);
        return 0;
      }
      int status;
      if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 1;
    }
  }
  puts("done");
  return 0;
}
