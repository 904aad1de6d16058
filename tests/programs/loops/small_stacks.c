// Runs loops on small stacks. clang compiles this file to LLVM IR, and
// `counterpoint loops instrument` instruments it.
//
//   small_stacks after N        N threads of 16 KiB one after another; thread i calls sum(i % 10 + 1)
//   small_stacks together N     the same, at the same time
//   small_stacks context BYTES  sum(10) on a stack of so many bytes for makecontext
//   small_stacks signal BYTES   sum(20) in a signal handler, on a stack of so many bytes
//
// Prints the total of the sums. `context` and `signal` also print how many bytes below the stack
// were overwritten. The stacks of `context` and `signal` have no guard page.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { BELOW = 1 << 16, PAINT = 0xAB, MOST = 4096 };

static long number, *sums;
static int together;
static pthread_barrier_t barrier;
static long result;
static ucontext_t caller, callee;

// Returns 0 + 1 + … + n - 1.
__attribute__((noinline)) static long sum(long n) {
  long sum = 0;
  for (long i = 0; i < n; i++) {
    sum += i;
    __asm__ volatile("" : "+r"(sum));
  }
  return sum;
}

static void *thread(void *place) {
  *(long *)place = sum(((long *)place - sums) % 10 + 1);
  if (together) pthread_barrier_wait(&barrier);
  return NULL;
}

static void threads(void) {
  static pthread_t all[MOST];
  pthread_attr_t small;
  pthread_attr_init(&small);
  if (number > MOST || pthread_attr_setstacksize(&small, 16384)) exit(3);
  pthread_barrier_init(&barrier, NULL, number);
  sums = calloc(number, sizeof *sums);
  for (long i = 0; i < number; i++) {
    if (pthread_create(&all[i], &small, thread, &sums[i])) exit(3);
    if (!together) pthread_join(all[i], NULL);
  }
  for (long i = 0; i < number; i++) {
    if (together) pthread_join(all[i], NULL);
    result += sums[i];
  }
  printf("%ld\n", result);
}

static void in_context(void) { result = sum(10); }

static void in_handler(int unused) {
  (void)unused;
  result = sum(20);
}

static void on_stack(int signal) {
  unsigned char *all = malloc(BELOW + number);
  memset(all, PAINT, BELOW + number);
  if (signal) {
    stack_t stack = {.ss_sp = all + BELOW, .ss_size = number};
    struct sigaction action = {.sa_handler = in_handler, .sa_flags = SA_ONSTACK};
    if (sigaltstack(&stack, NULL) || sigaction(SIGUSR1, &action, NULL)) exit(3);
    raise(SIGUSR1);
  } else {
    getcontext(&callee);
    callee.uc_stack = (stack_t){.ss_sp = all + BELOW, .ss_size = number};
    callee.uc_link = &caller;
    makecontext(&callee, in_context, 0);
    swapcontext(&caller, &callee);
  }
  long overwritten = 0;
  for (long i = 0; i < BELOW; i++) overwritten += all[i] != PAINT;
  printf("%ld, %ld bytes overwritten\n", result, overwritten);
}

int main(int count, char **words) {
  if (count != 3) return 2;
  number = atol(words[2]);
  together = !strcmp(words[1], "together");
  if (together || !strcmp(words[1], "after")) threads();
  else on_stack(!strcmp(words[1], "signal"));
  return 0;
}
