// A host program for Kineto's plugins that shares no code with Counterpoint, not even the header of
// the plugin interface. Its structs and its behaviour are written from the published description
// (pull request 1148 of pytorch/kineto, whose source is not available when tests run). The host
// loads all plugins in the directory that KINETO_PLUGIN_LIB_DIR_PATH names. It records once with
// each plugin that supports an event type known to the host, and writes a trace as Kineto's writer
// does.
//
//     kineto_host TRACE.json MILLISECONDS
//
// It corrects three defects of the published host: it compares a file's extension with ".so" (the
// published host's check accepts no file, so that it loads nothing), it escapes quotes in names (as
// PyTorch 2.15 does), and it rejects events that are smaller than 48 bytes.
#include <dlfcn.h>
#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

struct Event { size_t size; uint32_t type; int64_t start, end, id; int32_t device, resource; };
struct Flow { size_t size; uint32_t type, id; bool start; };
struct Device { size_t size; int64_t id, sort; const char *name, *label; };
struct Resource { size_t size; int32_t device, id, order; const char* name; };
struct Builder {
  size_t size;
  void* handle;
  int (*addEvent)(void*, const Event*);
  int (*setLastEventName)(void*, const char*);
  int (*setLastEventFlow)(void*, const Flow*);
  int (*addLastEventMetadata)(void*, const char*, const char*);
  int (*addDeviceInfo)(void*, const Device*);
  int (*addResourceInfo)(void*, const Resource*);
};
struct Create { size_t size; void* handle; uint32_t* types; size_t length; };
struct Handle { size_t size; void* handle; };
struct Query { size_t size; void* handle; char* name; size_t nameMax; uint32_t* types; size_t typesMax; };
struct Process { size_t size; void* handle; const Builder* builder; };
struct Push { size_t size; uint64_t id; void* handle; };
struct Interface {
  size_t size;
  int (*create)(Create*);
  int (*destroy)(Handle*);
  int (*query)(Query*);
  int (*start)(Handle*);
  int (*stop)(Handle*);
  int (*push)(Push*);
  int (*pop)(Handle*);
  int (*pushUser)(Push*);
  int (*popUser)(Handle*);
  int (*process)(Process*);
};
struct Registry { size_t size; void* handle; int (*add)(void*, const Interface*); };
static_assert(sizeof(Event) == 48 && sizeof(Flow) == 24 && offsetof(Flow, start) == 16, "");
static_assert(sizeof(Device) == 40 && sizeof(Resource) == 32 && sizeof(Builder) == 64, "");
static_assert(sizeof(Create) == 32 && sizeof(Handle) == 16 && sizeof(Query) == 48, "");
static_assert(sizeof(Process) == 24 && sizeof(Push) == 24 && offsetof(Push, handle) == 16, "");
static_assert(sizeof(Interface) == 88 && sizeof(Registry) == 24, "");

const char* const kTypes[] = {
    "invalid", "cpu_op", "user_annotation", "gpu_user_annotation", "gpu_memcpy", "gpu_memset",
    "kernel", "external_correlation", "cuda_runtime", "cuda_driver", "cpu_instant_event",
    "python_function", "overhead", "mtia_runtime", "mtia_ccp_events", "mtia_insight", "cuda_sync",
    "glow_runtime", "cuda_profiler_range", "hpu_op", "xpu_runtime", "collective_comm",
    "gpu_pm_counter", "privateuse1_runtime", "privateuse1_driver"};
constexpr uint32_t kCount = 25, kCounter = 22, kKernel = 6, kInstant = 10;

std::vector<Interface> registered;
int add(void*, const Interface* interface) {
  registered.push_back(*interface);
  return 0;
}

struct Activity {
  Event event;
  std::string name;
  Flow flow = {};
  std::vector<std::pair<std::string, std::string>> metadata;
};
std::vector<Activity> activities;
std::vector<std::pair<int64_t, std::string>> devices;
std::vector<std::pair<std::pair<int32_t, int32_t>, std::string>> resources;

