// A profiler plugin in C++. It records the kernels that a library runs on its device. The library
// must call `queue_kernel` for each kernel. Exceptions must not leave a function of the interface,
// so each function catches the exceptions that its code can throw.
//
//     g++ -std=c++17 -O2 -fPIC -shared $(pkg-config --cflags counterpoint-plugin) queue.cpp -o queue.so
//     counterpoint plugin check queue.so
#include <chrono>
#include <cstdio>
#include <exception>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "counterpoint/kineto_plugin.h"

// One recording.
struct KinetoPlugin_ProfilerHandle {
  struct Kernel {
    std::string name;
    int64_t begin, end;
    uint64_t op;
  };
  std::mutex lock;
  std::vector<Kernel> kernels;
};

namespace {

std::mutex lock;  // of `recording`
KinetoPlugin_ProfilerHandle* recording = nullptr;

// The ids of ops that the host pushed on this thread and has not popped yet. The op whose id was
// pushed last launches the kernels that are queued now.
thread_local std::vector<uint64_t> ops;

int64_t now() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count();
}

// Calls `body` with the recording if the arguments are usable. Catches the exceptions that `body`
// can throw, so that none reaches the host.
template <typename Params, typename Body>
int guarded(Params* params, size_t size, Body body) noexcept {
  try {
    if (!params || params->unpaddedStructSize < size || !params->pProfilerHandle) return -1;
    return body(*params->pProfilerHandle) ? 0 : -1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "queue: %s\n", e.what());
    return -1;
  } catch (...) {
    std::fprintf(stderr, "queue: an exception of an unknown type\n");
    return -1;
  }
}

int create(KinetoPlugin_ProfilerCreate_Params* params) {
  if (!params ||
      params->unpaddedStructSize < KINETO_PLUGIN_PROFILER_CREATE_PARAMS_UNPADDED_STRUCT_SIZE)
    return -1;
  params->pProfilerHandle = new (std::nothrow) KinetoPlugin_ProfilerHandle();
  return params->pProfilerHandle ? 0 : -1;
}

int destroy(KinetoPlugin_ProfilerDestroy_Params* params) {
  return guarded(params, KINETO_PLUGIN_PROFILER_DESTROY_PARAMS_UNPADDED_STRUCT_SIZE,
                 [](KinetoPlugin_ProfilerHandle& handle) {
                   std::lock_guard<std::mutex> held(lock);
                   if (recording == &handle) recording = nullptr;
                   delete &handle;
                   return true;
                 });
}

int query(KinetoPlugin_ProfilerQuery_Params* params) {
  if (!params || !params->pProfilerName || !params->pSupportedActivityTypes ||
      params->unpaddedStructSize < KINETO_PLUGIN_PROFILER_QUERY_PARAMS_UNPADDED_STRUCT_SIZE)
    return -1;
  std::snprintf(params->pProfilerName, params->profilerNameMaxLen + 1, "queue");
  const KinetoPlugin_ProfileEventType types[] = {
      KINETO_PLUGIN_PROFILE_EVENT_TYPE_PRIVATEUSE1_RUNTIME,
      KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL,
      KINETO_PLUGIN_PROFILE_EVENT_TYPE_INVALID};
  for (size_t i = 0; i < params->supportedActivityTypesMaxLen && i < 3; ++i)
    params->pSupportedActivityTypes[i] = types[i];
  return 0;
}

int start(KinetoPlugin_ProfilerStart_Params* params) {
  return guarded(params, KINETO_PLUGIN_PROFILER_START_PARAMS_UNPADDED_STRUCT_SIZE,
                 [](KinetoPlugin_ProfilerHandle& handle) {
                   std::lock_guard<std::mutex> held(lock);
                   recording = &handle;
                   return true;
                 });
}

int stop(KinetoPlugin_ProfilerStop_Params* params) {
  return guarded(params, KINETO_PLUGIN_PROFILER_STOP_PARAMS_UNPADDED_STRUCT_SIZE,
                 [](KinetoPlugin_ProfilerHandle& handle) {
                   std::lock_guard<std::mutex> held(lock);
                   if (recording == &handle) recording = nullptr;
                   return true;
                 });
}

int push(KinetoPlugin_ProfilerPushCorrelationId_Params* params) {
  return guarded(params, KINETO_PLUGIN_PROFILER_PUSH_CORRELATION_ID_PARAMS_UNPADDED_STRUCT_SIZE,
                 [&](KinetoPlugin_ProfilerHandle&) {
                   ops.push_back(params->correlationId);
                   return true;
                 });
}

int pop(KinetoPlugin_ProfilerPopCorrelationId_Params* params) {
  return guarded(params, KINETO_PLUGIN_PROFILER_POP_CORRELATION_ID_PARAMS_UNPADDED_STRUCT_SIZE,
                 [](KinetoPlugin_ProfilerHandle&) {
                   if (ops.empty()) return false;
                   ops.pop_back();
                   return true;
                 });
}

int process(KinetoPlugin_ProfilerProcessEvents_Params* params) {
  return guarded(
      params, KINETO_PLUGIN_PROFILER_PROCESS_EVENTS_PARAMS_UNPADDED_STRUCT_SIZE,
      [&](KinetoPlugin_ProfilerHandle& handle) {
        const KinetoPlugin_TraceBuilder* b = params->pTraceBuilder;
        if (!b || b->unpaddedStructSize < KINETO_PLUGIN_TRACE_BUILDER_UNPADDED_STRUCT_SIZE)
          return false;
        std::lock_guard<std::mutex> held(handle.lock);
        int64_t id = 0;
        for (const auto& kernel : handle.kernels) {
          KinetoPlugin_ProfileEvent event = {};
          event.unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_UNPADDED_STRUCT_SIZE;
          event.eventType = KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL;
          event.startTimeUtcNs = kernel.begin;
          event.endTimeUtcNs = kernel.end;
          event.eventId = ++id;
          if (b->addEvent(b->pTraceBuilderHandle, &event)) continue;
          b->setLastEventName(b->pTraceBuilderHandle, kernel.name.c_str());
          if (kernel.op)
            b->addLastEventMetadata(b->pTraceBuilderHandle, "External id",
                                    std::to_string(kernel.op).c_str());
        }
        return true;
      });
}

}  // namespace

// The library calls this function for each kernel that it runs.
extern "C" KINETO_PLUGIN_EXPORT void queue_kernel(const char* name, int64_t nanoseconds) {
  std::lock_guard<std::mutex> held(lock);
  if (!recording) return;
  const int64_t begin = now();
  std::lock_guard<std::mutex> also(recording->lock);
  recording->kernels.push_back({name, begin, begin + nanoseconds, ops.empty() ? 0 : ops.back()});
}

extern "C" KINETO_PLUGIN_EXPORT int KinetoPlugin_register(const KinetoPlugin_Registry* registry) {
  if (!registry || registry->unpaddedStructSize < KINETO_PLUGIN_REGISTRY_UNPADDED_STRUCT_SIZE)
    return -1;
  KinetoPlugin_ProfilerInterface interface = {};
  interface.unpaddedStructSize = KINETO_PLUGIN_PROFILER_INTERFACE_UNPADDED_STRUCT_SIZE;
  interface.profilerCreate = create;
  interface.profilerDestroy = destroy;
  interface.profilerQuery = query;
  interface.profilerStart = start;
  interface.profilerStop = stop;
  interface.profilerPushCorrelationId = push;
  interface.profilerPopCorrelationId = pop;
  interface.profilerProcessEvents = process;
  return registry->registerProfiler(registry->pRegistryHandle, &interface);
}
