/* A plugin that hands over two events with real times: a kernel that lasts from start to stop, and
 * a launch on the thread that started it, with an arrow to the kernel. It also hands over a value
 * of a counter. It implements kineto_plugin_extension.h, and the user's text says what else it
 * does:
 *
 *   events=N          hands over N more kernels, named `more`
 *   hang=WHERE        waits for ever in create, start, stop, process, destroy, toggle or flush
 *   fail=WHERE        returns 9 from one of them
 *   crash=WHERE       ends in one of them as by a wrong address; wild=WHERE by a real one,
 *                     deep=WHERE by a stack that is full, abort=WHERE by abort
 *   leave=WHERE       ends the thread that calls it, by pthread_exit
 *   linger=WHERE      has the thread that calls it wait for ever in a destructor, when it ends
 *   thread            has a thread while it records, which stop ends
 *   late              uses the trace builder in destroy, after the call in which it got the builder
 *   log               logs a line in start
 *
 * While it records, `flush` hands over a kernel named `flushed N`. NAME is the kernel's name, and VARIABLE the
 * environment variable that may have the text, too. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "counterpoint/kineto_plugin_extension.h"

#ifndef NAME
#define NAME "timed kernel"
#endif
#ifndef VARIABLE
#define VARIABLE "TIMED_PLUGIN"
#endif

struct KinetoPlugin_ProfilerHandle {
  int64_t started, stopped;
  pid_t process, thread;
};

static const CounterpointPlugin_Host* host;
static char text[256];
static int flushes;

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int asked(const char* what, const char* where) {
  char both[64];
  snprintf(both, sizeof both, "%s=%s", what, where);
  return strstr(text, both) != NULL;
}

static volatile int* volatile nowhere = (int*)16;
static volatile long depth = 1L << 40;

static long deeper(long left) {
  volatile char here[4096];
  here[0] = (char)left;
  return left ? deeper(left - 1) + here[0] : 0;
}

static void wait_for_ever(void* thing) {
  (void)thing;
  for (;;) pause();
}

static void linger(void) {
  pthread_key_t key;
  if (!pthread_key_create(&key, wait_for_ever)) pthread_setspecific(key, text);
}

static int misbehave(const char* where) {
  if (asked("wild", where)) *nowhere = 1;
  if (asked("deep", where)) deeper(depth);
  if (asked("abort", where)) abort();
  if (asked("crash", where)) raise(SIGSEGV); /* as a wrong address */
  while (asked("hang", where)) pause();
  if (asked("leave", where)) pthread_exit(NULL);
  if (asked("linger", where)) linger();
  return asked("fail", where) ? 9 : 0;
}

static volatile int wanted;
static pthread_t helper;

static void* run_until_stop(void* argument) {
  while (wanted) usleep(1000);
  return argument;
}

static int create(KinetoPlugin_ProfilerCreate_Params* params) {
  const char* early = getenv(VARIABLE); /* the configuration comes after create */
  if (early) snprintf(text, sizeof text, "%s", early);
  params->pProfilerHandle = calloc(1, sizeof *params->pProfilerHandle);
  return misbehave("create");
}

static const KinetoPlugin_TraceBuilder* kept;

static void use_late(void) {
  const KinetoPlugin_ProfileEvent event = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_UNPADDED_STRUCT_SIZE};
  char forged[64] = {0};
  /* The trace builder's functions must return an error now. */
  if (!kept->addEvent(kept->pTraceBuilderHandle, &event)) abort();
  if (!kept->addEvent((KinetoPlugin_TraceBuilderHandle*)forged, &event)) abort();
  if (!kept->addEvent((KinetoPlugin_TraceBuilderHandle*)16, &event)) abort();
}

static int destroy(KinetoPlugin_ProfilerDestroy_Params* params) {
  free(params->pProfilerHandle);
  if (strstr(text, "late") && kept) use_late();
  return misbehave("destroy");
}

static int query(KinetoPlugin_ProfilerQuery_Params* params) {
  strncpy(params->pProfilerName, "timed", params->profilerNameMaxLen);
  params->pSupportedActivityTypes[0] = KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL;
  params->pSupportedActivityTypes[1] = KINETO_PLUGIN_PROFILE_EVENT_TYPE_PRIVATEUSE1_RUNTIME;
  return 0;
}

static int start(KinetoPlugin_ProfilerStart_Params* params) {
  params->pProfilerHandle->started = now();
  params->pProfilerHandle->process = getpid();
  params->pProfilerHandle->thread = gettid();
  if (strstr(text, "log"))
    host->log(host->pHostHandle, COUNTERPOINT_PLUGIN_LOG_WARNING, "it is warm here");
  if (strstr(text, "thread")) {
    wanted = 1;
    pthread_create(&helper, NULL, run_until_stop, NULL);
  }
  return misbehave("start");
}

static int stop(KinetoPlugin_ProfilerStop_Params* params) {
  params->pProfilerHandle->stopped = now();
  if (wanted) {
    wanted = 0;
    pthread_join(helper, NULL);
  }
  return misbehave("stop");
}

static const KinetoPlugin_ProfileEvent nothing = {
    .unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_UNPADDED_STRUCT_SIZE};

