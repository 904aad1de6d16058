/* A library for an imaginary accelerator, and its profiler plugin in the same file. A program calls
 * `accelerator_launch(NAME)`, which "runs" a kernel of that name. From the ids that its host pushes
 * on the calling thread, the plugin knows which op launched the kernel, and writes this as
 * `External id`. A test can compare the name of a kernel with the op to which it is linked.
 *
 *
 * -DNO_IDS leaves out the functions for ids. With -DFAULTS, each of them faults on 64 new pages. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "counterpoint/kineto_plugin.h"

enum { MOST = 1 << 16, DEEPEST = 256 };

struct launch {
  char name[48];
  uint64_t id;
  int64_t begin, end;
  int32_t thread;
};

static struct launch launches[MOST];
static atomic_uint count;
static atomic_int records;
static atomic_uint pushes, pops;

static _Thread_local uint64_t ids[DEEPEST];
static _Thread_local unsigned depth;

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

KINETO_PLUGIN_EXPORT void accelerator_launch(const char* name) {
  if (!records) return;
  unsigned at = atomic_fetch_add(&count, 1);
  if (at >= MOST) return;
  struct launch* launch = &launches[at];
  launch->begin = now();
  snprintf(launch->name, sizeof launch->name, "%s", name);
  launch->id = depth ? ids[depth - 1] : 0;
  launch->thread = (int32_t)syscall(SYS_gettid);
  launch->end = now();
}

/* Returns how many ids were pushed in this process, and how many were popped. */
KINETO_PLUGIN_EXPORT void accelerator_ids(unsigned both[2]) { both[0] = pushes, both[1] = pops; }

static int create(KinetoPlugin_ProfilerCreate_Params* params) {
  params->pProfilerHandle = calloc(1, 1);
  return 0;
}

static int destroy(KinetoPlugin_ProfilerDestroy_Params* params) {
  free(params->pProfilerHandle);
  return 0;
}

static int query(KinetoPlugin_ProfilerQuery_Params* params) {
  strncpy(params->pProfilerName, "accelerator", params->profilerNameMaxLen);
  params->pSupportedActivityTypes[0] = KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL;
  params->pSupportedActivityTypes[1] = KINETO_PLUGIN_PROFILE_EVENT_TYPE_PRIVATEUSE1_RUNTIME;
  return 0;
}

static int start(KinetoPlugin_ProfilerStart_Params* params) {
  (void)params;
  records = 1;
  return 0;
}

static int stop(KinetoPlugin_ProfilerStop_Params* params) {
  (void)params;
  records = 0;
  return 0;
}

static void work(void) {
#ifdef FAULTS
  enum { PAGE = 4096, PAGES = 64 };
  char* pages = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) abort();
  madvise(pages, PAGES * PAGE, MADV_NOHUGEPAGE);
  for (int i = 0; i < PAGES; i++) ((volatile char*)pages)[i * PAGE] = 1;
  munmap(pages, PAGES * PAGE);
#endif
}

static int push(KinetoPlugin_ProfilerPushCorrelationId_Params* params) {
  work();
  atomic_fetch_add(&pushes, 1);
  if (depth < DEEPEST) ids[depth] = params->correlationId;
  depth++;
  return 0;
}

static int pop(KinetoPlugin_ProfilerPopCorrelationId_Params* params) {
  (void)params;
  work();
  atomic_fetch_add(&pops, 1);
  if (depth) depth--;
  return 0;
}

static void add(const KinetoPlugin_TraceBuilder* b, KinetoPlugin_ProfileEvent event, const char* name,
                uint64_t id) {
  char text[32];
  event.unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_UNPADDED_STRUCT_SIZE;
  b->addEvent(b->pTraceBuilderHandle, &event);
  b->setLastEventName(b->pTraceBuilderHandle, name);
  snprintf(text, sizeof text, "%llu", (unsigned long long)id);
  if (id) b->addLastEventMetadata(b->pTraceBuilderHandle, "External id", text);
}

static int process(KinetoPlugin_ProfilerProcessEvents_Params* params) {
  const KinetoPlugin_TraceBuilder* b = params->pTraceBuilder;
  int64_t free_at = 0;
  unsigned all = count < MOST ? count : MOST;
  for (unsigned i = 0; i < all; i++) {
    const struct launch* l = &launches[i];
    add(b, (KinetoPlugin_ProfileEvent){
               .eventType = KINETO_PLUGIN_PROFILE_EVENT_TYPE_PRIVATEUSE1_RUNTIME,
               .startTimeUtcNs = l->begin, .endTimeUtcNs = l->end, .eventId = i + 1,
               .processId = (int32_t)getpid(), .threadId = l->thread},
        "launch", l->id);
    /* The device runs one kernel after the other. */
    int64_t begin = free_at > l->end ? free_at : l->end;
    free_at = begin + 1000;
    add(b, (KinetoPlugin_ProfileEvent){
               .eventType = KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL,
               .startTimeUtcNs = begin, .endTimeUtcNs = free_at, .eventId = i + 1},
        l->name, l->id);
  }
  const char* log = getenv("ACCELERATOR_LOG");
  FILE* file = log ? fopen(log, "w") : NULL;
  if (file) {
    fprintf(file, "%u pushes %u pops %u launches\n", pushes, pops, all);
    fclose(file);
  }
  count = 0;
  return 0;
}

KINETO_PLUGIN_EXPORT int KinetoPlugin_register(const KinetoPlugin_Registry* registry) {
  const KinetoPlugin_ProfilerInterface table = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILER_INTERFACE_UNPADDED_STRUCT_SIZE,
      .profilerCreate = create, .profilerDestroy = destroy, .profilerQuery = query,
      .profilerStart = start, .profilerStop = stop,
#ifndef NO_IDS
      .profilerPushCorrelationId = push, .profilerPopCorrelationId = pop,
#endif
      .profilerProcessEvents = process};
#ifdef NO_IDS
  (void)push, (void)pop;
#endif
  return registry->registerProfiler(registry->pRegistryHandle, &table);
}
