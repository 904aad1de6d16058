/* A plugin that measures what its host's trace builder costs, for `cargo xtask bench plugin`. While it
 * hands over its events it prints a line `NAME VALUE UNIT` for each kind of event: the time per event
 * through the trace builder, and of
 *   floor   a copy of the structs and texts into memory, and nothing else
 *   fprintf the same event as a line of Chrome's JSON, as Kineto writes it
 * The kinds are bare, with a name (one of 64, as kernels have), with a name and a flow, with a name and
 * two pairs of metadata, and with all of it. Batches of all kinds take turns; each line is the median
 * of the batches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "counterpoint/kineto_plugin.h"

enum { NAME = 1, FLOW = 2, METADATA = 4, NAMES = 64, EVENTS = 20000, BATCHES = 21 };

static const char* const kinds[] = {[0] = "bare", [NAME] = "named", [NAME | FLOW] = "flow",
                                    [NAME | METADATA] = "metadata",
                                    [NAME | FLOW | METADATA] = "all"};
enum { KINDS = sizeof kinds / sizeof *kinds };
static char names[NAMES][64];

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}

static int by_value(const void* a, const void* b) {
  double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static KinetoPlugin_ProfileEvent event_of(int64_t i) {
  KinetoPlugin_ProfileEvent event = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_UNPADDED_STRUCT_SIZE,
      .eventType = KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL,
      .startTimeUtcNs = 1700000000000000000 + 1000 * i, .eventId = i & 0x7fffffff, .deviceId = 3,
      .resourceId = 7};
  event.endTimeUtcNs = event.startTimeUtcNs + 900;
  return event;
}

static KinetoPlugin_ProfileEventFlow flow_of(int64_t i) {
  KinetoPlugin_ProfileEventFlow flow = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_FLOW_UNPADDED_STRUCT_SIZE,
      .flowType = KINETO_PLUGIN_PROFILE_EVENT_FLOW_TYPE_ASYNC_CPU_GPU,
      .flowId = (uint32_t)i | 1, .isStartPoint = false};
  return flow;
}

static int through_builder(const KinetoPlugin_TraceBuilder* b, int kind, int64_t i) {
  KinetoPlugin_TraceBuilderHandle* h = b->pTraceBuilderHandle;
  KinetoPlugin_ProfileEvent event = event_of(i);
  int failed = b->addEvent(h, &event);
  if (kind & NAME) failed |= b->setLastEventName(h, names[i % NAMES]);
  if (kind & FLOW) {
    KinetoPlugin_ProfileEventFlow flow = flow_of(i);
    failed |= b->setLastEventFlow(h, &flow);
  }
  if (kind & METADATA) {
    failed |= b->addLastEventMetadata(h, "grid", "[128, 1, 1]");
    failed |= b->addLastEventMetadata(h, "shared memory", "16384");
  }
  return failed;
}

static char* room;
static size_t used, size = 64 << 20;

static void keep(const void* from, size_t bytes) {
  if (used + bytes > size) used = 0;
  memcpy(room + used, from, bytes);
  used += bytes;
}

static void floor_of(int kind, int64_t i) {
  KinetoPlugin_ProfileEvent event = event_of(i);
  keep(&event, sizeof event);
  if (kind & NAME) keep(names[i % NAMES], strlen(names[i % NAMES]) + 1);
  if (kind & FLOW) {
    KinetoPlugin_ProfileEventFlow flow = flow_of(i);
    keep(&flow, sizeof flow);
  }
  if (kind & METADATA) {
    keep("grid", 5);
    keep("[128, 1, 1]", 12);
    keep("shared memory", 14);
    keep("16384", 6);
  }
}

static FILE* nowhere;

static void print(int kind, int64_t i) {
  KinetoPlugin_ProfileEvent e = event_of(i);
  fprintf(nowhere,
          "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%lld.%03lld,"
          "\"dur\":%lld.%03lld,\"args\":{\"External id\":%lld",
          kind & NAME ? names[i % NAMES] : "", e.deviceId, e.resourceId,
          (long long)(e.startTimeUtcNs / 1000), (long long)(e.startTimeUtcNs % 1000),
          (long long)((e.endTimeUtcNs - e.startTimeUtcNs) / 1000),
          (long long)((e.endTimeUtcNs - e.startTimeUtcNs) % 1000), (long long)e.eventId);
  if (kind & METADATA)
    fprintf(nowhere, ",\"%s\":%s,\"%s\":%s", "grid", "[128, 1, 1]", "shared memory", "16384");
  fputs("}},\n", nowhere);
  if (kind & FLOW)
    fprintf(nowhere,
            "{\"ph\":\"f\",\"id\":%lld,\"pid\":%d,\"tid\":%d,\"ts\":%lld.%03lld,\"cat\":\"ac2g\","
            "\"name\":\"ac2g\",\"bp\":\"e\"},\n",
            (long long)(i | 1), e.deviceId, e.resourceId, (long long)(e.startTimeUtcNs / 1000),
            (long long)(e.startTimeUtcNs % 1000));
}

static int process(KinetoPlugin_ProfilerProcessEvents_Params* params) {
  enum { WAYS = 3 };
  static const char* const ways[WAYS] = {"builder", "floor", "fprintf"};
  static double per_event[WAYS][KINDS][BATCHES];
  room = malloc(size);
  nowhere = fopen("/dev/null", "w");
  if (!room || !nowhere) return -1;
  memset(room, 1, size);
  for (int i = 0; i < NAMES; i++)
    snprintf(names[i], sizeof names[i], "void at::native::vectorized_elementwise_kernel<%d>", i);
  int failed = 0;
  int64_t next = 0;
  for (int batch = 0; batch < BATCHES; batch++)
    for (int turn = 0; turn < WAYS * KINDS; turn++) {
      int way = (turn + batch) % WAYS, kind = turn / WAYS;
      if (!kinds[kind]) continue;
      double begin = now_ns();
      for (int i = 0; i < EVENTS; i++, next++)
        if (way == 0) failed |= through_builder(params->pTraceBuilder, kind, next);
        else if (way == 1) floor_of(kind, next);
        else print(kind, next);
      per_event[way][kind][batch] = (now_ns() - begin) / EVENTS;
    }
  for (int way = 0; way < WAYS; way++)
    for (int kind = 0; kind < KINDS; kind++) {
      if (!kinds[kind]) continue;
      qsort(per_event[way][kind], BATCHES, sizeof(double), by_value);
      printf("%s.%s %.2f ns\n", ways[way], kinds[kind], per_event[way][kind][BATCHES / 2]);
    }
  fflush(stdout);
  return failed;
}

static int nothing(void* params) {
  (void)params;
  return 0;
}

static int query(KinetoPlugin_ProfilerQuery_Params* params) {
  strncpy(params->pProfilerName, "price", params->profilerNameMaxLen);
  params->pSupportedActivityTypes[0] = KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL;
  return 0;
}

static int create(KinetoPlugin_ProfilerCreate_Params* params) { return nothing(params); }
static int destroy(KinetoPlugin_ProfilerDestroy_Params* params) { return nothing(params); }
static int start(KinetoPlugin_ProfilerStart_Params* params) { return nothing(params); }
static int stop(KinetoPlugin_ProfilerStop_Params* params) { return nothing(params); }

KINETO_PLUGIN_EXPORT int KinetoPlugin_register(const KinetoPlugin_Registry* registry) {
  const KinetoPlugin_ProfilerInterface interface = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILER_INTERFACE_UNPADDED_STRUCT_SIZE,
      .profilerCreate = create, .profilerDestroy = destroy, .profilerQuery = query,
      .profilerStart = start, .profilerStop = stop, .profilerProcessEvents = process};
  return registry->registerProfiler(registry->pRegistryHandle, &interface);
}
