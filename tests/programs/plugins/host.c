/* A host of Kineto's plugin interface that shares nothing with Counterpoint's: it loads a plugin,
 * records with it twice, and prints every call and its arguments. Compiled with -DEXTENDED it knows
 * Counterpoint's extension as well.
 *
 *     host PLUGIN [TYPE]...        types to ask for; without any, all that it supports */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef EXTENDED
#include "counterpoint/kineto_plugin_extension.h"
#else
#include "counterpoint/kineto_plugin.h"
#endif

struct KinetoPlugin_RegistryHandle {
  int registered;
  KinetoPlugin_ProfilerInterface interface;
};

struct KinetoPlugin_TraceBuilderHandle {
  long events;
};

static int quiet; /* prints only the number of events */

static int add_event(KinetoPlugin_TraceBuilderHandle* h, const KinetoPlugin_ProfileEvent* e) {
  if (e->unpaddedStructSize < 48) return -1;
  h->events++;
  if (!quiet)
    printf("event type %u %lld..%lld id %lld on %d/%d\n", (unsigned)e->eventType,
           (long long)e->startTimeUtcNs, (long long)e->endTimeUtcNs, (long long)e->eventId,
           e->deviceId, e->resourceId);
  return 0;
}

static int set_name(KinetoPlugin_TraceBuilderHandle* h, const char* name) {
  if (!h->events) return -1;
  if (!quiet) printf("  name %s\n", name);
  return 0;
}

static int set_flow(KinetoPlugin_TraceBuilderHandle* h, const KinetoPlugin_ProfileEventFlow* f) {
  if (!h->events || f->unpaddedStructSize != 17) return -1;
  if (!quiet)
    printf("  flow %u id %u %s\n", (unsigned)f->flowType, f->flowId,
           f->isStartPoint ? "starts" : "ends");
  return 0;
}

static int add_metadata(KinetoPlugin_TraceBuilderHandle* h, const char* key, const char* value) {
  if (!h->events) return -1;
  if (!quiet) printf("  %s = %s\n", key, value);
  return 0;
}

static int add_device(KinetoPlugin_TraceBuilderHandle* h, const KinetoPlugin_ProfileDeviceInfo* d) {
  (void)h;
  printf("device %lld %s [%s]\n", (long long)d->deviceId, d->pName, d->pLabel);
  return 0;
}

static int add_resource(KinetoPlugin_TraceBuilderHandle* h,
                        const KinetoPlugin_ProfileResourceInfo* r) {
  (void)h;
  printf("resource %d/%d %s\n", r->deviceId, r->resourceId, r->pName);
  return 0;
}

static int register_profiler(KinetoPlugin_RegistryHandle* h,
                             const KinetoPlugin_ProfilerInterface* interface) {
  h->registered++;
  h->interface = *interface;
  printf("registered %zu bytes\n", interface->unpaddedStructSize);
  return 0;
}

#ifdef EXTENDED
static CounterpointPlugin_Extension extension;

static uint32_t declare_type(CounterpointPlugin_HostHandle* h, const char* name,
                             KinetoPlugin_ProfileEventType base) {
  (void)h;
  static uint32_t next = COUNTERPOINT_PLUGIN_FIRST_OWN_TYPE;
  printf("declares %s like %u: %u\n", name, (unsigned)base, next);
  return next++;
}

static int add_counter(KinetoPlugin_TraceBuilderHandle* h, const CounterpointPlugin_Counter* c) {
  (void)h;
  printf("counter %lld on %d %s/%s [%s] %g\n", (long long)c->timeUtcNs, c->deviceId, c->pTrack,
         c->pSeries, c->pUnit, c->value);
  return 0;
}

static int set_thread_name(KinetoPlugin_TraceBuilderHandle* h, int32_t process, int32_t thread,
                           const char* name) {
  (void)h;
  printf("thread %d/%d %s\n", process, thread, name);
  return 0;
}

static void say(CounterpointPlugin_HostHandle* h, CounterpointPlugin_LogLevel level,
                const char* text) {
  (void)h;
  printf("says %u %s\n", (unsigned)level, text);
}

static const CounterpointPlugin_Host this_host = {
    .unpaddedStructSize = COUNTERPOINT_PLUGIN_HOST_UNPADDED_STRUCT_SIZE,
    .version = COUNTERPOINT_PLUGIN_EXTENSION_VERSION,
    .declareType = declare_type, .addCounter = add_counter, .setThreadName = set_thread_name,
    .log = say};
#endif

static KinetoPlugin_ProfilerInterface* pushes;
static KinetoPlugin_ProfilerHandle* pushes_to;

static void* pusher(void* unused) {
  (void)unused;
  for (uint64_t i = 1; i <= 1000; i++) {
    KinetoPlugin_ProfilerPushCorrelationId_Params push = {
        KINETO_PLUGIN_PROFILER_PUSH_CORRELATION_ID_PARAMS_UNPADDED_STRUCT_SIZE, i, pushes_to};
    KinetoPlugin_ProfilerPopCorrelationId_Params pop = {
        KINETO_PLUGIN_PROFILER_POP_CORRELATION_ID_PARAMS_UNPADDED_STRUCT_SIZE, pushes_to};
    if (pushes->profilerPushCorrelationId(&push) || pushes->profilerPopCorrelationId(&pop))
      printf("push or pop failed\n");
  }
  return NULL;
}

