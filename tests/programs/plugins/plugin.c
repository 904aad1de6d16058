/* A plugin that uses every call of the interface, and makes one mistake if it is compiled with
 * -DMISTAKE=name. NAME is the kernel's name, as a C string.
 *
 * It records one launch and one kernel with a flow between them, two counters, two devices, a
 * stream. `plugin_calls` returns the calls that the plugin got, as one letter for each call. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "counterpoint/kineto_plugin.h"

#ifndef NAME
#define NAME "kernel of a test"
#endif

/* This is added to all times, in ns since 1970. */
#ifndef BASE
#define BASE 0LL
#endif

/* -DMISTAKE=4 makes the plugin make the fourth one, and so on. */
enum {
  NONE,
  REGISTER_FAILS,
  REGISTER_FAILS_LATE,
  REGISTERS_NOTHING,
  REGISTERS_NULL,
  SMALL_INTERFACE,
  NO_STOP,
  QUERY_FAILS,
  QUERY_NAMELESS,
  QUERY_LONG,
  QUERY_UNKNOWN,
  CREATE_FAILS,
  START_FAILS,
  PROCESS_FAILS,
  SMALL_EVENT,
  NULL_EVENT,
  NAME_FIRST,
  NULL_NAME,
  UNKNOWN_EVENT,
  NOT_ASKED,
  UNKNOWN_FLOW,
  ZERO_FLOW,
  BACKWARDS,
  NAMELESS,
  LATE,
  BAD_METADATA,
  WIDE_ID,
  NO_PUSH,
  LARGE_INTERFACE,
  REGISTER_HANGS,
  REGISTER_LINGERS,
};
#ifndef MISTAKE
#define MISTAKE NONE
#endif
#define IF(mistake) if (MISTAKE == (mistake))

static char calls[256];
static atomic_int called;

static void note(char letter) {
  int at = atomic_fetch_add(&called, 1);
  if (at < (int)sizeof calls - 1) calls[at] = letter;
}

KINETO_PLUGIN_EXPORT const char* plugin_calls(void) { return calls; }

struct KinetoPlugin_ProfilerHandle {
  int started;
};

static const KinetoPlugin_TraceBuilder* last;
static KinetoPlugin_TraceBuilder copy;

static int create(KinetoPlugin_ProfilerCreate_Params* params) {
  note('c');
  IF(CREATE_FAILS) return 7;
  for (size_t i = 0; i < params->enabledActivityTypesMaxLen; i++)
    note((char)('0' + params->pEnabledActivityTypes[i] % 10));
  params->pProfilerHandle = calloc(1, sizeof *params->pProfilerHandle);
  return 0;
}

static int destroy(KinetoPlugin_ProfilerDestroy_Params* params) {
  note('d');
  free(params->pProfilerHandle);
  return 0;
}

static int query(KinetoPlugin_ProfilerQuery_Params* params) {
  note('q');
  IF(QUERY_FAILS) return 3;
  IF(QUERY_LONG) {
    memset(params->pProfilerName, 'x', params->profilerNameMaxLen + 1);
  } else IF(QUERY_NAMELESS) {
  } else {
    strncpy(params->pProfilerName, "test plugin", params->profilerNameMaxLen);
  }
  size_t n = 0;
  params->pSupportedActivityTypes[n++] = KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL;
  params->pSupportedActivityTypes[n++] = KINETO_PLUGIN_PROFILE_EVENT_TYPE_PRIVATEUSE1_RUNTIME;
  params->pSupportedActivityTypes[n++] = KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_PM_COUNTER;
  IF(QUERY_UNKNOWN) params->pSupportedActivityTypes[n++] = (KinetoPlugin_ProfileEventType)99;
  return 0;
}

static int start(KinetoPlugin_ProfilerStart_Params* params) {
  note('s');
  IF(START_FAILS) return 4;
  params->pProfilerHandle->started = 1;
  return 0;
}

static int stop(KinetoPlugin_ProfilerStop_Params* params) {
  note('t');
  params->pProfilerHandle->started = 0;
  return 0;
}

static int push(KinetoPlugin_ProfilerPushCorrelationId_Params* params) {
  if (params->correlationId == 42) note('+');
  return params->pProfilerHandle == NULL;
}

static int pop(KinetoPlugin_ProfilerPopCorrelationId_Params* params) {
  note('-');
  return params->pProfilerHandle == NULL;
}

static int push_user(KinetoPlugin_ProfilerPushUserCorrelationId_Params* params) {
  if (params->userCorrelationId == 42) note('*');
  return 0;
}

static int pop_user(KinetoPlugin_ProfilerPopUserCorrelationId_Params* params) {
  (void)params;
  note('/');
  return 0;
}

