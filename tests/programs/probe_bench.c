// Measures the cost of a probe (the recorder's code around a call). Run it under `counterpoint run
// -e …`; its second argument must be the number of software counters that `-e` names. Prints lines
// `name value unit`, in ns per call.
//
//     ours      an intercepted empty call, minus the same call through an untouched pointer
//     floor     two raw reads of the recorder's own group of counters, two clock reads, and one
//               store of a 40-byte record (a separate group for the floor would cost up to a fifth
//               more or less from process to process, so it could not serve as a lower bound)
//     cycle     each counter is reset and enabled; two clock reads; each counter is disabled and
//               read; one store
//     clocks    two clock reads and one store
//
// These values come from the medians of 201 batches; the batches of all values are interleaved.
//
//     all       printed only without counters: 200,000 intercepted empty calls of two functions in
//               turn, minus the same calls through an untouched pointer, in processor time of the
//               process, so that it includes the work when a block of the recorder's memory is full
#define _GNU_SOURCE
#include <linux/perf_event.h>
#include <dirent.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "host.h"

enum { BATCHES = 201, CALLS = 500 };

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t begin_ticks(void) {
#if defined(__x86_64__)
  return __rdtsc();
#else
  return now_ns();
#endif
}

static inline uint64_t end_ticks(void) {
#if defined(__x86_64__)
  unsigned where;
  return __rdtscp(&where);
#else
  return now_ns();
#endif
}

static const uint64_t configs[5] = {PERF_COUNT_SW_PAGE_FAULTS, PERF_COUNT_SW_TASK_CLOCK,
                                    PERF_COUNT_SW_CONTEXT_SWITCHES, PERF_COUNT_SW_CPU_MIGRATIONS,
                                    PERF_COUNT_SW_PAGE_FAULTS_MIN};
static int counters;
static int group = -1;
static int single[5];

static int open_counter(uint64_t config) {
  struct perf_event_attr attr;
  memset(&attr, 0, sizeof attr);
  attr.type = PERF_TYPE_SOFTWARE;
  attr.size = sizeof attr;
  attr.config = config;
  attr.disabled = 1;
  int fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
  if (fd < 0) { perror("perf_event_open"); exit(3); }
  return fd;
}

// The group's leader has the lowest of the recorder's perf_event descriptors, and only a read of
// the leader returns the values of the whole group.
static int recorder_group(void) {
  DIR* open_files = opendir("/proc/self/fd");
  int lowest = -1;
  for (struct dirent* entry; open_files && (entry = readdir(open_files));) {
    char link[64] = "", path[300];
    snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
    if (readlink(path, link, sizeof link - 1) < 0 || !strstr(link, "[perf_event]")) continue;
    int fd = atoi(entry->d_name);
    if (lowest < 0 || fd < lowest) lowest = fd;
  }
  if (open_files) closedir(open_files);
  uint64_t words[64];
  if (lowest < 0 || read(lowest, words, sizeof words) != (3 + 2 * counters) * 8) {
    fprintf(stderr, "no group of %d counters; run this under `counterpoint run -e …`\n", counters);
    exit(3);
  }
  return lowest;
}

static struct { uint64_t words[5]; } records[1024];
static unsigned next_record;

static inline void store(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e) {
  uint64_t* r = records[next_record++ % 1024].words;
  r[0] = a, r[1] = b, r[2] = c, r[3] = d, r[4] = e;
  __asm__ volatile("" ::: "memory");
}

static void do_floor(void) {
  uint64_t before[13], after[13];
  const size_t bytes = (3 + 2 * (size_t)counters) * 8;
  if (counters && read(group, before, bytes) != (ssize_t)bytes) exit(4);
  uint64_t start = begin_ticks();
  uint64_t end = end_ticks();
  if (counters && read(group, after, bytes) != (ssize_t)bytes) exit(4);
  store(start, end - start, after[1] - before[1], after[3] - before[3],
        after[5] - before[5]);
}

