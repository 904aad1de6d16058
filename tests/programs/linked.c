// This program is linked with libcounterpoint.so, as a runtime may be. It makes ten calls to a
// function of the library that its argument names. It prints whether the process has more rights
// than the user who started it.
#include <sys/auxv.h>

#include "host.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  loaded_t library = load(argv[1]);
  dispatch(&library, NOTHING, 10, 1, 1, 0, NULL);
  printf("secure %lu\n", getauxval(AT_SECURE));
  return 0;
}