static int process(KinetoPlugin_ProfilerProcessEvents_Params* params) {
  note('p');
  const KinetoPlugin_TraceBuilder* b = params->pTraceBuilder;
  KinetoPlugin_TraceBuilderHandle* h = b->pTraceBuilderHandle;
  last = b;
  copy = *b;
  IF(NAME_FIRST) b->setLastEventName(h, "too early");

  KinetoPlugin_ProfileDeviceInfo device = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILE_DEVICE_INFO_UNPADDED_STRUCT_SIZE,
      .deviceId = 3, .sortIndex = 1, .pName = "accelerator 3", .pLabel = "rev B"};
  b->addDeviceInfo(h, &device);
  device.deviceId = 4;
  device.pName = NULL;
  device.pLabel = NULL;
  b->addDeviceInfo(h, &device);
  KinetoPlugin_ProfileResourceInfo stream = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILE_RESOURCE_INFO_UNPADDED_STRUCT_SIZE,
      .deviceId = 3, .resourceId = 7, .displayOrder = 2, .pName = "stream 7"};
  b->addResourceInfo(h, &stream);

  KinetoPlugin_ProfileEvent launch = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_UNPADDED_STRUCT_SIZE,
      .eventType = KINETO_PLUGIN_PROFILE_EVENT_TYPE_PRIVATEUSE1_RUNTIME,
      .startTimeUtcNs = BASE + 1000, .endTimeUtcNs = BASE + 2000, .eventId = 11, .processId = 500,
      .threadId = 501};
  KinetoPlugin_ProfileEventFlow flow = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_FLOW_UNPADDED_STRUCT_SIZE,
      .flowType = KINETO_PLUGIN_PROFILE_EVENT_FLOW_TYPE_ASYNC_CPU_GPU, .flowId = 11,
      .isStartPoint = true};
  IF(UNKNOWN_FLOW) flow.flowType = (KinetoPlugin_ProfileEventFlowType)9;
  IF(ZERO_FLOW) flow.flowId = 0;
  b->addEvent(h, &launch);
  b->setLastEventName(h, "launch");
  b->setLastEventFlow(h, &flow);
  b->addLastEventMetadata(h, "correlation", "11");

  KinetoPlugin_ProfileEvent kernel = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_UNPADDED_STRUCT_SIZE,
      .eventType = KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL,
      .startTimeUtcNs = BASE + 1500, .endTimeUtcNs = BASE + 9000, .eventId = 11, .deviceId = 3,
      .resourceId = 7};
  IF(UNKNOWN_EVENT) kernel.eventType = (KinetoPlugin_ProfileEventType)77;
  IF(NOT_ASKED) kernel.eventType = KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_MEMCPY;
  IF(SMALL_EVENT) kernel.unpaddedStructSize = 24;
  IF(BACKWARDS) kernel.endTimeUtcNs = BASE + 1400;
  IF(WIDE_ID) kernel.eventId = 0x123456789abLL;
  int added;
  IF(NULL_EVENT) added = b->addEvent(h, NULL);
  else added = b->addEvent(h, &kernel);
  /* Few plugins check the result of addEvent. */
  if (added == 0 || MISTAKE == SMALL_EVENT) {
    IF(NULL_NAME) b->setLastEventName(h, NULL);
    else IF(NAMELESS) {}
    else b->setLastEventName(h, NAME);
    flow.isStartPoint = false;
    b->setLastEventFlow(h, &flow);
    b->addLastEventMetadata(h, "stream", "7");
    b->addLastEventMetadata(h, "stream", "8");
    IF(BAD_METADATA) b->addLastEventMetadata(h, "broken", "{\"a\":");
  }

  KinetoPlugin_ProfileEvent counter = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_UNPADDED_STRUCT_SIZE,
      .eventType = KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_PM_COUNTER,
      .startTimeUtcNs = BASE + 3000, .endTimeUtcNs = BASE + 3000, .deviceId = 3};
  for (int i = 0; i < 2; i++) {
    counter.startTimeUtcNs = counter.endTimeUtcNs = BASE + 3000 + 1000 * i;
    b->addEvent(h, &counter);
    b->setLastEventName(h, "bandwidth");
    b->addLastEventMetadata(h, "read GB/s", i == 0 ? "10.5" : "12.25");
    b->addLastEventMetadata(h, "write GB/s", "1.25");
  }
  IF(PROCESS_FAILS) return 5;
  return 0;
}

/* Too late for the trace builder, as from a plugin's own thread. */
KINETO_PLUGIN_EXPORT int plugin_late(void) {
  return last ? copy.setLastEventName(copy.pTraceBuilderHandle, "too late") : 1;
}

/* The destructor of a thread-specific value. */
static void wait_for_ever(void* thing) {
  (void)thing;
  for (;;) pause();
}

KINETO_PLUGIN_EXPORT int KinetoPlugin_register(const KinetoPlugin_Registry* registry) {
  note('r');
  IF(REGISTER_FAILS) return 2;
  IF(REGISTER_HANGS) {
    fputs("hangs\n", stderr);
    for (;;) pause();
  }
  IF(REGISTER_LINGERS) {
    pthread_key_t key;
    if (!pthread_key_create(&key, wait_for_ever)) pthread_setspecific(key, &key);
  }
  IF(REGISTERS_NOTHING) return 0;
  IF(REGISTERS_NULL) return registry->registerProfiler(registry->pRegistryHandle, NULL);
  struct {
    KinetoPlugin_ProfilerInterface published;
    void* later[4];
  } interface = {
      .published = {.unpaddedStructSize = KINETO_PLUGIN_PROFILER_INTERFACE_UNPADDED_STRUCT_SIZE,
                    .profilerCreate = create, .profilerDestroy = destroy, .profilerQuery = query,
                    .profilerStart = start, .profilerStop = stop,
                    .profilerPushCorrelationId = push, .profilerPopCorrelationId = pop,
                    .profilerPushUserCorrelationId = push_user,
                    .profilerPopUserCorrelationId = pop_user,
                    .profilerProcessEvents = process}};
  IF(SMALL_INTERFACE) interface.published.unpaddedStructSize = 80;
  IF(LARGE_INTERFACE) interface.published.unpaddedStructSize = sizeof interface;
  IF(NO_STOP) interface.published.profilerStop = NULL;
  IF(NO_PUSH) interface.published.profilerPushCorrelationId = NULL;
  int code = registry->registerProfiler(registry->pRegistryHandle, &interface.published);
  memset(&interface, 0xee, sizeof interface); /* the host has its copy */
  IF(REGISTER_FAILS_LATE) return 6;
  return code;
}
