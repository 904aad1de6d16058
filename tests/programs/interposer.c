// A library that is preloaded together with Counterpoint. It counts the calls of mmap, mmap64,
// mprotect and dlsym with the special arguments of `marked.h`, and prints the counts at the end.
//
// With -DALLOCATOR, it is also an allocator: it maps memory inside malloc, when an arena is full,
// and in each call of its dlsym, which also calls malloc. It does not free memory.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "marked.h"

static int mmaps, mmaps64, mprotects, dlsyms;

typedef void* mmap_fn(void*, size_t, int, int, int, off_t);
typedef int mprotect_fn(void*, size_t, int);
typedef void* dlsym_fn(void*, const char*);

static void* (*glibcs_dlsym(void))(void*, const char*) {
  static dlsym_fn* found;
#ifdef __x86_64__
  if (!found) found = (dlsym_fn*)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
#else
  if (!found) found = (dlsym_fn*)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
#endif
  return found;
}

static void* next(const char* name) { return glibcs_dlsym()(RTLD_NEXT, name); }

void* mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  static mmap_fn* real;
  if (!real) real = (mmap_fn*)next("mmap");
  mmaps += bytes == MARKED_BYTES;
  return real(at, bytes, protection, flags, fd, offset);
}

void* mmap64(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  static mmap_fn* real;
  if (!real) real = (mmap_fn*)next("mmap64");
  mmaps64 += bytes == MARKED_BYTES;
  return real(at, bytes, protection, flags, fd, offset);
}

int mprotect(void* at, size_t bytes, int protection) {
  static mprotect_fn* real;
  if (!real) real = (mprotect_fn*)next("mprotect");
  mprotects += bytes == MARKED_BYTES;
  return real(at, bytes, protection);
}

#ifdef ALLOCATOR
// The smallest length of an arena, which is memory that `take` maps and hands out in pieces. In a
// debugger, the mapping of an arena can be recognised by this length.
enum { ARENA_BYTES = 1 << 20 };

static void* take(size_t bytes) {
  static char *at, *end;
  bytes = (bytes + 31) / 16 * 16;
  if ((size_t)(end - at) < bytes) {
    size_t arena = bytes > ARENA_BYTES ? bytes : ARENA_BYTES;
    // This calls the first definition of mmap in the process, which may be another library's.
    at = mmap(NULL, arena, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return NULL;
    end = at + arena;
  }
  size_t* place = (size_t*)at;
  at += bytes;
  *place = bytes - 16;
  return place + 2;
}

static char lock;

void* malloc(size_t bytes) {
  while (__atomic_test_and_set(&lock, __ATOMIC_ACQUIRE)) continue;
  void* place = take(bytes);
  __atomic_clear(&lock, __ATOMIC_RELEASE);
  return place;
}

void free(void* place) { (void)place; }

void* calloc(size_t count, size_t bytes) { return malloc(count * bytes); }

void* realloc(void* old, size_t bytes) {
  void* place = malloc(bytes);
  if (old && place) memcpy(place, old, ((size_t*)old)[-2] < bytes ? ((size_t*)old)[-2] : bytes);
  return place;
}
#endif

void* dlsym(void* handle, const char* name) {
  dlsyms += !strncmp(name, MARKED_NAME, strlen(MARKED_NAME));
#ifdef ALLOCATOR
  void* here = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (here != MAP_FAILED) munmap(here, 4096);
  if (!malloc(100)) return NULL;
#endif
  return glibcs_dlsym()(handle, name);
}

// Calls mmap while libraries are initialised, which may be before Counterpoint's constructor runs.
__attribute__((constructor)) static void early(void) {
  void* (*volatile map)(void*, size_t, int, int, int, off_t) = mmap;
  void* at = map(NULL, MARKED_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(at, MARKED_BYTES);
}

__attribute__((destructor)) static void at_end(void) {
  char line[128];
  int length = snprintf(line, sizeof line, "mmap %d mmap64 %d mprotect %d dlsym %d\n", mmaps, mmaps64,
                        mprotects, dlsyms);
  if (write(2, line, (size_t)length) != length) _exit(99);
}
