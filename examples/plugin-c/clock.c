/* A profiler plugin in C that implements every function of the interface. Its "device" is a thread
 * that adds numbers. Each burst of additions is recorded as a kernel, and the number of additions
 * as a counter.
 *
 *     cc -O2 -fPIC -shared -I include examples/plugin-c/clock.c -o clock.so -lpthread
 *     counterpoint plugin check clock.so
 *     counterpoint plugin run clock.so --for 100ms -o clock.cpt
 *     counterpoint report clock.cpt
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "counterpoint/kineto_plugin.h"

#define STREAM 1
#define MOST 4096

typedef struct {
  int64_t launch, start, end;
  uint64_t added, sum, correlation;
} burst_t;

/* One recording. */
struct KinetoPlugin_ProfilerHandle {
  pthread_t thread;
  int running;            /* only start, stop and destroy use it: one call at a time */
  atomic_int stop;
  int kernels, counters, launches; /* which types were asked for */
  int count;
  burst_t bursts[MOST];
};

/* The ids that the host pushed on this thread. The id that was pushed last belongs to the op that
 * runs now. */
static _Thread_local uint64_t ids[64];
static _Thread_local int depth;
static atomic_ullong last_id;

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void* device(void* argument) {
  KinetoPlugin_ProfilerHandle* h = argument;
  while (!atomic_load(&h->stop)) {
    burst_t burst = {.launch = now(), .correlation = atomic_load(&last_id)};
    volatile uint64_t sum = 0; /* so that the loop stays a loop */
    burst.start = now();
    for (int i = 0; i < 20000; i++) sum += (uint64_t)i;
    burst.end = now();
    burst.added = 20000;
    burst.sum = sum;
    if (h->count < MOST) h->bursts[h->count++] = burst;
    usleep(1000);
  }
  return NULL;
}

/* A struct is used only if its size covers the fields that we read. */
#define USABLE(params, UNPADDED) ((params) != NULL && (params)->unpaddedStructSize >= (UNPADDED))

static int create(KinetoPlugin_ProfilerCreate_Params* params) {
  if (!USABLE(params, KINETO_PLUGIN_PROFILER_CREATE_PARAMS_UNPADDED_STRUCT_SIZE)) return -1;
  KinetoPlugin_ProfilerHandle* h = calloc(1, sizeof *h);
  if (!h) return -1;
  for (size_t i = 0; i < params->enabledActivityTypesMaxLen; i++) {
    switch (params->pEnabledActivityTypes[i]) {
      case KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL: h->kernels = 1; break;
      case KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_PM_COUNTER: h->counters = 1; break;
      case KINETO_PLUGIN_PROFILE_EVENT_TYPE_PRIVATEUSE1_RUNTIME: h->launches = 1; break;
      default: break;
    }
  }
  params->pProfilerHandle = h;
  return 0;
}

static void end(KinetoPlugin_ProfilerHandle* h) {
  if (!h->running) return;
  atomic_store(&h->stop, 1);
  pthread_join(h->thread, NULL);
  h->running = 0;
}

static int destroy(KinetoPlugin_ProfilerDestroy_Params* params) {
  if (!USABLE(params, KINETO_PLUGIN_PROFILER_DESTROY_PARAMS_UNPADDED_STRUCT_SIZE)) return -1;
  if (!params->pProfilerHandle) return -1;
  end(params->pProfilerHandle);
  free(params->pProfilerHandle);
  return 0;
}