int addEvent(void*, const Event* event) {
  if (!event || event->size < 48) return -1;
  activities.push_back({*event, "", {}, {}});
  if (event->type >= kCount) activities.back().event.type = kKernel;
  return 0;
}
int setName(void*, const char* name) {
  if (!name || activities.empty()) return -1;
  activities.back().name = name;
  return 0;
}
int setFlow(void*, const Flow* flow) {
  if (!flow || flow->size < 17 || activities.empty()) return -1;
  activities.back().flow = *flow;
  return 0;
}
int addMetadata(void*, const char* key, const char* value) {
  if (!key || !value || activities.empty()) return -1;
  for (auto& known : activities.back().metadata)
    if (known.first == key) return 0;
  activities.back().metadata.emplace_back(key, value);
  return 0;
}
int addDevice(void*, const Device* device) {
  if (!device || device->size < 40) return -1;
  devices.emplace_back(device->id, device->name ? device->name : std::to_string(device->id));
  return 0;
}
int addResource(void*, const Resource* r) {
  if (!r || r->size < 32) return -1;
  resources.push_back({{r->device, r->id}, r->name ? r->name : std::to_string(r->id)});
  return 0;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"') out += '\\';
    out += c == '\\' ? '/' : static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out + "\"";
}

std::string micros(int64_t ns) {
  char text[64];
  snprintf(text, sizeof text, "%s%lld.%03lld", ns < 0 ? "-" : "", llabs(ns / 1000), llabs(ns % 1000));
  return text;
}

// Kineto counts time from the last multiple of this period, which is a quarter of the mean
// Gregorian year.
constexpr int64_t kPeriod = 7889238LL * 1000000000LL;

void write(const char* file) {
  int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                    std::chrono::system_clock::now().time_since_epoch())
                    .count();
  int64_t base = now / kPeriod * kPeriod;
  FILE* out = fopen(file, "w");
  if (!out) abort();
  fprintf(out, "{\n  \"schemaVersion\": 1,\n  \"displayTimeUnit\": \"ms\",\n"
               "  \"baseTimeNanoseconds\": %lld,\n  \"traceEvents\": [", (long long)base);
  const char* comma = "\n";
  auto begin = [&] { fputs(comma, out); comma = ",\n"; };
  for (auto& [id, name] : devices) {
    begin();
    fprintf(out, "{\"name\":\"process_name\",\"ph\":\"M\",\"ts\":0,\"pid\":%lld,\"tid\":0,"
                 "\"args\":{\"name\":%s}}", (long long)id, quoted(name).c_str());
  }
  for (auto& [of, name] : resources) {
    begin();
    fprintf(out, "{\"name\":\"thread_name\",\"ph\":\"M\",\"ts\":0,\"pid\":%d,\"tid\":%d,"
                 "\"args\":{\"name\":%s}}", of.first, of.second, quoted(name).c_str());
  }
  for (auto& a : activities) {
    auto& e = a.event;
    std::string args;
    for (auto& [key, value] : a.metadata)
      args += (args.empty() ? "" : ",") + quoted(key) + ":" + value;
    int64_t ts = std::max<int64_t>(e.start - base, 0);
    begin();
    const char* phase = e.type == kCounter ? "C" : e.type == kInstant ? "i" : "X";
    fprintf(out, "{\"ph\":\"%s\",\"cat\":\"%s\",\"name\":%s,\"pid\":%d,\"tid\":%d,\"ts\":%s", phase,
            kTypes[e.type], quoted(a.name).c_str(), e.device, e.type == kCounter ? 0 : e.resource,
            micros(ts).c_str());
    if (*phase == 'X') {
      fprintf(out, ",\"dur\":%s", micros(e.end - e.start).c_str());
      args = "\"External id\":" + std::to_string((int32_t)e.id) + (args.empty() ? "" : ",") + args;
    }
    fprintf(out, ",\"args\":{%s}}", args.c_str());
    if (a.flow.type == 1 || a.flow.type == 2) {
      const char* name = a.flow.type == 1 ? "fwdbwd" : "ac2g";
      begin();
      fprintf(out, "{\"ph\":\"%s\",\"id\":%u,\"pid\":%d,\"tid\":%d,\"ts\":%s,\"cat\":\"%s\","
                   "\"name\":\"%s\"%s}", a.flow.start ? "s" : "f", a.flow.id, e.device, e.resource,
              micros(ts).c_str(), name, name, a.flow.start ? "" : ",\"bp\":\"e\"");
    }
  }
  fputs("\n  ]\n}\n", out);
  fclose(out);
}

