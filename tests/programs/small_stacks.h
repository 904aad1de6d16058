// Measures how much stack some work needs, on the kinds of stacks that programs make themselves: a
// stack for `makecontext`, and a stack for signal handlers. Each measurement runs on a new thread,
// so that it includes what the recorder does at a thread's first call. Then the work runs on a
// thread with the smallest possible stack, which must also be large enough for the code that runs
// when the thread ends.
//
// Prints "context BYTES", "signal BYTES" and "smallest thread". The tests compare these numbers
// with and without Counterpoint. The tests set LD_BIND_NOW, so that all symbols are bound when the
// program starts, because binding a symbol later takes 3 KiB of stack.
#ifndef SMALL_STACKS_H_
#define SMALL_STACKS_H_

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { STACK_SIZE = 1 << 18, STACK_PAINT = 0xAB };

static void (*stack_work)(void);
static ucontext_t stack_caller, stack_callee;

static void stack_body(void) { stack_work(); }

static void stack_handler(int number) {
  (void)number;
  stack_work();
}

static long stack_used(const unsigned char *stack) {
  long rest = 0;
  while (rest < STACK_SIZE && stack[rest] == STACK_PAINT) rest++;
  return STACK_SIZE - rest;
}

static void *in_context(void *stack) {
  getcontext(&stack_callee);
  stack_callee.uc_stack.ss_sp = stack;
  stack_callee.uc_stack.ss_size = STACK_SIZE;
  stack_callee.uc_link = &stack_caller;
  makecontext(&stack_callee, stack_body, 0);
  swapcontext(&stack_caller, &stack_callee);
  return NULL;
}

static void *in_handler(void *stack) {
  stack_t alternative = {.ss_sp = stack, .ss_size = STACK_SIZE}, none = {.ss_flags = SS_DISABLE};
  struct sigaction action = {.sa_handler = stack_handler, .sa_flags = SA_ONSTACK};
  sigaltstack(&alternative, NULL);
  sigaction(SIGUSR1, &action, NULL);
  pthread_kill(pthread_self(), SIGUSR1);
  sigaltstack(&none, NULL);
  return NULL;
}

static void *in_thread(void *unused) {
  stack_work();
  return unused;
}

static void on_small_stacks(void (*work)(void)) {
  static const struct { const char *name; void *(*run)(void *); } kinds[] = {
      {"context", in_context}, {"signal", in_handler}};
  stack_work = work;
  for (int i = 0; i < 2; i++) {
    unsigned char *stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(stack, STACK_PAINT, STACK_SIZE);
    pthread_t thread;
    if (pthread_create(&thread, NULL, kinds[i].run, stack)) exit(3);
    pthread_join(thread, NULL);
    printf("%s %ld\n", kinds[i].name, stack_used(stack));
    munmap(stack, STACK_SIZE);
  }
  pthread_attr_t smallest;
  pthread_attr_init(&smallest);
  pthread_t thread;
  long bytes = sysconf(_SC_THREAD_STACK_MIN);
  if (pthread_attr_setstacksize(&smallest, bytes > 16384 ? bytes : 16384)) exit(3);
  if (pthread_create(&thread, &smallest, in_thread, NULL)) exit(3);
  pthread_join(thread, NULL);
  puts("smallest thread");
}

#endif  // SMALL_STACKS_H_