#define CALL(function, params) printf(#function " %d\n", interface->function(params))

int main(int argc, char** argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  quiet = getenv("QUIET") != NULL;
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    printf("%s\n", dlerror());
    return 1;
  }
#ifdef EXTENDED
  int (*extend)(const CounterpointPlugin_Host*, CounterpointPlugin_Extension*);
  *(void**)&extend = dlsym(library, "CounterpointPlugin_extend");
  extension.unpaddedStructSize = COUNTERPOINT_PLUGIN_EXTENSION_UNPADDED_STRUCT_SIZE;
  printf("extend %d\n", extend(&this_host, &extension));
#endif
  int (*registers)(const KinetoPlugin_Registry*);
  *(void**)&registers = dlsym(library, "KinetoPlugin_register");
  KinetoPlugin_RegistryHandle registry = {0};
  KinetoPlugin_Registry table = {KINETO_PLUGIN_REGISTRY_UNPADDED_STRUCT_SIZE, &registry,
                                 register_profiler};
  printf("null registry %d\n", registers(NULL));
  printf("register %d\n", registers(&table));
  KinetoPlugin_ProfilerInterface* interface = &registry.interface;

  char name[32];
  memset(name, 'z', sizeof name);
  KinetoPlugin_ProfileEventType types[25] = {0};
  KinetoPlugin_ProfilerQuery_Params query = {
      KINETO_PLUGIN_PROFILER_QUERY_PARAMS_UNPADDED_STRUCT_SIZE, NULL, name, 31, types, 25};
  CALL(profilerQuery, &query);
  printf("name %s\ntypes", name);
  size_t count = 0;
  while (count < 25 && types[count]) printf(" %u", (unsigned)types[count++]);
  printf("\n");
  for (int i = 2; i < argc; i++) types[i - 2] = (KinetoPlugin_ProfileEventType)atoi(argv[i]);
  if (argc > 2) count = (size_t)argc - 2;

  for (int round = 0; round < 2; round++) {
    KinetoPlugin_ProfilerCreate_Params create = {
        KINETO_PLUGIN_PROFILER_CREATE_PARAMS_UNPADDED_STRUCT_SIZE, NULL, types, count};
    CALL(profilerCreate, &create);
    KinetoPlugin_ProfilerHandle* handle = create.pProfilerHandle;
    KinetoPlugin_ProfilerStart_Params start = {
        KINETO_PLUGIN_PROFILER_START_PARAMS_UNPADDED_STRUCT_SIZE, handle};
    KinetoPlugin_ProfilerStop_Params stop = {
        KINETO_PLUGIN_PROFILER_STOP_PARAMS_UNPADDED_STRUCT_SIZE, handle};
    KinetoPlugin_ProfilerStart_Params nothing = {start.unpaddedStructSize, NULL};
    KinetoPlugin_ProfilerStart_Params small = {8, handle};
    printf("start with null %d, too small %d\n", interface->profilerStart(&nothing),
           interface->profilerStart(&small));
#ifdef EXTENDED
    CounterpointPlugin_Configure_Params configure = {
        COUNTERPOINT_PLUGIN_CONFIGURE_PARAMS_UNPADDED_STRUCT_SIZE, handle, "rate=5", 1000000,
        1 << 20};
    printf("configure %d\n", extension.configure(&configure));
#endif
    CALL(profilerStart, &start);
    pushes = interface;
    pushes_to = handle;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, pusher, NULL);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    KinetoPlugin_TraceBuilderHandle trace = {0};
    KinetoPlugin_TraceBuilder builder = {KINETO_PLUGIN_TRACE_BUILDER_UNPADDED_STRUCT_SIZE, &trace,
                                         add_event, set_name, set_flow, add_metadata, add_device,
                                         add_resource};
    KinetoPlugin_ProfilerProcessEvents_Params process = {
        KINETO_PLUGIN_PROFILER_PROCESS_EVENTS_PARAMS_UNPADDED_STRUCT_SIZE, handle, &builder};
#ifdef EXTENDED
    CounterpointPlugin_Toggle_Params toggle = {
        COUNTERPOINT_PLUGIN_TOGGLE_PARAMS_UNPADDED_STRUCT_SIZE, handle, 0};
    printf("toggle %d\n", extension.toggle(&toggle));
    printf("flush %d\n", extension.flush(&process));
#endif
    CALL(profilerStop, &stop);
    CALL(profilerProcessEvents, &process);
    printf("%ld events\n", trace.events);
    KinetoPlugin_ProfilerDestroy_Params destroy = {
        KINETO_PLUGIN_PROFILER_DESTROY_PARAMS_UNPADDED_STRUCT_SIZE, handle};
    CALL(profilerDestroy, &destroy);
  }
  return 0;
}