bool has_extension(const std::string& name) {
  return name.size() > 3 && name.compare(name.size() - 3, 3, ".so") == 0;
}

}  // namespace

int main(int argc, char** argv) {
  const char* path = getenv("KINETO_PLUGIN_LIB_DIR_PATH");
  DIR* directory = path ? opendir(path) : nullptr;
  if (argc < 3 || !directory) return 2;
  while (dirent* entry = readdir(directory)) {
    if (!has_extension(entry->d_name)) continue;
    void* library = dlopen((std::string(path) + "/" + entry->d_name).c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (!library) {
      fprintf(stderr, "%s\n", dlerror());
      continue;
    }
    auto entry_point = reinterpret_cast<int (*)(const Registry*)>(dlsym(library, "KinetoPlugin_register"));
    Registry registry = {24, nullptr, add};
    if (!entry_point || entry_point(&registry) != 0) fprintf(stderr, "%s: failed\n", entry->d_name);
  }
  closedir(directory);

  struct Running {
    Interface interface;
    void* handle;
    std::string name;
  };
  std::vector<Running> running;
  for (auto& interface : registered) {
    if (interface.size < 88) {
      fputs("Plugin profiler has an incompatible version\n", stderr);
      continue;
    }
    if (!interface.create || !interface.destroy || !interface.query || !interface.start ||
        !interface.stop || !interface.process) {
      fputs("Plugin profiler lacks a function\n", stderr);
      continue;
    }
    char name[32] = {};
    uint32_t types[kCount] = {};
    Query query = {48, nullptr, name, 31, types, kCount};
    if (interface.query(&query) != 0) strcpy(name, "N/A");
    // The host requests those of the plugin's event types that it knows.
    std::vector<uint32_t> enabled;
    for (uint32_t type : types)
      if (type && type < kCount) enabled.push_back(type);
    if (enabled.empty()) continue;
    Create create = {32, nullptr, enabled.data(), enabled.size()};
    if (int code = interface.create(&create)) {
      // If profilerCreate fails, the published host still calls the plugin to push ids, with a null
      // handle. This host does not.
      fprintf(stderr, "%s: profilerCreate returned %d\n", name, code);
      continue;
    }
    running.push_back({interface, create.handle, name});
  }
  auto each = [&](auto call) {
    for (auto& r : running) {
      Handle params = {16, r.handle};
      int code = call(r, params);
      if (code) fprintf(stderr, "%s: returned %d\n", r.name.c_str(), code);
    }
  };
  each([](Running& r, Handle& params) { return r.interface.start(&params); });
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; i++)
    threads.emplace_back([&] {
      for (uint64_t id = 1; id <= 1000; id++)
        for (auto& r : running) {
          Push push = {24, id, r.handle};
          Handle pop = {16, r.handle};
          if (r.interface.push) r.interface.push(&push);
          if (r.interface.pop) r.interface.pop(&pop);
        }
    });
  for (auto& thread : threads) thread.join();
  usleep(1000 * atoi(argv[2]));
  each([](Running& r, Handle& params) { return r.interface.stop(&params); });
  Builder builder = {64, nullptr, addEvent, setName, setFlow, addMetadata, addDevice, addResource};
  each([&](Running& r, Handle&) {
    size_t before = activities.size();
    Process params = {24, r.handle, &builder};
    int code = r.interface.process(&params);
    printf("%s: %zu events\n", r.name.c_str(), activities.size() - before);
    return code;
  });
  each([](Running& r, Handle& params) { return r.interface.destroy(&params); });
  write(argv[1]);
}
