/* Measures the least cost of a pair of readings of a group of counters. `floor TYPE:CONFIG…` opens
 * the counters as one group in user mode. For each way of reading, it measures 21 batches of 2,000
 * pairs, and prints the ns per pair of the fastest batch:
 *
 *     read NS     a pair of read(2) of the group
 *     user NS     a pair of readings without the kernel, with times as `perf_event.h` describes;
 *                 x86-64 only, and absent if the kernel does not allow such readings */
#define _GNU_SOURCE
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 16, BATCHES = 21, PAIRS = 2000 };

static int files[MOST], count;
static volatile struct perf_event_mmap_page* pages[MOST];

static int compare(const void* a, const void* b) {
  double difference = *(const double*)a - *(const double*)b;
  return (difference > 0) - (difference < 0);
}

static void pair_by_read(void) {
  uint64_t values[2][3 + MOST];
  for (int i = 0; i < 2; ++i)
    if (read(files[0], values[i], sizeof values[i]) <= 0) exit(1);
}

#if defined(__x86_64__)
static uint64_t ticks(void) {
  uint32_t low, high;
  __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
  return (uint64_t)high << 32 | low;
}

static uint64_t pmc(uint32_t index) {
  uint32_t low, high;
  __asm__ volatile("rdpmc" : "=a"(low), "=d"(high) : "c"(index));
  return (uint64_t)high << 32 | low;
}

static uint64_t reading(volatile struct perf_event_mmap_page* page) {
  uint32_t lock, index;
  uint64_t value, time;
  do {
    lock = page->lock;
    __asm__ volatile("" ::: "memory");
    index = page->index;
    value = (uint64_t)page->offset;
    time = page->time_enabled;
    if (page->cap_user_time) {
      uint64_t now = ticks(), rest = ((uint64_t)1 << page->time_shift) - 1;
      time += page->time_offset + (now >> page->time_shift) * page->time_mult +
              (((now & rest) * page->time_mult) >> page->time_shift);
    }
    if (page->cap_user_rdpmc && index != 0) {
      int unused = 64 - page->pmc_width;
      value += (uint64_t)((int64_t)(pmc(index - 1) << unused) >> unused);
    }
    __asm__ volatile("" ::: "memory");
  } while (page->lock != lock);
  return value + (time & 0);
}

static int allowed(void) {
  for (int i = 0; i < count; ++i)
    if (pages[i] == MAP_FAILED || !pages[i]->cap_user_rdpmc || pages[i]->index == 0) return 0;
  return 1;
}

static void pair_by_user(void) {
  static volatile uint64_t sink;
  for (int i = 0; i < 2 * count; ++i) sink = reading(pages[i % count]);
}
#else
static int allowed(void) { return 0; }
static void pair_by_user(void) {}
#endif

static void measure(const char* name, void (*pair)(void)) {
  double batches[BATCHES];
  for (int batch = 0; batch < BATCHES; ++batch) {
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < PAIRS; ++i) pair();
    clock_gettime(CLOCK_MONOTONIC, &end);
    double ns = 1e9 * (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec);
    batches[batch] = ns / PAIRS;
  }
  qsort(batches, BATCHES, sizeof *batches, compare);
  printf("%s %.1f\n", name, batches[0]);
}

int main(int words, char** word) {
  for (int i = 1; i < words && count < MOST; ++i, ++count) {
    unsigned type;
    unsigned long long config;
    if (sscanf(word[i], "%u:%llx", &type, &config) != 2) return 2;
    struct perf_event_attr attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.size = sizeof attributes;
    attributes.type = type;
    attributes.config = config;
    attributes.exclude_kernel = attributes.exclude_hv = 1;
    attributes.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    int group = count == 0 ? -1 : files[0];
    files[count] = (int)syscall(SYS_perf_event_open, &attributes, 0, -1, group, 0);
    if (files[count] < 0) {
      perror(word[i]);
      return 1;
    }
    pages[count] = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ, MAP_SHARED, files[count], 0);
  }
  if (count == 0) return 2;
  measure("read", pair_by_read);
  if (allowed()) measure("user", pair_by_user);
  return 0;
}
