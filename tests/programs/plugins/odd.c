/* A plugin that does one odd thing: it ends its process (-DABORT_IN_PROCESS, -DABORT_IN_START), waits
 * for ever (-DHANG_IN_REGISTER), or hands over many kernels as fast as it can (-DEVENTS=N). */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "counterpoint/kineto_plugin.h"

static int create(KinetoPlugin_ProfilerCreate_Params* params) {
  (void)params;
  return 0;
}

static int destroy(KinetoPlugin_ProfilerDestroy_Params* params) {
  (void)params;
  return 0;
}

static int query(KinetoPlugin_ProfilerQuery_Params* params) {
  strncpy(params->pProfilerName, "odd", params->profilerNameMaxLen);
  params->pSupportedActivityTypes[0] = KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL;
  return 0;
}

static int start(KinetoPlugin_ProfilerStart_Params* params) {
  (void)params;
#ifdef ABORT_IN_START
  volatile int* volatile nowhere = NULL;
  *nowhere = 1;
#endif
  return 0;
}

static int stop(KinetoPlugin_ProfilerStop_Params* params) {
  (void)params;
  return 0;
}

static int process(KinetoPlugin_ProfilerProcessEvents_Params* params) {
  (void)params;
#ifdef ABORT_IN_PROCESS
  abort();
#endif
#ifdef EVENTS
  const KinetoPlugin_TraceBuilder* b = params->pTraceBuilder;
  KinetoPlugin_ProfileEvent event = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_UNPADDED_STRUCT_SIZE,
      .eventType = KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL};
  static const char* const names[] = {"add", "multiply", "a kernel with a long name, as they have"};
  for (int64_t i = 0; i < EVENTS; i++) {
    event.startTimeUtcNs = 1700000000000000000 + 1000 * i;
    event.endTimeUtcNs = event.startTimeUtcNs + 900;
    event.eventId = i;
    if (b->addEvent(b->pTraceBuilderHandle, &event)) return -1;
    if (b->setLastEventName(b->pTraceBuilderHandle, names[i % 3])) return -1;
  }
#endif
  return 0;
}

KINETO_PLUGIN_EXPORT int KinetoPlugin_register(const KinetoPlugin_Registry* registry) {
#ifdef HANG_IN_REGISTER
  for (;;) pause();
#endif
  const KinetoPlugin_ProfilerInterface interface = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILER_INTERFACE_UNPADDED_STRUCT_SIZE,
      .profilerCreate = create, .profilerDestroy = destroy, .profilerQuery = query,
      .profilerStart = start, .profilerStop = stop, .profilerProcessEvents = process};
  return registry->registerProfiler(registry->pRegistryHandle, &interface);
}
