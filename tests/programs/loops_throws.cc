// Leaves instrumented loops by C++ exceptions: the program calls nest(4, 2) five times. In each
// call, the second iteration of the outer loop throws an exception. Prints the number of exceptions
// that were caught.
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
