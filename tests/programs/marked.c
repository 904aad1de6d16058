// Calls mmap five times, mmap64 twice, mprotect three times and dlsym four times with marked
// arguments. `interposer.c` counts these calls. Also makes ten calls to a function of the library
// that its argument names.
#define _GNU_SOURCE
#include <sys/mman.h>

#include "host.h"
#include "marked.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  char* at[7];
  for (int i = 0; i < 7; ++i) {
    int protection = i == 0 ? PROT_NONE : PROT_READ, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    if (i == 0) flags |= MAP_NORESERVE;  // As IREE reserves memory.
    at[i] = i < 5 ? mmap(NULL, MARKED_BYTES, protection, flags, -1, 0)
                  : mmap64(NULL, MARKED_BYTES, protection, flags, -1, 0);
    if (at[i] == MAP_FAILED) return 3;
  }
  int protections[] = {PROT_READ | PROT_EXEC, PROT_NONE, PROT_READ | PROT_WRITE};
  for (int i = 0; i < 3; ++i)
    if (mprotect(at[0], MARKED_BYTES, protections[i])) return 3;
  at[0][0] = 1;
  for (int i = 0; i < 7; ++i) munmap(at[i], MARKED_BYTES);
  for (int i = 0; i < 4; ++i) {
    char name[] = MARKED_NAME "0";
    name[sizeof name - 2] += i;
    if (dlsym(RTLD_DEFAULT, name)) return 3;
  }
  loaded_t library = load(argv[1]);
  dispatch(&library, NOTHING, 10, 1, 1, 0, NULL);
  puts("marked");
  return 0;
}
