/* A profiler plugin that does nothing. It supports events of the type KIND; with -DIDS, it also has
 * the functions for ids of ops. */
#include <string.h>

#include "counterpoint/kineto_plugin.h"

struct KinetoPlugin_ProfilerHandle {
  int unused;
};
static struct KinetoPlugin_ProfilerHandle only;

static int create(KinetoPlugin_ProfilerCreate_Params* params) {
  params->pProfilerHandle = &only;
  return 0;
}
static int destroy(KinetoPlugin_ProfilerDestroy_Params* params) { return !params; }
static int start(KinetoPlugin_ProfilerStart_Params* params) { return !params; }
static int stop(KinetoPlugin_ProfilerStop_Params* params) { return !params; }
static int process(KinetoPlugin_ProfilerProcessEvents_Params* params) { return !params; }
static int query(KinetoPlugin_ProfilerQuery_Params* params) {
  strcpy(params->pProfilerName, "idle");
  params->pSupportedActivityTypes[0] = KIND;
  return 0;
}
#ifdef IDS
static int push(KinetoPlugin_ProfilerPushCorrelationId_Params* params) { return !params; }
static int pop(KinetoPlugin_ProfilerPopCorrelationId_Params* params) { return !params; }
#endif

KINETO_PLUGIN_EXPORT int KinetoPlugin_register(const KinetoPlugin_Registry* registry) {
  KinetoPlugin_ProfilerInterface interface = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILER_INTERFACE_UNPADDED_STRUCT_SIZE,
      .profilerCreate = create, .profilerDestroy = destroy, .profilerQuery = query,
      .profilerStart = start, .profilerStop = stop,
#ifdef IDS
      .profilerPushCorrelationId = push, .profilerPopCorrelationId = pop,
#endif
      .profilerProcessEvents = process};
  return registry->registerProfiler(registry->pRegistryHandle, &interface);
}
