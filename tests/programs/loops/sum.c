/* sum N M: one loop, which runs N times in the first call and M times in the second call. */
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static double sum(long n, const double* x) {
  double all = 0;
  for (long i = 0; i < n; i++) all += x[i];
  return all;
}

int main(int argc, char** argv) {
  static double x[100000];
  for (long i = 0; i < 100000; i++) x[i] = 1;
  for (int i = 1; i < argc; i++) printf("%.0f\n", sum(atol(argv[i]), x));
  return 0;
}
