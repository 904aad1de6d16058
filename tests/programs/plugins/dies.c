/* A plugin that ends its process: -DABORT_IN_PROCESS or -DABORT_IN_START. */
#include <stdlib.h>
#include <string.h>

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
  strncpy(params->pProfilerName, "dies", params->profilerNameMaxLen);
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
  return 0;
}

KINETO_PLUGIN_EXPORT int KinetoPlugin_register(const KinetoPlugin_Registry* registry) {
  const KinetoPlugin_ProfilerInterface interface = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILER_INTERFACE_UNPADDED_STRUCT_SIZE,
      .profilerCreate = create, .profilerDestroy = destroy, .profilerQuery = query,
      .profilerStart = start, .profilerStop = stop, .profilerProcessEvents = process};
  return registry->registerProfiler(registry->pRegistryHandle, &interface);
}
