// Calls the library in its argument, and then (except with `nothing`) does something that
// sanitizers report:
//
//     sanitized LIBRARY overflow | leak | race | uninitialised | overflow-int | nothing
//
// With -DOWN_OPTIONS, the program itself defines the function that AddressSanitizer's runtime calls
// to get its options.
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "host.h"

#ifdef OWN_OPTIONS
const char* __asan_default_options(void) { return "exitcode=42"; }
#endif

static int shared;

static void* race(void* unused) {
  for (int i = 0; i < 1000; ++i) ++*(volatile int*)&shared;
  return unused;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  loaded_t library = load(argv[1]);
  dispatch(&library, NOTHING, 5, 1, 1, 0, NULL);
  puts(argv[2]);
  fflush(stdout);
  if (!strcmp(argv[2], "overflow")) {
    volatile char* bytes = malloc(10);
    int sum = bytes[10 + (argc > 5)];
    free((void*)bytes);
    return sum & 1;
  }
  if (!strcmp(argv[2], "leak")) {
    char* volatile lost = malloc(77);
    memset(lost, 1, 77);
    lost = NULL;
  }
  if (!strcmp(argv[2], "race")) {
    pthread_t threads[2];
    for (int i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, race, NULL);
    for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  }
  if (!strcmp(argv[2], "uninitialised")) {
    volatile int* number = malloc(sizeof *number);
    if (*number == 12345) puts("unlikely");
    free((void*)number);
  }
  if (!strcmp(argv[2], "overflow-int")) {
    volatile int most = 2147483647;
    volatile int more = most + argc;
    (void)more;
  }
  return 0;
}
