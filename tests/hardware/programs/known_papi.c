/* Prints PAPI's counts of the loop of known.c. For each counter name on the command line, it prints
 * the difference between the counts of 100,000 and of 10,000 iterations, each of which is the
 * smallest of 20 counts. PAPI counts in user mode. -DSTAND_IN and -DBROKEN have the same meaning as
 * in known.c. */
#define _GNU_SOURCE
#include <papi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static __attribute__((noinline)) void loop(unsigned long n) {
#ifdef BROKEN
  n += n / 50;
#endif
#if defined(STAND_IN)
  size_t bytes = n / 100 * 4096;
  char* pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(pages, bytes, MADV_NOHUGEPAGE);
  for (size_t at = 0; at < bytes; at += 4096) ((volatile char*)pages)[at] = 1;
  munmap(pages, bytes);
#elif defined(__x86_64__)
  __asm__ volatile("1: sub $1, %0\n\tjnz 1b" : "+r"(n) : : "cc");
#elif defined(__aarch64__)
  __asm__ volatile("1: subs %0, %0, #1\n\tb.ne 1b" : "+r"(n) : : "cc");
#endif
}

static void check(int status, const char* what) {
  if (status == PAPI_OK) return;
  fprintf(stderr, "%s: %s\n", what, PAPI_strerror(status));
  exit(1);
}

static long long counted(int set, unsigned long n) {
  long long least = -1;
  for (int i = 0; i < 20; ++i) {
    long long begin, end;
    check(PAPI_read(set, &begin), "PAPI_read");
    loop(n);
    check(PAPI_read(set, &end), "PAPI_read");
    if (least < 0 || end - begin < least) least = end - begin;
  }
  return least;
}

int main(int count, char** words) {
  int version = PAPI_library_init(PAPI_VER_CURRENT);
  if (version != PAPI_VER_CURRENT) {
    fprintf(stderr, "PAPI_library_init: %d\n", version);
    return 1;
  }
  for (int i = 1; i < count; ++i) {
    int set = PAPI_NULL;
    long long ignored;
    check(PAPI_create_eventset(&set), "PAPI_create_eventset");
    check(PAPI_add_named_event(set, words[i]), words[i]);
    check(PAPI_start(set), "PAPI_start");
    printf("%lld\n", counted(set, 100000) - counted(set, 10000));
    check(PAPI_stop(set, &ignored), "PAPI_stop");
    check(PAPI_cleanup_eventset(set), "PAPI_cleanup_eventset");
    check(PAPI_destroy_eventset(&set), "PAPI_destroy_eventset");
  }
  return 0;
}