static void add(const KinetoPlugin_TraceBuilder* b, KinetoPlugin_ProfileEvent event,
                const char* name) {
  b->addEvent(b->pTraceBuilderHandle, &event);
  b->setLastEventName(b->pTraceBuilderHandle, name);
}

static void point(const KinetoPlugin_TraceBuilder* b, bool is_start) {
  const KinetoPlugin_ProfileEventFlow flow = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_FLOW_UNPADDED_STRUCT_SIZE,
      .flowType = KINETO_PLUGIN_PROFILE_EVENT_FLOW_TYPE_ASYNC_CPU_GPU, .flowId = 21,
      .isStartPoint = is_start};
  b->setLastEventFlow(b->pTraceBuilderHandle, &flow);
}

static int process(KinetoPlugin_ProfilerProcessEvents_Params* params) {
  const KinetoPlugin_TraceBuilder* b = params->pTraceBuilder;
  kept = b;
  const struct KinetoPlugin_ProfilerHandle* of = params->pProfilerHandle;
  const KinetoPlugin_ProfileDeviceInfo device = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILE_DEVICE_INFO_UNPADDED_STRUCT_SIZE,
      .deviceId = 3, .pName = "accelerator 3", .pLabel = ""};
  b->addDeviceInfo(b->pTraceBuilderHandle, &device);
  const KinetoPlugin_ProfileResourceInfo stream = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILE_RESOURCE_INFO_UNPADDED_STRUCT_SIZE,
      .deviceId = 3, .resourceId = 7, .displayOrder = 2, .pName = "stream 7"};
  b->addResourceInfo(b->pTraceBuilderHandle, &stream);

  KinetoPlugin_ProfileEvent launch = nothing;
  launch.eventType = KINETO_PLUGIN_PROFILE_EVENT_TYPE_PRIVATEUSE1_RUNTIME;
  launch.startTimeUtcNs = of->started;
  launch.endTimeUtcNs = of->started + 1000;
  launch.eventId = 21;
  launch.processId = of->process;
  launch.threadId = of->thread;
  add(b, launch, "launch it");
  point(b, true);

  KinetoPlugin_ProfileEvent kernel = nothing;
  kernel.eventType = KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL;
  kernel.startTimeUtcNs = of->started;
  kernel.endTimeUtcNs = of->stopped;
  kernel.eventId = 21;
  kernel.deviceId = 3;
  kernel.resourceId = 7;
  add(b, kernel, NAME);
  point(b, false);
  char times[64];
  snprintf(times, sizeof times, "[%lld,%lld]", (long long)of->started, (long long)of->stopped);
  b->addLastEventMetadata(b->pTraceBuilderHandle, "times", times);

  const CounterpointPlugin_Counter power = {
      .unpaddedStructSize = COUNTERPOINT_PLUGIN_COUNTER_UNPADDED_STRUCT_SIZE,
      .timeUtcNs = of->started, .deviceId = 3, .pTrack = "power", .pSeries = "board",
      .pUnit = "W", .value = 42.5};
  if (host) host->addCounter(b->pTraceBuilderHandle, &power);

  const char* more = strstr(text, "events=");
  for (long i = 0, count = more ? atol(more + 7) : 0; i < count; i++) {
    kernel.startTimeUtcNs = of->started + i;
    kernel.endTimeUtcNs = kernel.startTimeUtcNs + 1;
    add(b, kernel, "more");
  }
  return misbehave("process");
}

static int configure(const CounterpointPlugin_Configure_Params* params) {
  if (params->pConfiguration[0]) snprintf(text, sizeof text, "%s", params->pConfiguration);
  return 0;
}

static int toggle(const CounterpointPlugin_Toggle_Params* params) {
  fprintf(stderr, params->enabled ? "continued\n" : "paused\n");
  return misbehave("toggle");
}

static int flush(KinetoPlugin_ProfilerProcessEvents_Params* params) {
  const struct KinetoPlugin_ProfilerHandle* of = params->pProfilerHandle;
  KinetoPlugin_ProfileEvent kernel = nothing;
  kernel.eventType = KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL;
  kernel.startTimeUtcNs = of->started;
  kernel.endTimeUtcNs = now();
  kernel.deviceId = 3;
  kernel.resourceId = 8;
  char name[32];
  snprintf(name, sizeof name, "flushed %d", ++flushes);
  add(params->pTraceBuilder, kernel, name);
  return misbehave("flush");
}

KINETO_PLUGIN_EXPORT int CounterpointPlugin_extend(const CounterpointPlugin_Host* given,
                                                   CounterpointPlugin_Extension* extension) {
  host = given;
  extension->configure = configure;
  extension->toggle = toggle;
  extension->flush = flush;
  return 0;
}

KINETO_PLUGIN_EXPORT int KinetoPlugin_register(const KinetoPlugin_Registry* registry) {
  const KinetoPlugin_ProfilerInterface interface = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILER_INTERFACE_UNPADDED_STRUCT_SIZE,
      .profilerCreate = create, .profilerDestroy = destroy, .profilerQuery = query,
      .profilerStart = start, .profilerStop = stop, .profilerProcessEvents = process};
  return registry->registerProfiler(registry->pRegistryHandle, &interface);
}
