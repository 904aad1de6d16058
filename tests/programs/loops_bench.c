// Measures what a hit (one execution) of an instrumented loop costs under `counterpoint run
// --loops`. Prints `name value unit` lines: ns of processor time per hit, as medians of batches;
// the batches of all kernels are interleaved. The kernels (the small functions that are measured)
// are in loops_kernels.c. With -DXRAY, there are only two kernels: calls of an empty function,
// without instrumentation and with that of LLVM's XRay.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCHES = 151, HITS = 20000 };

volatile long one = 1;
volatile long long sink;

static double cpu_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

#define LEAF(kind)                                     \
  void kind##_leaf(void);                              \
  static void kind##_leaves(long n) {                  \
    for (long i = 0; i < n; i++) kind##_leaf();        \
  }
#define LOOPS(kind) void kind##_flat(long), kind##_nested(long);
#define ROW(kind, name) {#kind "_" #name, kind##_##name}

#ifdef XRAY
LEAF(plain)
LEAF(xray)
#else
LEAF(plain) LEAF(count) LEAF(timed) LEAF(sampled)
LOOPS(plain) LOOPS(bare) LOOPS(count) LOOPS(timed) LOOPS(sampled)
#endif

static struct {
  const char *name;
  void (*run)(long);
} kernels[] = {
#ifdef XRAY
    ROW(plain, leaves), ROW(xray, leaves),
#else
    ROW(plain, flat),    ROW(bare, flat),      ROW(count, flat),  ROW(timed, flat),
    ROW(sampled, flat),  ROW(plain, nested),   ROW(bare, nested), ROW(timed, nested),
    ROW(sampled, nested), ROW(plain, leaves),  ROW(count, leaves), ROW(timed, leaves),
    ROW(sampled, leaves),
#endif
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *all, int count) {
  qsort(all, count, sizeof *all, compare);
  return all[count / 2];
}

static double batch(void (*run)(long)) {
  double before = cpu_ns();
  run(HITS);
  return (cpu_ns() - before) / HITS;
}

#ifndef XRAY
static pthread_barrier_t barrier;

static void *in_thread(void *result) {
  static _Thread_local double took[BATCHES];
  batch(timed_flat);
  for (int i = 0; i < BATCHES; i++) {
    pthread_barrier_wait(&barrier);
    took[i] = batch(timed_flat);
  }
  *(double *)result = median(took, BATCHES);
  return NULL;
}

// Runs the same timed loop in `count` threads at the same time, and returns the time of the slowest
// one.
static double threads(int count) {
  pthread_t all[2];
  double took[2] = {0, 0};
  pthread_barrier_init(&barrier, NULL, count);
  for (int i = 0; i < count; i++) pthread_create(&all[i], NULL, in_thread, &took[i]);
  for (int i = 0; i < count; i++) pthread_join(all[i], NULL);
  return took[0] > took[1] ? took[0] : took[1];
}
#endif

int main(void) {
  static double took[KERNELS][BATCHES];
  for (int i = -2; i < BATCHES; i++)
    for (int k = 0; k < KERNELS; k++) {
      double ns = batch(kernels[k].run);
      if (i >= 0) took[k][i] = ns;
    }
  double all[KERNELS];
  for (int k = 0; k < KERNELS; k++) {
    all[k] = median(took[k], BATCHES);
    printf("%s %.3f ns\n", kernels[k].name, all[k]);
  }
#ifdef XRAY
  printf("xray_pair %.3f ns\n", all[1] - all[0]);
#else
  printf("bare_pair_flat %.3f ns\n", all[1] - all[0]);
  printf("count_hit %.3f ns\n", all[2] - all[0]);
  printf("timed_pair_flat %.3f ns\n", all[3] - all[0]);
  printf("sampled_hit %.3f ns\n", all[4] - all[0]);
  printf("bare_pair_nested %.3f ns\n", (all[6] - all[5]) / 2);
  printf("timed_pair_nested %.3f ns\n", (all[7] - all[5]) / 2);
  printf("sampled_hit_nested %.3f ns\n", (all[8] - all[5]) / 2);
  printf("count_hit_slot %.3f ns\n", all[10] - all[9]);
  printf("timed_pair_slot %.3f ns\n", all[11] - all[9]);
  printf("sampled_hit_slot %.3f ns\n", all[12] - all[9]);
  printf("one_thread %.3f ns\n", threads(1));
  printf("two_threads %.3f ns\n", threads(2));
#endif
  return 0;
}
