/* Stands in for libtorch_cpu.so: a library that runs parallel regions of OpenMP. */
#include <stddef.h>

/* Writes to `pages` pages from `from` on: the first half on the calling thread, the second half on
 * another one. */
void touch_in_parallel(volatile char* from, size_t pages) {
#pragma omp parallel for num_threads(2) schedule(static)
  for (size_t i = 0; i < pages; ++i) from[i * 4096] = 1;
}
