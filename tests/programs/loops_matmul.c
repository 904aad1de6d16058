// Multiplies matrices of 256 and 512 columns in two loop orders, to measure how much
// instrumentation slows down a kernel. Prints `name value unit` lines: the mean processor time of a
// call, in ns.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 512 };
static float a[MOST * MOST], b[MOST * MOST], c[MOST * MOST];

static double cpu_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

// Computes each element as a sum, so the innermost loop is a chain of dependent additions.
#define DOT(n)                                                          \
  __attribute__((noinline)) static void dot_##n(void) {                 \
    for (int i = 0; i < n; i++)                                         \
      for (int j = 0; j < n; j++) {                                     \
        float sum = 0;                                                  \
        for (int k = 0; k < n; k++) sum += a[i * n + k] * b[j * n + k]; \
        c[i * n + j] = sum;                                             \
      }                                                                 \
  }
// The innermost loop is vectorised.
#define IKJ(n)                                                                    \
  __attribute__((noinline)) static void ikj_##n(void) {                           \
    for (int i = 0; i < n; i++)                                                   \
      for (int k = 0; k < n; k++) {                                               \
        float x = a[i * n + k];                                                   \
        for (int j = 0; j < n; j++) c[i * n + j] += x * b[k * n + j];             \
      }                                                                           \
  }
DOT(256) DOT(512) IKJ(256) IKJ(512)

static const struct {
  const char *name;
  void (*run)(void);
  int times;
} kernels[] = {
    {"dot_256", dot_256, 12}, {"ikj_256", ikj_256, 60}, {"dot_512", dot_512, 3},
    {"ikj_512", ikj_512, 8},
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

int main(void) {
  for (int i = 0; i < MOST * MOST; i++) {
    a[i] = (float)(i % 7);
    b[i] = (float)(i % 5);
  }
  // These calls are not timed, but the loops' counts include them.
  for (int i = 0; i < KERNELS; i++) kernels[i].run();
  for (int i = 0; i < KERNELS; i++) {
    double begin = cpu_ns();
    for (int n = 0; n < kernels[i].times; n++) kernels[i].run();
    printf("%s %.1f ns\n", kernels[i].name, (cpu_ns() - begin) / kernels[i].times);
  }
  float sum = 0;
  for (int i = 0; i < MOST * MOST; i++) sum += c[i];
  fprintf(stderr, "%f\n", (double)sum);
  return 0;
}
