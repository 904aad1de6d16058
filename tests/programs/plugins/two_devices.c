/* A plugin like that of any vendor: it numbers its devices, its streams and its arrows from 0 or 1.
 * Each of two devices runs 50 kernels of 8 us, and an arrow leads to each of them from its launch.
 * An arrow of the other type, which has the same number as the first one, leads from one pass to
 * the other. Each device also has a counter of the published interface with 50 values: 10 for
 * device 0, 20 for device 1.
 *
 * VENDOR is the beginning of the kernels' names, as a C string. CLOCK is the clock of the times.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "counterpoint/kineto_plugin.h"

#ifndef VENDOR
#define VENDOR "vendor"
#endif
#ifndef CLOCK
#define CLOCK CLOCK_REALTIME
#endif

enum { KERNELS = 100 };

struct KinetoPlugin_ProfilerHandle {
  int64_t started;
  pid_t thread;
};

static int create(KinetoPlugin_ProfilerCreate_Params* params) {
  params->pProfilerHandle = calloc(1, sizeof *params->pProfilerHandle);
  return 0;
}

static int destroy(KinetoPlugin_ProfilerDestroy_Params* params) {
  free(params->pProfilerHandle);
  return 0;
}

static int query(KinetoPlugin_ProfilerQuery_Params* params) {
  strncpy(params->pProfilerName, VENDOR, params->profilerNameMaxLen);
  params->pSupportedActivityTypes[0] = KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL;
  params->pSupportedActivityTypes[1] = KINETO_PLUGIN_PROFILE_EVENT_TYPE_PRIVATEUSE1_RUNTIME;
  params->pSupportedActivityTypes[2] = KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_PM_COUNTER;
  return 0;
}

static int start(KinetoPlugin_ProfilerStart_Params* params) {
  struct timespec time;
  clock_gettime(CLOCK, &time);
  params->pProfilerHandle->started = (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
  params->pProfilerHandle->thread = gettid();
  return 0;
}

static int stop(KinetoPlugin_ProfilerStop_Params* params) {
  (void)params;
  return 0;
}

static KinetoPlugin_ProfileEvent event(KinetoPlugin_ProfileEventType type, int64_t at, int64_t ns) {
  const KinetoPlugin_ProfileEvent made = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_UNPADDED_STRUCT_SIZE, .eventType = type,
      .startTimeUtcNs = at, .endTimeUtcNs = at + ns};
  return made;
}

static void add(const KinetoPlugin_TraceBuilder* b, KinetoPlugin_ProfileEvent event,
                const char* what, int number) {
  char name[64];
  snprintf(name, sizeof name, VENDOR " %s %d", what, number);
  b->addEvent(b->pTraceBuilderHandle, &event);
  b->setLastEventName(b->pTraceBuilderHandle, name);
}

static void point(const KinetoPlugin_TraceBuilder* b, KinetoPlugin_ProfileEventFlowType type,
                  int number, bool is_start) {
  const KinetoPlugin_ProfileEventFlow flow = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_FLOW_UNPADDED_STRUCT_SIZE,
      .flowType = type, .flowId = (uint32_t)number, .isStartPoint = is_start};
  b->setLastEventFlow(b->pTraceBuilderHandle, &flow);
}

static int process(KinetoPlugin_ProfilerProcessEvents_Params* params) {
  const KinetoPlugin_TraceBuilder* b = params->pTraceBuilder;
  const struct KinetoPlugin_ProfilerHandle* of = params->pProfilerHandle;
  for (int i = 0; i < 2; i++) {
    const KinetoPlugin_ProfileDeviceInfo device = {
        .unpaddedStructSize = KINETO_PLUGIN_PROFILE_DEVICE_INFO_UNPADDED_STRUCT_SIZE,
        .deviceId = i, .pName = i ? "second" : "first", .pLabel = ""};
    b->addDeviceInfo(b->pTraceBuilderHandle, &device);
  }
  for (int i = 0; i < KERNELS; i++) {
    const int64_t at = of->started + i * 10000;
    KinetoPlugin_ProfileEvent launch =
        event(KINETO_PLUGIN_PROFILE_EVENT_TYPE_PRIVATEUSE1_RUNTIME, at, 1000);
    launch.eventId = i + 1;
    launch.processId = getpid();
    launch.threadId = of->thread;
    add(b, launch, "launch", i);
    point(b, KINETO_PLUGIN_PROFILE_EVENT_FLOW_TYPE_ASYNC_CPU_GPU, i + 1, true);

    KinetoPlugin_ProfileEvent kernel =
        event(KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL, at + 2000, 8000);
    kernel.eventId = i + 1;
    kernel.deviceId = i % 2;
    add(b, kernel, "kernel", i);
    point(b, KINETO_PLUGIN_PROFILE_EVENT_FLOW_TYPE_ASYNC_CPU_GPU, i + 1, false);

    KinetoPlugin_ProfileEvent load =
        event(KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_PM_COUNTER, at, 0);
    load.deviceId = i % 2;
    b->addEvent(b->pTraceBuilderHandle, &load);
    b->setLastEventName(b->pTraceBuilderHandle, "load");
    b->addLastEventMetadata(b->pTraceBuilderHandle, "percent", i % 2 ? "20" : "10");
  }
  /* These flows are between two separate events. */
  for (int i = 0; i < 2; i++) {
    KinetoPlugin_ProfileEvent pass = event(KINETO_PLUGIN_PROFILE_EVENT_TYPE_PRIVATEUSE1_RUNTIME,
                                           of->started + 2000000 + i * 2000, 1000);
    pass.processId = getpid();
    pass.threadId = of->thread;
    add(b, pass, "pass", i);
    point(b, KINETO_PLUGIN_PROFILE_EVENT_FLOW_TYPE_FWD_BWD, 1, i == 0);
  }
  return 0;
}

KINETO_PLUGIN_EXPORT int KinetoPlugin_register(const KinetoPlugin_Registry* registry) {
  const KinetoPlugin_ProfilerInterface interface = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILER_INTERFACE_UNPADDED_STRUCT_SIZE,
      .profilerCreate = create, .profilerDestroy = destroy, .profilerQuery = query,
      .profilerStart = start, .profilerStop = stop, .profilerProcessEvents = process};
  return registry->registerProfiler(registry->pRegistryHandle, &interface);
}
