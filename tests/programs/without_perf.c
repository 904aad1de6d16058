// Replaces itself with another program in which perf_event_open fails:
//
//     without_perf ERRNO PROGRAM ARGUMENT…
#include <stdlib.h>
#include <unistd.h>

#include "forbid_perf.h"

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  if (forbid_perf(atoi(argv[1]))) return 77;
  execvp(argv[2], argv + 2);
  return 3;
}