static int query(KinetoPlugin_ProfilerQuery_Params* params) {
  if (!USABLE(params, KINETO_PLUGIN_PROFILER_QUERY_PARAMS_UNPADDED_STRUCT_SIZE)) return -1;
  if (!params->pProfilerName || !params->pSupportedActivityTypes) return -1;
  static const KinetoPlugin_ProfileEventType types[] = {
      KINETO_PLUGIN_PROFILE_EVENT_TYPE_PRIVATEUSE1_RUNTIME,
      KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL,
      KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_PM_COUNTER};
  /* profilerNameMaxLen does not count the zero byte. */
  snprintf(params->pProfilerName, params->profilerNameMaxLen + 1, "adding clock");
  const size_t known = sizeof types / sizeof types[0];
  for (size_t i = 0; i < params->supportedActivityTypesMaxLen; i++) {
    if (i == known) {
      params->pSupportedActivityTypes[i] = KINETO_PLUGIN_PROFILE_EVENT_TYPE_INVALID;
      break;
    }
    params->pSupportedActivityTypes[i] = types[i];
  }
  return 0;
}

static int start(KinetoPlugin_ProfilerStart_Params* params) {
  if (!USABLE(params, KINETO_PLUGIN_PROFILER_START_PARAMS_UNPADDED_STRUCT_SIZE)) return -1;
  KinetoPlugin_ProfilerHandle* h = params->pProfilerHandle;
  if (!h || h->running) return -1;
  atomic_store(&h->stop, 0);
  h->running = pthread_create(&h->thread, NULL, device, h) == 0;
  return h->running ? 0 : -1;
}

static int stop(KinetoPlugin_ProfilerStop_Params* params) {
  if (!USABLE(params, KINETO_PLUGIN_PROFILER_STOP_PARAMS_UNPADDED_STRUCT_SIZE)) return -1;
  if (!params->pProfilerHandle || !params->pProfilerHandle->running) return -1;
  end(params->pProfilerHandle);
  return 0;
}

static int push(KinetoPlugin_ProfilerPushCorrelationId_Params* params) {
  if (!USABLE(params, KINETO_PLUGIN_PROFILER_PUSH_CORRELATION_ID_PARAMS_UNPADDED_STRUCT_SIZE))
    return -1;
  if (!params->pProfilerHandle) return -1;
  if (depth < 64) ids[depth] = params->correlationId;
  depth++;
  atomic_store(&last_id, params->correlationId);
  return 0;
}

static int pop(KinetoPlugin_ProfilerPopCorrelationId_Params* params) {
  if (!USABLE(params, KINETO_PLUGIN_PROFILER_POP_CORRELATION_ID_PARAMS_UNPADDED_STRUCT_SIZE))
    return -1;
  if (!params->pProfilerHandle || depth == 0) return -1;
  depth--;
  atomic_store(&last_id, depth > 0 && depth <= 64 ? ids[depth - 1] : 0);
  return 0;
}

static int push_user(KinetoPlugin_ProfilerPushUserCorrelationId_Params* params) {
  return USABLE(params,
                KINETO_PLUGIN_PROFILER_PUSH_USER_CORRELATION_ID_PARAMS_UNPADDED_STRUCT_SIZE) &&
                 params->pProfilerHandle
             ? 0
             : -1;
}

static int pop_user(KinetoPlugin_ProfilerPopUserCorrelationId_Params* params) {
  return USABLE(params,
                KINETO_PLUGIN_PROFILER_POP_USER_CORRELATION_ID_PARAMS_UNPADDED_STRUCT_SIZE) &&
                 params->pProfilerHandle
             ? 0
             : -1;
}

static void add_number(const KinetoPlugin_TraceBuilder* b, const char* key, uint64_t value) {
  char text[24];
  snprintf(text, sizeof text, "%llu", (unsigned long long)value);
  b->addLastEventMetadata(b->pTraceBuilderHandle, key, text);
}

/* Adds one end of the arrow from a launch to its kernel. */
static void add_flow(const KinetoPlugin_TraceBuilder* b, int number, bool starts) {
  const KinetoPlugin_ProfileEventFlow flow = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_FLOW_UNPADDED_STRUCT_SIZE,
      .flowType = KINETO_PLUGIN_PROFILE_EVENT_FLOW_TYPE_ASYNC_CPU_GPU,
      .flowId = (uint32_t)number + 1,
      .isStartPoint = starts};
  b->setLastEventFlow(b->pTraceBuilderHandle, &flow);
}

