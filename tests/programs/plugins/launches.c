/* A plugin that pretends that each op of the host launches a kernel: for each correlation id that the
 * host pushes, it reports a launch on the pushing thread and a kernel on one of two devices, with a
 * flow between them, and a counter for each device.
 *
 * NAME is the kernel's name as a C string. Environment variables make it misbehave, so that it has to
 * be compiled only once:
 *
 *   LAUNCHES_LOG    file to which it appends a line for each call that it gets
 *   LAUNCHES_FAIL   name of a function that returns an error: create, configure, start, ...
 *   LAUNCHES_QUIET  anything: it reports kernels without launches
 *   LAUNCHES_TEXTS  anything: it reports an event with texts and numbers that are hard to write as JSON
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "counterpoint/kineto_plugin_extension.h"

#ifndef NAME
#define NAME "kernel of a test"
#endif

enum { MOST = 1 << 20 };

struct launch {
  uint64_t id;
  int64_t time_ns;
  int32_t thread;
};

struct KinetoPlugin_ProfilerHandle {
  atomic_int running;
  atomic_uint count;
  atomic_uint pops;
  struct launch launches[MOST];
};

static const CounterpointPlugin_Host* host;

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void note(const char* call, const char* detail) {
  const char* path = getenv("LAUNCHES_LOG");
  FILE* file = path ? fopen(path, "a") : NULL;
  if (!file) return;
  fprintf(file, "%d %s%s%s\n", (int)getpid(), call, *detail ? " " : "", detail);
  fclose(file);
}

static int result(const char* call) {
  const char* fails = getenv("LAUNCHES_FAIL");
  return fails && !strcmp(fails, call) ? 7 : 0;
}

static int create(KinetoPlugin_ProfilerCreate_Params* params) {
  char kinds[256] = "";
  for (size_t i = 0; i < params->enabledActivityTypesMaxLen; i++)
    snprintf(kinds + strlen(kinds), sizeof kinds - strlen(kinds), "%s%u", i ? "," : "",
             (unsigned)params->pEnabledActivityTypes[i]);
  note("create", kinds);
  if (result("create")) return 7;
  params->pProfilerHandle = calloc(1, sizeof *params->pProfilerHandle);
  return 0;
}

static int configure(const CounterpointPlugin_Configure_Params* params) {
  note("configure", params->pConfiguration);
  return result("configure");
}

static int destroy(KinetoPlugin_ProfilerDestroy_Params* params) {
  note("destroy", "");
  free(params->pProfilerHandle);
  return result("destroy");
}

static int query(KinetoPlugin_ProfilerQuery_Params* params) {
  static const int kinds[] = {
      KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL,
      KINETO_PLUGIN_PROFILE_EVENT_TYPE_PRIVATEUSE1_RUNTIME,
      KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_PM_COUNTER,
      KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_MEMCPY,
  };
  strncpy(params->pProfilerName, "launches", params->profilerNameMaxLen);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    params->pSupportedActivityTypes[i] = (KinetoPlugin_ProfileEventType)kinds[i];
  return result("query");
}

static int start(KinetoPlugin_ProfilerStart_Params* params) {
  note("start", "");
  params->pProfilerHandle->running = 1;
  return result("start");
}

static int stop(KinetoPlugin_ProfilerStop_Params* params) {
  note("stop", "");
  params->pProfilerHandle->running = 0;
  return result("stop");
}

static int push(KinetoPlugin_ProfilerPushCorrelationId_Params* params) {
  struct KinetoPlugin_ProfilerHandle* handle = params->pProfilerHandle;
  if (handle->running) {
    unsigned at = atomic_fetch_add(&handle->count, 1);
    if (at < MOST)
      handle->launches[at] =
          (struct launch){params->correlationId, now(), (int32_t)syscall(SYS_gettid)};
  }
  return result("push");
}

static int pop(KinetoPlugin_ProfilerPopCorrelationId_Params* params) {
  atomic_fetch_add(&params->pProfilerHandle->pops, 1);
  return result("pop");
}

static int push_user(KinetoPlugin_ProfilerPushUserCorrelationId_Params* params) {
  (void)params;
  note("push_user", "");
  return result("push_user");
}

static int pop_user(KinetoPlugin_ProfilerPopUserCorrelationId_Params* params) {
  (void)params;
  note("pop_user", "");
  return result("pop_user");
}

static void odd_texts(const KinetoPlugin_TraceBuilder* b) {
  KinetoPlugin_TraceBuilderHandle* h = b->pTraceBuilderHandle;
  KinetoPlugin_ProfileEvent event = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_UNPADDED_STRUCT_SIZE,
      .eventType = KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_MEMCPY,
      .startTimeUtcNs = now(), .endTimeUtcNs = now() + 1000, .eventId = 0x123456789abcdefLL,
      .deviceId = 70, .resourceId = 8};
  b->addEvent(h, &event);
  b->setLastEventName(h, "odd \"quoted\" back\\slash caf\xc3\xa9 \xff\n");
  b->addLastEventMetadata(h, "quoted \"key\"", "\"a \\\"b\\\" c\\\\d\\n\"");
  b->addLastEventMetadata(h, "bytes", "18446744073709551615");
  b->addLastEventMetadata(h, "accents", "\"caf\xc3\xa9 \\u00e9\"");
  b->addLastEventMetadata(h, "broken", "{\"a\":");
  b->addLastEventMetadata(h, "nested", "{\"list\": [1, 2.5, null, true, \"x\"]}");
  KinetoPlugin_ProfileDeviceInfo device = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILE_DEVICE_INFO_UNPADDED_STRUCT_SIZE,
      .deviceId = 70, .sortIndex = 70, .pName = "odd \"device\" \\", .pLabel = "\"label\""};
  b->addDeviceInfo(h, &device);
  KinetoPlugin_ProfileResourceInfo stream = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILE_RESOURCE_INFO_UNPADDED_STRUCT_SIZE,
      .deviceId = 70, .resourceId = 8, .displayOrder = 1, .pName = "odd \"stream\""};
  b->addResourceInfo(h, &stream);
  if (host) {
    CounterpointPlugin_Counter counter = {
        .unpaddedStructSize = COUNTERPOINT_PLUGIN_COUNTER_UNPADDED_STRUCT_SIZE,
        .timeUtcNs = now(), .deviceId = 70, .pTrack = "odd \"track\"", .pSeries = "odd \"series\"",
        .pUnit = "\xc2\xb0""C", .value = 0.1};
    host->addCounter(h, &counter);
    counter.pSeries = "second";
    counter.value = 1e300;
    host->addCounter(h, &counter);
  }
}

static void rows(const KinetoPlugin_TraceBuilder* b) {
  KinetoPlugin_TraceBuilderHandle* h = b->pTraceBuilderHandle;
  for (int i = 0; i < 2; i++) {
    char name[32];
    snprintf(name, sizeof name, "accelerator %d", 60 + i);
    KinetoPlugin_ProfileDeviceInfo device = {
        .unpaddedStructSize = KINETO_PLUGIN_PROFILE_DEVICE_INFO_UNPADDED_STRUCT_SIZE,
        .deviceId = 60 + i, .sortIndex = 60 + i, .pName = name, .pLabel = "rev B"};
    b->addDeviceInfo(h, &device);
    snprintf(name, sizeof name, "queue of %d", 60 + i);
    KinetoPlugin_ProfileResourceInfo stream = {
        .unpaddedStructSize = KINETO_PLUGIN_PROFILE_RESOURCE_INFO_UNPADDED_STRUCT_SIZE,
        .deviceId = 60 + i, .resourceId = 7, .displayOrder = 2, .pName = name};
    b->addResourceInfo(h, &stream);
  }
}

static int process(KinetoPlugin_ProfilerProcessEvents_Params* params) {
  note("process", "");
  struct KinetoPlugin_ProfilerHandle* handle = params->pProfilerHandle;
  const KinetoPlugin_TraceBuilder* b = params->pTraceBuilder;
  KinetoPlugin_TraceBuilderHandle* h = b->pTraceBuilderHandle;
  int quiet = getenv("LAUNCHES_QUIET") != NULL;
  rows(b);
  unsigned count = handle->count < MOST ? handle->count : MOST;
  for (unsigned i = 0; i < count; i++) {
    const struct launch* l = &handle->launches[i];
    KinetoPlugin_ProfileEvent event = {
        .unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_UNPADDED_STRUCT_SIZE,
        .eventType = KINETO_PLUGIN_PROFILE_EVENT_TYPE_PRIVATEUSE1_RUNTIME,
        .startTimeUtcNs = l->time_ns, .endTimeUtcNs = l->time_ns + 100, .eventId = (int64_t)l->id,
        .processId = (int32_t)getpid(), .threadId = l->thread};
    KinetoPlugin_ProfileEventFlow flow = {
        .unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_FLOW_UNPADDED_STRUCT_SIZE,
        .flowType = KINETO_PLUGIN_PROFILE_EVENT_FLOW_TYPE_ASYNC_CPU_GPU,
        .flowId = (uint32_t)l->id, .isStartPoint = true};
    if (!quiet && b->addEvent(h, &event) == 0) {
      b->setLastEventName(h, "launch");
      b->setLastEventFlow(h, &flow);
    }
    event.eventType = KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL;
    event.startTimeUtcNs += 1000;
    event.endTimeUtcNs += 5000;
    event.deviceId = 60 + (int32_t)(l->id % 2);
    event.resourceId = 7;
    flow.isStartPoint = false;
    if (b->addEvent(h, &event) == 0) {
      b->setLastEventName(h, NAME);
      if (!quiet) b->setLastEventFlow(h, &flow);
      b->addLastEventMetadata(h, "grid", "[1, 2, 3]");
    }
  }
  for (int i = 0; i < 2; i++) {
    KinetoPlugin_ProfileEvent counter = {
        .unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_UNPADDED_STRUCT_SIZE,
        .eventType = KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_PM_COUNTER,
        .startTimeUtcNs = now(), .endTimeUtcNs = now(), .deviceId = 60 + i};
    if (b->addEvent(h, &counter) == 0) {
      b->setLastEventName(h, "bandwidth");
      b->addLastEventMetadata(h, "read GB/s", i ? "12.25" : "10.5");
      b->addLastEventMetadata(h, "write GB/s", "1.25");
    }
  }
  if (getenv("LAUNCHES_TEXTS")) odd_texts(b);
  return result("process");
}

KINETO_PLUGIN_EXPORT int CounterpointPlugin_extend(const CounterpointPlugin_Host* pHost,
                                                   CounterpointPlugin_Extension* extension) {
  host = pHost;
  extension->configure = configure;
  return result("extend");
}

KINETO_PLUGIN_EXPORT int KinetoPlugin_register(const KinetoPlugin_Registry* registry) {
  note("register", "");
  if (result("register")) return 7;
  KinetoPlugin_ProfilerInterface interface = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILER_INTERFACE_UNPADDED_STRUCT_SIZE,
      .profilerCreate = create, .profilerDestroy = destroy, .profilerQuery = query,
      .profilerStart = start, .profilerStop = stop,
      .profilerPushCorrelationId = push, .profilerPopCorrelationId = pop,
      .profilerPushUserCorrelationId = push_user, .profilerPopUserCorrelationId = pop_user,
      .profilerProcessEvents = process};
  return registry->registerProfiler(registry->pRegistryHandle, &interface);
}
