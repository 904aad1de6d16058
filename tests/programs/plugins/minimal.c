/* The smallest valid plugin: it has only the functions that the published header requires, and
 * checks no size and no pointer. It hands over one kernel. -DMISTAKE=NAME makes it violate the
 * interface in one way. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "counterpoint/kineto_plugin.h"

enum {
  NOTHING,
  REGISTER_FAILS,
  TABLE_SMALL,
  STOP_MISSING,
  QUERY_FAILS,
  NO_TYPES,
  TYPE_UNKNOWN,
  NAME_ENDLESS,
  ROOM_IGNORED,
  CREATE_FAILS,
  CREATE_CRASHES_SECOND,
  START_FAILS,
  DESTROY_CRASHES,
  EVENT_SMALL,
  EVENT_UNKNOWN,
  EVENT_BACKWARDS,
  EVENT_MONOTONIC,
  FLOW_ZERO,
  METADATA_NOT_JSON,
  HANGS_LATE,
  /* These variants are valid. */
  EVENT_NAMELESS,
  SIZE_EXACT,
  TABLE_LARGER,
};
#ifndef MISTAKE
#define MISTAKE NOTHING
#endif
#define IF(mistake) if (MISTAKE == (mistake))

struct KinetoPlugin_ProfilerHandle {
  int64_t start, stop;
};

static int64_t now(void) {
  struct timespec t;
  clock_gettime(MISTAKE == EVENT_MONOTONIC ? CLOCK_MONOTONIC : CLOCK_REALTIME, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int create(KinetoPlugin_ProfilerCreate_Params* params) {
  static int created;
  IF(CREATE_FAILS) return 3;
  IF(CREATE_CRASHES_SECOND) if (created) abort();
  IF(SIZE_EXACT)
    if (params->unpaddedStructSize != KINETO_PLUGIN_PROFILER_CREATE_PARAMS_UNPADDED_STRUCT_SIZE)
      return -1;
  created = 1;
  params->pProfilerHandle = calloc(1, sizeof *params->pProfilerHandle);
  return 0;
}

static int destroy(KinetoPlugin_ProfilerDestroy_Params* params) {
  IF(DESTROY_CRASHES) abort();
  free(params->pProfilerHandle);
  return 0;
}

static int query(KinetoPlugin_ProfilerQuery_Params* params) {
  IF(QUERY_FAILS) return 3;
  strncpy(params->pProfilerName, "minimal", params->profilerNameMaxLen);
  params->pProfilerName[params->profilerNameMaxLen] = 0;
  IF(NAME_ENDLESS) memset(params->pProfilerName, 'x', params->profilerNameMaxLen + 1);
  IF(NO_TYPES) return 0;
  params->pSupportedActivityTypes[0] = KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL;
  IF(TYPE_UNKNOWN) params->pSupportedActivityTypes[1] = (KinetoPlugin_ProfileEventType)99;
  IF(ROOM_IGNORED) params->pSupportedActivityTypes[1] = KINETO_PLUGIN_PROFILE_EVENT_TYPE_CPU_OP;
  return 0;
}

static int start(KinetoPlugin_ProfilerStart_Params* params) {
  IF(START_FAILS) return 3;
  params->pProfilerHandle->start = now();
  return 0;
}

static int stop(KinetoPlugin_ProfilerStop_Params* params) {
  params->pProfilerHandle->stop = now();
  return 0;
}

static int process(KinetoPlugin_ProfilerProcessEvents_Params* params) {
  const KinetoPlugin_TraceBuilder* b = params->pTraceBuilder;
  KinetoPlugin_ProfileEvent kernel = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_UNPADDED_STRUCT_SIZE,
      .eventType = KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL,
      .startTimeUtcNs = params->pProfilerHandle->start,
      .endTimeUtcNs = params->pProfilerHandle->stop};
  IF(EVENT_SMALL) kernel.unpaddedStructSize = 24;
  IF(EVENT_UNKNOWN) kernel.eventType = (KinetoPlugin_ProfileEventType)77;
  IF(EVENT_BACKWARDS) kernel.endTimeUtcNs = kernel.startTimeUtcNs - 1;
  IF(HANGS_LATE) for (;;) nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
  b->addEvent(b->pTraceBuilderHandle, &kernel);
  IF(EVENT_NAMELESS) return 0;
  b->setLastEventName(b->pTraceBuilderHandle, "a kernel");
  KinetoPlugin_ProfileEventFlow flow = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_FLOW_UNPADDED_STRUCT_SIZE,
      .flowType = KINETO_PLUGIN_PROFILE_EVENT_FLOW_TYPE_ASYNC_CPU_GPU};
  IF(FLOW_ZERO) b->setLastEventFlow(b->pTraceBuilderHandle, &flow);
  IF(METADATA_NOT_JSON) b->addLastEventMetadata(b->pTraceBuilderHandle, "note", "no quotes");
  return 0;
}

KINETO_PLUGIN_EXPORT int KinetoPlugin_register(const KinetoPlugin_Registry* registry) {
  IF(REGISTER_FAILS) return 3;
  struct {
    KinetoPlugin_ProfilerInterface published;
    void* later[2];
  } table = {
      .published = {.unpaddedStructSize = KINETO_PLUGIN_PROFILER_INTERFACE_UNPADDED_STRUCT_SIZE,
                    .profilerCreate = create, .profilerDestroy = destroy, .profilerQuery = query,
                    .profilerStart = start, .profilerStop = MISTAKE == STOP_MISSING ? NULL : stop,
                    .profilerProcessEvents = process}};
  IF(TABLE_SMALL) table.published.unpaddedStructSize = 80;
  IF(TABLE_LARGER) table.published.unpaddedStructSize = sizeof table;
  registry->registerProfiler(registry->pRegistryHandle, &table.published);
  return 0;
}
