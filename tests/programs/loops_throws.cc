// C++ exceptions leave instrumented loops: the program calls nest(4, 2) five times. Each ends with an
// exception from the second iteration of its outer loop. Prints how many were caught.
#include <cstdio>

extern "C" {
#include "loops/instrumented.h"
}

static void throw_at_second(int64_t i) {
  if (i == 1) throw 42;
}

int main() {
  int caught = 0;
  for (int i = 0; i < 5; i++) {
    try {
      nest(4, 2, throw_at_second);
    } catch (int) {
      caught++;
    }
  }
  std::printf("%d\n", caught);
}
