/* Stands in for libtorch_cpu.so: a library that runs parallel regions of OpenMP. */
#include <stddef.h>

/* The second half of the pages is written on another thread. */
void touch_in_parallel(volatile char* from, size_t pages) {
#pragma omp parallel for num_threads(2) schedule(static)
  for (size_t i = 0; i < pages; ++i) from[i * 4096] = 1;
}

static __attribute__((noinline)) void touch_alone(volatile char* from, size_t pages) {
#pragma omp parallel for num_threads(1) schedule(static)
  for (size_t i = 0; i < pages; ++i) from[i * 4096] = 1;
}

/* Each of the two tasks has a parallel region of its own, as if it called another library. */
void touch_in_nested(volatile char* from, size_t pages) {
#pragma omp parallel for num_threads(2) schedule(static)
  for (size_t half = 0; half < 2; ++half) touch_alone(from + half * (pages / 2) * 4096, pages / 2);
}
