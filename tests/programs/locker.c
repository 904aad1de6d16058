// A host that locks its memory: locker LIBRARY WHEN WHICH
//
// WHEN is `before` (before the library is loaded) or `after` (after its first calls), and WHICH is
// `current`, `future` or `both`. Prints the outcome of `mlockall`, the number of calls that
// returned on two threads, and whether much of the memory that is shared with other processes is
// present (in RAM).
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "host.h"

static loaded_t library;
static int calls;

static void* call(void* times) {
  for (long i = 0; i < (long)times; ++i) {
    dispatch(&library, NOTHING, 1, 1, 1, 0, NULL);
    __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
  }
  return NULL;
}

static void lock(const char* which) {
  int flags = !strcmp(which, "current")  ? MCL_CURRENT
              : !strcmp(which, "future") ? MCL_FUTURE
                                         : MCL_CURRENT | MCL_FUTURE;
  int failed = mlockall(flags) == 0 ? 0 : errno;
  printf("mlockall %s: %s\n", which, failed ? strerror(failed) : "locked");
}

static long shared_kib(void) {
  FILE* status = fopen("/proc/self/status", "r");
  char line[256];
  long kib = -1;
  while (status && fgets(line, sizeof line, status)) sscanf(line, "RssShmem: %ld", &kib);
  if (status) fclose(status);
  if (kib < 0) exit(4);
  return kib;
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  int before = !strcmp(argv[2], "before");
  if (before) lock(argv[3]);
  library = load(argv[1]);
  call((void*)10);
  if (!before) lock(argv[3]);
  call((void*)10);
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 64 << 10);
  pthread_t thread;
  if (pthread_create(&thread, &small, call, (void*)10)) return 3;
  pthread_join(thread, NULL);
  printf("%d calls, %s shared\n", calls, shared_kib() < 8192 ? "little" : "much");
  return 0;
}
