// A plugin with a function that, instead of returning, throws an exception, ends its thread or
// exits the process. `throws_at` or the environment variable THROWS_AT=FUNCTION:WHAT selects this
// function, and what it does. With -DIN_CONSTRUCTOR, the plugin throws while it is loaded.
#include <pthread.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>

#include "counterpoint/kineto_plugin_extension.h"

namespace {

// Two exception types such as programs define: one with one base class, and one with two.
struct Own : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct Other {
  virtual ~Other() = default;
};
struct Mixed : Other, std::runtime_error {
  Mixed() : std::runtime_error("of two bases") {}
};
// An exception that, after it was caught, throws another exception from its destructor.
struct Nasty {
  bool armed;
  explicit Nasty(bool yes) : armed(yes) {}
  Nasty(const Nasty& other) : armed(other.armed) {}
  ~Nasty() noexcept(false) {
    if (armed && !std::uncaught_exceptions()) throw std::runtime_error("in a destructor");
  }
};

char where[64], how[64];
int cleaned;

struct Guard {
  ~Guard() { cleaned++; }
};

void end() {
  Guard guard;
  if (!strcmp(how, "int")) throw 42;
  if (!strcmp(how, "text")) throw "a C string";
  if (!strcmp(how, "runtime_error")) throw std::runtime_error("no device");
  if (!strcmp(how, "own")) throw Own("no device of mine");
  if (!strcmp(how, "mixed")) throw Mixed();
  if (!strcmp(how, "nasty")) throw Nasty(true);
  if (!strcmp(how, "shared")) {
    std::exception_ptr kept;
    try {
      throw std::runtime_error("kept");
    } catch (...) {
      kept = std::current_exception();
    }
    std::rethrow_exception(kept);
  }
  if (!strcmp(how, "thread_exit")) pthread_exit(nullptr);
  if (!strcmp(how, "exit")) exit(3);
  if (!strcmp(how, "exit0")) exit(0);
}

int at(const char* place) {
  Guard guard;
  const char* variable = getenv("THROWS_AT");
  if (variable) {
    const char* colon = strchr(variable, ':');
    if (!colon || strncmp(variable, place, colon - variable) || place[colon - variable]) return 0;
    strncpy(how, colon + 1, sizeof how - 1);
    end();
  } else if (!strcmp(where, place)) {
    end();
  }
  return 0;
}

int query(KinetoPlugin_ProfilerQuery_Params* params) {
  at("profilerQuery");
  strncpy(params->pProfilerName, "throws", params->profilerNameMaxLen);
  params->pSupportedActivityTypes[0] = KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL;
  return 0;
}

int process(KinetoPlugin_ProfilerProcessEvents_Params* params) {
  const KinetoPlugin_TraceBuilder* b = params->pTraceBuilder;
  KinetoPlugin_ProfileEvent event = {};
  event.unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_UNPADDED_STRUCT_SIZE;
  event.eventType = KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL;
  event.startTimeUtcNs = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::system_clock::now().time_since_epoch()).count();
  event.endTimeUtcNs = event.startTimeUtcNs + 1000;
  b->addEvent(b->pTraceBuilderHandle, &event);
  b->setLastEventName(b->pTraceBuilderHandle, "before");
  at("profilerProcessEvents");
  b->addEvent(b->pTraceBuilderHandle, &event);
  b->setLastEventName(b->pTraceBuilderHandle, "after");
  return 0;
}

#ifdef IN_CONSTRUCTOR
struct Early {
  Early() { throw std::runtime_error("too early"); }
} early;
#endif

}  // namespace

extern "C" {

KINETO_PLUGIN_EXPORT void throws_at(const char* place, const char* by) {
  strncpy(where, place, sizeof where - 1);
  strncpy(how, by, sizeof how - 1);
}

// Returns how many `Guard`s were destroyed since the last call of this function, or -1 if C++ still
// counts an exception as uncaught.
KINETO_PLUGIN_EXPORT int throws_cleaned() {
  int n = std::uncaught_exceptions() ? -1 : cleaned;
  cleaned = 0;
  return n;
}

KINETO_PLUGIN_EXPORT int KinetoPlugin_register(const KinetoPlugin_Registry* registry) {
  KinetoPlugin_ProfilerInterface interface = {};
  interface.unpaddedStructSize = KINETO_PLUGIN_PROFILER_INTERFACE_UNPADDED_STRUCT_SIZE;
  interface.profilerCreate = [](KinetoPlugin_ProfilerCreate_Params* params) {
    static char handle;
    params->pProfilerHandle = reinterpret_cast<KinetoPlugin_ProfilerHandle*>(&handle);
    return at("profilerCreate");
  };
  interface.profilerDestroy = [](KinetoPlugin_ProfilerDestroy_Params*) {
    return at("profilerDestroy");
  };
  interface.profilerQuery = query;
  interface.profilerStart = [](KinetoPlugin_ProfilerStart_Params*) { return at("profilerStart"); };
  interface.profilerStop = [](KinetoPlugin_ProfilerStop_Params*) { return at("profilerStop"); };
  interface.profilerPushCorrelationId = [](KinetoPlugin_ProfilerPushCorrelationId_Params*) {
    return at("profilerPushCorrelationId");
  };
  interface.profilerPopCorrelationId = [](KinetoPlugin_ProfilerPopCorrelationId_Params*) {
    return at("profilerPopCorrelationId");
  };
  interface.profilerPushUserCorrelationId = [](KinetoPlugin_ProfilerPushUserCorrelationId_Params*) {
    return at("profilerPushUserCorrelationId");
  };
  interface.profilerPopUserCorrelationId = [](KinetoPlugin_ProfilerPopUserCorrelationId_Params*) {
    return at("profilerPopUserCorrelationId");
  };
  interface.profilerProcessEvents = process;
  int code = registry->registerProfiler(registry->pRegistryHandle, &interface);
  at("KinetoPlugin_register");
  return code;
}

KINETO_PLUGIN_EXPORT int CounterpointPlugin_extend(const CounterpointPlugin_Host*,
                                                   CounterpointPlugin_Extension* extension) {
  at("CounterpointPlugin_extend");
  extension->configure = [](const CounterpointPlugin_Configure_Params*) { return at("configure"); };
  extension->toggle = [](const CounterpointPlugin_Toggle_Params*) { return at("toggle"); };
  extension->flush = [](KinetoPlugin_ProfilerProcessEvents_Params*) { return at("flush"); };
  return 0;
}

}  // extern "C"
