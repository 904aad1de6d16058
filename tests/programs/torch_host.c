// Stands in for PyTorch and for Counterpoint's shim in it (include/counterpoint/torch_plugins.h):
// records twice with the plugins in DIRECTORY, and prints the events that it receives.
//
//     torch_host DIRECTORY [show]
//
// Without `show`, it prints only that it ended normally, so the output is the same without
// Counterpoint's library and with one that fails.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../include/counterpoint/torch.h"
#include "../../include/counterpoint/torch_plugins.h"

static int shows;

static void event(void* handle, const counterpoint_torch_event_t* e) {
  ++*(int*)handle;
  if (!shows) return;
  printf("event %u %lld..%lld id %d at %d/%d flow %u/%s/%u %s", e->kind, (long long)e->start_ns,
         (long long)e->end_ns, e->id, e->device, e->resource, e->flow_type,
         e->flow_id >= 0x40000000u ? "own" : e->flow_id ? "low" : "none", e->flow_is_start, e->name);
  for (size_t i = 0; i < e->metadata_count; i++)
    printf(" [%s=%s]", e->metadata[i].key, e->metadata[i].json);
  for (size_t i = 0; i < e->value_count; i++)
    printf(" {%s=%.17g}", e->values[i].series, e->values[i].value);
  puts("");
}

static void device(void* handle, int64_t number, int64_t sort_index, const char* name,
                   const char* label) {
  (void)handle;
  if (shows) printf("device %lld order %lld %s (%s)\n", (long long)number, (long long)sort_index, name, label);
}

static void resource(void* handle, int64_t number, int64_t stream, int64_t order, const char* name) {
  (void)handle;
  if (shows)
    printf("resource %lld/%lld order %lld %s\n", (long long)number, (long long)stream, (long long)order, name);
}

static void record(const counterpoint_torch_plugins_t* table, uint32_t profiler) {
  static const uint32_t cpu[] = {1, 2, 7, 8, 9, 10, 11, 23, 24};  // As torch with activities=[CPU].
  counterpoint_torch_session_t* session =
      table->create(profiler, cpu, sizeof cpu / sizeof *cpu, "REQUEST_TRACE_ID=1\nCUSTOM_CONFIG=deep\n");
  if (!session) return;
  if (shows) printf("profiler %s stacks %u\n", table->name(profiler), table->stacks(session));
  int results = table->start(session);
  table->push(session, COUNTERPOINT_TORCH_STACK_OPS, 42);
  table->pop(session, COUNTERPOINT_TORCH_STACK_OPS);
  table->push(session, COUNTERPOINT_TORCH_STACK_USER, 42);
  table->pop(session, COUNTERPOINT_TORCH_STACK_USER);
  results += table->stop(session);
  int events = 0;
  counterpoint_torch_sink_t sink = {sizeof sink, &events, event, device, resource};
  results += table->process(session, &sink);
  table->destroy(session);
  if (shows) printf("%d events, results %d\n", events, results);
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  shows = argc > 2 && !strcmp(argv[2], "show");
  setenv("KINETO_PLUGIN_LIB_DIR_PATH", argv[1], 1);
  const counterpoint_torch_plugins_t* table = dlsym(RTLD_DEFAULT, "counterpoint_torch_plugins");
  if (!table && shows) return 3;
  if (table) {
    uint32_t profilers = table->load();
    for (uint32_t i = 0; i < profilers; i++) record(table, i);
    for (uint32_t i = 0; i < profilers; i++) record(table, i);
  }
  puts("done");
  return 17;
}
