// siblings N ROUNDS: an outer loop with four loops inside, one after the other. Loop N (0 to 3)
// calls `wait` in each of its iterations; the other three do not.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static volatile uint64_t sink;

// Takes long compared with the loops' own work. In the tests, all waits together take about 0.14 s:
// far more than the milliseconds for which other programs may take the processor during a hit of
// another loop. A compiler cannot shorten the chain of dependent steps.
__attribute__((noinline)) static void wait(void) {
  uint64_t x = sink;
  for (int i = 0; i < 2000; ++i) x = x * 6364136223846793005u + 1442695040888963407u;
  sink = x;
}

#define STEP(n)          \
  x = x * 31 + (uint64_t)j; \
  sink = x;              \
  if (slow == (n)) wait();

__attribute__((noinline)) static uint64_t work(int slow, int rounds) {
  uint64_t x = 1;
  for (int i = 0; i < rounds; ++i) {
    for (int j = 0; j < 50; ++j) { STEP(0) }
    for (int j = 0; j < 60; ++j) { STEP(1) }
    for (int j = 0; j < 70; ++j) { STEP(2) }
    for (int j = 0; j < 80; ++j) { STEP(3) }
  }
  return x;
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  printf("%llu\n", (unsigned long long)work(atoi(argv[1]), atoi(argv[2])));
  return 0;
}