static int process(KinetoPlugin_ProfilerProcessEvents_Params* params) {
  if (!USABLE(params, KINETO_PLUGIN_PROFILER_PROCESS_EVENTS_PARAMS_UNPADDED_STRUCT_SIZE))
    return -1;
  const KinetoPlugin_ProfilerHandle* h = params->pProfilerHandle;
  const KinetoPlugin_TraceBuilder* b = params->pTraceBuilder;
  if (!h || !USABLE(b, KINETO_PLUGIN_TRACE_BUILDER_UNPADDED_STRUCT_SIZE)) return -1;
  KinetoPlugin_TraceBuilderHandle* handle = b->pTraceBuilderHandle;

  const KinetoPlugin_ProfileDeviceInfo device_info = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILE_DEVICE_INFO_UNPADDED_STRUCT_SIZE,
      .deviceId = 0, .sortIndex = 0, .pName = "adding device", .pLabel = "example"};
  b->addDeviceInfo(handle, &device_info);
  const KinetoPlugin_ProfileResourceInfo stream = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILE_RESOURCE_INFO_UNPADDED_STRUCT_SIZE,
      .deviceId = 0, .resourceId = STREAM, .displayOrder = 0, .pName = "stream 1"};
  b->addResourceInfo(handle, &stream);

  for (int i = 0; i < h->count; i++) {
    const burst_t* burst = &h->bursts[i];
    KinetoPlugin_ProfileEvent event = {
        .unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_UNPADDED_STRUCT_SIZE,
        .startTimeUtcNs = burst->launch, .endTimeUtcNs = burst->start, .eventId = i + 1};
    if (h->launches) {
      event.eventType = KINETO_PLUGIN_PROFILE_EVENT_TYPE_PRIVATEUSE1_RUNTIME;
      event.processId = getpid();
      event.threadId = getpid();
      if (b->addEvent(handle, &event)) return -1;
      b->setLastEventName(handle, "launch");
      add_flow(b, i, true);
      add_number(b, "External id", burst->correlation);
    }
    if (h->kernels) {
      event.eventType = KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL;
      event.startTimeUtcNs = burst->start;
      event.endTimeUtcNs = burst->end;
      event.deviceId = 0;
      event.resourceId = STREAM;
      if (b->addEvent(handle, &event)) return -1;
      b->setLastEventName(handle, "add 20000");
      add_flow(b, i, false);
      add_number(b, "sum", burst->sum);
      add_number(b, "device", 0);
      add_number(b, "stream", STREAM);
      add_number(b, "correlation", (uint64_t)i + 1);
    }
    if (h->counters) {
      event.eventType = KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_PM_COUNTER;
      event.startTimeUtcNs = event.endTimeUtcNs = burst->end;
      event.eventId = 0;
      event.deviceId = 0;
      event.resourceId = 0;
      if (b->addEvent(handle, &event)) return -1;
      b->setLastEventName(handle, "additions");
      add_number(b, "per burst", burst->added);
    }
  }
  return 0;
}

KINETO_PLUGIN_EXPORT int KinetoPlugin_register(const KinetoPlugin_Registry* registry) {
  if (!USABLE(registry, KINETO_PLUGIN_REGISTRY_UNPADDED_STRUCT_SIZE)) return -1;
  const KinetoPlugin_ProfilerInterface interface = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILER_INTERFACE_UNPADDED_STRUCT_SIZE,
      .profilerCreate = create, .profilerDestroy = destroy, .profilerQuery = query,
      .profilerStart = start, .profilerStop = stop, .profilerPushCorrelationId = push,
      .profilerPopCorrelationId = pop, .profilerPushUserCorrelationId = push_user,
      .profilerPopUserCorrelationId = pop_user, .profilerProcessEvents = process};
  return registry->registerProfiler(registry->pRegistryHandle, &interface);
}