static void do_cycle(void) {
  uint64_t values[5] = {0};
  for (int i = 0; i < counters; ++i) {
    ioctl(single[i], PERF_EVENT_IOC_RESET, 0);
    ioctl(single[i], PERF_EVENT_IOC_ENABLE, 0);
  }
  uint64_t start = begin_ticks();
  uint64_t end = end_ticks();
  for (int i = 0; i < counters; ++i) {
    ioctl(single[i], PERF_EVENT_IOC_DISABLE, 0);
    if (read(single[i], &values[i], 8) != 8) exit(4);
  }
  store(start, end - start, values[0], values[1], values[2]);
}

static void do_clocks(void) {
  uint64_t start = begin_ticks();
  uint64_t end = end_ticks();
  store(start, end, 0, 0, 0);
}

static const loaded_t* probed;
static environment_t environment;
static dispatch_state_t state = {1, 1, 1, 0, 1, 1, 1, 1, 0, NULL, NULL, NULL};
static workgroup_state_t workgroup;

static int untouched(const environment_t* e, const dispatch_state_t* d, const workgroup_state_t* w) {
  (void)e; (void)d; (void)w;
  return 0;
}
static dispatch_fn volatile plain = untouched;

static void do_ours(void) { probed->functions[NOTHING](&environment, &state, &workgroup); }
static void do_plain(void) { plain(&environment, &state, &workgroup); }

static double process_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double all_included(void) {
  enum { MANY = 200000 };
  static uint32_t constants[2];
  state.constants = constants;
  state.constant_count = 1;
  double start = process_ns();
  for (int i = 0; i < MANY; ++i) plain(&environment, &state, &workgroup);
  double between = process_ns();
  for (int i = 0; i < MANY; ++i)
    probed->functions[i % 2 ? NOTHING : SPIN](&environment, &state, &workgroup);
  return ((process_ns() - between) - (between - start)) / MANY;
}

static int by_value(const void* a, const void* b) {
  double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  if (argc != 3) { fprintf(stderr, "usage: probe_bench LIBRARY COUNTERS\n"); return 2; }
  loaded_t library = load(argv[1]);
  probed = &library;
  counters = atoi(argv[2]);
  if (counters < 0 || counters > 5) return 2;
  do_ours();  // The recorder opens its group at the first call.
  if (counters) group = recorder_group();
  struct { const char* name; void (*run)(void); double ns[BATCHES]; } what[] = {
      {"ours", do_ours, {0}}, {"plain", do_plain, {0}}, {"floor", do_floor, {0}},
      {"clocks", do_clocks, {0}}, {"cycle", do_cycle, {0}}};
  const int kinds = sizeof what / sizeof *what;
  for (int batch = -2; batch < BATCHES; ++batch) {
    for (int k = 0; k < kinds; ++k) {
      // Each open counter slows the thread down, so the counters of `cycle` are open only during
      // the batches of `cycle`.
      const int own = what[k].run == do_cycle ? counters : 0;
      for (int i = 0; i < own; ++i) single[i] = open_counter(configs[i]);
      uint64_t start = now_ns();
      for (int i = 0; i < CALLS; ++i) what[k].run();
      double ns = (double)(now_ns() - start) / CALLS;
      if (batch >= 0) what[k].ns[batch] = ns;
      for (int i = 0; i < own; ++i) close(single[i]);
    }
  }
  for (int k = 0; k < kinds; ++k) qsort(what[k].ns, BATCHES, sizeof(double), by_value);
  const double plain_ns = what[1].ns[BATCHES / 2];
  printf("ours.%d %.2f ns\n", counters, what[0].ns[BATCHES / 2] - plain_ns);
  printf("floor.%d %.2f ns\n", counters, what[2].ns[BATCHES / 2]);
  printf("clocks.%d %.2f ns\n", counters, what[3].ns[BATCHES / 2]);
  if (!counters) printf("all.0 %.2f ns\n", all_included());
  if (counters) printf("cycle.%d %.2f ns\n", counters, what[4].ns[BATCHES / 2]);
  return 0;
}
